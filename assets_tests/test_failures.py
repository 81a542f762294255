"""Failures that other incremental loaders are known for: each test provokes one of them and checks that it does no harm here.

Belongs here: one known way to lose, double or alter rows of a table. Does not belong: columns that are added or widened between two syncs
(``test_schema_changes``), killed syncs and queries that go on after a kill (``test_kill``), random histories (``test_property``), and
folders of files (``files``).
"""

import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from assets_tests.harness import Project, wait_for
from incremental_assets.core.plan import Mode
from incremental_assets.delta.table import STATE_PROPERTY
from incremental_assets.runs.locks import container_lock
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
BY_MONTH = {"partition_by": "month"}


def test_a_row_committed_late_below_the_watermark_arrives(project: MakeProject) -> None:
    """A row whose id or time was drawn before a sync and committed after it must not be missed, although it lies below the newest rows."""
    made = project(incremental=["public.t:id:integer", "public.p:at:timestamp"], containers={"p": BY_MONTH})
    made.execute("""create table t (id bigserial primary key, note text);
        create table p (at timestamptz default clock_timestamp(), note text);
        insert into t (note) values ('first'); insert into p (note) values ('first')""")
    made.sync()
    with psycopg.connect(made.url) as late, psycopg.connect(made.url, autocommit=True) as preparing:
        late.execute("select nextval('t_id_seq')")  # 2 is drawn, long before it is inserted
        preparing.execute("begin; insert into p (note) values ('prepared'); prepare transaction 'late'")
        made.execute("insert into t (note) values ('third'); insert into p (note) values ('third')")
        held = made.sync()
        assert held["t"]["watermark"]["new"] == 1 and held["t"]["rows_inserted"] == 1  # only the watermark is held back, not the new rows
        assert {h["pid"] for h in held["t"]["watermark"]["held_back_by"]} == {late.info.backend_pid, None}
        assert [h["application"] for h in held["p"]["watermark"]["held_back_by"] if h["pid"] is None] == ["prepared transaction late"]
        late.execute("insert into t values (2, 'second, and late')")
        late.commit()
        preparing.execute("commit prepared 'late'")
    lines = made.sync()
    assert lines["t"]["watermark"]["new"] == 3 and lines["t"]["watermark"]["held_back_by"] is None
    made.assert_equal("t")
    made.assert_equal("p")
    assert {line["status"] for line in made.sync().values()} == {"skipped"}


def test_rows_committed_between_the_maximum_and_the_read_arrive(project: MakeProject) -> None:
    """Rows that are committed after the maximum was asked for and before the rows are read must not end up below the watermark, unread."""
    made = project(incremental=["public.t:id:integer"], settle_seconds=0.01)
    made.execute("create table t (id bigserial primary key, at timestamptz default clock_timestamp()); insert into t default values")
    done = threading.Event()

    def write(pause: float) -> None:
        with psycopg.connect(made.url) as connection:
            while not done.is_set():
                connection.execute("insert into t default values")
                time.sleep(pause)  # the commit comes later than the id, so that the writers' commits are not in the order of the ids
                connection.commit()

    writers = [threading.Thread(target=write, args=(pause,)) for pause in (0.001, 0.02, 0.11, 0.5)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(3):
            made.one("t")
    finally:
        done.set()
        for writer in writers:
            writer.join()
    made.one("t")
    made.assert_equal("t")


@pytest.mark.long  # the random histories of test_property cover it, too
def test_rows_that_equal_the_watermark_arrive_once(project: MakeProject) -> None:
    """New rows whose identifier equals the watermark must arrive, where ``>`` would lose them, and old ones must not be doubled by
    ``>=``."""
    made = project(incremental=["public.t:at:timestamp", "public.u:at:timestamp!upsert"], containers={"t": BY_MONTH, "u": BY_MONTH})
    for name in ("t", "u"):
        made.execute(
            f"create table {name} (id int primary key, at timestamptz); insert into {name} values (1, '2024-11-01'), (2, '2024-11-01')"
        )
    made.sync()
    for name in ("t", "u"):
        made.execute(f"insert into {name} values (3, '2024-11-01'), (4, '2024-11-01')")
    lines = made.sync()
    for name in ("t", "u"):
        assert lines[name]["rows_inserted"] == 2 and len(made.rows(name)) == 4
        made.assert_equal(name)


def test_a_watermark_keeps_its_microseconds(project: MakeProject) -> None:
    """If a watermark were cut to milliseconds, rows of the same millisecond would be read by each sync, or by none."""
    made = project(incremental=["public.t:at:timestamp"], containers={"t": BY_MONTH})
    made.execute("create table t (id int, at timestamp); insert into t values (1, '2024-11-01 00:00:00.123456')")
    assert made.one("t")["watermark"]["new"] == "2024-11-01T00:00:00.123456"
    made.execute("insert into t values (2, '2024-11-01 00:00:00.123457'), (0, '2024-11-01 00:00:00.123455')")
    line = made.one("t")
    assert (line["rows_read"], line["watermark"]["new"]) == (2, "2024-11-01T00:00:00.123457")
    assert sorted(made.rows("t", "id")) == [(1,), (2,)]  # row 0 lies below the watermark, where only a safety lag would find it
    made.configure(containers={"t": {**BY_MONTH, "safety_lag": 1}})
    made.execute("update t set id = 0 where id = 0")
    made.one("t")
    made.assert_equal("t")


def test_times_without_zone_are_not_shifted(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times without zone must arrive unchanged, whatever the zone of the machine, also in an hour that clocks skip or show twice."""
    monkeypatch.setenv("TZ", "America/St_Johns")
    made = project(incremental=["public.t:at:datetime"], containers={"t": {"partition_by": "day"}}, timezone="Europe/Berlin")
    made.execute(
        """create table t (at timestamp, tz timestamptz);
        insert into t select at, at at time zone 'Europe/Berlin' from unnest(
          array['2024-10-26 23:30', '2024-10-27 00:00', '2024-10-27 02:30',
          '2024-10-27 02:59:59.999999', '2024-10-27 23:59:59.999999', '2024-10-28 00:00']::timestamp[]) at"""
    )
    line = made.one("t")
    made.assert_equal("t")
    assert line["partitions"] == ["2024-10-26", "2024-10-27", "2024-10-28"] and line["watermark"]["new"] == "2024-10-28T00:00:00"
    made.execute("delete from t where at::date = '2024-10-27'; insert into t values ('2024-10-27 03:00'), ('2024-03-31 02:30')")
    refreshed = made.one("t", keys=("2024-10-27", "2024-10-27"))  # the day has 25 hours, and all of its rows belong to this window
    assert (refreshed["rows_inserted"], refreshed["rows_deleted"]) == (1, 4)
    made.assert_equal("t", where="at >= '2024-10-01'")


def test_rows_whose_identifier_is_null_arrive_once(project: MakeProject) -> None:
    """Rows whose identifier is NULL belong to no window. They must arrive all the same, and must not be doubled by each sync."""
    made = project(
        incremental=["public.t:at:timestamp", "public.u:at:timestamp!upsert", "public.left:at:timestamp", "public.strict:at:timestamp"],
        containers={"t": BY_MONTH, "u": BY_MONTH, "left": {**BY_MONTH, "on_null": "exclude"}, "strict": {**BY_MONTH, "on_null": "error"}},
    )
    tables = ("t", "u", "left", "strict")
    for name in tables:
        made.execute(
            f'create table "{name}" (id int primary key, at timestamptz); insert into "{name}" values (1, \'2024-11-01\'), (2, null)'
        )
    lines = made.sync()
    assert lines["strict"]["status"] == "failed" and "1 row has no at, and on_null is error" in lines["strict"]["message"]
    made.execute("""delete from strict where at is null; insert into t values (3, null); insert into u values (3, null);
        update "left" set at = '2024-11-02' where id = 2; insert into "left" values (3, null)""")
    lines = made.sync()
    for name in tables:
        assert lines[name]["status"] == "synced", lines[name]["message"]
        made.assert_equal(name, where="at is not null" if name == "left" else "true")
    assert lines["t"]["rows_inserted"] == lines["u"]["rows_inserted"] == 1
    made.execute("delete from t where id = 2; update u set at = '2024-11-03' where id = 2")
    lines = made.sync()
    assert lines["left"]["status"] == "skipped"
    for name in tables:
        made.assert_equal(name, where="at is not null" if name == "left" else "true")


def test_a_merge_key_that_is_null_or_occurs_twice_fails_the_sync(project: MakeProject) -> None:
    """NULL equals nothing, so each sync would insert a row with NULL in its key again; and rows that share a key cannot be told apart."""
    made = project(
        incremental=["public.t:at:timestamp!upsert", "public.d:at:timestamp!upsert"],
        containers={"t": {**BY_MONTH, "primary_key": ["a", "b"]}, "d": {**BY_MONTH, "primary_key": ["a"]}},
    )
    made.execute("""create table t (a int, b int, at timestamptz); insert into t values (1, 1, '2024-11-01');
        create table d (a int, at timestamptz); insert into d values (1, '2024-11-01')""")
    made.sync()
    made.execute("insert into t values (1, null, '2024-11-02'); insert into d values (7, '2024-11-02'), (7, '2024-11-03')")
    lines = made.sync()
    for name, words in (("t", "(a, b) = (1,) is NULL or occurs twice"), ("d", "(a) = (7) is NULL or occurs twice")):
        assert lines[name]["status"] == "failed" and words in lines[name]["message"] and "primary_key" in lines[name]["message"]
        assert len(made.rows(name)) == 1


@pytest.mark.long
def test_rows_committed_without_their_watermark_are_not_doubled(project: MakeProject) -> None:
    """Where a sync died after it had committed rows and before it stored the watermark, the next sync must not append the rows again."""
    made = project(incremental=["public.t:day:date", "public.u:day:date!upsert"], containers={"t": BY_MONTH, "u": BY_MONTH})
    for name in ("t", "u"):
        made.execute(f"create table {name} (id int primary key, day date); insert into {name} values (1, '2024-11-01'), (2, '2024-11-02')")
    made.sync()
    heads = {name: made.table(name).head() for name in ("t", "u")}
    for name in ("t", "u"):
        made.execute(f"insert into {name} values (3, '2024-11-03'), (4, '2024-11-04'); delete from {name} where id = 2")
    made.sync()
    with open_session(made.spark_home, name="test") as spark:
        for name, head in heads.items():  # the state of before the sync, as if its process had died after it committed the rows
            assert head is not None
            state = head.properties[STATE_PROPERTY].replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"alter table {made.table(name).sql_name} set tblproperties ('{STATE_PROPERTY}' = '{state}')")
    lines = made.sync()
    for name in ("t", "u"):
        assert lines[name]["rows_read"] == 2 and lines[name]["watermark"] == {
            "previous": "2024-11-02",
            "new": "2024-11-04",
            "held_back_by": None,
        }
        made.assert_equal(name)


@pytest.mark.long  # the random histories of test_property cover it, too
def test_a_sync_that_finds_no_rows_keeps_the_watermark(project: MakeProject) -> None:
    """If a sync that finds no rows stored no watermark, the next one would read everything again."""
    made = project(incremental=["public.t:day:date", "public.e:day:date"], containers={"t": BY_MONTH, "e": BY_MONTH})
    made.execute("""create table t (id int, day date); insert into t values (1, '2024-11-01'), (2, '2024-11-02');
        create table e (id int, day date)""")
    first = made.sync()
    assert first["e"]["status"] == "synced" and first["e"]["watermark"]["new"] is None and first["e"]["rows_read"] == 0
    made.execute("delete from t where id = 2")
    empty = made.one("t")
    assert empty["rows_read"] == 0 and empty["watermark"] == {"previous": "2024-11-02", "new": "2024-11-02", "held_back_by": None}
    assert empty["status"] == "warning" and "fallen back" in empty["message"]
    made.execute("insert into t values (3, '2024-11-03'); insert into e values (1, '2024-11-03'), (2, null)")
    lines = made.sync()
    assert lines["t"]["rows_read"] == 1 and lines["e"]["rows_read"] == 2
    for name in ("t", "e"):
        made.assert_equal(name)


def test_a_failed_rewrite_leaves_the_table_as_it_was(project: MakeProject) -> None:
    """A reload or a refresh that fails must not have removed the table's rows before."""
    made = project(incremental=["public.v:day:date"], containers={"v": BY_MONTH})
    made.execute("""create table base (id int, day date);
        insert into base select i, date '2024-10-20' + i % 20 from generate_series(1, 2000) i;
        create view v as select id, day, 100 / id as share from base; create view w as select id, 100 / id as share from base""")
    assert made.one("v")["rows_read"] == made.one("w")["rows_read"] == 2000
    before = {name: sorted(made.rows(name)) for name in ("v", "w")}
    made.execute("insert into base values (0, '2024-10-01')")
    for name, asked in (("v", {"reset": True}), ("v", {"keys": ("2024-10-01", "2024-10-01")}), ("v", {"mode": Mode.REFRESH}), ("w", {})):
        failed = made.one(name, ok=False, **asked)
        assert failed["status"] == "failed" and "division by zero" in failed["message"], failed["message"]
        assert failed["message"].startswith(f"shop/{name}: ")
        assert sorted(made.rows(name)) == before[name]
    made.execute("delete from base where id = 0")
    assert made.one("v", reset=True)["rows_read"] == 2000
    made.assert_equal("v")


@pytest.mark.long
def test_an_upsert_reads_only_the_files_that_it_changes(project: MakeProject) -> None:
    """If an upsert read all files of the table, one changed row would cost as much as the first load."""
    made = project(incremental=["public.t:day:date!upsert"], containers={"t": BY_MONTH}, load_rows=500)
    made.execute("""create table t (id text primary key, day date, note text);
        insert into t select 'k' || lpad(i::text, 6, '0'), date '2024-05-01' + i / 20, 'n' from generate_series(1, 3600) i; analyze t""")
    made.one("t")
    table = made.table("t")
    made.execute("update t set note = 'changed' where day >= '2024-10-28'")
    away = made.path / "away"
    away.mkdir()
    files = [Path(file) for file in DeltaTable(table.url).file_uris()]
    newest = max(files, key=lambda file: pq.read_table(file, columns=["day"])["day"].to_pylist()[0])
    others = [file for file in files if file != newest]
    assert len(others) >= 3
    for file in others:  # a merge that reads one of these files fails now
        file.rename(away / file.name)
    line = made.one("t")
    for file in others:
        (away / file.name).rename(file)
    assert line["rows_updated"] == line["rows_read"] > 0
    made.assert_equal("t")


@pytest.mark.long  # the random histories of test_property cover it, too
def test_a_refresh_deletes_rows_that_are_gone_from_the_source(project: MakeProject) -> None:
    """Rows that were deleted in the source must not stay in the lake when their partition is refreshed."""
    made = project(incremental=["public.t:day:date", "public.u:day:date!upsert"], containers={"t": BY_MONTH, "u": BY_MONTH})
    for name in ("t", "u"):
        made.execute(f"""create table {name} (id int primary key, day date);
            insert into {name} select i, date '2024-09-01' + i from generate_series(0, 80) i""")
    made.sync()
    for name in ("t", "u"):
        made.execute(f"delete from {name} where id in (3, 4, 40)")
        line = made.one(name, keys=("2024-09-01", "2024-09-01"))
        assert (line["rows_deleted"], line["rows_inserted"], line["rows_updated"]) == (2, 0, 0)
        assert len(made.rows(name, "id", "id = 40")) == 1  # October was not asked for
        assert made.one(name, mode=Mode.REFRESH)["rows_deleted"] == 1
        made.assert_equal(name)
        # If all rows of a month or of the table are gone, the source may be broken, so the deletion needs a permission.
        made.execute(f"delete from {name} where day < '2024-10-01'")
        refused = made.one(name, ok=False, keys=("2024-09-01", "2024-09-01"))
        assert refused["status"] == "failed" and "--allow-empty" in refused["message"] and len(made.rows(name)) > 70
        made.one(name, keys=("2024-09-01", "2024-09-01"), allow_empty=True)
        made.assert_equal(name)
        made.execute(f"truncate {name}")
        refused = made.one(name, ok=False, reset=True)
        assert refused["status"] == "failed" and "--allow-empty" in refused["message"] and made.rows(name)
    made.one("t", reset=True, allow_empty=True)
    assert made.rows("t") == []


def test_a_refresh_of_one_partition_replaces_no_other(project: MakeProject) -> None:
    """If the predicate of a refresh were missing, the rows of one partition would replace the whole table."""
    made = project(incremental=["public.t:day:date", "public.i:id:integer"], containers={"t": BY_MONTH, "i": {"partition_by": 100}})
    made.execute("""create table t (id int, day date); insert into t select i, date '2024-08-15' + i from generate_series(1, 90) i;
        create table i (id int); insert into i select generate_series(1, 450)""")
    made.sync()
    before = {name: sorted(made.rows(name)) for name in ("t", "i")}
    made.execute("update t set id = -id; insert into i select -1; delete from i where id in (150, 250)")
    made.one("t", keys=("2024-09-01", "2024-09-01"))
    made.one("i", keys=("100", "100"))
    assert sorted(made.rows("t", where="day < '2024-09-01' or day >= '2024-10-01'")) == sorted(
        row for row in before["t"] if not "2024-09-01" <= str(row[1]) < "2024-10-01"
    )
    assert {row[0] < 0 for row in made.rows("t", "id", "day >= '2024-09-01' and day < '2024-10-01'")} == {True}
    assert sorted(made.rows("i")) == [row for row in before["i"] if row != (150,)]
    assert made.one("i", keys=("0", "100"))["rows_inserted"] == 1  # the first window has no lower bound, so that it has the row -1
    made.one("i", keys=("0", "400"))
    made.assert_equal("i")


# ---------------------------------------------------------------------- one container among others
def test_a_second_sync_of_a_container_waits_and_names_the_first(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two syncs of one table at once would conflict in their commits. The second one must wait and then name the run that syncs the
    table."""
    made = project()
    made.write()
    made.execute("create table t (id int); insert into t values (1)")
    container = made.definition("t").container
    monkeypatch.setenv("INCREMENTAL_ASSETS_LOCK_SECONDS", "0.5")
    with made.instance() as instance, container_lock(made.home, container, "the-first-run", lambda _: None, instance, lake=made.lake):
        line = made.one("t")
        assert line["status"] == "skipped" and "is being synced by run the-first-run (pid " in line["message"]
        assert made.table("t").head() is None
        monkeypatch.setenv("INCREMENTAL_ASSETS_LOCK_SECONDS", "60")
        waiting: dict[str, Any] = {}
        second = threading.Thread(target=lambda: waiting.update(command_line_result(made, "sync", "shop/t")))
        second.start()
        wait_for(
            lambda: sum("waits for" in entry.user_message for run in instance.get_runs() for entry in instance.all_logs(run.run_id)) == 2,
            "the second sync to wait, as the first one did",
        )
        assert not waiting
    second.join()
    assert waiting["code"] == 0 and "waits for run the-first-run" in waiting["stderr"], waiting["stderr"]
    made.assert_equal("t")


def command_line_result(project: Project, *arguments: str) -> dict[str, Any]:
    code, lines, printed = project.cli(*arguments, "--json", check=None)
    return {"code": code, "lines": lines, "stderr": printed}


def test_a_failing_container_leaves_the_others_alone(project: MakeProject) -> None:
    """One broken view must not keep the other containers of its datastore from being synced."""
    made = project(incremental=["public.b:id:integer"])
    made.execute("""create table a (id int); insert into a values (1); create table b (id int); insert into b values (1);
        create view broken as select 1 / (id - 1) as x from a; create table c (id int); insert into c values (1)""")
    made.write()
    code, lines, printed = made.cli("sync", "--json", "--jobs", "2", check=None)
    assert {line["container"]: line["status"] for line in lines} == {
        "shop/a": "synced", "shop/b": "synced", "shop/broken": "failed", "shop/c": "synced"
    }, printed  # fmt: skip
    assert code == 1
    message = next(line["message"] for line in lines if line["status"] == "failed")
    assert message.startswith("shop/broken: ") and "division by zero" in message
    for name in "abc":
        made.assert_equal(name)


SECRET = "S3cr3t/p@ss:w%rd"
IN_A_URL = "S3cr3t%2Fp%40ss%3Aw%25rd"


@pytest.mark.long
def test_passwords_show_nowhere(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that is shown in output, logs, arguments of processes or stored files would open the database to whoever reads those."""
    made = project(incremental=["public.t:id:integer!upsert"])
    made.execute(f"""drop role if exists secretive; create role secretive login password '{SECRET}';
        create table t (id int primary key); insert into t values (1); create view broken as select 1 / (id - 1) as x from t;
        grant select on all tables in schema public to secretive""")
    made.url = made.url.replace(made.url.split("@")[0], f"postgresql://secretive:{IN_A_URL}")
    made.write()
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes().decode(errors="replace"))
                except OSError:
                    continue
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    printed: list[str] = []
    try:
        for arguments in (["catalog", "--json"], ["sync", "--json"], ["sync", "--dry-run"], ["watermarks", "--history"]):
            command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(made.path), *arguments]
            run = subprocess.run(command, env=made.environment(), capture_output=True, text=True, timeout=300, check=False)
            printed.append(run.stdout + run.stderr)
        assert '"synced"' in printed[1] and '"failed"' in printed[1], printed[1]
        right = made.url
        made.url = right.replace("S3cr3t", "S3cr3tt")
        code, lines, text = made.cli("sync", "--json", check=None)
        assert code == 1 and "Check user and password" in str(lines), text
        printed.append(text + str(lines))
        made.url = right
    finally:
        done.set()
        watcher.join()
    secrets = [SECRET.encode(), IN_A_URL.encode(), b"S3cr3t"]
    shown = [*(s.encode() for s in (*printed, *seen)), *_everything_below(made.path), *_everything_below(made.spark_home)]
    assert len(shown) > 50
    for blob in shown:
        for secret in secrets:
            at = blob.find(secret)
            assert at < 0, blob[max(0, at - 300) : at + 100]


def _everything_below(folder: Path) -> list[bytes]:
    """The content of all files below the folder, and of the values that Dagster has compressed in its databases."""
    found: list[bytes] = []
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".jar", ".lock"):
            found.append(path.read_bytes())
        if path.suffix == ".db" and path.is_file():
            with sqlite3.connect(path) as database:
                for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
                    for row in database.execute(f'select * from "{table}"'):
                        found += [zlib.decompress(v) for v in row if isinstance(v, bytes) and v[:1] == b"x"]
    return found
