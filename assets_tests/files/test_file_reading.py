"""Reading real files with a real Spark: what comes through, what is rejected with its line, what is refused with a reason.

Belongs here: each test says what breaks for a user when it fails. Elsewhere: which files are read (``test_model_files``), listing them.
"""

import bz2
import datetime
import gzip
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from assets_tests.files.both_readers import facts, rows_read_here
from assets_tests.harness import long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FileFormat, Limits, encode_path
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import type_text
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.read import FILE, MODIFIED, REJECTED_COLUMNS, FileRows, ReadFile, Reading
from incremental_assets.spark.session import SparkSession, open_session

_numbers = itertools.count()


@pytest.fixture(scope="module")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    with open_session(spark_home, name="test_file_reading") as session:
        yield session


@dataclass
class Read:
    """All of it, collected."""

    columns: dict[str, str]
    refused: Mapping[str, str]
    counts: dict[str, tuple[int, int]]
    good: list[dict[str, Any]]
    bad: list[tuple[str, str, str]]
    logged: list[str]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.good]


@pytest.fixture(scope="module")
def scope(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeScope]:
    scope = LakeScope(str(tmp_path_factory.mktemp("lake")), spark_home, "test_file_reading", lambda _: None)
    with scope.stack:
        yield scope


@pytest.fixture
def read(spark: SparkSession, scope: LakeScope, tmp_path: Path) -> Callable[..., Read]:
    """Writes files into a folder and reads them: ``read({name: bytes}, format, options=…, types=…, known=…)``.

    Where this process can read them without Spark, both results are compared.
    """

    def run(
        files: Mapping[str, bytes | None],
        format: str = "csv",
        *,
        options: Mapping[str, str] | None = None,
        types: Mapping[str, str] | None = None,
        known: Sequence[tuple[str, str]] = (),
        address: type[FolderAddress] = FolderAddress,
        limits: Limits | None = None,
    ) -> Read:
        number = next(_numbers)
        folder, staging = tmp_path / f"in [{number}]", tmp_path / f"st {{{number}}}"
        folder.mkdir()
        asked: list[ReadFile] = []
        for i, (name, data) in enumerate(files.items()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                path.symlink_to(folder / "gone")
            else:
                path.write_bytes(data)
            asked.append(ReadFile(encode_path(name), name, 1_700_000_000_000_000 + i))
        logged: list[str] = []
        rows = FileRows(
            spark,
            address.parse("landing", str(folder)),
            Reading(FileFormat(format), options or {}, types or {}, limits or Limits()),
            asked,
            [Column(*one) for one in known],
            staging,
            logged.append,
        )
        good, bad = rows.good(), rows.bad()
        assert [(f.name, type_text(f.dataType.jsonValue())) for f in good.schema] == [
            (c.name, c.type) for c in (FILE, MODIFIED, *rows.columns)
        ]
        assert [(f.name, type_text(f.dataType.jsonValue())) for f in bad.schema] == [(c.name, c.type) for c in REJECTED_COLUMNS]
        collected = [row.asDict() for row in good.collect()]
        counts = {key: (count.rows, count.rejected) for key, count in rows.counts.items()}
        wrong = any(rejected for _, rejected in counts.values())
        rejected = sorted((row["_file"], row["line"], row["reason"]) for row in bad.collect()) if wrong else []
        assert Counter(row["_file"] for row in collected) == Counter({key: ok for key, (ok, _) in counts.items() if ok})
        assert Counter(key for key, _, _ in rejected) == Counter({key: not_ok for key, (_, not_ok) in counts.items() if not_ok})
        assert set(counts) | set(rows.refused) == {file.key for file in asked}
        assert not set(counts) & set(rows.refused)
        here = rows_read_here(
            scope,
            address.parse("landing", str(folder)),
            Reading(FileFormat(format), options or {}, types or {}, limits or Limits()),
            asked,
            [Column(*one) for one in known],
            tmp_path / f"here{number}",
        )
        assert here is None or facts(here) == facts(rows)
        rows.close()
        assert not staging.exists()
        return Read(
            {column.name: column.type for column in rows.columns},
            rows.refused,
            counts,
            sorted(collected, key=lambda row: json.dumps(row, default=str, sort_keys=True)),
            rejected,
            logged,
        )

    return run


# ---------------------------------------------------------------- names
HOSTILE = [
    "a b.csv",
    "'\".csv",
    "two\nlines.csv",
    "ü😀.csv",
    "100%.csv",
    "%41.csv",
    "a::b.csv",
    "[x]{y}*?.csv",
    "back\\slash\\' OR 1=1 -- .csv",
    "x" * 251 + ".csv",
    os.fsdecode(b"\xff\xfe.csv"),
    "one/same.csv",
    "two/same.csv",
]


def test_each_row_belongs_to_its_file_whatever_the_files_name_is(read: Callable[..., Read]) -> None:
    """Otherwise rows land in another file's partition, where the next sync deletes them; or a file of a strange name stops all others."""
    found = read({name: f"id\n{i}\n".encode() for i, name in enumerate(HOSTILE)})
    assert not found.refused
    assert {row["_file"]: row["id"] for row in found.good} == {encode_path(name): i for i, name in enumerate(HOSTILE)}
    second = next(row for row in found.good if row["_file"] == encode_path(HOSTILE[1]))
    assert second["_file_modified"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 1)


class Elsewhere(FolderAddress):
    """A folder that Spark reads by URL, as it does an object store."""

    @property
    def local(self) -> Path | None:
        return None

    def spark_url(self, path: str) -> str:
        return f"file://{FolderAddress.parse('', self.url).local}/{path}"


@pytest.mark.long
def test_files_of_a_remote_folder_are_distinguished_by_their_urls(read: Callable[..., Read]) -> None:
    """Otherwise a bucket with a space, a percent sign or a star in a name cannot be read, or files mix; there are no links there."""
    names = ["a b.csv", "100%.csv", "%41.csv", "ü[x]{y}*?.csv", "one/same.csv", "two/same.csv", "caps.csv.GZ", "half.csv.gz"]
    files = {name: f"id\n{i}\n".encode() for i, name in enumerate(names)}
    files["caps.csv.GZ"] = gzip.compress(files["caps.csv.GZ"])
    files["half.csv.gz"] = half_a_gzip()
    found = read(files, address=Elsewhere)
    assert {row["_file"]: row["id"] for row in found.good} == {encode_path(name): i for i, name in enumerate(names[:-1])}
    assert list(found.refused) == ["half.csv.gz"]
    assert "half.csv.gz" in found.refused["half.csv.gz"] and "Is it complete" in found.refused["half.csv.gz"]


# ---------------------------------------------------------------- broken files
def half_a_gzip() -> bytes:
    # Its head is whole: only reading all of it tells.
    packed = gzip.compress(b"id\n" + b"".join(b"%d\n" % (i * 7919) for i in range(120_000)))
    return packed[: len(packed) * 2 // 3]


def test_broken_files_are_named_and_the_others_read(read: Callable[..., Read]) -> None:
    """Otherwise one half copied file stops a folder, or worse: its first half counts as the file. More of them than there are rounds."""
    whole = b"id\n1\n2\n"
    compressed = zstandard.ZstdCompressor().compress(b"id\n" + os.urandom(60_000).hex().encode() + b"\n")
    files: dict[str, bytes | None] = {
        "plain.csv": whole,
        "caps.CSV.GZ": gzip.compress(whole),
        "b.csv.bz2": bz2.compress(whole),
        "z.csv.zst": zstandard.ZstdCompressor().compress(b"id\n1\n") + zstandard.ZstdCompressor().compress(b"2\n"),
        "half.csv.zst": compressed[: len(compressed) // 2],
        "gone.csv": None,
        "no.csv.gz": b"this is no gzip",
        **{f"half{i}.csv.gz": half_a_gzip() for i in range(5)},
    }
    found = read(files)
    assert found.counts == {"plain.csv": (2, 0), "caps.CSV.GZ": (2, 0), "b.csv.bz2": (2, 0), "z.csv.zst": (2, 0)}
    assert found.columns == {"id": "bigint"}
    for key, why in found.refused.items():
        assert key in why
    assert "middle of a zst frame" in found.refused["half.csv.zst"]
    assert "is a link to what is not there" in found.refused["gone.csv"]
    assert "end-of-stream" in found.refused["half3.csv.gz"]
    assert sum("looked at by itself" in line for line in found.logged) <= 1


def test_a_file_that_vanishes_while_it_is_read_is_no_failure(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a folder in which somebody tidies up fails again and again. It is there when its header is read, and gone after: it is read
    as it was, as the descriptor that Spark reads keeps it, and the next sync finds it gone."""
    original = FileRows._build
    for name, content in (("a.csv", b"id\n1\n"), ("b.csv", b"id\n2\n")):
        (tmp_path / name).write_bytes(content)

    def build(self: FileRows) -> None:
        (tmp_path / "b.csv").unlink(missing_ok=True)
        original(self)

    monkeypatch.setattr(FileRows, "_build", build)
    files = [ReadFile(name, name, 0) for name in ("a.csv", "b.csv", "c.csv")]
    rows = FileRows(spark, FolderAddress.parse("landing", str(tmp_path)), Reading(FileFormat.CSV), files, [], tmp_path / "staging")
    assert {key: count.rows for key, count in rows.counts.items()} == {"a.csv": 1, "b.csv": 1}
    assert "No such file" in rows.refused["c.csv"]
    rows.close()


def test_a_file_of_another_kind_of_type_leaves_the_other_files_alone(read: Callable[..., Read]) -> None:
    """Otherwise one file with a struct in the place of a number fails all files beside it, and no message says which file it is."""
    found = read({"good.parquet": parquet(x=pa.array([7])), "within.parquet": parquet(x=pa.array([{"a": 1}]))}, "parquet")
    assert found.counts == {"good.parquet": (1, 0)} and found.columns == {"x": "bigint"}
    for part in ("within.parquet: its column x is struct<", "bigint in the table", "columns: {x: string}"):
        assert part in found.refused["within.parquet"]


def test_files_without_rows_are_no_error(read: Callable[..., Read]) -> None:
    """Otherwise an empty file, which many exports leave behind, fails a sync each time."""
    found = read({"zero.csv": b"", "white.csv": b" \r\n\n", "header.csv": b"id,name\n", "gz.csv.gz": gzip.compress(b"")})
    assert found.counts == {"zero.csv": (0, 0), "white.csv": (0, 0), "header.csv": (0, 0), "gz.csv.gz": (0, 0)}
    assert found.columns == {}, "a column without any value has no type yet"
    assert not read({}).columns
    only = read({"zero.csv": b""}, known=[("id", "bigint")])
    assert (only.columns, only.good, only.bad) == ({"id": "bigint"}, [], [])
    assert read({"zero.json": b"\n"}, "json").counts == {"zero.json": (0, 0)}
    assert "empty" in read({"zero.parquet": b""}, "parquet").refused["zero.parquet"]


# ---------------------------------------------------------------- CSV: cells
def test_csv_is_read_by_each_files_own_header(read: Callable[..., Read]) -> None:
    """Otherwise amounts land in the names' column as soon as somebody reorders an export. Also: a byte order mark, CRLF, quotes,
    comments."""
    found = read(
        {
            "a.csv": b'\xef\xbb\xbfid,name,"odd, `name`"\r\n1,"a ""quoted"", one",x\r\n2,C:\\dir,"y\\"\r\n',
            "b.csv": "name,ID,more\nü,3,\n".encode(),
            "c.csv": b'ID,,name\n4,z,5" pipe\n',
        }
    )
    assert found.columns == {"id": "bigint", "name": "string", "odd, `name`": "string", "_c1": "string"}
    rows = {row["id"]: row for row in found.good}
    assert {i: row["name"] for i, row in rows.items()} == {1: 'a "quoted", one', 2: "C:\\dir", 3: "ü", 4: '5" pipe'}
    assert (rows[2]["odd, `name`"], rows[4]["_c1"]) == ("y\\", "z")
    assert not found.bad and not found.refused


def test_new_columns_get_a_type_only_where_all_texts_are_of_it(read: Callable[..., Read]) -> None:
    """Otherwise leading zeros of postal codes are gone for ever, or the type depends on which file came first."""
    names = ["yes", "n", "zip", "x", "day", "local", "at", "empty", "said", "mixed"]
    one = ["true", "1", "007", "1", "2024-02-29", "2024-01-01 10:00:00", "2024-01-01T10:00:00Z", "", "5", "1"]
    two = ["false", "-20", "12", "0.5", "2024-03-01", "2024-01-01T10:00:00.123456", "2024-01-01T10:00:00+02:00", "", "", "2024-01-01"]
    found = read(
        {f"{i}.csv": "\n".join(map(",".join, (names, row))).encode() for i, row in enumerate((one, two))}, types={"SAID": "decimal(9, 2)"}
    )
    types = ["boolean", "bigint", "string", "double", "date", "timestamp_ntz", "timestamp", None, "decimal(9,2)", "string"]
    assert found.columns == {name: type_ for name, type_ in zip(names, types, strict=True) if type_ is not None}
    assert sorted(found.column("zip")) == ["007", "12"]
    assert sorted(found.column("x")) == [0.5, 1.0]
    assert sorted(found.column("local")) == [datetime.datetime(2024, 1, 1, 10), datetime.datetime(2024, 1, 1, 10, 0, 0, 123456)]
    assert sorted(found.column("at")) == [datetime.datetime(2024, 1, 1, 8), datetime.datetime(2024, 1, 1, 10)]


FITS = {
    "bigint": (["8", " 7 ", "-0", "-9223372036854775808"], ["1.5", "9223372036854775808", "1e3", "abc", "7L", "007", "-07", "+7"]),
    "int": (["2147483647"], ["2147483648"]),
    "double": (
        ["1e5", "-.5", "NaN", "9007199254740992", "0.30000000000000004", "6.666666666666667e-06"],
        ["1d", "1e400", "9007199254740993", "0x1p3", "1,5", "123456789.123456789", "01.5", "+1.5"],
    ),
    "decimal(5,2)": (
        ["1.50", "1.500", ".5", "1e2", "999.99"],
        ["1.005", "1000", "1.2345e1", "x", "1.00000000000000000001e0", "01.5", "+.5"],
    ),
    "boolean": (["true", "FALSE"], ["maybe", "1", "t", "no"]),
    "date": (["2024-02-29", " 2024-01-01 "], ["2023-02-29", "2024-01-01 10:00:00", "2024-1-1", "2024"]),
    "timestamp_ntz": (["2024-01-01T10:00:00.123456", "2024-01-01"], ["2024-01-01 10:00:00Z", "2024-01-01 10:00:00.1234567", "10:00"]),
    "timestamp": (["2024-01-01 10:00:00+01:00", "2024-01-01T10:00:00Z"], ["2024-01-01 10:00:00", "2024-01-01"]),
    "string": (["\\' OR 1=1", "é"], []),
}


def test_a_cell_is_taken_only_where_nothing_of_it_is_lost(read: Callable[..., Read]) -> None:
    """Otherwise 1.5 becomes 1, a time of day vanishes, a large number becomes another one; or good rows are thrown out. The line is
    kept."""
    columns = [(f"c{i}", type_) for i, type_ in enumerate(FITS)]
    header = ",".join(["tag", *(name for name, _ in columns)])
    lines: list[str] = []
    for i, (good, bad) in enumerate(FITS.values()):
        for fits, texts in (("good", good), ("bad", bad)):
            lines += [
                ",".join([f"{fits}:{i}:{j}", *(f'"{text}"' if k == i else "" for k in range(len(FITS)))]) for j, text in enumerate(texts)
            ]
    found = read({"a.csv": "\n".join([header, *lines]).encode()}, known=[("tag", "string"), *columns])
    assert sorted(row["tag"] for row in found.good) == sorted(tag for line in lines if (tag := line.split(",")[0]).startswith("good"))
    assert sorted(line for _, line, _ in found.bad) == sorted(line for line in lines if line.startswith("bad"))
    reasons = {line.split(",")[0]: reason for _, line, reason in found.bad}
    assert reasons["bad:0:3"] == "c0 is no bigint: abc"
    by_tag = {row["tag"]: row for row in found.good}
    assert (by_tag["good:0:0"]["c0"], by_tag["good:0:2"]["c0"]) == (8, 0)
    assert by_tag["good:3:0"]["c3"] == Decimal("1.50")
    assert by_tag["good:8:0"]["c8"] == "\\' OR 1=1"


@pytest.mark.long
def test_lines_that_are_not_rows_are_rejected_with_their_text(read: Callable[..., Read]) -> None:
    """Otherwise rows are padded with NULL or cut, or half of a cell of two lines passes for the cell, or bytes turn into question marks."""
    text = b'id,note\n1,fine\n2\n3,a,b\n4,"first half\nsecond half",5\n6,caf\xe9\n'
    found = read({"a.csv": text}, known=[("id", "bigint"), ("note", "string")])
    assert found.column("note") == ["fine"]
    assert [line for _, line, _ in found.bad] == ["2", "3,a,b", '4,"first half\nsecond half",5', "6,caf\ufffd"]
    reasons = {line: reason for _, line, reason in found.bad}
    assert "2 cells" in reasons["2"] and "encoding" in reasons["6,caf\ufffd"]

    latin = read(
        {"a.csv": "id,café\n1,ü\n".encode("latin-1"), "b.csv.gz": gzip.compress("id,café\n2,€\n".encode("cp1252"))},
        options={"encoding": "windows-1252"},
    )
    assert sorted(latin.column("café")) == ["ü", "€"]
    assert read({"a.csv": "id,x\n1,ü\n".encode("utf-16")}, options={"encoding": "UTF-16"}).column("x") == ["ü"]


# ---------------------------------------------------------------- CSV: which files are of this container
def test_csv_files_that_do_not_fit_the_container_are_refused_with_a_remedy(read: Callable[..., Read]) -> None:
    """Otherwise a file of another kind, or of another delimiter, fills the table with columns called ``1;Smith`` and NULLs."""
    found = read(
        {
            "good.csv": b"id,name\n1,a\n",
            "twice.csv": b"id,Name,NAME\n1,a,b\n",
            "other.csv": b"x;y\n1;2\n",
            "ours.csv": b"id,_file\n1,a\n",
            "more.csv": b"Id,extra\n2,b\n",
            "latin.csv": "id,größe\n1,2\n".encode("latin-1"),
        },
        known=[("id", "bigint"), ("name", "string")],
    )
    assert found.counts == {"good.csv": (1, 0), "more.csv": (1, 0)}
    assert found.columns == {"id": "bigint", "name": "string", "extra": "string"}
    for key, words in {"twice.csv": "twice", "other.csv": "sep", "ours.csv": "_file", "latin.csv": "encoding"}.items():
        assert key in found.refused[key] and words in found.refused[key], found.refused[key]


@pytest.mark.long
def test_the_most_common_header_determines_the_columns_of_a_new_table(read: Callable[..., Read]) -> None:
    """Otherwise the first file of a folder, a stray one, decides what the table is; of as many, the oldest."""
    found = read({"stray.csv": b"p,q\nu,v\n", "a.csv": b"id,name\nx,a\n", "b.csv": b"id,name\ny,b\n", "c.csv": b"id,size\nz,L\n"})
    assert list(found.refused) == ["stray.csv"]
    assert set(found.columns) == {"id", "name", "size"}
    assert list(read({"a.csv": b"p\nu\n", "b.csv": b"q\nv\n"}).refused) == ["b.csv"]


@pytest.mark.long
def test_another_delimiter_or_a_missing_header_is_reported(read: Callable[..., Read]) -> None:
    """Otherwise the first row of each file becomes the names of columns, and nobody sees it before the numbers are wrong."""
    semicolons = {"a.csv": b"id;name\n1;a,b\n"}
    assert "options: {sep: ';'}" in read(semicolons).refused["a.csv"]
    assert read(semicolons, options={"sep": ";"}).column("name") == ["a,b"]
    assert read({"a.csv": b"id||name\n1||x\n"}, options={"delimiter": "||"}).column("name") == ["x"]
    assert read({"a.tsv": b"id\tname\n1\tx y\n"}, "tsv").column("name") == ["x y"]
    headless = {"a.csv": b"1,Smith\n2,Jones\n"}
    assert "header: 'false'" in read(headless).refused["a.csv"] and "header: 'true'" in read(headless).refused["a.csv"]
    assert read(headless, options={"header": "true"}).columns == {"1": "bigint", "Smith": "string"}
    without = read({**headless, "wide.csv": b"3,x,y\n"}, options={"header": "false"}, known=[("id", "bigint"), ("name", "string")])
    assert (sorted(without.column("name")), list(without.refused)) == (["Jones", "Smith"], ["wide.csv"])
    assert read(headless, options={"header": "false"}).columns == {"c0": "bigint", "c1": "string"}


def test_wrong_options_are_reported_and_refuse_no_file(read: Callable[..., Read]) -> None:
    """Otherwise a slip in the YAML is told as a hundred broken files, or the option is ignored without a word."""
    files = {"a.csv": b"id,name\n1,NA\n"}
    for options, word in (
        ({"quote": "ab"}, "quote"),
        ({"maxColumns": "x"}, "maxColumns"),
        ({"encoding": "nonsense"}, "nonsense"),
        ({"ignoreCorruptFiles": "true"}, "ignoreCorruptFiles"),
        ({"pathGlobFilter": "*.x"}, "pathGlobFilter"),
    ):
        with pytest.raises(ConfigurationError, match=word):
            read(files, options=options)
    with pytest.raises(ConfigurationError, match="monney"):
        read(files, types={"id": "bigint", "name": "monney"})
    assert read(files, options={"nullValue": "NA"}, known=[("name", "string")]).column("name") == [None]
    days = read({"a.csv": b"d\n31.12.2024\n2024-12-31\n"}, options={"dateFormat": "dd.MM.yyyy"}, types={"d": "date"})
    assert (days.column("d"), len(days.bad)) == ([datetime.date(2024, 12, 31)], 1)


# ---------------------------------------------------------------- JSON, text
@pytest.mark.long
def test_json_lines_lose_no_key_and_no_digit(read: Callable[..., Read]) -> None:
    """Otherwise a key of one file only, a nested object or a number too large for its column is lost without a word."""
    found = read(
        {
            "a.jsonl": b'{"id": 1, "n": 1.5, "s": "007", "nested": {"b": [1, {"c": null}]}, "none": null, "it\'s `x`": true}\n\n'
            b'{"id": 2, "n": 3}\n',
            "b.json": b'{"ID": 3, "s": 5, "big": 12345678901234567890}\n{"id": 4\n[1]\n{"id": 5} {"id": 6}\n{"id": 7, "id": 8}\nnope\n'
            b'{"id": 9, "Id": 1}\n{"id": 10, "_file": 1}\n{"id": 11} x\n{"id": 12}, {"id": 13}\n[{"id": 14}, {"id": 15}]\n{\'id\': 16}\n',
        },
        "json",
    )
    types = {"big": "decimal(20,0)", "id": "bigint", "it's `x`": "boolean", "n": "double"}
    types |= {"nested": "string", "s": "string"}
    assert found.columns == types
    rows = {row["id"]: row for row in found.good}
    assert sorted(rows) == [1, 2, 3, 5, 6, 14, 15, 16]
    assert json.loads(rows[1]["nested"]) == {"b": [1, {"c": None}]}
    assert (rows[1]["s"], rows[3]["s"], rows[2]["n"], rows[1]["it's `x`"]) == ("007", "5", 3.0, True)
    assert rows[3]["big"] == Decimal("12345678901234567890")
    assert found.counts == {"a.jsonl": (2, 0), "b.json": (6, 8)}
    assert {'{"id": 11} x', '{"id": 12}, {"id": 13}', '{"id": 4'} < {line for _, line, _ in found.bad}

    known = [("id", "bigint"), ("amount", "decimal(20,2)"), ("day", "date")]
    lines = b'{"id": 1, "amount": 123456789012345678.91, "day": "2024-01-02"}\n{"id": 2, "amount": 1.005}\n{"id": 3.5}\n{"id": {"x": 1}}\n'
    typed = read({"a.json": lines}, "json", known=known)
    assert typed.good[0]["amount"] == Decimal("123456789012345678.91") and typed.good[0]["day"] == datetime.date(2024, 1, 2)
    assert [reason.partition(":")[0] for _, _, reason in typed.bad] == ["amount is no decimal(20,2)", "id is no bigint", "id is no bigint"]
    nested = read({"a.json": b'{"a": [1, 2]}\n{"a": ["x"]}\n{"a": null}\n'}, "json", types={"a": "array<int>"})
    assert sorted(nested.column("a"), key=str) == [None, [1, 2]] or sorted(nested.column("a"), key=str) == [[1, 2], None]
    assert [reason.partition(":")[0] for _, _, reason in nested.bad] == ["a is no array<int>"]


EXACT = [
    ("1234567890123456.78", "decimal(22,2)", Decimal("1234567890123456.78")),
    ("1" * 42, "string", "1" * 42),
    ("1e400", "string", "1e400"),
    ("0.30000000000000004", "double", 0.30000000000000004),
    ("5.684341886080802E-14", "double", 5.684341886080802e-14),
    ("0.123456789123456789", "decimal(38,18)", Decimal("0.123456789123456789")),
    ("1.10", "double", 1.1),
    ("NaN", "double", float("nan")),
    ("-0", "double", -0.0),
    ("9007199254740993", "bigint", 9007199254740993),
    ("10000000000000000000", "decimal(20,0)", Decimal("10000000000000000000")),
    ('"1.10"', "string", "1.10"),
    ('{ "b": 1.10,"a" : [1e5, "\\u00e9"] }', "string", '{ "b": 1.10,"a" : [1e5, "\\u00e9"] }'),
    ('{"a": 1, "a": 2}', "string", '{"a": 1, "a": 2}'),
]


@pytest.mark.long
def test_values_of_json_are_those_of_the_file(read: Callable[..., Read]) -> None:
    """Otherwise amounts are rounded, numbers become infinite, and nested values are others than those that were written."""
    lines = "".join(f'{{"id": {i}, "c{i}": {text}}}\n' for i, (text, _, _) in enumerate(EXACT))
    found = read({"a.json": lines.encode()}, "json")
    rows = {row["id"]: row for row in found.good}
    for i, (text, type_, value) in enumerate(EXACT):
        assert (found.columns[f"c{i}"], repr(rows[i][f"c{i}"])) == (type_, repr(value)), text

    # In a column of doubles, a number that no double gives back is rejected and not rounded; that the YAML has declared takes it.
    lines = "".join(f'{{"x": {text}}}\n' for text, type_, _ in EXACT if "{" not in text)
    known = read({"a.json": lines.encode()}, "json", known=[("x", "double")])
    assert sorted(map(repr, known.column("x"))) == sorted(
        map(repr, [0.30000000000000004, 5.684341886080802e-14, 1.1, 1.1, float("nan"), -0.0, 1e19])
    )
    assert all(reason.startswith("x is no double: ") for _, _, reason in known.bad) and len(known.bad) == 5
    mixed = read({"a.json": b'{"s": 1.10}\n{"s": "x"}\n{"s": true}\n'}, "json")
    assert sorted(mixed.column("s")) == ["1.10", "true", "x"]


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", *long("utf-16-be", "utf-32", "utf-8-sig")])
def test_json_of_any_unicode_encoding_is_read(read: Callable[..., Read], encoding: str) -> None:
    """Otherwise what PowerShell and SQL Server export is rejected line by line."""
    lines, whole = '{"id": 1, "s": "ü"}\n{"id": 2}\n', '[{"id": 3},\n {"id": 4, "s": "😀"}]'
    files = {"a.json": lines.encode(encoding), "b.json.gz": gzip.compress(whole.encode(encoding))}
    found = read(files, "json")
    assert sorted((row["id"], row["s"]) for row in found.good) == [(1, "ü"), (2, None), (3, None), (4, "😀")], found.bad


@pytest.mark.long
def test_json_files_with_one_array_or_one_object_are_read(read: Callable[..., Read]) -> None:
    """Otherwise what most interfaces export is rejected line by line; beside files of lines, in one folder."""
    found = read(
        {
            "array.json": b'[{"id": 1},\n {"id": 2, "x": {"y": 1}}, 3]\n',
            "one.json": json.dumps({"id": 3, "x": {"y": [1]}}, indent=2).encode(),
            "lines.json.gz": gzip.compress(b'{"id": 4}\n{"id": 5}\n'),
            "objects.json": b'{"id": 6,\n "x": 1}\n{"id": 7,\n "x": 2}\n',
            "none.json": b"[]",
            "half.json": b'[{"id": 8},\n{"id"',
        },
        "json",
    )
    assert sorted(found.column("id")) == [1, 2, 3, 4, 5, 6, 7]
    assert found.counts["none.json"] == (0, 0)
    assert found.counts["array.json"] == (2, 1)
    assert found.counts["half.json"] == (0, 1)
    assert ("array.json", "3") in [(file, line) for file, line, _ in found.bad]


@pytest.mark.long
def test_files_beyond_a_limit_are_refused_and_the_others_read(read: Callable[..., Read]) -> None:
    """Otherwise one file whose keys are data makes thousands of columns, or fails all files of its container."""
    limits = Limits(columns=4, line_bytes=1000)
    keys = b'{"id": 1, "a": 1}\n'
    files = {
        "1.json": keys,
        "many.json": b"".join(b'{"id": 2, "k%d": 1}\n' % i for i in range(50)),
        "3.json": b'{"id": 3, "b": 2, "c": 3}\n',
        "one_too_many.json": b'{"id": 4, "d": 4}\n',
        "long.json": b'{"id": 5, "a": "' + b"x" * 1000 + b'"}\n',
        "array.json": b"[" + keys * 60 + b"]",
        "6.json": keys,
    }
    found = read(files, "json", limits=limits)
    assert set(found.counts) == {"1.json", "3.json", "6.json"} and set(found.columns) == {"id", "a", "b", "c"}
    assert "many.json: it has 51 keys, more than max_columns (4)" in found.refused["many.json"]
    assert "5 keys with those of the table and of other files" in found.refused["one_too_many.json"]
    assert all("max_line_bytes" in found.refused[name] for name in ("long.json", "array.json"))
    known = [("id", "bigint"), ("a", "bigint"), ("b", "bigint"), ("c", "bigint"), ("e", "bigint")]  # a limit that came later
    assert set(read({"1.json": keys, "2.json": b'{"f": 1}\n'}, "json", limits=limits, known=known).counts) == {"1.json"}
    csv = {"1.csv": b"id,a\n1,1\n", "2.csv": b"id,a\n2,2\n", "3.csv": b"id,b,c\n3,1,1\n", "4.csv": b"id,d\n4,4\n", "5.csv": b"id,e,f,g,h\n"}
    found = read(csv, limits=limits)
    assert set(found.counts) == {"1.csv", "2.csv", "3.csv"} and set(found.refused) == {"4.csv", "5.csv"}
    unclosed = b'id,a\n1,"' + b"x\n" * 2000
    quoted = read({"1.csv": b"id,a\n1,1\n", "open.csv": unclosed}, options={"multiLine": "true"}, limits=limits)
    assert set(quoted.counts) == {"1.csv"} and "open.csv" in quoted.refused, quoted


def test_each_line_of_a_text_file_is_a_row(read: Callable[..., Read]) -> None:
    """Otherwise lines that look like something else are cut or trimmed."""
    found = read({"a.txt": b'  one, "two\n\nthree\r\n', "b.txt.gz": gzip.compress(b"\xff\nfour")}, "text")
    assert sorted(found.column("value")) == ["", '  one, "two', "four", "three"]
    assert [(file, line) for file, line, _ in found.bad] == [("b.txt.gz", "\ufffd")]


# ---------------------------------------------------------------- Parquet, Avro
def parquet(**columns: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, use_dictionary=False)
    return sink.getvalue().to_pybytes()


def test_parquet_files_keep_their_types_and_widen_those_of_the_table(read: Callable[..., Read]) -> None:
    """Otherwise local times are shifted, a column that got wider fails for ever, or one file of another type spoils the table."""
    local, ids = datetime.datetime(1600, 1, 1, 1, 2, 3, 4), pa.array([1, 2], pa.int32())
    broken = bytearray(parquet(id=pa.array(range(100_000), pa.int64())))
    broken[1000:200_000] = os.urandom(199_000)
    found = read(
        {
            "a.parquet": parquet(
                id=ids,
                at=pa.array([local] * 2, pa.timestamp("us")),
                z=pa.array([local] * 2, pa.timestamp("us", "UTC")),
                s=pa.array([{"x": 1}] * 2),
            ),
            "b [1].parquet": parquet(ID=pa.array([2**40], pa.int64()), d=pa.array([Decimal("1.50")], pa.decimal128(5, 2))),
            "text.parquet": parquet(id=pa.array(["x"])),
            "no.parquet": b"PAR1 this is none",
            "ours.parquet": parquet(id=ids, _file=ids),
            "pages.parquet": bytes(broken),
        },
        "parquet",
        known=[("id", "int"), ("old", "date")],
    )
    assert found.columns == {
        "id": "bigint",
        "old": "date",
        "at": "timestamp_ntz",
        "z": "timestamp",
        "s": "struct<`x`:bigint>",
        "d": "decimal(5,2)",
    }
    assert sorted(found.column("id")) == [1, 2, 2**40]
    first = next(row for row in found.good if row["id"] == 1)
    assert (first["at"], first["z"], first["s"]["x"], first["old"]) == (local, local, 1, None)
    assert set(found.refused) == {"no.parquet", "ours.parquet", "pages.parquet"}
    assert found.bad == [("text.parquet", '{"id":"x"}', "id is no bigint: x")], "where columns do not widen by values, as in an audit"
    assert "_file" in found.refused["ours.parquet"]


def test_avro_without_its_package_names_the_package(read: Callable[..., Read]) -> None:
    """Otherwise the failure speaks of a data source that nobody has asked for."""
    assert "org.apache.spark:spark-avro" in read({"a.avro": b"Obj\x01avro.schema"}, "avro").refused["a.avro"]
