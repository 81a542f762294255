"""Many rows that are read into files and take the place of others: the table has exactly the rows that a comparison in memory would leave.

Belongs here: which rows go, what is counted, and what is left of a write that another way has to make. Does not belong: the same of few
rows (``test_local_write``), random histories (``test_local_histories``), and whole syncs (``test_arrow_path``).
"""

import datetime
import decimal
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets_tests.delta.test_add_files import ReadIntoFiles, made
from assets_tests.delta.test_local_write import (
    COLUMNS,
    FIELDS,
    ROW,
    WINDOWS,
    Known,
    Row,
    Rows,
    as_table,
    inside,
    of,
    ordered,
    rows_in,
    schema_string,
    stray_files,
    with_files,
    write,
)
from assets_tests.harness import examples
from incremental_assets.core.deletes import MARK
from incremental_assets.core.window import Window
from incremental_assets.delta import commit_files, local_rows
from incremental_assets.delta.add_files import Choice
from incremental_assets.delta.digested_keys import DigestedKeys
from incremental_assets.delta.guards import newest
from incremental_assets.delta.replace_by_files import replace_by_files
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write_batch import NotHere, RowsInFiles, Way, WriteBatch, WriteResult


@dataclass
class ManyRows(Rows):
    """The rows of a batch, which are read into files."""

    def in_files(self) -> RowsInFiles:
        return ReadIntoFiles(self.rows)


def many(read: Sequence[Row], windows: Sequence[Window], *, upsert: bool, gone: tuple[Window, ...] = (), **changes: Any) -> WriteBatch:
    return of(read, windows, upsert=upsert, rows=ManyRows(as_table(read), gone), **changes)


def put(table: LakeTable, write_batch: WriteBatch) -> WriteResult:
    choice = Choice(write_batch.rows.in_files(), is_beside=True)
    return replace_by_files(table, newest(table), write_batch, choice, lambda _: None, lambda _: None)


KEYED = st.dictionaries(st.integers(0, 30), st.tuples(st.integers(-5, 20), st.sampled_from("abc")), max_size=20)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(old=KEYED, read=KEYED, windows=WINDOWS, upsert=st.booleans(), few=st.booleans())
def test_files_leave_and_count_what_a_comparison_in_memory_does(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[int, tuple[int, str]],
    read: dict[int, tuple[int, str]],
    windows: list[Window],
    upsert: bool,
    few: bool,
) -> None:
    """A row would be there twice or be lost, as soon as there are many of them; or the numbers in the UI would be others."""
    new: list[Row] = [(key, *row) for key, row in read.items() if inside((key, *row), windows, False)]
    # An append of keys that other windows have, too, would double them; that is the source's business, and not tested here.
    before: list[Row] = [
        (key, *row) for key, row in old.items() if upsert or inside((key, *row), windows, False) or key not in {row[0] for row in new}
    ]
    folder = tmp_path_factory.mktemp("t")
    tables = [with_files(folder / name, before[: len(before) // 2], before[len(before) // 2 :]) for name in ("one", "other")]
    expected = write(tables[0], of(new, windows, upsert=upsert))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_rows, "MOST_OLD_ROWS", 1_000 if few else 0)
        done = put(tables[1], many(new, windows, upsert=upsert))
    assert expected is not None and rows_in(tables[1]) == rows_in(tables[0])
    counts = [(result.rows_read, result.rows_inserted, result.rows_updated, result.rows_deleted) for result in (expected, done)]
    nothing_there = not any(inside(row, windows, False) for row in before)
    total, inserted, _, deleted = counts[0]
    unknown = (total, inserted, None, deleted) if upsert else (total, None, None, None)
    assert counts[1] == counts[0] if few or nothing_there else counts[1] == unknown


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(old=st.lists(ROW, max_size=20), read=st.lists(ROW, max_size=20), windows=WINDOWS)
def test_an_append_without_a_key_keeps_each_row_as_often_as_the_source_has_it(
    tmp_path_factory: pytest.TempPathFactory, old: list[Row], read: list[Row], windows: list[Window]
) -> None:
    """Equal rows of a log would be taken for one."""
    table = with_files(tmp_path_factory.mktemp("t"), old[: len(old) // 2], old[len(old) // 2 :])
    new = [row for row in read if inside(row, windows, True)]
    batch = many(new, windows, upsert=False, nulls=True)
    put(table, replace(batch, container=replace(batch.container, primary_key=())))
    assert rows_in(table) == ordered([*(row for row in old if not inside(row, windows, True)), *new])


def test_what_must_be_asked_about_is_left_to_spark_and_leaves_no_file(tmp_path: Path) -> None:
    """A row that has moved would be deleted, or a partition emptied that nobody has allowed to be; or each try would leave gigabytes."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a"), (3, 9, "a")])
    version, both = newest(table).version, [Window(1, 3)]
    for upsert in (True, False):
        moved = many([(1, 1, "b")], both, upsert=upsert, by_key=Known(frozenset({2})))
        with pytest.raises(NotHere, match="moved"):
            put(table, moved)
        with pytest.raises(NotHere, match="emptied"):
            put(table, many([(1, 1, "b")], both, upsert=upsert, gone=(Window(2, 3),)))
    with pytest.raises(NotHere, match="came twice"):
        put(table, many([(1, 1, "b"), (1, 2, "c")], both, upsert=True))
    assert newest(table).version == version and not stray_files(table)
    done = put(table, many([(1, 1, "b")], both, upsert=True, gone=(Window(2, 3),), allow_empty=True))
    assert rows_in(table) == [(1, 1, "b"), (3, 9, "a")] and (done.rows_updated, done.rows_deleted) == (1, 1)


def test_rows_that_the_table_has_already_are_not_written_again(tmp_path: Path) -> None:
    """Each sync would write the rows of the lag again, and those who read the changes of the table would see them each time."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a")])
    version = newest(table).version
    for upsert in (True, False):
        assert put(table, many([(2, 2, "a"), (1, 1, "a")], [Window(1, 3)], upsert=upsert)).way is Way.ALREADY_THERE
    assert newest(table).version == version and not stray_files(table)


@pytest.mark.parametrize("most", [100, 5])
def test_rows_that_are_gone_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """With ``deletes: soft``, a row would be deleted for ever where many rows are read beside it."""
    mark = {"name": MARK.name, "type": MARK.type, "nullable": True, "metadata": {}}
    table = made(tmp_path, field=None, schemaString=json.dumps({"type": "struct", "fields": [*FIELDS, mark]}))

    def soft(read: Sequence[Row]) -> WriteBatch:
        own = as_table(read).append_column(pa.field(MARK.name, pa.timestamp("us", "UTC")), pa.nulls(len(read), pa.timestamp("us", "UTC")))
        return of(read, [Window(0, 50)], upsert=True, rows=ManyRows(own), columns=(*COLUMNS, MARK), deleted_at=1)

    put(table, soft([(1, 1, "a"), (2, 2, "a"), (3, 49, "a")]))
    monkeypatch.setattr(local_rows, "MOST_OLD_ROWS", most)
    put(table, soft([(1, 1, "a"), *((key, key, "b") for key in range(3, 40))]))
    marked = DeltaTable(table.address).to_pyarrow_table(columns=["k", MARK.name]).sort_by("k").to_pylist()
    assert [row["k"] for row in marked] == [*range(1, 40)] and [row["k"] for row in marked if row[MARK.name] is not None] == [2]


def test_marks_need_a_table_whose_readers_look_for_them(tmp_path: Path) -> None:
    """Another program has set the property alone: a reader that goes by the table's features would still see the rows that are replaced."""
    alone = made(tmp_path, field=None, schemaString=schema_string(), configuration={"delta.enableDeletionVectors": "true"})
    assert put(alone, many([(1, 1, "a"), (2, 2, "a")], [Window(1, 3)], upsert=True)).way is Way.ADD_FILES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("incremental_assets.delta.replaced_files.MOST_WRITTEN_BYTES", -1)
        assert put(alone, many([(1, 1, "b")], [Window(1, 2)], upsert=True)).way is Way.REWRITE_FILES
    assert rows_in(alone) == [(1, 1, "b"), (2, 2, "a")]


@pytest.mark.parametrize("by", [put, write])
def test_an_interrupt_after_the_commit_takes_no_file_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: Callable[[LakeTable, WriteBatch], Any]
) -> None:
    """A run that is terminated while its commit is on the way would leave a table that nobody can read: the version names removed files."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a")])
    real = commit_files.put_version

    def interrupted(*args: Any) -> bool:
        assert real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(commit_files, "put_version", interrupted)
    with pytest.raises(KeyboardInterrupt):
        by(table, many([(1, 1, "b"), (3, 3, "b")], [Window(1, 2), Window(3, 4)], upsert=True))
    assert rows_in(table) == [(1, 1, "b"), (2, 2, "a"), (3, 3, "b")]


KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    pa.int32(): st.integers(-3, 3),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "a", "a\x00", "ä", "𠮷", "a" * 40]),
    pa.binary(): st.sampled_from([b"", b"a", b"a\x00", b"\xff"]),
    pa.date32(): st.sampled_from([datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]),
    pa.timestamp("us", "UTC"): st.sampled_from(
        [datetime.datetime(2026, 1, 1, microsecond=n, tzinfo=datetime.timezone.utc) for n in (0, 1)]
    ),
    pa.decimal128(38, 4): st.sampled_from([decimal.Decimal(n) / 10000 for n in (-1, 0, 1, 2**64, 10**37)]),
}


@st.composite
def key_rows(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The schema of a key, some keys, and some rows that are looked for among them, which may have NULL."""
    types = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3))
    keys = draw(st.lists(st.tuples(*(KEYS[type_] for type_ in types)), max_size=8, unique=True))
    rows = draw(st.lists(st.tuples(*(st.one_of(st.none(), KEYS[type_]) for type_ in types)), max_size=12))
    return pa.schema([(f"k{i}", type_) for i, type_ in enumerate(types)]), keys, rows


@settings(max_examples=examples(100))
@given(key_rows())
def test_digests_find_exactly_the_same_keys(drawn: tuple[pa.Schema, list[tuple[Any, ...]], list[tuple[Any, ...]]]) -> None:
    """The old version of a row would stay beside the new one, or a row of another key would be gone."""
    schema, keys, rows = drawn

    def table(values: list[tuple[Any, ...]]) -> pa.Table:
        return pa.table([pa.array([row[i] for row in values], field.type) for i, field in enumerate(schema)], schema=schema)

    digested = DigestedKeys.of(schema, [table(keys[:3]), table(keys[3:])])
    parts = pa.concat_tables([table(rows[:2]), table(rows[2:])])
    assert digested.among(parts).to_pylist() == [row in keys for row in rows]
    low, high, nulls = digested.extent()
    first = schema.field(0).type
    if keys and (pa.types.is_integer(first) or pa.types.is_temporal(first)):
        column = table(keys).column(0)
        numbers = column.cast(pa.int32() if pa.types.is_date32(first) else pa.int64()).to_pylist()
        assert (low, high, nulls) == (min(numbers), max(numbers), False)
    with pytest.raises(NotHere):
        DigestedKeys.of(schema, [table(keys), table([*keys[:1], tuple(None for _ in schema)])])


def test_floats_are_no_keys_that_are_digested() -> None:
    """To the source, 0.0 and -0.0 are one key, and their digests differ: the row would be there twice."""
    with pytest.raises(NotHere):
        DigestedKeys.of(pa.schema([("k", pa.float64())]), [])
