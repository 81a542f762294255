"""How many rows each partition of a table has, for metadata.

Belongs here: the one GROUP BY behind ``dagster/partition_row_count``. Does not belong: which partitions a run is about.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from incremental_assets.lake.sql import partition_start, scope_predicate
from incremental_assets.lake.table import LakeTable
from incremental_assets.model.container import Container
from incremental_assets.model.partitions import IntegerPartitions, Partitions
from incremental_assets.model.window import Window, merge

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def row_count(spark: "SparkSession", table: LakeTable) -> int:
    """All rows of the table."""
    return int(spark.sql(f"SELECT count(*) FROM {table.sql_name}").collect()[0][0])


def partition_rows(
    spark: "SparkSession", table: LakeTable, container: Container, partitions: Partitions, written: Sequence[Window], keys: Sequence[str]
) -> dict[str, int]:
    """Rows of each of ``keys`` and of each partition that has rows in the ``written`` windows."""
    if isinstance(partitions, IntegerPartitions):
        partitions = partitions.with_keys(keys)
    counted = merge([*written, *partitions.windows_of(keys)])
    rows, landed = _grouped(spark, table, container, partitions, counted, written)
    outside = sorted(landed - set(keys))
    if outside:  # rare: rows that landed elsewhere than the run was about; their partitions are counted whole
        if isinstance(partitions, IntegerPartitions):
            partitions = partitions.with_keys(outside)
        more, _ = _grouped(spark, table, container, partitions, partitions.windows_of(outside), ())
        rows.update({key: more.get(key, 0) for key in outside})
    return {key: rows.get(key, 0) for key in [*keys, *outside]}


def _grouped(
    spark: "SparkSession",
    table: LakeTable,
    container: Container,
    partitions: Partitions,
    counted: Sequence[Window],
    written: Sequence[Window],
) -> tuple[dict[str, int], set[str]]:
    identifier, cut = container.identifier, container.cut
    assert identifier is not None and cut is not None
    landed_here = f"count_if({scope_predicate(identifier, written, False)})" if written else "0"
    query = (
        f"SELECT {partition_start(identifier, cut)} AS start, count(*) AS rows, {landed_here} AS landed "
        f"FROM {table.sql_name} WHERE {scope_predicate(identifier, counted, False)} GROUP BY 1"
    )
    rows: dict[str, int] = {}
    landed: set[str] = set()
    for start, count, here in spark.sql(query).collect():
        if start is None:
            continue
        key = partitions.key_of(int(start))
        rows[key] = rows.get(key, 0) + int(count)
        if here:
            landed.add(key)
    return rows, landed
