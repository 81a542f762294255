"""Builds predicates and expressions of PostgreSQL's SQL from typed values.

Names are quoted by psycopg, and values are literals made from typed integers. The only free text is the ``where:`` of the YAML, whose
author could run any SQL anyway.
"""

from collections.abc import Sequence

from psycopg import sql

from incremental_assets.core.container import Container, Identifier, Inherited, SourceColumn
from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.partitions import Granularity
from incremental_assets.core.window import Window

_NOT_INFINITE = ("-infinity", "294247-01-01")
"""PostgreSQL's times end in the year 294276, but microseconds since 1970 fit into a bigint only until January 294247."""
_ENDS = {CursorType.INTEGER: (None, "NaN"), CursorType.DATE: ("-infinity", "infinity")}
"""Values that no window holds, of times other than these, too: up to the first one, and from the second one on."""
_TYPES_WITH_ENDS = {
    "date": CursorType.DATE,
    "timestamp without time zone": CursorType.TIMESTAMP_NTZ,
    "timestamp with time zone": CursorType.TIMESTAMP,
    "numeric": CursorType.INTEGER,
}
_LITERAL = {CursorType.DATE: "date {}", CursorType.TIMESTAMP_NTZ: "timestamp {}", CursorType.TIMESTAMP: "timestamptz {}"}


def relation(container: Container) -> sql.Composable:
    """The quoted name of the container's table or view, with its schema, and ``ONLY`` before it if rows of its heirs are not read."""
    only = sql.SQL("ONLY ") if container.options.inherited is Inherited.ONLY else sql.SQL("")
    return only + sql.Identifier(container.schema, container.name)


def literal(cursor_type: CursorType, value: int) -> sql.Composable:
    """A literal for a value of the identifier's cursor type. Years before 1 are written as PostgreSQL does, with BC."""
    if cursor_type is CursorType.INTEGER:
        return sql.SQL(str(int(value)))  # pyright: ignore[reportArgumentType]
    text = format_value(cursor_type, value)
    if text.startswith("-") or text.startswith("0000"):
        year = int(text[: text.index("-", 1)])
        text = f"{1 - year:04d}{text[text.index('-', 1) :]} BC"
        if cursor_type is CursorType.TIMESTAMP:
            text = text.replace("Z BC", "+00 BC")
    return sql.SQL(_LITERAL[cursor_type]).format(sql.Literal(text))  # pyright: ignore[reportArgumentType]


def identifier_expression(identifier: Identifier) -> sql.Composable:
    """The identifier's column, or ``greatest(a, b)`` of its two columns, which ignores NULLs."""
    names = [sql.Identifier(name) for name in identifier.columns]
    return names[0] if len(names) == 1 else sql.SQL("greatest({})").format(sql.SQL(", ").join(names))


def highest_expression(identifier: Identifier) -> sql.Composable:
    """The highest identifier, written so that PostgreSQL can use the index of each column: ``greatest(max(a), max(b))``."""
    parts = [sql.SQL("max({})").format(sql.Identifier(name)) for name in identifier.columns]
    return parts[0] if len(parts) == 1 else sql.SQL("greatest({})").format(sql.SQL(", ").join(parts))


def cursor_value_text(cursor_type: CursorType, expression: sql.Composable) -> sql.Composable:
    """SQL that gives the value of an expression as text: the integer of the cursor type, or ``infinity`` or ``-infinity``."""
    if cursor_type is CursorType.INTEGER:
        return sql.SQL("({})::text").format(expression)
    if cursor_type is CursorType.DATE:
        exact = sql.SQL("(({}) - date '1970-01-01')::text").format(expression)
    else:
        exact = sql.SQL("((extract(epoch from {}) * 1000000)::bigint)::text").format(expression)
    return sql.SQL("case when isfinite({0}) then {1} else ({0})::text end").format(expression, exact)


def partition_value(container: Container) -> sql.Composable:
    """A value of the row's partition as text, as an integer of the cursor type; NULL where the row belongs to none."""
    identifier, partitioning = container.axis, container.partitioning
    if identifier is None or partitioning is None:
        return sql.SQL("null::text")
    value = identifier_expression(identifier)
    if identifier.cursor_type is CursorType.INTEGER:
        return sql.SQL("(floor({0}::numeric / {1}) * {1})::text").format(value, sql.Literal(partitioning.width or 1))
    if identifier.cursor_type is CursorType.TIMESTAMP:
        value = sql.SQL("({} at time zone 'UTC')").format(value)
    if partitioning.granularity is Granularity.MONTH:
        value = sql.SQL("date_trunc('month', {}::timestamp)").format(value)
    elif partitioning.granularity is Granularity.HOUR and identifier.cursor_type is not CursorType.DATE:
        value = sql.SQL("date_trunc('hour', {})").format(value)
    else:  # weeks are put together of their days
        value = sql.SQL("date_trunc('day', {}::timestamp)").format(value)
    cursor_type = CursorType.DATE if identifier.cursor_type is CursorType.DATE else CursorType.TIMESTAMP_NTZ
    return cursor_value_text(cursor_type, sql.SQL("({})::date").format(value) if cursor_type is CursorType.DATE else value)


def window_predicate(identifier: Identifier, window: Window) -> sql.Composable:
    """A condition for the rows of one window. It is not true for rows without identifier, even if the window has no bounds."""
    cursor_type = identifier.cursor_type
    names = [sql.Identifier(name) for name in identifier.columns]
    parts: list[sql.Composable] = []
    if window.lower is not None:  # each column is compared by itself, so that its index can be used
        each = [sql.SQL("{} >= {}").format(name, literal(cursor_type, window.lower)) for name in names]
        parts.append(sql.SQL("({})").format(sql.SQL(" or ").join(each)))
    if window.upper is not None:  # both columns must lie below the bound; a column that is NULL is ignored
        if len(names) == 1:
            parts.append(sql.SQL("{} < {}").format(names[0], literal(cursor_type, window.upper)))
        else:
            parts.append(sql.SQL("{} < {}").format(identifier_expression(identifier), literal(cursor_type, window.upper)))
    if not parts:
        each = [sql.SQL("{} is not null").format(name) for name in names]
        return sql.SQL("({})").format(sql.SQL(" or ").join(each))
    return sql.SQL("({})").format(sql.SQL(" and ").join(parts))


def null_predicate(identifier: Identifier) -> sql.Composable:
    """A condition for the rows without identifier: all of its columns are NULL."""
    return sql.SQL("({})").format(sql.SQL(" and ").join(sql.SQL("{} is null").format(sql.Identifier(n)) for n in identifier.columns))


def scope_predicate(container: Container, windows: Sequence[Window], include_nulls: bool, *, with_unplaced: bool = False) -> sql.Composable:
    """A condition for the rows of the windows and, with ``include_nulls``, those without identifier, limited by the YAML's ``where:``.

    ``with_unplaced``: rows with a value that no window holds (``placed_predicate``) may be among them.

    For a container without identifier it selects the whole container. If all rows are selected, the condition is plain ``true``, so that
    PostgreSQL does not choose an index to read everything.
    """
    parts: list[sql.Composable] = []
    identifier = container.identifier
    if identifier is not None:
        everything = any(w.lower is None and w.upper is None for w in windows)
        if not (everything and (include_nulls or container.identifier_is_required)):
            either: list[sql.Composable] = [window_predicate(identifier, window) for window in windows]
            if include_nulls:
                either.append(null_predicate(identifier))
            parts.append(sql.SQL("({})").format(sql.SQL(" or ").join(either)) if either else sql.SQL("false"))
    parts += user_where(container) if with_unplaced else where_clause(container)
    return sql.SQL(" and ").join(parts) if parts else sql.SQL("true")


def where_clause(container: Container) -> list[sql.Composable]:
    """The conditions for the rows that belong to the container, whatever their identifier is."""
    return [*user_where(container), *placed_predicate(container)]


def user_where(container: Container) -> list[sql.Composable]:
    """The condition in the YAML's ``where:``, as a list that is empty or has one element."""
    where = container.options.where
    return [sql.SQL("({})").format(sql.SQL(where))] if where else []  # pyright: ignore[reportArgumentType]


def placed_predicate(container: Container) -> list[sql.Composable]:
    """Conditions for the rows whose identifier and partition a window can hold: not infinity, and not NaN.

    They are comparisons, for which the planner has statistics, and which an index answers.
    """
    return [
        sql.SQL("({})").format(within) if column.not_null else sql.SQL("({} is null or {})").format(sql.Identifier(column.name), within)
        for column, type_ in _with_ends(container)
        for within in (within_ends(sql.Identifier(column.name), type_),)
    ]


def unplaced_predicate(container: Container) -> sql.Composable | None:
    """A condition for all other rows; None if no column of the container can have such values."""
    parts: list[sql.Composable] = []
    for column, type_ in _with_ends(container):
        first, end = _ENDS.get(type_, _NOT_INFINITE)
        name = sql.Identifier(column.name)
        parts += [] if first is None else [sql.SQL("{} <= {}").format(name, sql.Literal(first))]
        parts.append(sql.SQL("{} >= {}").format(name, sql.Literal(end)))
    return sql.SQL("({})").format(sql.SQL(" or ").join(parts)) if parts else None


def within_ends(name: sql.Composable, cursor_type: CursorType) -> sql.Composable:
    """A condition for the values of a column that windows can hold. A column of integers must be ``numeric``: no other one has a NaN."""
    first, end = _ENDS.get(cursor_type, _NOT_INFINITE)
    if first is None:
        return sql.SQL("{} < {}").format(name, sql.Literal(end))
    return sql.SQL("{0} > {1} and {0} < {2}").format(name, sql.Literal(first), sql.Literal(end))


def _with_ends(container: Container) -> list[tuple[SourceColumn, CursorType]]:
    """The columns that place a row and can have such values."""
    return [(column, _TYPES_WITH_ENDS[column.base]) for column in container.placed_by if column.base in _TYPES_WITH_ENDS]
