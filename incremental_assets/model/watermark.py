"""The watermark and when it may move: everything below it is in the lake.

Belongs here: the state kept with a table, which transactions still count as open, and the one decision where the watermark goes. Does not
belong: asking a database who is open (sources), or storing the state (lake). The rule and the experiments behind it are told in
docs/how-a-sync-works.md; ``advance`` is what the property tests drive.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from incremental_assets.model.axis import Axis, json_value, value_from_json
from incremental_assets.model.errors import RebuildNeeded

STATE_FORMAT = 1


@dataclass(frozen=True)
class OpenTransactions:
    """Who was open in the source at one moment.

    ``virtual``: virtual transaction ids; ``prepared``: transaction ids of prepared ones. ``noted_at``: the source's clock just before
    they were read; ``server_started``: when its server started; ``last_prepared``: when the newest prepared one was prepared (all in
    microseconds). Virtual ids are unique only while one server runs.
    """

    virtual: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()
    noted_at: int = 0
    server_started: int = 0
    last_prepared: int | None = None

    def __bool__(self) -> bool:
        return bool(self.virtual or self.prepared)

    def still_open(self, now: "OpenTransactions") -> "OpenTransactions":
        """Those of ``self`` that may not have ended when ``now`` was read.

        One that is gone from the virtual ids may have been prepared: it counts as open while any prepared one exists that was not there
        yet. Their times of preparation do not tell: PREPARE takes its time at its beginning and is seen as prepared only after it has
        flushed its log, so one that was noted as virtual may bear a time before that.
        """
        virtual = self.virtual & now.virtual if self.server_started == now.server_started else frozenset[str]()
        if now.prepared - self.prepared:
            virtual = self.virtual
        return replace(self, virtual=virtual, prepared=self.prepared & now.prepared)


@dataclass(frozen=True)
class Pending:
    """A value the watermark moves to once all of ``open`` have ended and the ground was read again."""

    value: int
    open: OpenTransactions


@dataclass(frozen=True)
class TableState:
    """What a container's table says of itself, stored as one property of the Delta table.

    ``identifier``, ``strategy``, ``key``, ``source`` and ``schema`` are what the table was built with: a change of them needs a rebuild.
    ``relation``: the very table of the source, which one made anew under its name is not. ``data_version``: the Delta version of the last
    data commit; ``fingerprint``: of the source's tail at that moment.
    """

    identifier: str
    strategy: str
    key: tuple[str, ...]
    source: str
    watermark: int | None = None
    pending: tuple[Pending, ...] = ()
    fingerprint: str | None = None
    data_version: int | None = None
    loaded: bool = False
    start: str | None = None
    text_columns: tuple[str, ...] = field(default=())
    schema: str | None = None
    excluded_columns: tuple[str, ...] = field(default=())
    relation: str | None = None

    def counting_watermark(self, event: int | None) -> int | None:
        """The one to go by: the lower of the table's own and ``event``, the newest in the event log; None where the table has none."""
        return self.watermark if self.watermark is None or event is None else min(self.watermark, event)

    def to_json(self, axis: Axis | None) -> str:
        """Exact text: a watermark is ISO text or an integer, never a float."""

        def value(v: int | None) -> int | str | None:
            return v if axis is None else json_value(axis, v)

        data: dict[str, Any] = {
            "format": STATE_FORMAT,
            "identifier": self.identifier,
            "strategy": self.strategy,
            "key": list(self.key),
            "source": self.source,
            "watermark": value(self.watermark),
            "pending": [
                {
                    "value": value(p.value),
                    "virtual": sorted(p.open.virtual),
                    "prepared": sorted(p.open.prepared),
                    "noted_at": p.open.noted_at,
                    "server_started": p.open.server_started,
                }
                for p in self.pending
            ],
            "fingerprint": self.fingerprint,
            "data_version": self.data_version,
            "loaded": self.loaded,
            "start": self.start,
            "text_columns": list(self.text_columns),
            "schema": self.schema,
            "excluded_columns": list(self.excluded_columns),
            "relation": self.relation,
        }
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, axis: Axis | None, text: str) -> "TableState":
        data: dict[str, Any] = json.loads(text)
        if data["format"] > STATE_FORMAT:
            raise RebuildNeeded(
                f"the table was written by a newer version of incremental-assets (state format {data['format']}): use that version."
            )

        def value(v: int | str | None) -> int | None:
            return int(v) if axis is None and v is not None else value_from_json(axis or Axis.INTEGER, v)

        def pending(p: dict[str, Any]) -> Pending:
            opened = OpenTransactions(frozenset(p["virtual"]), frozenset(p["prepared"]), p["noted_at"], p["server_started"])
            moved_to = value(p["value"])
            assert moved_to is not None
            return Pending(moved_to, opened)

        return cls(
            identifier=data["identifier"],
            strategy=data["strategy"],
            key=tuple(data["key"]),
            source=data["source"],
            watermark=value(data["watermark"]),
            pending=tuple(pending(p) for p in data["pending"]),
            fingerprint=data["fingerprint"],
            data_version=data["data_version"],
            loaded=data["loaded"],
            start=data["start"],
            text_columns=tuple(data["text_columns"]),
            schema=data.get("schema"),
            excluded_columns=tuple(data.get("excluded_columns", ())),
            relation=data.get("relation"),
        )


@dataclass(frozen=True)
class Advance:
    """Where the watermark goes, and what stays pending."""

    watermark: int | None
    pending: tuple[Pending, ...]
    held_back: bool


def advance(
    old: int | None,
    pending: tuple[Pending, ...],
    highest: int | None,
    open_at_highest: OpenTransactions,
    open_at_snapshot: OpenTransactions,
    covered_to: int | bool | None,
) -> Advance:
    """Decides the new watermark of a sync that read one snapshot.

    ``highest``: the highest identifier, read first (already cut to the source's clock or sequence). ``open_at_highest``: who was open,
    read after it. ``open_at_snapshot``: who was open just before the snapshot was taken. ``covered_to``: how far the read covers the
    axis without a gap from where a sync would begin, the safety lag below ``old`` (True: to its end; None: it does not cover that place).
    Coverage from ``old`` itself is not enough: late rows inside the lag would be left behind for good.

    The watermark becomes ``highest`` only if all who were open have ended before the snapshot; otherwise it may still move to a pending
    value whose transactions have. It never falls, and never passes the ground that was covered.
    """
    if covered_to is None or covered_to is False:
        return Advance(old, pending, False)

    def reach(value: int) -> int:
        return value if covered_to is True else min(value, covered_to)

    new, held = old, open_at_highest.still_open(open_at_snapshot)
    candidates = [p.value for p in pending if not p.open.still_open(open_at_snapshot)]
    if highest is not None and not held:
        candidates.append(highest)
    for candidate in candidates:
        new = reach(candidate) if new is None else max(new, reach(candidate))
    kept = [p for p in pending if new is None or p.value > new]
    if highest is not None and held and (new is None or highest > new):
        kept.append(Pending(highest, held))
    if len(kept) > 2:
        kept = [kept[0], kept[-1]]
    return Advance(new, tuple(kept), bool(held) and highest is not None and (new is None or highest > new))
