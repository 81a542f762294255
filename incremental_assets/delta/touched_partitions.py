"""Asks Spark in which partitions rows lie."""

from typing import TYPE_CHECKING

from incremental_assets.core.container import Container
from incremental_assets.delta.sql import partition_start

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame


def partitions_touched(container: Container, keys: "DataFrame", rows: "DataFrame", *more: "DataFrame") -> frozenset[int] | None:
    """A value in each partition that has some of the ``rows`` with these keys, or rows of the frames ``more``.

    Values are integers of the cursor type of the container's axis. Rows with NULL there have none. None: the container has no partitions.
    """
    axis, partitioning = container.axis, container.partitioning
    if axis is None or partitioning is None:
        return None
    start = f"{partition_start(axis, partitioning)} AS start"
    found = rows.join(keys, list(container.lake_key), "left_semi").selectExpr(start)
    for frame in more:
        found = found.unionAll(frame.selectExpr(start))
    return frozenset(int(row["start"]) for row in found.distinct().collect() if row["start"] is not None)
