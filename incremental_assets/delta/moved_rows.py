"""Follows the rows of an append that have left its windows: rows of the lake that the read did not return, and that the
source still has.
"""

import functools
from typing import TYPE_CHECKING

from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.local_rows import LocalComparison, key_texts
from incremental_assets.delta.merge import GONE, lookups, missing_keys, run_merge, still_there
from incremental_assets.delta.sql import align, scope_predicate
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.touched_partitions import partitions_touched
from incremental_assets.delta.write_batch import WriteBatch

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

_SOURCE = "__incremental_assets_moved"
"""The temporary view that is the source of ``replace_and_move``."""


def is_followed(write_batch: WriteBatch) -> bool:
    """Whether rows that have left the windows are looked up by their primary key."""
    container = write_batch.container
    has_key = bool(container.primary_key) and write_batch.by_key is not None and write_batch.identifier is not None
    return has_key and container.strategy is Strategy.APPEND and write_batch.files is None


def have_moved(write_batch: WriteBatch, compared: LocalComparison) -> bool:
    """Whether the source has rows elsewhere that it no longer has in the windows."""
    missing = compared.differences.missing.drop_null()
    return bool(missing.num_rows) and bool(still_there(write_batch, key_texts(missing))[0])


def left_rows(
    spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, predicate: str, read: "DataFrame"
) -> "tuple[DataFrame | None, DataFrame | None]":
    """The rows of the lake that have left the windows: the keys of all of them, and those that the source still has, as they are now.

    ``predicate``: selects the rows of the lake; ``read``: those of the source. The results are None if there are no such rows.
    """
    container, identifier = write_batch.container, write_batch.identifier
    assert identifier is not None and write_batch.by_key is not None
    shape = [(c.name, c.type) for c in head.columns]
    gone, there = missing_keys(spark, table, write_batch, predicate, read, dict(shape))
    if not there:
        return gone, None
    found: list[DataFrame] = []
    for some in lookups(iter(dict.fromkeys(there))):
        rows = write_batch.by_key.by_key(spark, some)
        found.append(rows.selectExpr(*align(container, shape, rows.columns)))
    # The source may take two spellings for one key. It then finds a row by the lake's which the read has under another one.
    inside = scope_predicate(identifier, write_batch.windows, write_batch.include_nulls)
    moved = functools.reduce(lambda one, other: one.unionByName(other), found).where(f"NOT coalesce({inside}, false)")
    return gone, moved.dropDuplicates(list(container.lake_key))


def replaced_rows(spark: "SparkSession", table: LakeTable, predicate: str, keys: "DataFrame | None") -> "DataFrame":
    """The rows of the lake that a write replaces: those that ``predicate`` selects, and those with these keys."""
    rows = spark.sql(f"SELECT * FROM {table.sql_name} WHERE {predicate}")
    if keys is None:
        return rows
    others = spark.sql(f"SELECT * FROM {table.sql_name} WHERE NOT coalesce({predicate}, false)")
    return rows.unionByName(others.join(keys, keys.columns, "left_semi"))


def replace_and_move(
    spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, predicate: str, rows: "DataFrame", keys: "DataFrame"
) -> frozenset[int] | None:
    """Writes ``rows`` in the place of the rows that ``predicate`` selects and of those with these keys, in one commit.

    Returns a value of each partition in which the latter are, and were (``WriteResult.axis_values``).
    """
    container, names = write_batch.container, [c.name for c in head.columns]
    in_lake = spark.sql(f"SELECT * FROM {table.sql_name}")
    values = partitions_touched(container, keys, in_lake.unionByName(rows))
    to_delete = keys.selectExpr(*align(container, [(c.name, c.type) for c in head.columns], keys.columns), f"true AS {GONE}")
    rows.selectExpr(*map(quote, names), f"false AS {GONE}").unionByName(to_delete).createOrReplaceTempView(_SOURCE)
    # A row of the source is either inserted, and meets none of the lake, or it deletes those with its key, however many these are.
    same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in keys.columns)
    statement = (
        f"MERGE INTO {table.sql_name} t USING {_SOURCE} s ON s.{GONE} AND {same} WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND NOT s.{GONE} THEN INSERT ({', '.join(map(quote, names))}) "
        f"VALUES ({', '.join(f's.{quote(name)}' for name in names)}) WHEN NOT MATCHED BY SOURCE AND ({predicate}) THEN DELETE"
    )
    run_merge(spark, statement, write_batch.commit_metadata)
    return values
