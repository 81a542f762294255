"""Quotes names and writes literals in SQL that every database understands, and binds the conditions that are made of them.

Names are in double quotes, as the standard has it. Times are written in JDBC's own escapes (``{ts '…'}``), which each driver translates.
No text is ever written as a literal, as databases differ in what a backslash means in it: keys are compared by Spark (``reader``).
"""

from incremental_assets.core.container import Container, SourceColumn
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.databases.text_predicates import TextPredicates


def quoted(name: str) -> str:
    """A name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def relation(schema: str, table: str) -> str:
    """The quoted name of a table or view, with its schema."""
    return f"{quoted(schema)}.{quoted(table)}"


def relation_of(container: Container) -> str:
    """The quoted name of the container's table or view."""
    return relation(container.schema, container.name)


_TIMES = {"date": CursorType.DATE, "timestamp_ntz": CursorType.TIMESTAMP_NTZ, "timestamp": CursorType.TIMESTAMP}
_ENDS = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


class _Predicates(TextPredicates):
    true, false = "1 = 1", "1 = 0"

    def quoted(self, name: str) -> str:
        return quoted(name)

    def time_literal(self, cursor_type: CursorType, text: str) -> str:
        if cursor_type is CursorType.DATE:
            return f"{{d '{text}'}}"
        # JDBC has no escape for an instant.
        return f"{{ts '{text}'}}" if cursor_type is CursorType.TIMESTAMP_NTZ else f"cast('{text}+00:00' as timestamp(6) with time zone)"

    def placed(self, container: Container) -> list[str]:
        """Times from the year 1 to 9999. Others, such as infinity in PostgreSQL, lie beyond them."""
        return [
            f"({'' if column.not_null else f'{quoted(column.name)} is null or '}{calendar_predicate(kind, quoted(column.name))})"
            for column, kind in _timed(container)
        ]

    def greater(self, one: str, other: str) -> str:
        return f"case when {one} is null then {other} when {other} is null then {one} when {one} >= {other} then {one} else {other} end"


_PREDICATES = _Predicates()


def _timed(container: Container) -> list[tuple[SourceColumn, CursorType]]:
    """The columns by which rows are placed and that are times."""
    return [(column, _TIMES[column.type]) for column in container.placed_by if column.type in _TIMES]


def _ends(cursor_type: CursorType) -> list[str]:
    """Literals for the first and the last time that the lake has."""
    return [_PREDICATES.time_literal(cursor_type, end[:10] if cursor_type is CursorType.DATE else end) for end in _ENDS]


def calendar_predicate(cursor_type: CursorType, name: str) -> str:
    """A condition for the times of the years 1 to 9999. ``name``: of the column, quoted."""
    first, last = _ends(cursor_type)
    return f"{name} >= {first} and {name} <= {last}"


def unplaced_predicate(container: Container) -> str | None:
    """A condition for the rows with a time that no window holds; None if no column by which they are placed is one."""
    found = [(quoted(column.name), *_ends(kind)) for column, kind in _timed(container)]
    return " or ".join(f"{name} < {first} or {name} > {last}" for name, first, last in found) or None


TRUE, FALSE = _PREDICATES.true, _PREDICATES.false
identifier_expression = _PREDICATES.identifier_expression
null_predicate, scope_predicate, domain_predicate = _PREDICATES.nulls, _PREDICATES.scope, _PREDICATES.domain
where_clause, placed_predicate = _PREDICATES.where, _PREDICATES.placed
