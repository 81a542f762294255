"""Spark in assets of the user's own: asked for as Dagster's users ask for it, in a project as `incremental-assets init` writes it.

Belongs here: the resource ``spark``, and whose session is whose. Does not belong: what the IO manager makes of frames
(``test_io_manager``).
"""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import PySparkResource

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.spark_resource import ConnectSpark
from incremental_assets.delta.scope import LakeScope
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.loading import load_definitions

REPORTS = """
import dagster as dg
from dagster_pyspark import PySparkResource

SEEN = {}


@dg.asset(io_manager_key="delta", deps=[["shop", "orders"]])
def totals(spark: PySparkResource, lake: dg.ResourceParam):
    SEEN["totals"] = spark.spark_session
    orders = spark.spark_session.read.format("delta").load(lake.table("shop", "orders").url)
    return orders.groupBy("day").sum("total").toDF("day", "total")


@dg.asset(io_manager_key="delta", ins={"orders": dg.AssetIn(["shop", "orders"])})
def named(spark: PySparkResource, orders, totals):
    names = spark.spark_session.createDataFrame([(1, "first"), (2, "second")], "id int, name string")
    return orders.join(names, "id").join(totals.withColumnRenamed("total", "of_day"), "day").select("id", "name", "of_day")


@dg.asset(deps=[["shop", "orders"]])
def asks_in_vain(spark: PySparkResource):
    SEEN["asks_in_vain"] = spark


@dg.asset(deps=[["shop", "orders"]])
def after_orders(spark: PySparkResource):
    SEEN["after_orders"] = spark.spark_session.conf.get("spark.sql.codegen.wholeStage")
"""


@pytest.fixture
def shop(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Orders that are catalogued and not synced, in a project of files with assets beside them."""
    made = project(incremental=["public.orders:id:integer"])
    made.execute("create table orders (id int primary key, day date, total int)")
    made.execute("insert into orders select i, date '2026-01-01' + i % 3, i from generate_series(1, 9) i")
    made.write()
    (made.path / "defs" / "reports.py").write_text(REPORTS)
    for name, value in {**made.variables, "SPARK_REMOTE": made.environment()["SPARK_REMOTE"]}.items():
        monkeypatch.setenv(name, value)
    made.cli("catalog", "shop", spark=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget()
    enter_project(made.path)
    yield made
    forget()


def forget() -> None:
    """The next project has modules of the same names."""
    for name in [name for name in sys.modules if name == "definitions" or name.partition(".")[0] == "defs"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def run(shop: Project, *keys: str) -> dict[str, Any]:
    """Materializes these assets of the project in one run; what they have left to be seen."""
    job = load_definitions(shop.path).resolve_implicit_global_asset_job_def()
    with shop.instance() as instance:
        assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(key.split("/")) for key in keys]).success
    return sys.modules["defs.reports"].SEEN


def rows(shop: Project, name: str) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    return sorted(tuple(row.values()) for row in DeltaTable(str(shop.path / "lake" / name)).to_pyarrow_table().to_pylist())


def test_an_own_asset_gets_spark_and_reads_and_writes_the_lake(shop: Project) -> None:
    """Who knows Dagster writes ``spark: PySparkResource``: there must be such a resource, and it must see the lake. Its session, and what
    the IO manager loads, can be joined, which Spark refuses between sessions; when the run has ended the server does not keep it."""
    run(shop, "shop/orders")
    seen = run(shop, "totals", "named")
    assert [total for _, total in rows(shop, "totals")] == [3 + 6 + 9, 1 + 4 + 7, 2 + 5 + 8]
    assert rows(shop, "named") == [(1, "first", 12), (2, "second", 15)]
    assert seen["totals"].is_stopped


@pytest.mark.long
def test_a_run_without_partitions_adds_the_keys_of_the_partitions_it_wrote(shop: Project) -> None:
    """Dagster shows only partitions whose keys it knows, and an asset downstream would load none of the others' rows."""
    run(shop, "shop/orders")
    with shop.instance() as instance:
        written = instance.get_materialized_partitions(dg.AssetKey(["shop", "orders"]))
        assert written and written <= {*instance.get_dynamic_partitions("shop/orders")}


@pytest.mark.long
def test_spark_is_not_started_for_an_asset_that_makes_no_use_of_it(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM takes ten seconds and a gigabyte; here nobody could even reach one."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    assert isinstance(run(shop, "asks_in_vain")["asks_in_vain"], PySparkResource)


@pytest.mark.long
def test_a_sync_in_the_same_run_leaves_the_own_assets_session_alone(shop: Project) -> None:
    """A sync of few rows turns off the compilation of queries, which makes large ones of an asset after it many times slower."""
    assert run(shop, "shop/orders", "after_orders")["after_orders"] == "true"


def test_settings_of_an_own_asset_do_not_affect_containers(tmp_path: Any, spark_home: Any) -> None:
    """Otherwise a time zone, or the metadata of commits, that somebody sets for an asset changes what the next container of the run
    writes."""
    scope = LakeScope(str(tmp_path / "lake"), spark_home, "test", lambda _: None)
    with scope.assets_stack, scope.stack:
        scope.assets_spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        first = scope.spark
        assert first.conf.get("spark.sql.session.timeZone") == "UTC"
        scope.begin()
        assert scope.spark is not first and first.is_stopped
        assert scope.assets_spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


@pytest.mark.long
def test_no_command_imports_dagster_pyspark() -> None:
    """Each of them loads the project's definitions, and hardly any needs what the resource is made of."""
    code = "import sys, incremental_assets.cli, incremental_assets.dagster.definitions; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'incremental_assets.dagster.resources'" in loaded and "'dagster_pyspark'" not in loaded and "'delta'" not in loaded


def test_no_command_imports_pyspark_before_it_needs_spark() -> None:
    """A sync of few rows, and a plan that finds nothing to do, would take a fifth of a second more each."""
    modules = "cli, incremental_assets.dagster.definitions, incremental_assets.runs.loading, incremental_assets.runs.parallel_sync"
    code = f"import sys, incremental_assets.{modules}; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'incremental_assets.delta.merge'" in loaded and "'pyspark'" not in loaded


def test_a_spark_context_is_refused_with_an_alternative() -> None:
    """pyspark's own word is an attribute of the JVM that is not supported."""
    with pytest.raises(ConfigurationError, match=r"no SparkContext\. Use spark_session: createDataFrame in place of parallelize"):
        _ = ConnectSpark().spark_context


@pytest.mark.long
def test_a_resource_of_the_project_with_the_same_name_stays(shop: Project) -> None:
    """A project that has brought Spark itself would no longer load."""
    own = "import dagster as dg\nowned = dg.Definitions(resources={'spark': 'my own'})\n"
    (shop.path / "defs" / "own.py").write_text(own)
    assert run(shop, "asks_in_vain")["asks_in_vain"] == "my own"
