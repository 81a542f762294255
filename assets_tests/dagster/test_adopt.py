"""``adopt``: the tables of a datastore that was renamed go on under its new name, as if it had always had it.

Belongs here: what is taken over, what is refused, and a command that is killed in between. Does not belong: the warning of a sync that
loads beside the old tables (``test_renamed_datastores``), and containers that follow a log (``capture.test_adopt_captured``).
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets_tests.cli.test_json import same
from assets_tests.harness import Folder, Project, Workspace, long
from incremental_assets.core.anomalies import State
from incremental_assets.files.rejected import rejected_table
from incremental_assets.operations.adopt import adopt_lines
from incremental_assets.quality.records import Records
from incremental_assets.runs.records.watermarks import newest_watermark

MakeProject = Callable[..., Project]
DAYS = """create table o (id int primary key, d date, n text);
    insert into o select i, date '2026-01-01' + i, 'x' from generate_series(1, 40) i"""
BY_DAY = {"incremental": ["public.o:d:date!upsert"], "containers": {"o": {"partition_by": "day"}}}


def adopted(shop: Workspace, new: str = "store") -> dict[str, dict[str, Any]]:
    """Renames the datastore in the YAML and adopts its tables. Returns the records by the container's name."""
    old = shop.attributes.get("name", shop.store)
    shop.configure(name=new)
    with shop.instance() as instance:
        records = list(adopt_lines(old, shop.catalog(), instance, lambda _: None))
    return {record["container"].partition("/")[2]: record for record in records}


def shown(shop: Workspace, *key: str) -> int:
    """How many partitions of the asset Dagster shows as materialized."""
    with shop.instance() as instance:
        return len(instance.get_materialized_partitions(dg.AssetKey(key)))


def test_the_tables_go_on_under_the_new_name(project: MakeProject) -> None:
    """Otherwise a new name in the YAML costs a load of everything, and the old tables stay beside the new ones."""
    shop = project(**BY_DAY)
    shop.execute(DAYS)
    shop.execute("create table b (id int primary key); insert into b select generate_series(1, 9)")
    shop.sync()
    versions = {name: head.version for name in "ob" if (head := shop.table(name).head()) is not None}
    records = adopted(shop)
    assert {record["status"] for record in records.values()} == {"adopted"}, records
    same("adopt", records["o"])
    assert not (shop.lake_root / "shop" / "o").exists()
    with shop.instance() as instance:
        assert newest_watermark(instance, shop.definition("o").container) is not None
    assert shown(shop, "store", "o") == 40
    assert shop.sync()["o"]["status"] == "skipped"
    shop.execute("insert into o values (50, '2026-02-20', 'new'); delete from b where id = 1")
    lines = shop.sync()
    assert (lines["o"]["status"], lines["o"]["rows_read"]) == ("synced", 2), lines["o"]
    assert "partitions were" not in lines["o"]["message"]
    for name in "ob":
        shop.assert_equal(name)
        head = shop.table(name).head()
        assert head is not None and head.version > versions[name]
    assert shown(shop, "store", "o") >= 41
    assert {record["status"] for record in adopted(shop, "store2").values()} == {"adopted"}  # and on to a third name
    assert shop.sync()["o"]["status"] == "skipped"


def test_a_table_under_the_new_name_is_kept(project: MakeProject) -> None:
    """Rows that were loaded under the new name already must not be replaced by older ones."""
    shop = project(**BY_DAY)
    shop.execute(DAYS)
    shop.sync()
    shop.configure(name="store")
    assert "incremental-assets adopt store --from shop" in shop.one("o")["message"]
    shop.configure(name="shop")
    record = adopted(shop)["o"]
    assert record["status"] == "there" and "that of shop/o stays" in record["message"], record
    assert shop.sync()["o"]["status"] == "skipped"


def test_a_renamed_datastore_with_another_database_is_adopted_only_with_the_same_rows(
    project: MakeProject, postgres: Any, tmp_path: Path, spark_home: Path
) -> None:
    """A table must not be moved under the name of a database whose rows are others; where they are the same, it need not be loaded anew."""
    shop = project(**BY_DAY)
    shop.execute(DAYS)
    shop.sync()
    other = Project(tmp_path / "other", postgres.create_database("elsewhere", drop=True), spark_home, **BY_DAY)
    other.lake, other.home = shop.lake, shop.home
    other.execute(DAYS)
    other.execute("update o set n = 'another' where id = 3")
    record = adopted(other)["o"]
    assert record["status"] == "different" and "another database" in record["message"] and "1 stale (stale 3)" in record["message"], record
    assert (shop.lake_root / "shop" / "o").is_dir() and not (shop.lake_root / "store").exists()
    other.execute("update o set n = 'x' where id = 3")
    other.configure(name="shop")
    record = adopted(other)["o"]
    assert record["status"] == "adopted" and "rows were compared, and are equal" in record["message"], record
    assert other.one("o")["rows_read"] < 10
    other.assert_equal("o")
    other.source.close()


def kill(shop: Project, step: str, *arguments: str) -> int:
    """Runs the command line in a process that kills itself at the first call of ``step``, a function or method of ``operations.adopt``."""
    program = (
        "import os, signal, sys; from incremental_assets.operations import adopt; from incremental_assets.quality.records import Records;"
        f"setattr({step.rpartition('.')[0]}, {step.rpartition('.')[2]!r}, lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL));"
        "from incremental_assets.cli import main; main()"
    )
    command: Sequence[str] = [sys.executable, "-c", program, "--project", str(shop.path), *arguments]
    return subprocess.run(command, env=shop.environment(spark=False), capture_output=True, timeout=120, check=False).returncode


@pytest.mark.long
@pytest.mark.parametrize(
    "step",
    ["adopt.set_property", "adopt.Path.rename", "adopt.Adoption._report", "adopt.add_keys", "adopt.row_count", "Records.adopt"],
)
def test_a_command_that_is_killed_is_run_again(project: MakeProject, step: str) -> None:
    """A machine that stops in between must leave nothing that is lost, or loaded once more beside the old rows."""
    shop = project(**BY_DAY)
    shop.execute(DAYS)
    shop.sync()
    shop.configure(name="store")
    shop.write()
    assert kill(shop, step, "adopt", "store", "--from", "shop") == -9
    if step != "adopt.Path.rename":
        line = shop.one("o", ok=False)
        assert line["status"] == "failed" and "incremental-assets adopt store --from shop" in line["message"], line
    shop.configure(name="shop")
    assert adopted(shop)["o"]["status"] == "adopted"
    shop.execute("insert into o values (50, '2026-02-20', 'new')")
    line = shop.one("o")
    assert (line["status"], line["rows_read"]) == ("synced", 2), line
    assert [path.parent.parent.name for path in shop.lake_root.glob("*/o/_delta_log")] == ["store"]
    shop.assert_equal("o")
    assert shown(shop, "store", "o") >= 41


@pytest.mark.long
def test_a_datastore_that_the_project_still_has_is_refused(project: MakeProject) -> None:
    """Its next sync would load everything anew, into the folder that was just moved away."""
    shop = project(**BY_DAY)
    shop.write()
    shop.execute(DAYS)
    _, _, said = shop.cli("adopt", "shop", "--from", "shop", spark=False, check=2)
    assert "shop is a datastore of this project" in said


@pytest.mark.parametrize(("cell", "rejected"), [("5", 0), *long(("x", 1))])
def test_files_are_not_read_again(folder: Callable[..., Folder], cell: str, rejected: int) -> None:
    """Otherwise each file is read once more, and rejected rows of files that are gone from the folder are lost."""
    landing = folder(containers={"o": {"glob": "*.csv", "columns": {"id": "int"}}})
    landing.put("a.csv", "id\n1\n2\n")
    landing.put("b.csv", f"id\n3\n{cell}\n")
    assert landing.sync()["o"]["rows_read"] == 4 - rejected
    records = adopted(landing)
    assert records["o"]["status"] == "adopted", records
    assert shown(landing, "store", "o") == 2
    assert landing.sync()["o"]["status"] == "skipped"
    assert rejected_table(landing.lake, ("store", "o")).rows() == rejected
    landing.put("c.csv", "id\n4\n")
    assert landing.sync()["o"]["rows_read"] == 1
    assert landing.files("o") == {"a.csv": 2, "b.csv": 2 - rejected, "c.csv": 1}


@pytest.mark.long
def test_what_people_have_said_of_anomalies_is_kept(project: MakeProject) -> None:
    """An anomaly that was acknowledged would be opened anew, and whoever gets messages of new ones would get another one."""
    checks = [{"rule": "not_null", "columns": ["n"]}]
    shop = project(incremental=["public.o:d:date!upsert"], containers={"o": {"partition_by": "day", "checks": checks}})
    shop.execute(DAYS)
    shop.execute("update o set n = null where id = 7")
    shop.sync()
    shop.scan("o")
    (before,) = Records(shop.lake, "shop").anomalies("shop/o").values()
    adopted(shop)
    shop.scan("o")
    (after,) = Records(shop.lake, "store").anomalies("store/o").values()
    assert (after.state, after.first_seen) == (State.ACTIVE, before.first_seen), after
