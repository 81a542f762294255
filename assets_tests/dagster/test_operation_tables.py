"""The tables ``_operations`` of a lake: a row for each operation that has ended, and each watermark that was written.

Belongs here: what a reader of these tables finds after real runs. Does not belong: the records of scans (``quality``).
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError

from assets_tests.harness import Folder, Project, wait_for
from incremental_assets.core.errors import ConfigurationError, LakeError
from incremental_assets.delta import maintenance
from incremental_assets.delta.append_only import AppendOnly
from incremental_assets.delta.operation_tables import EndedAs, Operation, OperationKind, OperationTables, Rows, WrittenWatermark
from incremental_assets.delta.table import LakeTable
from incremental_assets.operations.history import operations as newest_operations
from incremental_assets.runs.locks import container_lock
from incremental_assets.runs.records import operation_log
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
DOCS = Path(__file__).parents[2] / "docs" / "operating.md"
SECTION = DOCS.read_text(encoding="utf-8").partition("## Operations and watermarks in SQL")[2].partition("\n## ")[0]
QUERIES = re.findall(r"```sql\n(.*?)```", SECTION, re.DOTALL)


def operations(lake: str, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of ``operations`` with these values, in the order of their ends."""
    rows = OperationTables(lake).read("operations").sort_by("ended").to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def watermarks(lake: str) -> list[dict[str, Any]]:
    return OperationTables(lake).read("watermarks").sort_by("updated_at").to_pylist()


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month"}})
    made.execute("create table orders (id int primary key, day date, total int)")
    made.execute("insert into orders values (1, '2026-01-05', 5), (2, '2026-02-05', 5)")
    return made


def test_a_sync_has_a_row_and_its_watermark(shop: Project) -> None:
    """Without it, a report in SQL of what was synced lacks syncs, or has wrong numbers of them."""
    line = shop.one("orders")
    (row,) = operations(shop.lake)
    assert (row["datastore"], row["container"], row["kind"], row["result"]) == ("shop", "shop/orders", "sync", "success")
    assert (row["rows"], row["rows_inserted"], row["partitions"]) == (2, 2, len(line["partitions"]))
    assert (row["run_id"], row["message"], row["triggered_by"]) == (line["run_id"], line["message"], "command line")
    assert row["code_version"] and timedelta() < row["ended"] - row["started"] < timedelta(minutes=5)
    (mark,) = watermarks(shop.lake)
    assert (mark["container"], mark["watermark"], mark["identifier"]) == ("shop/orders", line["watermark"]["new"], "day")
    assert (mark["strategy"], mark["table_version"], mark["run_id"]) == (line["strategy"], line["delta_version"], line["run_id"])
    head = shop.table("orders").head()
    assert head is not None and row["table_version"] == head.version == mark["table_version"]


def test_a_sync_that_finds_nothing_to_do_writes_nothing(shop: Project) -> None:
    """A thousand unchanged containers would be two thousand commits each minute."""
    shop.one("orders")
    before = [DeltaTable(f"{shop.lake}/_operations/{name}").version() for name in ("operations", "watermarks")]
    assert shop.one("orders")["status"] == "skipped"
    assert [DeltaTable(f"{shop.lake}/_operations/{name}").version() for name in ("operations", "watermarks")] == before


def test_a_failed_sync_says_why(shop: Project) -> None:
    """Whoever looks for failures in SQL would see none."""
    shop.one("orders")
    shop.execute("drop table orders; create table orders (id int primary key, day text, total int); insert into orders values (3, 'x', 1)")
    line = shop.one("orders", stale=True, ok=False)
    assert line["status"] == "failed", line
    row = operations(shop.lake)[-1]
    assert (row["result"], row["message"], row["run_id"]) == ("failure", line["message"], line["run_id"])
    assert len(watermarks(shop.lake)) == 1, "a failed sync has written no watermark"


@pytest.mark.long
def test_a_command_has_one_commit_for_all_its_containers(project: MakeProject) -> None:
    """A commit for each container takes longer, and leaves a small file each."""
    shop = project(incremental=["public.a:day:date", "public.b:day:date", "public.c:day:date"])
    for name in "abc":
        shop.execute(f"create table {name} (id int primary key, day date); insert into {name} values (1, '2026-01-05')")
    shop.write()
    shop.cli("sync", "--jobs", "1", "--json")
    assert {row["container"] for row in operations(shop.lake, kind="sync")} == {"shop/a", "shop/b", "shop/c"}
    assert [row["container"] for row in operations(shop.lake, kind="catalog")] == [None]
    appended = [entry for entry in DeltaTable(f"{shop.lake}/_operations/operations").history() if entry["operation"] == "WRITE"]
    assert len(appended) == 2, "the catalog, and then the syncs"
    assert len(watermarks(shop.lake)) == 3


@pytest.mark.long
def test_scans_profiles_audits_and_sweeps_have_rows_of_their_own(project: MakeProject) -> None:
    """A run that does several things would seem to have done one."""
    rule = {"rule": "min", "column": "total", "min": 6}
    orders = {"partition_by": "month", "checks": [rule], "deletes": "sweep", "max_deleted_share": 1}
    shop = project(incremental=["public.orders:at:timestamp!upsert"], containers={"orders": orders})
    shop.execute("create table orders (id int primary key, at timestamptz, total int)")
    shop.execute("insert into orders values (1, '2026-01-05', 5), (2, '2026-02-05', 9)")
    shop.one("orders")
    shop.execute("delete from orders where id = 1; insert into orders values (3, '2026-03-05', 9)")
    line = shop.one("orders", sweep=True)
    of_run = {row["kind"]: row for row in operations(shop.lake, run_id=line["run_id"])}
    assert of_run.keys() == {"sync", "sweep", "scan"}
    assert (of_run["sweep"]["rows_deleted"], of_run["sweep"]["result"]) == (1, "success")
    shop.scan("orders")
    assert operations(shop.lake, kind="scan")[0]["result"] == "warning", "the first row breaks the rule"
    audited = shop.audit("orders")["orders"]
    (audit,) = operations(shop.lake, kind="audit")
    assert (audit["result"], audit["rows"], audit["run_id"]) == ("success", audited["rows"], audited["run_id"])
    assert operations(shop.lake, run_id=audited["run_id"], kind="sync")[0]["result"] == "skipped"


@pytest.mark.long
def test_maintenance_has_a_row_and_removes_old_rows(shop: Project) -> None:
    """The tables would grow for ever, or the only watermark of a quiet container would be gone."""
    shop.one("orders")
    tables, old = OperationTables(shop.lake), int((datetime.now(timezone.utc) - timedelta(days=200)).timestamp() * 1e6)
    common = {"datastore": "shop", "started": old, "ended": old, "kind": OperationKind.SYNC, "result": EndedAs.SUCCESS}
    quiet = WrittenWatermark(
        datastore="shop", container="shop/quiet", watermark="7", identifier="id", strategy="append", table_version=3, updated_at=old
    )
    for datastore, container in (("shop", "shop/orders"), ("other", "other/orders")):
        tables.append(Rows([Operation(**{**common, "datastore": datastore, "container": container})]))
    tables.append(Rows(watermarks=[quiet, WrittenWatermark(**{**quiet.__dict__, "updated_at": old - 1, "watermark": "6"})]))
    with shop.instance() as instance:
        done = shop.dagster().resolve_job_def("maintain_shop").execute_in_process(instance=instance)
    assert done.success
    assert [row["container"] for row in operations(shop.lake, kind="sync")] == ["other/orders", "shop/orders"]
    assert [row["watermark"] for row in watermarks(shop.lake) if row["container"] == "shop/quiet"] == ["7"]
    (row,) = operations(shop.lake, kind="maintenance")
    assert (row["datastore"], row["container"], row["result"]) == ("shop", None, "success")
    assert len(DeltaTable(f"{shop.lake}/_operations/watermarks").file_uris()) == 1, "small files are joined"


def test_a_sync_succeeds_where_its_row_cannot_be_written(shop: Project, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody must have no data because of a table for reports; but it is said that the row is missing."""
    blocked = Path(shop.lake) / "_operations"
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file is where the folder should be")
    assert shop.one("orders")["status"] == "synced"
    said = [line for line in capfd.readouterr().err.splitlines() if "_operations" in line]
    assert len(said) == 1 and "shop/orders: the tables _operations of the lake lack a row" in said[0], said
    assert len(shop.rows("orders")) == 2


def started(shop: Project) -> subprocess.Popen[bytes]:
    """A sync in a process of its own, whose run waits, as the caller has the container's lock."""
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "sync", "shop/orders", "--mode", "refresh"]
    log = shop.path / "stderr.log"
    with log.open("wb") as to:
        process = subprocess.Popen(command, env=shop.environment(), stdout=to, stderr=to)
    wait_for(lambda: b"wait" in log.read_bytes() or process.poll() is not None, "the run waits for the lock", 120)
    assert process.poll() is None, log.read_text()
    return process


@pytest.mark.long
@pytest.mark.parametrize(("number", "results"), [(signal.SIGKILL, ["success"]), (signal.SIGINT, ["success", "aborted"])])
def test_a_sync_that_is_killed_has_no_row_and_one_that_is_interrupted_says_so(
    shop: Project, number: signal.Signals, results: list[str]
) -> None:
    """A sync that never ended would count as one that succeeded, or the next one's row would be of both."""
    shop.write()
    shop.cli("sync", "shop/orders")
    shop.execute("insert into orders values (9, '2026-03-01', 1)")
    container = shop.definition("orders").container
    with shop.instance() as instance, container_lock(shop.home, container, "of the test", lambda _: None, instance, lake=shop.lake):
        process = started(shop)
        process.send_signal(number)
        process.wait(60)
    found = operations(shop.lake, kind="sync")
    assert [row["result"] for row in found] == results
    if number is signal.SIGINT:
        with shop.instance() as instance:
            assert newest_operations(instance, 1)[0]["message"].startswith("it was interrupted")
    assert len(watermarks(shop.lake)) == 1, "neither has written a watermark"
    line = shop.one("orders")
    assert line["status"] == "synced", line
    row = operations(shop.lake, kind="sync")[-1]
    assert (row["run_id"], row["result"], row["rows"]) == (line["run_id"], "success", line["rows_read"])
    assert watermarks(shop.lake)[-1]["watermark"] == line["watermark"]["new"] == "2026-03-01"


@pytest.mark.parametrize(("partition_by", "most"), [((), 1), (("container",), 1), (("container",), 1 << 20)])
def test_files_that_two_processes_join_at_the_same_time_have_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: tuple[str, ...], most: int
) -> None:
    """By delta-rs's own compaction, both would commit, and every operation would be counted twice."""
    monkeypatch.setattr(maintenance, "JOINED_BYTES", most)
    schema = pa.schema([("container", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
    table = AppendOnly(LakeTable(str(tmp_path), "t"), schema, partition_by)
    for n in range(6):
        table.append([{"container": "a'b" if n % 2 else "c", "at": n, "n": n}])
    stale = table.opened_to_change()
    maintenance.tidy(table.table)
    with monkeypatch.context() as other, pytest.raises(LakeError) as refused:
        other.setattr(LakeTable, "opened_to_change", lambda _: stale)
        maintenance.tidy(table.table)
    assert isinstance(refused.value.__cause__, CommitFailedError)
    rows = table.read().sort_by("n").to_pylist()
    assert [(row["container"], row["n"]) for row in rows] == [("a'b" if n % 2 else "c", n) for n in range(6)]
    assert rows[5]["at"].microsecond == 5
    found = table.opened()
    assert found is not None and len(found.file_uris()) == (2 if partition_by else 1)
    commits = 6 + (2 if partition_by and most == 1 else 1)
    assert found.version() == commits, "as many bytes at once as are allowed"
    maintenance.tidy(table.table)
    again = table.opened()
    assert again is not None and again.version() == commits, "there is nothing left to be joined"


def test_several_processes_append_at_the_same_time(tmp_path: Path) -> None:
    """Runs of other containers, which end in the same second, would lose their rows."""
    code = """
import sys
from incremental_assets.runs.locks import container_lock
from incremental_assets.delta.append_only import AppendOnly
from incremental_assets.delta.operation_tables import *
lake, number = sys.argv[1:]
for i in range(10):
    label = f"shop/t{number}"
    done = Operation(datastore="shop", container=label, kind=OperationKind.SYNC, result=EndedAs.SUCCESS, started=i, ended=i, rows=i)
    mark = WrittenWatermark(
        datastore="shop", container=label, watermark=str(i), identifier="id", strategy="append", table_version=i, updated_at=i
    )
    OperationTables(lake).append(Rows([done], [mark]))
"""
    lake = str(tmp_path / "lake")
    started = [subprocess.Popen([sys.executable, "-c", code, lake, str(number)]) for number in range(4)]
    assert [one.wait(120) for one in started] == [0, 0, 0, 0]
    found = sorted((row["container"], row["rows"]) for row in operations(lake))
    assert found == [(f"shop/t{number}", i) for number in range(4) for i in range(10)]
    assert len(watermarks(lake)) == 40


@pytest.mark.parametrize("more", [True, False])
def test_old_rows_go_from_a_table_that_another_version_has_made(tmp_path: Path, more: bool) -> None:
    """Maintenance would fail, and ask for space on the disk; or a column of the newer version would be lost of the rows that stay."""
    tables = OperationTables(str(tmp_path))
    marks = [
        WrittenWatermark(
            datastore="shop", container="shop/a", watermark=str(n), identifier="id", strategy="append", table_version=n, updated_at=n
        )
        for n in range(3)
    ]
    tables.append(Rows(watermarks=marks))
    delta = tables.tables["watermarks"].opened()
    assert delta is not None
    rows = QueryBuilder().register("t", delta).execute("select * from t order by updated_at").read_all()
    rows = pa.table(rows)
    rows = rows.append_column("new", pa.array(["x", "y", "z"])) if more else rows.drop_columns(["lsn"])
    write_deltalake(delta, rows, mode="overwrite", schema_mode="overwrite")
    assert tables.forget("shop", datetime.now(timezone.utc)) == 2
    assert [row["watermark"] for row in watermarks(str(tmp_path))] == ["2"]
    left = DeltaTable(tables.tables["watermarks"].table.url).to_pyarrow_table()
    assert left.column_names == rows.column_names and (not more or left["new"].to_pylist() == ["z"])


def test_rows_wait_for_others_and_are_written_when_nothing_else_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a short sync would be lost, if the process is killed in the hours of the next one."""
    monkeypatch.setattr(operation_log, "WAIT_SECONDS", 0.3)
    lake = str(tmp_path / "lake")
    done = Operation(datastore="shop", container="shop/a", kind=OperationKind.SYNC, result=EndedAs.SUCCESS, started=1, ended=2)
    with operation_log.recorded_together():
        operation_log.record(lake, Rows([done]))
        operation_log.record(lake, Rows([done]))
        assert operations(lake) == []
        wait_for(lambda: len(operations(lake)) == 2, "the rows are written", 20)
        assert DeltaTable(f"{lake}/_operations/operations").version() == 1
        operation_log.record(lake, Rows([done]))
    assert len(operations(lake)) == 3


@pytest.mark.long
def test_the_queries_of_the_page_run(shop: Project) -> None:
    """A reader copies them as they are."""
    shop.one("orders")
    shop.execute("insert into orders values (3, '2026-03-05', 9)")
    line = shop.one("orders")
    assert len(QUERIES) == 3
    with open_session(shop.spark_home, name="test") as spark:
        view, newest, longest = (query.replace("/srv/lake", shop.lake) for query in QUERIES)
        spark.sql(view)
        shown = [row.asDict() for row in spark.sql("SELECT * FROM current_watermarks").collect()]
        assert [(row["container"], row["watermark"]) for row in shown] == [("shop/orders", line["watermark"]["new"])]
        (found,) = [row.asDict() for row in spark.sql(newest).collect()]
        assert (found["result"], found["message"]) == ("success", line["message"])
        (taken,) = [row.asDict() for row in spark.sql(longest).collect()]
        assert (taken["kind"], taken["times"], taken["failed"]) == ("sync", 2, 0) and taken["seconds"] > 0


def test_the_page_names_all_columns_and_words() -> None:
    """A column without a meaning is one that nobody can use."""
    described = set(re.findall(r"`([a-z_]+)`", "\n".join(line for line in SECTION.splitlines() if line.startswith("| `"))))
    columns = {name for table in OperationTables("/nowhere").tables.values() for name in table.read().column_names}
    words = {one.value for one in (*OperationKind, *EndedAs)}
    assert columns | words <= described, (columns | words) - described


def test_files_have_rows_too(folder: Callable[..., Folder]) -> None:
    """A lake has both, and a report is of all."""
    landing = folder(containers={"sales": {"glob": "*.csv", "format": "csv"}})
    landing.put("a.csv", "id,total\n1,5\n2,6\n")
    line = landing.one("sales")
    (row,) = operations(landing.lake)
    assert (row["container"], row["rows"], row["partitions"], row["run_id"]) == ("landing/sales", 2, 1, line["run_id"])
    (mark,) = watermarks(landing.lake)
    assert mark["watermark"] == line["watermark"]["new"] and mark["table_version"] == line["delta_version"]


def test_no_datastore_can_have_the_name_of_the_folder(project: MakeProject) -> None:
    """Its container ``operations`` would be this table."""
    with pytest.raises(ConfigurationError, match="product's own"):
        project(name="_operations").component.settings()


def test_a_sync_that_cannot_be_planned_has_a_row(shop: Project) -> None:
    """A source that is down all night would leave no trace in the table."""
    shop.one("orders")
    definitions = shop.catalog()
    shop.execute("alter table orders rename to moved")
    with shop.instance() as instance:
        from incremental_assets.runs.runner import Runner, SyncOptions

        (line,) = Runner(shop.dagster(definitions), instance).sync(definitions, SyncOptions())
    row = operations(shop.lake)[-1]
    assert (row["result"], row["message"]) == ("failure", line["message"]), json.dumps(line)
