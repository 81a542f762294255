"""Old runs are forgotten, and nothing that the UI or a sync asks of the newest events is."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.event_log import SqliteEventLogStorage

from benchmarks.tables import datastore
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.datastore import checked_days, maintenance_cron
from incremental_assets.runs.run_history import forget_runs

ASSETS = [dg.AssetKey(["many", name]) for name in ("a", "b")]
PARTITIONS = ["p1", "p2", "p3", None]
CHECK = "rule"
SETTINGS = datastore(1, specified=False).settings()
LATER = timedelta(hours=1)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def run(instance: dg.DagsterInstance, events: list[object], tags: dict[str, str], fails: bool = False) -> str:
    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        for event in events:
            context.log_event(event)  # pyright: ignore[reportArgumentType]
        if fails:
            raise dg.Failure("on purpose")

    @dg.job
    def job() -> None:
        work()

    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False).run_id


def random_events(chance: random.Random) -> list[object]:
    found: list[object] = []
    for _ in range(chance.randint(0, 2)):
        key, partition = chance.choice(ASSETS), chance.choice(PARTITIONS)
        metadata = {"watermark/new": chance.randint(1, 9)} if chance.random() < 0.5 else {}
        found.append(dg.AssetMaterialization(key, partition=partition, metadata=metadata))
    if chance.random() < 0.5:
        found.append(dg.AssetObservation(chance.choice(ASSETS)))
    if chance.random() < 0.5:
        place = chance.choice(PARTITIONS)
        found.append(
            dg.AssetCheckEvaluation(
                asset_key=chance.choice(ASSETS), check_name=CHECK, passed=chance.random() < 0.5, metadata={}, partition=place
            )
        )
    return found


def answers(instance: dg.DagsterInstance) -> dict[str, object]:
    """What the UI shows, and what a sync asks."""
    found: dict[str, object] = {}
    for key in ASSETS:
        name = key.to_user_string()
        found[f"partitions of {name}"] = instance.get_materialized_partitions(key)
        latest = instance.get_latest_materialization_event(key)
        found[f"newest of {name}"] = None if latest is None else latest.run_id
        for partition in [p for p in PARTITIONS if p is not None]:
            asked = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
            found[f"newest of {name} {partition}"] = [r.storage_id for r in instance.fetch_materializations(asked, limit=1).records]
        records = instance.fetch_materializations(key, limit=1000).records
        carrying = [r for r in records if r.asset_materialization and "watermark/new" in r.asset_materialization.metadata]
        found[f"watermark of {name}"] = carrying[0].storage_id if carrying else None
        found[f"observed {name}"] = [r.storage_id for r in instance.fetch_observations(key, limit=1).records]
        check = dg.AssetCheckKey(key, CHECK)
        storage = instance.event_log_storage
        found[f"check of {name}"] = [r.id for r in storage.get_asset_check_execution_history(check, limit=1)]
        for partition in PARTITIONS:
            only = PartitionKeyFilter(key=partition)
            history = storage.get_asset_check_execution_history(check, limit=1, partition_filter=only)
            found[f"check of {name} {partition}"] = [(r.id, r.status, r.run_id) for r in history]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_runs_with_the_newest_events_are_not_deleted(instance: dg.DagsterInstance, seed: int) -> None:
    chance = random.Random(seed)
    runs = [
        run(
            instance,
            random_events(chance),
            {"dagster/incremental_assets.container": f"many/{chance.choice('ab')}"},
            fails=chance.random() < 0.2,
        )
        for _ in range(7)
    ]
    before = answers(instance)
    forgotten = forget_runs(instance, SETTINGS, set(ASSETS), datetime.now(timezone.utc) + LATER)
    left = {record.run_id for record in instance.get_runs()}
    assert answers(instance) == before
    assert len(left) == len(runs) - forgotten and forgotten >= 1
    assert forget_runs(instance, SETTINGS, set(ASSETS), datetime.now(timezone.utc) + LATER) == 0
    storage = instance.event_log_storage
    assert isinstance(storage, SqliteEventLogStorage)
    assert {run_id for run_id in runs if Path(storage.path_for_shard(run_id)).exists()} == left, "a file of each run stays for ever"


def test_only_old_and_finished_runs_of_this_datastore_are_deleted(instance: dg.DagsterInstance) -> None:
    ours, others = {"dagster/incremental_assets.datastore": "many"}, {"dagster/incremental_assets.datastore": "shop"}
    kept = [run(instance, [], others), run(instance, [], {}), run(instance, [], {"dagster/incremental_assets.container": "many2/a"})]
    kept.append(instance.create_run_for_job(dg.JobDefinition(graph_def=dg.GraphDefinition("going")), tags=ours).run_id)
    for _ in range(3):
        run(instance, [], ours)
    assert forget_runs(instance, SETTINGS, set(ASSETS), datetime.now(timezone.utc) - LATER) == 0
    assert forget_runs(instance, SETTINGS, set(ASSETS), datetime.now(timezone.utc) + LATER) == 3
    assert {record.run_id for record in instance.get_runs()} == set(kept)


def test_evaluations_of_checks_end_with_their_runs(instance: dg.DagsterInstance) -> None:
    """They show rows that broke a rule. Dagster keeps them in a table of their own, of which it deletes nothing with a run: five rows of
    each scan, with the names of people, would stay for ever."""
    runs = [
        run(
            instance,
            [dg.AssetCheckEvaluation(asset_key=ASSETS[0], check_name=CHECK, passed=False, metadata={"who": f"secret {number}"})],
            {"dagster/incremental_assets.container": "many/a"},
        )
        for number in range(3)
    ]
    assert forget_runs(instance, SETTINGS, set(ASSETS), datetime.now(timezone.utc) + LATER) == 2
    left = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(ASSETS[0], CHECK), limit=10)
    assert [one.run_id for one in left] == runs[-1:]


def test_maintenance_is_on_unless_it_is_switched_off() -> None:
    assert maintenance_cron("shop", "off") is maintenance_cron("shop", None) is None
    assert maintenance_cron("shop", "0 3 * * 0") == "0 3 * * 0"
    found = {str(maintenance_cron(name, "daily")) for name in ("shop", "landing", "stock", "people")}
    assert len(found) == 4, "all datastores at the same minute"
    hours = {int(cron.split()[1]) for cron in found}
    assert all(2 <= hour < 6 for hour in hours)
    assert datastore(1, specified=False).settings().maintenance == maintenance_cron("many", "daily")
    with pytest.raises(ConfigurationError, match="keep_days is 0"):
        checked_days("shop", 0)
