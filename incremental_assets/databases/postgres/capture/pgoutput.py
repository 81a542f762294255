"""Parses the messages of PostgreSQL's output plugin ``pgoutput``, as far as a change of a row names its key.

The format is that of protocol version 1, https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html: transactions are
sent whole, in the order of their commits, and values as text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class BrokenMessage(Exception):
    """Bytes that are no message of ``pgoutput``."""


class Unchanged:
    """The value of a column that is stored out of line (TOAST) and was not changed, so that the log does not have it."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Value = str | None | Unchanged
"""A column's value as text; None is NULL."""
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Begin:
    """The beginning of a transaction. ``commit_lsn``: where its commit record begins. ``xid``: its id, the lower 32 bits.
    ``committed_at``: microseconds since 2000-01-01 UTC."""

    commit_lsn: int
    committed_at: int
    xid: int


@dataclass(frozen=True)
class Relation:
    """The columns of a table, before its first change. ``columns``: their names. ``identity``: the value of ``relreplident``."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """The insert, update or delete of one row. ``old``: the row as it was, or of it those columns that identify it, the others being None.
    An update has it only if one of these columns has changed, unless the identity is FULL. ``new``: None for a delete.
    """

    relation: int
    old: Row | None
    new: Row | None


@dataclass(frozen=True)
class Truncate:
    """Tables that were emptied, by their OIDs."""

    relations: tuple[int, ...]


@dataclass(frozen=True)
class Other:
    """A message that is not needed here: the end of a transaction, an origin, the name of a type, or an application's own message."""

    kind: str


Message = Begin | Relation | Change | Truncate | Other
_OTHERS = "COYM"
_TEXT, _NULL, _UNCHANGED = b"tnu"
"""The first byte of a value: it follows as text, it is NULL, or it is not in the log as it has not changed."""
_CHANGES = {ord("I"): b"N", ord("U"): b"N", ord("D"): b"KO"}
"""The first byte of a change, and what the byte before its row can be if the message has no other row."""


def parse(data: bytes, wanted: Mapping[int, int] | None = None) -> Message:
    """The message in these bytes. Raises BrokenMessage.

    ``wanted``: of changes, how many of the first columns are read, by the OID of the table; all columns of tables that are not in it. Of a
    change with an old and a new row this holds for the new one. What follows these columns is not looked at.
    """
    reader = _Reader(data)
    kind = reader.character()
    if kind == "B":
        message: Message = Begin(reader.integer(8), reader.integer(8, signed=True), reader.integer(4))
    elif kind == "R":
        oid, schema, name, identity = reader.integer(4), reader.name(), reader.name(), reader.character()
        message = Relation(oid, schema, name, identity, tuple(_column(reader) for _ in range(reader.integer(2))))
    elif kind in "IUD":
        message = _change(reader, kind, wanted or {})
    elif kind == "T":
        number, _ = reader.integer(4), reader.integer(1)
        message = Truncate(tuple(reader.integer(4) for _ in range(reader.within(number, 4))))
    elif kind in _OTHERS:
        return Other(kind)
    else:
        raise BrokenMessage(f"there is no message {kind!r}")
    reader.expect_end()
    return message


def only_row(data: bytes, columns: int) -> tuple[int, tuple[str, ...]] | None:
    """The OID of the table, and the first values of the row, of an insert, an update or a delete that has one row.

    None for every other message, and if one of these values is no text: ``parse`` then says what it is. Nearly all messages of a log are
    such ones, so that this, which makes no objects, decides how long a look takes.
    """
    if len(data) < 8 or data[0] not in _CHANGES or data[5] not in _CHANGES[data[0]] or int.from_bytes(data[6:8], "big") < columns:
        return None
    at, found = 8, list[str]()
    try:
        for _ in range(columns):
            if data[at] != _TEXT:
                return None
            begin = at + 5
            at = begin + int.from_bytes(data[at + 1 : begin], "big")
            found.append(data[begin:at].decode("utf-8"))
    except (IndexError, UnicodeDecodeError):
        return None
    return (int.from_bytes(data[1:5], "big"), tuple(found)) if at <= len(data) else None


def _column(reader: "_Reader") -> str:
    reader.integer(1)  # whether it is part of the key: 1 for all columns if the identity is FULL, so it says nothing about our key
    name = reader.name()
    reader.integer(4)  # type
    reader.integer(4)  # modifier
    return name


def _change(reader: "_Reader", kind: str, wanted: Mapping[int, int]) -> Change:
    relation = reader.integer(4)
    columns = wanted.get(relation)
    part = reader.character()
    old: Row | None = None
    if part in "KO" and kind != "I":
        old = _row(reader, columns if kind == "D" else None)
        if kind == "D":
            return Change(relation, old, None)
        part = reader.character()
    if part != "N" or kind == "D":
        raise BrokenMessage(f"a message {kind!r} has no part {part!r}")
    return Change(relation, old, _row(reader, columns))


def _row(reader: "_Reader", columns: int | None) -> Row:
    """The first columns of a row, which must be the last part of the message; None: all columns, whatever follows."""
    number = reader.within(reader.integer(2), 1)
    if columns is None or number <= columns:
        return reader.values(number)
    row = reader.values(columns)
    reader.leave_rest()
    return row


def key_of(row: Sequence[Value], positions: Sequence[int]) -> tuple[str, ...] | None:
    """The values at these positions; None if one of them is missing."""
    found = tuple(row[i] for i in positions if i < len(row))
    texts = tuple(value for value in found if isinstance(value, str))
    return texts if len(texts) == len(positions) else None


class _Reader:
    """Reads a message from its beginning to its end. Every method raises BrokenMessage if the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, number: int) -> bytes:
        if number > len(self._data) - self._at:
            raise BrokenMessage(f"it ends after {len(self._data)} bytes")
        self._at += number
        return self._data[self._at - number : self._at]

    def integer(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(size), "big", signed=signed)

    def character(self) -> str:
        return self._take(1).decode("latin-1")

    def text(self, size: int) -> str:
        try:
            return self._take(size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise BrokenMessage("a text is not UTF-8") from error

    def values(self, number: int) -> Row:
        """The values of so many columns. This is what most of the time of a look is spent on, so it goes without the other methods."""
        data, at, found = self._data, self._at, list[Value]()
        try:
            for _ in range(number):
                kind = data[at]
                at += 1
                if kind == _TEXT:
                    begin = at + 4
                    at = begin + int.from_bytes(data[at:begin], "big")
                    found.append(data[begin:at].decode("utf-8"))
                elif kind == _NULL:
                    found.append(None)
                elif kind == _UNCHANGED:
                    found.append(UNCHANGED)
                else:
                    raise BrokenMessage(f"there is no kind of value {chr(kind)!r}")
        except IndexError:
            raise BrokenMessage(f"it ends after {len(data)} bytes") from None
        except UnicodeDecodeError as error:
            raise BrokenMessage("a text is not UTF-8") from error
        if at > len(data):  # slices end with the bytes, without an error
            raise BrokenMessage(f"it ends after {len(data)} bytes")
        self._at = at
        return tuple(found)

    def name(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise BrokenMessage("a name does not end")
        found = self.text(end - self._at)
        self._at += 1
        return found

    def within(self, number: int, size: int) -> int:
        """The number of things that follow, each of at least ``size`` bytes: so many must be there."""
        if number * size > len(self._data) - self._at:
            raise BrokenMessage(f"it has fewer than {number} values")
        return number

    def leave_rest(self) -> None:
        self._at = len(self._data)

    def expect_end(self) -> None:
        if self._at != len(self._data):
            raise BrokenMessage(f"it has {len(self._data) - self._at} bytes too many")
