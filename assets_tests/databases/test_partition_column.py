"""Containers that are partitioned by one column and tracked by another: ``partition_by: {column: …, every: …}`` of ``incremental``.

Belongs here: which partitions a sync reports, what a refresh of one replaces, and what the YAML may say. Does not belong: containers that
are partitioned along their identifier (``test_refresh``, ``test_sync``), and random histories (``test_property``).
"""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from assets_tests.harness import Project, without_the_last_window
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.core.plan import Mode
from incremental_assets.databases.sync import TableSync
from incremental_assets.delta import local_keys
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.runs.records.covered_partitions import is_written

MakeProject = Callable[..., Project]
JANUARY, FEBRUARY, MARCH, APRIL = ("2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01")
BY_MONTH = {"column": "o_orderdate", "every": "month"}
ENTRY = {"table": "public.orders", "column": "updated_at", "type": "timestamp", "strategy": "upsert", "partition_by": BY_MONTH}
ORDERS = """
create table orders (id int primary key, o_orderdate date, updated_at timestamptz not null, note text);
insert into orders select i, date '2026-01-10' + 30 * (i % 4), timestamptz '2026-05-01' + i * interval '1 minute', 'n'
    from generate_series(0, 39) i
"""
EACH = {JANUARY: 10, FEBRUARY: 10, MARCH: 10, APRIL: 10}
LATER = "timestamptz '2026-06-01'"


def made(project: MakeProject, container: dict[str, Any] | None = None, **attributes: Any) -> Project:
    """A project whose table ``orders`` has ten rows in each of four months, and has been synced."""
    shop = project(**{"incremental": [ENTRY], "containers": {"orders": container or {}}, **attributes})
    shop.execute(ORDERS)
    assert shop.one("orders")["rows_inserted"] == 40
    return shop


def counts(shop: Project) -> dict[str, int]:
    """How many rows each partition has, by its newest event. The months until today, which are only found to be empty, are left out."""
    key, found = dg.AssetKey(["shop", "orders"]), {}
    with shop.instance() as instance:
        for record in reversed(instance.fetch_materializations(key, limit=1000).records):
            event = record.asset_materialization
            if event is not None and event.partition is not None and is_written(event.metadata):
                found[event.partition] = event.metadata["dagster/partition_row_count"].value
    return found


@pytest.fixture(params=["", pytest.param("spark", marks=pytest.mark.long)], ids=["written here", "written by Spark"])
def written_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two ways in which rows are written. Each finds out for itself in which partitions the old rows were."""
    monkeypatch.setenv(WRITE_BY, request.param)


# ---------------------------------------------------------------------- syncs
@pytest.mark.usefixtures("written_by")
@pytest.mark.parametrize("written_by", ["", "spark"], ids=["written here", "written by Spark"], indirect=True)
def test_a_sync_reports_the_partitions_of_old_and_new_rows_and_no_others(project: MakeProject) -> None:
    """What depends on a month would be computed anew without need, or would miss that a row has left it or has come into it."""
    shop = made(project)
    assert counts(shop) == EACH
    shop.execute(f"update orders set note = 'changed', updated_at = {LATER} where id = 1")
    shop.execute(f"insert into orders values (100, '2026-04-30', {LATER}, 'new')")
    line = shop.one("orders")
    assert (line["partitions"], line["rows_inserted"], line["rows_updated"]) == ([FEBRUARY, APRIL], 1, 1), line
    assert counts(shop) == EACH | {APRIL: 11}
    shop.execute(f"update orders set o_orderdate = '2026-03-05', updated_at = {LATER} + interval '1 hour' where id = 4")
    line = shop.one("orders")
    assert (line["partitions"], line["rows_updated"]) == ([JANUARY, MARCH], 1), line
    assert counts(shop) == {JANUARY: 9, FEBRUARY: 10, MARCH: 11, APRIL: 11}
    shop.assert_equal("orders")
    assert shop.one("orders")["status"] == "skipped"


def test_rows_of_the_lag_that_have_not_changed_report_nothing(project: MakeProject) -> None:
    """With a safety lag each sync reads rows again. Their months would be reported with each sync."""
    shop = made(project, {"safety_lag": 30 * 86_400})
    shop.execute(f"insert into orders values (100, '2026-02-28', {LATER}, 'new')")
    line = shop.one("orders")
    assert (line["rows_read"], line["partitions"]) == (41, [FEBRUARY]), line


@pytest.mark.long
@pytest.mark.usefixtures("written_by")
def test_rows_without_a_value_of_the_column_are_synced_and_belong_to_no_partition(project: MakeProject) -> None:
    """They would be lost, or be counted to some month."""
    shop = made(project)
    shop.execute(f"insert into orders values (100, null, {LATER}, 'nowhere')")
    assert shop.one("orders")["partitions"] == []
    shop.assert_equal("orders")
    shop.execute(f"update orders set o_orderdate = null, updated_at = {LATER} + interval '1 hour' where id = 0")
    assert shop.one("orders")["partitions"] == [JANUARY]
    shop.execute(f"update orders set o_orderdate = '2026-02-02', updated_at = {LATER} + interval '2 hours' where id = 100")
    assert shop.one("orders")["partitions"] == [FEBRUARY]
    assert counts(shop) == EACH | {JANUARY: 9, FEBRUARY: 11}
    shop.execute("update orders set note = 'hidden' where id = 0")  # no sync sees it
    line = shop.audit("orders", repair=True)["orders"]
    assert (line["status"], line["partitions_different"]) == ("repaired", [None]), line
    shop.assert_equal("orders")


@pytest.mark.long
def test_checks_are_evaluated_for_the_partitions_that_were_written(project: MakeProject) -> None:
    """A rule that is broken in a month would not be asked there."""
    shop = made(project, {"checks": [{"rule": "not_null", "columns": ["note"]}]})
    shop.execute(f"update orders set note = null, o_orderdate = '2026-03-05', updated_at = {LATER} where id = 0")
    line = shop.one("orders")
    assert (line["status"], line["partitions"]) == ("warning", [JANUARY, MARCH]), line
    with shop.instance() as instance:
        records = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey(["shop", "orders"]), "not_null_note"), limit=2
        )
    found = {r.event.asset_check_evaluation.partition: r.event.asset_check_evaluation.passed for r in records if r.event is not None}  # pyright: ignore[reportOptionalMemberAccess]
    assert found == {JANUARY: True, MARCH: False}


def test_a_sync_that_ended_before_its_events_is_made_up_for(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in the lake already, so the next sync finds no change: the months would never be reported."""
    shop = made(project)

    def die(*_: Any) -> None:
        raise SourceError("killed after the commit")

    shop.execute(f"update orders set o_orderdate = '2026-03-05', updated_at = {LATER} where id = 0")
    with monkeypatch.context() as patched:
        patched.setattr(TableSync, "committed", die)
        assert shop.one("orders", ok=False)["status"] == "failed"
    assert set(shop.one("orders")["partitions"]) >= {JANUARY, MARCH}
    assert counts(shop) == EACH | {JANUARY: 9, MARCH: 11}


# ---------------------------------------------------------------------- refreshes
@pytest.mark.usefixtures("written_by")
def test_a_refresh_replaces_the_rows_of_a_partition_and_no_others(project: MakeProject) -> None:
    """A refresh of a month would leave old rows in it, double rows that have moved without a sync's notice, or touch other months."""
    shop = made(project)
    before = shop.one("orders")["watermark"]["new"]
    # None of these changes moves updated_at, so that no sync sees them.
    shop.execute("update orders set note = 'changed' where id in (0, 1)")  # in January, in February
    shop.execute("update orders set o_orderdate = '2026-01-20' where id = 2")  # comes from March
    shop.execute("update orders set o_orderdate = '2026-04-20' where id = 4")  # leaves January
    shop.execute("delete from orders where id in (8, 9)")  # in January, in February
    line = shop.one("orders", keys=(JANUARY, JANUARY))
    assert line["status"] == "synced" and line["partitions"] == [JANUARY, MARCH, APRIL], line
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (0, 3, 1), line
    assert counts(shop) == {JANUARY: 9, FEBRUARY: 10, MARCH: 9, APRIL: 11}
    found = {row[0]: row[1:] for row in shop.rows("orders", "id, cast(o_orderdate as varchar), note")}
    assert len(found) == len(shop.rows("orders")) == 39, "a row is there twice"
    assert found[0][1] == "changed" and found[1][1] == "n" and found[2][0] == "2026-01-20" and found[4][0] == "2026-04-20"
    assert line["watermark"]["new"] == before
    shop.one("orders", keys=(FEBRUARY, FEBRUARY))
    shop.assert_equal("orders")


def test_a_refresh_never_moves_the_watermark(project: MakeProject) -> None:
    """A month has rows with all times of their last change. A watermark that moved to the newest of them would hide the others."""
    shop = made(project)
    before = shop.one("orders")["watermark"]["new"]
    shop.execute(f"update orders set note = 'first', updated_at = {LATER} + interval '1 day' where id = 0")
    shop.execute(f"update orders set note = 'second', updated_at = {LATER} where id = 1")
    for keys in ((JANUARY, JANUARY), (APRIL, APRIL)):
        assert shop.one("orders", keys=keys)["watermark"]["new"] == before
    line = shop.one("orders")
    assert line["partitions"] == [FEBRUARY] and line["rows_updated"] == 1, line
    shop.assert_equal("orders")


@pytest.mark.long
def test_a_refresh_that_would_empty_a_partition_is_refused(project: MakeProject) -> None:
    shop = made(project)
    shop.execute("delete from orders where id % 4 = 1")
    line = shop.one("orders", ok=False, keys=(JANUARY, MARCH))
    assert line["status"] == "failed" and f"the partition {FEBRUARY}, " in line["message"] and "--allow-empty" in line["message"], line
    assert line["partitions"] == [JANUARY, MARCH]
    assert shop.one("orders", keys=(JANUARY, MARCH), allow_empty=True)["rows_deleted"] == 10
    assert counts(shop) == EACH | {FEBRUARY: 0}
    shop.assert_equal("orders")


def test_the_first_thing_may_be_a_refresh(project: MakeProject) -> None:
    """A month that is refreshed before the first sync has no watermark, and would pass for the whole container."""
    shop = project(incremental=[ENTRY])
    shop.execute(ORDERS)
    assert shop.one("orders", keys=(FEBRUARY, FEBRUARY))["rows_inserted"] == 10
    assert counts(shop) == {FEBRUARY: 10}
    shop.one("orders")
    assert counts(shop) == EACH
    shop.assert_equal("orders")


def test_all_partitions_are_everything(project: MakeProject) -> None:
    """A backfill of all months in the UI must read rows without a date, too, and leave nothing that is gone."""
    shop = made(project)
    shop.execute("insert into orders values (100, null, '2026-01-01', 'old and nowhere'); delete from orders where id = 3")
    with shop.instance() as instance:
        asset = next(a for a in shop.dagster().resolve_asset_graph().asset_nodes if a.key.path == ["shop", "orders"])
        assert asset.partitions_def is not None
        keys = asset.partitions_def.get_partition_keys(dynamic_partitions_store=instance)
    shop.one("orders", keys=(keys[0], keys[-1]))
    shop.assert_equal("orders")
    shop.execute("delete from orders where id = 7")
    shop.one("orders", mode=Mode.REFRESH)
    shop.assert_equal("orders")


def test_a_backfill_of_the_ui_refreshes_its_months(project: MakeProject) -> None:
    """*Materialize* in the UI runs Dagster's own job with a range of partitions, and not the container's."""
    shop = made(project)
    shop.execute("update orders set note = 'changed'")
    definitions = shop.dagster()
    job = definitions.resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": FEBRUARY, "dagster/asset_partition_range_end": MARCH}
    with shop.instance() as instance:
        result = job.execute_in_process(
            instance=instance,
            tags=tags,
            asset_selection=[dg.AssetKey(["shop", "orders"])],
            run_config={"ops": {"shop__orders": {"config": {"mode": "refresh"}}}},
        )
    assert result.success
    changed = {row[0] for row in shop.rows("orders", "cast(o_orderdate as varchar)", "note = 'changed'")}
    assert all(FEBRUARY <= day < APRIL for day in changed) and len(shop.rows("orders", "id", "note = 'changed'")) == 20


# ---------------------------------------------------------------------- loads, audits, sweeps
def test_a_first_load_in_windows_goes_on_where_it_was_stopped(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The windows are those of the identifier, by which the load goes on, and the months of what an earlier run has loaded are reported."""
    shop = project(incremental=[ENTRY], load_rows=600)
    shop.execute("create table orders (id int primary key, o_orderdate date, updated_at timestamptz not null, note text)")
    shop.execute(
        "insert into orders select i, date '2026-04-10' - 30 * (i / 500), timestamptz '2026-05-01' + i * interval '1 minute', 'n' "
        "from generate_series(0, 1999) i; create index on orders (updated_at); analyze orders"
    )
    with without_the_last_window(monkeypatch):
        assert "the network is gone" in shop.one("orders", ok=False)["message"]
    assert len(shop.table("orders").data_commits_since(0)) >= 2, "the windows before the last one are committed"
    line = shop.one("orders")
    assert line["rows_read"] < 1500, "only rows that had not been read yet"
    assert counts(shop) == dict.fromkeys(EACH, 500)
    shop.assert_equal("orders")
    assert shop.one("orders")["status"] == "skipped"


@pytest.mark.long
def test_an_audit_names_the_partitions_that_differ_and_repairs_them(project: MakeProject) -> None:
    """It would name months of the last change, and a repair would refresh other rows than those that differ."""
    shop = made(project)
    shop.execute("update orders set note = 'hidden' where id in (1, 2); update orders set o_orderdate = '2026-04-02' where id = 3")
    line = shop.audit("orders")["orders"]
    assert (line["status"], line["partitions_different"]) == ("different", [FEBRUARY, MARCH, APRIL]), line
    assert shop.audit("orders", keys=(JANUARY, JANUARY))["orders"]["status"] == "equal"
    assert shop.audit("orders", keys=(FEBRUARY, FEBRUARY), repair=True)["orders"]["status"] == "repaired"
    assert shop.audit("orders")["orders"]["partitions_different"] == [MARCH, APRIL]
    assert shop.audit("orders", repair=True)["orders"]["status"] == "repaired"
    shop.assert_equal("orders")


@pytest.mark.long
@pytest.mark.usefixtures("written_by")
@pytest.mark.parametrize("deletes", ["sweep", pytest.param("soft", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("written_by", "most_keys"),
    [
        ("", local_keys.MOST_KEYS),
        ("spark", 0),
        pytest.param("", 0, marks=pytest.mark.long),
        pytest.param("spark", local_keys.MOST_KEYS, marks=pytest.mark.long),
    ],
    ids=["all here", "all by Spark", "keys by Spark", "written by Spark"],
    indirect=["written_by"],
)
def test_a_sweep_reports_the_partitions_that_have_lost_rows(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, deletes: str, most_keys: int
) -> None:
    """The month of a deleted row would keep its old count, and its checks."""
    monkeypatch.setattr(local_keys, "MOST_KEYS", most_keys)
    shop = made(project, {"deletes": deletes, "max_deleted_share": 0.5})
    shop.execute("delete from orders where id in (1, 2)")
    line = shop.one("orders", sweep=True)
    assert (line["partitions"], line["rows_deleted"]) == ([FEBRUARY, MARCH], 2), line
    if deletes == "sweep":
        assert counts(shop) == EACH | {FEBRUARY: 9, MARCH: 9}
        shop.assert_equal("orders")


@pytest.mark.long
def test_older_rows_of_a_new_column_are_listed_by_partition_and_filled_by_a_refresh(project: MakeProject) -> None:
    """The list would name months of the last change, whose refresh fills other rows."""
    shop = made(project)
    shop.execute("alter table orders add late text; update orders set late = 'x' where id in (1, 5)")
    shop.execute(f"insert into orders values (100, '2026-04-30', {LATER}, 'new', 'y')")
    assert "partition 2026-02-01" in shop.one("orders")["message"]
    line = shop.one("orders", keys=(FEBRUARY, FEBRUARY))
    assert "refresh needed" not in line["message"], line
    shop.assert_equal("orders")


def test_partitions_may_be_ranges_of_integers(project: MakeProject) -> None:
    """Keys of integers are not known before rows have them, so those of moved rows must come to be."""
    shop = project(incremental=[ENTRY | {"partition_by": {"column": "customer", "every": 100}}])
    shop.execute("create table orders (id int primary key, customer bigint, updated_at timestamptz not null)")
    shop.execute("insert into orders select i, i * 10, timestamptz '2026-05-01' + i * interval '1 minute' from generate_series(0, 39) i")
    shop.one("orders")
    assert counts(shop) == {"0": 10, "100": 10, "200": 10, "300": 10}
    shop.execute(f"update orders set customer = 1234, updated_at = {LATER} where id = 0")
    assert shop.one("orders")["partitions"] == ["0", "1200"]
    assert counts(shop) == {"0": 9, "100": 10, "200": 10, "300": 10, "1200": 1}
    shop.execute("update orders set customer = 250 where id = 39")
    assert shop.one("orders", keys=("200", "200"))["partitions"] == ["200", "300"]
    shop.assert_equal("orders")


@pytest.mark.long
def test_the_column_may_be_named_after_the_container_was_made(project: MakeProject) -> None:
    """The calendar would begin with the first change instead of the first order, and the table would have to be loaded again."""
    shop = project(incremental=["public.orders:updated_at:timestamp!upsert"], containers={"orders": {"partition_by": "month"}})
    shop.execute(ORDERS)
    shop.one("orders")
    shop.configure(incremental=[ENTRY], containers={})
    shop.execute(f"update orders set note = 'changed', updated_at = {LATER} where id = 2")
    line = shop.one("orders")
    assert (line["rows_read"] <= 2, line["partitions"]) == (True, [MARCH]), line
    shop.assert_equal("orders")
    assert shop.audit("orders")["orders"]["status"] == "equal"


# ---------------------------------------------------------------------- the YAML
@pytest.mark.parametrize(
    ("entry", "container", "words"),
    [
        ({"strategy": "append"}, {}, "needs strategy: upsert; this is append"),
        ({"partition_by": {"column": "o_orderdat", "every": "month"}}, {}, "there is no column 'o_orderdat'. Nearest: o_orderdate"),
        ({"partition_by": {"column": "note"}}, {}, "is text. Choose a date, timestamp or integer column"),
        ({"partition_by": {"column": "updated_at"}}, {}, "names the identifier 'updated_at' itself"),
        ({"partition_by": {"column": "o_orderdate", "every": "hour"}}, {}, "a date cannot be partitioned by hour"),
        ({"partition_by": {"column": "o_orderdate", "every": "year"}}, {}, "partition_by is one of hour, day, week, month for a time"),
        ({"start": "2026-01-01"}, {}, "start leaves rows out by updated_at"),
        ({}, {"on_null": "exclude"}, "on_null: exclude leaves rows out by updated_at"),
        ({}, {"partition_by": "month"}, "partition_by is in incremental and in containers"),
        ({}, {"capture": "log"}, "Name 'o_orderdate' as the identifier"),
        ({}, {"exclude_columns": ["o_orderdate"]}, "can be neither excluded nor read as text"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_does_not_fit_is_refused_when_the_project_is_loaded(
    project: MakeProject, entry: dict[str, Any], container: dict[str, Any], words: str
) -> None:
    """A container would be partitioned in another way than its YAML says, or lose rows with a refresh."""
    shop = project(incremental=[ENTRY | entry], containers={"orders": container})
    shop.execute(ORDERS)
    with pytest.raises(ConfigurationError, match="shop/orders") as refused:
        shop.catalog()
    assert words in str(refused.value), refused.value
