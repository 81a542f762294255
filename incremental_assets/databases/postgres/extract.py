"""Reads rows of an exported snapshot of PostgreSQL as a Spark DataFrame.

All parallel readers see the same snapshot.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from incremental_assets.core.container import Arrays, Container
from incremental_assets.core.deletes import Deletes
from incremental_assets.core.names import backticked
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.databases.postgres.cuts import divided, key_cuts, reader_cuts
from incremental_assets.databases.postgres.lists import carry_list
from incremental_assets.databases.postgres.queries import relation, scope_predicate
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.settings import SEARCH_PATH
from incremental_assets.databases.postgres.types import MARKED, Carried, carry, carry_bytes, carry_canonical
from incremental_assets.databases.source import WindowRead
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

FETCH_SIZE = 20_000
"""The number of rows that a reader fetches at a time. It must be above 0: with 0 the driver buffers the whole table, and Spark leaves the
connection in autocommit mode, so that the snapshot is silently not used."""
_QUOTED_OR_MARK = re.compile(r"\?|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_KEYS = "incremental_assets_keys"
_FROM_KEY_TEXT = {
    "date": "date '1970-01-01' + {0}::int",
    "timestamp": "timestamptz 'epoch' + ({0} || ' microseconds')::interval",
    "timestamp_ntz": "timestamp 'epoch' + ({0} || ' microseconds')::interval",
    "binary": "decode({0}, 'hex')",
}
"""SQL expressions that turn a key's text back into its value, by the column's type in the lake. They invert ``delta.sql.key_text``."""
# The statements with which each reader begins its transaction: it joins the snapshot, makes our settings, and marks itself as one of ours
# (``reader_mark``).
_SETTINGS = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; {settings}; {mark}, {search_path}"


def carried_columns(container: Container, text_columns: Iterable[str] = (), server_version: int = 140000) -> list[Carried]:
    """How each column of the container is read and decoded. ``text_columns`` are read as text, in addition to those that the YAML names.
    Arrays are text, too, unless the YAML says ``arrays: list``, and in the key, whose values are looked up by their texts.

    Behind a column of the key comes its canonical form, where the container has one. With ``deletes: soft`` the last column is that of the
    marks, which the source does not have.
    """
    as_text = {*container.options.text_columns, *text_columns}
    carried: list[Carried] = []
    for column in container.columns:
        as_bytes = column.name in container.options.binary_columns
        is_text = as_bytes or column.name in as_text or column.name in container.primary_key or container.options.arrays is Arrays.TEXT
        as_list = None if is_text else carry_list(column, server_version)
        carried.append(as_list or (carry_bytes(column) if as_bytes else carry(column, as_text, server_version)))
        if column.name in container.canonical:
            carried.append(carry_canonical(column))
    return [*carried, MARKED] if container.options.deletes is Deletes.SOFT else carried


def read_windows(spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], read: WindowRead) -> "DataFrame":
    """The rows of a read by windows. It must be called inside ``reader.snapshot()``."""
    scope = scope_predicate(reader.container, read.windows, read.include_nulls)
    return _read(spark, reader, carried, scope, reader_cuts(reader, read))


def key_ranges(reader: PostgresReader, rows: int, most_readers: int) -> list[Sequence[sql.Composable]]:
    """Divides a container, by the first column of its primary key, into ranges of about ``rows`` rows.

    Each range is a list of conditions, one for each of its parallel readers. Together the ranges have every row exactly once. The result is
    empty if PostgreSQL has no statistics of that column.
    """
    count = -(-reader.estimate([EVERYTHING], True) // max(rows, 1))
    cuts = key_cuts(reader, count * most_readers)
    a_range = max(1, min(most_readers, len(cuts) // max(count, 1)))
    return [cuts[start : start + a_range] for start in range(0, len(cuts), a_range)]


def read_key_ranges(
    spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], ranges: Sequence[Sequence[sql.Composable]]
) -> list[PersistedRows]:
    """Reads each range in a newer snapshot of the source. Spark keeps the rows on its disks until they are released.

    It must be called inside ``reader.snapshot()``, from which the first range is read.
    """
    from pyspark.storagelevel import StorageLevel

    scope = scope_predicate(reader.container, [EVERYTHING], True)
    parts: list[PersistedRows] = []
    for number, cuts in enumerate(ranges):
        if number:
            reader.renew_snapshot()
        parts.append(PersistedRows(spark, _read(spark, reader, carried, scope, cuts), StorageLevel.DISK_ONLY))
        parts[-1].frame.count()  # Spark is lazy: this reads the rows now, while their snapshot is held
    return parts


def read_keys(spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> "DataFrame":
    """The rows with the given primary keys as they are in the snapshot. Each key is a sequence of texts (``delta.sql.key_text``)."""
    container = reader.container
    query = sql.SQL("({}) in (select {} from {})").format(_key_columns(container), *_given_keys(container, carried, keys))
    return _read(spark, reader, carried, sql.SQL("{} and {}").format(query, synced_at_all(container)), [])


def existing_keys(reader: PostgresReader, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> list[int]:
    """The positions, in ``keys``, of those primary keys that the container has in the snapshot."""
    container = reader.container
    typed, given = _given_keys(container, carried, keys)
    query = sql.SQL("select {k}.n - 1 from {given} where exists (select from {table} where ({names}) = ({typed}) and {scope})").format(
        k=sql.Identifier(_KEYS), given=given, table=relation(container), names=_key_columns(container), typed=typed,
        scope=synced_at_all(container),
    )  # fmt: skip
    return [int(row[0]) for row in reader.rows(query)]


def synced_at_all(container: Container) -> sql.Composable:
    """A condition for all rows that belong to the container: those in its domain and, if they are carried, those without identifier."""
    return scope_predicate(container, [container.identifier.domain] if container.identifier else [], container.has_null_identifiers)


def _key_columns(container: Container) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(name) for name in container.primary_key)


def _given_keys(container: Container, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> tuple[sql.Composable, sql.Composable]:
    """SQL for keys that are given as texts: the list of the key's columns, each cast to its own type, and the table of the texts.

    The table has a column for each column of the key, and the position ``n`` of the key, counted from 1.
    """
    types = {column.name: column.type for column in container.columns}
    in_lake = {c.column.name: c.column.type for c in carried}
    typed: list[sql.Composable] = []
    for i, (name, carried_name) in enumerate(zip(container.primary_key, container.lake_key, strict=True)):
        cast = _FROM_KEY_TEXT.get(in_lake[carried_name], "{0}::{1}")
        typed.append(_raw(cast).format(sql.Identifier(_KEYS, f"k{i}"), _raw(types[name])))
    arrays = [sql.SQL("{}::text[]").format(sql.Literal([key[i] for key in keys])) for i in range(len(container.primary_key))]
    columns = [sql.Identifier(name) for name in (*(f"k{i}" for i in range(len(arrays))), "n")]
    given = sql.SQL("unnest({}) with ordinality as {}({})").format(
        sql.SQL(", ").join(arrays), sql.Identifier(_KEYS), sql.SQL(", ").join(columns)
    )
    return sql.SQL(", ").join(typed), given


def _raw(trusted: str) -> sql.SQL:
    """A text as SQL without quoting. It is used only for names of types that come from PostgreSQL's own catalog, and for constants."""
    return sql.SQL(trusted)  # pyright: ignore[reportArgumentType]


def describe_read(container: Container, carried: Sequence[Carried], windows: Sequence[Window], include_nulls: bool) -> str:
    """The SQL of a read, for ``--dry-run``. Nothing is run."""
    return select_of(container, carried, scope_predicate(container, windows, include_nulls), names=True).as_string(None)


def reader_statements(reader: PostgresReader) -> str:
    """The statements, divided by semicolons, with which a reader's transaction begins. It must be called inside ``reader.snapshot()``."""
    assert reader.snapshot_id is not None, "reads happen inside a snapshot"
    return _SETTINGS.format(snapshot=reader.snapshot_id, settings=reader.reader_settings, mark=reader.reader_mark, search_path=SEARCH_PATH)


def select_of(container: Container, carried: Sequence[Carried], scope: sql.Composable, *, names: bool = False) -> sql.Composable:
    """The query for the rows in ``scope``. Its columns are called c0, c1, …; with ``names`` they have their own names."""
    # The columns are named c0, c1, … on the way, so that no name clashes with a keyword, a quote, or a name in another case.
    listed = [sql.SQL("{} as {}").format(c.select, sql.Identifier(c.column.name if names else f"c{i}")) for i, c in enumerate(carried)]
    return sql.SQL("select {} from {} where {}").format(sql.SQL(", ").join(listed), relation(container), scope)


def _read(
    spark: "SparkSession", reader: PostgresReader, carried: Sequence[Carried], scope: sql.Composable, cuts: Sequence[sql.Composable]
) -> "DataFrame":
    container = reader.container
    options = {
        **reader.jdbc_options,
        "fetchsize": str(FETCH_SIZE),
        "sessionInitStatement": reader_statements(reader),
        "customSchema": ", ".join(f"c{i} {c.wire}" for i, c in enumerate(carried)),
        "preferTimestampNTZ": "true",
        "pushDownPredicate": "false",
    }
    frames: list[DataFrame] = [
        spark.read.format("jdbc")
        .options(**options)
        .option("dbtable", "(" + _no_placeholders(select_of(container, carried, one).as_string(None)) + ") q")
        .load()
        for one in divided(scope, cuts)  # a predicate outside the subquery could not use ctid
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionAll(other)
    return frame.selectExpr(*(f"{c.decode.format(f'c{i}')} as {backticked(c.column.name)}" for i, c in enumerate(carried)))


def _no_placeholders(query: str) -> str:
    """Escapes each ``?`` outside of quotes as ``??``.

    JDBC takes it for a parameter otherwise, but PostgreSQL has operators of that name, which the YAML's ``where:`` may use.
    """
    return _QUOTED_OR_MARK.sub(lambda match: "??" if match[0] == "?" else match[0], query)
