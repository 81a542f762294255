"""A datastore in Dagster: definitions, backfills, schedules, the job of a datastore, and downstream assets.

Belongs here: what a person or the daemon does, done by the same calls in this process. Does not belong: Dagster's insides that the product
leans on (``test_upstream_characterization``), the IO manager in other people's assets (``test_io_manager``).
"""

import datetime
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.storage.tags import SYSTEM_TAG_PREFIX
from deltalake import DeltaTable

from assets_tests.harness import Project, statements_sent, wait_for
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster import schedules
from incremental_assets.delta.operation_tables import OperationTables
from incremental_assets.project.folders import current_project, location_name
from incremental_assets.runs.locks import container_lock
from incremental_assets.runs.partitions import RANGE_END, RANGE_START
from incremental_assets.runs.records.metadata import plain
from incremental_assets.runs.records.run_tags import CONTAINER_TAG

MakeProject = Callable[..., Project]
SNAPSHOT = Path(__file__).with_name("snapshots") / "definitions.json"
NOW = datetime.datetime(2026, 7, 1, tzinfo=datetime.timezone.utc)
ORDERS, EVENTS, REGION = (dg.AssetKey(["shop", name]) for name in ("orders", "events", "region"))


@pytest.fixture
def shop(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Orders by month, events by a hundred ids, and a small table without identifier; schedules, an owner, a tag."""
    made = project(
        schedule="0 * * * *",
        maintenance="0 3 * * *",
        incremental=["public.orders:day:date", "public.events:id:integer"],
        containers={
            "orders": {"partition_by": "month", "schedule": "*/10 * * * *", "owners": ["team:sales"], "tags": {"tier": "gold"}},
            "events": {"partition_by": 100},
        },
    )
    made.source.execute(
        """create table orders (id bigserial primary key, day date, total numeric(12,2));
        comment on table orders is 'What was ordered';
        insert into orders (day, total) select date '2026-01-01' + i % 90, i from generate_series(1, 900) i;
        create table events (id serial primary key, kind text);
        insert into events (kind) select 'k' || i from generate_series(1, 250) i;
        create table region (id int primary key, name text);
        insert into region values (1, 'north'), (2, 'south');"""
    )
    monkeypatch.setenv("DAGSTER_HOME", str(made.home))
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(made.lake_root))
    return made


def materialize(shop: Project, key: dg.AssetKey, first: str, last: str, config: dict[str, Any] | None = None) -> dg.DagsterRun:
    """What the backfill daemon does for one stretch of partitions of a ``single_run`` asset."""
    definitions = shop.dagster()
    run_config = {"ops": {"__".join(key.path): {"config": config}}} if config else {}
    with shop.instance() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        tags = {RANGE_START: first, RANGE_END: last}
        result = job.execute_in_process(instance=instance, asset_selection=[key], tags=tags, run_config=run_config)
        return result.dagster_run


def events_of(shop: Project, key: dg.AssetKey, run_id: str) -> dict[str | None, dict[str, Any]]:
    """Metadata of a run's materializations by partition."""
    with shop.instance() as instance:
        records = instance.fetch_materializations(key, limit=500).records
    found = [r.asset_materialization for r in records if r.run_id == run_id]
    return {m.partition: plain(m.metadata) for m in found if m is not None}


def said(shop: Project, run_id: str) -> list[str]:
    """What a run said itself, first to last."""
    with shop.instance() as instance:
        return [entry.user_message for entry in instance.all_logs(run_id) if entry.dagster_event is None]


def versions(shop: Project, name: str) -> list[str]:
    """Operations of the table's commits, oldest first."""
    return [commit.operation for commit in reversed(shop.table(name).commits(100))]


# ---------------------------------------------------------------------- definitions
def summary(definitions: dg.Definitions) -> dict[str, Any]:
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    assets = {}
    for key in sorted(graph.get_all_asset_keys(), key=str):
        node = graph.get(key)
        metadata = plain(node.metadata)
        schema, lineage = metadata.get("dagster/column_schema"), metadata.get("dagster/column_lineage")
        assets["/".join(key.path)] = {
            "group": node.group_name,
            "kinds": sorted(node.kinds),
            "owners": sorted(node.owners),
            "tags": {k: v for k, v in node.tags.items() if not k.startswith("dagster/kind")},
            "description": re.sub(r"@[\d.]+:\d+/\w+", "@HOST/DATABASE", node.description or ""),
            "upstream": ["/".join(k.path) for k in sorted(node.parent_keys, key=str)],
            "partitions": type(node.partitions_def).__name__ if node.partitions_def else None,
            "single_run": node.backfill_policy == dg.BackfillPolicy.single_run(),
            "pools": sorted(node.pools or ()) if node.is_materializable else [],
            "columns": [f"{c.name} {c.type}" for c in schema.columns] if schema else None,
            "lineage": {c: ["/".join(d.asset_key.path) + "." + d.column_name for d in deps] for c, deps in lineage.deps_by_column.items()}
            if lineage
            else None,
            "metadata": sorted(metadata),
        }
    return {
        "assets": assets,
        "jobs": sorted(job.name for job in repository.get_all_jobs()),
        "schedules": {
            s.name: [s.job_name, s.cron_schedule, s.execution_timezone, s.default_status.value] for s in repository.schedule_defs
        },
    }


def test_names_of_jobs_schedules_and_assets_stay_the_same(shop: Project) -> None:
    """Bookmarks, alerts and scripts of users refer to the names of jobs, schedules and assets, to owners and lineage.

    After a change that is meant: ``UPDATE_SNAPSHOTS=1 pytest assets_tests/dagster/test_dagster.py``, and look at the difference.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning at each load, in each process, is not read any more
        found = json.loads(json.dumps(summary(shop.dagster())))
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


# ---------------------------------------------------------------------- backfills
def test_a_range_is_one_run_one_commit_and_an_event_for_each_partition(shop: Project) -> None:
    """Three months chosen in the UI must not become three runs and commits, nor one event that says nothing of each month."""
    shop.sync()
    before = versions(shop, "orders")
    shop.source.execute("delete from orders where day = '2026-02-03'; update orders set day = '2026-01-31' where id = 40")
    run = materialize(shop, ORDERS, "2026-01-01", "2026-02-01")
    assert run.is_success
    assert versions(shop, "orders")[len(before) :] == ["WRITE", "SET TBLPROPERTIES"]
    found = events_of(shop, ORDERS, run.run_id)
    in_source = dict(shop.source.execute("select date_trunc('month', day)::date::text, count(*) from orders group by 1").fetchall())
    assert {key: values["dagster/partition_row_count"] for key, values in found.items()} == {
        key: in_source[key] for key in ("2026-01-01", "2026-02-01")
    }
    assert all(values["sync/mode"] == "refresh" and values["dagster/row_count"] == 890 for values in found.values())
    assert {(v["watermark/previous"], v["watermark/new"]) for v in found.values()} == {("2026-03-31", "2026-03-31")}
    first = said(shop, run.run_id)[0]  # a person may still stop it
    assert "refreshes 2 partitions whole: [-∞, 2026-03-01), about" in first and "rows by append" in first
    shop.assert_equal("orders")


def test_materializing_all_partitions_of_a_new_asset_sets_the_watermark(shop: Project) -> None:
    """Otherwise a first load that is started in the UI is repeated by the next sync."""
    definition = shop.dagster().get_assets_def(ORDERS).partitions_def
    assert definition is not None
    keys = definition.get_partition_keys()
    run = materialize(shop, ORDERS, keys[0], keys[-1])
    assert {v["watermark/new"] for v in events_of(shop, ORDERS, run.run_id).values()} == {"2026-03-31"}
    shop.assert_equal("orders")
    assert shop.one("orders")["status"] == "skipped"


def test_integer_partitions_are_backfilled_by_their_keys(shop: Project) -> None:
    """Dagster's dynamic partitions have no order of their own; a range is what lies between two keys in their list."""
    shop.sync("events")
    shop.source.execute("delete from events where id in (5, 150, 201)")
    run = materialize(shop, EVENTS, "0", "100")
    found = events_of(shop, EVENTS, run.run_id)
    assert {key: v["dagster/partition_row_count"] for key, v in found.items()} == {"0": 98, "100": 99}
    assert {v["watermark/new"] for v in found.values()} == {250}
    assert [row[0] for row in shop.rows("events", "id", "id in (5, 150, 201)")] == [201]  # outside the range nothing was touched


def test_a_run_of_the_ui_can_be_incremental(shop: Project) -> None:
    """``mode: incremental`` in the launchpad moves what is new, whatever partitions were chosen. Such a run, too, is ended in time."""
    shop.sync()
    shop.source.execute("insert into orders (day, total) values ('2026-03-31', 1), ('2026-01-05', 2)")
    run = materialize(shop, ORDERS, "2026-01-01", "2026-01-01", {"mode": "incremental"})
    assert run.is_success
    with shop.instance() as instance:
        ran = instance.get_run_by_id(run.run_id)
    assert ran is not None and 86_400 <= float(ran.tags["dagster/max_runtime"]) < 2 * 86_400
    assert len(shop.rows("orders", "id", "total in (1, 2) and id > 900")) == 1  # the old date is below the watermark


def test_a_refresh_that_would_empty_a_partition_says_what_to_do(shop: Project) -> None:
    """A refresh must not empty a month because of a wrong filter or an empty source, without permission."""
    shop.sync("orders")
    shop.source.execute("delete from orders where day < '2026-02-01'")
    with pytest.raises(Exception, match="--allow-empty"):
        materialize(shop, ORDERS, "2026-01-01", "2026-01-01")
    assert materialize(shop, ORDERS, "2026-01-01", "2026-01-01", {"allow_empty": True}).is_success
    shop.assert_equal("orders")


def test_a_backfill_of_which_one_partition_would_be_emptied_has_events_of_the_others(shop: Project) -> None:
    """Dagster counts a partition of a failed run as done where it has an event. The partition that was left out must not count as done,
    and the others must, or they are backfilled again."""
    shop.sync("events")
    before = shop.one("events")["watermark"]["new"]
    shop.source.execute("delete from events where id between 100 and 199 or id = 5")
    with pytest.raises(Exception, match=r"the partition 100, .*--allow-empty"):
        materialize(shop, EVENTS, "0", "200")
    with shop.instance() as instance:
        (run,) = instance.get_runs(limit=1)
    assert run.status is dg.DagsterRunStatus.FAILURE
    found = events_of(shop, EVENTS, run.run_id)
    assert {key: v["dagster/partition_row_count"] for key, v in found.items()} == {"0": 98, "200": 51}
    assert {v["sync/rows_deleted"] for v in found.values()} == {1} and {v["watermark/new"] for v in found.values()} == {before}
    assert len(shop.rows("events", "id", "id between 100 and 199")) == 100
    (row,) = [one for one in OperationTables(shop.lake).read("operations").to_pylist() if one["run_id"] == run.run_id]
    assert (row["result"], row["rows_deleted"], row["partitions"]) == ("failure", 1, 2) and "the partition 100, " in row["message"]


# ---------------------------------------------------------------------- schedules
def tick(shop: Project, name: str, definitions: dg.Definitions | None = None) -> Any:
    with shop.instance() as instance:
        repository = (definitions or shop.dagster()).get_repository_def()
        # left open, the context leaves the instance's storage as the current one, for tests that come after it
        with dg.build_schedule_context(instance=instance, repository_def=repository, scheduled_execution_time=NOW) as context:
            return repository.get_schedule_def(name).evaluate_tick(context)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every attempt to open a Spark session fails."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    yield


def test_a_tick_with_nothing_to_do_starts_nothing(shop: Project, no_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule must not start a run and a Spark session where nothing has changed, and must ask the source little."""
    with pytest.MonkeyPatch.context() as only_now:
        only_now.delenv("SPARK_REMOTE")
        shop.sync()
    data = tick(shop, "sync_shop__orders_schedule")
    assert data.run_requests == []
    assert data.skip_message == (
        "shop/orders: nothing to do: the 10 rows from 2026-03-31 on are those of the last sync; watermark 2026-03-31"
    )
    definitions = shop.dagster()
    sent = statements_sent(monkeypatch)
    data = tick(shop, "sync_shop_schedule", definitions)
    assert 0 < len(sent) <= 8 * 3, sent
    assert sorted(text.partition(":")[0] for text in data.skip_message.splitlines()) == ["shop/events", "shop/orders", "shop/region"]


def test_a_datastores_tick_asks_for_a_run_of_each_container_that_changed(shop: Project) -> None:
    """As containers have different partitions, each needs a run of its own. Containers without changes must get none."""
    first = tick(shop, "sync_shop_schedule")
    assert sorted(str(r.asset_selection[0].path[-1]) for r in first.run_requests) == ["events", "orders", "region"]
    shop.sync()
    shop.source.execute("insert into events (kind) values ('new')")
    (request,) = tick(shop, "sync_shop_schedule").run_requests
    assert request.asset_selection == [EVENTS]
    assert {k: v for k, v in request.tags.items() if not k.startswith("dagster/schedule")} == {
        "dagster/incremental_assets.container": "shop/events",
        "dagster/max_runtime": "86400",
        RANGE_START: "200",
        RANGE_END: "200",
    }
    with shop.instance() as instance:
        job = shop.dagster().get_repository_def().get_job(IMPLICIT_ASSET_JOB_NAME)
        result = job.execute_in_process(
            instance=instance, asset_selection=request.asset_selection, tags=dict(request.tags), run_config=dict(request.run_config)
        )
    assert result.success
    shop.assert_equal("events")


def test_a_tick_loads_a_table_once_that_got_its_first_identifier(shop: Project) -> None:
    """Each tick would start a run that fails until somebody comes with a flag, although all rows were read at each sync before."""
    shop.sync()
    shop.source.execute("delete from region where id = 1")
    shop.configure(incremental=[*shop.attributes["incremental"], "public.region:id:integer!upsert"])
    (request,) = tick(shop, "sync_shop_schedule").run_requests
    assert request.asset_selection == [REGION]
    with shop.instance() as instance:
        job = shop.dagster().get_repository_def().get_job(IMPLICIT_ASSET_JOB_NAME)
        tags, run_config = dict(request.tags), dict(request.run_config)
        result = job.execute_in_process(instance=instance, asset_selection=[REGION], tags=tags, run_config=run_config)
        assert result.success and instance.get_materialized_partitions(REGION) == {"0"}
    shop.assert_equal("region")
    assert tick(shop, "sync_shop_schedule").run_requests == []


def test_a_tick_starts_no_run_for_a_container_that_is_being_synced(shop: Project) -> None:
    """A sync that takes longer than the schedule's interval must not collect runs that wait for it."""
    container = shop.definition("orders").container
    with shop.instance() as instance, container_lock(shop.home, container, "somebody", lambda _: None, instance, lake=shop.lake):
        data = tick(shop, "sync_shop__orders_schedule")
    assert data.run_requests == [] and "it is being synced by run somebody" in data.skip_message
    assert len(tick(shop, "sync_shop__orders_schedule").run_requests) == 1


def test_a_container_that_cannot_be_planned_is_not_skipped(shop: Project) -> None:
    """Alerts go by failed runs and failed ticks: a container that cannot be planned must not be skipped for weeks, nor stop the others."""
    definitions, known = shop.dagster(), shop.catalog_as_known()
    shop.source.execute("alter table events rename to events_moved")
    data = tick(shop, "sync_shop_schedule", definitions)
    requests = {r.asset_selection[0].path[-1]: r for r in data.run_requests or [] if r.asset_selection}
    assert sorted(requests) == ["events", "orders", "region"]
    with shop.instance() as instance:
        job = definitions.get_repository_def().get_job(IMPLICIT_ASSET_JOB_NAME)
        tags, run_config = dict(requests["events"].tags), dict(requests["events"].run_config)
        result = job.execute_in_process(instance=instance, asset_selection=[EVENTS], tags=tags, run_config=run_config, raise_on_error=False)
    assert not result.success
    shop.configure(url=re.sub(r":\d+/", ":1/", shop.url))
    with pytest.raises(Exception) as raised:  # once, and not a failed run for each of its containers
        tick(shop, "sync_shop_schedule", shop.dagster(known()))
    assert isinstance(raised.value.__cause__, dg.Failure) and "cannot connect" in str(raised.value.__cause__.description)


@pytest.mark.long
def test_a_slow_container_keeps_no_other_from_being_scheduled(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster gives a tick one minute for all containers of a datastore. A slow container is planned by its own run, and the tick's query
    for it is ended in the source."""
    shop.source.execute(
        """create table pace (seconds float); insert into pace values (0);
        create function pace() returns int language plpgsql as 'begin perform pg_sleep((select seconds from pace)); return 1; end';
        create view a_slow as select pace() as batch;
        create table quick (id int primary key); insert into quick values (1);"""
    )
    shop.configure(incremental=[*shop.attributes["incremental"], "public.a_slow:batch:integer"])
    known = shop.catalog_as_known()
    shop.source.execute("update pace set seconds = 3600")
    monkeypatch.setattr(schedules, "TICK_SECONDS", 6.0)
    definitions = shop.dagster(known())
    sent = statements_sent(monkeypatch)
    data = tick(shop, "sync_shop_schedule", definitions)
    assert any("a_slow" in text for text in sent), "the tick has had no time to ask for it"
    asked = {str(r.asset_selection[0].path[-1]) for r in data.run_requests}
    assert {"a_slow", "quick", "orders", "events", "region"} <= asked
    query = "select count(*) from pg_stat_activity where state = 'active' and query like '%a_slow%' and pid <> pg_backend_pid()"
    wait_for(lambda: shop.source.execute(query).fetchone() == (0,), "the source ends the query that nobody waits for", 10)
    with shop.instance() as instance:  # the next tick begins with who is first in its memory
        instance.daemon_cursor_storage.set_cursor_values({"incremental_assets/tick/sync_shop_schedule": "shop/region"})
        order = schedules._Tick("sync_shop_schedule", known())._in_turn(instance)
    assert order[0].container.label == "shop/region" and len(order) == len(known())


# ---------------------------------------------------------------------- the jobs over a datastore
@pytest.mark.long  # half a minute of OPTIMIZE and VACUUM
def test_maintenance_keeps_rows_and_watermarks(shop: Project) -> None:
    """A sync must not take the commits of the maintenance for those of another writer, and must still find its watermark."""
    shop.one("orders")
    for day in range(1, 4):
        shop.source.execute(f"insert into orders (day, total) values (date '2026-04-0{day}', 1)".encode())
        shop.one("orders")
    table = shop.table("orders")
    with shop.instance() as instance:
        result = shop.dagster().resolve_job_def("maintain_shop").execute_in_process(instance=instance)
    assert result.success
    observed = [e.asset_observation_data.asset_observation for e in result.all_events if e.is_asset_observation]
    kept = next(plain(o.metadata) for o in observed if o.asset_key == ORDERS)
    assert kept["maintenance/files_after"] < kept["maintenance/files_before"], kept
    assert shop.one("orders")["status"] == "skipped", "OPTIMIZE and VACUUM changed no row"
    # Delta's own clean-up: a checkpoint, and the commits before it are gone.
    DeltaTable(table.url).create_checkpoint()
    head = table.head()
    assert head is not None
    for file in (Path(table.url) / "_delta_log").glob("*.json"):
        if int(file.stem) < head.version:
            file.unlink()
    shop.source.execute("insert into orders (day, total) values (date '2026-04-03', 2)")
    line = shop.one("orders")
    assert line["watermark"]["previous"] == "2026-04-03" and line["rows_read"] == 2, line
    shop.assert_equal("orders")


def test_the_job_of_a_datastore_syncs_all_its_containers(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job syncs a whole datastore, with a run for each container, and fails where one of them failed."""
    for name, value in shop.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(shop.home))
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", str(shop.lake_root))
    monkeypatch.setenv("INCREMENTAL_ASSETS_PROJECT", str(shop.path))
    shop.write()
    shop.cli("catalog")
    job = shop.dagster().resolve_job_def("sync_shop")
    with shop.instance() as instance:
        assert job.execute_in_process(instance=instance).success
        runs = {run.tags.get("dagster/incremental_assets.container"): run.status for run in instance.get_runs()}
    assert {name for name in runs if name} == {"shop/orders", "shop/events", "shop/region"}
    for name in ("orders", "events", "region"):
        shop.assert_equal(name)
    shop.source.execute("drop table events")
    with shop.instance() as instance:
        failed = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not failed.success
        assert "shop/events" in str(failed.failure_data_for_node("shop_containers"))


def test_only_the_yaml_gives_an_asset_a_freshness_policy(shop: Project) -> None:
    """A sync that has nothing to do materializes nothing, so that a policy which nobody has asked for fails for each quiet table."""
    policies = {key.path[-1]: shop.dagster().get_repository_def().asset_graph.get(key).freshness_policy for key in (ORDERS, EVENTS)}
    assert policies == {"orders": None, "events": None}
    containers = shop.attributes["containers"]
    shop.configure(containers={**containers, "events": {"freshness": "36 hours"}})
    graph = shop.dagster().get_repository_def().asset_graph
    assert graph.get(EVENTS).freshness_policy == dg.FreshnessPolicy.time_window(datetime.timedelta(hours=36))
    assert graph.get(ORDERS).freshness_policy is None
    shop.configure(containers={"events": {"freshness": "30 seconds"}})
    with pytest.raises(ConfigurationError, match="shop/events: freshness is 30 seconds; it is at least 1 minute"):
        shop.catalog()


def test_an_asset_names_its_schedules(shop: Project) -> None:
    """Who looks at a table that is not up to date asks when it is synced next, and where that can be switched off."""
    graph = shop.dagster().get_repository_def().asset_graph
    shown = {key.path[-1]: plain(graph.get(key).metadata).get("sync/schedule", "") for key in (ORDERS, EVENTS)}
    own, stores = re.escape("[sync_shop__orders_schedule]"), re.escape("[sync_shop_schedule]")
    tick = r"in UTC; the next tick after (\d{4}-\d\d-\d\d \d\d:\d\d), when this was loaded, is (\d{4}-\d\d-\d\d \d\d:\d\d)"
    link = rf"\(/locations/{location_name(current_project())}/schedules/"
    of_store = rf"{stores}{link}sync_shop_schedule\): `0 \* \* \* \*` {tick}"
    assert re.fullmatch(of_store, shown["events"])
    both = re.fullmatch(rf"{own}{link}sync_shop__orders_schedule\): `\*/10 \* \* \* \*` {tick}\n\n{of_store}", shown["orders"])
    assert both is not None, shown["orders"]
    loaded, first, _, hourly = (datetime.datetime.strptime(text, "%Y-%m-%d %H:%M") for text in both.groups())
    assert 0 < (first - loaded).total_seconds() <= 600 and first.minute % 10 == 0 and hourly.minute == 0
    shop.configure(schedule=None)
    assert "sync/schedule" not in shop.dagster().get_repository_def().asset_graph.get(EVENTS).metadata


def test_a_run_of_the_command_line_is_of_its_container_alone(shop: Project) -> None:
    """*Re-execute* in the UI goes by the run's job and selection: without the latter it would read all containers anew. And its tags are
    none that fill the list of runs."""
    shop.sync("orders", "region")
    with shop.instance() as instance:
        runs = {run.tags[CONTAINER_TAG]: run for run in instance.get_runs()}
    assert (runs["shop/region"].job_name, runs["shop/region"].asset_selection) == (
        IMPLICIT_ASSET_JOB_NAME,
        {dg.AssetKey(["shop", "region"])},
    )
    assert runs["shop/orders"].job_name == "sync_shop__orders", "the YAML gives it a schedule of its own"
    tags = {tag for run in runs.values() for tag in run.tags}
    assert tags and all(tag.startswith(SYSTEM_TAG_PREFIX) for tag in tags), tags


def test_the_next_run_marks_a_killed_run_as_failed(shop: Project) -> None:
    """Nothing else notices that the process of a killed run is gone, so the run would stay "started" in the UI."""
    shop.sync("region")
    with shop.instance() as instance:
        job = shop.dagster().resolve_job_def(IMPLICIT_ASSET_JOB_NAME)
        dead = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    holder = shop.home / "locks" / "shop__region.holder.json"
    holder.write_text(json.dumps({"run_id": dead.run_id, "pid": 1, "since": "then"}))
    shop.source.execute("insert into region values (3, 'east')")
    assert shop.one("region")["rows_inserted"] == 1
    with shop.instance() as instance:
        found = instance.get_run_by_id(dead.run_id)
    assert found is not None and found.status is dg.DagsterRunStatus.FAILURE
    assert not holder.exists()


# ---------------------------------------------------------------------- downstream
def test_downstream_assets_follow_by_automation_condition(shop: Project) -> None:
    """An asset over a container must be asked for after a sync that moved rows, and not after one that was skipped. It must not wait for
    months without rows."""

    @dg.asset(deps=[ORDERS], automation_condition=dg.AutomationCondition.eager())
    def totals() -> None: ...

    @dg.asset(deps=[EVENTS], automation_condition=dg.AutomationCondition.on_cron("* * * * *"))
    def kinds() -> None: ...

    def requested(definitions: dg.Definitions, cursor: Any) -> Any:
        with shop.instance() as instance:
            return dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)

    shop.sync()
    definitions = dg.Definitions.merge(shop.dagster(), dg.Definitions(assets=[totals, kinds]))
    result = requested(definitions, None)
    shop.source.execute("insert into orders (day, total) values ('2026-04-01', 1)")
    shop.sync("orders")
    result = requested(definitions, result.cursor)
    assert result.get_num_requested(dg.AssetKey("totals")) == 1
    with shop.instance() as instance:
        dg.materialize([totals], instance=instance, selection=[totals])
    assert shop.one("orders")["status"] == "skipped"
    assert requested(definitions, result.cursor).get_num_requested(dg.AssetKey("totals")) == 0


def test_freshness_checks_and_policies_of_dagster_work_for_containers(shop: Project) -> None:
    """A container that is no longer synced must be noticed by a freshness check, or by a policy of the asset."""
    checks = dg.build_last_update_freshness_checks(assets=[ORDERS], lower_bound_delta=datetime.timedelta(hours=1))
    shop.sync("orders")
    definitions = dg.Definitions.merge(shop.dagster(), dg.Definitions(asset_checks=checks))
    with shop.instance() as instance:
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_check_selection={next(iter(checks[0].check_keys))})
        result = job.execute_in_process(instance=instance)
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.passed
