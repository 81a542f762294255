"""Defines how the rows of a snapshot are read as Arrow: what PostgreSQL is asked for each column, and over which connection."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from psycopg import sql

from incremental_assets.core.nested_types import element_of
from incremental_assets.databases.postgres.arrow_task import WIRE_TYPES, SnapshotRead, WireColumn
from incremental_assets.databases.postgres.cuts import divided
from incremental_assets.databases.postgres.extract import reader_statements, select_of
from incremental_assets.databases.postgres.queries import scope_predicate
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import MARKED, Carried
from incremental_assets.databases.source import WindowRead
from incremental_assets.delta.local_rows import arrow_schema

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# The types of PostgreSQL as which times are sent in their own binary form. To compute integers of them, as for JDBC, takes PostgreSQL three
# times as long: ``extract`` returns a numeric.
_TIMES = {"timestamp": sql.SQL("{}::timestamptz"), "timestamp_ntz": sql.SQL("{}::timestamp")}


def reason_against_arrow(reader: PostgresReader, carried: Sequence[Carried]) -> str | None:
    """Why the rows cannot be read as Arrow; None if they can."""
    for column in carried:
        if sent_as(column) is None:
            return f"column {column.column.name} is {column.column.type}"
    return reader.reason_against_libpq()


def snapshot_read(reader: PostgresReader, carried: Sequence[Carried], read: WindowRead, cuts: Sequence[sql.Composable]) -> SnapshotRead:
    """The read of some windows, in as many ranges as ``cuts`` divide it into. It must be called inside ``reader.snapshot()``.

    There must be no ``reason_against_arrow``.
    """
    scope = scope_predicate(reader.container, read.windows, read.include_nulls)
    selected = sent_columns(carried)
    return read_of_queries(reader, carried, [select_of(reader.container, selected, one) for one in divided(scope, cuts)])


def sent_columns(carried: Sequence[Carried]) -> list[Carried]:
    """The columns with the SQL by which they are sent as Arrow."""
    return [replace(column, select=_select(column)) for column in carried]


def read_of_queries(reader: PostgresReader, carried: Sequence[Carried], queries: Sequence[sql.Composable]) -> SnapshotRead:
    """The read of queries that return ``sent_columns(carried)``. It must be called inside ``reader.snapshot()``."""
    return SnapshotRead(
        connection=reader.libpq_connection,
        password=reader.password,
        settings=tuple(part.strip() for part in reader_statements(reader).split(";") if part.strip()),
        queries=tuple(query.as_string(None) for query in queries),
        columns=tuple(column for column in map(sent_as, carried) if column is not None),
        silence=reader.limits.silence,
    )


def sent_as(column: Carried) -> WireColumn | None:
    """How a column's values travel in Arrow; None for a type of the lake that is not known here.

    The values are those that JDBC gets, but for times and decimals. Decimals are sent in PostgreSQL's own form, of which ADBC makes texts:
    to send them as bigint, without their point, takes PostgreSQL longer than it takes Arrow to read the texts.
    """
    name, type_ = column.column.name, column.column.type
    decimal = _DECIMAL.fullmatch(type_)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        return WireColumn(name, pa.decimal128(precision, scale), "numeric")
    lists = arrow_schema([column.column]) if element_of(type_) is not None else None
    if lists is not None:
        return WireColumn(name, lists.field(0).type, column.wire)
    if type_ in _TIMES and column.wire == "bigint":
        return WireColumn(name, WIRE_TYPES[type_], type_)
    if type_ == "date" and column.wire == "int":
        return WireColumn(name, pa.date32(), "int")  # days since 1970, which have the same bits
    return WireColumn(name, WIRE_TYPES[type_], type_) if type_ in WIRE_TYPES and column.wire == type_ and column.decode == "{}" else None


def _select(column: Carried) -> sql.Composable:
    """What PostgreSQL evaluates for a column: as for JDBC, except for times, decimals and character(n)."""
    if column is MARKED:
        return sql.SQL("null::timestamptz")
    if column.is_sent_as_it_is:
        return sql.Identifier(column.column.name)
    if column.column.type in _TIMES:
        return _TIMES[column.column.type].format(sql.Identifier(column.column.name))
    if _DECIMAL.fullmatch(column.column.type):
        return sql.SQL("({})::numeric").format(column.select)
    return column.select
