"""Builds expressions of MySQL's SQL from typed values, and binds the conditions that are made of them.

All SQL text of this package is made of the functions here: names are quoted by ``quoted``, values are literals of typed integers or the
hexadecimal digits of their bytes. The only free text is the ``where:`` of the YAML, whose author could run any SQL anyway.
"""

from collections.abc import Mapping

from incremental_assets.core.container import Container, SourceColumn
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.partitions import Granularity
from incremental_assets.databases.text_predicates import TextPredicates

_FIRST = "date'0001-01-01'"
"""The first day that is no zero date, but for those with a year and without a month or a day."""
_MOST_YEARS = 100
"""Up to so many years are looked through by an index for dates without a month or a day."""
_DAY_0 = 719_528
"""What ``to_days`` gives for 1970-01-01."""
_LITERAL = {CursorType.DATE: "date", CursorType.TIMESTAMP_NTZ: "timestamp", CursorType.TIMESTAMP: "timestamp"}


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    """A literal for a text, by the digits of its bytes: no setting of the server and no character in it changes what it means."""
    return f"_utf8mb4 x'{value.encode().hex()}'"


def relation(container: Container) -> str:
    """The quoted name of the container's table or view, with its database."""
    return f"{quoted(container.schema)}.{quoted(container.name)}"


class _Predicates(TextPredicates):
    """The time zone of our sessions is UTC, so that a literal without one is an instant where the column is one."""

    def quoted(self, name: str) -> str:
        return quoted(name)

    def time_literal(self, cursor_type: CursorType, text: str) -> str:
        return f"{_LITERAL[cursor_type]}'{text}'"

    def placed(self, container: Container) -> list[str]:
        """None of these columns has a zero date, or one without a month or a day."""
        return [*dated_predicate(container), *(f"coalesce({whole_predicate(quoted(column.name))}, true)" for column in _timed(container))]

    def greater(self, one: str, other: str) -> str:
        return f"greatest(coalesce({one}, {other}), coalesce({other}, {one}))"


def _timed(container: Container) -> list[SourceColumn]:
    return [column for column in container.placed_by if column.base in ("date", "datetime", "timestamp")]


def is_zero_date(text: str) -> bool:
    """Whether a date, or date and time, has no month or no day: MySQL's zero dates."""
    return text[5:7] == "00" or text[8:10] == "00"


def whole_predicate(sql: str) -> str:
    """A condition for the dates that have a month and a day. ``sql``: the quoted name of their column."""
    return f"(month({sql}) > 0 and dayofmonth({sql}) > 0)"


def dated_predicate(container: Container) -> list[str]:
    """Conditions for the rows that have no zero date in a column by which they are placed. An index knows them: zero dates lie below all
    others, but for those with a year. To MySQL, one ``is null`` where the column is NOT NULL."""
    return [
        f"{name} >= {_FIRST}" if column.not_null else f"({name} is null or {name} >= {_FIRST})"
        for name, column in ((quoted(column.name), column) for column in _timed(container))
    ]


def timed_columns(container: Container) -> Mapping[str, bool]:
    """The quoted columns by which rows are placed and which may have zero dates, and whether these may have a year."""
    return {quoted(column.name): column.base != "timestamp" for column in _timed(container)}


def years_query(container: Container, sql: str) -> str:
    """The query for the first and the last year of a column. ``sql``: its quoted name."""
    return f"select year(min({sql})), year(max({sql})) from {relation(container)} where {sql} >= {_FIRST}"


def unplaced_predicate(sql: str, years: tuple[int, int] | None) -> str:
    """A condition for the rows with a zero date in a column, for which its index is enough. ``sql``: its quoted name. ``years``: the first
    and the last that it has; None if it cannot have zero dates with a year, or has no dates."""
    if years is None:
        return f"{sql} < {_FIRST}"
    first, last = years
    if last - first >= _MOST_YEARS:
        return f"({sql} < {_FIRST} or month({sql}) = 0 or dayofmonth({sql}) = 0)"
    # Before the first day of each month there are its dates without a day, and before those of January the dates without a month.
    ends = [(f"{year:04}-{0 if month == 1 else month:02}-00", f"{year:04}-{month:02}-01") for year, month in _months(first, last)]
    return " or ".join([f"({sql} < {_FIRST}", *(f"{sql} >= date'{a}' and {sql} < date'{b}'" for a, b in ends)]) + ")"


def _months(first: int, last: int) -> list[tuple[int, int]]:
    return [(year, month) for year in range(first, last + 1) for month in range(1, 13)]


_PREDICATES = _Predicates()
literal, identifier_expression = _PREDICATES.literal, _PREDICATES.identifier_expression
null_predicate, scope_predicate, domain_predicate = _PREDICATES.nulls, _PREDICATES.scope, _PREDICATES.domain
where_clause, placed_predicate = _PREDICATES.where, _PREDICATES.placed


def days_of(sql: str) -> str:
    """SQL for the number of days from 1970 to a date, or to the day of a date and time."""
    return f"(to_days({sql}) - {_DAY_0})"


def micros_of(sql: str) -> str:
    """SQL for the number of microseconds from 1970 to a date and time."""
    return f"timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', {sql})"


def partition_value(container: Container) -> str:
    """SQL for a value of the row's partition as an integer of the cursor type; NULL where the row belongs to none."""
    identifier, partitioning = container.axis, container.partitioning
    if identifier is None or partitioning is None:
        return "null"
    value = identifier_expression(identifier)
    if identifier.cursor_type is CursorType.INTEGER:
        # As decimals, the difference of unsigned integers cannot overflow, and the remainder of a negative one is brought above 0.
        wide, number = int(partitioning.width or 1), f"cast({value} as decimal(40,0))"
        return f"({number} - mod(mod({number}, {wide}) + {wide}, {wide}))"
    if identifier.cursor_type is CursorType.DATE:
        return days_of(value)
    if partitioning.granularity is Granularity.HOUR:
        return f"({micros_of(value)} div 3600000000 * 3600000000)"
    return f"({days_of(value)} * 86400000000)"
