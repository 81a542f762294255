"""The watermark and when it may move: everything below it is in the lake.

Belongs here: the state kept with a table, which transactions still count as open, and the one decision where the watermark goes. Does not
belong: asking a database who is at work (sources), or storing the state (lake). The rule and the experiments behind it are told in
docs/how-a-sync-works.md; ``advance`` is what the property tests drive.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from incremental_assets.core.axis import Axis, json_value, value_from_json
from incremental_assets.core.errors import RebuildNeeded

STATE_FORMAT = 1


@dataclass(frozen=True)
class Session:
    """One session of the source, as one row of its list of activity shows it; times in microseconds of the source's clock.

    ``identity`` tells it from every other session of one server's life. ``transaction_since``: the time that its transaction bears, which
    is what ``now()`` gives in it; None outside of one. ``message_since``: when the newest message of its client arrived. ``is_idle``:
    that message is done.
    """

    identity: str
    transaction_since: int | None
    message_since: int | None
    is_idle: bool

    def began_after(self, clock: int) -> bool:
        """Whether whatever it still commits bears a time after ``clock``: a later transaction is open, or none is and none can follow
        from a message that had arrived by then."""
        if self.transaction_since is not None:
            return self.transaction_since > clock
        return self.is_idle or (self.message_since is not None and self.message_since > clock)


@dataclass(frozen=True)
class Activity:
    """Who is at work in the source at one moment.

    ``virtual``: virtual ids of open transactions. ``prepared``: transaction ids of prepared ones. ``sessions``: those that the role may
    watch, where sessions count (times); ``unwatched``: virtual ids of the others, and ``unwatched_pids`` their processes.
    ``server_started``: when its server started, in microseconds. Virtual ids and sessions are unique only while one server runs.
    """

    virtual: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()
    sessions: tuple[Session, ...] = ()
    unwatched: frozenset[str] = frozenset()
    unwatched_pids: frozenset[str] = frozenset()
    server_started: int = 0

    def noted(self, clock: int, *, by_session: bool) -> "OpenTransactions":
        """Those that may still commit a value that was made by ``clock``.

        ``by_session``: values are times, and a transaction may bear one from before it had a virtual id: PostgreSQL takes ``now()`` when
        the client's message arrives, and transactions that follow in the same message, or from COMMIT AND CHAIN, share it. Then sessions
        count, and virtual ids only of those that the role may not watch.
        """
        if not by_session:
            return OpenTransactions(self.virtual, self.prepared, frozenset(), clock, self.server_started)
        sessions = frozenset(s.identity for s in self.sessions if not s.began_after(clock))
        return OpenTransactions(self.unwatched, self.prepared, sessions, clock, self.server_started)


@dataclass(frozen=True)
class OpenTransactions:
    """Who may still commit rows below a value: noted at one moment, and fewer at each later one.

    ``noted_at``: the source's clock when the value was read. The rest as in ``Activity``; of sessions the identities.
    """

    virtual: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    noted_at: int = 0
    server_started: int = 0

    def __bool__(self) -> bool:
        return bool(self.virtual or self.prepared or self.sessions)

    def still_open(self, now: Activity) -> "OpenTransactions":
        """Those of ``self`` that may not have ended when ``now`` was read.

        Who has ended once has ended for good: the answer takes the place of ``self``, or a session of a connection pool, which is soon at
        work again, would count for ever. One that is gone may have been prepared: at the first moment without it, whatever is prepared then
        takes its place. That is a finite set, which only shrinks. Times of preparation do not tell: PREPARE takes its time at its
        beginning and is seen as prepared only after it has flushed its log.
        """
        same_server = self.server_started == now.server_started
        virtual = self.virtual & now.virtual if same_server else frozenset[str]()
        sessions = frozenset(name for name in self.sessions if same_server and self._is_at_work(name, now))
        someone_left = virtual != self.virtual or sessions != self.sessions
        prepared = now.prepared if someone_left else self.prepared & now.prepared
        return replace(self, virtual=virtual, prepared=prepared, sessions=sessions)

    def _is_at_work(self, name: str, now: Activity) -> bool:
        if name.split("/")[0] in now.unwatched_pids:  # a privilege was taken away in between
            return True
        return any(s.identity == name and not s.began_after(self.noted_at) for s in now.sessions)


@dataclass(frozen=True)
class Pending:
    """A value the watermark moves to once all of ``open`` have ended and the rows from the old watermark on were read again.

    ``by_margin``: only the margin below the source's clock withholds it. Nobody was noted for it, so it only tells that there is something
    to move to, once the highest identifier has been read again.
    """

    value: int
    open: OpenTransactions
    by_margin: bool = False


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
                    "sessions": sorted(p.open.sessions),
                    "noted_at": p.open.noted_at,
                    "server_started": p.open.server_started,
                    "by_margin": p.by_margin,
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
            opened = OpenTransactions(
                frozenset(p["virtual"]),
                frozenset(p["prepared"]),
                frozenset(p.get("sessions", ())),  # entries of older versions have virtual ids alone
                p["noted_at"],
                p["server_started"],
            )
            moved_to = value(p["value"])
            assert moved_to is not None
            return Pending(moved_to, opened, p.get("by_margin", False))

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
    held_by: OpenTransactions,
    now: Activity,
    covered_to: int | bool | None,
    withheld: int | None = None,
) -> Advance:
    """Decides the new watermark of a sync that read one snapshot.

    ``highest``: the highest identifier, read first (already cut to a margin below the source's clock, or to its sequence). ``held_by``: of
    those who were noted after it, whoever has not ended. ``now``: who was at work just before the snapshot was taken. ``covered_to``: how
    far the read covers the axis without a gap from where a sync would begin, the safety lag below ``old`` (True: to its end; None: it does
    not cover that place). Coverage from ``old`` itself is not enough: late rows inside the lag would be left behind for good.
    ``withheld``: the highest identifier without the margin, where that is more.

    The watermark becomes ``highest`` only if all who were noted have ended before the snapshot; otherwise it may still move to a pending
    value whose transactions have. It never falls, and never passes what was covered. Whoever has ended is struck from the pending values,
    whatever else is decided.
    """
    struck = tuple(replace(p, open=p.open.still_open(now)) for p in pending)
    if covered_to is None or covered_to is False:
        return Advance(old, struck, False)

    def reach(value: int) -> int:
        return value if covered_to is True else min(value, covered_to)

    new = old
    known = [p for p in struck if not p.by_margin]
    candidates = [p.value for p in known if not p.open]
    if highest is not None and not held_by:
        candidates.append(highest)
    for candidate in candidates:
        new = reach(candidate) if new is None else max(new, reach(candidate))
    kept = [p for p in known if new is None or p.value > new]
    beyond = highest is not None and all(highest > value for value in (new, *(p.value for p in kept)) if value is not None)
    if highest is not None and held_by and beyond:  # one that is pending already has fewer to wait for
        kept.append(Pending(highest, held_by))
    if len(kept) > 2:
        kept = [kept[0], kept[-1]]
    if not kept and withheld is not None and (new is None or withheld > new):
        kept = [Pending(withheld, OpenTransactions(), by_margin=True)]
    return Advance(new, tuple(kept), bool(held_by) and highest is not None and (new is None or highest > new))


@dataclass(frozen=True)
class Holder:
    """Somebody who holds the watermark back. ``pid`` is None for a prepared transaction, whose ``application`` is its name.

    ``since``: ISO 8601, when it was begun.
    """

    pid: int | None
    user: str | None
    application: str | None
    since: str | None

    def age_seconds(self, now: datetime) -> float:
        """How long it has been open."""
        return 0.0 if self.since is None else (now - datetime.fromisoformat(self.since)).total_seconds()
