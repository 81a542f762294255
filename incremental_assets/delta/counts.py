"""Counts the rows of a table and of its partitions, for Dagster's metadata.

Belongs here: the one GROUP BY behind ``dagster/partition_row_count``, as a query of delta-rs or of Spark. Does not belong: the choice of
the partitions, and predicates in Spark's dialect (``sql``).

delta-rs answers in milliseconds where Spark takes a second or two, but it works in this one process. It is therefore used for tables of up
to ``MOST_ROWS`` rows (``local_query``), and only if the table has no feature that delta-rs might read differently from Spark.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from incremental_assets.core.container import Container
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.window import Window, merge
from incremental_assets.delta.local_query import identifier_value, is_expressible, readable_here, step_of, window_condition
from incremental_assets.delta.sql import partition_start, scope_predicate
from incremental_assets.delta.table import LakeTable, query

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger(__name__)

_Counted = Iterable[tuple[int, int, int]]
"""For each group of rows: a value that lies in the group's partition, the number of rows, and how many of them lie in the written
windows."""


def row_count(spark: Callable[[], "SparkSession"], table: LakeTable) -> int:
    """The number of rows of the table. ``spark`` returns a session and is called only if Spark has to count."""
    delta = readable_here(table)
    if delta is not None:
        try:
            return int(query(delta, 'SELECT count(*) AS n FROM "rows"').column("n")[0].as_py())
        except DeltaError as error:
            log.debug("%s: Spark counts its rows: %s", table.url, error)
    return int(spark().sql(f"SELECT count(*) FROM {table.sql_name}").collect()[0][0])


def partition_rows(
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    container: Container,
    partitions: Partitions,
    written: Sequence[Window],
    keys: Sequence[str],
) -> dict[str, int]:
    """The number of rows of each partition in ``keys``, and of each other partition that has rows in the ``written`` windows.

    ``spark`` is used as in ``row_count``.
    """
    if isinstance(partitions, IntegerPartitions):
        partitions = partitions.with_keys(keys)
    counted = merge([*written, *partitions.windows_of(keys)])
    rows, landed = _by_key(spark, table, container, partitions, counted, written)
    outside = sorted(landed - set(keys))
    # It is rare that rows were written to partitions that the run was not about. So far only the rows of these partitions that lie in the
    # written windows have been counted; the partitions are counted whole now.
    if outside:
        if isinstance(partitions, IntegerPartitions):
            partitions = partitions.with_keys(outside)
        more, _ = _by_key(spark, table, container, partitions, partitions.windows_of(outside), ())
        rows.update({key: more.get(key, 0) for key in outside})
    return {key: rows.get(key, 0) for key in [*keys, *outside]}


def _by_key(
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    container: Container,
    partitions: Partitions,
    counted: Sequence[Window],
    written: Sequence[Window],
) -> tuple[dict[str, int], set[str]]:
    groups: _Counted | None = None
    delta = readable_here(table)
    if delta is not None:
        try:
            groups = _groups_by_delta_rs(delta, container, counted, written)
        except DeltaError as error:
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


def _groups_by_delta_rs(delta: DeltaTable, container: Container, counted: Sequence[Window], written: Sequence[Window]) -> _Counted | None:
    """The groups as counted by delta-rs; None if its query engine would round values of the identifier or cannot express a bound."""
    identifier, partitioning = container.axis, container.partitioning
    assert identifier is not None and partitioning is not None
    if not is_expressible(delta, identifier, (*counted, *written)):
        return None
    value = f"arrow_cast({identifier_value(identifier)}, 'Int64')"
    # The query engine is not asked for weeks and months. It groups by hour or day, and the caller adds these few groups up by partition.
    step = step_of(identifier, partitioning)
    # The remainder of a negative value is negative in SQL, so it is shifted to get the start at or below the value.
    start = f"{value} - (({value} % {step}) + {step}) % {step}" if step > 1 else value
    landed_here = f"sum(CASE WHEN {window_condition(identifier, written)} THEN 1 ELSE 0 END)" if written else "0"
    found = query(
        delta,
        f'SELECT {start} AS start, count(*) AS n, {landed_here} AS landed FROM "rows" '
        f"WHERE ({window_condition(identifier, counted)}) AND {identifier_value(identifier)} IS NOT NULL GROUP BY 1",
    )
    return [(int(row["start"]), int(row["n"]), int(row["landed"])) for row in found.to_pylist()]
