"""Older rows of a column that was added in the source with values: where they are is known, and a refresh or an audit clears it.

Belongs here: tables whose source gets a column. Does not belong: how the table's schema follows (``test_schema_changes``).
"""

from collections.abc import Callable

import dagster as dg
import pytest
from dagster._core.event_api import PartitionKeyFilter

from assets_tests.harness import Project
from incremental_assets.core.plan import Mode
from incremental_assets.dagster.components.audit import AuditEntry
from incremental_assets.runs.partitions import container_partitions
from incremental_assets.runs.records.watermarks import current
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
MONTHS = ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]
ORDERS = """create table orders (id int primary key, at timestamp not null, note text);
  insert into orders select i, timestamp '2026-01-01' + i * interval '1 day', 'n' || i from generate_series(0, 119) i"""
NEWER = "insert into orders (id, at, note) values (1000, '2026-04-30 12:00', 'new')"


@pytest.fixture(params=["upsert", pytest.param("append", marks=pytest.mark.long)])
def shop(project: MakeProject, request: pytest.FixtureRequest) -> Project:
    entry = "public.orders:at:timestamp" + ("!upsert" if request.param == "upsert" else "")
    made = project(incremental=[entry], containers={"orders": {"partition_by": "month", "audit": AuditEntry()}})
    made.execute(ORDERS)
    made.one("orders")
    return made


def needed(shop: Project) -> list[str]:
    """The partitions that ``watermarks`` lists."""
    definition = shop.definition("orders")
    with shop.instance() as instance:
        return current(instance, definition.container, shop.lake, None, container_partitions(definition, instance))["refresh_needed"]


def checked(shop: Project, key: str) -> tuple[bool, str] | None:
    """The newest evaluation of the check ``complete`` of a partition: whether it has passed, and what it says."""
    with shop.instance() as instance:
        check = dg.AssetCheckKey(dg.AssetKey(["shop", "orders"]), "complete")
        found = instance.event_log_storage.get_asset_check_execution_history(check, limit=1, partition_filter=PartitionKeyFilter(key=key))
    event = found[0].event.dagster_event if found and found[0].event else None
    if event is None or event.event_type_value != "ASSET_CHECK_EVALUATION":
        return None
    data = event.asset_check_evaluation_data
    return data.passed, data.description or ""


def test_partitions_whose_rows_lack_a_default_are_listed_until_they_are_refreshed(shop: Project) -> None:
    """Who reads the lake would take NULL for the value of old rows, and would not know which months to fill."""
    shop.execute(f"alter table orders add flag int default 7; {NEWER}")
    line = shop.one("orders")
    assert line["status"] == "warning"
    assert "sync shop/orders --from 2026-01-01 --to 2026-04-01" in line["message"], line["message"]
    assert needed(shop) == MONTHS and checked(shop, "2026-02-01") == (
        False, "refresh needed: older rows lack values of flag that the source has"
    )  # fmt: skip
    assert shop.one("orders", keys=("2026-02-01", "2026-02-01"))["status"] == "synced"
    assert needed(shop) == ["2026-01-01", "2026-03-01", "2026-04-01"]
    assert checked(shop, "2026-02-01") == (True, "a refresh has read all rows anew")
    shop.execute("insert into orders (id, at) values (1001, '2026-04-30 13:00')")
    assert "refresh needed" in shop.one("orders")["message"]
    shop.one("orders", keys=("2026-01-01", "2026-04-01"))
    assert needed(shop) == []
    assert shop.one("orders")["status"] == "skipped"
    shop.assert_equal("orders")


def test_only_partitions_with_values_are_listed(shop: Project) -> None:
    """An update that leaves the identifier as it was is seen by no sync; to refresh all months for it would read the whole table."""
    shop.execute(f"alter table orders add flag int; update orders set flag = 1 where id in (3, 70); {NEWER}")
    line = shop.one("orders")
    assert line["status"] == "warning" and needed(shop) == ["2026-01-01", "2026-03-01"]
    for key in needed(shop):
        shop.one("orders", keys=(key, key))
    shop.assert_equal("orders")


def test_a_column_without_values_needs_no_refresh(shop: Project) -> None:
    """A warning that nothing follows from is soon not read any more."""
    shop.execute(f"alter table orders add flag int; {NEWER}")
    assert shop.one("orders")["status"] == "synced" and needed(shop) == []
    shop.assert_equal("orders")


@pytest.mark.long
def test_an_audit_confirms_what_the_list_says(shop: Project) -> None:
    """What is equal after all is taken off the list, and what differs stays on it."""
    shop.execute(f"alter table orders add flag int default 7; {NEWER}")
    shop.one("orders")
    shop.execute("update orders set flag = null where at < '2026-02-01'")
    found = shop.audit("orders")["orders"]
    assert found["status"] == "different" and found["partitions_different"] == MONTHS[1:]
    assert needed(shop) == MONTHS[1:]
    shop.execute("insert into orders (id, at) values (1001, '2026-04-30 13:00'); update orders set flag = null where at < '2026-03-01'")
    assert shop.audit("orders")["orders"]["partitions_different"] == MONTHS[2:]  # with rows to be synced
    assert needed(shop) == MONTHS[2:]
    assert shop.audit("orders", repair=True)["orders"]["status"] == "repaired"
    assert needed(shop) == []


def test_a_sync_that_was_killed_after_it_had_added_the_column_lists_them(shop: Project) -> None:
    """The next sync finds the column in the table already, and must not take it for filled."""
    shop.execute(f"alter table orders add flag int default 7; {NEWER}")
    with open_session(shop.spark_home, name="test") as spark:
        spark.sql(f"alter table {shop.table('orders').sql_name} add columns (flag int)")
    assert shop.one("orders")["status"] == "warning" and needed(shop) == MONTHS


@pytest.mark.long
def test_a_column_that_comes_back_lists_the_partitions_with_its_values(shop: Project) -> None:
    """Rows that were read while the column was excluded are NULL in it. Which others have changed meanwhile, only an audit knows."""
    options = {"partition_by": "month", "audit": AuditEntry()}
    shop.configure(containers={"orders": {**options, "exclude_columns": ["note"]}})
    shop.execute("insert into orders values (1000, '2026-05-15', 'unread'), (1001, '2026-06-15', 'unread')")
    shop.one("orders")
    shop.configure(containers={"orders": options})
    shop.execute("insert into orders values (1002, '2026-07-15', 'read')")
    shop.one("orders", mode=Mode.INCREMENTAL)
    assert needed(shop) == [*MONTHS, "2026-05-01"]  # the row of June was read again
    assert shop.audit("orders")["orders"]["partitions_different"] == ["2026-04-01", "2026-05-01"]  # the last row of April was read, too
    assert needed(shop) == ["2026-04-01", "2026-05-01"]
    shop.one("orders", mode=Mode.REFRESH)
    assert needed(shop) == []
    shop.assert_equal("orders")


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["append", "upsert"])
def test_ranges_of_integers_are_listed_too(project: MakeProject, strategy: str) -> None:
    """The bounds of the first and the last range are open, and the list must name ranges that Dagster has."""
    entry = "public.t:id:integer" + ("!upsert" if strategy == "upsert" else "")
    shop = project(incremental=[entry], containers={"t": {"partition_by": 100}})
    shop.execute("create table t (id int primary key, v text); insert into t select i, 'v' from generate_series(1, 450) i")
    shop.one("t")
    shop.execute("alter table t add flag int; update t set flag = 1 where id between 50 and 120; insert into t values (451, 'w', 1)")
    line = shop.one("t")
    assert "older rows of 2 partitions (0 to 100) lack values of flag" in line["message"], line["message"]
    shop.one("t", keys=("0", "100"))
    assert "refresh needed" not in shop.one("t", ok=False)["message"]
    shop.assert_equal("t")
