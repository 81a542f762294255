"""Builds expressions of T-SQL from typed values, and binds the conditions that are made of them.

All SQL text of this package is made of the functions here: names are quoted by ``quoted``, values are literals of typed integers or the
hexadecimal digits of their bytes. The only free text is the ``where:`` of the YAML, whose author could run any SQL anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.cursor_type import CursorType, days_from_civil
from incremental_assets.core.partitions import Granularity
from incremental_assets.core.window import Window
from incremental_assets.databases.text_predicates import TextPredicates

ROWVERSION = "rowversion"
_EPOCH = "cast('1970-01-01T00:00:00' as datetime2(7))"
_FIRST_DATETIME = days_from_civil(1753, 1, 1) * CursorType.TIMESTAMP_NTZ.steps_per_day
_LAST_DATETIME = days_from_civil(10000, 1, 1) * CursorType.TIMESTAMP_NTZ.steps_per_day - 3_000
"""The last ``datetime`` is 9999-12-31 23:59:59.997."""
_TICK_ABOVE = (0, 3, 3, 3, 7, 7, 7, 7, 10, 10)
"""By the last digit of a number of milliseconds: that of the next ``datetime``, which ends in 0, 3 or 7."""
MOST_NVARCHAR = 4000


def quoted(name: str) -> str:
    """A name in brackets."""
    return "[" + name.replace("]", "]]") + "]"


def text_literal(value: str) -> str:
    """A literal for a text, by the digits of its bytes: no setting of the server and no character in it changes what it means."""
    length = len(value.encode("utf-16-le")) // 2
    width = "max" if length > MOST_NVARCHAR else str(max(1, length))
    return f"cast(0x{value.encode('utf-16-le').hex()} as nvarchar({width}))"


def bytes_literal(value: bytes) -> str:
    """A literal for bytes."""
    return f"0x{value.hex()}"


def relation(container: Container) -> str:
    """The quoted name of the container's table or view, with its schema."""
    return f"{quoted(container.schema)}.{quoted(container.name)}"


def rowversion_literal(value: int) -> str:
    """The eight bytes of a rowversion, the highest first, as SQL Server compares them."""
    return bytes_literal(int(value).to_bytes(8, "big"))


def rowversion_number(value: bytes) -> int:
    """The inverse of ``rowversion_literal``, from the bytes: what ``cast(… as bigint)`` gives in T-SQL."""
    return int.from_bytes(value, "big", signed=True)


def next_datetime(micros: int) -> int:
    """The lowest value that a ``datetime`` can have and that is not below ``micros``: its milliseconds end in 0, 3 or 7."""
    millis = -(-micros // 1000)
    return (millis - millis % 10 + _TICK_ABOVE[millis % 10]) * 1000


@dataclass(frozen=True)
class Predicates(TextPredicates):
    """The conditions over an identifier of one type of SQL Server. ``base``: that type, without length and precision."""

    base: str
    true, false = "1 = 1", "1 = 0"

    def quoted(self, name: str) -> str:
        return quoted(name)

    def literal(self, cursor_type: CursorType, value: int) -> str | None:
        if self.base == ROWVERSION:
            return rowversion_literal(value) if 0 <= value < 2**63 else None
        if self.base == "datetime":
            # Compared with a finer type, a datetime of .007 would be .0066667 and lie below .007; so its bounds are of its own type.
            value = next_datetime(value)
            if not _FIRST_DATETIME <= value <= _LAST_DATETIME:
                return None
        return super().literal(cursor_type, value)

    def time_literal(self, cursor_type: CursorType, text: str) -> str:
        if cursor_type is CursorType.DATE:
            return f"cast('{text}' as date)"
        if self.base == "datetime":
            return f"convert(datetime, '{text[:23].replace(' ', 'T')}', 126)"
        zone, type_ = ("+00:00", "datetimeoffset(6)") if cursor_type is CursorType.TIMESTAMP else ("", "datetime2(6)")
        return f"cast('{text.replace(' ', 'T')}{zone}' as {type_})"

    def greater(self, one: str, other: str) -> str:
        return f"case when {one} >= {other} or {other} is null then {one} else {other} end"


def predicates_of(container: Container) -> Predicates:
    """The conditions over the container's identifier."""
    return Predicates(identifier_base(container))


def identifier_base(container: Container) -> str:
    """The type of the container's identifier without length and precision; empty if it has none."""
    identifier = container.identifier
    if identifier is None:
        return ""
    return next((column.base for column in container.columns if column.name in identifier.columns), "")


def literal(base: str, cursor_type: CursorType, value: int) -> str | None:
    """A literal for a value of a cursor type, to be compared with a column of the type ``base``."""
    return Predicates(base).literal(cursor_type, value)


def identifier_expression(container: Container, identifier: Identifier) -> str:
    return predicates_of(container).identifier_expression(identifier)


def scope_predicate(container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
    return predicates_of(container).scope(container, windows, include_nulls)


def domain_predicate(container: Container) -> str:
    return predicates_of(container).domain(container)


def null_predicate(container: Container, identifier: Identifier) -> str:
    return predicates_of(container).nulls(identifier)


def where_clause(container: Container) -> str:
    """The condition in the YAML's ``where:``, or one that holds for all rows."""
    return " and ".join(predicates_of(container).where(container)) or Predicates.true


def days_of(sql: str) -> str:
    """SQL for the number of days from 1970 to a date, or to the day of a date and time."""
    return f"datediff(day, {_EPOCH}, {sql})"


def micros_of(sql: str) -> str:
    """SQL for the number of microseconds from 1970 to a ``datetime2``, whose seventh digit is cut."""
    return f"datediff_big(microsecond, {_EPOCH}, {sql})"


def as_datetime2(base: str, sql: str) -> str:
    """SQL for a time of the type ``base`` as ``datetime2(7)``: an instant in UTC, a ``datetime`` with the milliseconds that it shows."""
    if base == "datetime":
        return f"convert(datetime2(7), convert(varchar(23), {sql}, 126), 126)"
    return f"cast(switchoffset({sql}, '+00:00') as datetime2(7))" if base == "datetimeoffset" else f"cast({sql} as datetime2(7))"


def number_of_identifier(base: str, sql: str) -> str:
    """SQL for an integer identifier as a number that no arithmetic overflows."""
    return f"cast(cast({sql} as bigint) as decimal(38,0))" if base == ROWVERSION else f"cast({sql} as decimal(38,0))"


def floored(number: str, width: int) -> str:
    """SQL for the lower bound of the partition in which a number lies. The remainder of a negative one is brought above 0."""
    wide = int(width)
    return f"({number} - (({number} % {wide}) + {wide}) % {wide})"


def partition_value(container: Container) -> str:
    """SQL for a value of the row's partition as an integer of the cursor type; NULL where the row belongs to none."""
    identifier, partitioning = container.axis, container.partitioning
    if identifier is None or partitioning is None:
        return "null"
    base = next((column.base for column in container.columns if column.name in identifier.columns), "")
    value = Predicates(base).identifier_expression(identifier)
    if identifier.cursor_type is CursorType.INTEGER:
        return floored(number_of_identifier(base, f"({value})"), int(partitioning.width or 1))
    if identifier.cursor_type is CursorType.DATE:
        return days_of(f"({value})")
    moment = as_datetime2(base, f"({value})")
    if partitioning.granularity is Granularity.HOUR:
        return f"(cast(datediff(hour, {_EPOCH}, {moment}) as bigint) * 3600000000)"
    return f"(cast({days_of(moment)} as bigint) * 86400000000)"
