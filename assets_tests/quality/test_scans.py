"""Scans by the real run of a sync, and by the real command line: what is checked, what is told of it, what becomes of anomalies.

Belongs here: from rules in YAML to evaluations, records and exit codes. Does not belong: each rule's verdict (``test_rules``), the life
of an anomaly by itself (``test_anomalies``).
"""

import contextlib
import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, Schema

from assets_tests.dagster.test_dagster import materialize
from assets_tests.harness import Folder, Project, wait_for
from assets_tests.test_kill import Command
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.core.rules.sql import ScannedTable
from incremental_assets.delta.scope import LakeScope
from incremental_assets.operations.scans import ScanOptions, profile_lines
from incremental_assets.profiles.store import ProfileStore
from incremental_assets.quality.records import Records
from incremental_assets.quality.rows import Rows
from incremental_assets.runs.locks import scan_lock
from incremental_assets.runs.quality.pages import remove_page
from incremental_assets.runs.quality.request import ScanMode, ScanRequest, requested_scope
from incremental_assets.runs.records.event_log import failure_of
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
ORDERS = dg.AssetKey(["shop", "orders"])
CHECKS = [
    {"rule": "not_null", "columns": ["customer"]},
    {"rule": "between", "column": "price", "min": 0, "max": 600},
    {"rule": "unique", "columns": ["id"], "scope": "table"},
    {"rule": "metric", "name": "broken", "expression": "avg(price / (price - 17))", "min": 0},
]


def evaluations(project: Project, check: str) -> dict[str | None, tuple[str, str]]:
    """Of each partition, the state that the UI's list of partitions shows, and what the newest evaluation says."""
    with project.instance() as instance:
        storage, key = instance.event_log_storage, dg.AssetCheckKey(ORDERS, check)
        said: dict[str | None, tuple[str, str]] = {}
        for record in storage.get_asset_check_execution_history(key, limit=200):
            assert record.status.value != "PLANNED", f"{record.partition} waits for ever"
            said.setdefault(record.partition, ("", str(record.evaluation.description if record.evaluation else "")))
        definition = project.dagster().resolve_asset_graph().get(key).partitions_def
        states = storage.get_asset_check_state([(key, definition)])[key].subsets
        shown = {place: state.value for state, subset in states.items() for place in subset.value.get_partition_keys()}  # pyright: ignore[reportAttributeAccessIssue]
        return {place: (shown.get(place, ""), text) for place, (_, text) in said.items()}


def anomalies(project: Project) -> dict[tuple[str, str | None], str]:
    """State by rule and key (or partition)."""
    found = Records(project.lake, "shop").anomalies("shop/orders").values()
    return {(one.rule, one.key or one.partition): one.state.value for one in found}


@pytest.fixture
def shop(project: MakeProject) -> Iterator[Project]:
    """Orders of three months, a partition each; three rows of January are bad."""
    made = project(
        incremental=["public.orders:day:date"],
        containers={"orders": {"partition_by": "month", "auto_resolve": True, "checks": CHECKS}},
    )
    made.execute(
        """create table orders (id int primary key, day date, customer int, price numeric(12,2));
        insert into orders select i, date '2026-01-01' + i % 90, i % 20, i from generate_series(1, 90) i;
        update orders set customer = null where id = 7; update orders set price = -5 where id in (11, 12);"""
    )
    yield made


@pytest.mark.long
def test_without_samples_no_row_and_no_text_is_kept(shop: Project) -> None:
    """Who has asked to be forgotten is deleted in the source and the lake, and must not live on in records and on pages."""
    options = shop.attributes["containers"]["orders"]
    shop.configure(containers={"orders": {**options, "samples": False}})
    shop.execute("alter table orders add who text; update orders set who = 'secret-' || id % 3")
    line = shop.one("orders")
    assert line["checks"]["failed"] == 2 and ("not_null_customer", '{"id":"7"}') in anomalies(shop)
    with shop.instance() as instance:
        (line,) = profile_lines(shop.dagster(), shop.catalog(), ScanOptions(), instance)
    assert line["status"] == "profiled", line
    folder = shop.lake_root / "shop" / "_quality"
    assert not (folder / "failed_rows").exists()
    kept = DeltaTable(folder / "profiles").to_pyarrow_table()
    assert "secret-" not in str(kept.to_pylist()) and b"secret-" not in b"".join(v or b"" for v in kept["frequent_state"].to_pylist())
    (who,) = {row["distinct_count"] for row in kept.to_pylist() if row["column_name"] == "who"}
    assert who == 3
    assert "secret-" not in Path(line["page"]).read_text(encoding="utf-8")


def test_values_of_all_anomalies_go_once_a_container_keeps_no_samples(project: MakeProject) -> None:
    """Who has set `samples: false` believes that values are gone; of what is resolved or discarded, no scan would ever write anew."""
    rule = {"rule": "between", "column": "seats", "min": 1, "max": 600}
    names = ("people", "others")
    made = project(containers={name: {"checks": [rule], "auto_resolve": True} for name in names})
    for name in names:
        made.execute(f"create table {name} (id int primary key, seats int); insert into {name} values (1, 0), (2, 0), (3, 0)")
    made.sync()
    made.write()
    made.cli("catalog", spark=False)
    made.execute("update people set seats = 5 where id = 1")
    made.sync("people")
    found = {one.key: id for id, one in Records(made.lake, "shop").anomalies("shop/people").items()}
    made.cli("anomalies", "discard", found['{"id":"2"}'], spark=False)
    made.configure(containers={**made.attributes["containers"], "people": {"checks": [rule], "auto_resolve": True, "samples": False}})
    made.write()
    _, [acknowledged], _ = made.cli("anomalies", "acknowledge", found['{"id":"3"}'], "--json", spark=False)
    assert acknowledged["value"] is None
    _, listed, _ = made.cli("anomalies", "--state", "all", "--json", spark=False)
    shown = {one["key"]: (one["state"], one["value"]) for one in listed if one["container"] == "shop/people"}
    assert shown == {f'{{"id":"{n}"}}': (state, None) for n, state in enumerate(("resolved", "discarded", "acknowledged"), 1)}
    assert values_kept(made) == {"shop/people": {"seats = 0"}, "shop/others": {"seats = 0"}}
    made.execute("insert into people values (4, 9)")
    made.sync("people")
    assert values_kept(made) == {"shop/others": {"seats = 0"}}
    after = Records(made.lake, "shop").anomalies("shop/people")
    assert {after[id].key: after[id].state.value for id in found.values()} == {key: state for key, (state, _) in shown.items()}


def values_kept(project: Project) -> dict[str, set[str]]:
    """The values in the table of anomalies, by container."""
    kept: dict[str, set[str]] = {}
    for row in DeltaTable(project.lake_root / "shop" / "_quality" / "anomalies").to_pyarrow_table().to_pylist():
        if row["value"] is not None:
            kept.setdefault(row["container"], set()).add(row["value"])
    return kept


def test_values_that_profiles_show_end_with_keep_days(shop: Project) -> None:
    """A profile of a partition that never changes would show the names of people for ever, whatever was deleted since."""
    shop.execute("alter table orders add who text; update orders set who = 'secret-' || id % 3")
    shop.one("orders")
    with shop.instance() as instance:
        (line,) = profile_lines(shop.dagster(), shop.catalog(), ScanOptions(), instance)
        page, store = Path(line["page"]), ProfileStore(shop.lake, "shop")
        assert "secret-" in page.read_text(encoding="utf-8")
        now = datetime.datetime.now(datetime.timezone.utc)
        assert store.forget_samples(now - datetime.timedelta(days=1)) == 0
        remove_page(shop.lake, shop.definition("orders").container, now - datetime.timedelta(days=1))
        assert page.exists()

        later = now + datetime.timedelta(seconds=1)
        assert store.forget_samples(later) > 0 == store.forget_samples(later)
        remove_page(shop.lake, shop.definition("orders").container, later)
        assert not page.exists()
        kept = DeltaTable(shop.lake_root / "shop" / "_quality" / "profiles").to_pyarrow_table()
        assert "secret-" not in str(kept.to_pylist()) and b"secret-" not in b"".join(v or b"" for v in kept["frequent_state"].to_pylist())
        assert {row["maximum"] for row in kept.to_pylist() if row["column_name"] == "id"} != {None}
    with open_session(shop.spark_home, name="profile") as spark:
        merged = store.profile(spark, "shop/orders")
    assert merged is not None
    who = next(column for column in merged.columns if column.column == "who")
    assert who.distinct == 3 and not who.frequent and who.minimum is None, "the rest of the states is merged as before"


@pytest.mark.long
def test_a_sync_does_not_wait_for_a_scan_or_profile(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of all rows takes hours: a sync waited for it, at its own checks, and failed after ten minutes."""
    definition = shop.definition("orders")
    monkeypatch.setenv("INCREMENTAL_ASSETS_LOCK_SECONDS", "0")
    with shop.instance() as instance, contextlib.ExitStack() as others:
        for profile in (False, True):
            others.enter_context(scan_lock(shop.home, definition.container, f"the-other-{profile}", print, instance, profile=profile))
        line = shop.one("orders")
        assert line["status"] == "warning" and line["checks"]["failed"] == 2, line
        assert "being scanned by run the-other-False" in shop.scan("orders")["orders"]["message"]  # one by itself at a time
    assert shop.scan("orders")["orders"]["failed"] == 2


def test_a_sync_checks_what_it_wrote_and_resolves_anomalies_of_corrected_rows(shop: Project) -> None:
    """The whole promise: bad rows are told by partition and by key, and go from the list when they are mended in the source."""
    line = shop.one("orders")
    assert line["status"] == "warning" and line["checks"]["failed"] == 2 and line["checks"]["errored"] == 1, line
    states = {key: state for key, (state, _) in evaluations(shop, "not_null_customer").items()}
    assert states == {"2026-01-01": "FAILED", "2026-02-01": "SUCCEEDED", "2026-03-01": "SUCCEEDED"}
    assert evaluations(shop, "between_price")["2026-01-01"][1] == "failed: 2 of 31 rows break it, e.g. price = -5.00 (id 11)"
    broken = evaluations(shop, "broken")["2026-01-01"]
    assert broken[0] == "FAILED" and broken[1].startswith("errored: [DIVIDE_BY_ZERO]"), broken
    assert anomalies(shop) == {
        ("not_null_customer", '{"id":"7"}'): "active",
        ("between_price", '{"id":"11"}'): "active",
        ("between_price", '{"id":"12"}'): "active",
    }
    assert _failed_rows(shop)['{"id":"7"}'] == {"id": 7, "day": "2026-01-08", "customer": None, "price": 7.0}

    shop.execute("update orders set customer = 3 where id = 7; update orders set price = 1 where id = 11")
    shop.execute("update orders set price = -1 where day >= '2026-02-01'")
    shop.one("orders", keys=("2026-01-01", "2026-01-01"))
    assert evaluations(shop, "not_null_customer")["2026-01-01"][0] == "SUCCEEDED"
    assert anomalies(shop) == {
        ("not_null_customer", '{"id":"7"}'): "resolved",
        ("between_price", '{"id":"11"}'): "resolved",
        ("between_price", '{"id":"12"}'): "active",
    }


@pytest.mark.long
def test_a_sync_with_plain_rules_needs_no_spark(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a sync of five rows waits for Spark, for some seconds, and for half a minute where no server is running."""
    plain = [
        *CHECKS[:3],
        {"rule": "volumetric", "max_change": 9},
        {"rule": "exists_in", "column": "customer", "container": "people", "field": "id"},
    ]
    shop.configure(containers={"orders": {"partition_by": "month", "checks": plain}})
    shop.execute("create table people (id bigint primary key); insert into people select generate_series(0, 19)")
    shop.execute("update orders set customer = 7, price = 1 where id in (7, 11, 12)")

    def spark(self: LakeScope) -> None:
        raise AssertionError("a Spark session was opened")

    monkeypatch.setattr(LakeScope, "spark", property(spark))
    shop.sync("people")
    line = shop.one("orders")
    assert line["status"] == "synced" and line["checks"]["passed"] == 5, line
    shop.execute("update orders set price = 2 where id = 90; insert into orders values (91, '2026-03-31', 5, 5)")
    line = shop.one("orders")
    assert line["status"] == "synced" and line["checks"]["passed"] == 5, line
    assert evaluations(shop, "unique_id")["2026-03-01"] == ("SUCCEEDED", "passed: all 32 rows pass")


@pytest.mark.long
def test_a_separate_scan_has_a_watermark_of_its_own(shop: Project) -> None:
    """Without it, an incremental scan reads all rows, or leaves out those that came since the last one."""
    shop.configure(containers={"orders": {"partition_by": "month"}})  # nothing is checked with the sync
    shop.one("orders")
    shop.configure(containers={"orders": {"partition_by": "month", "checks": CHECKS}})
    assert evaluations(shop, "not_null_customer") == {}
    first = shop.scan("orders", incremental=True)["orders"]
    assert (first["status"], first["rows_scanned"], first["watermark"]) == ("failed", 90, {"previous": None, "new": "2026-03-31"}), first
    with shop.instance() as instance:  # the one that the list of checks shows, though two later partitions passed
        (newest,) = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(ORDERS, "between_price"), limit=1)
        assert newest.partition == "2026-01-01" and newest.status.value == "FAILED"
    again = shop.scan("orders", incremental=True)["orders"]
    assert (again["status"], again["partitions"]) == ("passed" if not again["errored"] else "failed", 1), again
    assert again["rows_scanned"] == 31  # of the partition in which the watermark lies
    assert {key: state for key, (state, _) in evaluations(shop, "not_null_customer").items() if key} == {
        "2026-01-01": "FAILED", "2026-02-01": "SUCCEEDED", "2026-03-01": "SUCCEEDED",
    }  # fmt: skip
    above = shop.scan("orders", incremental=True, after_time="2026-02-27T12:00:00")["orders"]
    assert (above["rows_scanned"], above["watermark"]["new"]) == (59, "2026-03-31"), above
    with pytest.raises(ConfigurationError, match="--greater-than-time"):
        shop.scan("orders", incremental=True, after_batch="7")


@pytest.mark.long
def test_a_threshold_above_the_watermark_leaves_it_where_it_is(shop: Project) -> None:
    """Rows between the two were not looked at: a watermark that moved over them would hide them for good."""
    shop.configure(containers={"orders": {"partition_by": "month"}})
    shop.one("orders")
    shop.configure(containers={"orders": {"partition_by": "month", "checks": CHECKS}})
    above = shop.scan("orders", incremental=True, after_time="2026-03-05")["orders"]
    assert (above["rows_scanned"], above["watermark"]) == (31, {"previous": None, "new": None}), above
    whole = shop.scan("orders")["orders"]
    assert (whole["rows_scanned"], whole["watermark"]["new"]) == (90, "2026-03-31")


def test_a_container_without_identifier_is_refused_an_incremental_scan(project: MakeProject) -> None:
    """Without it, a scan that was meant to be small reads everything, or nothing."""
    share = {"rule": "metric", "name": "share", "expression": "count_if(id > 0) / count(*)", "min": 0.9, "blocking": True}
    made = project(containers={"orders": {"checks": [{"rule": "not_null", "columns": ["id"]}, share]}})
    made.execute("create table orders (id int primary key)")
    with pytest.raises(ConfigurationError, match="incremental field not configured"):
        made.scan("orders", incremental=True)
    assert made.scan("orders")["orders"]["status"] == "skipped"
    line = made.one("orders")
    assert line["checks"]["passed"] == 2, "a share of no rows stops what is downstream of an empty table"


def test_an_incremental_scan_of_a_datastore_leaves_out_what_has_no_identifier(project: MakeProject) -> None:
    """One small table that is synced whole would otherwise keep all others from being looked at. Who names it learns why it is not."""
    made = project(incremental=["public.orders:id:integer"])
    made.execute("create table orders (id int primary key); create table region (id int primary key)")
    made.write()
    made.cli("catalog", "shop")
    _, lines, said = made.cli("profile", "shop", "--incremental", "--json", spark=False)
    assert [line["container"] for line in lines] == ["shop/orders"]
    assert "left out, as they have no identifier and --incremental goes by it: shop/region" in said
    _, lines, said = made.cli("profile", "shop", "shop/region", "--incremental", check=2, spark=False)
    assert not lines and "shop/region: incremental field not configured" in said


def test_a_blocking_rule_keeps_what_is_downstream_from_running(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad rows must not travel on; and it must be told of which partitions they are."""
    blocking = [{**CHECKS[1], "blocking": True}]
    shop.configure(containers={"orders": {"partition_by": "month", "checks": blocking}})
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", shop.lake)
    ran: list[str] = []

    @dg.asset(deps=[ORDERS])
    def report() -> None:
        ran.append("report")

    definitions = dg.Definitions.merge(shop.dagster(), dg.Definitions(assets=[report]))
    with shop.instance() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        tags = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-03-01"}
        done = job.execute_in_process(
            instance=instance, asset_selection=[ORDERS, report.key], tags=tags, raise_on_error=False,
            run_config={"ops": {"shop__orders": {"config": {"mode": "refresh"}}}},
        )  # fmt: skip
        failed = next(event for event in done.all_events if event.is_step_failure)
    assert not done.success and ran == []
    message = str(failed.step_failure_data.error)
    assert "blocking rules are broken: between_price in 2026-01-01." in message, message
    assert len(shop.rows("orders", "id")) == 90
    line = shop.one("orders", ok=False, mode=Mode.REFRESH)
    assert (line["status"], line["rows_read"]) == ("failed", 90), line["message"]
    assert "between_price in 2026-01-01" in line["message"], line


@pytest.mark.long
def test_rows_that_move_to_another_partition_keep_their_anomalies(project: MakeProject) -> None:
    """A row that is mended gets a new ``updated_at``, and one without a date gets one: both stayed on the list for good."""
    rules = [{"rule": "not_null", "columns": ["customer"]}, {"rule": "not_null", "columns": ["updated_at"]}]
    rules += [{"rule": "volumetric", "min_change": -0.9}]
    made = project(
        incremental=["public.orders:updated_at:timestamp!upsert"],
        containers={"orders": {"partition_by": "month", "auto_resolve": True, "checks": rules}},
    )
    made.execute(
        """create table orders (id int primary key, updated_at timestamp, customer int);
        insert into orders select i, timestamp '2026-01-01' + i * interval '1 day', i from generate_series(1, 90) i;
        update orders set customer = null where id in (7, 8); update orders set updated_at = null where id = 9"""
    )
    made.one("orders")
    seven, eight, nine = (("not_null_customer", '{"id":"7"}'), ("not_null_customer", '{"id":"8"}'), ("not_null_updated_at", '{"id":"9"}'))
    assert anomalies(made) == {seven: "active", eight: "active", nine: "active"}
    assert evaluations(made, "not_null_updated_at")[None][1] == "failed: 1 of 1 row breaks it, e.g. updated_at = NULL (id 9)"
    made.execute("update orders set customer = 1, updated_at = '2026-04-02' where id = 7")
    made.execute("update orders set updated_at = '2026-04-02' where id in (8, 9)")
    line = made.one("orders")
    assert anomalies(made) == {seven: "resolved", eight: "active", nine: "resolved"}, line
    assert line["checks"]["anomalies"]["open"] == 1 and "2026-01-01" not in line["partitions"]
    (moved,) = [one for one in Records(made.lake, "shop").anomalies().values() if one.is_open]
    assert moved.partition == "2026-04-01"


@pytest.mark.long
def test_a_run_that_writes_nothing_keeps_the_state_of_its_checks(shop: Project) -> None:
    """Dagster takes what stays planned for skipped: the failure that is still there would be gone from the UI."""
    shop.one("orders")
    before = evaluations(shop, "not_null_customer"), evaluations(shop, "between_price")
    for key in ("2026-01-01", "2026-02-01"):
        assert materialize(shop, ORDERS, key, key, {"mode": "incremental"}).is_success
    assert (evaluations(shop, "not_null_customer"), evaluations(shop, "between_price")) == before
    assert before[0]["2026-01-01"][0] == "FAILED" and before[0]["2026-02-01"][0] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"greater_than": "2026-02-01"}, "greater_than goes with looks: incremental"),
        ({"looks": "full", "partitions": ["2026-01-01"]}, "partitions do not go with looks: full"),
        ({"looks": "partitions"}, "looks: partitions needs partitions"),
        ({"partitions": ["2026-01-02"]}, "there is no partition '2026-01-02'"),
    ],
)
def test_options_of_the_scan_job_that_do_not_go_together_are_refused(shop: Project, config: dict[str, Any], says: str) -> None:
    """Otherwise a person who asked for little, in the launchpad, waits for a scan of everything; or is told that nothing is broken."""
    shop.catalog()
    DeltaTable.create(shop.table("orders").address, Schema([Field("day", PrimitiveType("date"))]))
    with shop.instance() as instance:
        job = shop.dagster().resolve_job_def("scan_shop")
        run_config = {"ops": {"shop_scan": {"config": {"container": "orders", **config}}}}
        result = job.execute_in_process(instance=instance, run_config=run_config, raise_on_error=False)
        assert not result.success and says in failure_of(result.all_events)[1], failure_of(result.all_events)


@pytest.mark.long
def test_files_are_checked_after_a_sync_as_tables_are(folder: Callable[..., Folder]) -> None:
    """A partition is a file there, and nothing tells its rows apart: the anomaly is the file's."""
    rules = [{"rule": "min", "column": "price", "min": 0}, {"rule": "not_null", "columns": ["nope"]}]
    made = folder(containers={"sales": {"glob": "*.csv", "options": {"header": True}, "auto_resolve": True, "checks": rules}})
    made.put("a.csv", "id,price\n1,5\n2,-5\n2,-5\n")
    made.put("b.csv", "id,price\n4,5\n")
    line = made.one("sales")
    assert line["status"] == "warning" and line["checks"]["passed"] == 1, line
    records = Records(made.lake, "landing")
    (found,) = records.anomalies().values()
    assert (found.partition, found.key, found.rows) == ("a.csv", None, 2)
    kept = DeltaTable(f"{made.lake}/landing/_quality/failed_rows").to_pyarrow_table().column("row").to_pylist()
    assert len(kept) == 2 and len({json.loads(row)["id"] for row in kept}) == 1, "two rows that are the same are two rows"
    made.put("a.csv", "id,price\n1,5\n2,5\n3,6\n")
    made.one("sales")
    assert [one.state.value for one in records.anomalies().values()] == ["resolved"]
    with pytest.raises(ConfigurationError, match=r"no partition .bb.csv.; .*Nearest: b.csv"):  # else it passes: it has no bad row
        made.scan("sales", keys=("bb.csv", "bb.csv"))


@pytest.mark.long
def test_the_command_line_scans_and_prints_the_verdicts(shop: Project) -> None:
    """Exit codes and lines are what scripts go by; an anomaly is settled by a person's word."""
    shop.write()
    shop.cli("sync", "shop", "--json", check=0)
    code, lines, _ = shop.cli("scan", "shop", "--full", "--json", check=None)
    assert code == 1 and lines[0]["status"] == "failed" and lines[0]["run_id"]
    _, found, _ = shop.cli("anomalies", "shop/orders", "--json", spark=False)
    assert len(found) == 3
    shop.cli("anomalies", "discard", found[0]["id"], "--comment", "a gift", spark=False)
    _, left, _ = shop.cli("anomalies", "--state", "discarded", "--json", spark=False)
    assert [(one["id"], one["comment"]) for one in left] == [(found[0]["id"], "a gift")]
    _, (operation,), _ = shop.cli("operations", lines[0]["run_id"], "--json", spark=False)
    assert (operation["type"], operation["result"], operation["triggered_by"]) == ("scan", "success", "command line")
    assert operation["options"]["looks"] == "full" and "90 rows of 3 partitions" in operation["message"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_scan_that_is_killed_leaves_no_rows_that_count(shop: Project) -> None:
    """Half a record would show some anomalies and hide others; a watermark that had moved would hide the rows for good."""
    shop.configure(containers={"orders": {"partition_by": "month"}})
    shop.one("orders")
    shop.configure(containers={"orders": {"partition_by": "month", "checks": CHECKS}})
    shop.write()
    records, folder = Records(shop.lake, "shop"), shop.lake_root / "shop" / "_quality"
    for seen in ("failed_rows", "check_metrics", "anomalies"):  # in the order in which they are written; the last one is scan_operations
        before = _files(folder / seen)
        command = Command(shop, "scan", "shop/orders")
        running = command.process
        wait_for(lambda now=folder / seen, n=before, p=running: _files(now) > n or p.poll() is not None, f"{seen} to be written")
        killed = command.kill()
        counted = records.operations("shop/orders")
        assert (records.scan_watermark("shop/orders") is None) == (not counted)
        assert len(records.anomalies()) == (3 if counted else 0), f"killed={killed} when {seen} was written"
        if counted:  # it was quicker than the kill
            break
    line = shop.scan("orders", incremental=True)["orders"]
    assert line["anomalies"]["open"] == 3 and line["watermark"]["new"] == "2026-03-31"


@pytest.mark.long
def test_a_threshold_is_pushed_down_to_the_files(shop: Project, spark_home: Path) -> None:
    """Without it, a scan of what is new reads the whole table."""
    shop.configure(containers={"orders": {"partition_by": "month"}})
    shop.one("orders")
    for month in range(4, 7):  # a file each
        shop.execute(f"insert into orders select 1000 * {month} + i, date '2026-0{month}-01' + i, 1, 1 from generate_series(1, 20) i")
        shop.one("orders")
    definition, table = shop.definition("orders"), shop.table("orders")
    head = table.head()
    assert head is not None
    in_sql = ScannedTable(head.columns, datetime.datetime.now(datetime.timezone.utc))
    with shop.instance() as instance, open_session(spark_home, name="plan") as spark:
        scan_scope = requested_scope(definition, instance, ScanRequest(ScanMode.incremental, greater_than="2026-06-02"), head, None)
        rows = Rows(lambda: spark, table, head, scan_scope, in_sql)
        frame: Any = rows.frame
        assert len(rows.whole.inputFiles()) >= 4 > len(frame.inputFiles()) == 1
        plan = frame._explain_string()
    assert "PushedFilters: [" in plan and "GreaterThanOrEqual(day,2026-06-01)" in plan, plan


def _files(table: Path) -> int:
    return sum(1 for _ in table.rglob("*.parquet"))


def _failed_rows(project: Project) -> dict[str, Any]:
    rows = DeltaTable(f"{project.lake}/shop/_quality/failed_rows").to_pyarrow_table().to_pylist()
    return {row["key"]: json.loads(row["row"]) for row in rows}
