"""Writes rows by their keys, in one commit: those with the same keys leave the table, wherever they are, and the given ones come."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.guards import already_there, expect_unmoved
from incremental_assets.delta.local_rows import has_unique_keys, local_frame
from incremental_assets.delta.local_write import write_by_key
from incremental_assets.delta.merge import GONE, merge_statement, merged_since, run_merge
from incremental_assets.delta.replaced_rows import RowsOfKeys, axis_values
from incremental_assets.delta.sql import align
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.touched_partitions import partitions_touched
from incremental_assets.delta.write_batch import By, NotHere, Way, WithKeys, WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def write_changed_here(table: LakeTable, head: Head, write_batch: WriteBatch, changed: WithKeys) -> WriteResult:
    """Writes the changed rows of a batch in this process.

    Raises NotHere if Spark has to write them, ConcurrentWriteError if the table is no longer at the version ``head``, and SourceError if
    the source's snapshot is not held.
    """
    if not changed.keys.num_rows:
        return already_there(table, head, write_batch, 0)
    key = changed.keys.column_names
    if not has_unique_keys(changed.keys, key):
        raise NotHere("a key is NULL, or came twice")
    axis = write_batch.container.axis
    old, place = write_by_key(table, head, write_batch, changed.rows, _ReplacedKeys(changed.keys, axis.columns if axis else ()))
    if not old.num_rows and not changed.rows.num_rows:
        return already_there(table, head, write_batch, 0)
    kept = _in_both(old.select(key), changed.rows.select(key))
    values = axis_values(axis, write_batch.container.partitioning, [old, changed.rows])
    counts = changed.rows.num_rows - kept, kept, old.num_rows - kept
    return WriteResult(
        changed.rows.num_rows, *counts, head.version + 1, head.version + 1, place.way, axis_values=values, message=place.message
    )


class _ReplacedKeys(RowsOfKeys):
    """The rows with these keys. ``also``: further columns of theirs that are asked for."""

    def __init__(self, keys: pa.Table, also: Sequence[str]) -> None:
        super().__init__(keys)
        self._of_key = self.columns
        self.columns = tuple(dict.fromkeys((*self._of_key, *also)))

    def among(self, rows: pa.Table) -> pa.Array:
        return super().among(rows.select(list(self._of_key)))


def _in_both(one: pa.Table, other: pa.Table) -> int:
    """How many keys of the one table are in the other, too. Neither has a key twice."""
    names = [f"c{i}" for i in range(one.num_columns)]
    both = pa.concat_tables([one.rename_columns(names), other.rename_columns(names)])
    return both.num_rows - both.group_by(names).aggregate([]).num_rows


def merge_changed(spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, changed: WithKeys) -> WriteResult:
    """Writes the changed rows of a batch by Spark, which also commits them. Raises as ``write_changed_here`` does, but for NotHere."""
    container = write_batch.container
    names, shape, key = [c.name for c in head.columns], [(c.name, c.type) for c in head.columns], list(container.lake_key)
    come = local_frame(spark, changed.rows).selectExpr(*align(container, shape, changed.rows.column_names))
    keys = local_frame(spark, changed.keys)
    gone = keys.join(come.selectExpr(*map(quote, key)), key, "left_anti").dropDuplicates(key)
    source = come.selectExpr(*map(quote, names), f"false AS {GONE}").unionByName(
        gone.selectExpr(*align(container, shape, key), f"true AS {GONE}")
    )
    values = partitions_touched(container, keys, spark.sql(f"SELECT * FROM {table.sql_name}"), come)
    write_batch.rows.still_there()
    expect_unmoved(container.label, table, head)
    run_merge(spark, merge_statement(table, key, names, source, None), write_batch.commit_metadata)
    version, counts = merged_since(table, head)
    return WriteResult(changed.rows.num_rows, *counts, version, version, Way.MERGE, By.SPARK, axis_values=values)
