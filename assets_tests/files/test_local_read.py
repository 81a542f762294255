"""CSV that is read in this process: it has to give the same rows as Spark's reader, of odd files too. Otherwise a row is lost.

Real files, real Spark. ``test_file_reading`` compares both readers in each of its cases as well.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assets_tests.files.both_readers import read_by_both, rows_read_here
from assets_tests.harness import long
from incremental_assets.core.files import FileFormat, Limits
from incremental_assets.core.schema import Column
from incremental_assets.delta.engine import FILES_BY
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.attempt import Attempt
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.local_read import RowsReadHere
from incremental_assets.files.readers import local
from incremental_assets.files.readers.reading import ReadFile, Reading

_numbers = itertools.count()
TYPES = ("bigint", "int", "smallint", "double", "decimal(9,2)", "boolean", "date", "timestamp_ntz", "timestamp", "string")
CELLS = [
    "", "0", "1", "-7", "007", "-0", "+3", " 5", "6 ", "123456789012345678", "1234567890123456789", "9999999999", "40000", "1.5", "-0.25",
    "1.50", "1.005", ".5", "5.", "1e5", "123456789.123456", "1234567890123.456", "NaN", "Infinity", "1d", "0x1A", "1_000", "true", "false",
    "TRUE", "t", "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2024-04-31", "0999-01-01", "0001-01-01", "9999-12-31",
    "10000-01-01", "2024-1-1", "2024-01-01 10:00:00", "2024-01-01T10:00:00.123456", "2024-01-01 24:00:00",
    "2024-01-01 23:59:60", "1582-10-10 00:00:00",
    "2024-01-01 10:00", "2024-01-01T10:00:00Z", "2024-01-01 10:00:00+02:00", "2024-01-01 10:00:00-17:59", "2024-01-01 10:00:00+18:00",
    "2024-01-01 10:00:00.1234567", "NULL", "null", "\\N", "\\", "a\\", "\\\"", '"quoted"', '"a,b"', '"a ""b"" c"', '""', '""""', '" x "',
    ' "x"', '"x" ', '"x"y', 'x"y"', '"open', 'open"', '"a;b\t|"', "'single'", "ü", "😀", "\u2028", "\u0085x", "\ufeff", "\ufffd", "\xa0",
    "\x00", "\x01", "\x0b", "\x1f", "\x7f", "a\rb", "\r", "#comment", "x" * 300, "a\tb", " ", "  ",
]  # fmt: skip
"""Texts of cells as they stand in a file."""
ENDS = ["\n", "\n", "\n", "\r\n", "\n\n", "\n \n", "\r", "\n\r\n", "\n,,\n"]


@pytest.fixture(scope="module")
def scope(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeScope]:
    scope = LakeScope(str(tmp_path_factory.mktemp("lake")), spark_home, "test_local_read", lambda _: None)
    with scope.stack:
        yield scope


@pytest.fixture
def both(scope: LakeScope, tmp_path: Path) -> Callable[..., RowsReadHere | None]:
    """Reads files by both readers, and asserts that the results are equal. Returns that of this process."""

    def run(files: Mapping[str, bytes], known: Sequence[Column] = (), **more: Any) -> RowsReadHere | None:
        return read_by_both(scope, tmp_path / str(next(_numbers)), files, known, **more)

    return run


USUAL = {
    "bigint": ["0", "-7", "123456789012345678"], "int": ["1", "-123456789"], "smallint": ["1", "-1234"], "double": ["1.5", "-3", "0.25"],
    "decimal(9,2)": ["1.50", "-7", "1234567.8"], "boolean": ["true", "false"], "date": ["2024-02-29", "1000-01-01", "9999-12-31"],
    "timestamp_ntz": ["2024-01-01 10:00:00", "2024-01-01T23:59:59.123456"],
    "timestamp": ["2024-01-01 10:00:00Z", "1582-10-10T10:00:00+02:30"],
    "string": ["a", "ü", '"a, b"', '"a ""b"""', "x y", "'"],
}  # fmt: skip
"""Texts that are most of the cells of a column, by its type."""


def odd_line(chance: random.Random, columns: Sequence[Column]) -> str:
    """A line of which most cells are usual, and one in seven lines has another number of cells."""
    cells = [chance.choice(["", *USUAL[column.type]] if chance.random() < 0.9 else CELLS) for column in columns]
    return ",".join([cells, cells, cells, cells, cells, cells, chance.choice([[], cells[1:], [*cells, "x"]])][chance.randrange(7)])


def odd_file(chance: random.Random, columns: Sequence[Column], lines: int) -> bytes:
    """A file of odd lines with odd ends, and some bytes that are not UTF-8."""
    text = "".join(odd_line(chance, columns) + chance.choice(ENDS) for _ in range(lines))
    names = [column.name for column in columns]
    data = ",".join(names).encode() + chance.choice([b"\n", b"\r\n"]) + text.encode()
    for _ in range(chance.choice([0, 3])):
        at = chance.randrange(len(names) * 8, len(data))
        data = data[:at] + chance.choice([b"\xff", b"\xe4", b"\xc3"]) + data[at:]
    data += b'x"\n'  # a file that ends within quotes is read by Spark alone
    return (b"\xef\xbb\xbf" if chance.random() < 0.2 else b"") + (data if chance.random() < 0.5 else data.rstrip(b"\n"))


def compare_odd_files(both: Callable[..., RowsReadHere | None], seed: int) -> None:
    chance = random.Random(seed)
    known = [Column(f"c{i}", chance.choice(TYPES)) for i in range(chance.choice([1, 3, 6]))]
    files = {f"{i}.csv": odd_file(chance, chance.sample(known, len(known)), 600) for i in range(3)}
    assert both(files, known) is not None


@pytest.mark.parametrize("seed", range(3))
def test_odd_lines_come_out_as_spark_reads_them(both: Callable[..., RowsReadHere | None], seed: int) -> None:
    compare_odd_files(both, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_odd_lines_come_out_as_spark_reads_them(both: Callable[..., RowsReadHere | None], seed: int) -> None:
    compare_odd_files(both, seed)


def test_each_cell_comes_out_as_spark_reads_it_in_a_column_of_each_type(both: Callable[..., RowsReadHere | None]) -> None:
    """Each odd text once in a column of each type: otherwise a number is another one in the table, or a row is rejected that was not."""
    known = [Column("tag", "string"), *(Column(f"c{i}", type_) for i, type_ in enumerate(TYPES))]
    lines = [",".join(c.name for c in known)]
    for i, j in itertools.product(range(len(CELLS)), range(len(TYPES))):
        lines.append(",".join([f"{i}:{j}", *(CELLS[i] if k == j else "" for k in range(len(TYPES)))]))
    assert both({"a.csv": "\n".join(lines).encode()}, known) is not None


FORMS = [
    ["true", "false"], ["0", "-12", "999999999999999999"], ["0.5", "-3", "1234567890.12345"], ["2024-02-29", "1000-01-01"],
    ["2024-01-01 10:00:00", "2024-01-01T10:00:00.5"], ["2024-01-01 10:00:00Z", "2024-01-01T10:00:00-05:30"], ["a", "ü"], [""],
]  # fmt: skip


def files_of_new_columns(chance: random.Random) -> dict[str, bytes]:
    """Three files of columns of different forms, with odd texts that come early, late, and in other files."""
    names = [f"c{i}" for i in range(24)]
    columns = [list(chance.choice(FORMS)) for _ in names]
    rows = [[chance.choice([*texts, texts[0], ""]) for texts in columns] for _ in range(300)]
    for _ in range(4):
        rows[chance.choice([0, 150, 299])][chance.randrange(len(names))] = chance.choice([c for c in CELLS if not set(c) & set(',"\r')])
    rows[0][0] = rows[0][0] or "x"
    return {f"{i}.csv": "\n".join(map(",".join, (names, *rows[i * 100 : i * 100 + 100]))).encode() for i in range(3)}


@pytest.mark.parametrize("seed", [0, *long(1, 2)])
def test_new_columns_get_the_types_that_spark_gives_them(both: Callable[..., RowsReadHere | None], seed: int) -> None:
    """Otherwise the type of a column depends on which reader has seen the first files."""
    chance = random.Random(seed)
    # Files of which an odd text would change a type are left to Spark, so that there is nothing to compare.
    assert any(both(files_of_new_columns(chance)) is not None for _ in range(10))


def test_a_type_that_the_beginning_suggests_does_not_hold_for_what_follows(
    both: Callable[..., RowsReadHere | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first block of a large file decides, and texts further down are rejected or lost."""
    monkeypatch.setattr(local, "BLOCK", 1000)
    monkeypatch.setattr(local, "FEW_BYTES", 10)
    monkeypatch.setattr(local, "MOST_KEPT_BYTES", 0)  # a file that is kept whole is one block
    lines = [f"{i},{i},," for i in range(2000)]
    lines[1500] = "x,1.5,late,2024-01-01"
    found = both({"a.csv": "\n".join(["id,n,s,d", *lines]).encode()})
    assert found is not None
    assert [column.type for column in found.columns] == ["string", "double", "string", "date"]
    assert found.counts["a.csv"].rows == 2000
    # A text whose zeros would be lost is a valid number, and is no reason for doubt by itself.
    narrow = [f"{i},{i}" for i in range(2000)]
    narrow[1500] = "007,7"
    found = both({"a.csv": "\n".join(["id,n", *narrow]).encode()})
    assert found is not None
    assert [column.type for column in found.columns] == ["string", "bigint"] and found.counts["a.csv"].rows == 2000


@pytest.mark.long
def test_a_type_that_only_doubtful_lines_deny_is_not_taken(both: Callable[..., RowsReadHere | None]) -> None:
    """Otherwise a row is rejected because its line has a quote in an unusual place."""
    assert both({"a.csv": b'id,n\n1,2\n2, "x"\n'}) is None
    found = both({"a.csv": b'id,n,s\n1,2,a\n2,3,"x" \n'})
    assert found is not None and [column.type for column in found.columns] == ["bigint", "bigint", "string"]


@pytest.mark.long
def test_a_declared_type_is_taken_as_spark_takes_it(both: Callable[..., RowsReadHere | None]) -> None:
    """Otherwise times without a zone are shifted, or left out, although the YAML says what they are."""
    types = {"at": "timestamp", "AMOUNT": "decimal(9, 2)", "n": "bigint"}
    texts = b"at,amount,n\n2024-01-01 10:00:00,1.50,007\n2024-06-01T10:00:00.5,.5,x\n,,\n,,+491234\n"
    found = both({"a.csv": texts}, types=types)
    assert found is not None and found.counts["a.csv"].rows == 3
    assert both({"a.csv": texts + b"2024-06-01 10:00:00Z,1,1\n"}, types=types) is not None


@pytest.mark.long
def test_large_files_are_read_in_blocks_without_losing_or_doubling_a_line(
    both: Callable[..., RowsReadHere | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the line at the end of a block is cut in two, or ends up in another file."""
    monkeypatch.setattr(local, "BLOCK", 777)
    monkeypatch.setattr(local, "FEW_BYTES", 10)
    monkeypatch.setattr(local, "MOST_KEPT_BYTES", 5000)
    chance = random.Random(1)
    files = {f"{i}.csv": b"id,s\n" + b"".join(b"%d,%s\n" % (j, b"s" * chance.randrange(50)) for j in range(200 * i)) for i in range(9)}
    found = both({**files, "open.csv": b"id,s\n1,a\n2,b", "head.csv": b"id,s", "crlf.csv": b"id,s\r\n1,a\r\n\r\n2,b\r\n"})
    assert found is not None and found.counts["8.csv"].rows == 1600


@pytest.mark.long
def test_what_is_not_sure_is_left_to_spark(both: Callable[..., RowsReadHere | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an option, an old line end or a huge line would mean something else here than to Spark."""
    plain = b"id,n\n1,2\n"
    assert both({"a.csv": plain}) is not None
    for options in ({"nullValue": "NA"}, {"header": "false"}, {"sep": "||"}, {"encoding": "latin-1"}):
        assert both({"a.csv": plain}, options=options) is None, options
    assert both({"a.csv": plain}, types={"n": "array<int>"}) is None
    assert both({"a.csv": b"id,n\r1,2\r"}) is None
    assert both({"a.csv": plain, "b.csv": b"id,n\n0999-01-01,2\n"}) is None
    assert both({"a.csv": plain + b"3,4\n" * 20}, limits=Limits(line_bytes=4)) is not None
    assert both({"a.csv": plain + b"3,4\n" * 20}, limits=Limits(line_bytes=3)) is None
    assert both({"a.csv": plain + b"3,44444\n" * 20}, limits=Limits(line_bytes=5)) is None
    monkeypatch.setattr(local, "MOST_DOUBTFUL_LINES", 5)
    assert both({"a.csv": plain + b"1\n" * 5}) is not None
    assert both({"a.csv": plain + b"1\n" * 6}) is None
    monkeypatch.setenv(FILES_BY, "spark")
    assert both({"a.csv": plain}) is None


def test_files_that_cannot_be_read_are_named_and_the_others_read(both: Callable[..., RowsReadHere | None], tmp_path: Path) -> None:
    """Otherwise one file without permission, or of another kind, stops a folder."""
    found = both(
        {"a.csv": b"id,n\n1,2\n", "other.csv": b"x;y\n1;2\n", "latin.csv": b"id,gr\xf6\xdfe\n", "zero.csv": b"", "white.csv": b" \n"}
    )
    assert found is not None
    assert set(found.refused) == {"other.csv", "latin.csv"}
    assert {key: count.rows for key, count in found.counts.items()} == {"a.csv": 1, "zero.csv": 0, "white.csv": 0}


def test_columns_may_have_any_names_that_stay_the_same(both: Callable[..., RowsReadHere | None]) -> None:
    """Otherwise a column with a dot or a space in its name is another one in the table, or two."""
    found = both({"a.csv": 'Order ID,a.b,"x, y",ü=(1)\n1,2,3,4\n5,6,7,"8" \n'.encode()})
    assert found is not None and [column.name for column in found.columns] == ["Order ID", "a.b", "x, y", "ü=(1)"]
    assert both({"a.csv": b"id,${x}\n1,2\n"}) is None


def test_tabs_are_separators_and_blank_lines_of_them_no_rows(both: Callable[..., RowsReadHere | None]) -> None:
    """Otherwise a line of tabs alone is a row of NULLs to one reader and none to the other."""
    found = both({"a.tsv": b"id\tn\n1\t2\n\t\n \t\n3\tx y\n"}, [Column("id", "bigint"), Column("n", "string")], format="tsv")
    assert found is not None and found.counts["a.tsv"].rows == 2
    single = both({"a.csv": b"id\n1\n\n \n2\n"}, [Column("id", "bigint")])
    assert single is not None and single.counts["a.csv"].rows == 2


class Elsewhere(FolderAddress):
    """A folder that is not on this machine."""

    @property
    def local(self) -> Path | None:
        return None


def test_a_server_elsewhere_reads_an_object_store_by_itself(scope: LakeScope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a cluster looks for the rows on its own disks, where they are not."""
    (tmp_path / "a.csv").write_bytes(b"id,n\n1,2\n")
    asked, address = [ReadFile("a.csv", "a.csv", 1, 9)], Elsewhere.parse("landing", str(tmp_path))
    assert rows_read_here(scope, address, Reading(FileFormat.CSV), asked, (), tmp_path / "here") is not None
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    assert rows_read_here(scope, address, Reading(FileFormat.CSV), asked, (), tmp_path / "elsewhere") is None


def test_a_file_that_may_have_ended_the_server_is_not_read_here(
    scope: LakeScope, both: Callable[..., RowsReadHere | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a file that needs more memory than there is ends this process too, again and again."""
    monkeypatch.setattr(Attempt, "are_suspects", lambda *_: True)
    assert both({"a.csv": b"id,n\n1,2\n"}) is None
