"""How each PostgreSQL type is carried into the lake without changing a value.

Belongs here: for a column, the SQL that sends it over the wire, the Spark type it travels as, and the expression that decodes it. Does
not belong: evolution of a table that exists (``core.schema``).

Dates and times travel as exact integers (days, microseconds): JDBC's own classes know two calendars, a zone of the JVM and no infinity,
and have shifted or cut values. What Spark has no exact type for arrives as PostgreSQL's own text.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from psycopg import sql

from incremental_assets.core.container import SourceColumn
from incremental_assets.core.schema import Column

_NUMERIC = re.compile(r"numeric\((\d+),\s*(-?\d+)\)")
_PLAIN = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "bytea": "binary",
}
_CAST_CHANGES = ("character", "inet", "xml")
_EPOCH_MICROS = "(extract(epoch from {}) * 1000000)::bigint"
_EPOCH_MICROS_BEFORE_14 = (  # its epochs are doubles, in which 9999-12-31 23:59:59.999999 is another year
    "(extract(epoch from date_trunc('second', {0}))::bigint * 1000000 + extract(microseconds from {0})::bigint % 1000000)"
)


@dataclass(frozen=True)
class Carried:
    """``select``: what PostgreSQL sends. ``wire``: the Spark type it is read as. ``decode``: Spark SQL over ``{}``, the wire column."""

    column: Column
    select: sql.Composable
    wire: str
    decode: str
    may_be_infinite: sql.Composable | None = None


def carry(column: SourceColumn, text_columns: Collection[str] = (), server_version: int = 140000) -> Carried:
    """How ``column`` travels; as text where it is among ``text_columns``."""
    epoch_micros = sql.SQL(_EPOCH_MICROS if server_version >= 140000 else _EPOCH_MICROS_BEFORE_14)
    name = sql.Identifier(column.name)
    base = column.base
    numeric = _NUMERIC.fullmatch(column.type if base == "numeric" else "")

    def carried(type_: str, select: sql.Composable, wire: str | None = None, decode: str = "{}", infinite: sql.Composable | None = None):
        return Carried(Column(column.name, type_), select, wire or type_, decode, infinite)

    if column.name in text_columns:
        return carried("string", _text(name, base))
    if base in _PLAIN:
        return carried(_PLAIN[base], name)
    if base == "oid":
        return carried("bigint", sql.SQL("{}::bigint").format(name))
    if numeric and 0 <= int(numeric[2]) <= int(numeric[1]) <= 38:
        nan = sql.SQL("{} = 'NaN'").format(name)
        return carried(f"decimal({int(numeric[1])},{int(numeric[2])})", name, infinite=nan)
    infinite = sql.SQL("not isfinite({})").format(name)
    if base.startswith("timestamp"):  # the last 30 years of PostgreSQL's calendar have no room in microseconds since 1970
        infinite = sql.SQL("({} or {} >= '294247-01-01')").format(infinite, name)
    if base == "date":
        return carried("date", sql.SQL("({} - date '1970-01-01')").format(name), "int", "date_from_unix_date({})", infinite)
    if base == "timestamp with time zone":
        return carried("timestamp", epoch_micros.format(name), "bigint", "timestamp_micros({})", infinite)
    if base == "timestamp without time zone":
        # The session's zone is UTC, so the cast changes no digit.
        decode = "cast(timestamp_micros({}) as timestamp_ntz)"
        return carried("timestamp_ntz", epoch_micros.format(name), "bigint", decode, infinite)
    return carried("string", _text(name, base))


def _text(name: sql.Composable, base: str) -> sql.Composable:
    """The column as PostgreSQL prints it. For some types a cast to text says something else: it strips padding, or adds a netmask."""
    return sql.SQL("case when {0} is not null then concat({0}) end" if base in _CAST_CHANGES else "{0}::text").format(name)
