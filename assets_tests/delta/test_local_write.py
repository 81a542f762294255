"""Few rows that are written without Spark: the table has exactly the rows that Spark would have written, whatever files they are in.

Belongs here: which rows of which files stay, and when Spark has to write. Does not belong: the commit itself (``test_add_files``), and
whole syncs (``test_sync``, the random histories).
"""

import datetime
import decimal
import itertools
import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets_tests.delta.test_add_files import HeldRows, batch, made, of_windows
from assets_tests.harness import examples, long
from incremental_assets.core.container import Identifier
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConcurrentWriteError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import backticked
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.delta import choose, local_files, replaced_files
from incremental_assets.delta import write as write_module
from incremental_assets.delta.commit_files import checkpoint_if_due, commit_files
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.guards import newest
from incremental_assets.delta.local_rows import LocalComparison, compare_here, rows_of_lake
from incremental_assets.delta.local_write import write_here
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable
from incremental_assets.delta.write_batch import InWindows, NotHere, WriteBatch, WriteResult, WrittenFile
from incremental_assets.spark.session import open_session

Row = tuple[int, int | None, str]
"""A key, the identifier, and a text."""
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", pa.string())])
COLUMNS = (Column("k", "bigint"), Column("at", "bigint"), Column("x", "string"))
FIELDS = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("k", "long"), ("at", "long"), ("x", "string"))]
AT = Identifier(("at",), IdentifierType.INTEGER, CursorType.INTEGER)


@dataclass
class Rows(HeldRows):
    """The rows of a batch, which this process has read. ``gone``: the windows without rows. ``known``: keys that the source still has."""

    rows: pa.Table
    gone: tuple[Window, ...] = ()

    def local(self) -> pa.Table:
        return self.rows

    def emptied(self) -> tuple[Window, ...]:
        return self.gone


@dataclass
class Known:
    """The source's answer to what has become of keys that were not read."""

    keys: frozenset[int] = frozenset()

    def by_key(self, spark: Any, keys: Any) -> Any:
        raise AssertionError("Spark looks rows up")

    def existing(self, keys: Sequence[Sequence[str]]) -> Iterable[int]:
        return [i for i, key in enumerate(keys) if int(key[0]) in self.keys]


def as_table(rows: Iterable[Row]) -> pa.Table:
    rows = list(rows)
    return pa.table([pa.array([row[i] for row in rows], SCHEMA.field(i).type) for i in range(3)], schema=SCHEMA)


def with_files(folder: Path, *files: Sequence[Row], **metadata: Any) -> LakeTable:
    """A table of which each of these is a file."""
    table = made(folder, field=None, **{"schemaString": schema_string(), **metadata})
    for rows in files:
        add(table, rows)
    return table


def schema_string() -> str:
    return json.dumps({"type": "struct", "fields": FIELDS})


def add(table: LakeTable, rows: Sequence[Row] | None = None, added: pa.Table | None = None) -> None:
    added = as_table(rows or []) if added is None else added
    assert added is not None
    writer = FilesWriter(table.address, added.schema, ("at",), 32)
    writer.add(added)
    writer.close()
    commit_files(table, newest(table), batch(columns=COLUMNS), [WrittenFile(*file) for file in writer.files])


def of(read: Iterable[Row], windows: Sequence[Window], *, upsert: bool, nulls: bool = False, **changes: Any) -> WriteBatch:
    container = replace(batch().container, identifier=AT, primary_key=("k",), strategy=Strategy.UPSERT if upsert else Strategy.APPEND)
    return batch(
        **{
            "container": container, "columns": COLUMNS, "replaces": InWindows(AT, tuple(windows), nulls), "rows": Rows(as_table(read)),
            "by_key": Known(), **changes,
        }
    )  # fmt: skip


def write(table: LakeTable, write_batch: WriteBatch) -> WriteResult | None:
    """None: this process does not write the batch."""
    head = newest(table)
    compared = compare_here(table, head, write_batch)
    try:
        return write_here(table, head, write_batch, compared)
    except NotHere:
        return None


def rows_in(table: LakeTable) -> list[Row]:
    found = pa.table(QueryBuilder().register("t", DeltaTable(table.address)).execute('SELECT k, "at", x FROM t').read_all())
    return sorted(((row["k"], row["at"], row["x"]) for row in found.to_pylist()), key=repr)


def ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def files_of(table: LakeTable) -> int:
    return len(DeltaTable(table.address).file_uris())


ROW = st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(-5, 20)), st.sampled_from("abc"))
WINDOWS = st.lists(
    st.tuples(st.integers(-6, 20), st.integers(1, 12)).map(lambda pair: Window(pair[0], pair[0] + pair[1])), min_size=1, max_size=2
)


def inside(row: Row, windows: Sequence[Window], nulls: bool) -> bool:
    at = row[1]
    if at is None:
        return nulls
    return any((w.lower is None or at >= w.lower) and (w.upper is None or at < w.upper) for w in windows)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(files=st.lists(st.lists(ROW, max_size=12), max_size=4), read=st.lists(ROW, max_size=12), windows=WINDOWS, nulls=st.booleans())
def test_the_rows_of_windows_are_replaced(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Row]], read: list[Row], windows: list[Window], nulls: bool
) -> None:
    """A row would be there twice, or a row outside of the windows would be lost. Rows may be there several times."""
    table = with_files(tmp_path_factory.mktemp("t"), *files)
    read = [row for row in read if inside(row, windows, nulls)]
    old = [row for rows in files for row in rows]
    done = write(table, of(read, windows, upsert=False, nulls=nulls))
    assert done is not None
    assert rows_in(table) == ordered([*(row for row in old if not inside(row, windows, nulls)), *read])
    assert done.rows_read == len(read)
    assert (done.rows_inserted or 0) - (done.rows_deleted or 0) == len(rows_in(table)) - len(old)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    old=st.dictionaries(st.integers(0, 30), st.tuples(st.integers(-5, 20), st.sampled_from("abc")), max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=3),
    read=st.dictionaries(st.integers(0, 30), st.tuples(st.integers(-5, 20), st.sampled_from("abc")), max_size=12),
    windows=WINDOWS,
)
def test_rows_are_replaced_by_key(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[int, tuple[int, str]],
    cuts: list[int],
    read: dict[int, tuple[int, str]],
    windows: list[Window],
) -> None:
    """A key would be there twice, as its old row lies in another window or file; or a row that the source has deleted would stay."""
    rows: list[Row] = [(key, at, x) for key, (at, x) in old.items()]
    random.Random(len(rows)).shuffle(rows)
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    table = with_files(tmp_path_factory.mktemp("t"), *(rows[a:b] for a, b in itertools.pairwise(ends)))
    new = {key: row for key, row in read.items() if inside((key, *row), windows, False)}
    done = write(table, of([(key, *row) for key, row in new.items()], windows, upsert=True))
    assert done is not None
    stays = {key: row for key, row in old.items() if not inside((key, *row), windows, False)}
    assert rows_in(table) == ordered((key, *row) for key, row in {**stays, **new}.items())
    changed = {key for key, row in new.items() if old.get(key) != row}
    counts = len(changed - old.keys()), len(changed & old.keys()), len(old.keys() - stays.keys() - new.keys())
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == counts


BATCH = st.tuples(
    st.dictionaries(st.integers(0, 40), st.tuples(st.integers(-5, 20), st.sampled_from("abc")), max_size=12), WINDOWS, st.booleans()
)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    old=st.dictionaries(st.integers(0, 40), st.tuples(st.integers(-5, 20), st.sampled_from("abc")), min_size=5, max_size=40),
    batches=st.lists(BATCH, min_size=1, max_size=12),
    most_written=st.sampled_from([-1, 700, 5_000]),
)
def test_batches_one_after_another(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[int, tuple[int, str]],
    batches: list[tuple[dict[int, tuple[int, str]], list[Window], bool]],
    most_written: int,
) -> None:
    """A mark would be forgotten when a later one comes to the same file, or a checkpoint between them would lose it."""
    folder = tmp_path_factory.mktemp("t")
    marks = {"delta.enableDeletionVectors": "true"}
    table = made(folder, features=("deletionVectors",), schemaString=schema_string(), configuration=marks)
    rows: list[Row] = [(key, at, x) for key, (at, x) in old.items()]
    add(table, rows[: len(rows) // 2])
    add(table, rows[len(rows) // 2 :])
    lake = dict(old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaced_files, "MOST_WRITTEN_BYTES", most_written)
        for read, windows, upsert in batches:
            inside_now = {key: row for key, row in lake.items() if inside((key, *row), windows, False)}
            # An append of keys that other windows have, too, would double them; that is the source's business, and not tested here.
            elsewhere = set() if upsert else lake.keys() - inside_now.keys()
            new = {key: row for key, row in read.items() if inside((key, *row), windows, False) and key not in elsewhere}
            before = newest(table)
            compared = compare_here(table, before, write_batch := of([(key, *row) for key, row in new.items()], windows, upsert=upsert))
            if compared.is_equal:
                continue
            write_here(table, before, write_batch, compared)
            checkpoint_if_due(table, table.follow(), before)
            lake = {key: row for key, row in lake.items() if key not in inside_now} | new
            assert rows_in(table) == ordered((key, *row) for key, row in lake.items())
    assert len(list((Path(table.address) / "_delta_log").glob("*.json"))) == newest(table).version + 1


@pytest.mark.long
def test_spark_reads_the_marks(tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs would read a deletion vector that Spark takes for a broken one, or for one of other rows."""
    monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", -1)
    marks = {"delta.enableDeletionVectors": "true"}
    table = made(tmp_path, features=("deletionVectors",), schemaString=schema_string(), configuration=marks)
    count = 200_000  # more than one container of a bitmap, with few and with many rows each
    add(table, [(i, i, "a") for i in range(count)])
    add(table, [(i, i, "a") for i in range(count, count + 10)])
    lake = {i: "a" for i in range(count + 10)}
    for step, changed in enumerate([range(0, count, 50_000), range(0, count, 3), range(count, count + 10), range(65_530, 65_545)]):
        text = "bcde"[step]
        since = (step + 1) * 1_000_000
        assert write(table, of([(i, since + i, text) for i in changed], [Window(since, None)], upsert=True)) is not None
        lake |= dict.fromkeys(changed, text)
    want = [(len(lake), sum(lake), len([x for x in lake.values() if x == "a"]))]
    with open_session(spark_home, name="test") as spark:
        found = spark.sql(f"SELECT count(*), sum(k), count_if(x = 'a'), count(DISTINCT k) FROM {table.sql_name}").collect()[0]
        assert [tuple(found)[:3]] == want and found[3] == len(lake)
        # Spark changes what was marked here, and this process what was marked by Spark.
        spark.sql(f"DELETE FROM {table.sql_name} WHERE k % 5 = 1")
        assert write(table, of([(1, 9_000_000, "f"), (2, 9_000_001, "f")], [Window(9_000_000, None)], upsert=True)) is not None
        left = {k: x for k, x in lake.items() if k % 5 != 1} | {1: "f", 2: "f"}
        assert {row.k: row.x for row in spark.sql(f"SELECT k, x FROM {table.sql_name}").toLocalIterator()} == left
        assert len(rows_in(table)) == len(left)


def test_files_without_changed_rows_stay(tmp_path: Path) -> None:
    """Each sync would write the whole table anew, and its readers would read it again."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a")], [(3, 3, "a"), (4, 4, "a")], [(5, 5, "a")])
    before = set(DeltaTable(table.address).file_uris())
    assert write(table, of([(4, 4, "b")], [Window(4, 5)], upsert=True)) is not None
    after = set(DeltaTable(table.address).file_uris())
    assert len(before & after) == 2 and len(after) == 3
    assert write(table, of([(5, 5, "a"), (6, 6, "a")], [Window(5, None)], upsert=False)) is not None
    assert after < set(DeltaTable(table.address).file_uris()), "rows that are only added touch no file"
    assert rows_in(table) == [(1, 1, "a"), (2, 2, "a"), (3, 3, "a"), (4, 4, "b"), (5, 5, "a"), (6, 6, "a")]


def test_a_key_in_another_window_stays(tmp_path: Path) -> None:
    """An append follows no key: a row that has moved to another window is in both until the first one is refreshed."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a")], [(1, 10, "b")])
    assert write(table, of([(1, 1, "c"), (2, 2, "a")], [Window(0, 5)], upsert=False)) is not None
    assert rows_in(table) == [(1, 1, "c"), (1, 10, "b"), (2, 2, "a")]


def test_spark_writes_what_must_be_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would be deleted that the source still has, or a partition emptied that nobody has allowed to be."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a")])
    version, both = newest(table).version, [Window(1, 3)]
    assert write(table, of([(1, 1, "a")], both, upsert=True, by_key=Known(frozenset({2})))) is None, "its identifier has moved"
    for upsert in (True, False):
        nothing = Rows(as_table([]), (Window(1, 3),))
        assert write(table, of([], both, upsert=upsert, rows=nothing)) is None, "the windows would be emptied"
        monkeypatch.setenv(WRITE_BY, "spark")
        assert write(table, of([(3, 2, "a")], both, upsert=upsert)) is None
        monkeypatch.delenv(WRITE_BY)
    monkeypatch.setattr(replaced_files, "MOST_UNMARKED_BYTES", 10)
    assert write(table, of([(1, 1, "b"), (2, 2, "a")], both, upsert=True)) is None, "large files are not written anew"
    monkeypatch.undo()
    monkeypatch.setattr(local_files, "MOST_SEARCHED_BYTES", 10)
    monkeypatch.setattr(local_files, "have_tasks", lambda engine: True)
    assert write(table, of([(1, 1, "b"), (2, 2, "a")], both, upsert=True)) is None
    monkeypatch.undo()
    assert newest(table).version == version and not stray_files(table)
    assert write(table, of([], both, upsert=True, rows=Rows(as_table([]), (Window(1, 3),)), allow_empty=True)) is not None
    assert rows_in(table) == []


@pytest.mark.parametrize("vectors", [False, True])
def test_a_table_whose_rows_must_not_be_removed_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool) -> None:
    """The message would blame another writer, and tell the user to sync again, for ever. Spark's names the property."""
    monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", -1 if vectors else 8 << 20)
    kept = {"delta.appendOnly": "true", "delta.enableDeletionVectors": str(vectors).lower()}
    table = made(tmp_path, features=("deletionVectors", "appendOnly"), schemaString=schema_string(), configuration=kept)
    add(table, [(1, 1, "a"), (2, 2, "a")])
    assert write(table, of([(1, 1, "b"), (2, 2, "a")], [Window(1, 3)], upsert=True)) is None
    assert write(table, of([(3, 3, "a")], [Window(3, 4)], upsert=True)) is not None, "a row that is only added removes none"
    assert rows_in(table) == [(1, 1, "a"), (2, 2, "a"), (3, 3, "a")] and not stray_files(table)


def stray_files(table: LakeTable) -> set[str]:
    """Files in the table's folder that no version names."""
    named = {action["path"] for version in range(newest(table).version + 1) for action in added_in(table, version)}
    return {name for name in os.listdir(table.address) if name.endswith(".parquet")} - named


def added_in(table: LakeTable, version: int) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(table.address, version=version).get_add_actions()).to_pylist()


def test_a_snapshot_that_is_lost_before_the_commit_leaves_nothing(tmp_path: Path) -> None:
    """Rows of two states of the source would be mixed; or files that nobody names would fill the disk."""

    class Lost(Rows):
        def still_there(self) -> None:
            raise RuntimeError("the snapshot is gone")

    table = with_files(tmp_path, [(1, 1, "a")])
    with pytest.raises(RuntimeError, match="the snapshot is gone"):
        write(table, of([], [Window(2, 3)], upsert=True, rows=Lost(as_table([(2, 2, "a")]))))
    assert rows_in(table) == [(1, 1, "a")] and not stray_files(table)


def test_a_commit_in_the_meantime_is_noticed(tmp_path: Path) -> None:
    """The rows of a file that both writers replace would be there twice."""
    table = with_files(tmp_path, [(1, 1, "a"), (2, 2, "a")])
    write_batch = of([(1, 1, "b"), (2, 2, "a")], [Window(1, 3)], upsert=True)
    head = newest(table)
    compared = compare_here(table, head, write_batch)
    add(table, [(3, 3, "a")])
    with pytest.raises(ConcurrentWriteError):
        write_here(table, head, write_batch, compared)
    only_more = of([(2, 2, "a"), (4, 4, "a")], [Window(2, 5)], upsert=False)
    compared = replace(compared, new=only_more.rows.local(), old=as_table([(2, 2, "a")]), is_upsert=False)
    with pytest.raises(ConcurrentWriteError):
        write_here(table, head, only_more, compared)
    assert rows_in(table) == [(1, 1, "a"), (2, 2, "a"), (3, 3, "a")] and not stray_files(table)


def test_a_commit_that_spark_replaces_moves_no_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would be missing for ever. On a file system, Spark may replace a version that came at the same moment."""
    table = with_files(tmp_path, [(1, 1, "a")])
    known = newest(table)
    real = choose.write_here

    def replaced(*args: Any) -> WriteResult:
        done = real(*args)
        info = {"timestamp": 1, "operation": "OPTIMIZE", "operationParameters": {}}
        (Path(table.address) / "_delta_log" / f"{known.version + 1:020}.json").write_text(json.dumps({"commitInfo": info}))
        return done

    monkeypatch.setattr(choose, "write_here", replaced)
    write_batch = of([(2, 2, "a")], [Window(2, 3)], upsert=False, base_version=known.version)
    statements: list[str] = []
    spark = SimpleNamespace(sql=statements.append, conf=SimpleNamespace(set=lambda *_: None))
    with pytest.raises(ConcurrentWriteError, match="the watermark stays"):
        write_module.commit(lambda: spark, table, write_batch, lambda _: None)  # pyright: ignore[reportArgumentType]
    assert [STATE_PROPERTY in statement for statement in statements] == [True], "the state from before is written back"
    monkeypatch.undo()
    again = replace(write_batch, base_version=newest(table).version)
    write_module.commit(lambda: spark, table, again, lambda _: None)  # pyright: ignore[reportArgumentType]
    assert rows_in(table) == [(1, 1, "a"), (2, 2, "a")]


def test_a_column_that_came_later_is_null_in_old_rows(tmp_path: Path) -> None:
    """A file that was written before has no such column. Under another spelling, its values would be lost."""
    write_batch = of([(1, 1, "b"), (2, 2, None)], [Window(1, 3)], upsert=True)  # pyright: ignore[reportArgumentType]
    older = as_table([(1, 1, "a"), (2, 2, "a")])
    table = with_files(tmp_path / "other spelling")
    add(table, added=older.rename_columns(["k", "at", "X"]))
    head = newest(table)
    compared = LocalComparison(older, write_batch.rows.local(), ("k",), True)
    with pytest.raises(NotHere, match="not read"):
        write_here(table, head, write_batch, compared)
    table = with_files(tmp_path / "without")
    add(table, added=older.drop_columns(["x"]))
    assert write(table, write_batch) is not None
    assert rows_in(table) == [(1, 1, "b"), (2, 2, None)]


def test_checkpoints_are_made(tmp_path: Path) -> None:
    """A table that Spark never writes would be opened more slowly with each sync, for ever."""
    table = with_files(tmp_path, *([(i, i, "a")] for i in range(8)))
    before = newest(table)
    checkpoint_if_due(table, table.follow(), before)
    add(table, [(9, 9, "a")])
    checkpoint_if_due(table, table.follow(), before)
    assert not (Path(table.address) / "_delta_log" / "_last_checkpoint").exists(), "version 9"
    add(table, [(10, 10, "a")])
    checkpoint_if_due(table, table.follow(), before)
    assert (Path(table.address) / "_delta_log" / "_last_checkpoint").exists(), "version 10"
    assert len(rows_in(table)) == 10


TIMES: dict[str, Callable[[int], Any]] = {
    "bigint": lambda i: i,
    "date": lambda i: datetime.date(2026, 1, 1) + datetime.timedelta(days=i),
    "timestamp": lambda i: datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(microseconds=i * 333),
    "string": lambda i: f"key {i:03}",
    "decimal(20,4)": lambda i: decimal.Decimal(i) / 8,
}


@pytest.mark.parametrize("way", ["written anew, with vectors", *long("written anew", "marked")])
@pytest.mark.parametrize("type_", ["bigint", *long(*(type_ for type_ in TIMES if type_ != "bigint"))])
def test_files_of_spark_are_written_anew_or_marked(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, type_: str, way: str
) -> None:
    """Spark cuts bounds of times, marks deleted rows by vectors, and has its own encodings: a row would be lost, or come back."""
    deletion_vectors = way != "written anew"
    if way == "marked":
        monkeypatch.setattr(replaced_files, "MOST_WRITTEN_BYTES", -1)
    table = LakeTable(str(tmp_path), "t")
    arrow = {"bigint": pa.int64(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string()}.get(
        type_, pa.decimal128(20, 4)
    )
    schema = pa.schema([("k", arrow), ("at", pa.int64())])
    with open_session(spark_home, name="test") as spark:
        spark.sql(
            f"CREATE TABLE {table.sql_name} (k {type_}, at bigint) USING delta "
            f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(deletion_vectors).lower()}')"
        )
        for part in range(3):
            rows = pa.table(
                [pa.array([TIMES[type_](part * 10 + i) for i in range(10)], arrow), pa.array(range(10), pa.int64())], schema=schema
            )
            frame = spark.createDataFrame(rows).coalesce(1)
            frame.selectExpr(f"cast(k AS {type_}) AS k", "at").write.format("delta").mode("append").save(table.url)
        spark.sql(f"DELETE FROM {table.sql_name} WHERE at = 4")  # of each file
        keys = [TIMES[type_](i) for i in (3, 4, 29, 40)]
        read = pa.table([pa.array(keys, arrow), pa.array([100, 101, 102, 103], pa.int64())], schema=schema)
        columns = (Column("k", type_), Column("at", "bigint"))
        done = write(table, of([], [Window(100, None)], upsert=True, columns=columns, rows=Rows(read)))
        assert done is not None
        assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (2, 2, 0)
        want = {TIMES[type_](i): i % 10 for i in range(30) if i % 10 != 4} | dict(zip(keys, (100, 101, 102, 103), strict=True))
        found = [tuple(row) for row in spark.sql(f"SELECT {backticked('k')}, at FROM {table.sql_name}").collect()]
        if type_ == "timestamp":
            found = [(k.astimezone(datetime.timezone.utc) if k.tzinfo else k.replace(tzinfo=datetime.timezone.utc), at) for k, at in found]
        assert dict(found) == want and len(found) == len(want)


def test_texts_above_u20000_are_found_by_each_reader(tmp_path: Path) -> None:
    """delta-rs misreads how JSON escapes these characters, so the bounds of a file would hide its rows from whoever looks for them."""
    table = with_files(tmp_path)
    for i, text in enumerate(("\U00020bb7", "\U0010ffff")):
        assert write(table, of([(i, i, text)], [Window(i, i + 1)], upsert=True)) is not None
        found = pa.table(QueryBuilder().register("t", DeltaTable(table.address)).execute(f"SELECT k FROM t WHERE x = '{text}'").read_all())
        assert found.column("k").to_pylist() == [i]


def test_times_of_96_bits_are_read_as_they_are(tmp_path: Path, spark_home: Path) -> None:
    """A user's Spark writes such times. delta-rs takes the year 9999 for 1816, so a row would be compared in the wrong window, and stay."""
    table = LakeTable(str(tmp_path), "t")
    with open_session(spark_home, name="test") as spark:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        spark.sql(f"CREATE TABLE {table.sql_name} (k bigint, at timestamp) USING delta")
        spark.sql(f"INSERT INTO {table.sql_name} VALUES (1, timestamp'9999-12-31 00:00:00'), (2, timestamp'2026-01-01 00:00:00.000001')")
    identifier = Identifier(("at",), IdentifierType.TIMESTAMP, CursorType.TIMESTAMP)
    columns, late = (Column("k", "bigint"), Column("at", "timestamp")), 253_402_214_400_000_000
    write_batch = of([], [Window(late, None)], upsert=True, columns=columns)
    write_batch = of_windows(write_batch, Window(late, None), container=replace(write_batch.container, identifier=identifier))
    found = rows_of_lake(table, newest(table), write_batch)
    assert found is not None
    assert found.column("k").to_pylist() == [1]
    assert found.column("at").cast(pa.int64()).to_pylist() == [late]


def test_the_last_row_of_a_file_of_spark_is_replaced(tmp_path: Path, spark_home: Path) -> None:
    """Spark cuts the bounds of times to milliseconds, so the last row of a file lies above its bound: it would be there twice."""
    table = LakeTable(str(tmp_path), "t")
    schema = pa.schema([("k", pa.timestamp("us", "UTC")), ("at", pa.int64())])
    last = TIMES["timestamp"](2)  # 666 microseconds after a whole millisecond
    with open_session(spark_home, name="test") as spark:
        spark.sql(f"CREATE TABLE {table.sql_name} (k timestamp, at bigint) USING delta")
        rows = pa.table(
            [pa.array([TIMES["timestamp"](i) for i in range(3)], schema.field(0).type), pa.array(range(3), pa.int64())], schema=schema
        )
        spark.createDataFrame(rows).coalesce(1).write.format("delta").mode("append").save(table.url)
    read = pa.table([pa.array([last], schema.field(0).type), pa.array([100], pa.int64())], schema=schema)
    columns = (Column("k", "timestamp"), Column("at", "bigint"))
    done = write(table, of([], [Window(100, None)], upsert=True, columns=columns, rows=Rows(read)))
    assert done is not None and (done.rows_inserted, done.rows_updated, done.rows_deleted) == (0, 1, 0)
    delta = table.opened()
    assert delta is not None and sorted(delta.to_pyarrow_table()["at"].to_pylist()) == [0, 1, 100]
