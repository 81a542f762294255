"""Parquet that is read in this process: it has to give the same rows as Spark's reader. Otherwise a value is another one in the table.

Real files, real Spark. ``test_file_reading`` compares both readers in each of its cases as well.
"""

import datetime
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets_tests.files.both_readers import read_by_both
from assets_tests.files.test_files_parquet import odd_types
from assets_tests.harness import Folder, long
from incremental_assets.core.schema import Column
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.local_read import RowsReadHere
from incremental_assets.files.readers import local_parquet

_numbers = itertools.count()
Both = Callable[..., RowsReadHere | None]
NANOS = 1_704_067_200_000_000_000
"""2024 begins, in nanoseconds."""
DAYS = [0, -1, 19_723, -141_428, -141_427, -719_162, 2_932_896, 2_932_895]
"""1970, the last day before 1970, 2024, the days around 1582-10-15, and the first and last ones of four digits."""
MICROS = [day * 86_400_000_000 + 1 for day in DAYS]
TEXTS = ["", "x", "ü😀", "007", " 6", "\x00", "\u2028", "a\nb"]
WHOLE = [0, 1, -7, 127, -128, 100, 5, 6]


def of(values: Sequence[Any], type_: pa.DataType | None = None) -> pa.Array:
    return pa.array([*values, None], type_)


def struct(**fields: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=pa.array([True, *[False] * 8]))


COLUMNS = {
    **{f"w{i}": of(WHOLE, type_) for i, type_ in enumerate((pa.int8(), pa.int16(), pa.int32(), pa.int64()))},
    **{f"u{i}": of([abs(one) for one in WHOLE], type_) for i, type_ in enumerate((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()))},
    "far": of([2**63 - 1, -(2**63), *[0] * 6]),
    "unsigned": of([2**64 - 1, *[0] * 7], pa.uint64()),
    **{
        f"f{i}": of([0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1e-38, 3.0], type_)
        for i, type_ in enumerate((pa.float32(), pa.float64()))
    },
    "is": of([True, False] * 4),
    "text": of(TEXTS), "large": of(TEXTS, pa.large_string()), "category": of(TEXTS).dictionary_encode(),
    "bytes": of([text.encode() + b"\xff" for text in TEXTS]), "fixed": of([b"ab"] * 8, pa.binary(2)),
    "day": of(DAYS, pa.date32()), "at": of(MICROS, pa.timestamp("us")), "zoned": of(MICROS, pa.timestamp("us", "Europe/Berlin")),
    "millis": of([1500] * 8, pa.timestamp("ms")), "nanos": of([NANOS] * 8, pa.timestamp("ns")),
    "seconds": of([7] * 8, pa.timestamp("s", "UTC")),
    "small": of([Decimal("1.50")] * 8, pa.decimal128(5, 2)), "middle": of([Decimal("-123456789.123")] * 8, pa.decimal128(18, 3)),
    "wide": of([Decimal("-0.10"), Decimal(10) ** 35, *[Decimal(0)] * 6], pa.decimal128(38, 2)),
    "wider": of([Decimal("1e-20")] * 8, pa.decimal256(50, 22)),
    "none": pa.nulls(9), "Name with blanks": of(WHOLE), "näme": of(WHOLE), "a.b": of(WHOLE), "_c": of(WHOLE),
    "list": of([[1, None], [], *[[2]] * 6]), "lists": of([[["x"], None, []]] * 8),
    "map": of([[("k", 1), ("l", None)], *[[]] * 7], pa.map_(pa.string(), pa.int32())),
    "struct": struct(a=of(WHOLE), b=of(TEXTS), n=pa.nulls(9), c=of([[{"x": 1.5}]] * 8), d=of(DAYS, pa.date32()), e=of([7] * 8, pa.uint8())),
}  # fmt: skip
"""A column of each type, with the values that one of the readers might take for others."""
PAIRS = {
    "int, bigint": (of([1], pa.int32()), of([2**40])),
    "int, double": (of([1], pa.int32()), of([1.5])),
    "float, double": (of([0.1], pa.float32()), of([0.1])),
    "date, time": (of(DAYS, pa.date32()), of(MICROS, pa.timestamp("us"))),
    "int, decimal": (of([1], pa.int32()), of([Decimal("1.50")], pa.decimal128(12, 2))),
    "decimals": (of([Decimal("1.50")], pa.decimal128(12, 2)), of([Decimal("1.5")], pa.decimal128(20, 5))),
    "bigint, whole floats": (of([1]), of([3.0, -0.0, 0.0, 100.0, 1e15, 2.0**53, -(2.0**53)])),
    "int, whole floats": (of([1], pa.int16()), of([3.0, 100.0], pa.float32())),
    "decimal, whole floats": (of([Decimal(1)], pa.decimal128(38, 18)), of([3.0, 100.0])),
    "text, whole numbers": (of(["x"]), of([1, -5, 2**62])),
    "text, truth": (of(["x"]), of([True, False])),
    "none, text": (pa.nulls(1), of(["x"])),
    "none, lists": (pa.nulls(1), of([[1]])),
    "lists of none": (of([[None]], pa.list_(pa.null())), of([[1]])),
    "none": (pa.nulls(1), pa.nulls(1)),
    "large text": (of(["x"]), of(["y"], pa.large_string())),
    "zones": (of([0], pa.timestamp("us", "UTC")), of([0], pa.timestamp("ms", "Asia/Tokyo"))),
    "other case": (of([1]), of([2])),
}  # fmt: skip
"""Columns of the same name in two files, which become one."""


@pytest.fixture(scope="module")
def scope(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeScope]:
    scope = LakeScope(str(tmp_path_factory.mktemp("lake")), spark_home, "test_local_parquet", lambda _: None)
    with scope.stack:
        yield scope


@pytest.fixture
def both(scope: LakeScope, tmp_path: Path) -> Both:
    """Reads files by both readers, and asserts that the results are equal. Returns that of this process."""

    def run(files: Mapping[str, bytes], known: Sequence[Column] = (), **more: Any) -> RowsReadHere | None:
        return read_by_both(scope, tmp_path / str(next(_numbers)), files, known, format="parquet", **more)

    return run


def stored(columns: Mapping[str, pa.Array], metadata: Mapping[str, str] | None = None, **how: Any) -> bytes:
    """A file of these columns, of which shorter ones are filled up with NULL."""
    rows = max(map(len, columns.values()), default=0)
    filled = [pa.concat_arrays([one, pa.nulls(rows - len(one), one.type)]) if len(one) < rows else one for one in columns.values()]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(filled, names=list(columns)).replace_schema_metadata(dict(metadata or {})), sink, **how)
    return sink.getvalue().to_pybytes()


def test_each_value_comes_out_as_spark_reads_it(both: Both) -> None:
    """Otherwise a time is an hour off, or a number is another one, in tables whose files are small."""
    files = {"a.parquet": stored(COLUMNS), "b.parquet": stored(COLUMNS, row_group_size=2, compression="gzip")}
    assert both(files) is not None
    assert both({"a.parquet": odd_types()}) is not None
    columns = {name: column for name, column in COLUMNS.items() if name not in ("nanos", "wider")}
    assert both({"a.parquet": stored(columns, store_schema=False), "b.parquet": stored({"w3": of([1])})}) is not None


@pytest.mark.long
@pytest.mark.parametrize("is_reversed", [False, *long(True)])
def test_columns_of_other_types_become_one_as_spark_makes_it(both: Both, is_reversed: bool) -> None:
    """Otherwise the type of a column, or whether a value is kept, depends on which reader has seen the files."""
    pairs = [pair for name, pair in PAIRS.items() if not (is_reversed and ("whole" in name or "truth" in name))]
    first, second = (stored({f"c{i}": pair[at] for i, pair in enumerate(pairs)} | {"xX"[at]: of([at])}) for at in (0, 1))
    if is_reversed:
        first, second = second, first
    assert both({"a.parquet": first, "b.parquet": second}) is not None
    assert both({"a.parquet": second, "b.parquet": first, "c.parquet": first}) is not None


KNOWN = {
    "bigint": of([1], pa.int32()), "int": of([1], pa.uint8()), "double": of([1.5], pa.float32()), "decimal(20,5)": of([Decimal("1.5")]),
    "string": of([1]), "timestamp_ntz": of([1], pa.date32()), "smallint": of([3], pa.int8()), "float": of([1.5], pa.float32()),
    "binary": of([b"x"]), "array<bigint>": of([[1]]), "date": pa.nulls(1), "boolean": pa.nulls(1),
    "struct<`a`:bigint,`b`:map<string,float>>": of(
        [{"a": 1, "b": [("k", 1.5)]}], pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.float32()))])
    ),
}  # fmt: skip
"""A column of a file by the type that the table's has."""


def test_columns_of_the_table_keep_their_types(both: Both) -> None:
    """Otherwise a narrow column of a later file is refused, or the table is written with a type that it does not have."""
    known = [Column(f"c{i}", type_) for i, type_ in enumerate(KNOWN)] + [Column("other", "double")]
    file = stored({f"C{i}": one for i, one in enumerate(KNOWN.values())} | {"new": of([1])})
    assert both({"a.parquet": file}, known) is not None
    types = {"id": "decimal(22,2)", "none": "date", "text": "string"}
    assert both({"a.parquet": stored({"id": of([1]), "none": pa.nulls(1), "text": of([5])})}, types=types) is not None


UNSURE = {
    "a fraction": ("bigint", of([1.5])),
    "a number of many digits": ("bigint", of([2.0**60])),
    "no number": ("bigint", of([float("nan")])),
    "a wider column": ("int", of([1])),
    "other text": ("bigint", of(["1"])),
    "no text": ("string", of([1.5])),
    "more fields": ("struct<`a`:bigint>", of([{"a": 1, "b": 2}])),
    "fewer fields": ("struct<`a`:bigint,`b`:bigint>", of([{"a": 1}])),
    "wider parts": ("array<bigint>", of([[1]], pa.list_(pa.int32()))),
    "nested text": ("string", of([[1]])),
    "finer times": ("timestamp_ntz", of([1], pa.timestamp("ns"))),
    "another type": ("date", of([True])),
    "no text at all": ("string", pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))),
    "a type that tables have not": ("array<tinyint>", of([[1]], pa.list_(pa.int8()))),
}


@pytest.mark.parametrize("case", UNSURE)
def test_what_is_not_sure_is_left_to_spark(both: Both, case: str) -> None:
    """A guess here would be another value, or none, than the documentation says."""
    type_, column = UNSURE[case]
    assert both({"a.parquet": stored({"c": column})}, [Column("c", type_)]) is None


OLD = {
    "2.4": {"org.apache.spark.version": "2.4.8"},
    "3.0": {"org.apache.spark.version": "3.0.1"},
    "days": {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
}


def test_files_of_old_writers_are_left_to_spark(both: Both) -> None:
    """Days before 1582 would be others: Spark 2 counted them by another calendar, and only Spark knows how."""
    for metadata in OLD.values():
        assert both({"a.parquet": stored({"c": of([1])}, metadata)}) is None
    assert both({"a.parquet": stored({"c": of([1])}, {"org.apache.spark.version": "3.5.0"})}) is not None
    assert both({"a.parquet": stored({"at": COLUMNS["at"]}, use_deprecated_int96_timestamps=True)}) is not None


@pytest.mark.long
def test_texts_that_stand_once_in_a_file_do_not_fill_the_memory(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes would end the process of all syncs."""
    many = stored({"text": pa.array(["x" * 10_000] * 1000)}, compression="zstd")
    assert len(many) < 30_000
    assert both({"a.parquet": many}) is not None
    assert both({"a.parquet": stored({"text": pa.array(["x" * 10_000_000] * 500)}, compression="zstd")}) is None
    assert both({"a.parquet": stored({"texts": pa.array([["x" * 100_000] * 5000])}, compression="zstd")}) is None
    monkeypatch.setattr(local_parquet, "MOST_CELLS", 100)
    assert both({"a.parquet": stored({"c": pa.array([1] * 101)})}) is None


def random_column(chance: random.Random, rows: int, depth: int = 0) -> tuple[pa.DataType, list[Any]]:
    """A type and values of it."""
    kind = chance.randrange(9 if depth < 3 else 6)

    def some(value: Callable[[], Any]) -> list[Any]:
        return [None if chance.random() < 0.2 else value() for _ in range(rows)]

    if kind == 6:
        type_, values = random_column(chance, 20, depth + 1)
        return pa.list_(type_), some(lambda: chance.choices(values, k=chance.randrange(4)))
    if kind == 7:
        type_, values = random_column(chance, 20, depth + 1)
        return pa.map_(pa.string(), type_), some(lambda: [(f"k{i}", chance.choice(values)) for i in range(chance.randrange(3))])
    if kind == 8:
        parts = [random_column(chance, 20, depth + 1) for _ in range(chance.randrange(1, 4))]
        fields = pa.struct([(f"f{i}", type_) for i, (type_, _) in enumerate(parts)])
        return fields, some(lambda: {f"f{i}": chance.choice(values) for i, (_, values) in enumerate(parts)})
    return [
        (pa.int64(), some(lambda: chance.randrange(-(2**63), 2**63))),
        (pa.float64(), some(lambda: chance.choice([chance.random(), float(chance.randrange(100)), 1e300]))),
        (pa.string(), some(lambda: chance.choice(TEXTS))),
        (pa.date32(), some(lambda: datetime.date.fromordinal(chance.randrange(1, 3_000_000)))),
        (pa.timestamp("us", chance.choice([None, "UTC"])), some(lambda: chance.randrange(10**16))),
        (pa.decimal128(20, 4), some(lambda: Decimal(chance.randrange(-(10**15), 10**15)) / 10000)),
    ][kind]


@pytest.mark.parametrize("seed", [0, *long(*range(1, 20))])
def test_random_tables_come_out_as_spark_reads_them(both: Both, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases above are those that somebody has thought of."""
    monkeypatch.setattr(local_parquet, "BATCH", 7)
    chance = random.Random(seed)
    columns = {f"c{i}": random_column(chance, 30) for i in range(8)}

    def file() -> bytes:
        chosen = {name: one for name, one in columns.items() if chance.random() < 0.9} or columns
        at = chance.randrange(25)
        made = {name: pa.array(values[at : at + 6], type_) for name, (type_, values) in chosen.items()}
        how = {"compression": chance.choice(["snappy", "zstd", "none"]), "use_dictionary": chance.random() < 0.5}
        return stored(made, row_group_size=chance.randrange(1, 7), data_page_version=chance.choice(["1.0", "2.0"]), **how)

    assert both({f"{i}.parquet": file() for i in range(4)}) is not None


def test_small_files_of_parquet_are_synced_without_spark(folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small files would take minutes, as Spark opens each three times."""
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    project = folder(containers={"sales": {"glob": "*.parquet"}})
    for number in range(3):
        project.put(f"{number}.parquet", stored({"id": pa.array([number, 10 + number]), "x": of([1.5], pa.float32()), "none": pa.nulls(2)}))
    project.put("broken.parquet", b"PAR1 and no more")
    line = project.one("sales")
    assert line["status"] == "warning" and "broken.parquet" in line["message"], line
    project.put("1.parquet", stored({"id": pa.array([7]), "x": pa.array([2], pa.float32())}))
    (project.root / "broken.parquet").unlink()
    assert project.one("sales")["status"] == "synced"
    assert sorted(project.rows("sales", "id, x")) == [(0, 1.5), (2, 1.5), (7, 2.0), (10, None), (12, None)]


def test_structs_have_no_count_of_nulls_that_other_readers_take_for_an_object(folder: Callable[..., Folder]) -> None:
    """In Delta's log, the statistics of a struct are those of its fields: a number in their place makes the table unreadable."""
    project = folder(containers={"sales": {"glob": "*.parquet"}})
    project.put("a.parquet", stored({"id": of([1]), "s": of([{"a": 1, "l": [1]}]), "l": of([[{"b": 1}]])}))
    assert project.one("sales")["status"] == "synced"
    project.put("b.parquet", stored({"id": of([2]), "s": of([{"a": 2, "l": [1]}]), "l": of([[{"b": 2}]])}))
    assert project.one("sales")["status"] == "synced"
    logs = sorted(Path(project.table("sales").url, "_delta_log").glob("*.json"))
    added = [json.loads(line)["add"] for path in logs for line in path.read_text().splitlines() if '"add"' in line]
    counts = [json.loads(one["stats"])["nullCount"] for one in added]
    assert len(counts) == 2 and not [one for one in counts if not isinstance(one.get("s", {}), dict)], counts
    assert sorted(project.rows("sales", "s.a", "s is not null")) == [(1,), (2,)]
