"""Reads the keys of changed rows from a replication slot.

A look changes nothing: the slot stays where it is until it is advanced, which is after the commit. So a look can be repeated, by the same
sync after it was killed, or by another container that uses the slot.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from incremental_assets.core.capture import lsn_text
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.change_log import Key, Peeked, Since
from incremental_assets.databases.postgres.capture.changed_keys import ChangedKeys
from incremental_assets.databases.postgres.capture.pgoutput import (
    Begin,
    BrokenMessage,
    Change,
    Relation,
    Truncate,
    Unchanged,
    key_of,
    only_row,
    parse,
)
from incremental_assets.databases.postgres.capture.slot_session import slot_session
from incremental_assets.databases.postgres.connection import PostgresAddress

log = logging.getLogger(__name__)

_PIECES_AT_A_TIME = 1000
"""So many pieces of messages are taken from the connection at a time, which is a tenth of the work of one by one."""
_PIECE = 32 * 1024
"""The bytes of a piece. A message has the values of a whole row, and its key is nearly always in the first piece."""
MOST_BYTES = 256 * 1024 * 1024
"""So large may a change be, as text. To read and to write a row takes some eleven times its bytes of memory."""
_PEEK = "pg_logical_slot_peek_binary_changes({slot}, {until}, null, 'proto_version', '1', 'publication_names', {publication})"
# Only the messages that matter to the containers are sent: of a change, its kind is followed by the OID of its table.
_RELEVANT = """get_byte(data, 0) in (66, 84) or (get_byte(data, 0) in (68, 73, 82, 85)
  and ('x' || encode(substring(data from 2 for 4), 'hex'))::bit(32)::bigint = any({parts}::bigint[]))"""
# Each transaction (t) begins with where (lsn) and when (at) it was committed. The message of a TRUNCATE has the number of its tables from
# its second byte on, and their OIDs from its seventh byte on. The result has a row for each container that has changed, and a last one
# with the first transaction that the slot has.
_COUNT = """
with wanted as (select number, oid, decode(since, 'hex') as since
  from unnest({numbers}::int[], {oids}::bigint[], {sinces}::text[]) as given(number, oid, since)),
log as materialized (select row_number() over () as n, get_byte(data, 0) as kind,
  case get_byte(data, 0) when 84 then data else substring(data from 1 for 17) end as data from {peek} where {relevant}),
sent as (select kind, data, sum((kind = 66)::int) over (order by n) as t from log),
begun as (select t, substring(data from 2 for 8) as lsn, encode(substring(data from 10 for 8), 'hex') as at from sent where kind = 66),
changed as (
  select t, false as truncated, ('x' || encode(substring(data from 2 for 4), 'hex'))::bit(32)::bigint as oid, count(*) as changes
    from sent where kind in (68, 73, 85) group by 1, 3
  union all select t, true, ('x' || encode(substring(data from 7 + 4 * i for 4), 'hex'))::bit(32)::bigint, 0
    from sent, generate_series(0, ('x' || encode(substring(data from 2 for 4), 'hex'))::bit(32)::int - 1) as i where kind = 84)
select number, bool_or(truncated), sum(changes)::bigint, min(at collate "C"), max(encode(lsn, 'hex') collate "C")
  from changed join begun using (t) join wanted using (oid) where lsn >= since group by number
union all select -1, false, 0, min(at collate "C"), null from begun"""
TRUNCATED = "the table, or a partition of it, was truncated"
_YEAR_2000 = 946_684_800


@dataclass(frozen=True)
class SnapshotIds:
    """Which transactions a snapshot sees, from ``txid_current_snapshot()``: those below ``highest`` that are not among ``running``."""

    highest: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "SnapshotIds":
        _, highest, running = text.split(":")
        return cls(int(highest), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Whether it sees a committed transaction. ``xid``: the lower 32 bits of its id, which is at most 2^31 away from ``highest``."""
        full = (self.highest & ~0xFFFFFFFF) | xid
        if full - self.highest > 1 << 31:
            full -= 1 << 32
        elif self.highest - full > 1 << 31:
            full += 1 << 32
        return full < self.highest and full not in self.running


@dataclass(frozen=True)
class Look:
    """What is looked for. ``since`` and ``until``: the part of the log. ``parts``: the OIDs of the table and its partitions. ``key``: the
    columns of the primary key. ``snapshot``: None if it does not matter what is visible in it. ``has_all``: whether all columns of the log
    are carried into the lake, so that the size of a change is that of its row."""

    slot: str
    since: int
    until: int
    parts: Sequence[int]
    key: Sequence[str]
    snapshot: SnapshotIds | None = None
    has_all: bool = True


@dataclass
class Captured:
    """The ``CapturedKeys`` of one look at a slot."""

    found: Peeked
    keys: ChangedKeys = field(default_factory=ChangedKeys)

    def __len__(self) -> int:
        return len(self.keys)

    def pieces(self, size: int) -> Iterator[Sequence[Key]]:
        return self.keys.pieces(size)

    def close(self) -> None:
        self.keys.close()


def look(address: PostgresAddress, one: Look) -> Captured:
    """Finds the keys that have changed. Raises psycopg.Error, and SourceError for what is no message."""
    started = time.monotonic()
    captured = Captured(Peeked(0, None, one.until))
    try:
        found = _Collector(one, captured.keys)
        for at, piece in _pieces(address, one):
            found.take(at, piece)
    except BrokenMessage as error:
        captured.close()
        raise SourceError(f"the replication slot {one.slot!r} has a message that is not understood: {error}.") from error
    except BaseException:
        captured.close()
        raise
    kept = None if found.first is None else _seconds_since(found.first)
    captured.found = Peeked(found.changes, found.reload, found.end, kept=kept)
    log.debug("%s: %d changes up to %s in %.2f s", one.slot, found.changes, lsn_text(one.until), time.monotonic() - started)
    return captured


def _pieces(address: PostgresAddress, one: Look) -> Iterator[tuple[int, bytes]]:
    """The messages in pieces of ``_PIECE`` bytes, each with the place where it begins, from 1 on. The last piece of each is shorter, or
    empty."""
    query = sql.SQL(
        "select at, substring(data from at for {piece}) from "
        "(select generate_series(1, octet_length(data) + 1, {piece}) as at, data from {peek} where {relevant}) as cut"
    ).format(
        piece=sql.Literal(_PIECE),
        peek=_peek(one.slot, one.until),
        relevant=sql.SQL(_RELEVANT).format(parts=sql.Literal(list(one.parts))),
    )
    with slot_session(address, one.slot) as connection, connection.cursor() as cursor:
        yield from cursor.stream(query, binary=True, size=_PIECES_AT_A_TIME)


def _peek(slot: str, until: int) -> sql.Composable:
    return sql.SQL(_PEEK).format(slot=sql.Literal(slot), until=sql.Literal(lsn_text(until)), publication=sql.Literal(f'"{slot}"'))


class _Collector:
    """Collects the keys of one container from the messages of a slot, in their order."""

    def __init__(self, one: Look, keys: ChangedKeys) -> None:
        self._look, self._keys = one, keys
        self._parts = frozenset(one.parts)
        self._positions: Mapping[int, Sequence[int]] = {}
        """Of each table, where the columns of the key are."""
        self._wanted: Mapping[int, int] = {}
        """Of each table, how many of its first columns have the key. Reading the others would take most of the time of a look."""
        self._counts = False
        """Whether the changes of the transaction count that is being read."""
        self._held: bytearray | None = None
        """The beginning of a message whose key was not in its first piece; None if nothing more of it is needed."""
        self.changes, self.end = 0, one.until
        self.reload: str | None = None
        self.first: int | None = None
        """When the first transaction was committed that the slot has, as in ``Begin``."""

    def take(self, at: int, piece: bytes) -> None:
        """Takes a piece of a message. ``at``: see ``_pieces``. Raises BrokenMessage, and SourceError for a message that is too large."""
        if at == 1:
            self._held = None if self._takes_key(piece) else bytearray(piece)
        elif self._counts and at + len(piece) > MOST_BYTES and (self._held is not None or self._look.has_all):
            raise SourceError(
                f"the replication slot {self._look.slot!r} has a change of a row of more than {MOST_BYTES / (1 << 20):g} MB, which would "
                "take some eleven times as much memory. Exclude its large column (exclude_columns), sync with --reset-watermarks, which "
                "loads all rows anew, or do without capture: log."
            )
        elif self._held is not None:
            self._held += piece
        if self._held is not None and len(piece) < _PIECE:
            message, self._held = bytes(self._held), None
            self._take_whole(message)

    def _take_whole(self, data: bytes) -> None:
        message = parse(data, self._wanted)
        if isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Relation):
            lost = [name for name in self._look.key if name not in message.columns]
            positions = [message.columns.index(name) for name in self._look.key if name not in lost]
            self._positions = {**self._positions, message.oid: () if lost else positions}
            self._wanted = {**self._wanted, message.oid: max(positions, default=-1) + 1}
        elif isinstance(message, Truncate):
            if self._counts and self._parts.intersection(message.relations):
                self.reload, self.changes = TRUNCATED, self.changes + 1
        elif isinstance(message, Change) and self._counts:
            self._change(message)

    def _takes_key(self, data: bytes) -> bool:
        """Takes the change of one row of a table that is known already. Returns whether the message is one, and has the key's texts."""
        columns = self._wanted.get(int.from_bytes(data[1:5], "big"), 0)
        found = only_row(data, columns) if columns else None
        if found is None:
            return False
        if self._counts:
            self.changes += 1
            relation, values = found
            self._keys.add(tuple(values[i] for i in self._positions[relation]))
        return True

    def _begin(self, message: Begin) -> None:
        one = self._look
        self.first = message.committed_at if self.first is None else self.first
        inside = one.since <= message.commit_lsn < one.until
        visible = one.snapshot is None or one.snapshot.sees(message.xid)
        # A transaction may be in the log and not in the snapshot, for a moment, or for as long as it waits for a replica.
        if inside and not visible:
            self.end = min(self.end, message.commit_lsn)
        self._counts = inside and visible

    def _change(self, message: Change) -> None:
        self.changes += 1
        positions = self._positions.get(message.relation, ())
        old, new = message.old, message.new
        if old is not None and new is not None:  # a part of the key that is stored out of line, and was not changed
            new = tuple(old[i] if isinstance(value, Unchanged) and i < len(old) else value for i, value in enumerate(new))
        keys = [key_of(row, positions) for row in (old, new) if row is not None]
        if not positions or None in keys:
            self.reload = "the log has a change without the key of its row"
        for key in keys:
            if key is not None:
                self._keys.add(key)


def count(address: PostgresAddress, slot: str, asked: Mapping[str, Since], until: int) -> Mapping[str, Peeked]:
    """Whether there is a change at all, for each of several containers, by their labels: the server decodes the log once up to ``until``,
    and counts. Raises psycopg.Error."""
    labels = list(asked)
    wanted = [(number, oid, f"{asked[label].lsn:016x}") for number, label in enumerate(labels) for oid in asked[label].parts]
    numbers, oids, sinces = ([one[i] for one in wanted] for i in range(3))
    query = sql.SQL(_COUNT).format(
        peek=_peek(slot, until),
        relevant=sql.SQL(_RELEVANT).format(parts=sql.Literal(sorted(set(oids)))),
        numbers=sql.Literal(numbers),
        oids=sql.Literal(oids),
        sinces=sql.Literal(sinces),
    )
    started = time.monotonic()
    with slot_session(address, slot) as connection:
        rows = connection.execute(query).fetchall()
    log.debug("%s: looked for %d containers up to %s in %.2f s", slot, len(asked), lsn_text(until), time.monotonic() - started)
    kept = next((_seconds_since(_micros(at)) for number, _, _, at, _ in rows if number < 0 and at is not None), None)
    changed = {
        labels[number]: Peeked(
            changes + truncated, TRUNCATED if truncated else None, until, _seconds_since(_micros(at)), int(last, 16), kept
        )
        for number, truncated, changes, at, last in rows
        if number >= 0
    }
    return {label: changed.get(label, Peeked(0, None, until, kept=kept)) for label in labels}


def _micros(committed_at: str) -> int:
    """The hexadecimal digits of a time of the log."""
    return int.from_bytes(bytes.fromhex(committed_at), "big", signed=True)


def _seconds_since(committed_at: int) -> float:
    """The seconds that have passed since a time of the log, which is in microseconds since the year 2000."""
    return max(0.0, time.time() - _YEAR_2000 - committed_at / 1e6)
