"""``status``: what it says of containers that were synced, have failed, were audited, or were never synced.

Belongs here: the records, and the screen. Does not belong: their fields (``test_json``).
"""

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest
from rich.console import Console

from assets_tests.harness import Project
from incremental_assets.cli.status import screen_of
from incremental_assets.core.anomalies import Anomaly, State
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.rules.rule import Severity
from incremental_assets.operations.status import _newest_row_age, _next_tick, status_lines

MakeProject = Callable[..., Project]


@pytest.fixture
def shop(project: MakeProject) -> Project:
    checks = {"orders": {"checks": [{"rule": "positive", "column": "total"}]}}
    made = project(incremental=["public.orders:at:timestamp"], containers=checks, schedule="0 3 * * *")
    made.execute("create table orders (id int primary key, at timestamptz, total int)")
    made.execute("insert into orders values (1, '2026-03-01 10:00Z', 5), (2, '2026-03-02 10:00Z', -1)")
    made.execute("create table region (id int primary key)")
    return made


def lines(shop: Project, now: datetime | None = None) -> dict[str, dict[str, object]]:
    with shop.instance() as instance:
        found = status_lines(instance, shop.catalog(), now or datetime.now(timezone.utc))
    return {str(line["container"]): line for line in found}


@pytest.mark.long
def test_each_container_is_shown_as_it_is(shop: Project) -> None:
    """People look here first in the morning. A failure that reads as success, or an anomaly that is not counted, stays unseen."""
    assert lines(shop)["shop/region"]["result"] == "never"
    line = shop.one("orders")
    assert line["checks"]["failed"] == 1
    now = datetime(2026, 3, 2, 10, 1, tzinfo=timezone.utc)
    orders, region = lines(shop, now)["shop/orders"], lines(shop, now)["shop/region"]
    assert (orders["result"], orders["watermark"], orders["newest_row_age_seconds"]) == ("success", line["watermark"]["new"], 60)
    assert (orders["open_anomalies"], orders["audit"], orders["run_id"]) == (1, None, line["run_id"])
    assert orders["next_tick"] == "2026-03-03T03:00:00+00:00"
    assert (region["result"], region["looked_at"], region["lag_seconds"]) == ("never", None, None)
    shop.audit("orders")
    assert lines(shop)["shop/orders"]["audit"] == "equal"
    shop.execute("update orders set total = 7 where id = 1")
    shop.audit("orders")
    assert lines(shop)["shop/orders"]["audit"] == "different", "the newest audit counts"


@pytest.mark.long
def test_a_sync_that_has_failed_is_shown_with_its_reason(shop: Project) -> None:
    """The rows are in the lake and the run has failed: the last result is what counts, not the last success."""
    shop.one("orders")
    blocking = {"rule": "positive", "column": "total", "severity": "error", "blocking": True}
    shop.configure(containers={"orders": {"checks": [blocking]}})
    shop.execute("insert into orders values (3, '2026-03-03 10:00Z', -1)")
    assert shop.one("orders", ok=False)["status"] == "failed"
    orders = lines(shop)["shop/orders"]
    assert orders["result"] == "failure" and "positive" in str(orders["message"])


def test_the_command_has_a_line_for_each_container(shop: Project) -> None:
    """A script reads one object a line."""
    shop.write()
    shop.cli("catalog", "shop")
    code, found, _ = shop.cli("status", "--json")
    assert code == 0 and {one["container"] for one in found} == {"shop/orders", "shop/region"}


def test_the_table_fits_a_terminal_of_100_columns() -> None:
    """A name or a result that is folded into the next line is hard to read."""
    now = datetime.now(timezone.utc)
    record = {
        "container": "append/line_item", "result": "success", "synced_at": (now - timedelta(minutes=12)).isoformat(), "age_seconds": 720,
        "run_id": "r", "message": "", "watermark": "2026-03-02T10:00:00.123456Z", "newest_row_age_seconds": 100_000,
        "open_anomalies": 12, "broken_rules": ["a", "b"],
        "looked_at": (now - timedelta(minutes=13)).isoformat(), "lag_seconds": 780,
        "audit": "equal", "audited_at": (now - timedelta(days=3)).isoformat(), "next_tick": (now + timedelta(minutes=48)).isoformat(),
    }  # fmt: skip
    written = io.StringIO()
    Console(width=100, file=written).print(screen_of([record]))
    [line] = [line for line in written.getvalue().splitlines() if "append" in line]
    expected = "append/line_item success 2 rules 12 12 min 13 min 2026-03-02T10:00 equal 3 d 47 min 27 h"
    assert " ".join(line.split()) == expected, written.getvalue()


def test_nothing_to_show_is_a_sentence() -> None:
    """Headings alone look like a table that was cut off."""
    written = io.StringIO()
    Console(width=100, file=written).print(screen_of([]))
    assert written.getvalue() == "status: there is nothing to show.\n"


def test_a_broken_rule_is_shown_though_the_sync_has_succeeded(shop: Project) -> None:
    """The sync has written its rows; that they are wrong is what somebody has to see in the morning."""
    one = Anomaly("a", "shop/orders", "positive_total", None, None, 3, "", Severity.ERROR, State.ACTIVE, 0, 0, "scan 1")
    found = [one, replace(one, id="b"), replace(one, id="c", rule="unique_id"), replace(one, id="d", rule="age", severity=Severity.WARN)]
    with shop.instance() as instance:
        orders, region = status_lines(instance, shop.catalog(), datetime.now(timezone.utc), found)
    assert (orders["broken_rules"], orders["open_anomalies"]) == (["positive_total", "unique_id"], 4)
    assert (region["broken_rules"], region["open_anomalies"]) == ([], 0)


@pytest.mark.parametrize(
    ("cursor_type", "watermark", "zone", "age"),
    [
        (CursorType.TIMESTAMP, "2026-03-02T10:00:00Z", "America/New_York", 3600),
        (CursorType.TIMESTAMP_NTZ, "2026-03-02T06:00:00", "America/New_York", 0),  # there it is six o'clock
        (CursorType.TIMESTAMP_NTZ, "2026-03-02T11:00:00", "Europe/Berlin", 3600),
        (CursorType.DATE, "2026-03-01", "UTC", 11 * 3600),
        (CursorType.DATE, "2026-03-02", "UTC", 0),
        (CursorType.INTEGER, "7", "UTC", None),
    ],
)
def test_the_age_of_the_newest_row_is_by_the_clock_of_the_watermark(
    cursor_type: CursorType, watermark: str, zone: str, age: int | None
) -> None:
    """By another clock it is hours off, and a source without new rows looks as if it had some."""
    now = datetime(2026, 3, 2, 11, tzinfo=timezone.utc)
    assert _newest_row_age(cursor_type, parse_value(cursor_type, watermark), now, zone) == age


def test_the_next_tick_is_the_one_that_dagster_will_evaluate(shop: Project) -> None:
    """It is found by a private function of Dagster's. The schedule's own ticks must be the same."""
    [definition] = [one for one in shop.catalog() if one.table.name == "orders"]
    now = datetime(2026, 3, 2, 2, 59, tzinfo=timezone.utc)
    assert _next_tick(definition, now) == "2026-03-02T03:00:00+00:00"
    assert _next_tick(definition, now + timedelta(minutes=1)) == "2026-03-03T03:00:00+00:00"
    schedule = dg.Definitions.merge(shop.dagster()).resolve_schedule_def("sync_shop_schedule")
    assert schedule.cron_schedule == "0 3 * * *" and schedule.execution_timezone == "UTC"
