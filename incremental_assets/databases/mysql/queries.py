"""Builds predicates and expressions of MySQL's SQL from typed values.

Belongs here: quoting names, literals, and the conversion of windows into WHERE conditions. Does not belong: running queries (``reader``).

All SQL text of this package is made of the functions here: names are quoted by ``quoted``, values are literals of typed integers or the
hexadecimal digits of their bytes. The only free text is the ``where:`` of the YAML, whose author could run any SQL anyway.
"""

from collections.abc import Sequence

from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.cursor_type import CursorType, days_from_civil, format_value
from incremental_assets.core.partitions import Granularity
from incremental_assets.core.window import Window

_FIRST_DAY, _END = days_from_civil(1, 1, 1), days_from_civil(10000, 1, 1)
"""The days between which MySQL has literals. Its columns have no others, but for zero dates, which lie below all of them."""
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


def literal(cursor_type: CursorType, value: int) -> str | None:
    """A literal for a value of the identifier's cursor type; None for a time that MySQL cannot write, before the year 1 or after 9999.

    The time zone of our sessions is UTC, so that a literal without one is an instant where the column is one.
    """
    if cursor_type is CursorType.INTEGER:
        return str(int(value))
    days = value if cursor_type is CursorType.DATE else value // cursor_type.steps_per_day
    if not _FIRST_DAY <= days < _END:
        return None
    return f"{_LITERAL[cursor_type]}'{format_value(cursor_type, value).replace('T', ' ').removesuffix('Z')}'"


def identifier_expression(identifier: Identifier) -> str:
    """The identifier's column, or the greater of its two columns, where a NULL is ignored."""
    names = [quoted(name) for name in identifier.columns]
    if len(names) == 1:
        return names[0]
    return f"greatest(coalesce({names[0]}, {names[1]}), coalesce({names[1]}, {names[0]}))"


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


def window_predicate(identifier: Identifier, window: Window) -> str:
    """A condition for the rows of one window. It is not true for rows without identifier, even if the window has no bounds."""
    cursor_type, names = identifier.cursor_type, [quoted(name) for name in identifier.columns]
    lower = None if window.lower is None else literal(cursor_type, window.lower)
    upper = None if window.upper is None else literal(cursor_type, window.upper)
    # A bound that has no literal lies beyond all values of the column, on one side or on the other.
    if window.lower is not None and lower is None and window.lower > 0:
        return "false"
    if window.upper is not None and upper is None and window.upper < 0:
        return "false"
    parts: list[str] = []
    if lower is not None:  # each column is compared by itself, so that its index can be used
        parts.append(f"({' or '.join(f'{name} >= {lower}' for name in names)})")
    if upper is not None:  # both columns must lie below the bound; a column that is NULL is ignored
        parts.append(f"{names[0] if len(names) == 1 else identifier_expression(identifier)} < {upper}")
    if not parts:
        return f"({' or '.join(f'{name} is not null' for name in names)})"
    return f"({' and '.join(parts)})"


def null_predicate(identifier: Identifier) -> str:
    """A condition for the rows without identifier: all of its columns are NULL."""
    return f"({' and '.join(f'{quoted(name)} is null' for name in identifier.columns)})"


def scope_predicate(container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
    """A condition for the rows of the windows and, with ``include_nulls``, those without identifier, limited by the YAML's ``where:``.

    For a container without identifier it selects the whole container.
    """
    parts: list[str] = []
    identifier = container.identifier
    if identifier is not None:
        everything = any(w.lower is None and w.upper is None for w in windows)
        if not (everything and (include_nulls or container.identifier_is_required)):
            either = [window_predicate(identifier, window) for window in windows]
            if include_nulls:
                either.append(null_predicate(identifier))
            parts.append(f"({' or '.join(either)})" if either else "false")
    parts += where_clause(container)
    return " and ".join(parts) or "true"


def domain_predicate(container: Container) -> str:
    """A condition for all rows that belong to the container: those in its domain and, if they are carried, those without identifier."""
    return scope_predicate(container, [container.identifier.domain] if container.identifier else [], container.has_null_identifiers)


def where_clause(container: Container) -> list[str]:
    """The condition in the YAML's ``where:``, as a list that is empty or has one element."""
    return [f"({container.options.where})"] if container.options.where else []
