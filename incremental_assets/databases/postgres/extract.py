"""Rows of a frozen state of PostgreSQL as a Spark DataFrame.

Belongs here: the JDBC options, how a read is cut into partitions, decoding what travelled as integers. Does not belong: which rows
(``core``), or writing them (``delta``). All readers see the one exported snapshot.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from incremental_assets.core.container import Container, Kind
from incremental_assets.core.names import backticked
from incremental_assets.core.window import EVERYTHING, Window, merge
from incremental_assets.databases.postgres.queries import (
    identifier_expression,
    literal,
    null_predicate,
    relation,
    scope_predicate,
)
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried, carry

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

FETCH_SIZE = 20_000
"""Rows a reader holds at a time. Must be above 0: with 0 the driver buffers the table and, in autocommit, ignores the snapshot."""
PAGES_A_READER = 4096
ROWS_A_READER = 400_000
_QUOTED_OR_MARK = re.compile(r"\?|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_KEYS = "incremental_assets_keys"
_FROM_KEY_TEXT = {
    "date": "date '1970-01-01' + {0}::int",
    "timestamp": "timestamptz 'epoch' + ({0} || ' microseconds')::interval",
    "timestamp_ntz": "timestamp 'epoch' + ({0} || ' microseconds')::interval",
    "binary": "decode({0}, 'hex')",
}
"""The inverse of ``delta.sql.key_text``, by the type a column has in the lake."""
_SETTINGS = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}';"
    " {limits}; SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, YMD';"
    " SET LOCAL intervalstyle = 'postgres'; SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; {mark}"
)


def carried_columns(container: Container, text_columns: Iterable[str] = (), server_version: int = 140000) -> list[Carried]:
    """How each column of the container travels; ``text_columns`` beside those of the YAML."""
    as_text = {*container.options.text_columns, *text_columns}
    return [carry(column, as_text, server_version) for column in container.columns]


def read_windows(
    spark: "SparkSession",
    reader: PostgresReader,
    carried: Sequence[Carried],
    windows: Sequence[Window],
    include_nulls: bool,
    highest: int | None,
    most_readers: int,
) -> "DataFrame":
    """The rows of the windows (and the NULLs), in at most ``most_readers`` parallel reads. Call inside ``reader.snapshot()``."""
    container = reader.container
    scope = scope_predicate(container, windows, include_nulls)
    cuts = _cuts(reader, windows, include_nulls, highest, most_readers)
    return _read(spark, reader, carried, scope, cuts)


def key_ranges(reader: PostgresReader, rows: int, most_readers: int) -> list[Sequence[sql.Composable]]:
    """The container cut by the first column of its primary key into ranges of about ``rows`` rows, each of them cut for parallel readers;
    together they miss nothing. None where PostgreSQL has no statistics of that column."""
    count = -(-reader.estimate([EVERYTHING], True) // max(rows, 1))
    cuts = _key_cuts(reader, count * most_readers)
    a_range = max(1, min(most_readers, len(cuts) // max(count, 1)))
    return [cuts[start : start + a_range] for start in range(0, len(cuts), a_range)]


def read_key_ranges(
    spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], ranges: Sequence[Sequence[sql.Composable]]
) -> "list[DataFrame]":
    """The rows of each range, each of a newer frozen state of the source; Spark keeps them on its disks until they are released.

    Call inside ``reader.snapshot()``, whose state is that of the first range.
    """
    from pyspark.storagelevel import StorageLevel

    scope = scope_predicate(reader.container, [EVERYTHING], True)
    parts: list[DataFrame] = []
    for number, cuts in enumerate(ranges):
        if number:
            reader.renew_snapshot()
        part = _read(spark, reader, carried, scope, cuts).persist(StorageLevel.DISK_ONLY)
        parts.append(part)
        part.count()  # now, while its state is there
    return parts


def read_keys(spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> "DataFrame":
    """The rows of the given primary keys (each a sequence of the lake's key texts) as they are in the snapshot."""
    container = reader.container
    query = sql.SQL("({}) in (select {} from {})").format(_key_columns(container), *_given_keys(container, carried, keys))
    return _read(spark, reader, carried, sql.SQL("{} and {}").format(query, _synced_at_all(container)), [])


def existing_keys(reader: PostgresReader, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> list[int]:
    """Positions of those of the given primary keys that the container has in the snapshot."""
    container = reader.container
    typed, given = _given_keys(container, carried, keys)
    query = sql.SQL("select {k}.n - 1 from {given} where exists (select from {table} where ({names}) = ({typed}) and {scope})").format(
        k=sql.Identifier(_KEYS), given=given, table=relation(container), names=_key_columns(container), typed=typed,
        scope=_synced_at_all(container),
    )  # fmt: skip
    return [int(row[0]) for row in reader.rows(query)]


def _synced_at_all(container: Container) -> sql.Composable:
    return scope_predicate(container, [container.identifier.ground] if container.identifier else [], container.has_null_identifiers)


def _key_columns(container: Container) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(name) for name in container.primary_key)


def _given_keys(container: Container, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> tuple[sql.Composable, sql.Composable]:
    """Keys given as the lake's texts: (each column cast to its own type, the table of them)."""
    types = {column.name: column.type for column in container.columns}
    in_lake = {c.column.name: c.column.type for c in carried}
    typed: list[sql.Composable] = []
    for i, name in enumerate(container.primary_key):
        cast = _FROM_KEY_TEXT.get(in_lake[name], "{0}::{1}")
        typed.append(_raw(cast).format(sql.Identifier(_KEYS, f"k{i}"), _raw(types[name])))
    arrays = [sql.SQL("{}::text[]").format(sql.Literal([key[i] for key in keys])) for i in range(len(container.primary_key))]
    columns = [sql.Identifier(name) for name in (*(f"k{i}" for i in range(len(arrays))), "n")]
    given = sql.SQL("unnest({}) with ordinality as {}({})").format(
        sql.SQL(", ").join(arrays), sql.Identifier(_KEYS), sql.SQL(", ").join(columns)
    )
    return sql.SQL(", ").join(typed), given


def _raw(trusted: str) -> sql.SQL:
    """SQL text that PostgreSQL's own catalog gave us (a type's name)."""
    return sql.SQL(trusted)  # pyright: ignore[reportArgumentType]


def describe_read(container: Container, carried: Sequence[Carried], windows: Sequence[Window], include_nulls: bool) -> str:
    """The SQL of a read, for ``--dry-run``."""
    return _select(container, carried, scope_predicate(container, windows, include_nulls), names=True).as_string(None)


def _select(container: Container, carried: Sequence[Carried], scope: sql.Composable, *, names: bool = False) -> sql.Composable:
    # Columns travel as c0, c1, …: no name can then clash with a keyword, a quote or another case.
    listed = [sql.SQL("{} as {}").format(c.select, sql.Identifier(c.column.name if names else f"c{i}")) for i, c in enumerate(carried)]
    return sql.SQL("select {} from {} where {}").format(sql.SQL(", ").join(listed), relation(container), scope)


def _read(
    spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], scope: sql.Composable, cuts: Sequence[sql.Composable]
) -> "DataFrame":
    container = reader.container
    assert reader.snapshot_id is not None, "reads happen inside a snapshot"
    # Each cut becomes a query of its own: a predicate outside the subquery could not use ctid.
    scopes = [sql.SQL("({}) and ({})").format(scope, cut) for cut in cuts] or [scope]
    options = {
        **reader.jdbc_options,
        "fetchsize": str(FETCH_SIZE),
        "sessionInitStatement": _SETTINGS.format(snapshot=reader.snapshot_id, limits=reader.reader_settings, mark=reader.reader_mark),
        "customSchema": ", ".join(f"c{i} {c.wire}" for i, c in enumerate(carried)),
        "preferTimestampNTZ": "true",
        "pushDownPredicate": "false",
    }
    frames: list[DataFrame] = [
        spark.read.format("jdbc")
        .options(**options)
        .option("dbtable", "(" + _no_placeholders(_select(container, carried, one).as_string(None)) + ") q")
        .load()
        for one in scopes
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionAll(other)
    return frame.selectExpr(*(f"{c.decode.format(f'c{i}')} as {backticked(c.column.name)}" for i, c in enumerate(carried)))


def _no_placeholders(query: str) -> str:
    """JDBC takes each ``?`` outside of quotes for a parameter; PostgreSQL has operators of that name, which a ``where:`` may use."""
    return _QUOTED_OR_MARK.sub(lambda match: "??" if match[0] == "?" else match[0], query)


def _cuts(
    reader: PostgresReader, windows: Sequence[Window], include_nulls: bool, highest: int | None, most_readers: int
) -> list[sql.Composable]:
    """Conditions that cut a read into disjoint parts which together miss nothing; empty for one reader."""
    container = reader.container
    most = min(container.options.readers or most_readers, most_readers)
    if most <= 1:
        return []
    whole = container.identifier is None or any(w.lower is None and w.upper is None for w in windows)
    if whole and container.kind is Kind.TABLE:
        pages = reader.pages()
        readers = container.options.readers or min(most, pages // PAGES_A_READER + 1)
        return _ctid_cuts(pages, min(readers, most))
    if container.identifier is None:
        rows = reader.estimate(windows, include_nulls)
        return ordering_cuts(reader, min(container.options.readers or min(most, rows // ROWS_A_READER + 1), most))
    readers = container.options.readers or min(most, reader.estimate(windows, include_nulls) // ROWS_A_READER + 1)
    return _identifier_cuts(reader, windows, include_nulls, highest, min(readers, most))


def _ctid_cuts(pages: int, readers: int) -> list[sql.Composable]:
    if readers <= 1:
        return []
    starts = [pages * i // readers for i in range(readers)]
    cuts: list[sql.Composable] = []
    for index, start in enumerate(starts):
        parts = [sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({start},0)"))]
        if index + 1 < readers:  # the last range is open: the table may have grown since its size was asked
            parts.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({starts[index + 1]},0)")))
        cuts.append(sql.SQL(" and ").join(parts))
    return cuts


def ordering_cuts(reader: PostgresReader, readers: int) -> list[sql.Composable]:
    """By the key's first column, whose order is the same each time: for tables of many parts, which have no one range of ``ctid``."""
    container = reader.container
    if readers <= 1 or not container.primary_key or container.kind is not Kind.PARTITIONED:
        return []
    return _key_cuts(reader, readers)


def _key_cuts(reader: PostgresReader, parts: int) -> list[sql.Composable]:
    """At most ``parts`` conditions on the first column of the key, of about equally many rows each; none where there are no statistics."""
    container = reader.container
    name = container.primary_key[0]
    edges = reader.quantiles(name, parts)
    type_ = _raw(next(column.type for column in container.columns if column.name == name))
    limits = [sql.SQL("{}::{}").format(sql.Literal(edge), type_) for edge in edges]
    column = sql.Identifier(name)
    cuts: list[sql.Composable] = []
    for index in range(len(limits) + 1):
        bounds: list[sql.Composable] = []
        if index > 0:
            bounds.append(sql.SQL("{} >= {}").format(column, limits[index - 1]))
        if index < len(limits):
            below = sql.SQL("{} < {}").format(column, limits[index])
            bounds.append(sql.SQL("({} or {} is null)").format(below, column) if index == 0 else below)
        cuts.append(sql.SQL(" and ").join(bounds))
    return cuts if limits else []


def _identifier_cuts(
    reader: PostgresReader, windows: Sequence[Window], include_nulls: bool, highest: int | None, readers: int
) -> list[sql.Composable]:
    identifier = reader.container.identifier
    assert identifier is not None
    ground = merge(windows)
    lower = ground[0].lower if ground and ground[0].lower is not None else None
    # A view is evaluated once more for its lowest value: only where somebody asked for several readers of it.
    if lower is None and readers > 1 and (reader.container.kind is Kind.PARTITIONED or reader.container.options.readers):
        lower = reader.lowest()
    if readers <= 1 or highest is None or lower is None or highest - lower < readers:
        return []
    expression = identifier_expression(identifier)
    edges = [lower + (highest - lower) * i // readers for i in range(1, readers)]
    cuts: list[sql.Composable] = []
    for index in range(readers):
        parts: list[sql.Composable] = []
        if index > 0:
            parts.append(sql.SQL("{} >= {}").format(expression, literal(identifier.axis, edges[index - 1])))
        if index + 1 < readers:
            parts.append(sql.SQL("{} < {}").format(expression, literal(identifier.axis, edges[index])))
        cuts.append(sql.SQL(" and ").join(parts))
    if include_nulls:
        cuts.append(null_predicate(identifier))
    return cuts
