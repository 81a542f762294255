"""Defines how each PostgreSQL type is carried into the lake without changing a value.

Dates and times are sent as exact integers (days or microseconds since 1970). JDBC's classes for them know two calendars, the JVM's time
zone and no infinity, and values read through them have been shifted or truncated. Values of types that Spark does not have exactly are sent
as PostgreSQL's own text.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from psycopg import sql

from incremental_assets.core.container import SourceColumn
from incremental_assets.core.deletes import MARK
from incremental_assets.core.names import canonical_name
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
"""Types whose cast to text does not give the text that PostgreSQL prints."""
_EPOCH_MICROS = "(extract(epoch from {}) * 1000000)::bigint"
# Before PostgreSQL 14, extract(epoch) returns a double, in which 9999-12-31 23:59:59.999999 becomes a time of the next year. So the seconds
# and the microseconds are computed separately.
_EPOCH_MICROS_BEFORE_14 = (
    "(extract(epoch from date_trunc('second', {0}))::bigint * 1000000 + extract(microseconds from {0})::bigint % 1000000)"
)


@dataclass(frozen=True)
class Carried:
    """How one column is carried.

    ``column``: its name and type in the lake. ``select``: the SQL expression that PostgreSQL evaluates. ``wire``: the Spark type in which
    its result is read. ``decode``: the Spark SQL expression that makes the lake's value; ``{}`` stands for the column that was read.
    ``may_be_infinite``: a SQL condition that is true for values that the lake's type cannot hold; None if there are no such values.
    ``is_sent_as_it_is``: the column itself arrives with the text of ``select`` where values are sent in binary form, for less work.
    """

    column: Column
    select: sql.Composable
    wire: str
    decode: str
    may_be_infinite: sql.Composable | None = None
    is_sent_as_it_is: bool = False


_CANONICAL = {
    "numeric": "rtrim(rtrim(({} + 0.0)::text, '0'), '.')",
    "interval": "justify_interval({})::text",
    "citext": 'lower({}::text collate "default")',
    "character": "{}::text",
}
"""By the type, SQL for a text that is the same for all equal values, which may look different, and of which the type makes such a value."""
MARKED = Carried(MARK, sql.SQL("null::bigint"), "bigint", "timestamp_micros({})")
"""The mark of deleted rows in a container with ``deletes: soft``: all rows that the source has are read without it."""


def carry(column: SourceColumn, text_columns: Collection[str] = (), server_version: int = 140000) -> Carried:
    """How ``column`` is carried; as text if it is one of ``text_columns``. ``server_version`` is ``server_version_num``, e.g. 140000."""
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
    # PostgreSQL's times end in the year 294276, but microseconds since 1970 fit into a bigint only until January 294247.
    if base.startswith("timestamp"):
        infinite = sql.SQL("({} or {} >= '294247-01-01')").format(infinite, name)
    if base == "date":
        return carried("date", sql.SQL("({} - date '1970-01-01')").format(name), "int", "date_from_unix_date({})", infinite)
    if base == "timestamp with time zone":
        return carried("timestamp", epoch_micros.format(name), "bigint", "timestamp_micros({})", infinite)
    if base == "timestamp without time zone":
        # The time zone of the Spark session is UTC, so the cast changes no digit.
        decode = "cast(timestamp_micros({}) as timestamp_ntz)"
        return carried("timestamp_ntz", epoch_micros.format(name), "bigint", decode, infinite)
    # The binary form of character(n) is its text with the padding. A cast strips it, and concat takes a third of the time of a load.
    return Carried(Column(column.name, "string"), _text(name, base), "string", "{}", is_sent_as_it_is=base == "character")


def canonical_form(column: SourceColumn) -> sql.Composable | None:
    """SQL for the canonical form of a column's values; None if equal values look the same, or if there is no such form.

    ``numeric(50,2)`` has one spelling of each value until the column gets another scale; values that the lake has as decimals have none.
    ``character(n)`` is always padded to n. Extensions may be in any schema.
    """
    form = _CANONICAL.get(column.base.rpartition(".")[2])
    if form is None or (column.base == "character" and column.type != "bpchar"):
        return None
    return sql.SQL(form).format(sql.Identifier(column.name))  # pyright: ignore[reportArgumentType]


def carry_canonical(column: SourceColumn) -> Carried:
    """How the canonical form of a column is carried, which must have one."""
    form = canonical_form(column)
    assert form is not None
    return Carried(Column(canonical_name(column.name), "string"), form, "string", "{}")


def carry_bytes(column: SourceColumn) -> Carried:
    """How the bytes of a column's text are carried, as the database stores them: they need be no text in its encoding."""
    select = sql.SQL("convert_to({}, getdatabaseencoding())").format(_text(sql.Identifier(column.name), column.base))
    return Carried(Column(column.name, "binary"), select, "binary", "{}")


def _text(name: sql.Composable, base: str) -> sql.Composable:
    """The column's value as PostgreSQL prints it. For some types ``concat`` is needed, because a cast to text strips padding or adds a
    netmask."""
    return sql.SQL("case when {0} is not null then concat({0}) end" if base in _CAST_CHANGES else "{0}::text").format(name)
