"""Lets one look at the log of a source answer, for many containers, whether anything has changed in them.

A source decodes all of the log that it keeps for a slot, whichever tables are asked for. So the first of many containers that are planned
asks for the others, too.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Container
from incremental_assets.core.errors import SyncError
from incremental_assets.databases.change_log import ChangeLog, Peeked, Since
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.delta.table import LakeTable

TOGETHER = 200
"""For how many further containers a look asks. Their tables in the lake are opened before, to see how far each has come."""
FRESH_SECONDS = 10.0
"""How long the answers of a look hold: as long as a plan that was made ahead (``runs.plans_ahead``)."""


@dataclass
class _Slot:
    """The containers of one slot. ``unasked``: those whose plan has not asked yet. ``answers``: of the last look, with what was asked.
    ``until``: when they end to hold, by the monotonic clock."""

    unasked: dict[str, TableDefinition] = field(default_factory=dict[str, TableDefinition])
    answers: Mapping[str, tuple[Since, Peeked]] = field(default_factory=dict[str, tuple[Since, Peeked]])
    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class SlotCounts:
    """Whether the containers that follow a log have changed, for the plans of one command, or of one tick of a schedule.

    It must not outlive these, so that a command sees all that was committed before it began. It may be used by several threads.
    """

    def __init__(self, definitions: Sequence[ContainerDefinition] = (), lake: str = "") -> None:
        """``definitions``: the containers that are to be planned; without them, each is looked at alone. ``lake``: its folder or URL."""
        self._lake = lake
        self._slots: dict[str, _Slot] = {}
        for one in definitions:
            if isinstance(one, TableDefinition) and one.container.is_captured:
                self._slots.setdefault(one.container.datastore, _Slot()).unasked[one.container.label] = one

    def changed(self, container: Container, log: ChangeLog, since: Since) -> Peeked:
        """Whether anything has changed in the container. ``log``: that of the container. Raises SourceError if it cannot be read."""
        slot, label = self._slots.setdefault(container.datastore, _Slot()), container.label
        with slot.lock:
            slot.unasked.pop(label, None)
            if time.monotonic() > slot.until:
                self._look(slot, log, label, since)
            asked, answer = slot.answers.get(label, (None, None))
        if answer is not None and asked == since:
            return answer
        # Since the look, another sync has moved its table, or its partitions have changed.
        return log.changed({label: since})[label]

    def _look(self, slot: _Slot, log: ChangeLog, label: str, since: Since) -> None:
        began, looked_at = time.monotonic(), time.time()
        asked = {label: since}
        for name, definition in list(slot.unasked.items())[:TOGETHER]:
            position = self._position(definition)
            if position is not None:
                asked[name] = position
        found = log.changed(asked)
        slot.answers = {name: (asked[name], replace(found[name], looked_at=looked_at)) for name in asked}
        ended = time.monotonic()
        slot.until = ended + max(FRESH_SECONDS, 3 * (ended - began))

    def _position(self, definition: TableDefinition) -> Since | None:
        """How far the container's table has come; None if that is not known. Its own plan then says why."""
        container = definition.container
        try:
            head = LakeTable(self._lake, *container.key_path).head()
            state = head.state(container) if head is not None and head.signature() == container.signature else None
        except SyncError:
            return None
        return Since.of(state.capture.lsn, state.capture.shape) if state is not None and state.capture is not None else None
