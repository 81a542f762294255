"""Builds predicates and expressions of SQL that every database understands from typed values.

Belongs here: quoting names, literals, and the conversion of windows into WHERE conditions. Does not belong: running queries (``session``).

Names are in double quotes, as the standard has it. Times are written in JDBC's own escapes (``{ts '…'}``), which each driver translates.
No text is ever written as a literal, as databases differ in what a backslash means in it: keys are compared by Spark (``reader``).
"""

from collections.abc import Sequence

from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.cursor_type import CursorType, days_from_civil, format_value
from incremental_assets.core.window import Window

_FIRST_DAY, _END = days_from_civil(1, 1, 1), days_from_civil(10000, 1, 1)
"""The days between which JDBC has literals."""
FALSE = "1 = 0"
TRUE = "1 = 1"


def quoted(name: str) -> str:
    """A name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def relation(schema: str, table: str) -> str:
    """The quoted name of a table or view, with its schema."""
    return f"{quoted(schema)}.{quoted(table)}"


def relation_of(container: Container) -> str:
    """The quoted name of the container's table or view."""
    return relation(container.schema, container.name)


def literal(cursor_type: CursorType, value: int) -> str | None:
    """A literal for a value of the identifier's cursor type; None for a time before the year 1 or after 9999."""
    if cursor_type is CursorType.INTEGER:
        return str(int(value))
    days = value if cursor_type is CursorType.DATE else value // cursor_type.steps_per_day
    if not _FIRST_DAY <= days < _END:
        return None
    text = format_value(cursor_type, value).replace("T", " ").removesuffix("Z")
    if cursor_type is CursorType.DATE:
        return f"{{d '{text}'}}"
    # JDBC has no escape for an instant.
    return f"{{ts '{text}'}}" if cursor_type is CursorType.TIMESTAMP_NTZ else f"cast('{text}+00:00' as timestamp(6) with time zone)"


def identifier_expression(identifier: Identifier) -> str:
    """The identifier's column, or the greater of its two columns, where a NULL is ignored."""
    names = [quoted(name) for name in identifier.columns]
    if len(names) == 1:
        return names[0]
    one, other = names
    return f"case when {one} is null then {other} when {other} is null then {one} when {one} >= {other} then {one} else {other} end"


def window_predicate(identifier: Identifier, window: Window) -> str:
    """A condition for the rows of one window. It is not true for rows without identifier, even if the window has no bounds."""
    cursor_type, names = identifier.cursor_type, [quoted(name) for name in identifier.columns]
    lower = None if window.lower is None else literal(cursor_type, window.lower)
    upper = None if window.upper is None else literal(cursor_type, window.upper)
    # A bound that has no literal lies beyond all values of the column, on one side or on the other.
    if window.lower is not None and lower is None and window.lower > 0:
        return FALSE
    if window.upper is not None and upper is None and window.upper < 0:
        return FALSE
    parts: list[str] = []
    if lower is not None:
        parts.append(f"({' or '.join(f'{name} >= {lower}' for name in names)})")
    if upper is not None:
        parts.append(f"{identifier_expression(identifier)} < {upper}")
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
            parts.append(f"({' or '.join(either)})" if either else FALSE)
    return " and ".join([*parts, *where_clause(container)]) or TRUE


def domain_predicate(container: Container) -> str:
    """A condition for all rows that belong to the container: those in its domain and, if they are carried, those without identifier."""
    return scope_predicate(container, [container.identifier.domain] if container.identifier else [], container.has_null_identifiers)


def where_clause(container: Container) -> list[str]:
    """The condition in the YAML's ``where:``, as a list that is empty or has one element."""
    return [f"({container.options.where})"] if container.options.where else []
