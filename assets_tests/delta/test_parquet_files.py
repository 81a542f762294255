"""Files that are written past Spark: no row is lost between chunks and files, and no statistic hides a row from a reader.

Belongs here: what needs neither Spark nor a database. Does not belong: what readers make of the statistics (``test_arrow_path``).
"""

import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from incremental_assets.delta import parquet_files
from incremental_assets.delta.parquet_files import LAST_CHARACTER, FilesWriter, Statistics

LONG = "12345678901234567890.123456789012345678"


def statistics(type_: pa.DataType, *chunks: list[Any]) -> dict[str, Any]:
    """The statistics of one column ``c``, whose decimals stay texts."""
    found = Statistics(pa.schema([("c", type_)]), 32)
    for values in chunks:
        found.add(pa.table({"c": pa.array(values, type_)}))
    return json.loads(found.as_json(), parse_float=str)


@pytest.mark.parametrize(
    ("type_", "chunks", "lowest", "highest"),
    [
        (pa.int64(), [[3, None], [1, 2]], 1, 3),
        (pa.int64(), [[None], [2**63 - 1, -(2**63)]], -(2**63), 2**63 - 1),
        (pa.decimal128(38, 18), [[decimal.Decimal(LONG)]], LONG, LONG),
        (pa.decimal128(10, 2), [[decimal.Decimal("0.10"), decimal.Decimal("-0.05")]], "-0.05", "0.10"),
        (pa.date32(), [[19723, 0]], "1970-01-01", "2024-01-01"),
        (pa.timestamp("us", "UTC"), [[1, -1]], "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00.000001Z"),
        (pa.timestamp("us"), [[1704067200000001]], *["2024-01-01T00:00:00.000001"] * 2),
        (pa.string(), [["b", "é"], ["", None]], "", "é"),
        (pa.string(), [["a" * 32]], "a" * 32, "a" * 32),
        (pa.string(), [["a" * 33]], "a" * 32, "a" * 32 + LAST_CHARACTER),
    ],
)  # fmt: skip
def test_bounds_are_exact(type_: pa.DataType, chunks: list[list[Any]], lowest: Any, highest: Any) -> None:
    """A decimal as a float, or a time cut to milliseconds: a query for the value itself would find no row, and a MERGE would double it."""
    found = statistics(type_, *chunks)
    assert (found["minValues"], found["maxValues"]) == ({"c": lowest}, {"c": highest})
    assert found["numRecords"] == sum(map(len, chunks))
    assert found["nullCount"] == {"c": sum(values.count(None) for values in chunks)}


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.float64(), [1.0, float("nan")]),  # NaN is above all others for Spark, and in no bounds that pyarrow makes
        (pa.float32(), [1.0]),
        (pa.bool_(), [True]),
        (pa.binary(), [b"a"]),
        (pa.int64(), [None]),
    ],
)
def test_there_are_no_bounds_where_readers_may_order_otherwise(type_: pa.DataType, values: list[Any]) -> None:
    """A row with NaN would be skipped by ``c > 5``, which is true for it in Spark."""
    found = statistics(type_, values)
    assert found["minValues"] == found["maxValues"] == {}


def test_years_that_readers_do_not_understand_have_no_bound() -> None:
    """A date of the year 12345 would be an error of each query, or hide rows."""
    found = statistics(pa.date32(), [-719163, 0])
    assert (found["minValues"], found["maxValues"]) == ({}, {"c": "1970-01-01"})
    found = statistics(pa.timestamp("us"), [0, 2932897 * 86_400_000_000])
    assert (found["minValues"], found["maxValues"]) == ({"c": "1970-01-01T00:00:00.000000"}, {})


def test_a_cut_text_is_never_below_one_that_begins_so() -> None:
    """The texts above the bound would be skipped by a query for them."""
    assert statistics(pa.string(), ["a" * 32 + LAST_CHARACTER + "b"])["maxValues"] == {}
    for text in ("a" * 40, "a" * 32 + "\U0010fffe", "é" * 50, "😀" * 33):
        found = statistics(pa.string(), [text])
        assert found["minValues"]["c"].encode() <= text.encode() <= found["maxValues"]["c"].encode()


def rows(first: int, number: int) -> pa.Table:
    return pa.table({"k": pa.array(range(first + number, first, -1), pa.int64()), "t": pa.array(["x" * 100] * number)})


SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])


def test_no_row_is_lost_between_chunks_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory would grow with the table; or a chunk would be written twice, or not at all."""
    monkeypatch.setattr(parquet_files, "CHUNK_BYTES", 200_000)
    monkeypatch.setattr(parquet_files, "FILE_BYTES", 4_000)
    writer = FilesWriter(str(tmp_path), SCHEMA, ("k",), 32)
    for number in range(20):
        writer.add(rows(number * 500, 500))
        assert writer._held_bytes < 200_000
    writer.close()
    assert len(writer.files) > 2 and len(writer.files) == len(list(tmp_path.iterdir()))
    read: list[int] = []
    for name, size, count, found in writer.files:
        assert name[0] not in "_.", "VACUUM keeps such files for ever"
        file = tmp_path / name
        keys = pq.read_table(file)["k"].to_pylist()
        bounds = json.loads(found)
        assert (file.stat().st_size, len(keys), bounds["numRecords"]) == (size, count, count)
        assert (min(keys), max(keys)) == (bounds["minValues"]["k"], bounds["maxValues"]["k"])
        groups = [pq.ParquetFile(file).read_row_group(i)["k"].to_pylist() for i in range(pq.ParquetFile(file).num_row_groups)]
        assert all(group == sorted(group) for group in groups)
        read += keys
    assert sorted(read) == list(range(1, 10_001))


def test_columns_whose_values_do_not_repeat_have_no_dictionary(tmp_path: Path) -> None:
    """Small row groups with a dictionary for each column make a load slower by seconds, and the files larger by a fifth."""
    rows = 20_000
    columns = {"a.id": pa.array(range(rows)), "state": pa.array(["open", "closed"] * (rows // 2)), "none": pa.nulls(rows, pa.string())}
    for table, encoded in ((pa.table(columns), {"state", "none"}), (pa.table({**columns, "n": [[1]] * rows}), {"a.id", "state", "none"})):
        writer = FilesWriter(str(tmp_path), table.schema, (), 32)
        writer.add(table)
        writer.close()
        ((name, *_),) = writer.files
        group = pq.read_metadata(tmp_path / name).row_group(0)
        found = {group.column(i).path_in_schema for i in range(len(columns)) if "RLE_DICTIONARY" in group.column(i).encodings}
        assert found == encoded and pq.read_table(tmp_path / name).equals(table)


@pytest.mark.parametrize("sort", [("state",), ("id",)])
def test_texts_that_repeat_are_the_same_in_each_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: tuple[str, ...]) -> None:
    """They have dictionaries in memory: a later chunk with other texts would get those of the first one, or bounds that hide its rows."""
    monkeypatch.setattr(parquet_files, "CHUNK_BYTES", 1)
    schema = pa.schema([("id", pa.int64()), ("state", pa.string()), ("gone", pa.string())])
    chunks = [[], ["open", None, "closed"], ["new", "a", "a"], [None, None, None], [f"rare {number:03}" for number in range(200)]]
    writer, ids, given = FilesWriter(str(tmp_path), schema, sort, 32), iter(range(1000)), list[tuple[Any, ...]]()
    for texts in chunks:
        given += [(next(ids), text, None) for text in texts]
        writer.add(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in given[-len(texts) :]], schema))
    writer.close()
    ((name, _, count, found),) = writer.files
    read = pq.read_table(tmp_path / name)
    assert read.schema.equals(schema) and count == len(given)
    assert sorted(map(tuple, (row.values() for row in read.to_pylist()))) == given
    bounds = json.loads(found)
    assert (bounds["minValues"]["state"], bounds["maxValues"]["state"], bounds["nullCount"]) == (
        "a",
        "rare 199",
        {"id": 0, "state": 4, "gone": len(given)},
    )


def test_what_a_failed_attempt_has_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failed load would leave its files for VACUUM to find a week later."""
    monkeypatch.setattr(parquet_files, "CHUNK_BYTES", 50_000)
    monkeypatch.setattr(parquet_files, "FILE_BYTES", 1_000)
    writer = FilesWriter(str(tmp_path), SCHEMA, (), 32)
    for number in range(3):
        writer.add(rows(number * 500, 500))
    assert list(tmp_path.iterdir())
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    """A range without rows would be an empty file in the table."""
    writer = FilesWriter(str(tmp_path), SCHEMA, ("k",), 32)
    writer.add(rows(0, 0))
    writer.close()
    assert writer.files == [] and not list(tmp_path.iterdir())


def test_names_that_pyarrow_takes_for_paths(tmp_path: Path) -> None:
    """A load would fail on a column called ".a", or be sorted by another one."""
    names = [".a", "a.b", "[0]", 'quo"te', "a"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    for sort in names:
        writer = FilesWriter(str(tmp_path), schema, (sort,), 32)
        writer.add(pa.table([[i * 7 % 5 + position for i in range(5)] for position in range(5)], schema=schema))
        writer.close()
        ((name, _, _, found),) = writer.files
        assert pq.ParquetFile(tmp_path / name).read()[sort].to_pylist() == [names.index(sort) + i for i in range(5)]
        assert json.loads(found)["minValues"] == {name: position for position, name in enumerate(names)}


def test_footers_have_no_bounds_of_floats(tmp_path: Path) -> None:
    """They leave NaN out: Spark skipped the row with NaN, which is above all numbers to it."""
    schema = pa.schema([("k", pa.int64()), ("f", pa.float64()), ("r", pa.float32())])
    writer = FilesWriter(str(tmp_path), schema, (), 32)
    writer.add(pa.table([[1, 2], [1.0, float("nan")], [1.0, float("nan")]], schema=schema))
    writer.close()
    group = pq.ParquetFile(tmp_path / writer.files[0][0]).metadata.row_group(0)
    assert [group.column(i).is_stats_set for i in range(3)] == [True, False, False]
