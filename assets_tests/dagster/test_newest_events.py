"""What a tick reads of many containers at once is what would be read of each by itself.

Belongs here: the newest watermarks of many containers, and the runs that are about to sync them. Does not belong: which watermark a sync
starts from (``test_sync``).
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets_tests.harness import Project
from benchmarks.tables import catalog, datastore
from incremental_assets.databases.definition import definitions_of
from incremental_assets.delta.result import NEW, SIGNATURE
from incremental_assets.runs.dagster_internals.newest_events import KEYS_A_QUESTION, MOST_OBSERVATIONS, newest_events
from incremental_assets.runs.dagster_internals.one_asset_job import implicit_job
from incremental_assets.runs.due import LookedUp, NotDue, launch_if_due
from incremental_assets.runs.launch import RunLaunch
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.run_tags import CONTAINER_TAG
from incremental_assets.runs.records.watermarks import newest_watermark, newest_watermarks

CONTAINERS = [one.container for one in definitions_of(datastore(8, specified=True).settings(), catalog(8))]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def report(instance: dg.DagsterInstance, number: int, kind: type, watermark: str | None, signature: str = "") -> None:
    """Reports an event of a container, with or without a watermark."""
    container = CONTAINERS[number]
    metadata = {} if watermark is None else {NEW: watermark, SIGNATURE: signature or container.signature}
    instance.report_runless_asset_event(kind(container_key(container), metadata=metadata))


@pytest.mark.long
def test_the_watermarks_of_many_containers_are_those_of_each(instance: dg.DagsterInstance) -> None:
    """Otherwise a tick would plan by a watermark that the run does not have: it would skip what is to be synced."""
    chance = random.Random(7)
    for _ in range(120):
        number = chance.randrange(len(CONTAINERS) - 1)  # the last one has no event
        kind = chance.choice([dg.AssetMaterialization, dg.AssetObservation])
        time = f"2026-01-{chance.randint(1, 28):02d}T00:00:00.000000Z" if chance.random() < 0.6 else None
        report(instance, number, kind, time, chance.choice(["", "", "other:timestamp:timestamp"]))
        if chance.random() < 0.02:
            instance.wipe_assets([container_key(CONTAINERS[number])])
        together = newest_watermarks(instance, CONTAINERS)
        assert all(newest_watermark(instance, one) == together[one.label] for one in CONTAINERS if one.label in together)
    assert together[CONTAINERS[-1].label] is None and len(together) > 1


def test_what_the_newest_events_do_not_tell_is_left_to_be_asked(instance: dg.DagsterInstance) -> None:
    """Scans, profiles and maintenance report observations without a watermark, and other programs materializations without one."""
    report(instance, 0, dg.AssetMaterialization, "2026-01-01T00:00:00.000000Z")
    report(instance, 1, dg.AssetMaterialization, "2026-01-01T00:00:00.000000Z")
    report(instance, 1, dg.AssetMaterialization, None)
    report(instance, 2, dg.AssetMaterialization, "2026-01-01T00:00:00.000000Z")
    report(instance, 0, dg.AssetObservation, None)
    for _ in range(MOST_OBSERVATIONS):
        report(instance, 2, dg.AssetObservation, None)
    report(instance, 3, dg.AssetMaterialization, "2026-01-01T00:00:00.000000Z")
    instance.wipe_assets([container_key(CONTAINERS[3])])
    found = newest_watermarks(instance, CONTAINERS)
    labels = [one.label for one in CONTAINERS]
    assert found[labels[0]] == newest_watermark(instance, CONTAINERS[0]) is not None
    assert not {labels[1], labels[2], labels[3]} & set(found)


def test_more_assets_than_a_statement_has_variables_are_read(instance: dg.DagsterInstance) -> None:
    keys = [dg.AssetKey(["many", str(number)]) for number in range(KEYS_A_QUESTION + 2)]
    instance.report_runless_asset_event(dg.AssetMaterialization(keys[-1]))
    found = newest_events(instance, keys)
    assert len(found) == len(keys)
    assert [key for key, one in found.items() if one.materialization is not None] == [keys[-1]]


def test_a_tick_starts_no_run_of_a_container_for_which_one_is_waiting(project: Callable[..., Project]) -> None:
    """Otherwise each tick would queue one more run of a container while the first one waits for its slot."""
    made = project(incremental=["public.a:at:timestamp"])
    made.execute("create table a (id int primary key, at timestamptz); create table b (id int primary key)")
    a, b = made.catalog()
    with made.instance() as instance:
        job, tags = implicit_job(made.dagster([a, b]), container_key(a.container)), {CONTAINER_TAG: "shop/a"}
        run = instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.NOT_STARTED)
        known = LookedUp.now(instance, [a, b])
        assert known.waiting == {"shop/a": run.run_id}
        of_a, of_b = launch_if_due(instance, a, known), launch_if_due(instance, b, known)
        assert isinstance(of_a, NotDue) and f"run {run.run_id} is about to sync it" in of_a.reason
        assert isinstance(of_b, RunLaunch)
