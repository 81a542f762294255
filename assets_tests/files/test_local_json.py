"""JSON that is read in this process: it has to give the same rows as Spark's reader, of odd files too. Otherwise a row is lost.

Real files, real Spark. ``test_file_reading`` compares both readers in each of its cases as well.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assets_tests.files.both_readers import read_by_both
from assets_tests.harness import Folder, long
from incremental_assets.core.schema import Column
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.local_read import RowsReadHere
from incremental_assets.files.readers import local_json
from incremental_assets.files.readers.json_texts import BIGINT, DOUBLE, PLAIN, mask_of

_numbers = itertools.count()
Both = Callable[..., RowsReadHere | None]
TYPES = ("bigint", "int", "double", "decimal(9,2)", "boolean", "date", "timestamp_ntz", "timestamp", "string")
NUMBERS = [
    "0", "-0", "1", "-7", "123456789012345678", "1234567890123456789", "12345678901234567890", "1" * 42, "40000", "1.5", "1.50", "-0.25",
    "1.005", "1e5", "1E+5", "1.5e-7", "1e400", "1e-400", "123456789.123456", "1234567890123456.78", "0.30000000000000004",
    "5.684341886080802E-14", "2.2250738585072014e-308", "0.1234567890123456789", "9007199254740993", "NaN", "Infinity", "-Infinity", "-0.0",
]  # fmt: skip
STRINGS = [
    "", "x", "ü😀", "007", "5", "1.10", "+3", " 6", "true", "TRUE", "NaN", "2024-02-29", "2023-02-29", "0999-01-01", "2024-01-01 10:00:00",
    "2024-01-01T10:00:00.123456", "2024-01-01T10:00:00Z", "2024-01-01 10:00:00+18:00", "a\nb", "\t", "\x00", "\"", "\\", "\u2028", "\ufffd",
]  # fmt: skip
VALUES = [
    *NUMBERS, *map(json.dumps, STRINGS), *(json.dumps(text, ensure_ascii=False) for text in STRINGS), "true", "false", "null",
    '{"a": 1.10}', "[ 1, 2.0 ]", "{}", "[]", '{"a":1,"a":2}', '[{"b": "\\u00e9"}, null]', '"\\ud83d"', '"\\ud83d\\ude00"', '"\\/"',
]  # fmt: skip
LINES = [
    "", "  ", "\t", "{}", "[]", "null", "3", '"x"', "nope", '{"id": 1', '{"id": 1} x', '{"id": 1}{"id": 2}', ' {"id": 1} {"id": 2} ',
    '{"id": 1}, {"id": 2}', '[{"id": 1}, {"id": 2}]', '[{"id": 1}, 2]', '[[{"id": 1}]]', '{"id": 1, "id": 2}', '{"id": 1, "ID": 2}',
    '{"ID": 3}', '{" id ": 4}', '{"": 5}', '{"_file": 1}', "{'id': 6}", "{id: 7}", '{"id": 8,}', '{"id":\t9\x0b}', '{"id": 010}',
    '{"id": +1}', '{"id": 1.}', '{"id": .5}', '{"id": "a\tb"}', '// {"id": 1}', '\ufeff{"id": 10}', '{"id": {"x": {"x": 1, "x": 2}}}',
    "[" * 2000, "\u0085", '{"new": 1}', '{"new": 2.5, "n\u00e4me": "x"}', '{"id": "\\ud83d"}', '{"id": "\\x41"}',
]  # fmt: skip


@pytest.fixture(scope="module")
def scope(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeScope]:
    scope = LakeScope(str(tmp_path_factory.mktemp("lake")), spark_home, "test_local_json", lambda _: None)
    with scope.stack:
        yield scope


@pytest.fixture
def both(scope: LakeScope, tmp_path: Path) -> Both:
    """Reads files by both readers, and asserts that the results are equal. Returns that of this process."""

    def run(files: Mapping[str, bytes], known: Sequence[Column] = (), **more: Any) -> RowsReadHere | None:
        return read_by_both(scope, tmp_path / str(next(_numbers)), files, known, format="json", **more)

    return run


@pytest.mark.parametrize(("types"), [{}, *long({f"c{i}": type_ for i, type_ in enumerate(TYPES)})])
def test_each_value_comes_out_as_spark_reads_it_in_a_column_of_each_type(both: Both, types: Mapping[str, str]) -> None:
    """Each odd value once in a column of each type: otherwise a number is another one in the table, or a row is rejected that was not."""
    known = [Column("tag", "string"), *(Column(f"c{i}", type_) for i, type_ in enumerate(TYPES))]
    cases = [(i, j) for i in range(len(VALUES)) for j in range(len(TYPES))]
    lines = [f'{{"tag": "{i}:{j}", "c{j}": {VALUES[i]}}}' for i, j in cases]
    assert both({"a.json": "\n".join(lines).encode()}, known, types=types) is not None


@pytest.mark.long
def test_each_line_comes_out_as_spark_reads_it(both: Both) -> None:
    """Otherwise a second object on a line is lost, or garbage becomes a row."""
    known = [Column("id", "string"), Column("new", "double"), Column("näme", "string"), Column("_c0", "bigint")]
    lines = ['{"id": 0}', *LINES, *LINES[::-1]]
    for end in ("\n", "\r\n", "\r"):
        assert both({"a.json": end.join(lines).encode() + b'\n{"id": "\xff"}\n'}, known) is not None
    assert both({"a.json": f"[{', '.join(VALUES)}, {LINES[10][:-2]}]".encode()}, known) is not None


def new_columns(chance: random.Random) -> dict[str, bytes]:
    """Two files of columns whose values are of one kind, with an odd one here and there."""
    kinds = [
        ["1", "22"],
        ["1.5", "3"],
        ["1234567890123456.78", "5"],
        ["true"],
        ['"x"', '"5"'],
        ["null"],
        ['{"a": 1.0}'],
        ["12345678901234567890"],
    ]
    columns = [[*chance.choice(kinds), "null"] for _ in range(20)]

    def line() -> str:
        names = [chance.choice([f"c{i}", f"c{i}", f"C{i}", f" c{i}"]) for i in range(len(columns)) if chance.random() < 0.9]
        values = [chance.choice(columns[int(name.strip()[1:])]) if chance.random() < 0.99 else chance.choice(VALUES) for name in names]
        return "{" + ", ".join(f'"{name}": {value}' for name, value in zip(names, values, strict=True)) + "}"

    return {f"{i}.json": "\n".join(line() for _ in range(150)).encode() for i in range(2)}


@pytest.mark.parametrize("seed", [0, *long(*range(1, 20))])
def test_new_columns_get_the_types_that_spark_gives_them(both: Both, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the type of a column depends on which reader has seen the first files."""
    monkeypatch.setattr(local_json, "ROWS", 40)
    chance = random.Random(seed)
    assert any(both(new_columns(chance)) is not None for _ in range(5))


def test_what_fits_a_number() -> None:
    """A column of doubles would take a number that is another one in it."""
    chance = random.Random(0)
    for _ in range(2000):
        whole, fraction = str(chance.randrange(10 ** chance.randrange(1, 22))), str(chance.randrange(10 ** chance.randrange(1, 20)))
        number = chance.choice(["", "-"]) + chance.choice(
            [whole, f"{whole}.{fraction}", f"0.{fraction}", f"{whole}e{chance.randrange(-9, 9)}"]
        )
        mask = mask_of(number)
        if mask & DOUBLE:
            assert float(f"{float(number):.17g}") == float(number)
            digits = number.partition("e")[0].replace(".", "").lstrip("-0").rstrip("0")
            assert digits == repr(float(number)).partition("e")[0].replace(".", "").lstrip("-0").rstrip("0"), number
        if mask & BIGINT:
            assert str(int(number)) == number and abs(int(number)) < 10**18
        assert bool(mask & PLAIN) == ("e" not in number)


def test_small_files_of_json_are_synced_without_spark(folder: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch) -> None:
    """A landing folder would wait seconds for Spark's planning, and half a minute for a server, at each file."""
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    project = folder(containers={"sales": {"glob": "*.json*", "format": "json"}})
    project.put("a.json", '{"id": 1, "x": {"y": [1.10]}}\n{"id": 2}\n')
    assert project.one("sales")["status"] == "synced"
    project.put("b.json", '[{"id": 3,\n "x": 0.1}]')
    project.put("a.json", '{"id": 1, "x": {"y": [1.20]}}\n')
    assert project.one("sales")["status"] == "synced"
    assert sorted(project.rows("sales", "id, x")) == [(1, '{"y": [1.20]}'), (3, "0.1")]
