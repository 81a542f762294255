"""The example project ``docs/examples/shop_reports``: made, synced and run as its page says.

Belongs here: what a reader sees who follows the page. Does not belong: the parts of the IO manager that the example uses
(``test_own_writes``, ``test_own_inputs``).
"""

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from assets_tests.dagster.test_loading import forget_modules
from assets_tests.harness import Project
from incremental_assets.project.folders import enter_project
from incremental_assets.project.scaffold import write_project
from incremental_assets.runs.loading import load_definitions
from incremental_assets.runs.partitions import RANGE_END, RANGE_START

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "shop_reports"
REVENUE, TOTALS = dg.AssetKey("revenue_by_month"), dg.AssetKey("customer_totals")


@pytest.fixture
def shop(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """The project that the commands of the page make, with its two containers loaded."""
    made = project()
    write_project(made.path)
    shutil.copytree(EXAMPLE / "defs", made.path / "defs", dirs_exist_ok=True)
    made.execute((EXAMPLE / "source.sql").read_text(encoding="utf-8"))
    for name, value in {**made.variables, "SPARK_REMOTE": made.environment()["SPARK_REMOTE"]}.items():
        monkeypatch.setenv(name, value)
    made.cli("sync")
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_modules()
    enter_project(made.path)
    importlib.invalidate_caches()
    yield made
    forget_modules()


def run(shop: Project, *keys: dg.AssetKey, months: tuple[str, str] | None = None) -> dg.ExecuteInProcessResult:
    job = load_definitions(shop.path).resolve_implicit_global_asset_job_def()
    tags = {RANGE_START: months[0], RANGE_END: months[1]} if months else {}
    with shop.instance() as instance:
        return job.execute_in_process(instance=instance, asset_selection=list(keys), tags=tags)


def rows(shop: Project, name: str) -> list[dict[str, Any]]:
    return DeltaTable(str(shop.path / "lake" / name)).to_pyarrow_table().to_pylist()


def test_the_example_reports_what_the_shop_has(shop: Project) -> None:
    """A reader who follows the page would otherwise begin with an error. Months by a range, customers by a merge that keeps the deleted
    one, and the check."""
    first, last = ((date.today() - timedelta(days=days)).replace(day=1).isoformat() for days in (59, 0))
    run(shop, REVENUE, months=(first, last))
    by_month = shop.source.execute("select date_trunc('month', ordered_on)::date, sum(cents)::bigint from orders group by 1").fetchall()
    assert sorted((row["month"], row["cents"]) for row in rows(shop, "revenue_by_month")) == sorted(by_month)
    result = run(shop, TOTALS)
    (check,) = result.get_asset_check_evaluations()
    assert check.passed and check.metadata["customers"].value == 30
    shop.execute("delete from orders where customer_id = 7; delete from customer where id = 7; update orders set cents = 1 where id = 8")
    shop.cli("sync", "shop/orders", "--from", first, "--to", last)
    (event,) = run(shop, TOTALS).asset_materializations_for_node("customer_totals")
    assert (event.metadata["write/rows_updated"].value, event.metadata["dagster/row_count"].value) == (29, 30)
    of_source = dict(shop.source.execute("select customer_id, sum(cents)::bigint from orders group by 1").fetchall())
    reported = {row["customer_id"]: row["cents"] for row in rows(shop, "customer_totals")}
    assert reported.pop(7) > 0 and reported == of_source


@pytest.mark.long
def test_a_sync_that_brings_rows_lets_the_reports_be_requested(shop: Project) -> None:
    """The daemon would never run the reports by itself, or at each of its ticks."""
    definitions = load_definitions(shop.path)

    def requested(cursor: Any) -> tuple[dict[str, int], Any]:
        with shop.instance() as instance:
            result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
        return {key.to_user_string(): result.get_num_requested(key) for key in (REVENUE, TOTALS)}, result.cursor

    _, cursor = requested(None)
    none, cursor = requested(cursor)
    assert none == {"revenue_by_month": 0, "customer_totals": 0}
    shop.execute("insert into orders select max(id) + 1, 1, current_date, 500 from orders")
    shop.cli("sync", "shop/orders")
    found, cursor = requested(cursor)
    assert found == {"revenue_by_month": 1, "customer_totals": 1}
    again, _ = requested(cursor)
    assert again == {"revenue_by_month": 0, "customer_totals": 0}
