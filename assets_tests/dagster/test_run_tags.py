"""The tags of runs: lists of runs stay readable, and runs of older versions are understood.

Belongs here: names and reading. Does not belong: which run has which tags (``test_dagster``, ``test_operations_page``).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest
from dagster._core.storage.tags import TagType, get_tag_type

from benchmarks.tables import datastore
from incremental_assets.api.history import find, item_of
from incremental_assets.operations.history import operation_of
from incremental_assets.runs.records import run_tags
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, REQUEST_TAG, is_sync, runs_with
from incremental_assets.runs.run_history import forget_runs

REQUEST = "00000000-0000-0000-0000-000000000000"
OF_A_SCAN = {"container": "many/orders", "operation": "scan", "datastore": "many", "started_by": "ann", "request": REQUEST}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def run(instance: dg.DagsterInstance, prefix: str) -> dg.RunRecord:
    tags = {f"{prefix}{name}": value for name, value in OF_A_SCAN.items()}
    made = dg.JobDefinition(graph_def=dg.GraphDefinition("job")).execute_in_process(instance=instance, tags=tags)
    record = instance.get_run_record_by_id(made.run_id)
    assert record is not None
    return record


def test_the_uis_lists_of_runs_leave_these_tags_out() -> None:
    """Five tags of each run hide what a person looks for: Dagster's UI leaves out those that begin as its own, and shows them on the page
    of the run and by GraphQL. Tags that it takes for hidden ones are shown nowhere."""
    names = [value for name, value in vars(run_tags).items() if name.endswith("_TAG")]
    assert len(names) == 6 and {get_tag_type(name) for name in names} == {TagType.SYSTEM}


@pytest.mark.parametrize("prefix", [run_tags.PREFIX, "incremental_assets/"])
def test_a_run_is_understood_whichever_version_has_tagged_it(instance: dg.DagsterInstance, prefix: str) -> None:
    """After an upgrade the history is still there: what a run was of, who has started it, and the id by which a caller polls it. And what
    is older than ``keep_days`` is deleted, whoever has written it."""
    record = run(instance, prefix)
    assert not is_sync(record.dagster_run)
    assert [one.dagster_run.run_id for one in runs_with(instance, CONTAINER_TAG, "many/orders", 5)] == [record.dagster_run.run_id]
    shown = operation_of(instance, record)
    assert (shown["type"], shown["of"], shown["triggered_by"]) == ("scan", "many/orders", "ann")
    item = item_of(instance, record)
    assert (item["container"], item["datastore"], item["request"]) == ("many/orders", {"id": "many", "name": "many"}, REQUEST)
    assert [one.dagster_run.run_id for one in find(instance, REQUEST).records] == [record.dagster_run.run_id]
    assert forget_runs(instance, datastore(1, specified=False).settings(), set(), datetime.now(timezone.utc) + timedelta(hours=1)) == 1


def test_runs_of_older_versions_count_until_there_is_one_of_this(instance: dg.DagsterInstance) -> None:
    """A status of each container would ask twice for ever, or would say of what has not run since the upgrade that it was never synced."""
    before = run(instance, "incremental_assets/")
    assert [one.dagster_run.run_id for one in runs_with(instance, CONTAINER_TAG, "many/orders", 5)] == [before.dagster_run.run_id]
    now = run(instance, run_tags.PREFIX)
    assert [one.dagster_run.run_id for one in runs_with(instance, CONTAINER_TAG, "many/orders", 5)] == [now.dagster_run.run_id]
    assert len(runs_with(instance, REQUEST_TAG, REQUEST, 1)) == 1
