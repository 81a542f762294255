"""How many rows a partition has: this process and Spark count the same, and both are right.

Belongs here: the two counts, asked about tables with identifiers of every cursor type. Does not belong: which partitions a sync counts
(``test_sync``).
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from assets_tests.core.test_model_container import resolved
from incremental_assets.core.container import Identifier, Partitioning
from incremental_assets.core.cursor_type import MICROS_PER_DAY, CursorType, IdentifierType
from incremental_assets.core.partitions import Granularity, IntegerPartitions, Partitions, TimePartitions, floor_to
from incremental_assets.core.window import Window
from incremental_assets.delta import local_query
from incremental_assets.delta.counts import partition_rows, row_count
from incremental_assets.delta.sql import literal
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.session import open_session

HOUR, DAY, WEEK, MONTH = Granularity.HOUR, Granularity.DAY, Granularity.WEEK, Granularity.MONTH
# The identifier's columns and type in the lake, its cursor type, how it is cut, and one step between values.
CASES = {
    "ranges of integers": (("a",), "bigint", CursorType.INTEGER, Partitioning(width=10), 1),
    "large numbers": (("a",), "decimal(20,0)", CursorType.INTEGER, Partitioning(width=10), 10**15),
    "months of dates": (("a",), "date", CursorType.DATE, Partitioning(MONTH), 9),
    "hours": (("a",), "timestamp_ntz", CursorType.TIMESTAMP_NTZ, Partitioning(HOUR), MICROS_PER_DAY // 50 + 1),
    "weeks": (("a",), "timestamp", CursorType.TIMESTAMP, Partitioning(WEEK), MICROS_PER_DAY + 1),
    "the later of two": (("a", "b"), "timestamp", CursorType.TIMESTAMP, Partitioning(DAY), MICROS_PER_DAY // 7),
}


IN_SHORT = ("ranges of integers", "the later of two")


@pytest.mark.long
@pytest.mark.parametrize("case", [*IN_SHORT, *(pytest.param(case, marks=pytest.mark.long) for case in CASES if case not in IN_SHORT)])
def test_this_process_and_spark_count_the_same_rows(tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """A wrong count of a partition would make people distrust all numbers."""
    columns, type_, cursor_type, partitioning, step = CASES[case]
    chance = random.Random(case)
    identifier = Identifier(columns, IdentifierType.INTEGER if cursor_type is CursorType.INTEGER else IdentifierType.TIMESTAMP, cursor_type)
    container = replace(resolved(), identifier=identifier, partitioning=partitioning)
    rows = [tuple(chance.choice([None, *[n * step for n in range(-40, 60)]]) for _ in columns) for _ in range(200)]
    values = [max((v for v in row if v is not None), default=None) for row in rows]
    partitions: Partitions
    if cursor_type is CursorType.INTEGER:
        width = partitioning.width or 1
        known = sorted({v // width * width for v in values if v is not None and v >= 0})
        partitions = IntegerPartitions(width, tuple(known))
    else:
        assert partitioning.granularity is not None
        partitions = TimePartitions(
            cursor_type,
            partitioning.granularity,
            floor_to(cursor_type, partitioning.granularity, 0),
            floor_to(cursor_type, partitioning.granularity, 50 * step),
        )
    table = LakeTable(str(tmp_path), "t")
    with open_session(spark_home, name="counts") as spark:
        spark.sql("set time zone 'UTC'")
        texts = ["(" + ", ".join(f"cast({'NULL' if v is None else literal(cursor_type, v)} as {type_})" for v in row) + ")" for row in rows]
        frame = spark.sql(f"select * from values {', '.join(texts)} as t({', '.join(columns)})")
        # Of some files the statistics say where all rows are, and others have to be read.
        frame.repartitionByRange(40, columns[0]).write.format("delta").save(table.url)
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        gone = rows.pop()
        same = " AND ".join(f"{c} <=> {'NULL' if v is None else literal(cursor_type, v)}" for c, v in zip(columns, gone, strict=True))
        deleted = sum(row == gone for row in rows)
        spark.sql(f"DELETE FROM {table.sql_name} WHERE {same}")
        rows = [row for row in rows if row != gone]
        assert len(rows) + deleted == 199
        values = [max((v for v in row if v is not None), default=None) for row in rows]

        def no_spark() -> None:
            raise AssertionError("Spark was asked")

        here = no_spark if type_ != "decimal(20,0)" else lambda: spark
        assert row_count(no_spark, table) == len(rows)  # pyright: ignore[reportArgumentType]
        for written in ([Window(None, None)], [Window(5 * step, 31 * step)], [Window(None, -3 * step), Window(0, 7 * step)], []):
            keys = chance.sample(partitions.keys_between(None, None), 2)
            counted = partition_rows(here, table, container, partitions, written, keys)  # pyright: ignore[reportArgumentType]
            with_keys = partitions.with_keys(keys) if isinstance(partitions, IntegerPartitions) else partitions
            landed = {with_keys.key_of(v) for v in values if v is not None and any(w.contains(v) for w in written)}
            assert set(counted) == landed | set(keys)
            there = {key: sum(v is not None and partitions.window_of(key).contains(v) for v in values) for key in counted}
            assert counted == there, written
            if len(written) == 2:  # once: Spark is slow
                with monkeypatch.context() as patched:
                    patched.setattr(local_query, "MOST_ROWS", -1)
                    assert partition_rows(lambda: spark, table, container, partitions, written, keys) == counted
                    assert row_count(lambda: spark, table) == len(rows)
