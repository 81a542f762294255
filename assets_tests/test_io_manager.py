"""The ``delta`` IO manager in other people's assets: containers read as Spark DataFrames, and frames of their own written.

Belongs here: what somebody who writes an asset downstream of a container types, and gets. Does not belong: containers' own writes.
"""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import Project
from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.model.names import encode_name
from incremental_assets.orchestration.partition_keys import RANGE_END, RANGE_START

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


def run(shop: Shop, asset: dg.AssetsDefinition, first: str | None = None, last: str | None = None) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions.merge(shop.dagster(shop.known), dg.Definitions(assets=[asset]))
    tags = {RANGE_START: first, RANGE_END: last or first} if first and last else {}
    with shop.instance() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=instance, asset_selection=[asset.key], tags=tags, partition_key=first if first and not last else None
        )


def test_a_month_of_a_container_is_read_and_a_month_written(shop: Shop) -> None:
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


def test_rows_before_the_first_partition_and_after_the_last_are_read_with_them(shop: Shop) -> None:
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


def test_integer_partitions_of_an_own_asset_are_its_values(shop: Shop) -> None:
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


def test_an_asset_without_partitions_reads_and_replaces_the_whole(shop: Shop) -> None:
    """The simplest asset of all, and the next one reads what it wrote."""

    @dg.asset(ins={"orders": ORDERS}, io_manager_key="delta")
    def totals(orders: Any) -> Any:
        return orders.groupBy("day").count()

    assert run(shop, totals).success
    assert run(shop, totals).success
    assert len(_rows(shop, "totals")) == len({r[1] for r in shop.rows("orders")})


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


def _rows(shop: Shop, *key: str) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    table = DeltaTable(str(shop.lake_root.joinpath(*key))).to_pyarrow_table()
    return [tuple(row.values()) for row in table.to_pylist()]
