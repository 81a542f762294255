"""Counts the rows of a table and of its partitions, for Dagster's metadata.

This process answers in milliseconds where Spark takes a second or two, but it is one process. It therefore counts tables of up to
``MOST_ROWS`` rows (``local_query``), and only if the table has no feature that might be read differently from Spark.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from incremental_assets.core.container import Container
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import type_text
from incremental_assets.core.window import Window, merge, without
from incremental_assets.delta.commit_files import RemovedFile
from incremental_assets.delta.local_files import Extent, LocalFiles, live_rows
from incremental_assets.delta.local_query import described_here, is_expressible, readable_here, step_of
from incremental_assets.delta.local_rows import arrow_schema
from incremental_assets.delta.replaced_rows import RowsOfWindows, largest
from incremental_assets.delta.sql import partition_start, scope_predicate
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.table import LakeTable, query

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger(__name__)

_Counted = Iterable[tuple[int, int, int]]
"""For each group of rows: a value that lies in the group's partition, the number of rows, and how many of them lie in the written
windows."""


def row_count(spark: Callable[[], "SparkSession"], table: LakeTable, version: int | None = None) -> int:
    """The number of rows of the table. ``spark`` returns a session and is called only if Spark has to count.

    ``version``: the newest one that this process has seen; None: the newest one is looked for.
    """
    delta = described_here(table, version)
    if delta is not None:
        try:
            counted = _counted_in_the_log(delta)
            if counted is not None:
                return counted
            readable = readable_here(table, version)
            if readable is not None:
                return int(query(readable, 'SELECT count(*) AS n FROM "rows"').column("n")[0].as_py())
        except DeltaError as error:
            log.debug("%s: Spark counts its rows: %s", table.url, error)
    return int(spark().sql(f"SELECT count(*) FROM {table.sql_name}").collect()[0][0])


def _counted_in_the_log(delta: DeltaTable) -> int | None:
    """The number of rows by the statistics of the files and their deletion vectors, without reading a file; None if one has none."""
    counts = pa.table(delta.get_add_actions(flatten=True)).column("num_records")
    if counts.null_count:
        return None
    deleted = sum(len(alive) - alive.true_count for _, alive in live_rows(delta))
    return int(pc.sum(counts).as_py() or 0) - deleted  # pyright: ignore[reportAttributeAccessIssue]


def partition_rows(
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    container: Container,
    partitions: Partitions,
    written: Sequence[Window],
    keys: Sequence[str],
    version: int | None = None,
) -> dict[str, int]:
    """The number of rows of each partition in ``keys``, and of each other partition that has rows in the ``written`` windows.

    ``spark`` and ``version`` are used as in ``row_count``.
    """
    if isinstance(partitions, IntegerPartitions):
        partitions = partitions.with_keys(keys)
    counted = merge([*written, *partitions.windows_of(keys)])
    rows, landed = _by_key(spark, table, version, container, partitions, counted, written)
    outside = sorted(landed - set(keys))
    # Of partitions that the run was not about, only the rows in the written windows have been counted. Where these are a part of a
    # partition, the partition is counted whole now, which is rare.
    if isinstance(partitions, IntegerPartitions):
        partitions = partitions.with_keys(outside)
    partly = [key for key in outside if without(partitions.windows_of([key]), counted)]
    if partly:
        more, _ = _by_key(spark, table, version, container, partitions, partitions.windows_of(partly), ())
        rows.update({key: more.get(key, 0) for key in partly})
    return {key: rows.get(key, 0) for key in [*keys, *outside]}


def _by_key(
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    version: int | None,
    container: Container,
    partitions: Partitions,
    counted: Sequence[Window],
    written: Sequence[Window],
) -> tuple[dict[str, int], set[str]]:
    groups: _Counted | None = None
    delta = described_here(table, version)
    if delta is not None:
        try:
            groups = _groups_here(table, delta, container, counted, written)
        except (DeltaError, pa.ArrowException, OSError, BaseError) as error:
            log.debug("%s: Spark counts the rows of its partitions: %s", table.url, error)
    if groups is None:
        groups = _groups_by_spark(spark(), table, container, counted, written)
    rows: dict[str, int] = {}
    landed: set[str] = set()
    for start, count, here in groups:
        key = partitions.key_of(start)
        rows[key] = rows.get(key, 0) + count
        if here:
            landed.add(key)
    return rows, landed


def _groups_by_spark(
    spark: "SparkSession", table: LakeTable, container: Container, counted: Sequence[Window], written: Sequence[Window]
) -> _Counted:
    identifier, partitioning = container.axis, container.partitioning
    assert identifier is not None and partitioning is not None
    landed_here = f"count_if({scope_predicate(identifier, written, False)})" if written else "0"
    statement = (
        f"SELECT {partition_start(identifier, partitioning)} AS start, count(*) AS rows, {landed_here} AS landed "
        f"FROM {table.sql_name} WHERE {scope_predicate(identifier, counted, False)} GROUP BY 1"
    )
    return [(int(start), int(count), int(here)) for start, count, here in spark.sql(statement).collect() if start is not None]


def _groups_here(
    table: LakeTable, delta: DeltaTable, container: Container, counted: Sequence[Window], written: Sequence[Window]
) -> _Counted | None:
    """The groups as counted in this process; None if it cannot compare the identifier with the bounds, or does not read one of the files.

    A file is not read if its statistics say that all of its rows are in one group.
    """
    identifier, partitioning = container.axis, container.partitioning
    assert identifier is not None and partitioning is not None
    there = LocalFiles.of(delta, folder_at(table.address)) if is_expressible(delta, identifier, (*counted, *written)) else None
    schema = arrow_schema([Column(name, type_) for name, type_ in _types(delta).items() if name in identifier.columns])
    if there is None or schema is None:
        return None
    # Weeks and months are not known here. Rows are grouped by hour or day, and the caller adds these few groups up by partition.
    step = step_of(identifier, partitioning)
    if step >= 2**63:
        return None
    groups, to_read = list[tuple[int, int, int]](), list[RemovedFile]()
    for file in there.that_may_have(RowsOfWindows(identifier, counted, False)):
        known = there.extent(file, identifier.columns[0]) if len(identifier.columns) == 1 else None
        group = None if known is None else _group_of(known, step, counted, written)
        if group is None:
            to_read.append(file)
        else:
            groups.append(group)
    read = there.values(to_read, pa.schema([schema.field(name) for name in identifier.columns]))
    inside, landed = (RowsOfWindows(identifier, windows, False) for windows in (counted, written))
    for rows in read:
        rows = rows.filter(inside.among(rows))
        value = largest(rows).combine_chunks()
        starts = np.floor_divide(value.to_numpy(zero_copy_only=False), step) * step
        grouped = pa.table({"start": starts, "here": landed.among(rows).cast(pa.int64())}).group_by("start")
        found = grouped.aggregate([("here", "count"), ("here", "sum")]).select(["start", "here_count", "here_sum"])
        groups += zip(*(column.to_pylist() for column in found.columns), strict=True)
    return groups


def _group_of(known: Extent, step: int, counted: Sequence[Window], written: Sequence[Window]) -> tuple[int, int, int] | None:
    """The group that has all rows of a file; None if that is not known."""
    low, high = known.lowest, known.highest
    start = low // step * step
    is_one = not known.nulls and start == high // step * step and any(_has(window, low, high) for window in counted)
    is_landed = any(_has(window, low, high) for window in written)
    is_apart = not any(_meets(window, low, high) for window in written)
    return (start, known.rows, known.rows if is_landed else 0) if is_one and (is_landed or is_apart) else None


def _has(window: Window, low: int, high: int) -> bool:
    return (window.lower is None or window.lower <= low) and (window.upper is None or high < window.upper)


def _meets(window: Window, low: int, high: int) -> bool:
    return (window.lower is None or window.lower <= high) and (window.upper is None or low < window.upper)


def _types(delta: DeltaTable) -> dict[str, str]:
    return {field["name"]: type_text(field["type"]) for field in json.loads(delta.schema().to_json())["fields"]}
