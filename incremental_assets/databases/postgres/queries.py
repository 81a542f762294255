"""Predicates and queries in PostgreSQL's dialect, built from typed values in this one place.

Belongs here: windows → WHERE, identifiers → expressions, the select list. Does not belong: running them. Names are quoted by psycopg,
values are literals of typed integers; the only free text is the ``where:`` of the YAML, which its author could run anyway.
"""

from collections.abc import Sequence

from psycopg import sql

from incremental_assets.core.axis import Axis, format_value
from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.window import Window

_LITERAL = {Axis.DAY: "date {}", Axis.LOCAL: "timestamp {}", Axis.INSTANT: "timestamptz {}"}


def relation(container: Container) -> sql.Composable:
    return sql.Identifier(container.schema, container.name)


def literal(axis: Axis, value: int) -> sql.Composable:
    """An axis value as a constant; years before 1 as PostgreSQL writes them."""
    if axis is Axis.INTEGER:
        return sql.SQL(str(int(value)))  # pyright: ignore[reportArgumentType]
    text = format_value(axis, value)
    if text.startswith("-") or text.startswith("0000"):
        year = int(text[: text.index("-", 1)])
        text = f"{1 - year:04d}{text[text.index('-', 1) :]} BC"
        if axis is Axis.INSTANT:
            text = text.replace("Z BC", "+00 BC")
    return sql.SQL(_LITERAL[axis]).format(sql.Literal(text))  # pyright: ignore[reportArgumentType]


def identifier_expression(identifier: Identifier) -> sql.Composable:
    """The column, or ``greatest(a, b)``, which ignores NULLs."""
    names = [sql.Identifier(name) for name in identifier.columns]
    return names[0] if len(names) == 1 else sql.SQL("greatest({})").format(sql.SQL(", ").join(names))


def highest_expression(identifier: Identifier) -> sql.Composable:
    """``max`` in a form that each column's index answers."""
    parts = [sql.SQL("max({})").format(sql.Identifier(name)) for name in identifier.columns]
    return parts[0] if len(parts) == 1 else sql.SQL("greatest({})").format(sql.SQL(", ").join(parts))


def axis_text(axis: Axis, expression: sql.Composable) -> sql.Composable:
    """An expression as text: the integer on the axis, or ``infinity``."""
    if axis is Axis.INTEGER:
        return sql.SQL("({})::text").format(expression)
    if axis is Axis.DAY:
        exact = sql.SQL("(({}) - date '1970-01-01')::text").format(expression)
    else:
        exact = sql.SQL("((extract(epoch from {}) * 1000000)::bigint)::text").format(expression)
    return sql.SQL("case when isfinite({0}) then {1} else ({0})::text end").format(expression, exact)


def window_predicate(identifier: Identifier, window: Window) -> sql.Composable:
    """Rows of one window; an unbounded window still leaves the NULLs out."""
    axis = identifier.axis
    names = [sql.Identifier(name) for name in identifier.columns]
    parts: list[sql.Composable] = []
    if window.lower is not None:
        each = [sql.SQL("{} >= {}").format(name, literal(axis, window.lower)) for name in names]
        parts.append(sql.SQL("({})").format(sql.SQL(" or ").join(each)))
    if window.upper is not None:  # both columns must lie below; a NULL one does not count
        if len(names) == 1:
            parts.append(sql.SQL("{} < {}").format(names[0], literal(axis, window.upper)))
        else:
            parts.append(sql.SQL("{} < {}").format(identifier_expression(identifier), literal(axis, window.upper)))
    if not parts:
        each = [sql.SQL("{} is not null").format(name) for name in names]
        return sql.SQL("({})").format(sql.SQL(" or ").join(each))
    return sql.SQL("({})").format(sql.SQL(" and ").join(parts))


def null_predicate(identifier: Identifier) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(" and ").join(sql.SQL("{} is null").format(sql.Identifier(n)) for n in identifier.columns))


def scope_predicate(container: Container, windows: Sequence[Window], include_nulls: bool) -> sql.Composable:
    """All rows of the windows (and the NULLs), within ``where:``. Without identifier: the whole container.

    The whole axis with NULLs is plain ``true``, so that no index is preferred where everything is read.
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
    parts += where_clause(container)
    return sql.SQL(" and ").join(parts) if parts else sql.SQL("true")


def where_clause(container: Container) -> list[sql.Composable]:
    """The YAML's ``where:``, as a list of none or one."""
    where = container.options.where
    return [sql.SQL("({})").format(sql.SQL(where))] if where else []  # pyright: ignore[reportArgumentType]
