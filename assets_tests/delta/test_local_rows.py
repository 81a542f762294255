"""Rows that are compared in this process: the same answers as Spark's, for every type, and exact to the bit.

Belongs here: the comparison of Arrow tables, and the rows of the lake that are compared. Does not belong: the syncs that use it
(``test_sync``, ``test_merge``, the random histories).
"""

import decimal
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake

from assets_tests.delta.test_add_files import batch, of_windows
from incremental_assets.core.container import Identifier
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.schema import Column
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.delta import local_rows
from incremental_assets.delta.local_files import LocalFiles
from incremental_assets.delta.local_rows import (
    bounds_of,
    counted_changes,
    differences,
    differing,
    has_unique_keys,
    key_texts,
    local_frame,
    rows_of_lake,
)
from incremental_assets.delta.merge import _extent, key_bounds
from incremental_assets.delta.overwrite import _changes
from incremental_assets.delta.sql import key_text, scope_predicate
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import BatchRows, NotHere
from incremental_assets.spark.session import open_session

D = decimal.Decimal
BATCH = batch(container=replace(batch().container, identifier=Identifier(("k",), IdentifierType.INTEGER, CursorType.INTEGER)))
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "smallint": (pa.int16(), [-32768, 32767]),
    "int": (pa.int32(), [-1, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "float": (pa.float32(), [0.5, float("inf"), float("nan")]),
    "double": (pa.float64(), [1e300, -0.25, float("nan")]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "string": (pa.string(), ["", "a", "Z", "ä", "\U0001f600", "it's"]),
    "date": (pa.date32(), [-800_000, 0, 20_000, 3_000_000]),
    "timestamp": (pa.timestamp("us", "UTC"), [-(10**17), 0, 1_700_000_000_000_001]),
    "timestamp_ntz": (pa.timestamp("us"), [-(10**17), 0, 1_700_000_000_000_001]),
    "decimal(20,4)": (pa.decimal128(20, 4), [D("0.0001"), D("-1234567890123456.7891"), D("0")]),
}


def column(type_: str, values: list[Any]) -> pa.Array:
    arrow, _ = VALUES[type_]
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int32() if type_ == "date" else pa.int64()).cast(arrow)
    return pa.array(values, arrow)


def two(old: list[tuple[Any, Any]], new: list[tuple[Any, Any]]) -> tuple[pa.Table, pa.Table]:
    """Two tables with a key and a float."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    made = [pa.table([pa.array([row[i] for row in rows], schema.field(i).type) for i in (0, 1)], schema=schema) for rows in (old, new)]
    return made[0], made[1]


def counted(old: pa.Table, new: pa.Table, key: Sequence[str]) -> tuple[int, int, int]:
    return counted_changes(differing(old, new), new.column_names, key)


def test_changes_are_counted_by_key() -> None:
    """The numbers of a sync would say that a row was deleted and another one added, where one has changed."""
    old, new = two([(1, 1.0), (2, 2.0), (3, 3.0)], [(1, 1.0), (2, 2.5), (4, 4.0), (5, 5.0)])
    assert counted(old, new, ["id"]) == (2, 1, 1)
    assert counted(old, new, []) == (3, 0, 2), "without a key, a changed row is another row"
    assert counted(new, new, ["id"]) == (0, 0, 0) == counted(old.slice(0, 0), new.slice(0, 0), ["id"])
    twice, once = two([(1, 1.0), (1, 1.0)], [(1, 1.0)])
    assert counted(twice, once, []) == (0, 0, 1), "rows without a key may be there several times"


def test_values_are_compared_bit_by_bit() -> None:
    """A zero that became negative would stay as it was, and a NaN or NULL would be written again by each sync."""
    nan = float("nan")
    old, new = two([(1, 0.0), (2, nan), (3, None), (4, -0.0)], [(1, -0.0), (2, nan), (3, None), (4, -0.0)])
    found = differences(old, new, ["id"])
    assert found.changed.column("id").to_pylist() == [1] and found.missing.num_rows == 0
    assert counted(old, new, ["id"]) == (0, 1, 0)


def test_keys_that_are_missing_and_keys_that_are_not_unique() -> None:
    old, new = two([(1, 1.0), (2, 2.0)], [(2, 2.0), (3, 3.0)])
    found = differences(old, new, ["id"])
    assert found.missing.to_pylist() == [{"id": 1}] and found.changed.to_pylist() == [{"id": 3, "x": 3.0}]
    assert has_unique_keys(new, ["id"])
    assert not has_unique_keys(two([(1, 1.0), (1, 2.0)], [])[0], ["id"]) and not has_unique_keys(two([(None, 1.0)], [])[0], ["id"])
    assert not has_unique_keys(pa.table({"k": [0.0, -0.0]}), ["k"]), "PostgreSQL takes them for one key"
    odd = pa.table({".a": [1, 2], "b.c": [1, 1]})
    assert has_unique_keys(odd, [".a"]) and counted(odd, odd.slice(1), [".a"]) == (0, 0, 1), "pyarrow takes such names for paths"


class _Held(BatchRows):
    """Ten rows that this process holds, and that Spark could read."""

    def local(self) -> pa.Table:
        return pa.table({"k": list(range(10))})

    def frame(self, spark: Any) -> Any:
        return "read"

    def still_there(self) -> None: ...

    def emptied(self) -> Sequence[Window]:
        return ()


def test_many_rows_are_not_sent_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a large upsert that a MERGE has to write after all would travel with each of its queries, and to each of its tasks."""
    monkeypatch.setattr(local_rows, "local_frame", lambda spark, rows: "sent")
    spark: Any = None
    assert local_rows.sent_or_read(spark, _Held()) == ("sent", True)
    for limit in ("MOST_SENT_ROWS", "MOST_SENT_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(local_rows, limit, 9)
            assert local_rows.sent_or_read(spark, _Held()) == ("read", False)


@pytest.mark.parametrize("type_", VALUES)
def test_spark_gets_the_values_as_they_are_and_makes_the_same_texts_of_keys(spark_home: Path, type_: str) -> None:
    """A key's text that the source reads as another value would delete a row that is still there."""
    values = column(type_, VALUES[type_][1])
    rows = pa.table({"k": values})
    with open_session(spark_home, name="local rows") as spark:
        frame = local_frame(spark, rows)
        assert frame.dtypes == [("k", type_)]
        returned = frame.toArrow().column("k")
        assert returned.cast(values.type).combine_chunks().equals(values) or type_ in ("float", "double")
        by_spark = [row[0] for row in frame.selectExpr(key_text("k", type_)).collect()]
        if type_ not in ("float", "double"):
            assert [text for (text,) in key_texts(rows)] == by_spark
        assert key_bounds(bounds_of(rows.column("k")), type_) == _extent(frame, "k", type_)[1]
    if type_ in ("float", "double"):  # another spelling of the same number: PostgreSQL reads both
        finite = [(float(ours), float(theirs)) for (ours,), theirs in zip(key_texts(rows), by_spark, strict=True) if theirs != "NaN"]
        assert all(ours == theirs for ours, theirs in finite)


def test_the_same_changes_are_counted_here_and_by_spark(tmp_path: Path, spark_home: Path) -> None:
    """The numbers of a sync would depend on the size of what it reads."""
    chance = random.Random(13)
    columns = tuple(Column(f"c{i}", type_) for i, type_ in enumerate(VALUES) if type_ not in ("float", "double"))
    arrow = pa.schema([pa.field("k", pa.int64()), *(pa.field(c.name, VALUES[c.type][0]) for c in columns)])

    def some(keys: list[int]) -> pa.Table:
        made = [column(c.type, [chance.choice([None, *VALUES[c.type][1]]) for _ in keys]) for c in columns]
        return pa.table([pa.array(keys, pa.int64()), *made], schema=arrow)

    before = some(list(range(40)))
    write_deltalake(str(tmp_path / "t"), before)
    new = pa.concat_tables([before.slice(10, 15), some(list(range(25, 60)))])
    table = LakeTable(str(tmp_path), "t")
    head = table.head()
    assert head is not None
    old = rows_of_lake(table, head, of_windows(BATCH, Window(5, None), columns=head.columns))
    assert old is not None and sorted(old.column("k").to_pylist()) == list(range(5, 40)) and old.schema == new.schema
    with open_session(spark_home, name="local rows") as spark:
        older = spark.sql(f"SELECT * FROM {table.sql_name} WHERE k >= 5")
        for key in (("k",), tuple(new.column_names)):
            assert counted(old, new, key) == _changes(older, local_frame(spark, new), head, key)


@pytest.mark.long
def test_rows_of_the_last_millisecond_of_a_file_are_compared(tmp_path: Path, spark_home: Path) -> None:
    """Delta's statistics end at the whole millisecond. A row behind it would be missing among the lake's: a deletion would not be seen."""
    at, table = 1_700_000_000_123_456, LakeTable(str(tmp_path), "t")
    with open_session(spark_home, name="local rows") as spark:
        for type_ in ("timestamp", "timestamp_ntz"):
            for micros in (at - 3_600_000_000, at, at + 3_600_000_000):
                frame = spark.sql(f"SELECT cast(timestamp_micros({micros}) AS {type_}) AS k")
                frame.write.format("delta").mode("append").save(table.url)
            head = table.head()
            assert head is not None
            cursor_type = CursorType.TIMESTAMP if type_ == "timestamp" else CursorType.TIMESTAMP_NTZ
            container = replace(BATCH.container, identifier=Identifier(("k",), IdentifierType.TIMESTAMP, cursor_type))
            batch_of = replace(BATCH, container=container, columns=head.columns)
            for lower, expected in ((at, 2), (at - 456, 2), (at + 1, 1)):
                found = rows_of_lake(table, head, of_windows(batch_of, Window(lower, None)))
                assert found is not None and found.num_rows == expected, (type_, lower)
            table = LakeTable(str(tmp_path), "of_local_times")


def test_rows_of_files_with_deletion_vectors_are_those_that_spark_reads(tmp_path: Path, spark_home: Path) -> None:
    """A row that was deleted would be compared, or one of another row group left out: the sync would then delete or double rows."""
    table, chance = LakeTable(str(tmp_path), "t"), random.Random(5)
    with open_session(spark_home, name="local rows") as spark:
        for offset in (0, 1500):
            keys = pa.array([None if i % 100 == 77 else i + offset for i in range(2000)], pa.int64())
            rows = pa.table({"k": keys, "v": pa.array([f"{i}" for i in range(2000)])})
            properties = WriterProperties(max_row_group_size=300, write_batch_size=100)
            write_deltalake(str(tmp_path / "t"), rows, mode="append", writer_properties=properties)
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')").collect()
        spark.sql(f"DELETE FROM {table.sql_name} WHERE k % 7 = 3 OR k BETWEEN 2500 AND 2600").collect()
        spark.sql(f"ALTER TABLE {table.sql_name} ADD COLUMN later INT").collect()
        spark.sql(f"INSERT INTO {table.sql_name} VALUES (10, 'new', 1), (NULL, 'without', 2)").collect()
        head, delta = table.head(), table.opened()
        assert head is not None and delta is not None
        there = LocalFiles.of(delta, folder_at(table.address))
        assert there is not None and len(there.live) == 2
        assert min(pq.ParquetFile(tmp_path / "t" / path).num_row_groups for path in there.live) > 3
        for _ in range(5):
            edges = sorted(chance.sample(range(-10, 3600), 4))
            windows = chance.choice(
                [(Window(edges[0], edges[1]), Window(edges[2], edges[3])), (Window(edges[1], None),), (Window(None, 9),)]
            )
            wanted = of_windows(BATCH, *windows, nulls=chance.random() < 0.5, columns=head.columns)
            found = rows_of_lake(table, head, wanted)
            assert wanted.container.identifier is not None
            condition = scope_predicate(wanted.container.identifier, windows, wanted.include_nulls)
            expected = spark.sql(f"SELECT * FROM {table.sql_name} WHERE {condition}").toArrow()
            assert found is not None and found.num_rows == expected.num_rows > 0, windows
            assert counted_changes(differing(expected, found), found.column_names, ()) == (0, 0, 0), windows


def test_rows_that_this_process_should_not_read_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would be compared with columns that they do not have, or the process would run out of memory."""
    write_deltalake(str(tmp_path / "t"), pa.table({"k": pa.array([1, 2, None], pa.int64())}))
    table = LakeTable(str(tmp_path), "t")
    head = table.head()
    assert head is not None
    whole = of_windows(BATCH, EVERYTHING)
    read = rows_of_lake(table, head, whole)
    assert read is not None and read.column("k").to_pylist() == [1, 2]
    with_nulls = rows_of_lake(table, head, of_windows(whole, EVERYTHING, nulls=True))
    assert with_nulls is not None and with_nulls.num_rows == 3
    with pytest.raises(NotHere, match="other columns"):
        rows_of_lake(table, head, replace(whole, columns=(Column("k", "int"),)))
    write_deltalake(table.address, pa.table({"k": pa.array([3], pa.int64())}), mode="append")
    as_planned = rows_of_lake(table, head, whole)
    assert as_planned is not None and as_planned.column("k").to_pylist() == [1, 2]
    for limit in ("MOST_OLD_ROWS", "MOST_OLD_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(local_rows, limit, 1)
            assert rows_of_lake(table, head, whole) is None
