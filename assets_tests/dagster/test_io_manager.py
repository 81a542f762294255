"""The ``delta`` IO manager in other people's assets: containers read as Spark DataFrames, and frames of their own written.

Belongs here: what somebody who writes an asset downstream of a container types, and gets. Does not belong: containers' own writes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import Project
from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.errors import ContainerBusy
from incremental_assets.core.names import encode_name
from incremental_assets.runs.locks import table_lock
from incremental_assets.runs.partitions import RANGE_END, RANGE_START

MakeProject = Callable[..., Project]
MONTHS = dg.MonthlyPartitionsDefinition(start_date="2026-01-01", end_offset=1)
ORDERS = dg.AssetIn(key=["shop", "orders"])


class Shop(Project):
    known: list[ContainerDefinition]


@pytest.fixture
def shop(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Orders of three months of 2026, and two that came after the catalog: of long ago and of far ahead. Synced."""
    made: Any = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month"}})
    made.source.execute(
        """create table orders (id int primary key, day date, total int);
        insert into orders select i, date '2026-01-01' + i % 90, i from generate_series(1, 90) i;"""
    )
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(made.lake_root))
    made.known = made.catalog()  # as a project keeps it: partitions begin where they did, whatever rows come in
    made.source.execute("insert into orders values (1001, '1999-05-05', 1), (1002, '2999-05-05', 2)")
    made.sync(stale=True)
    return made


def run(
    shop: Shop, asset: dg.AssetsDefinition, first: str | None = None, last: str | None = None, beside: Any = ()
) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions.merge(shop.dagster(shop.known), dg.Definitions(assets=[asset, *beside]))
    tags = {RANGE_START: first, RANGE_END: last or first} if first and last else {}
    with shop.instance() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=instance, asset_selection=[asset.key], tags=tags, partition_key=first if first and not last else None
        )


def test_an_own_asset_reads_one_month_and_replaces_one_month(shop: Shop) -> None:
    """The first thing anybody does with a container; another month's rows must stay as they are."""

    @dg.asset(partitions_def=MONTHS, ins={"orders": ORDERS}, io_manager_key="delta", metadata={"partition_expr": "day"})
    def doubled(orders: Any) -> Any:
        return orders.selectExpr("day", "total * 2 as total")

    assert run(shop, doubled, "2026-02-01").success
    assert run(shop, doubled, "2026-03-01").success
    assert run(shop, doubled, "2026-02-01").success  # again: replaced, not added
    rows = _rows(shop, "doubled")
    source = shop.rows("orders", "total", "day >= '2026-02-01' and day < '2026-04-01'")
    assert len(rows) == len(source) and sum(total for _, total in rows) == 2 * sum(total for (total,) in source)


@pytest.mark.long
def test_the_first_and_last_partition_include_rows_beyond_them(shop: Shop) -> None:
    """Rows belong to a partition wherever they lie: an asset that sums up all partitions must not miss those at the ends."""
    seen: dict[str, list[int]] = {}

    @dg.asset(partitions_def=MONTHS, ins={"orders": ORDERS}, backfill_policy=dg.BackfillPolicy.single_run())
    def ids(context: dg.AssetExecutionContext, orders: Any) -> None:
        seen[context.partition_key_range.start] = [row[0] for row in orders.select("id").collect()]

    keys = MONTHS.get_partition_keys()
    run(shop, ids, keys[0], keys[0])
    run(shop, ids, keys[1], keys[-1])
    assert 1001 in seen[keys[0]] and 1002 in seen[keys[1]]
    assert sorted(seen[keys[0]] + seen[keys[1]]) == sorted(row[0] for row in shop.rows("orders", "id"))


@pytest.mark.long
def test_integer_partitions_of_an_own_asset_are_the_values_of_its_column(shop: Shop) -> None:
    """Static and dynamic integer keys: the partition of a row is the row's own value."""

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(["1", "2", "10"]),
        io_manager_key="delta",
        required_resource_keys={"lake"},
        metadata={"partition_expr": "batch"},
    )
    def batches(context: dg.AssetExecutionContext) -> Any:
        return context.resources.lake.spark.sql(f"select cast({context.partition_key} as int) as batch, 'x' as value")

    for key in ("1", "10", "1"):
        assert run(shop, batches, key).success
    assert sorted(_rows(shop, "batches")) == [(1, "x"), (10, "x")]


@pytest.mark.long
def test_an_asset_without_partitions_reads_and_replaces_all_rows(shop: Shop) -> None:
    """The simplest asset of all, and the next one reads what it wrote."""

    @dg.asset(ins={"orders": ORDERS}, io_manager_key="delta")
    def totals(orders: Any) -> Any:
        return orders.groupBy("day").count()

    assert run(shop, totals).success
    assert run(shop, totals).success
    assert len(_rows(shop, "totals")) == len({r[1] for r in shop.rows("orders")})


@pytest.mark.long
def test_a_container_is_read_whatever_its_name_is(shop: Shop) -> None:
    """Otherwise an asset downstream of a table whose name has a blank is told that there is no table yet."""
    shop.source.execute('create table "order items_U20_" (id int primary key); insert into "order items_U20_" values (1), (2)')
    shop.known = shop.catalog()
    shop.sync("order items_U20_")
    seen: list[int] = []

    @dg.asset(ins={"items": dg.AssetIn(key=["shop", encode_name("order items_U20_")])})
    def counted(items: Any) -> None:
        seen.append(items.count())

    assert run(shop, counted).success
    assert seen == [2]


def test_a_missing_partition_column_is_named(shop: Shop) -> None:
    """Written without it, the asset's own partitions would overwrite each other."""

    @dg.asset(partitions_def=MONTHS, ins={"orders": ORDERS}, io_manager_key="delta")
    def nameless(orders: Any) -> Any:
        return orders

    with pytest.raises(Exception, match="partition_expr"):
        run(shop, nameless, "2026-02-01")


def at_own_days(zone: str) -> tuple[dg.AssetsDefinition, dg.AssetsDefinition, dict[str, list[str]]]:
    """An asset with an event every six hours of UTC, by days of the zone, and one that reads it; what that was given, by its first key."""
    days = dg.DailyPartitionsDefinition(start_date="2026-03-05", timezone=zone)
    seen: dict[str, list[str]] = {}
    events = "select explode(sequence(timestamp'2026-03-04 00:00:00Z', timestamp'2026-03-13 00:00:00Z', interval 6 hours)) as at"

    @dg.asset(
        partitions_def=days,
        io_manager_key="delta",
        required_resource_keys={"lake"},
        metadata={"partition_expr": "at"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def events_by_day(context: dg.AssetExecutionContext) -> Any:
        span = context.partition_time_window
        return context.resources.lake.spark.sql(f"select at from ({events})").where(
            f"at >= timestamp'{span.start.isoformat()}' and at < timestamp'{span.end.isoformat()}'"
        )

    @dg.asset(partitions_def=days, ins={"events_by_day": dg.AssetIn(key="events_by_day")}, backfill_policy=dg.BackfillPolicy.single_run())
    def read_again(context: dg.AssetExecutionContext, events_by_day: Any) -> None:
        rows = events_by_day.selectExpr("date_format(at, 'dd HH')").collect()
        seen[context.partition_key_range.start] = sorted(row[0] for row in rows)

    return events_by_day, read_again, seen


@pytest.mark.long
def test_an_own_asset_goes_by_the_days_of_its_time_zone(shop: Shop) -> None:
    """Written as a range in one run, over the night in which clocks are set; one day again; read by a day and by a range. In UTC's days
    Delta refused the write, or rows of the evening before were returned."""
    events, again, seen = at_own_days("America/New_York")
    assert run(shop, events, "2026-03-06", "2026-03-09").success
    assert run(shop, events, "2026-03-07").success  # replaces its own rows and no others
    for first, last in (("2026-03-06", None), ("2026-03-08", None), ("2026-03-07", "2026-03-09")):
        assert run(shop, again, first, last, beside=[events]).success
    assert seen["2026-03-06"] == ["06 06", "06 12", "06 18", "07 00"]
    assert seen["2026-03-08"] == ["08 06", "08 12", "08 18", "09 00"]  # of 23 hours: to four o'clock of UTC
    assert seen["2026-03-07"] == [f"{day:02d} {hour:02d}" for day in range(7, 11) for hour in (0, 6, 12, 18)][1:13]


@pytest.mark.long
def test_an_own_asset_waits_for_another_run_that_writes_to_its_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one table at once conflict in Delta, and one of them fails; so each waits, and says for whom."""
    events, _, _ = at_own_days("UTC")
    monkeypatch.setenv("INCREMENTAL_ASSETS_LOCK_SECONDS", "1")
    with shop.instance() as instance, table_lock(("events_by_day",), "events_by_day", "the-other-run", instance, print):
        with pytest.raises(ContainerBusy, match="events_by_day: it is being written by run the-other-run"):
            run(shop, events, "2026-03-06")
    assert run(shop, events, "2026-03-06").success


@pytest.mark.long
def test_four_runs_at_once_write_four_partitions_of_one_table(shop: Shop) -> None:
    """As a backfill of an asset without single_run launches them: processes of their own, from the first write on."""
    code = (
        "import sys, dagster as dg; from assets_tests.dagster.test_io_manager import at_own_days;"
        "from incremental_assets.dagster.io_manager import *;"
        "from incremental_assets.dagster.resources import lake_resource; from incremental_assets.runs.locks import table_lock;"
        "from pathlib import Path;"
        "events, _, _ = at_own_days('UTC'); lake, home, key = sys.argv[1:];"
        "resources = {'lake': lake_resource(lambda: lake, lambda: Path(home), table_lock), 'delta': delta_io_manager};"
        "dg.materialize([events], partition_key=key, instance=dg.DagsterInstance.get(), resources=resources)"
    )
    shop.instance().dispose()
    days = [f"2026-03-{day:02d}" for day in range(6, 10)]
    environment = {**os.environ, **shop.environment(), "DAGSTER_HOME": str(shop.home)}
    started = [
        subprocess.Popen([sys.executable, "-c", code, shop.lake, str(shop.spark_home), day], env=environment, stderr=subprocess.PIPE)
        for day in days
    ]
    ended = [(process.communicate()[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [0] * 4, [text.decode()[-2000:] for text, code in ended if code]
    assert len(_rows(shop, "events_by_day")) == 16


def _rows(shop: Shop, *key: str) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    table = DeltaTable(str(shop.lake_root.joinpath(*key))).to_pyarrow_table()
    return [tuple(row.values()) for row in table.to_pylist()]
