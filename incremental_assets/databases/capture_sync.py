"""Carries out one sync of a container that follows the log of its source.

docs/decisions/capture.md says why no change is lost and none is undone.
"""

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from incremental_assets.core.capture import CapturePosition, lsn_text
from incremental_assets.core.comparison import RowScope
from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.core.plan import Action
from incremental_assets.core.schema import with_comments
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import Advance, TableState
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.databases.capture_plan import gap_of
from incremental_assets.databases.change_log import ChangeLog, Key, LogState, Peeked
from incremental_assets.databases.column_numbers import takes_other_names
from incremental_assets.databases.hidden_rows import policies_read, unknown_policies
from incremental_assets.databases.recreated import relation_after
from incremental_assets.databases.rows import MOST_LOCAL_BYTES, MOST_LOCAL_ROWS
from incremental_assets.databases.source import SourceDatabase
from incremental_assets.databases.source_checks import gone_from_source
from incremental_assets.databases.sync import TableSync
from incremental_assets.databases.unplaced import note_unplaced
from incremental_assets.delta.local_rows import local_frame
from incremental_assets.delta.properties import is_set_without_spark
from incremental_assets.delta.result import LSN
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import BatchRows, WithKeys, WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

module_log = logging.getLogger(__name__)
NO_LIMIT = 1 << 62
KEYS_A_COMMIT = MOST_LOCAL_ROWS
"""The number of keys whose rows one commit writes. More than so many changed rows are several commits, and so are rows of many bytes."""
SETTLE_SECONDS = 60.0
"""How long a load waits for those transactions to end that have written to the table before."""
MOST_ROUNDS = 10
"""How often a sync that is to be audited reads the log again, until one commit is enough."""


class CapturedSync(TableSync):
    """The sync of a container with ``capture: log``. ``others``: the tables of all containers that use the slot, this one included."""

    def __init__(self, *arguments: Any, log: ChangeLog, others: Sequence[LakeTable]) -> None:
        super().__init__(*arguments)
        self._change_log, self._others = log, others
        self._pieces: Iterator[Sequence[Key]] = iter(())
        self._keys = deque[Sequence[Key]]()
        """Keys whose rows are still to be written, of those that the log had; ``_pieces`` has more of them."""
        self._next: CapturePosition | None = None
        """The position of the table once the rows of all these keys are written; None before the log was read."""
        self._commits = 0
        """How many commits the round has that is applied now."""
        self._is_done = False
        self._is_judged = True
        """Whether the lake is equal to the snapshot that is held, so that an audit may compare them."""

    def needs_spark(self) -> bool:
        if not self._plan.applies:
            return super().needs_spark()
        return not is_set_without_spark(self.table)

    def write_batches(self) -> Iterator[contextlib.AbstractContextManager[WriteBatch]]:
        if not self._plan.applies:
            with contextlib.ExitStack() as stack:
                if self._plan.action is Action.LOAD:
                    # Until the first commit nothing tells the other containers that this one needs the log from now on.
                    stack.enter_context(self._change_log.held())
                    self._change_log.settle(SETTLE_SECONDS)
                for step in super().write_batches():
                    self._is_judged = not self._in_pieces
                    yield step
            if not self._in_pieces or self._plan.action is Action.REFRESH:
                return
        # Several pieces were read from as many snapshots. What the log has since the first of them makes one state of them.
        for _ in range(MOST_ROUNDS):
            self._is_done, self._commits = False, 0
            while not self._is_done:
                yield self._apply()
            if self._commits == 1 or self._plan.request.audit is None:
                return

    # ------------------------------------------------------------------ a load
    def _next_state(self, container: Container, moved: Advance, scope: RowScope) -> TableState:
        state = super()._next_state(container, moved, scope)
        before = self._state.capture if self._state is not None and not self._whole else None
        if self._plan.action is Action.REFRESH:
            return replace(state, capture=before)
        return replace(state, capture=self._loaded_to(before), fingerprint=None)

    def _loaded_to(self, before: CapturePosition | None) -> CapturePosition:
        """The position of the table after a piece of a load. A later piece does not move it: changes of earlier ones are in the log."""
        last = self._is_last
        if before is not None and not before.loaded:
            return replace(before, loaded=last)
        found = self._change_log.state()
        return self._position(found, self._change_log.point(found.confirmed), loaded=last)

    def _position(self, found: LogState, seen: Peeked, *, loaded: bool = True) -> CapturePosition:
        """The position that a look has reached. ``found``: the log right before it."""
        source = self._source
        if self._plan.retained is not None:
            self.result.retained = replace(self._plan.retained, bytes=found.retained, seconds=seen.kept)
        return CapturePosition(
            found.slot,
            source.server.source,
            found.timeline,
            seen.end,
            found.membership,
            source.container.settings_text,
            found.shape,
            loaded,
        )

    # ------------------------------------------------------------------ what the log has
    @contextlib.contextmanager
    def _apply(self) -> Iterator[WriteBatch]:
        """One commit of changed rows, which are read from a new snapshot. The last one of a round moves the table's position.

        Where the log turns out not to tell all that has changed, the commit replaces the whole table instead.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._source.snapshot())
            reason = self._read_log() if self._next is None else None
            if reason is None:
                yield self._changed_batch()
            else:
                stack.close()
                self.result.messages.append(f"loads the whole container anew: {reason}")
                self._log(f"{self._container.label}: {self.result.messages[-1]}")
                yield stack.enter_context(self._whole_batch())
        self._commits += 1
        if self._next is None or not self._keys:
            self._is_done, self._next = True, None

    def _read_log(self) -> str | None:
        """Reads the log up to the snapshot that is held. Returns why it does not tell all that has changed; None if it does."""
        assert self._state is not None and self._state.capture is not None
        before = self._state.capture
        found = self._change_log.state()
        captured = self._change_log.captured(before.lsn, before.shape, found.shape)
        # The slot may have been moved while it was read.
        reason = gap_of(before, self._change_log.state(), self._source) or captured.found.reload
        reason = reason or takes_other_names(self._source.container, self._source.relation(), self._state)
        if reason is not None:
            captured.close()
            return reason
        self._keys, self._pieces = deque[Sequence[Key]](), captured.pieces(KEYS_A_COMMIT)
        self._next = self._position(found, replace(captured.found, end=max(before.lsn, captured.found.end)))
        self._log(f"{self._container.label}: {counted(len(captured), 'key has', 'keys have')} changed up to {lsn_text(self._next.lsn)}")
        self._fetch_keys()
        return None

    def _changed_batch(self) -> WriteBatch:
        """The rows of the next keys, as they are in the snapshot that is held."""
        plan, source, before = self._plan, self._source, self._state
        assert before is not None
        found = source.table()
        if found is None:
            raise gone_from_source(plan.container)
        container = self._current(found)
        snapshot = source.snapshot_rows(container, before.text_columns)
        changed = self._next_rows(before.text_columns)
        self._fetch_keys()
        is_last = not self._keys
        if is_last and self._commits == 0:
            note_unplaced(container, source, self.result)
        state = replace(
            before,
            capture=self._next if is_last else before.capture,
            key=container.primary_key,
            canonical=container.canonical,
            schema=container.schema,
            excluded_columns=container.options.exclude_columns,
            fingerprint=None,
            policies=policies_read(plan, container, source, before),
            **relation_after(plan, container, source.relation(), before),
            columns=tuple(column.name for column in snapshot.columns),
        )
        self.result.warnings += unknown_policies(container, source, before)
        self._audited, self._is_judged = snapshot, is_last and self._commits == 0
        return WriteBatch(
            container=container,
            replaces=changed,
            columns=with_comments(snapshot.columns, container.comments),
            base_version=self._base_version,
            state=state,
            expected=changed.keys.num_rows,
            allow_empty=True,
            commit_metadata=plan.commit_metadata(state.watermark, self._run_id),
            rows=_ReadRows(changed.rows, source),
        )

    @contextlib.contextmanager
    def _whole_batch(self) -> Iterator[WriteBatch]:
        container = self._container
        self._whole, self._is_judged = True, True
        with self._change_log.held():
            self._change_log.settle(SETTLE_SECONDS)
            domain = container.identifier.domain if container.identifier else EVERYTHING
            with self._step((domain,), True) as write_batch:
                yield write_batch

    def _fetch_keys(self) -> None:
        """Fetches the next keys into ``_keys``, if there are none in it."""
        if not self._keys:
            self._keys.extend(itertools.islice(self._pieces, 1))

    def _next_rows(self, text_columns: Sequence[str]) -> WithKeys:
        """The rows of the next keys: of fewer of them than ``KEYS_A_COMMIT``, if the rows take too much memory."""
        keys: Sequence[Key] = self._keys.popleft() if self._keys else ()
        while True:
            most = MOST_LOCAL_BYTES if len(keys) > 1 else NO_LIMIT
            found = self._change_log.rows(text_columns, keys, most)
            if found is not None:
                rows, of_keys = found
                return WithKeys(of_keys, rows)
            half = len(keys) // 2
            self._keys.appendleft(keys[half:])
            keys = keys[:half]

    # ------------------------------------------------------------------ afterwards
    def inspect(self, spark: "Callable[[], SparkSession]", outcome: WriteResult) -> None:
        if self._is_judged:
            super().inspect(spark, outcome)

    def committed(self, write_batch: WriteBatch, outcome: WriteResult) -> None:
        super().committed(write_batch, outcome)
        position = write_batch.state.capture
        if position is not None:
            self.result.more |= {"capture/slot": position.slot, LSN: lsn_text(position.lsn)}
            if self.result.retained is not None:
                self.result.more["capture/retained_bytes"] = self.result.retained.bytes

    def finish(self) -> None:
        advance_slot(self._change_log, self.table, self._others)


def advance_slot(log: ChangeLog, table: LakeTable, others: Sequence[LakeTable]) -> None:
    """Lets the source forget what all containers of the slot have committed.

    ``table``: that of one of them, which was just written; its slot is meant. ``others``: the tables of all containers.
    """
    head = table.head()
    mine = head.captured_to if head is not None else None
    if mine is None:
        return
    try:
        heads = [other.head() for other in others]
    except LakeError as error:
        # How much of the log that container still needs is not known, so all of it is kept. Its own sync fails, and says why.
        module_log.warning("the replication slot stays where it is: %s", error)
        return
    reached = [head.captured_to for head in heads if head is not None]
    log.advance(min([mine[1], *(lsn for slot, lsn in filter(None, reached) if slot == mine[0])]))


class _ReadRows(BatchRows):
    """The ``BatchRows`` of changed rows, which this process has read already."""

    def __init__(self, rows: pa.Table, source: SourceDatabase) -> None:
        self._rows, self._source = rows, source

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return local_frame(spark, self._rows)

    def local(self) -> pa.Table:
        return self._rows

    def still_there(self) -> None:
        self._source.still_there()

    def emptied(self) -> Sequence[Window]:
        return ()
