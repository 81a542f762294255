"""Names in a source that mean something else in Spark, in Delta Lake, in the grammar of ``incremental`` or in Dagster.

Belongs here: such names of columns, tables, schemas and datastores. Does not belong: names of any characters (``test_types``).
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.plan import Mode
from incremental_assets.delta.engine import READ_BY, WRITE_BY
from incremental_assets.runs.runner import SyncOptions

MakeProject = Callable[..., Project]
COLUMNS = ("_file", "_change_type", "_commit_version", "_commit_timestamp", "__index_level_0__", "_rowid", "file_path",
           "__incremental_assets_key", "lake", "source", "target", "rows", "count", "Value", "_METADATA_")  # fmt: skip


@pytest.mark.parametrize("by", [{}, *long({READ_BY: "jdbc", WRITE_BY: "spark"}, {WRITE_BY: "spark"})], ids=str)
@pytest.mark.parametrize(
    ("incremental", "options"),
    [
        ("public.t:id:integer!upsert", {"deletes": "sweep", "deletes_every": "1 second"}),
        *long(("public.t:id:integer", {}), (None, {}), ("public.t:id:integer!upsert", {"partition_by": 5})),
    ],
)
def test_columns_named_like_those_of_spark_and_delta_arrive(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, by: dict[str, str], incremental: str | None, options: dict[str, Any]
) -> None:
    """Read as Spark's hidden column of that name, its values would be paths of files, or the table could not be written at all."""
    for name, value in by.items():
        monkeypatch.setenv(name, value)
    shop = project(
        incremental=[incremental] if incremental else [],
        containers={"t": {**options, "checks": [{"rule": "not_null", "columns": ["_change_type"]}]}},
    )
    columns = ", ".join(f'"{name}" text' for name in COLUMNS)
    shop.execute(f"create table t (id int primary key, {columns})")
    values = ", ".join(f"'{name} ' || n" for name in COLUMNS)
    shop.execute(f"insert into t select n, {values} from generate_series(1, 20) n")
    shop.one("t")
    shop.assert_equal("t")
    shop.execute("update t set _change_type = 'update', _file = null where id > 18; delete from t where id = 3")
    shop.one("t")
    shop.one("t", asked=SyncOptions(mode=Mode.REFRESH))
    shop.assert_equal("t")
    assert shop.audit("t")["t"]["status"] == "equal" and shop.scan("t")["t"]["status"] == "passed"


def test_the_sync_that_makes_a_table_only_spark_reads_says_so_once(project: MakeProject) -> None:
    """pandas finds no values there, without a word, and nobody would know that a blank in a name is the reason."""
    shop = project(incremental=["public.t:id:integer!upsert"])
    shop.execute("""create table t (id int primary key, v text); insert into t values (1, 'x')""")
    assert "column mapping" not in shop.one("t")["message"]
    shop.execute("""alter table t add "first name" text; insert into t values (2, 'y', 'z')""")
    said = shop.one("t")
    assert (said["status"], "(first name), for which the table has Delta's column mapping" in said["message"]) == ("synced", True), said
    shop.execute("""alter table t add "last name" text; insert into t values (3, 'y', 'z', 'a')""")
    assert "column mapping" not in shop.one("t")["message"]
    shop.configure(incremental=["public.t:id:integer!upsert", "public.u:id:integer"])
    shop.execute("""create table u (id int primary key, "a=b" int); insert into u values (1, 1)""")
    assert "(a=b)" in shop.one("u")["message"] and "(a=b)" not in shop.one("u")["message"]


def test_a_column_that_spark_has_itself_is_refused_before_its_table_is_made(project: MakeProject) -> None:
    """Such a table could be made, and would fail at its first change that Spark writes, in Delta's own words."""
    shop = project(incremental=["public.t:id:integer!upsert"])
    shop.execute("""create table t (id int primary key, "_Metadata" text); insert into t values (1, 'x'); create table other (id int)""")
    lines = shop.sync()
    assert lines["t"]["status"] == "failed" and "exclude_columns: [_Metadata]" in lines["t"]["message"], lines
    assert lines["other"]["status"] == "synced"
    shop.configure(containers={"t": {"exclude_columns": ["_Metadata"]}})
    shop.one("t")
    assert shop.rows("t") == [(1,)]


@pytest.mark.long
def test_a_table_that_has_such_a_column_already_goes_on_and_says_what_spark_cannot_do(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lake of an earlier version would stand still, or show an error that names no remedy; Spark marks rows by that column."""
    shop = project(incremental=["public.t:id:integer!upsert"], containers={"t": {"deletion_vectors": True}})
    shop.execute("create table t (id int primary key, v text); insert into t values (1, 'x')")
    shop.one("t")
    shop.execute("alter table t add _metadata text; insert into t values (2, 'y', 'z')")
    shop.one("t")
    shop.assert_equal("t")
    monkeypatch.setenv(WRITE_BY, "spark")
    shop.execute("update t set v = 'new'")
    line = shop.one("t", asked=SyncOptions(mode=Mode.REFRESH), ok=False)
    assert line["status"] == "failed" and "it has a column _metadata" in line["message"] and "another name" in line["message"], line


def test_a_table_named_like_the_log_of_delta_is_refused(project: MakeProject) -> None:
    """Its folder would make the folder of the datastore look like a Delta table, and its lock could not be made."""
    shop = project()
    shop.execute("create table _delta_log (id int); create table other (id int)")
    lines = shop.sync()
    assert lines["_delta_log"]["status"] == "failed" and "folder of that name for its log" in lines["_delta_log"]["message"], lines
    assert lines["other"]["status"] == "synced"
    assert not list(shop.lake_root.glob("*/_delta_log")) and not list((shop.lake_root / "_leases").rglob("shop/_delta_log"))


@pytest.mark.parametrize("schema", ["eu.shop", "my.eu.shop"])
def test_a_schema_with_dots_can_be_named(project: MakeProject, schema: str) -> None:
    """Every entry of such a datastore would be refused."""
    shop = project(schema=schema, incremental=[f"{schema}.orders:id:integer!upsert", f"{schema}.old.orders:id:integer"])
    shop.execute(f'create schema "{schema}"; set search_path to "{schema}"; create table orders (id int primary key); '
                 'create table "old.orders" (id int); insert into orders values (1); insert into "old.orders" values (1)')  # fmt: skip
    lines = shop.sync()
    assert lines["orders"]["strategy"] == "upsert" and lines["old.orders"]["strategy"] == "append", lines


@pytest.mark.long
def test_containers_whose_jobs_would_have_one_name_are_refused_and_the_others_go_on(project: MakeProject) -> None:
    """Dagster refuses the whole project where two jobs have one name, and both containers would have one lock."""
    shop = project()
    shop.execute("create table eu__orders (id int); create table eu (id int); create table fine (id int); create table eu__fine (id int);"
                 "create schema eu; create table eu.orders (id int); create table eu.customers (id int)")  # fmt: skip
    shop.write()
    folder = shop.path / "defs" / "shop__eu"
    folder.mkdir()
    other = (shop.path / "defs" / "shop" / "defs.yaml").read_text(encoding="utf-8").replace("name: shop", "name: shop__eu\n  schema: eu")
    (folder / "defs.yaml").write_text(other, encoding="utf-8")
    for further in (["--dry-run"], [], ["shop"]):  # before there is any, with new ones of both, and with one that is stored
        _, lines, said = shop.cli("catalog", *further, "--json")
        shown = {line["container"]: line["trouble"] for line in lines if line["trouble"]}
        assert {"shop/eu__orders", "shop/eu"} <= set(shown) <= {"shop/eu__orders", "shop__eu/orders", "shop/eu"}, said
        assert ("shop__eu/orders" in shown) is (further != ["shop"]) and "shop__eu/orders" in shown["shop/eu__orders"]
    for _ in range(2):  # with new catalogs, and with those that are stored
        _, lines, said = shop.cli("sync", "--json", check=1)
        failed = {line["container"]: line["message"] for line in lines if line["status"] == "failed"}
        assert set(failed) == {"shop/eu__orders", "shop__eu/orders", "shop/eu"}, said
        assert "shop__eu/orders" in failed["shop/eu__orders"] and "shop/eu__orders" in failed["shop__eu/orders"]
        assert "the datastore shop__eu" in failed["shop/eu"]
        done = {line["container"] for line in lines} - set(failed)
        assert done == {"shop/fine", "shop/eu__fine", "shop__eu/customers"}, said
    _, _, said = shop.cli("sync", "shop/eu__orders", check=2)
    assert "shop__eu/orders" in said
    names = "*(key.to_user_string() for key in load_repository(folder).asset_graph.get_all_asset_keys())"
    assets = (
        "import sys; from pathlib import Path; from incremental_assets.project.folders import enter_project; folder = Path(sys.argv[1]);"
        "enter_project(folder); from incremental_assets.runs.loading import load_repository; print(" + names + ")"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", assets, str(shop.path)], env=shop.environment(), capture_output=True, text=True, check=False
    )
    assert {"shop/fine", "shop/eu__fine", "shop__eu/customers", "shop__eu/catalog"} <= set(loaded.stdout.split()), loaded.stderr
    assert not {"shop/eu__orders", "shop__eu/orders"} & set(loaded.stdout.split())
