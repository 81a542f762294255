"""Defines how a one-dimensional array of PostgreSQL is carried as an array of the lake (``arrays: list``).

An array of the lake has one dimension, and its first element is the first: an array of two dimensions, or with another lower bound, would
arrive as another one. So ``may_be_infinite`` is true for it as for an array with an element such as infinity, and to select it fails.
"""

from dataclasses import replace

from psycopg import sql

from incremental_assets.core.container import SourceColumn
from incremental_assets.core.nested_types import array_of
from incremental_assets.core.schema import Column
from incremental_assets.databases.postgres.types import Carried, carry

UNLISTABLE = "no array of the lake: infinity, NaN, another lower bound than 1, or more than one dimension"
"""What PostgreSQL says of such a value, as a part of its message, when it is selected."""
_ELEMENT = "element"
_TEXTS = ("text", "character varying", "uuid")
_SENT = {
    "boolean": sql.SQL("boolean[]"), "smallint": sql.SQL("smallint[]"), "int": sql.SQL("integer[]"), "bigint": sql.SQL("bigint[]"),
    "float": sql.SQL("real[]"), "double": sql.SQL("double precision[]"), "string": sql.SQL("text[]"),
}  # fmt: skip
"""The type as which an array is sent, by the Spark type in which its elements are read."""


def carry_list(column: SourceColumn, server_version: int = 140000) -> Carried | None:
    """How an array is carried as an array of the lake; None for columns that are no arrays, and for arrays of other elements."""
    base = column.base.removesuffix("[]")
    element = carry(SourceColumn(_ELEMENT, column.type.removesuffix("[]"), base), (), server_version)
    is_exact = element.column.type != "string" and base not in ("bytea", "oid")
    if base == column.base or not (is_exact or base in _TEXTS):
        return None
    name = sql.Identifier(column.name)
    if base == "numeric":  # its text has all digits, and neither ADBC nor Spark's JDBC knows the scale of an element
        element = replace(element, wire="string", decode=f"cast({{}} as {element.column.type})")
    array = _SENT[element.wire]
    value = sql.SQL("{}::{}").format(name, array)
    if element.decode != "{}" and element.wire != "string":  # days and microseconds
        value = sql.SQL("case when {} is not null then array(select {} from {} order by n) end").format(name, element.select, _rows(name))
    unlistable = sql.SQL("(coalesce(array_ndims({0}), 1) <> 1 or coalesce(array_lower({0}, 1), 1) <> 1)").format(name)
    if element.may_be_infinite is not None:
        any_is = sql.SQL("exists (select from {} where {})").format(_rows(name), element.may_be_infinite)
        unlistable = sql.SQL("({} or {})").format(unlistable, any_is)
    # The cast fails, and as it depends on the value, PostgreSQL does not compute it ahead.
    failure = sql.SQL("(left({}::text, 0) || {})").format(name, sql.Literal(UNLISTABLE))
    return Carried(
        Column(column.name, array_of(element.column.type)),
        sql.SQL("case when {} then {}::{} else {} end").format(unlistable, failure, array, value),
        array_of(element.wire),
        "{}" if element.decode == "{}" else f"transform({{}}, e -> {element.decode.format('e')})",
        unlistable,
    )


def _rows(array: sql.Composable) -> sql.Composable:
    """The elements of an array as rows of the columns ``element`` and ``n``."""
    return sql.SQL("unnest({}) with ordinality as elements({}, n)").format(array, sql.Identifier(_ELEMENT))
