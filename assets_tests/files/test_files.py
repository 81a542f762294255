"""Folders of files, kept in step: what a user sees who puts files there, changes them, removes them, and looks into the lake.

Real folder, real Spark, real Delta, real Dagster runs.
"""

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from assets_tests.harness import Folder, long
from incremental_assets.core.errors import LakeError
from incremental_assets.core.files import encode_path
from incremental_assets.core.plan import Mode
from incremental_assets.dagster.sensors import Cursor, tick
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import Manifest
from incremental_assets.files.rejected import rejected_table
from incremental_assets.files.sync import FileSync
from incremental_assets.runs.partitions import partitions_definition
from incremental_assets.spark.session import open_session

Make = Callable[..., Folder]


def sales(make: Make, **attributes: Any) -> Folder:
    """A container ``sales`` over CSV files."""
    entry = {"glob": "sales/**/orders_*.csv", **attributes.pop("entry", {})}
    return make(containers={"sales": entry}, **attributes)


def test_files_that_are_added_changed_and_removed_are_followed(folder: Make) -> None:
    project = sales(folder)
    project.put("sales/a/orders_1.csv", "id,amount\n1,10\n2,20\n")
    project.put("sales/orders_2.csv", "id,amount\n3,30\n")
    project.put("other/orders_9.csv", "id,amount\n9,90\n")
    first = project.one("sales")
    assert first["status"] == "synced", first
    assert (first["rows_read"], first["partitions"]) == (3, ["sales/a/orders_1.csv", "sales/orders_2.csv"])
    assert project.files("sales") == {"sales/a/orders_1.csv": 2, "sales/orders_2.csv": 1}
    assert project.one("sales")["status"] == "skipped"

    project.put("sales/a/orders_1.csv", "id,amount\n1,11\n", at=1_000_000_000)  # an old time: it came late
    project.put("sales/orders_3.csv", "id,amount\n4,40\n")
    second = project.one("sales")
    assert sorted(second["partitions"]) == ["sales/a/orders_1.csv", "sales/orders_3.csv"]
    assert project.files("sales") == {"sales/a/orders_1.csv": 1, "sales/orders_2.csv": 1, "sales/orders_3.csv": 1}
    assert sorted(project.rows("sales", "id, amount")) == [(1, 11), (3, 30), (4, 40)]

    (project.root / "sales/orders_2.csv").unlink()
    gone = project.one("sales")
    assert gone["status"] == "skipped" and "1 are gone from the folder; their rows stay" in gone["message"]
    assert len(project.files("sales")) == 3
    project.configure(prune_files=True)
    pruned = project.one("sales")
    assert pruned["rows_deleted"] == 1 and "sales/orders_2.csv" not in project.files("sales")
    with project.instance() as instance:
        assert "sales/orders_2.csv" not in instance.get_dynamic_partitions("landing/sales")


def test_lines_that_cannot_be_read_are_kept_and_make_a_warning(folder: Make) -> None:
    project = sales(folder, entry={"columns": {"amount": "bigint"}})
    project.put("sales/orders_1.csv", "id,amount\n1,10\n2,much\n3,30,0\n")
    project.put("sales/orders_2.csv", "id,amount\n4,40\n")
    broken = project.put("sales/orders_3.csv.gz", b"this is no gzip")
    project.configure(containers={"sales": {"glob": "sales/orders_*", "format": "csv", "columns": {"amount": "bigint"}}})
    line = project.one("sales")
    assert line["status"] == "warning" and line["rows_read"] == 2, line
    assert "2 rows of 1 file did not fit" in line["message"] and "orders_3.csv.gz" in line["message"]
    rejected = DeltaTable(str(project.lake_root / "landing" / "_rejected" / "sales")).to_pyarrow_table().to_pylist()
    assert {(row["_file"], row["line"].partition(",")[0]) for row in rejected} == {("sales/orders_1.csv", "2"), ("sales/orders_1.csv", "3")}
    assert any("amount is no bigint: much" in row["reason"] for row in rejected)
    assert project.files("sales") == {"sales/orders_1.csv": 1, "sales/orders_2.csv": 1}

    with project.instance() as instance:  # a tick does not start a run for it again and again
        [definition] = [d for d in project.catalog() if d.table.name == "sales"]
        assert isinstance(definition, FileDefinition)
        ticked = tick(instance, definition, None)
    assert not ticked.run_requests and "could not be read before" in str(ticked.skip_reason)
    assert project.one("sales")["status"] == "warning"  # a person is told each time

    with gzip.open(broken, "wt") as repaired:
        repaired.write("id,amount\n5,50\n")
    os.utime(broken, (1_500_000_000, 1_500_000_000))
    project.put("sales/orders_1.csv", "id,amount\n1,10\n2,20\n3,30\n")
    healed = project.one("sales")
    assert healed["status"] == "synced", healed
    assert project.files("sales") == {"sales/orders_1.csv": 3, "sales/orders_2.csv": 1, "sales/orders_3.csv.gz": 1}
    assert not DeltaTable(str(project.lake_root / "landing" / "_rejected" / "sales")).to_pyarrow_table().num_rows


@pytest.mark.long
def test_a_container_of_which_no_file_can_be_read_says_so_and_makes_no_table(folder: Make) -> None:
    project = folder(containers={"parts": {"glob": "*.parquet"}})
    project.put("a.parquet", "no parquet")
    line = project.one("parts")
    assert line["status"] == "warning" and "a.parquet" in line["message"], line
    assert project.table("parts").head() is None
    good = project.put("b.parquet", "")
    pq.write_table(pa.table({"id": [1]}), good)
    os.utime(good, (1_600_000_000, 1_600_000_000))
    assert project.one("parts")["status"] == "warning" and project.files("parts") == {"b.parquet": 1}
    good.write_text("broken too")
    project.put("c.parquet", "and another")
    reset = project.one("parts", reset=True)  # which must not leave an empty table in the place of one with rows
    assert reset["status"] == "warning" and "nothing was written" in reset["message"], reset
    assert project.files("parts") == {"b.parquet": 1}
    nothing = folder(containers={"parts": {"glob": "*.parquet"}}).one("parts")
    assert nothing["status"] == "skipped" and "no file matches" in nothing["message"]


HOSTILE = [
    "a b.csv", "it's.csv",
    'say "x".csv', "a...b.csv", "line\nbreak.csv", "ünï 漢字 🎉.csv", "100%.csv", "a%20b.csv", "semi;colon,comma.csv",
    "back\\slash.csv", "\\' OR 1=1 -- .csv", "[abc].csv", "star*.csv", "what?.csv", "{a,b}.csv", "colon:c.csv", "tab\tt.csv", "$x `y`.csv",
    "n" * 240 + ".csv", "d/x.csv", "e/x.csv", "D/x.csv", b"latin-\xe9.csv",
]  # fmt: skip


def test_no_name_of_a_file_breaks_a_key_or_touches_the_rows_of_another(folder: Make) -> None:
    project = folder(containers={"all": {"glob": "**/*.csv"}})
    names = [os.fsdecode(name) for name in HOSTILE]
    for number, name in enumerate(names):
        project.put(name, f"n\n{number}\n")
    assert project.one("all")["rows_read"] == len(names)
    by_key = {encode_path(name): number for number, name in enumerate(names)}
    assert dict(project.rows("all", "_file, n")) == by_key
    with project.instance() as instance:
        assert set(instance.get_dynamic_partitions("landing/all")) == set(by_key)
    changed = names[10]
    project.put(changed, "n\n1000\n")
    assert project.one("all")["partitions"] == [encode_path(changed)]
    assert dict(project.rows("all", "_file, n")) == by_key | {encode_path(changed): 1000}
    with project.instance() as instance:
        counted = {
            str(record.partition_key): record.asset_materialization.metadata["dagster/partition_row_count"].value
            for record in instance.fetch_materializations(dg.AssetKey(["landing", "all"]), limit=100).records
            if record.asset_materialization
        }
    assert counted == dict.fromkeys(by_key, 1)


@pytest.mark.long
def test_a_refresh_of_a_partition_reads_its_file_again(folder: Make) -> None:
    project = sales(folder)
    for number in (1, 2, 3):
        project.put(f"sales/orders_{number}.csv", f"id\n{number}\n")
    project.one("sales")
    one = project.one("sales", keys=("sales/orders_2.csv", "sales/orders_2.csv"))
    assert (one["status"], one["mode"], one["partitions"], one["rows_read"]) == ("synced", "refresh", ["sales/orders_2.csv"], 1)
    some = project.one("sales", keys=("sales/orders_1.csv", "sales/orders_2.csv"))
    assert some["partitions"] == ["sales/orders_1.csv", "sales/orders_2.csv"]
    refused = project.one("sales", ok=False, keys=("sales/orders_4.csv", "sales/orders_4.csv"))
    assert refused["status"] == "failed" and "there is no file for the partition" in refused["message"]
    assert project.one("sales", mode=Mode.REFRESH)["rows_read"] == 3
    (project.root / "sales/orders_3.csv").unlink()
    assert project.one("sales", reset=True)["rows_read"] == 2  # anew, as the folder is
    assert project.files("sales") == {"sales/orders_1.csv": 1, "sales/orders_2.csv": 1}
    for path in (project.root / "sales").iterdir():
        path.unlink()
    project.configure(prune_files=True)
    emptied = project.one("sales", ok=False)
    assert emptied["status"] == "failed" and "--allow-empty" in emptied["message"]
    assert project.one("sales", allow_empty=True)["rows_deleted"] == 2 and project.files("sales") == {}


def test_the_sensor_asks_for_some_files_at_a_time_and_waits_for_those_being_written(folder: Make) -> None:
    project = sales(folder, files_a_tick=2, settle_seconds=60)
    for number in (1, 2, 3):
        project.put(f"sales/orders_{number}.csv", f"id\n{number}\n")
    project.put("sales/orders_9.csv", "id\n9\n", at=time.time())
    os.environ["INCREMENTAL_ASSETS_LAKE"] = str(project.lake_root)
    [definition] = project.catalog()
    assert isinstance(definition, FileDefinition)
    code = project.dagster([definition])
    cursor: str | None = None
    asked: list[list[str]] = []
    with project.instance() as instance:
        for _ in range(4):
            ticked = tick(instance, definition, cursor)
            cursor = ticked.cursor or cursor
            for request in ticked.run_requests or []:
                done = code.resolve_job_def("sync_landing__sales").execute_in_process(
                    instance=instance, run_config=dict(request.run_config or {}), tags=dict(request.tags)
                )
                events = done.get_asset_materialization_events()
                asked.append(sorted(str(event.partition) for event in events))
        assert asked == [["sales/orders_1.csv", "sales/orders_2.csv"], ["sales/orders_3.csv"]]
        seen = Cursor.from_json(cursor)
        assert seen is not None and not seen.settled  # one is still to come, though nothing may change until it is old enough
        os.utime(project.root / "sales/orders_9.csv", (1_700_000_000, 1_700_000_000))
        assert tick(instance, definition, cursor).run_requests
    project.one("sales")
    with project.instance() as instance:
        cursor = tick(instance, definition, None).cursor
        assert cursor is not None
        assert "the folder is as it was" in str(tick(instance, definition, cursor).skip_reason)
    project.root.rename(project.path / "away")
    with project.instance() as instance, pytest.raises(dg.Failure, match="is not there"):
        tick(instance, definition, cursor)


def test_nothing_is_lost_where_a_sync_breaks_off_between_the_rows_and_the_manifest(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = sales(folder)
    project.put("sales/orders_1.csv", "id\n1\n")
    project.one("sales")
    project.put("sales/orders_1.csv", "id\n1\n1\n")
    project.put("sales/orders_2.csv", "id\n2\n")

    def unplugged(*_: object) -> None:
        raise LakeError("unplugged")

    with monkeypatch.context() as broken:
        broken.setattr(Manifest, "add", unplugged)
        assert project.one("sales", ok=False)["status"] == "failed"
    again = project.one("sales")
    assert again["partitions"] == ["sales/orders_1.csv", "sales/orders_2.csv"]
    assert project.files("sales") == {"sales/orders_1.csv": 2, "sales/orders_2.csv": 1}


@pytest.mark.long  # the random histories restore and break off too
def test_after_a_restore_the_files_that_came_since_are_read_again(folder: Make, spark_home: Path) -> None:
    project = sales(folder)
    project.put("sales/orders_1.csv", "id\n1\n")
    project.one("sales")
    version = project.one("sales", mode=Mode.REFRESH)["delta_version"]
    project.put("sales/orders_2.csv", "id\n2\n")
    project.one("sales")
    with open_session(spark_home, name="restore") as spark:
        spark.sql(f"RESTORE TABLE {project.table('sales').sql_name} TO VERSION AS OF {version}").collect()
    project.put("sales/orders_3.csv", "id\n3\n")
    assert project.one("sales")["partitions"] == ["sales/orders_2.csv", "sales/orders_3.csv"]
    assert len(project.files("sales")) == 3


def test_columns_that_come_later_are_added_and_those_of_a_partition_can_be_read_downstream(folder: Make) -> None:
    project = sales(folder)
    project.put("sales/orders_1.csv", "id,code\n1,007\n")
    project.one("sales")
    project.put("sales/orders_2.csv", "code,ID,note\nx,2,hello\n")
    later = project.one("sales")
    assert "column note (string) was added" in later["message"]
    assert sorted(project.rows("sales", "id, code, note")) == [(1, "007", None), (2, "x", "hello")]
    [definition] = project.catalog()
    code = project.dagster([definition])

    @dg.asset(ins={"sales": dg.AssetIn(dg.AssetKey(["landing", "sales"]), input_manager_key="delta")},
              partitions_def=partitions_definition(definition))  # fmt: skip
    def counted(sales: Any) -> int:
        return sales.count()

    found = dg.Definitions.merge(code, dg.Definitions([counted], jobs=[dg.define_asset_job("count", [counted])]))
    with project.instance() as instance:
        done = found.resolve_job_def("count").execute_in_process(instance=instance, partition_key="sales/orders_2.csv")
        assert done.output_for_node("counted") == 1


def test_a_folder_is_searched_and_its_containers_synced_from_the_command_line(folder: Make) -> None:
    project = folder()
    for day in (1, 2, 3):
        project.put(f"in/sales/orders_2024-01-0{day}.csv", f"id\n{day}\n")
    project.put("in/one.jsonl", '{"a": 1, "b": {"c": [1]}}\n')
    project.write()
    _, lines, _ = project.cli("sync", "landing", "--json", "--jobs", "1")
    assert {line["container"]: line["rows_read"] for line in lines} == {"landing/in_one": 1, "landing/in_sales_orders": 3}
    _, lines, _ = project.cli("watermarks", "landing/in_sales_orders", "--json", spark=False)
    newest = os.stat(project.root / "in/sales/orders_2024-01-03.csv").st_mtime
    assert lines[0]["new"] == datetime.fromtimestamp(newest, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    project.put("in/sales/orders_2024-01-04.csv", "id\n4\n")
    project.put("in/two.jsonl", '{"a": 2}\n')
    _, lines, _ = project.cli("sync", "landing", "--dry-run", "--json", spark=False)
    planned = {line["container"]: line.get("files") for line in lines}
    assert planned["landing/in_sales_orders"] == ["in/sales/orders_2024-01-04.csv"]
    assert project.files("in_sales_orders").keys() == {f"in/sales/orders_2024-01-0{day}.csv" for day in (1, 2, 3)}
    code, _, said = project.cli("sync", "landing/in_sales_order", check=None, spark=False)
    assert code == 2 and "Nearest: in_sales_orders" in said


@pytest.mark.long
def test_files_with_nested_columns_are_synced_again_and_again(folder: Make) -> None:
    """Otherwise the first sync of such a file leaves an empty table, and every later one refuses all files."""
    project = folder(containers={"parts": {"glob": "*.parquet"}})
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.struct([("x", pa.int32()), ("y", pa.float64())])),
                        ("more", pa.map_(pa.string(), pa.int64()))])  # fmt: skip

    def put(name: str, *ids: int) -> None:
        rows = [{"id": i, "tags": ["a", None], "at": {"x": i, "y": 0.5}, "more": [("k", i)]} for i in ids]
        target = project.put(name, b"")
        pq.write_table(pa.Table.from_pylist(rows, schema), target)
        os.utime(target, (1_600_000_000 + sum(ids), 1_600_000_000 + sum(ids)))

    put("a.parquet", 1)
    assert project.one("parts")["status"] == "synced"
    put("b.parquet", 2, 3)
    put("a.parquet", 10)
    again = project.one("parts")
    assert (again["status"], again["rows_read"]) == ("synced", 3), again
    assert sorted(project.rows("parts", "id, at, tags")) == [(i, {"x": i, "y": 0.5}, ["a", None]) for i in (2, 3, 10)]


@pytest.mark.long
def test_partitions_of_a_run_that_failed_after_its_commit_get_their_events_later(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file's partition stays grey for ever: its rows are there, and no event ever says so."""
    project = sales(folder)
    project.put("sales/orders_1.csv", "id\n1\n")

    def full(*_: object) -> None:
        raise LakeError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(FileSync, "total_rows", full)
        assert project.one("sales", ok=False)["status"] == "failed"
    assert project.one("sales")["partitions"] == ["sales/orders_1.csv"]
    assert project.files("sales") == {"sales/orders_1.csv": 1}
    assert project.one("sales")["status"] == "skipped"


@pytest.mark.long
def test_syncs_of_files_that_are_killed_lose_and_double_no_row(folder: Make) -> None:
    """The command line really killed, at ten moments of its syncs; between them files come, change and go."""
    project = sales(folder, prune_files=True)
    project.write()
    whole, killed = 10.0, 0
    expected: dict[str, int] = {}
    for number in range(10):
        for name in (f"sales/orders_{number}.csv", f"sales/orders_{number // 2}.csv", f"sales/orders_x{number}.csv"):
            expected[name] = number + 1
            project.put(name, "id\n" + "1\n" * (number + 1))
        if number % 3 == 2:
            (project.root / f"sales/orders_x{number - 1}.csv").unlink()
            del expected[f"sales/orders_x{number - 1}.csv"]
        command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), "sync", "landing", "--json"]
        process = subprocess.Popen(command, env=project.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        try:
            process.wait(whole * (0.4 + 0.06 * number))
            whole = time.monotonic() - began  # how long a sync takes here, for the moments of those that follow
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
    assert killed >= 5
    _, lines, _ = project.cli("sync", "landing", "--json")
    assert lines[0]["status"] in ("synced", "skipped"), lines[0]["message"]
    assert project.files("sales") == expected


@pytest.mark.parametrize("by_spark", [False, *long(True)])
def test_small_csv_files_are_synced_without_spark(folder: Make, monkeypatch: pytest.MonkeyPatch, by_spark: bool) -> None:
    """Otherwise each small file costs the start of a JVM, and the seconds in which Spark plans. Both ways say the same."""
    if by_spark:
        monkeypatch.setenv(WRITE_BY, "spark")
    project = sales(folder)
    project.put("sales/orders_1.csv", "id,amount\n1,10\n")
    project.one("sales")
    project.put("sales/orders_2.csv", 'id,amount\n2,20\n3,\n4,"40"\n')
    project.put("sales/orders_3.csv", "amount,id\r\n50,5\r\n")
    project.write()

    def sync() -> tuple[Any, ...]:
        _, lines, _ = project.cli("sync", "landing/sales", "--json", spark=by_spark)
        return tuple(lines[0][name] for name in ("status", "rows_read", "rows_inserted", "rows_updated", "rows_deleted"))

    assert sync() == ("synced", 4, 4, 0, 0)
    assert sorted(project.rows("sales", "id, amount"), key=str) == [(1, 10), (2, 20), (3, None), (4, 40), (5, 50)]
    project.put("sales/orders_1.csv", "id,amount\n1,11\n2,12\n")
    project.put("sales/orders_4.csv", "id,amount\n6,60\n")
    assert sync() == ("synced", 3, 3, 0, 1)
    (project.root / "sales/orders_2.csv").unlink()
    project.configure(prune_files=True)
    project.write()
    assert sync() == ("synced", 0, 0, 0, 3)
    assert project.files("sales") == {"sales/orders_1.csv": 2, "sales/orders_3.csv": 1, "sales/orders_4.csv": 1}
    assert sorted(project.rows("sales", "id, amount")) == [(1, 11), (2, 12), (5, 50), (6, 60)]


@pytest.mark.long
def test_a_doubtful_line_is_judged_by_spark_beside_the_others(folder: Make) -> None:
    """Otherwise it is lost, or counted twice; and rejected rows of a file that is replaced stay."""
    project = sales(folder, entry={"columns": {"id": "bigint", "amount": "bigint"}})
    project.put("sales/orders_1.csv", "id,amount\n1,10\n2,20\n")
    project.one("sales")
    project.put("sales/orders_2.csv", 'id,amount\n3,30\n+4, 40\n5\n"6"x,60\n7,70\n')
    found = project.one("sales")
    assert (found["status"], found["rows_read"]) == ("warning", 3), found
    assert sorted(project.rows("sales", "id, amount")) == [(1, 10), (2, 20), (3, 30), (4, 40), (7, 70)]
    project.put("sales/orders_2.csv", "id,amount\n8,80\n")
    assert project.one("sales")["status"] == "synced"
    assert sorted(project.rows("sales", "id, amount")) == [(1, 10), (2, 20), (8, 80)]
    rejected = rejected_table(project.lake, ("landing", "sales")).opened()
    assert rejected is not None and rejected.count() == 0
