"""The watermark and the rule by which it moves: every row with an identifier below the watermark is in the Delta table.

docs/how-a-sync-works.md explains the rule and its limits; assets_tests/core/test_watermark_rule.py tests ``advance`` with random histories.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from incremental_assets.core.capture import CapturePosition
from incremental_assets.core.container import Identifier, Inherited
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.cursor_type import CursorType, json_value, value_from_json
from incremental_assets.core.history import HistoryPoint
from incremental_assets.core.stored_format import WRITTEN_BY, expect_known, known_value, product_version
from incremental_assets.core.unfilled import Unfilled

STATE_FORMAT = 1
"""The version of the JSON of ``TableState``. A table with a higher one is refused."""


@dataclass(frozen=True)
class Session:
    """One session of the source, from one row of ``pg_stat_activity``. Times are microseconds since 1970 UTC by the source's clock.

    ``identity``: ``<pid>/<backend_start>``, which is unique until the server restarts. ``transaction_since``: ``xact_start``, the time that
    ``now()`` returns in its transaction; None outside of a transaction. ``message_since``: ``query_start``, the time at which the newest
    message of the client arrived. ``is_idle``: the state is ``idle``, so that this message has been processed completely.
    """

    identity: str
    transaction_since: int | None
    message_since: int | None
    is_idle: bool

    def began_after(self, clock: int) -> bool:
        """Whether ``now()`` is after ``clock`` in everything that the session can still commit.

        This is so if its transaction began after ``clock``, or if it has none and no message that arrived by ``clock`` is still being
        processed: transactions that follow within the same message have the time of the message.
        """
        if self.transaction_since is not None:
            return self.transaction_since > clock
        return self.is_idle or (self.message_since is not None and self.message_since > clock)


@dataclass(frozen=True)
class Activity:
    """The open transactions and the sessions of the source at one point in time. Our own connections are not among them.

    ``virtual``: virtual ids of open transactions. ``prepared``: transaction ids of prepared transactions. ``sessions``: the sessions whose
    activity our role may see. ``unwatched`` and ``unwatched_pids``: the virtual ids and the process ids of all others (without
    ``pg_read_all_stats``, or with ``track_activities = off``). ``server_started``: the start of the PostgreSQL server, in microseconds
    since 1970 UTC. Virtual ids and sessions are unique only as long as that server runs.
    """

    virtual: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()
    sessions: tuple[Session, ...] = ()
    unwatched: frozenset[str] = frozenset()
    unwatched_pids: frozenset[str] = frozenset()
    server_started: int = 0

    def noted(self, clock: int, *, by_session: bool) -> "OpenTransactions":
        """The transactions and sessions that may still commit an identifier value that was made at or before ``clock``.

        ``clock``: microseconds since 1970 UTC by the source's clock. ``by_session`` is True if the values are times. A transaction can have
        a time from before it had a virtual id: PostgreSQL sets ``now()`` when the client's message arrives, and the transactions that
        follow in the same message, or by COMMIT AND CHAIN, keep that time. Sessions are noted then, and virtual ids only for sessions whose
        activity our role may not see.
        """
        if not by_session:
            return OpenTransactions(self.virtual, self.prepared, frozenset(), clock, self.server_started)
        sessions = frozenset(s.identity for s in self.sessions if not s.began_after(clock))
        return OpenTransactions(self.unwatched, self.prepared, sessions, clock, self.server_started)


@dataclass(frozen=True)
class OpenTransactions:
    """The transactions and sessions that may still commit rows below a certain identifier value.

    They are noted once, when the value is read. Afterwards they only become fewer, except that prepared transactions take the place of one
    that has disappeared (``still_open``). ``noted_at``: the source's clock when the value was read, in microseconds since 1970 UTC. The
    other fields are those of ``Activity``; ``sessions`` has the identities only. An instance is true if any transaction or session is left.
    """

    virtual: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    noted_at: int = 0
    server_started: int = 0

    def __bool__(self) -> bool:
        return bool(self.virtual or self.prepared or self.sessions)

    def still_open(self, now: Activity) -> "OpenTransactions":
        """The part of ``self`` that may still have been open when ``now`` was read. The caller must store the result in place of ``self``.

        A session that was seen to have ended its transaction is released for good. If the stored set were not replaced, a session of a
        connection pool, which soon begins another transaction, would hold the watermark back for ever.

        A transaction that has disappeared may have been prepared for a two-phase commit. So when one disappears, all transactions that are
        prepared at that time take its place: a finite set, which only shrinks afterwards. The time of preparation cannot narrow it down:
        PREPARE TRANSACTION takes its time at its beginning, and the transaction is visible as prepared only after its log was flushed.
        """
        # A restart of the server ends every transaction that is not prepared, and virtual ids and process ids are assigned again.
        same_server = self.server_started == now.server_started
        virtual = self.virtual & now.virtual if same_server else frozenset[str]()
        sessions = frozenset(name for name in self.sessions if same_server and self._is_at_work(name, now))
        someone_left = virtual != self.virtual or sessions != self.sessions
        prepared = now.prepared if someone_left else self.prepared & now.prepared
        return replace(self, virtual=virtual, prepared=prepared, sessions=sessions)

    def _is_at_work(self, name: str, now: Activity) -> bool:
        if name.split("/")[0] in now.unwatched_pids:  # our role has lost the privilege to see it, so it may still be open
            return True
        return any(s.identity == name and not s.began_after(self.noted_at) for s in now.sessions)


@dataclass(frozen=True)
class Pending:
    """A value to which the watermark moves once all of ``open`` have ended and the lag window of the old watermark was read again.

    ``by_margin``: the value lies above the watermark only because of the margin below the source's clock (``watermark_margin_seconds``). No
    open transactions were noted for such a value, so the watermark never moves to it: the entry only tells the next plan that the watermark
    can move once the highest identifier was read again, even if no row has changed.
    """

    value: int
    open: OpenTransactions
    by_margin: bool = False


LeftOut = tuple[int, str]
"""How many rows were left out, and the condition of the YAML (``where:``) by which they were counted."""


@dataclass(frozen=True)
class TableState:
    """The state of a container, which is stored as JSON in the property ``incremental_assets.state`` of its Delta table.

    ``identifier``, ``strategy``, ``key``, ``source``, ``start`` and ``schema`` describe what the table was built with: if one of them
    changes (``key`` for the strategy ``upsert`` only), the table has to be rebuilt. ``identifier`` is ``Identifier.signature``; ``source``
    is the system identifier and the OID of the database; ``start`` is the text of the start value. ``relation``: the OID of the source's
    table, by which a table that was dropped and created again is recognized. ``watermark``: None if there is none yet. ``pending``: values
    that the watermark moves to later, the oldest first. ``fingerprint``: of the rows in the lag window of the source at the last sync;
    ``data_version``: the Delta version that this sync wrote. ``loaded``: whether rows were ever written. ``text_columns``: columns that
    became text at the first load, because they hold values such as infinity. ``excluded_columns``: the YAML's ``exclude_columns`` at the
    last sync. ``swept_at``: when all keys of the table were last compared with those of the source, whatever came of it, in microseconds
    since 1970 UTC; None: never. ``capture``: how far the table has come in the source's log; None if it does not follow it. ``columns``:
    those that the last sync has read; None if an earlier version of this product wrote the state. ``unfilled``: where older rows lack
    values of columns that were added; None: nowhere. ``policies``: identifies the policies of row security that hid rows from our role;
    empty if none did, None if an earlier version of this product wrote the state, which did not notice them. ``numbers``: the numbers by
    which the source tells columns from others of the same name, those of dropped columns included; None if it has none, or if an earlier
    version of this product wrote the state. ``mark``: of the source's table, where it has no id that tells it from another one
    (``Relation.mark``). ``inherited``: whose rows it has (``Container.inherited``); None if an earlier version wrote the state, which
    always read those of all heirs. ``point``: in the history of the source's server, at or after the last read that the fingerprint and the
    pending values stand for; None if the source has none, or if an earlier version wrote the state. ``canonical``: the columns of the key
    of which all rows have the canonical form (``Container.canonical``); None if an earlier version wrote the state, which knew none.
    ``valueless``: columns that files have without any value so far, so that the table has them only once a value comes. ``read_at``: when a
    container was last read that is read whole at intervals (``ContainerOptions.every``), in microseconds since 1970 UTC; None: it is
    not, or not yet. ``cut``: ``Container.cut`` when all rows were last reported to Dagster; None if an earlier version wrote the state.
    ``padded``: ``Container.padded`` at the last sync; None if there was no such column, or if an earlier version wrote the state.
    ``unplaced``: how many rows of the source the last sync has left out, as no window holds them (``databases.unplaced``), and the YAML's
    ``where:`` then. ``data_commit``: the id of the commit ``data_version``, which tells it from another one of that number; None if there
    is none, or if an earlier version wrote the state. ``changes``: what the source's counters said of updated and deleted rows, of a
    container that is watched (``Container.is_watched``); None if the source does not count, or if an earlier version wrote the state.
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
    swept_at: int | None = None
    capture: CapturePosition | None = None
    columns: tuple[str, ...] | None = None
    unfilled: Unfilled | None = None
    policies: str | None = None
    numbers: Mapping[str, int] | None = None
    mark: str | None = None
    inherited: Inherited | None = None
    point: HistoryPoint | None = None
    canonical: tuple[str, ...] | None = None
    valueless: tuple[str, ...] = ()
    read_at: int | None = None
    cut: str | None = None
    padded: Mapping[str, str] | None = None
    unplaced: LeftOut = (0, "")
    data_commit: str | None = None
    changes: CountedChanges | None = None

    def counting_watermark(self, event: int | None) -> int | None:
        """The watermark in effect: the lower of the table's own one and ``event``, the newest one in Dagster's event log.

        ``event`` is None if the event log has none. The result is None if the table itself has no watermark.
        """
        return self.watermark if self.watermark is None or event is None else min(self.watermark, event)

    def of_unknown_rows(self) -> "TableState":
        """The state where the table does not have the commit that it names, so that nothing is known of the rows that are there."""
        return replace(self, watermark=None, pending=(), fingerprint=None, loaded=False, capture=None)

    @property
    def is_of_unknown_rows(self) -> bool:
        """Whether it is one of ``of_unknown_rows``: a table that was never loaded has no commit of rows."""
        return not self.loaded and self.data_version is not None

    def to_json(self, cursor_type: CursorType | None, axis: Identifier | None = None) -> str:
        """The state as JSON. It is exact: a watermark is ISO 8601 text or an integer, never a float.

        ``cursor_type`` is the cursor type of the container's identifier; None for a container without identifier. ``axis``: what its
        partitions are windows of, if that is not the identifier (``Container.partitioned_on``).
        """

        def value(v: int | None) -> int | str | None:
            return v if cursor_type is None else json_value(cursor_type, v)

        data: dict[str, Any] = {
            "format": STATE_FORMAT,
            WRITTEN_BY: product_version(),
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
            "swept_at": self.swept_at,
        }
        if self.capture is not None:
            data["capture"] = self.capture.to_json()
        if self.columns is not None:
            data["columns"] = list(self.columns)
        if self.policies is not None:
            data["policies"] = self.policies
        if self.numbers is not None:
            data["numbers"] = dict(self.numbers)
        if self.mark is not None:
            data["mark"] = self.mark
        if self.inherited is not None:
            data["inherited"] = self.inherited.value
        if self.point is not None:
            data["point"] = self.point.to_json()
        if self.canonical is not None:
            data["canonical"] = list(self.canonical)
        if self.valueless:
            data["valueless"] = list(self.valueless)
        if self.read_at is not None:
            data["read_at"] = self.read_at
        if self.cut is not None:
            data["cut"] = self.cut
        if self.padded:
            data["padded"] = dict(self.padded)
        if self.unplaced[0]:
            data["unplaced"] = list(self.unplaced)
        if self.data_commit is not None:
            data["data_commit"] = self.data_commit
        if self.changes is not None:
            data["changes"] = self.changes.to_json()
        if self.unfilled is not None:
            data["unfilled"] = self.unfilled.to_json(value if axis is None else lambda v: json_value(axis.cursor_type, v))
            if axis is not None:
                data["unfilled_axis"] = axis.signature
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, cursor_type: CursorType | None, text: str, axis: Identifier | None = None) -> "TableState":
        """The inverse of ``to_json``; also reads what earlier versions of this product wrote.

        If older rows lack values in partitions that were cut along another axis, all partitions may have such rows now.

        Raises NewerFormat if a newer version of this product wrote it.
        """
        data: dict[str, Any] = json.loads(text)
        what, by = "the state of its table", data.get(WRITTEN_BY)
        expect_known(what, data["format"], STATE_FORMAT, by)

        def value(v: int | str | None) -> int | None:
            return int(v) if cursor_type is None and v is not None else value_from_json(cursor_type or CursorType.INTEGER, v)

        def pending(p: dict[str, Any]) -> Pending:
            opened = OpenTransactions(
                frozenset(p["virtual"]),
                frozenset(p["prepared"]),
                frozenset(p.get("sessions", ())),  # entries that earlier versions wrote have virtual ids only
                p["noted_at"],
                p["server_started"],
            )
            moved_to = value(p["value"])
            assert moved_to is not None
            return Pending(moved_to, opened, p.get("by_margin", False))

        unfilled = data.get("unfilled")
        if data.get("unfilled_axis") != (axis.signature if axis is not None else None) and unfilled is not None:
            unfilled = {**unfilled, "windows": [[None, None]]}
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
            swept_at=data.get("swept_at"),
            capture=CapturePosition.from_json(data.get("capture")),
            columns=tuple(data["columns"]) if data.get("columns") is not None else None,
            policies=data.get("policies"),
            numbers=data.get("numbers"),
            mark=data.get("mark"),
            inherited=known_value(Inherited, data["inherited"], what, by) if data.get("inherited") is not None else None,
            point=HistoryPoint.from_json(data.get("point")),
            canonical=tuple(data["canonical"]) if data.get("canonical") is not None else None,
            padded=data.get("padded"),
            valueless=tuple(data.get("valueless", ())),
            read_at=data.get("read_at"),
            cut=data.get("cut"),
            unplaced=tuple(data.get("unplaced", (0, ""))),
            data_commit=data.get("data_commit"),
            changes=CountedChanges.from_json(data.get("changes")),
            unfilled=Unfilled.from_json(unfilled, value if axis is None else lambda v: value_from_json(axis.cursor_type, v)),
        )


@dataclass(frozen=True)
class Advance:
    """The result of ``advance``: the new watermark (None: still none), the pending values, and whether open transactions hold it back."""

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
    """Decides the new watermark of a sync that reads one snapshot of the source. The caller must have done these steps in this order:

    1. It reads the highest identifier: ``highest``, already limited to a margin below the source's clock, or to the last value of the
       sequence; None if no row has one. ``withheld``: the highest identifier without that margin, if it is higher; else None.
    2. It notes the transactions that may still commit lower values, and waits for them: ``held_by`` are those that have not ended, and
       ``now`` is the activity in which that was seen.
    3. It takes the snapshot and reads rows. ``covered_to``: the end of the range that the read covers without a gap from the lower end of
       the lag window of ``old`` on (True: it has no end; None: that place is not covered; see ``LagWindow.covered_to``). Coverage from
       ``old`` itself is not enough: late rows within the lag would be left behind for good.

    ``old`` and ``pending`` are those of the table's state. The watermark becomes ``highest`` only if all transactions that were noted had
    ended before the snapshot. Otherwise it may still move to a pending value whose transactions have ended. It never decreases, and never
    passes the end of the covered range. Transactions that have ended are removed from the pending values in any case.
    """
    struck = tuple(replace(p, open=p.open.still_open(now)) for p in pending)
    if covered_to is None or covered_to is False:
        return Advance(old, struck, False)

    def reach(value: int) -> int:
        return value if covered_to is True else min(value, covered_to)

    new = old
    # Entries with ``by_margin`` are made again below from ``withheld``: nobody was noted for them, so they are no candidates.
    known = [p for p in struck if not p.by_margin]
    candidates = [p.value for p in known if not p.open]
    if highest is not None and not held_by:
        candidates.append(highest)
    for candidate in candidates:
        new = reach(candidate) if new is None else max(new, reach(candidate))
    kept = [p for p in known if new is None or p.value > new]
    beyond = highest is not None and all(highest > value for value in (new, *(p.value for p in kept)) if value is not None)
    # If the value is pending already, the existing entry has fewer transactions to wait for than a new one would have.
    if highest is not None and held_by and beyond:
        kept.append(Pending(highest, held_by))
    # The oldest and the newest value are enough: the state that is stored stays small under long transactions.
    if len(kept) > 2:
        kept = [kept[0], kept[-1]]
    if not kept and withheld is not None and (new is None or withheld > new):
        kept = [Pending(withheld, OpenTransactions(), by_margin=True)]
    return Advance(new, tuple(kept), bool(held_by) and highest is not None and (new is None or highest > new))


@dataclass(frozen=True)
class Holder:
    """A session or prepared transaction that holds the watermark back, as it is shown to people.

    ``pid`` is None for a prepared transaction, for which ``application`` contains the transaction's name. ``since``: in ISO 8601, the time
    at which the transaction began or was prepared, or at which the session's message arrived. ``user``, ``application`` and ``since`` are
    None if our role may not see them.
    """

    pid: int | None
    user: str | None
    application: str | None
    since: str | None

    def age_seconds(self, now: datetime) -> float:
        """The seconds from ``since`` to ``now``; 0 if ``since`` is not known."""
        return 0.0 if self.since is None else (now - datetime.fromisoformat(self.since)).total_seconds()
