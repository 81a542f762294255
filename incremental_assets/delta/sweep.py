"""Removes the rows with given primary keys from a table in one commit, in this process or by Spark, and then writes the sync state."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.choose import first_that_can
from incremental_assets.delta.commit_files import checkpoint_if_due
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.guards import moved, newest
from incremental_assets.delta.local_rows import local_frame
from incremental_assets.delta.local_write import delete_here
from incremental_assets.delta.merge import merge_keys
from incremental_assets.delta.properties import set_property
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable
from incremental_assets.delta.touched_partitions import partitions_touched
from incremental_assets.delta.write_batch import By, NotHere, Way, WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def remove_keys(
    session: Callable[[], "SparkSession"],
    table: LakeTable,
    write_batch: WriteBatch,
    gone: pa.Table,
    there: Sequence[tuple[str, ...]],
) -> WriteResult:
    """Deletes or marks the rows with the keys ``gone``, merges those with the keys ``there`` as the source has them, and sets the state.

    See ``merge.merge_keys`` for the keys. The batch has no rows to read; its ``base_version`` is the version with which the source was
    compared. Raises as ``write.commit`` does.
    """
    container = write_batch.container
    spark = functools.cache(session)
    head = newest(table)
    if head.version != write_batch.base_version:
        raise moved(container.label, table, "no deleted row was looked for")
    with lake_errors(container.label, table.url):
        result = WriteResult(0, 0, 0, 0, head.version, head.version, Way.ALREADY_THERE)
        if gone.num_rows or there:

            def here(batch: WriteBatch) -> WriteResult:
                if there:
                    raise NotHere("keys are spelled otherwise in the source")
                return delete_here(table, head, batch, gone)

            def by_spark(batch: WriteBatch) -> WriteResult:
                return merge_keys(spark(), table, head, batch, gone, there)

            result = first_that_can(container.label, (here, by_spark), write_batch)
            newer = table.data_commits_since(head.version)
            if any(c.commit_metadata != write_batch.commit_metadata for c in newer):
                set_property(spark, table, STATE_PROPERTY, head.properties.get(STATE_PROPERTY, ""))
                raise moved(container.label, table, "the watermark stays")
            own = next((c for c in newer if c.version == result.data_version), None)
            result = replace(result, data_commit=None if own is None else own.id)
            state = result.named_in(write_batch.state)
        else:
            state = write_batch.state
        text = state.to_json(container.cursor_type, container.partitioned_on)
        set_property(spark, table, STATE_PROPERTY, text, None if result.by is By.SPARK else result.data_version)
        now = table.follow()
        checkpoint_if_due(table, now, head)
    return replace(result, data_version=state.data_version, data_commit=state.data_commit, version=now.version())


def marked_keys(spark: "SparkSession", table: LakeTable, version: int, keys: pa.Table, marks: str) -> pa.Table:
    """Those of the keys that rows have which are marked as deleted, in the column ``marks``."""
    names = keys.column_names
    numbered = keys.append_column("_position", pa.array(range(keys.num_rows), pa.int64()))
    rows = spark.sql(f"SELECT * FROM {table.sql_name} VERSION AS OF {int(version)} WHERE {quote(marks)} IS NOT NULL")
    found = local_frame(spark, numbered).join(rows.selectExpr(*map(quote, names)), names, "left_semi").selectExpr("_position").collect()
    return keys.take(pa.array(sorted(int(row[0]) for row in found), pa.int64()))


def values_of(spark: "SparkSession", table: LakeTable, version: int, write_batch: WriteBatch, keys: pa.Table) -> frozenset[int]:
    """A value of each partition that has rows with these keys, as an integer of the cursor type."""
    if not keys.num_rows:
        return frozenset()
    rows = spark.sql(f"SELECT * FROM {table.sql_name} VERSION AS OF {int(version)}")
    return partitions_touched(write_batch.container, local_frame(spark, keys), rows) or frozenset()
