"""The messages of the log: those of PostgreSQL are understood, and rubbish ends in the parser's own error.

Belongs here: bytes. Does not belong: what a sync makes of them (``test_capture``).
"""

import contextlib

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.databases.postgres.capture.log import SnapshotIds
from incremental_assets.databases.postgres.capture.pgoutput import (
    UNCHANGED,
    Begin,
    BrokenMessage,
    Change,
    Message,
    Other,
    Relation,
    Truncate,
    key_of,
    only_row,
    parse,
)

NUMBERS = st.integers(0, 2**32 - 1)
NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)
VALUES = st.one_of(st.none(), st.just(UNCHANGED), st.text(st.characters(blacklist_categories=["Cs"])))
ROWS = st.lists(VALUES, max_size=6).map(tuple)


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


def written_row(row: tuple[object, ...]) -> bytes:
    written = number(len(row), 2)
    for value in row:
        if isinstance(value, str):
            written += b"t" + number(len(value.encode()), 4) + value.encode()
        else:
            written += b"n" if value is None else b"u"
    return written


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, Message]:
    """A message and its bytes, written by the protocol's page."""
    kind = draw(st.sampled_from("BRIUDTCOYM"))
    oid = draw(NUMBERS)
    if kind == "B":
        lsn, at, xid = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**62)), draw(NUMBERS)
        return b"B" + number(lsn, 8) + number(at, 8) + number(xid, 4), Begin(lsn, at, xid)
    if kind == "R":
        schema, name, identity, columns = draw(NAMES), draw(NAMES), draw(st.sampled_from("dnfi")), draw(st.lists(NAMES, max_size=5))
        head = b"R" + number(oid, 4) + schema.encode() + b"\0" + name.encode() + b"\0" + identity.encode() + number(len(columns), 2)
        tail = b"".join(b"\1" + column.encode() + b"\0" + number(23, 4) + b"\xff" * 4 for column in columns)
        return head + tail, Relation(oid, schema, name, identity, tuple(columns))
    if kind == "T":
        oids = draw(st.lists(NUMBERS, max_size=5))
        return b"T" + number(len(oids), 4) + b"\1" + b"".join(number(one, 4) for one in oids), Truncate(tuple(oids))
    if kind in "COYM":
        return kind.encode() + draw(st.binary(max_size=10)), Other(kind)
    old = draw(ROWS) if kind == "D" or (kind == "U" and draw(st.booleans())) else None
    new = None if kind == "D" else draw(ROWS)
    written = kind.encode() + number(oid, 4)
    written += draw(st.sampled_from([b"K", b"O"])) + written_row(old) if old is not None else b""
    written += b"N" + written_row(new) if new is not None else b""
    return written, Change(oid, old, new)


@given(messages())
def test_a_message_is_read_as_it_was_written(one: tuple[bytes, Message]) -> None:
    written, message = one
    assert parse(written) == message


@given(messages(), st.integers(0, 7))
def test_only_the_columns_of_the_key_are_read(one: tuple[bytes, Message], columns: int) -> None:
    """The others take most of the time. A row cut at the wrong end, or an old row that is cut before a new one, would be another key."""
    written, message = one
    found = parse(written, {getattr(message, "relation", 0): columns})
    if not isinstance(message, Change):
        assert found == message
        return
    old = message.old if message.new is not None or message.old is None else message.old[:columns]
    assert found == Change(message.relation, old, None if message.new is None else message.new[:columns])
    assert parse(written, {message.relation + 1: columns}) == message, "another table's"


@given(messages(), st.integers(1, 7))
def test_the_fast_way_of_reading_a_key_finds_what_the_parser_finds(one: tuple[bytes, Message], columns: int) -> None:
    """Nearly all messages go this way. Where it cannot be sure, as for two rows or a missing value, it must leave them to the parser."""
    written, message = one
    expected = None
    if isinstance(message, Change) and (message.old is None or message.new is None):
        row = (message.old or message.new or ())[:columns]
        if len(row) == columns and all(isinstance(value, str) for value in row):
            expected = message.relation, row
    assert only_row(written, columns) == expected


@given(st.binary(max_size=200))
def test_rubbish_ends_in_the_parsers_own_error(data: bytes) -> None:
    with contextlib.suppress(BrokenMessage):
        parse(data)


@given(messages(), st.data())
def test_a_damaged_message_ends_in_the_parsers_own_error(one: tuple[bytes, Message], data: st.DataObject) -> None:
    """A cut or changed message must not be taken for another one in silence where it is cut: it would lose a row."""
    written, message = one
    at = data.draw(st.integers(0, max(0, len(written) - 1)))
    if not isinstance(message, Other):
        with pytest.raises(BrokenMessage):
            parse(written[:at])
    with contextlib.suppress(BrokenMessage):
        parse(written[:at] + bytes([data.draw(st.integers(0, 255))]) + written[at + 1 :])


def test_a_key_with_a_missing_part_is_no_key() -> None:
    assert key_of(("1", None, "a"), (0, 2)) == ("1", "a")
    assert key_of(("1", None, "a"), (0, 1)) is None
    assert key_of(("1", UNCHANGED), (0, 1)) is None
    assert key_of(("1",), (0, 1)) is None


@pytest.mark.parametrize("wraps", [0, 1, 7])
def test_a_snapshot_knows_whom_it_sees_when_ids_wrap_around(wraps: int) -> None:
    """After four billion transactions the ids in the log begin again."""
    highest = (wraps << 32) + 5
    seen = SnapshotIds.parse(f"{highest - 3}:{highest}:{highest - 3},{highest - 1}")
    assert [seen.sees((highest + distance) % 2**32) for distance in (-4, -3, -2, -1, 0, 1)] == [
        wraps > 0 or True,
        False,
        True,
        False,
        False,
        False,
    ]


def test_the_messages_of_a_real_server_are_understood(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as c:
        c.execute('create table t (id int, "Name" text, doc text, primary key (id)); alter table t alter doc set storage external')
        c.execute("create publication p for table t")
        c.execute("select pg_create_logical_replication_slot('real', 'pgoutput')")
        c.execute("insert into t values (1, 'é', repeat('x', 9000)), (2, null, null)")
        c.execute("update t set \"Name\" = 'b' where id = 1; update t set id = 3 where id = 2; delete from t where id = 3; truncate t")
        peek = "pg_logical_slot_peek_binary_changes('real', null, null, 'proto_version', '1', 'publication_names', 'p')"
        found = [parse(bytes(data)) for (data,) in c.execute(f"select data from {peek}".encode())]
        changes = [message for message in found if isinstance(message, Change)]
        relation = next(message for message in found if isinstance(message, Relation))
    assert (relation.name, relation.columns) == ("t", ("id", "Name", "doc"))
    assert [(one.old, one.new) for one in changes] == [
        (None, ("1", "é", "x" * 9000)),
        (None, ("2", None, None)),
        (None, ("1", "b", UNCHANGED)),
        (("2", None, None), ("3", None, None)),
        (("3", None, None), None),
    ]
    assert Truncate((relation.oid,)) in found
    assert sum(isinstance(message, Begin) for message in found) == sum(message == Other("C") for message in found)
