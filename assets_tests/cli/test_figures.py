"""``status --prometheus`` and the API's ``/metrics``: the figures that a monitoring watches.

Belongs here: their values, their format, and who may read them. Does not belong: how a status finds them (``test_status``).
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from assets_tests.api.service import READ, service
from assets_tests.harness import Folder, Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.operations.figures import prometheus_text
from incremental_assets.operations.status import status_lines

Values = Mapping[tuple[str, ...], float]


def values_of(text: str) -> Values:
    """The values by the name of the metric and the values of its labels, as a monitoring reads them."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type == "gauge", family
        for one in family.samples:
            of = [one.labels[name] for name in ("datastore", "container", "change") if name in one.labels]
            found[(one.name.removeprefix("incremental_assets_"), *of)] = one.value
    return found


@pytest.fixture
def record(folder: Callable[..., Folder]) -> dict[str, Any]:
    """The status of a container that was never synced."""
    workspace = folder(containers={"all": {"glob": "*.csv"}})
    with workspace.instance() as instance:
        [found] = status_lines(instance, [workspace.definition("all")], datetime.now(timezone.utc))
    return found


def test_figures_that_there_are_not_are_left_out(record: dict[str, Any]) -> None:
    """A lag of 0 for a container that was never synced reads as a container that is up to date."""
    found = values_of(prometheus_text([record | {"container": "landing/all"}]))
    never = {"last_sync_failed": 0, "open_anomalies": 0, "held_back_seconds": 0}
    assert found == {(name, "landing", "all"): value for name, value in never.items()}


def test_each_figure_is_the_one_of_the_status(record: dict[str, Any]) -> None:
    """A figure under another's name wakes somebody for nothing, or nobody."""
    figures = {
        "container": 'shop/a "b"/c', "result": "failure", "rows": 100, "lag_seconds": 60, "held_back_seconds": 7, "open_anomalies": 3,
        "failed_checks": 2, "success_age_seconds": 3600, "rows_read": 20, "rows_inserted": 4, "rows_updated": 5, "rows_deleted": None,
        "retained_bytes": 1 << 40, "audit": "different",
    }  # fmt: skip
    found = values_of(prometheus_text([record | figures]))
    one = ("shop", 'a "b"/c')
    expected = {
        ("rows", *one): 100, ("lag_seconds", *one): 60, ("held_back_seconds", *one): 7, ("open_anomalies", *one): 3,
        ("failed_checks", *one): 2, ("seconds_since_success", *one): 3600, ("last_sync_failed", *one): 1, ("audit_differs", *one): 1,
        ("last_sync_rows", *one, "read"): 20, ("last_sync_rows", *one, "inserted"): 4, ("last_sync_rows", *one, "updated"): 5,
        ("retained_log_bytes", "shop"): 1 << 40,
    }  # fmt: skip
    assert found == expected


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is an extra; a stack trace does not say how to get it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'incremental-assets\[metrics\]'"):
        prometheus_text([])


def test_the_command_and_the_service_give_the_figures_of_a_sync(
    project: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are read by the same monitoring. Without a token, anybody would read which tables there are."""
    shop = project(incremental=["public.orders:at:timestamp"])
    shop.execute("create table orders (id int primary key, at timestamptz); insert into orders values (1, '2026-03-01'), (2, '2026-03-02')")
    shop.write()
    # Without the address of a server, few rows are written without Spark.
    environment = {name: value for name, value in shop.environment(spark=False).items() if name != "SPARK_REMOTE"}
    monkeypatch.setattr(shop, "environment", lambda spark: environment)
    shop.cli("sync", spark=False)
    shop.execute("insert into orders values (3, '2026-03-03')")
    shop.cli("sync", spark=False)
    with service(shop, tmp_path) as api:
        status, text = api.send("GET", "/metrics", token=READ)
        assert status == 200 and api.send("GET", "/metrics", token=None)[0] == 401
    found = values_of(text)
    assert (found["rows", "shop", "orders"], found["last_sync_failed", "shop", "orders"]) == (3, 0)
    assert found["last_sync_rows", "shop", "orders", "inserted"] == 1
    assert 0 <= found["seconds_since_success", "shop", "orders"] < 600 and 0 <= found["lag_seconds", "shop", "orders"] < 600
    assert found["newest_row_age_seconds", "shop", "orders"] > 86_400
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "status", "--prometheus"]
    printed = values_of(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert printed.keys() == found.keys() and printed["rows", "shop", "orders"] == 3
    assert "leave --json" in shop.cli("status", "--prometheus", "--json", spark=False, check=2)[2]
