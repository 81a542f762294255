"""This module compares a table in the lake with its source row by row: every column as text, with duplicates counted.

It is the demo's final proof. The lake is read by delta-rs and not by Spark, so that what wrote the rows does not also check them. deltalake
1.6 reads deletion vectors and column mapping through its query engine (its pyarrow readers refuse them). It does not read tables with
widened types; those need a Spark session.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from psycopg import sql

from incremental_assets.demo.canonical_text import fields, float_of, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = 5
"""How many differing rows of each side are returned as examples."""
DIGEST = 16
"""The length of a row's digest in bytes."""

# The text of values depends on these settings. They are those of the JDBC session, or the server's defaults.
SESSION = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, MDY'",
    "SET LOCAL IntervalStyle = 'postgres'",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL extra_float_digits = 1",
)

# Types whose own text output is not what the lake's value is compared with.
_SPECIAL = {
    "bool": sql.SQL("{}::text"),
    "float4": sql.SQL("encode(float4send({}), 'hex')"),
    "float8": sql.SQL("encode(float8send({}), 'hex')"),
}

Row = dict[str, str | None]
"""A row as text by column name, for examples; None is NULL."""


class CompareError(RuntimeError):
    """Lake and source cannot be compared. The message says what to do."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. A row that occurs several times is counted each time.

    ``columns_only_in_lake`` were dropped in the source, and are not compared. ``columns_missing_in_lake`` make the comparison unequal.
    ``delta_version`` is the version of the lake's table.
    """

    container: str
    in_both: int
    only_in_lake: int
    only_in_source: int
    examples_in_lake: list[Row] = field(default_factory=list)
    examples_in_source: list[Row] = field(default_factory=list)
    columns_only_in_lake: list[str] = field(default_factory=list)  # dropped in the source: not compared
    columns_missing_in_lake: list[str] = field(default_factory=list)
    delta_version: int = 0
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows, and the lake has all columns of the source."""
        return not (self.only_in_lake or self.only_in_source or self.columns_missing_in_lake)


def compare(
    url: str,
    table: str,
    lake: Path | str,
    *,
    schema: str = "public",
    where: str | None = None,
    exclude: Collection[str] = (),
    storage_options: dict[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Comparison:
    """Compare ``schema.table`` with the Delta table in ``lake``, each at one moment.

    ``where`` is an SQL condition on the source's rows, and ``exclude`` names columns that are not compared. ``spark`` is needed only for
    tables with widened types. Raises CompareError if there is no such table on one of the sides.
    """
    lake_rows = open_lake(lake, storage_options, spark)
    with psycopg.connect(url, application_name="incremental-assets compare") as connection:
        for statement in SESSION:
            connection.execute(statement.encode())
        return compare_rows(
            table,
            _source_columns(connection, schema, table),
            lambda columns: _Source(connection, schema, table, columns, where),
            lake_rows,
            exclude,
        )


class SourceRows(Protocol):
    """The rows of a source: each iteration gives the same ones, as lines in the format of ``canonical_text``.

    ``columns``: the names of their columns and the names of the types.
    """

    @property
    def columns(self) -> Sequence[tuple[str, str]]: ...

    def __iter__(self) -> Iterator[bytes]: ...


def compare_rows(
    container: str,
    in_source: Mapping[str, str],
    rows_of: Callable[[Sequence[tuple[str, str]]], SourceRows],
    lake_rows: LakeRows,
    exclude: Collection[str] = (),
) -> Comparison:
    """Compare the rows of a source with those of the lake.

    ``in_source``: the names of the types of the source's columns. ``rows_of`` gives the source's rows with some of these columns.
    """
    started, in_lake = time.monotonic(), lake_rows.columns
    names = [name for name in in_source if name in set(in_lake) and name not in exclude]
    source = rows_of([(name, in_source[name]) for name in names])
    lake_rows = replace(lake_rows, columns=names)
    both, surplus_in_lake, surplus_in_source, total_lake, total_source = _match(_digests(lake_rows), _digests(source))
    return Comparison(
        container=container,
        in_both=both,
        only_in_lake=total_lake - both,
        only_in_source=total_source - both,
        examples_in_lake=_examples(lake_rows, surplus_in_lake, source.columns),
        examples_in_source=_examples(source, surplus_in_source, source.columns),
        columns_only_in_lake=[name for name in in_lake if name not in in_source],
        columns_missing_in_lake=[name for name in in_source if name not in set(in_lake) and name not in exclude],
        delta_version=lake_rows.version,
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Source:
    """The rows of the source, in one snapshot: each iteration gives the same rows, as lines of COPY."""

    connection: psycopg.Connection
    schema: str
    table: str
    columns: Sequence[tuple[str, str]]
    where: str | None

    def __iter__(self) -> Iterator[bytes]:
        # COPY prints what the type's own output function prints. ``::text`` would not do: it cuts the padding of char(n).
        chosen = sql.SQL(", ").join(_SPECIAL.get(kind, sql.SQL("{}")).format(sql.Identifier(name)) for name, kind in self.columns)
        query = sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(
            chosen,
            sql.Identifier(self.schema, self.table),
            sql.SQL(f" WHERE {self.where}") if self.where else sql.SQL(""),  # pyright: ignore[reportArgumentType]
        )
        with self.connection.cursor() as cursor, cursor.copy(query) as copy:
            for line in copy:
                yield bytes(line)[:-1]


@dataclass(frozen=True)
class LakeRows:
    """The rows of one version of the lake's table, as lines in the same format."""

    table: DeltaTable | DataFrame
    version: int
    columns: Sequence[str]

    def __iter__(self) -> Iterator[bytes]:
        for batch in self._batches():
            yield from lines(batch, self.columns)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self.table, DeltaTable):
            chosen = ", ".join('"' + name.replace('"', '""') + '"' for name in self.columns) or "1"
            for batch in QueryBuilder().register("lake", self.table).execute(f"SELECT {chosen} FROM lake"):
                yield pa.record_batch(batch)
        else:
            yield from self.table.toArrow().to_batches()


def open_lake(lake: Path | str, storage_options: dict[str, str] | None = None, spark: SparkSession | None = None) -> LakeRows:
    """Open the table in the lake. Raises CompareError if there is none, or if only Spark can read it and no session is given."""
    path = str(lake)
    try:
        table = DeltaTable(path, storage_options=storage_options)
    except TableNotFoundError as error:
        raise CompareError(f"There is no Delta table in {path}. Sync the container first.") from error
    version = table.version()
    if "typeWidening" not in (table.protocol().reader_features or ()):
        return LakeRows(table, version, [column.name for column in table.schema().fields])
    if spark is None:
        raise CompareError(f"Types of the table in {path} were widened, which delta-rs does not read. Pass a session: compare(…, spark=…).")
    frame = spark.read.format("delta").option("versionAsOf", version).load(path)
    return LakeRows(frame, version, frame.columns)


def _source_columns(connection: psycopg.Connection, schema: str, table: str) -> dict[str, str]:
    """Return the columns of the source's table, in their order, with the names of their types."""
    found = connection.execute(
        "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        (schema, table),
    ).fetchall()
    if not found:
        raise CompareError(f"The source has no table or view {schema}.{table} with columns. Check the name and its case.")
    return dict(found)


def _digests(rows: SourceRows | LakeRows) -> np.ndarray:
    """Return a digest of each row. It takes 16 bytes a row in memory, however wide the table is."""
    collected = bytearray()
    for row in rows:
        collected += hashlib.md5(row, usedforsecurity=False).digest()
    return np.frombuffer(collected, dtype=f"S{DIGEST}")


def _match(lake: np.ndarray, source: np.ndarray) -> tuple[int, dict[bytes, int], dict[bytes, int], int, int]:
    """Count the rows that both sides have.

    The result is: the number of rows in both, for a few of the other rows of each side their digests and surplus, and the numbers of rows
    of lake and source.
    """
    in_lake, times_in_lake = np.unique(lake, return_counts=True)
    in_source, times_in_source = np.unique(source, return_counts=True)
    _, at_lake, at_source = np.intersect1d(in_lake, in_source, assume_unique=True, return_indices=True)
    shared = np.minimum(times_in_lake[at_lake], times_in_source[at_source])
    times_in_lake[at_lake] -= shared
    times_in_source[at_source] -= shared
    return (
        int(shared.sum()),
        _surplus(in_lake, times_in_lake),
        _surplus(in_source, times_in_source),
        len(lake),
        len(source),
    )


def _surplus(digests: np.ndarray, times: np.ndarray) -> dict[bytes, int]:
    """Return the digests of up to ``EXAMPLES`` different rows that the other side lacks, and how many of each are missing there."""
    some = np.flatnonzero(times)[:EXAMPLES]
    # numpy cuts zero bytes at the end of a value, and a digest may end with some.
    return {bytes(digests[at]).ljust(DIGEST, b"\0"): int(times[at]) for at in some}


def _examples(rows: SourceRows | LakeRows, surplus: dict[bytes, int], columns: Sequence[tuple[str, str]]) -> list[Row]:
    """Find the rows with these digests. It reads the same snapshot a second time, only if there is something to show."""
    found: list[Row] = []
    wanted = dict(surplus)
    if not wanted:
        return found
    for row in rows:
        digest = hashlib.md5(row, usedforsecurity=False).digest()
        if wanted.get(digest, 0) > 0:
            wanted[digest] -= 1
            values = zip(columns, fields(row), strict=True)
            found.append({name: float_of(value) if value and kind.startswith("float") else value for (name, kind), value in values})
            if len(found) == EXAMPLES or not any(wanted.values()):
                break
    return found
