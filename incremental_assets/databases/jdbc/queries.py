"""Quotes names and writes literals in SQL that every database understands, and binds the conditions that are made of them.

Belongs here: what the standard and JDBC have for these. Does not belong: the conditions themselves (``databases.text_predicates``), and
running queries (``session``).

Names are in double quotes, as the standard has it. Times are written in JDBC's own escapes (``{ts '…'}``), which each driver translates.
No text is ever written as a literal, as databases differ in what a backslash means in it: keys are compared by Spark (``reader``).
"""

from incremental_assets.core.container import Container
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


class _Predicates(TextPredicates):
    true, false = "1 = 1", "1 = 0"

    def quoted(self, name: str) -> str:
        return quoted(name)

    def time_literal(self, cursor_type: CursorType, text: str) -> str:
        if cursor_type is CursorType.DATE:
            return f"{{d '{text}'}}"
        # JDBC has no escape for an instant.
        return f"{{ts '{text}'}}" if cursor_type is CursorType.TIMESTAMP_NTZ else f"cast('{text}+00:00' as timestamp(6) with time zone)"

    def greater(self, one: str, other: str) -> str:
        return f"case when {one} is null then {other} when {other} is null then {one} when {one} >= {other} then {one} else {other} end"


_PREDICATES = _Predicates()
TRUE, FALSE = _PREDICATES.true, _PREDICATES.false
identifier_expression = _PREDICATES.identifier_expression
null_predicate, scope_predicate, domain_predicate = _PREDICATES.nulls, _PREDICATES.scope, _PREDICATES.domain
where_clause = _PREDICATES.where
