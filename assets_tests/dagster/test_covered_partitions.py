"""Partitions that a sync has covered and that have no rows.

Belongs here: which partitions get an event without having been written, and that nothing else changes by it. Does not belong: the
partitions that a run was launched with.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.core.plan import Mode
from incremental_assets.runs.partitions import container_key, partitions_definition
from incremental_assets.runs.records.covered_partitions import NOT_WRITTEN

MakeProject = Callable[..., Project]


@pytest.fixture
def orders(project: MakeProject) -> Project:
    """A table with rows in January and March 2026. Its months go on until today."""
    made = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month"}})
    made.execute("create table orders (id int primary key, day date)")
    made.execute("insert into orders values (1, '2026-01-05'), (2, '2026-03-05'), (3, '2026-03-06')")
    return made


def all_months(project: Project) -> Sequence[str]:
    found = partitions_definition(project.definition("orders"))
    assert found is not None
    return found.get_partition_keys()


def events(project: Project) -> list[tuple[str, int, bool]]:
    """Of each event of a partition, the oldest first: its key, the number of rows, and whether the partition was only covered."""
    key = container_key(project.definition("orders").container)
    with project.instance() as instance:
        records = instance.fetch_materializations(key, limit=1000, ascending=True).records
    found = [record.asset_materialization for record in records]
    of_partitions = [one for one in found if one is not None and one.partition is not None]
    return [(str(one.partition), _rows(one.metadata), NOT_WRITTEN in one.metadata) for one in of_partitions]


def _rows(metadata: Mapping[str, Any]) -> int:
    return int(str(metadata["dagster/partition_row_count"].value))


def test_every_month_that_a_sync_has_covered_is_materialized(orders: Project) -> None:
    """In the UI, months without rows would be *missing*, as if they had never been loaded, and an asset downstream would wait for them."""
    line = orders.one("orders")
    found = events(orders)
    assert sorted(key for key, _, _ in found) == list(all_months(orders)), "each month once"
    assert [key for key, rows, _ in found if rows] == ["2026-01-01", "2026-03-01"]
    assert [key for key, _, covered in found if covered] == [key for key in all_months(orders) if key > "2026-03-01"]
    assert line["partitions"] == ["2026-01-01", "2026-02-01", "2026-03-01"], (
        "what was written is distinguished from what was found to be empty"
    )


def test_a_month_that_gets_rows_later_gets_an_event_of_them(orders: Project) -> None:
    """And the empty ones get no event again: thousands of events at each sync would fill Dagster's database."""
    orders.one("orders")
    before = len(events(orders))
    orders.execute("insert into orders values (4, '2026-05-05')")
    line = orders.one("orders")
    new = events(orders)[before:]
    assert ("2026-05-01", 1, False) in new and not any(covered for _, _, covered in new)
    assert line["partitions"][-1] == "2026-05-01" == new[-1][0]


def test_a_refresh_covers_its_own_months_only(orders: Project) -> None:
    """It has not looked at the others: rows may have come there since."""
    orders.one("orders")
    for file in (orders.home / "storage", orders.home / "history"):
        shutil.rmtree(file, ignore_errors=True)
    orders.one("orders", mode=Mode.REFRESH, keys=("2026-01-01", "2026-02-01"))
    assert [(key, rows) for key, rows, _ in events(orders)] == [("2026-01-01", 1), ("2026-02-01", 0)]


def test_months_whose_events_are_lost_get_events_with_their_rows(orders: Project) -> None:
    """A new DAGSTER_HOME knows of no event. To say of a month that it is empty would be a lie where the lake has rows of it."""
    orders.execute("alter table orders add changed timestamptz default '2026-01-01Z'")
    by_month = {"column": "day", "every": "month"}
    entry = {"table": "public.orders", "column": "changed", "type": "timestamp", "strategy": "upsert", "partition_by": by_month}
    orders.configure(incremental=[entry], containers={})
    orders.one("orders")
    for folder in (orders.home / "storage", orders.home / "history"):
        shutil.rmtree(folder, ignore_errors=True)
    orders.execute("insert into orders values (9, '2026-01-07', '2026-02-01Z')")
    orders.one("orders")
    newest = {key: (rows, covered) for key, rows, covered in events(orders)}
    assert newest["2026-01-01"] == (2, False) and newest["2026-03-01"] == (2, False) and newest["2026-04-01"] == (0, True)


def test_rules_are_not_evaluated_for_months_that_were_only_covered(orders: Project) -> None:
    """A rule that wants at least one row would fail for each month that is still to come."""
    orders.configure(
        containers={
            "orders": {
                "partition_by": "month",
                "checks": [{"rule": "metric", "name": "some", "expression": "count(*)", "min": 1, "severity": "warn"}],
            }
        }
    )
    line = orders.one("orders")
    assert line["checks"]["partitions"] == 3
