"""Parquet as pandas, DuckDB and polars write it: columns without a value, other types in each file, and types that Spark does not read.

Belongs here: what becomes of columns and values, from the file to the table. Does not belong: broken files and limits
(``test_file_reading``, ``test_file_limits``).
"""

import base64
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets_tests.files.test_files_ladder import columns, rejected
from assets_tests.harness import Folder
from incremental_assets.core.ladder import TEXT
from incremental_assets.delta import as_text
from incremental_assets.files.readers.parquet_copy import interval_text
from incremental_assets.files.rejected import rejected_table

Make = Callable[..., Folder]
NANOS = 1_704_067_200_000_000_000
"""2024 begins, in nanoseconds."""


def parquet(first: int, /, **values: pa.Array) -> bytes:
    """A file whose rows have ids from ``first`` on."""
    sink = pa.BufferOutputStream()
    ids = pa.array(range(first, first + len(next(iter(values.values())))), pa.int64())
    pq.write_table(pa.table({"id": ids, **values}), sink)
    return sink.getvalue().to_pybytes()


def sales(folder: Make, **entry: Any) -> Folder:
    return folder(containers={"sales": {"glob": "*.parquet", **entry}})


def types(project: Folder) -> dict[str, str]:
    head = project.table("sales").head()
    assert head is not None
    return {column.name: column.type for column in head.columns if not column.name.startswith("_")}


def of(values: list[Any], type_: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, type_)


NULLS = pa.nulls(2)
FOLLOWING = {
    "none, then text": (NULLS, of(["x", None]), "string", [None, None, "x", None]),
    "none, then times": (NULLS, of([NANOS, None], pa.timestamp("ns")), "timestamp_ntz", [None, None, "2024-01-01 00:00:00", None]),
    "none, then a list": (NULLS, of([[1], []]), "array<bigint>", [None, None, "[1]", "[]"]),
    "lists of nothing, then more": (of([None] * 2, pa.list_(pa.null())), of([[1], None]), "array<bigint>", [None, None, "[1]", None]),
    "times, then none": (of([NANOS // 1000] * 2, pa.timestamp("us", "UTC")), NULLS, "timestamp", ["2024-01-01 00:00:00"] * 2 + [None] * 2),
    "whole numbers, then floats that are whole": (of([1, 2**60]), of([3.0, None]), "bigint", ["1", str(2**60), "3", None]),
    "floats, then whole numbers": (of([1.5, None]), of([2, 3]), "double", ["1.5", None, "2.0", "3.0"]),
    "floats, then a whole number that none is": (of([1.5, None]), of([2**53 + 1, 3]), "string", ["1.5", None, str(2**53 + 1), "3"]),
    "whole numbers, then a fraction": (of([1, 2]), of([0.5, None]), "decimal(21,1)", ["1.0", "2.0", "0.5", None]),
    "whole numbers, then no number": (of([1, 2]), of([float("nan"), 1e300]), "string", ["1", "2", "NaN", "1.0E300"]),
    "whole numbers, then decimals": (
        of([1, 2]),
        of([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "decimal(21,1)",
        ["1.0", "2.0", "1.5", None],
    ),
    "whole numbers, then text": (of([1, 2]), of(["007", "x"]), "string", ["1", "2", "007", "x"]),
    "text, then whole numbers": (of(["007", "x"]), of([1, 2]), "string", ["007", "x", "1", "2"]),
    "text, then true and false": (of(["x", None]), of([True, False]), "string", ["x", None, "true", "false"]),
}  # fmt: skip


def test_a_missing_value_makes_no_other_column(folder: Make) -> None:
    """One missing value makes floats of pandas' whole numbers, and none at all makes no type: such files were refused, or became int."""
    project = sales(folder)
    for number, (code, amount) in enumerate(((NULLS, of([1, 2])), (of(["x", None]), of([3.0, None])), (NULLS, of([0.5, None])))):
        project.put(f"{number}.parquet", parquet(2 * number, code=code, amount=amount))
        line = project.one("sales")
        assert (line["status"], rejected(project)) == ("synced", 0), line
        assert types(project)["amount"] == ("decimal(21,1)" if number == 2 else "bigint")
    assert columns(project, "code", "amount") == [[None, None, "x", None, None, None], ["1.0", "2.0", "3.0", None, "0.5", None]]


@pytest.mark.long
def test_a_column_of_another_type_in_a_later_file_loses_no_value(folder: Make) -> None:
    """Each pair of types that was refused needed a step before the sync, or became another pair by chance."""
    project = sales(folder)
    names = [f"c{number}" for number in range(len(FOLLOWING))]
    project.put("a.parquet", parquet(0, **dict(zip(names, (one[0] for one in FOLLOWING.values()), strict=True))))
    assert project.one("sales")["status"] == "synced"
    project.put("b.parquet", parquet(2, **dict(zip(names, (one[1] for one in FOLLOWING.values()), strict=True))))
    line = project.one("sales")
    assert (line["status"], rejected(project)) == ("synced", 0), line
    for name, case, wanted, found in zip(names, FOLLOWING, FOLLOWING.values(), columns(project, *names), strict=True):
        assert (types(project)[name], found) == wanted[2:], case
    audited = project.audit("sales")["sales"]
    assert audited["status"] == "equal", audited


@pytest.mark.long
def test_files_of_one_sync_may_have_other_types(folder: Make) -> None:
    """What is refused, or becomes text, would depend on how many files come at once."""
    project = sales(folder)
    names = [f"c{number}" for number in range(len(FOLLOWING))]
    for at, file in enumerate(("a.parquet", "b.parquet")):
        project.put(file, parquet(2 * at, **dict(zip(names, (one[at] for one in FOLLOWING.values()), strict=True))))
    line = project.one("sales")
    assert (line["status"], rejected(project)) == ("synced", 0), line
    for name, case, wanted, found in zip(names, FOLLOWING, FOLLOWING.values(), columns(project, *names), strict=True):
        assert (types(project)[name], found) == wanted[2:], case


GROWN = {
    "a field more": (of([{"a": 1}]), of([{"a": 2, "b": "x"}]), "struct<`a`:bigint,`b`:string>", ["{1, null}", "{2, x}"]),
    "a field less": (of([{"a": 1, "b": 2}]), of([{"b": 3}]), "struct<`a`:bigint,`b`:bigint>", ["{1, 2}", "{null, 3}"]),
    "another order": (
        pa.array([{"a": 1, "b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        pa.array([{"b": "y", "A": 2}], pa.struct([("b", pa.string()), ("A", pa.int64())])),
        "struct<`a`:bigint,`b`:string>",
        ["{1, x}", "{2, y}"],
    ),
    "a field without a value": (
        of([{"a": 1, "b": None}]),
        of([{"a": None, "b": "x"}]),
        "struct<`a`:bigint,`b`:string>",
        ["{1, null}", "{null, x}"],
    ),
    "lists of structs": (
        of([[{"a": 1}]]),
        of([[{"b": 2}, None]]),
        "array<struct<`a`:bigint,`b`:bigint>>",
        ["[{1, null}]", "[{null, 2}, null]"],
    ),
    "a map of structs": (
        of([[("k", {"a": 1})]], pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
        of([[("k", {"b": 2})]], pa.map_(pa.string(), pa.struct([("b", pa.int64())]))),
        "map<string,struct<`a`:bigint,`b`:bigint>>",
        ["{k -> {1, null}}", "{k -> {null, 2}}"],
    ),
    "wider numbers": (of([[1]], pa.list_(pa.int32())), of([[2**40]], pa.list_(pa.int64())), "array<bigint>", ["[1]", f"[{2**40}]"]),
    "wider numbers, then others": (
        of([[2**40]], pa.list_(pa.int64())),
        of([[1]], pa.list_(pa.int32())),
        "array<bigint>",
        [f"[{2**40}]", "[1]"],
    ),
    "wider fields, and more": (
        of([{"a": 1}], pa.struct([("a", pa.int32())])),
        of([{"a": 2**40, "b": 1}]),
        "struct<`a`:bigint,`b`:bigint>",
        ["{1, null}", f"{{{2**40}, 1}}"],
    ),
    "wider decimals": (
        of([Decimal("1.50")], pa.decimal128(10, 2)),
        of([Decimal("1.0625")], pa.decimal128(12, 4)),
        "decimal(12,4)",
        ["1.5000", "1.0625"],
    ),
    "decimals, then whole numbers": (of([Decimal("1.50")], pa.decimal128(10, 2)), of([7]), "decimal(10,2)", ["1.50", "7.00"]),
}


@pytest.mark.long
def test_nested_columns_grow(folder: Make) -> None:
    """A file with one more field in a struct would be refused for ever, as would one with larger numbers in a list."""
    project = sales(folder)
    names = [f"c{number}" for number in range(len(GROWN))]
    for at, file in enumerate(("a.parquet", "b.parquet")):
        project.put(file, parquet(at, **dict(zip(names, (one[at] for one in GROWN.values()), strict=True))))
        line = project.one("sales")
        assert (line["status"], rejected(project)) == ("synced", 0), line
    for name, case, wanted, found in zip(names, GROWN, GROWN.values(), columns(project, *names), strict=True):
        assert (types(project)[name], found) == wanted[2:], case
    assert "field `c0`.`b` (string) was added" in line["message"] and "c6 was array<int> and is array<bigint> now" in line["message"]
    assert project.audit("sales")["sales"]["status"] == "equal"


@pytest.mark.long
def test_a_table_that_is_too_large_to_be_rewritten_refuses_the_file_with_wider_lists(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a terabyte is rewritten for one file, or the sync fails for all files."""
    project = sales(folder)
    project.put("a.parquet", parquet(0, list=of([[1]], pa.list_(pa.int32())), s=of([{"a": 1}])))
    project.one("sales")
    monkeypatch.setattr(as_text, "REWRITTEN_BYTES", 10)
    project.put("b.parquet", parquet(1, list=of([[2**40]]), s=of([{"a": 2}])))
    project.put("c.parquet", parquet(2, list=of([[2]], pa.list_(pa.int32())), s=of([{"b": 2}])))
    line = project.one("sales")
    assert line["status"] == "warning" and "b.parquet: its column list is array<bigint>, and array<int> in the table" in line["message"]
    assert columns(project, "list", "s") == [["[1]", "[2]"], ["{1, null}", "{null, 2}"]], "fields are added to a table of any size"


@pytest.mark.long
def test_a_declared_column_rejects_what_does_not_fit_and_a_text_takes_all(folder: Make) -> None:
    """Otherwise a file is refused for one value, and ``columns:`` helps for no type that it could help for."""
    project = sales(folder, columns={"whole": "bigint", **dict.fromkeys(("number", "day", "none", "list", "price"), "string")})
    project.put(
        "a.parquet",
        parquet(
            0,
            whole=of([1.0, 1.5]),
            number=of([7, 8], pa.int32()),
            day=of([19_723, None], pa.date32()),
            none=NULLS,
            list=of([[1], None]),
            price=of([Decimal("1.50"), Decimal("2.25")], pa.decimal128(10, 2)),
        ),
    )
    line = project.one("sales")
    assert line["status"] == "warning" and "1 row of 1 file did not fit" in line["message"], line
    assert types(project) == {"id": "bigint", "whole": "bigint", **dict.fromkeys(("number", "day", "none", "list", "price"), TEXT)}
    assert columns(project, "whole", "number", "day", "list", "price") == [["1"], ["7"], ["2024-01-01"], ["[1]"], ["1.5"]]
    beside = rejected_table(project.lake, ("landing", "sales")).opened()
    assert beside is not None
    row = beside.to_pyarrow_table().to_pylist()[0]
    assert row["reason"] == "whole is no bigint: 1.5" and '"whole":1.5' in row["line"] and '"price":2.25' in row["line"]


def odd_types() -> bytes:
    """A column of each type that Spark does not read, and beside them the same types in lists and structs."""
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    wide = pa.decimal256(50, 22)
    ids = pa.ExtensionArray.from_storage(pa.uuid(), of([one.bytes, None], pa.binary(16)))
    times = of([1_500_000_000, None], pa.time64("ns"))
    long = of([90_000_000_000, None, -1], pa.int64()).view(pa.time64("us"))
    return parquet(
        0,
        half=of([1.5, None]).cast(pa.float16()),
        wide=of([Decimal("1e-20"), None], wide),
        nanos=of([NANOS + 1000, None], pa.timestamp("ns")),
        zoned=of([NANOS, None], pa.timestamp("ns", "Europe/Berlin")),
        time=of([36_000_000_123, None], pa.time64("us")),
        finer=times,
        long=long.slice(0, 2),
        before=pa.concat_arrays([long.slice(2), long.slice(1, 1)]),
        millis=of([36_000_000, None], pa.time32("ms")),
        ids=ids,
        list=pa.ListArray.from_arrays([0, 2, 2], ids, mask=of([False, True])),
        within=pa.StructArray.from_arrays([times, pa.nulls(2), of([1, 2])], ["t", "n", "i"], mask=of([False, True])),
        map=of([[("a", 1)], None], pa.map_(pa.string(), pa.time64("us"))),
        duration=of([5, None], pa.duration("us")),
        category=of(["x", None]).dictionary_encode(),
        large=of(["y", None], pa.large_string()),
        small=of([7, None], pa.uint8()),
    )


def test_types_that_spark_does_not_read_are_carried(folder: Make) -> None:
    """DuckDB and polars write times, UUIDs and nanoseconds as a matter of course: their files were refused, with no way out."""
    project = sales(folder)
    project.put("a.parquet", odd_types())
    line = project.one("sales")
    assert line["status"] == "synced", line
    assert types(project) == {
        "id": "bigint",
        "half": "float",
        "wide": "string",
        "nanos": "timestamp_ntz",
        "zoned": "timestamp",
        "time": "string",
        "finer": "string",
        "long": "string",
        "before": "string",
        "millis": "string",
        "ids": "string",
        "list": "array<string>",
        "within": "struct<`t`:string,`i`:bigint>",
        "map": "map<string,string>",
        "duration": "bigint",
        "category": "string",
        "large": "string",
        "small": "smallint",
    }
    found = dict(zip(types(project), columns(project, *types(project)), strict=True))
    assert {name: values[1] for name, values in found.items() if name != "id"} == dict.fromkeys(found.keys() - {"id"})
    uid = "00112233-4455-6677-8899-aabbccddeeff"
    assert {name: values[0] for name, values in found.items()} == {
        "id": "0",
        "half": "1.5",
        "wide": "0.0000000000000000000100",
        "nanos": "2024-01-01 00:00:00.000001",
        "zoned": "2024-01-01 00:00:00",
        "time": "10:00:00.000123",
        "finer": "00:00:01.5",
        "long": "25:00:00",
        "before": "-00:00:00.000001",
        "millis": "10:00:00",
        "ids": uid,
        "list": f"[{uid}, null]",
        "within": "{00:00:01.5, 1}",
        "map": "{a -> 00:00:00.000001}",
        "duration": "5",
        "category": "x",
        "large": "y",
        "small": "7",
    }
    assert project.audit("sales")["sales"]["status"] == "equal"


@pytest.mark.long
def test_nanoseconds_are_cut_only_if_that_is_said(folder: Make) -> None:
    """Digits would be lost without a word, or there would be no way to have the file."""
    project = sales(folder)
    at = of([NANOS, None, -1], pa.timestamp("ns"))
    project.put("a.parquet", parquet(0, at=at))
    project.put("b.parquet", parquet(3, at=at.slice(0, 1)))
    line = project.one("sales")
    assert line["status"] == "warning", line
    for part in ("a.parquet", "its column at", "1969-12-31 23:59:59.999999999", "finer_times: cut"):
        assert part in line["message"], line
    assert columns(project, "at") == [["2024-01-01 00:00:00"]]
    project.attributes["finer_times"] = "cut"
    line = project.one("sales")
    assert line["status"] == "synced", line
    assert columns(project, "at") == [["2024-01-01 00:00:00", None, "1969-12-31 23:59:59.999999", "2024-01-01 00:00:00"]]


@pytest.mark.long
@pytest.mark.parametrize(
    "stored",
    [
        {"use_dictionary": False, "column_encoding": {"id": "PLAIN", "x": "BYTE_STREAM_SPLIT"}},
        {"compression": "lz4"},
        {"compression": "brotli"},
        {"use_deprecated_int96_timestamps": True},
    ],
    ids=["split", "lz4", "brotli", "int96"],
)
def test_encodings_that_spark_does_not_read_are_read(folder: Make, stored: dict[str, Any]) -> None:
    """A file that every other reader reads would be refused for how it is stored."""
    project = sales(folder)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1], "x": [7], "at": of([NANOS], pa.timestamp("ns")).cast(pa.timestamp("us"))}), sink, **stored)
    project.put("a.parquet", sink.getvalue().to_pybytes())
    line = project.one("sales")
    assert line["status"] == "synced", line
    assert columns(project, "x", "at") == [["7"], ["2024-01-01 00:00:00"]]


INTERVAL = base64.b85decode(
    "P(e~L6#x|w6%Z^H0u=xi1{DSX009610000002Kfg7!?>S6#^9i6$TXs0003100062004Z7r~nlL89X%r7!71~V{2q$Uvpz<Wo=;<1OOETB>)%#X=EiN02K}u"
    "7!?2*0cj;F02Trn92qPo02~zr85IB-7y@Zz6#y0j7BUtxCI~zj2mt^90000002l}X000000000M04N9n000000000O2mt^90000001*)Y85|V=6#x|i0000c"
    "02~z#85IB-7y)S&02TrkIu<%6I!PQA02Kfg0ssI27Hk#*CI}X602v$@9AtH4Yh+?BX>N37a&}>CUt(-;Z*5;@X>4?5au^M6Z*py6Y-xIBWG!|v02nAlbz^Hp"
    "LLhc!a&u{KZXk9tE-)@JAShyWX>4R5IAk|CF)=h{IWQ?1EF1s;8~^|S5&-}JP(e~L"
)
"""A file of DuckDB with the columns ``id``, and ``i``: an interval of a month, two days and 03:04:05.5. Pyarrow cannot write one."""


@pytest.mark.long
def test_intervals_are_texts_and_stay_bytes_where_a_table_has_them(folder: Make) -> None:
    """An interval would be twelve bytes that nobody can read, or a table that has such bytes would take no file any more."""
    project = folder(containers={"sales": {"glob": "*.parquet"}, "old": {"glob": "old/*.parquet"}})
    project.put("a.parquet", INTERVAL)
    project.put("old/a.parquet", parquet(0, i=of([b"x"])))
    assert project.one("sales")["status"] == project.one("old")["status"] == "synced"
    assert columns(project, "i") == [["1 mon 2 days 03:04:05.5"]]
    project.put("old/b.parquet", INTERVAL)
    line = project.one("old")
    assert line["status"] == "synced", line
    assert sorted(len(value) for (value,) in project.rows("old", "i")) == [1, 12]


@pytest.mark.parametrize(
    ("months", "days", "millis", "text"),
    [
        (0, 0, 0, "00:00:00"),
        (13, 1, 0, "1 year 1 mon 1 day"),
        (24, 2, 3_723_050, "2 years 2 days 01:02:03.05"),
        (0, 0, 360_000_000, "100:00:00"),
    ],
)
def test_intervals_have_the_text_of_postgresql(months: int, days: int, millis: int, text: str) -> None:
    """The same value from a database and from a file would be two texts."""
    assert interval_text(b"".join(part.to_bytes(4, "little") for part in (months, days, millis))) == text
