"""First loads whose rows are read over ADBC into files, by threads or by Spark's tasks, with one commit: the same rows as through JDBC.

Belongs here: what this way of reading could alter, lose or double, and when it must not be taken. Does not belong: what both ways have in
common (``test_sync``, ``test_types``).
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from assets_tests.databases import test_sync, test_types
from assets_tests.harness import Project
from incremental_assets.core.plan import Mode
from incremental_assets.databases import rows
from incremental_assets.databases.postgres import infinite
from incremental_assets.databases.postgres.arrow_threads import a_core
from incremental_assets.delta import choose, local_rows, write
from incremental_assets.delta.engine import READ_BY
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import STATE_PROPERTY
from incremental_assets.delta.write_batch import WriteResult
from incremental_assets.spark.session import ensure_server, open_session

MakeProject = Callable[..., Project]


@pytest.fixture
def arrow(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> MakeProject:
    """Makes projects that read into files whatever can be read so, however few rows there are."""
    monkeypatch.setenv(READ_BY, "arrow")
    return project


@pytest.fixture(params=["threads", "tasks"])
def by(request: pytest.FixtureRequest, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads: threads of the sync's process or, as on a cluster, tasks of a server that SPARK_REMOTE names."""
    if request.param == "tasks":
        monkeypatch.setenv("SPARK_REMOTE", ensure_server(spark_home))
    return str(request.param)


def engines(project: Project, name: str) -> list[str]:
    """What wrote the rows of a table, commit by commit, the first one first: ``files`` or ``Spark``."""
    table = project.table(name).opened()
    assert table is not None
    commits = [entry for entry in reversed(table.history()) if entry["operation"] in ("WRITE", "MERGE", "DELETE")]
    return ["files" if entry.get("engineInfo") == "incremental-assets" else "Spark" for entry in commits]


@pytest.mark.long
def test_every_type_arrives_as_it_is(arrow: MakeProject) -> None:
    """Values would be rounded, shifted, cut or nulled, other than through JDBC: ADBC has forms of its own for many types."""
    made = arrow(incremental=["public.appended:at:timestamp", "public.upserted:at:timestamp!upsert"])
    made.execute(test_types.TYPES)
    names = ("appended", "upserted", "whole")
    for name in names:
        test_types.create(made, name)
        test_types.insert(made, name)
    first = made.sync()
    for name in names:
        assert first[name]["status"] == "synced", first[name]["message"]
        assert engines(made, name) == ["files"]
        made.assert_equal(name)
    for name in names:  # what Spark writes beside these files
        test_types.insert(made, name, 101, "2024-11-06")
    made.sync()
    for name in names:
        made.assert_equal(name)


@pytest.mark.long
@pytest.mark.parametrize("read_by", ["arrow", pytest.param("jdbc", marks=pytest.mark.long)])
def test_a_value_without_type_that_a_sample_has_missed(arrow: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str) -> None:
    """The load would fail for each table with an infinite date somewhere, or carry another date in its place."""
    monkeypatch.setenv(READ_BY, read_by)
    monkeypatch.setattr(infinite, "SAMPLED_PAGES", 0.0)
    made = arrow(incremental=["public.t:id:integer", "public.windows:id:integer"], load_rows=3000)
    for name, count in (("t", 2000), ("windows", 9000)):
        made.execute(f"""create table {name} (id int primary key, until date, seen timestamptz, price numeric(8,2), ended date);
            insert into {name} select i, '2026-01-01', '2026-01-01', 1.25, 'infinity' from generate_series(1, {count}) i;
            update {name} set ended = '2026-02-01' where id < {count};
            update {name} set until = '-infinity' where id = {count}; update {name} set price = 'NaN' where id = {count} - 1;
            update {name} set seen = 'infinity' where id = {count} - 2; analyze {name}""")
    for name, line in made.sync().items():
        assert line["status"] == "synced" and "carried as text" in line["message"], line["message"]
        assert "until, seen, price, ended" in line["message"]
        made.assert_equal(name)
    made.execute("insert into t values (2001, '2026-01-02', 'infinity', 2, 'infinity')")
    made.one("t")
    made.assert_equal("t")


COLUMNS = """id int primary key, i8 bigint, i2 smallint, n9 numeric(9,2), n18 numeric(18,4), n38 numeric(38,10), d date, ts timestamp,
  tz timestamptz, t text, c char(40), b boolean, r real, f double precision, y bytea, filler text"""
VALUES = """i, i * 1000000007::bigint, i, i * 0.1, i * 123456789012.3456, i * 12345678901234567890.0123456789, date '2000-01-01' + i,
  timestamp '2000-01-01' + i * interval '1 day 1 microsecond', timestamptz '2000-01-01' + i * interval '1 day 999 microsecond',
  repeat('é', 20) || lpad(i::text, 40, '0'), 'c' || i, i % 2 = 0, i / 7.0, i / 7.0, decode(lpad(to_hex(i), 8, '0'), 'hex'),
  repeat('x', 500)"""
SKIPPED = {"id", "i8", "i2", "n9", "n18", "n38", "d", "ts", "tz"}
"""Columns by which a reader can tell from the statistics which file has a row."""


def test_each_value_is_found_by_itself(arrow: MakeProject, spark_home: Path, by: str) -> None:
    """A statistic that is wrong in the last digit hides rows from a predicate, and makes a MERGE double them."""
    made = arrow(incremental=["public.t:id:integer"], containers={"t": {"readers": 4}})
    made.execute(f"create table t ({COLUMNS}); insert into t select {VALUES} from generate_series(1, 400) i")
    made.execute("insert into t (id, f, r) values (401, 'NaN', 'NaN')")
    made.one("t")
    made.assert_equal("t")
    assert engines(made, "t") == ["files"]
    table = made.table("t")
    delta = table.opened()
    assert delta is not None
    assert len(delta.file_uris()) == 4
    row = made.source.execute(b"select *, n38::text, ts::text, tz::text, y from t where id = 123").fetchone()
    assert row is not None
    literals = {
        "id": "123", "i8": str(row[1]), "i2": "123S", "n9": f"{row[3]}BD", "n18": f"{row[4]}BD", "n38": f"{row[16]}BD",
        "d": f"DATE'{row[6]}'", "ts": f"TIMESTAMP_NTZ'{row[17]}'", "tz": f"TIMESTAMP'{row[18]}'", "t": f"'{row[9]}'", "c": f"'{row[10]}'",
        "f": f"{row[13]!r}D", "y": f"X'{bytes(row[19]).hex()}'",
    }  # fmt: skip
    with open_session(spark_home, name="predicates") as spark:
        queries = {column: f"SELECT id FROM {table.sql_name} WHERE {column} = {literal}" for column, literal in literals.items()}
        # Each predicate of the one statement goes by the statistics for itself, as in a statement of its own.
        found = spark.sql(" UNION ALL ".join(f"SELECT '{column}' AS by, * FROM ({query})" for column, query in queries.items())).collect()
        assert sorted((row.by, row.id) for row in found) == sorted((column, 123) for column in queries)
        for column in queries:
            if column in SKIPPED or column in "fy":
                assert len(spark.sql(queries[column]).inputFiles()) == (1 if column in SKIPPED else 4), column
        assert [r.id for r in spark.sql(f"SELECT id FROM {table.sql_name} WHERE f > 1e10").collect()] == [401]  # NaN is above all
        assert spark.sql(f"SELECT 1 FROM {table.sql_name} WHERE id IS NOT NULL AND t IS NULL").count() == 1
        # What Spark does to rows in these files: deletion vectors, and a copy of the rest.
        spark.sql(f"DELETE FROM {table.sql_name} WHERE n38 = {literals['n38']} OR tz = {literals['tz']}")
        assert spark.sql(f"SELECT count(*) FROM {table.sql_name}").collect()[0][0] == 400
    assert made.rows("t", "id", f"n38 = {row[16]}") == [] and len(made.rows("t", "id", f"id = {row[0] + 1}")) == 1


@pytest.mark.long
def test_all_tasks_see_the_one_frozen_state(arrow: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has a connection of its own: without the shared snapshot, rows that move meanwhile are read twice or never."""
    test_sync.test_all_readers_see_the_same_snapshot_of_the_source(arrow, monkeypatch)


@pytest.mark.long
def test_what_is_left_to_jdbc(arrow: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows would be NULL (column mapping), be refused by delta-rs, or replace none of those that they are to replace."""
    made = arrow(
        incremental=["public.odd:id:integer", "public.clustered:id:integer", "public.seen:id:integer", "public.plain:id:integer"],
        containers={"clustered": {"cluster": True}},
    )
    made.execute("""create table odd (id int primary key, "a b" text); insert into odd select i, 'x' from generate_series(1, 9) i;
        create table clustered (id int primary key); insert into clustered select generate_series(1, 9);
        create table plain (id int primary key); insert into plain select generate_series(1, 9);
        create view seen as select * from plain""")
    made.sync()
    for name in ("odd", "clustered", "seen"):
        assert engines(made, name) == ["Spark"], name
        made.assert_equal(name)
    assert engines(made, "plain") == ["files"]
    monkeypatch.setenv(READ_BY, "jdbc")
    made.execute("create table other (id int primary key); insert into other values (1)")
    made.one("other")
    assert engines(made, "other") == ["Spark"]


@pytest.mark.long
def test_a_whole_table_is_replaced_past_spark(arrow: MakeProject) -> None:
    """Old rows would stay, or the table would lose its properties, the state of the sync among them, or its identity."""
    made = arrow(incremental=["public.plain:id:integer"])
    made.execute("""create table plain (id int primary key, note text); insert into plain select i, 'n' from generate_series(1, 9) i;
        create table whole (id int primary key); insert into whole select generate_series(1, 9)""")
    made.sync()
    for name in ("plain", "whole"):
        before = made.table(name).head()
        assert before is not None
        with open_session(made.spark_home, name="test") as spark:  # a file with a deletion vector has to go, too
            spark.sql(f"DELETE FROM {made.table(name).sql_name} WHERE id = 3").collect()
        made.execute(f"update {name} set id = -id where id = 9; insert into {name} values (10); delete from {name} where id = 1")
        made.one(name, reset=True)
        made.assert_equal(name)
        assert engines(made, name)[0] == "files" and engines(made, name)[-1] == "files", engines(made, name)
        after = made.table(name).head()
        assert after is not None and after.table_id == before.table_id
        assert {k: v for k, v in after.properties.items() if k != STATE_PROPERTY} == {
            k: v for k, v in before.properties.items() if k != STATE_PROPERTY
        }
        made.execute(f"delete from {name}")
        refused = made.one(name, ok=False, reset=True)
        assert refused["status"] == "failed" and "--allow-empty" in refused["message"], refused
        made.one(name, reset=True, allow_empty=True)
        assert made.rows(name, "count(*)") == [(0,)]


def test_a_load_in_windows_replaces_the_lag_and_adds_the_rest(arrow: MakeProject) -> None:
    """The rows of the lag, which each window reads again, would be in the lake twice."""
    made = arrow(incremental=["public.t:id:integer"], containers={"t": {"safety_lag": 50}}, load_rows=500)
    made.execute("""create table t (id int primary key, note text); insert into t select i, 'n' || i from generate_series(1, 1000) i;
        analyze t""")
    line = made.one("t")
    made.assert_equal("t")
    assert line["rows_read"] > 1000
    kinds = engines(made, "t")
    assert kinds.count("files") > 1 and set(kinds) == {"files"}, kinds
    made.execute("insert into t select i, 'later' from generate_series(1001, 1010) i; update t set note = 'changed' where id > 990")
    made.one("t")
    made.assert_equal("t")


@pytest.mark.parametrize("strategy", ["append", "upsert"])
def test_a_load_in_windows_needs_no_spark(project: MakeProject, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    """Each window would wait for a MERGE of all its rows; or a row that has changed or moved between two windows would be there twice."""
    monkeypatch.setattr(rows, "MOST_LOCAL_ROWS", 200)
    monkeypatch.setattr(rows, "MOST_COMPARED_ROWS", 200)
    made = project(incremental=[f"public.t:at:integer!{strategy}"], containers={"t": {"safety_lag": 50}}, load_rows=500)
    made.execute("""create table t (id int primary key, at int not null, note text);
        insert into t select i, i, 'n' || i from generate_series(1, 1000) i; analyze t""")
    windows, first, next_ones = list[int](), choose.add_files, choose.replace_by_files

    def first_window(*args: Any) -> WriteResult:
        outcome = first(*args)
        made.execute("update t set at = 990 where at = 490; update t set note = 'changed' where at = 480")
        if strategy == "upsert":
            made.execute("update t set at = 991 where at = 10")
        return outcome

    def next_window(*args: Any) -> WriteResult:
        windows.append(1)
        return next_ones(*args)

    monkeypatch.setattr(choose, "add_files", first_window)
    monkeypatch.setattr(choose, "replace_by_files", next_window)
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    line = made.one("t")
    assert windows and line["rows_read"] > 1000
    made.assert_equal("t")
    updated = 3 if strategy == "upsert" else 2
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (1000, updated, 0)


@pytest.mark.parametrize("strategy", ["append", "upsert"])
def test_a_large_partition_is_refreshed_without_spark(project: MakeProject, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    """A backfill of a month of millions of rows would be read one by one through JDBC; or rows that the source has deleted would stay."""
    for limit in ("MOST_LOCAL_ROWS", "MOST_COMPARED_ROWS"):
        monkeypatch.setattr(rows, limit, 20)
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    made = project(incremental=[f"public.t:at:date!{strategy}"], containers={"t": {"partition_by": "month"}})
    made.execute("""create table t (id int primary key, at date not null, note text);
        insert into t select i, date '2026-01-01' + i % 90, 'n' from generate_series(1, 900) i; analyze t""")
    made.one("t")
    made.execute("update t set note = 'changed' where id <= 100; delete from t where id between 101 and 400; analyze t")
    for most_old, known in ((1_000_000, True), (10, False)):
        monkeypatch.setattr(local_rows, "MOST_OLD_ROWS", most_old)
        key = "2026-01-01" if known else "2026-02-01"
        changed = made.source.execute(f"select count(*) from t where note = 'changed' and date_trunc('month', at) = '{key}'").fetchone()
        line = made.one("t", keys=(key, key), mode=Mode.REFRESH)
        assert line["rows_updated"] == (changed[0] if known and changed else None), line
        assert (line["rows_deleted"] or 0) > 0 or not known
    again = made.one("t", keys=("2026-03-01", "2026-03-01"), mode=Mode.REFRESH)
    made.assert_equal("t")
    assert again["rows_read"] > 20
    monkeypatch.setattr(local_rows, "MOST_OLD_ROWS", 1_000_000)
    files = DeltaTable(made.table("t").url).file_uris()
    made.one("t", keys=("2026-01-01", "2026-01-01"), mode=Mode.REFRESH)
    assert DeltaTable(made.table("t").url).file_uris() == files, "nothing has changed"


def test_a_source_that_fails_while_it_is_read(arrow: MakeProject, by: str) -> None:
    """A load would look as if it were complete, a table would keep half of it, or the password would be in a log."""
    made = arrow(containers={"t": {"where": "1000 / (id - 5) < 5000"}})
    made.execute("create table t (id int primary key); insert into t select generate_series(1, 9)")
    failed = made.one("t", ok=False)
    assert failed["status"] == "failed" and "division by zero" in failed["message"], failed["message"]
    assert "1000" not in failed["message"]
    assert not list(Path(made.table("t").url).glob("*.parquet"))
    made.configure(containers={})
    made.one("t")
    made.assert_equal("t")
    assert engines(made, "t") == ["files"]
    password = made.source.info.password
    said = "\n".join(path.read_text(errors="replace") for path in made.spark_home.rglob("*.log*"))
    assert password and password not in said and password not in json.dumps(failed)


SLEEPING = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep%' and pid <> pg_backend_pid()"


def test_where_one_reader_fails_the_others_are_ended(arrow: MakeProject) -> None:
    """The sync would wait for queries whose rows nobody wants, for hours, and leave their files in the table's folder."""
    fails_or_waits = "case when id < 50 then 1 / (id - 10) > -5 when id > 350 then pg_sleep(300) is not null else true end"
    made = arrow(containers={"t": {"readers": 4, "where": fails_or_waits}})
    made.execute(f"create table t ({COLUMNS}); insert into t select {VALUES} from generate_series(1, 400) i")
    failed = made.one("t", ok=False)
    assert failed["status"] == "failed" and "division by zero" in failed["message"], failed["message"]
    assert made.source.execute(SLEEPING).fetchall() == [(0,)]
    assert not list(Path(made.table("t").url).glob("*.parquet"))


def test_all_processes_together_read_as_many_ranges_as_there_are_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each of the large tables that are loaded at the same time would take 0.8 GB a core, and the machine would end them all."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with a_core(2) as first:
        with a_core(2) as second, a_core(2) as third:
            assert (first, second, third) == (True, True, False)
        with a_core(2) as again:
            assert again
    monkeypatch.setenv("DAGSTER_HOME", "/proc/nowhere")  # a folder that cannot be written limits nothing
    with a_core(1) as one, a_core(1) as other:
        assert one and other


NUMBERED = "create table t (id int primary key, note text); insert into t select i, 'n' from generate_series(1, 5000) i"


KILLED = """
import os, signal
from incremental_assets.cli import main
from incremental_assets.delta import add_files
add_files.commit_files = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main()
"""
"""The command line, which is killed when it has read all rows into files."""


@pytest.mark.long
def test_kill_9_before_the_commit(arrow: MakeProject) -> None:
    """Files that are in no commit would be read."""
    made = arrow(incremental=["public.t:id:integer"])
    made.execute(NUMBERED)
    made.write()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "--project", str(made.path), "sync", "shop/t"], env=made.environment(), check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert list(Path(made.table("t").url).glob("*.parquet")), "its rows were in files"
    made.execute("insert into t select i, 'later' from generate_series(5001, 5100) i; delete from t where id % 7 = 0")
    made.one("t")
    made.assert_equal("t")
    made.one("t")
    made.assert_equal("t")


def test_files_that_were_committed_without_the_state(arrow: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that ends between its two commits would add the same rows once more the next time."""
    made = arrow(incremental=["public.t:id:integer"])
    made.execute(NUMBERED)

    def ends(*_: object) -> None:
        raise RuntimeError("it ends here")

    monkeypatch.setattr(write, "set_property", ends)
    assert "it ends here" in made.one("t", ok=False)["message"]
    monkeypatch.undo()
    monkeypatch.setenv(READ_BY, "arrow")
    assert engines(made, "t") == ["files"]
    made.execute("insert into t select i, 'later' from generate_series(5001, 5100) i; delete from t where id % 7 = 0")
    made.one("t")
    made.assert_equal("t")
    made.one("t")
    made.assert_equal("t")
