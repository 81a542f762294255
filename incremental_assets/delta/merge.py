"""Writes a write batch by the strategy ``upsert``: one commit that inserts, updates and deletes rows by the primary key.

A key that the table has in the windows, and that the read did not return, is looked up in the same snapshot of the source. If the source
still has it, its identifier has moved out of the windows, and the row is merged as it is now. If not, the row is deleted.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from incremental_assets.core.deletes import MARK
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.nested_types import element_of
from incremental_assets.delta.guards import expect_unmoved, expr, metrics_of, newest, refuse_emptying
from incremental_assets.delta.local_rows import LocalComparison, bounds_of, key_texts, local_frame, sent_or_read
from incremental_assets.delta.sql import align, key_text, scope_predicate
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.touched_partitions import partitions_touched
from incremental_assets.delta.write_batch import By, Way, WriteBatch, WriteResult
from incremental_assets.spark.exceptions import spark_exception
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting of a Spark session that holds the commit metadata; MERGE has no writer option for it."""
KEYS_A_LOOKUP = 10_000
"""The number of primary keys that one query looks up in the source."""
_SOURCE = "__incremental_assets_source"
"""The temporary view that is the MERGE's source."""
GONE = "__incremental_assets_gone"
"""The column of the MERGE's source that is true for keys whose rows are to be deleted."""
_CHANGES = ("Inserted", "Updated", "Deleted")
"""The ends of the names of the MERGE's metrics."""


def merge(spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, here: LocalComparison | None) -> WriteResult:
    """Merges a write batch into the table in one commit. ``here``: the comparison with the lake, if this process has made it.

    Raises ConcurrentWriteError on a concurrent write, EmptyRefused if rows would be deleted without permission, and SourceError if the
    source's snapshot is no longer held.
    """
    container, identifier = write_batch.container, write_batch.identifier
    assert identifier is not None
    shape = [(c.name, c.type) for c in head.columns]

    def aligned(frame: "DataFrame") -> "DataFrame":
        return frame.selectExpr(*align(container, shape, frame.columns))

    predicate = scope_predicate(identifier, write_batch.windows, write_batch.include_nulls)
    rows, are_sent = sent_or_read(spark, write_batch.rows)
    # Rows that Spark reads are persisted because they are used several times below; each use would read them from the source again.
    held = [] if are_sent else [PersistedRows(spark, aligned(rows))]

    def read() -> "DataFrame":
        return held[0].frame if held else aligned(rows)

    try:
        if here is not None:
            compared = _compared_here(spark, write_batch, here, dict(shape))
        else:
            compared = _compared_by_spark(spark, table, write_batch, predicate, read(), shape)
        return _write(spark, table, head, write_batch, compared, read, predicate)
    finally:
        for rows_held in held:
            rows_held.release()


def merge_keys(
    spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, gone: pa.Table, there: Sequence[tuple[str, ...]]
) -> WriteResult:
    """Deletes the rows with the primary keys ``gone``, or marks them, and merges the rows with the keys ``there`` as the source has them.

    The batch has no rows to read. The keys ``there`` (texts, ``key_text``) may be among those that are gone, if the source takes another
    spelling for the same key. Raises as ``merge`` does.
    """
    nothing = spark.sql(f"SELECT * FROM {table.sql_name} WHERE false")
    missing = local_frame(spark, gone) if gone.num_rows else None
    return _write(spark, table, head, write_batch, _Compared(0, None, nothing, missing, list(there)), lambda: nothing, "false")


def _write(
    spark: "SparkSession",
    table: LakeTable,
    head: Head,
    write_batch: WriteBatch,
    compared: "_Compared",
    read: "Callable[[], DataFrame]",
    predicate: str,
) -> WriteResult:
    """Writes what a comparison has found in one commit. ``read``: the rows read; ``predicate``: selects those of the lake."""
    container = write_batch.container
    assert write_batch.by_key is not None
    names, shape = [c.name for c in head.columns], [(c.name, c.type) for c in head.columns]
    rows, gone, bounds = compared.rows, compared.missing, compared.bounds
    held: list[PersistedRows] = []

    def aligned(frame: "DataFrame") -> "DataFrame":
        return frame.selectExpr(*align(container, shape, frame.columns))

    try:
        source = compared.changed.selectExpr("*", f"false AS {GONE}")
        if compared.still_there:
            keys = list(container.lake_key)
            # The source may treat two spellings as one key (jsonb, some collations), while Spark and the lake compare the spellings. The
            # lookup of the lake's spelling then returns a row that the read has returned already under its new spelling. That row must
            # not be merged a second time, and the row with the old spelling must be deleted from the lake.
            chunks = [aligned(write_batch.by_key.by_key(spark, chunk)) for chunk in lookups(iter(compared.still_there))]
            came = read().selectExpr(*map(quote, keys))
            moved = functools.reduce(lambda a, b: a.unionByName(b), chunks).join(came, keys, "left_anti").dropDuplicates(keys)
            held.append(PersistedRows(spark, moved))
            moved = held[-1].frame
            rows += moved.count()
            source = source.unionByName(moved.selectExpr(*map(quote, names), f"false AS {GONE}"))
            gone = gone.join(moved.selectExpr(*map(quote, keys)), keys, "left_anti") if gone is not None else None
        marked = 0
        if gone is not None:
            refuse_emptying(spark, table, head, write_batch, predicate, gone)
            marked = gone.count() if write_batch.deleted_at is not None else 0
            source = source.unionByName(gone.selectExpr(*align(container, shape, container.lake_key), f"true AS {GONE}"))
        # With literal bounds a MERGE can skip files by their statistics. Keys to be deleted may lie outside the bounds of the rows read.
        bounds = bounds if gone is None else None
        statement = merge_statement(table, container.lake_key, names, source, bounds, write_batch.deleted_at)
        values = None
        if container.partitioned_on is not None:  # else the windows of the batch tell it
            old, new = spark.sql(f"SELECT * FROM {table.sql_name}"), source.where(f"NOT {GONE}")
            values = partitions_touched(container, source.selectExpr(*map(quote, container.lake_key)), old, new)
        write_batch.rows.still_there()
        expect_unmoved(container.label, table, head)
        run_merge(spark, statement, write_batch.commit_metadata)
    finally:
        for rows_held in held:
            rows_held.release()
    version, (inserted, updated, deleted) = merged_since(table, head)
    counts = rows, inserted, updated - marked, deleted + marked
    return WriteResult(*counts, version, version, Way.MERGE, By.SPARK, axis_values=values)


def merge_statement(
    table: LakeTable,
    keys: Sequence[str],
    columns: Sequence[str],
    source: "DataFrame",
    bounds: tuple[str, str] | None,
    deleted_at: int | None = None,
) -> str:
    """The MERGE of the source's rows into the table. ``bounds``: between which the first key column of all these rows lies.

    ``deleted_at``: see ``WriteBatch``.
    """
    source.createOrReplaceTempView(_SOURCE)
    on = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in keys)
    if bounds is not None:
        on += f" AND t.{quote(keys[0])} BETWEEN {bounds[0]} AND {bounds[1]}"
    sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in columns)
    values = ", ".join(f"s.{quote(name)}" for name in columns)
    removed = "DELETE" if deleted_at is None else f"UPDATE SET t.{quote(MARK.name)} = timestamp_micros({int(deleted_at)})"
    return (
        f"MERGE INTO {table.sql_name} t USING {_SOURCE} s ON {on} "
        f"WHEN MATCHED AND s.{GONE} THEN {removed} WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{GONE} THEN INSERT ({', '.join(map(quote, columns))}) VALUES ({values})"
    )


def run_merge(spark: "SparkSession", statement: str, commit_metadata: Mapping[str, Any]) -> None:
    # This is a setting of the whole session, so each run must have a session of its own: two containers in one session have once
    # swapped their commit metadata.
    spark.conf.set(USER_METADATA, json.dumps(commit_metadata))
    try:
        spark.sql(statement)
    finally:
        with contextlib.suppress(spark_exception()):  # if the server is gone, the session and its settings are gone, too
            spark.conf.unset(USER_METADATA)


def merged_since(table: LakeTable, head: Head) -> tuple[int, tuple[int, int, int]]:
    """The newest version, and how many rows the MERGE that has made it has inserted, updated and deleted since the version ``head``."""
    version = newest(table).version
    metrics = metrics_of(table, version) if version > head.version else {}  # no new version: nothing has changed
    inserted, updated, deleted = (metrics.get(f"numTargetRows{name}", 0) for name in _CHANGES)
    return version, (inserted, updated, deleted)


@dataclass(frozen=True)
class _Compared:
    """The rows read, compared with those of the lake in the same windows.

    ``rows``: how many were read. ``bounds``: see ``key_bounds``. ``changed``: the rows for which the lake has no equal row.
    ``missing``: the keys that the lake has in the windows and the read did not return; None if there are none. ``still_there``: those
    of them that the source still has, as texts (``key_text``).
    """

    rows: int
    bounds: tuple[str, str] | None
    changed: "DataFrame"
    missing: "DataFrame | None"
    still_there: list[tuple[str, ...]]


def _compared_here(spark: "SparkSession", write_batch: WriteBatch, here: LocalComparison, types: Mapping[str, str]) -> _Compared:
    found, first = here.differences, write_batch.container.lake_key[0]
    bounds = key_bounds(bounds_of(here.new.column(first)), types[first])
    missing = local_frame(spark, found.missing) if found.missing.num_rows else None
    there, _ = still_there(write_batch, key_texts(found.missing))
    return _Compared(here.new.num_rows, bounds, local_frame(spark, found.changed), missing, there)


def _compared_by_spark(
    spark: "SparkSession", table: LakeTable, write_batch: WriteBatch, predicate: str, read: "DataFrame", shape: list[tuple[str, str]]
) -> _Compared:
    keys = write_batch.container.lake_key
    rows, bounds = _extent(read, keys[0], dict(shape)[keys[0]])
    missing, there = missing_keys(spark, table, write_batch, predicate, read, dict(shape))
    return _Compared(rows, bounds, _without_equals(spark, table, predicate, read, shape), missing, there)


def _without_equals(
    spark: "SparkSession", table: LakeTable, predicate: str, read: "DataFrame", shape: list[tuple[str, str]]
) -> "DataFrame":
    """The rows read for which the lake has no row with exactly the same values.

    Only the rows of the lake within ``predicate`` are compared: an equal row has the same identifier, so it lies in the same windows.
    The comparison is not a condition of the MERGE, because that would carry all columns of the table through the joins of the MERGE, which
    took half of its time.
    """
    in_lake = spark.sql(f"SELECT * FROM {table.sql_name} WHERE {predicate}")
    same = " AND ".join(_same(quote(name), type_) for name, type_ in shape)
    return read.alias("s").join(in_lake.alias("t"), expr(same), "left_anti")


def _same(quoted: str, type_: str) -> str:
    """A condition that is true if source and table have exactly the same value in a column.

    Spark's comparison takes 0.0 and -0.0 for equal, but PostgreSQL keeps them apart. Floats that are zero, and arrays of floats, are
    therefore compared as text.
    """
    equal = f"t.{quoted} <=> s.{quoted}"
    if element_of(type_) in ("float", "double"):
        return f"({equal} AND cast(t.{quoted} AS string) <=> cast(s.{quoted} AS string))"
    if type_ not in ("float", "double"):
        return equal
    return f"({equal} AND (t.{quoted} IS NULL OR t.{quoted} <> 0 OR cast(t.{quoted} AS string) = cast(s.{quoted} AS string)))"


def _extent(read: "DataFrame", key: str, type_: str) -> tuple[int, tuple[str, str] | None]:
    """The number of rows read, and the bounds of the key's first column, which is of this type.

    The bounds are those of ``key_bounds``.
    """
    as_text, first = key_text("{}", type_), quote(key)
    rows, *ends = read.selectExpr("count(*)", as_text.format(f"min({first})"), as_text.format(f"max({first})")).collect()[0]
    return int(rows), key_bounds(ends, type_)


def key_bounds(ends: Sequence[str | None], type_: str) -> tuple[str, str] | None:
    """The lowest and the highest value of a column of this type, given as texts (``key_text``), as literals of Spark SQL.

    None without rows, or if a value of this type cannot be written exactly as a literal.
    """
    literal = _LITERALS.get(type_) or ("{}BD" if type_.startswith("decimal") else None)
    shown = [end for end in ends if end is not None and len(end) <= 200 and end.isprintable()]
    if literal is None or len(shown) < 2:
        return None
    low, high = (text(end) if type_ == "string" else literal.format(end) for end in shown)
    return low, high


_LITERALS = {
    "date": "date_from_unix_date({})",
    "timestamp": "timestamp_micros({})",
    **dict.fromkeys(("string", "smallint", "int", "bigint"), "{}"),
}
"""Expressions of Spark SQL that turn a key's text (``key_text``) back into the same value, for the types whose text is exact."""


def missing_keys(
    spark: "SparkSession", table: LakeTable, write_batch: WriteBatch, predicate: str, read: "DataFrame", types: dict[str, str]
) -> "tuple[DataFrame | None, list[tuple[str, ...]]]":
    """The keys that the lake has in the windows and the read did not return.

    The first result has all of them as a DataFrame, or is None if there are none. The second result lists those that the source still has,
    as texts (``key_text``).
    """
    names = write_batch.container.lake_key
    picked = [f"{quote(name)} AS k{i}" for i, name in enumerate(names)]
    keys = [f"k{i}" for i in range(len(names))]
    there = predicate if write_batch.deleted_at is None else f"({predicate}) AND {quote(MARK.name)} IS NULL"
    in_lake = spark.sql(f"SELECT {', '.join(picked)} FROM {table.sql_name} WHERE {there}")
    missing = in_lake.join(read.selectExpr(*picked), keys, "left_anti")
    texts = [key_text(key, types[name]) for key, name in zip(keys, names, strict=True)]
    found, any_missing = still_there(write_batch, (tuple(row) for row in missing.selectExpr(*texts).toLocalIterator()))
    return missing.selectExpr(*(f"k{i} AS {quote(name)}" for i, name in enumerate(names))) if any_missing else None, found


def still_there(write_batch: WriteBatch, missing: Iterator[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], bool]:
    """Those of the keys that the source still has, and whether there were any keys."""
    assert write_batch.by_key is not None
    found: list[tuple[str, ...]] = []
    any_missing = False
    for chunk in lookups(missing):
        any_missing = True
        found += [chunk[position] for position in write_batch.by_key.existing(chunk)]
    return found, any_missing


def lookups(rows: Iterator[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """The keys, as many at a time as one query looks up."""
    while chunk := list(itertools.islice(rows, KEYS_A_LOOKUP)):
        yield chunk
