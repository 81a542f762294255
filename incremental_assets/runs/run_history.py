"""Deletes old Dagster runs of a datastore, with their events and logs.

Dagster deletes the events of a run with the run. So a run is kept, however old it is, while one of its events is the newest of its kind: of
an asset's materializations, of those of one of its partitions, of its observations, of either that carry a watermark, or of a check's
evaluations, with or without a partition. What the UI shows of an asset, its partitions and its checks then stays the same, and so does the
watermark that the events carry.
"""

import functools
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable

from incremental_assets.catalog.definition import Settings
from incremental_assets.runs.records.run_tags import datastore_of
from incremental_assets.runs.records.watermarks import runs_with_watermark

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
"""The statuses of runs that may be deleted."""
_KINDS = {
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_OBSERVATION,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
}
"""The types of events that keep a run from being deleted, as long as they are the newest."""
_EVALUATED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
"""The statuses of a check that was evaluated, and not only planned."""


def forget_runs(instance: dg.DagsterInstance, settings: Settings, keys: Collection[dg.AssetKey], before: datetime) -> int:
    """Deletes the finished runs of a datastore that were last updated before ``before`` and have no newest event. Returns how many.

    ``keys``: the asset keys of the datastore. A run that selects no other assets belongs to the datastore even without a tag that says so.
    """
    newest = _Newest(instance)
    forgotten = 0
    for run in _old_runs(instance, before):
        if _is_of(run, settings.name, keys) and not newest.is_in(run):
            _forget(instance, run.run_id)
            forgotten += 1
    return forgotten


def forget_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Deletes one finished run, unless it has a newest event. Returns whether it did."""
    if _Newest(instance).is_in(run):
        return False
    _forget(instance, run.run_id)
    return True


def _old_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[dg.DagsterRun]:
    """The finished runs that were last updated before ``before``, the oldest first.

    All ids are read first. Dagster's cursor is a run id, and that run may be deleted before the next page is read.
    """
    for run_id in reversed(instance.get_run_ids(dg.RunsFilter(statuses=FINISHED, updated_before=before))):
        run = instance.get_run_by_id(run_id)
        if run is not None:
            yield run


def _is_of(run: dg.DagsterRun, datastore: str, keys: Collection[dg.AssetKey]) -> bool:
    """Whether the run belongs to the datastore, by its tags, or by its asset selection where it has none of these tags."""
    named = datastore_of(run)
    if named:
        return named == datastore
    chosen = run.asset_selection
    return bool(chosen) and all(key in keys for key in chosen or ())


def _forget(instance: dg.DagsterInstance, run_id: str) -> None:
    """Deletes the run with its events, its evaluations of checks and its logs of raw output."""
    _forget_evaluations(instance, run_id)
    instance.delete_run(run_id)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    storage = instance.event_log_storage
    # SQLite's storage has a database file for each run. Dagster deletes its rows and leaves the file.
    if isinstance(storage, SqliteEventLogStorage):
        Path(storage.path_for_shard(run_id)).unlink(missing_ok=True)


def _forget_evaluations(instance: dg.DagsterInstance, run_id: str) -> None:
    """Deletes the run's evaluations of checks, which show rows that broke a rule. Dagster has a table of them, and deletes none with a run.

    The checks are named, as the index of the table begins with them: without, each run would read the whole table.
    """
    storage, table = instance.event_log_storage, AssetCheckExecutionsTable.c
    events = (entry.dagster_event for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION))
    checks = {event.asset_check_evaluation_data.asset_check_key for event in events if event is not None}
    if not checks or not isinstance(storage, SqlEventLogStorage):
        return
    with storage.index_connection() as connection:
        for check in checks:
            is_of_it = (table.asset_key == check.asset_key.to_string()) & (table.check_name == check.name) & (table.run_id == run_id)
            connection.execute(AssetCheckExecutionsTable.delete().where(is_of_it))


class _Newest:
    """The runs that have the newest events. Each asset, partition and check is looked up once."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._of_event = functools.cache(self._run_of_event)
        self._of_check = functools.cache(self._run_of_check)
        self._of_watermark = functools.cache(lambda key: runs_with_watermark(instance, key))

    def is_in(self, run: dg.DagsterRun) -> bool:
        """Whether one of the run's events is the newest of its kind."""
        for entry in self._instance.all_logs(run.run_id, of_type=_KINDS):
            event = entry.dagster_event
            if event is None:
                continue
            if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                found = event.asset_check_evaluation_data
                holders = {self._of_check(found.asset_check_key, True, None), self._of_check(found.asset_check_key, False, found.partition)}
            else:
                key = event.asset_key
                if key is None:
                    continue
                materialized = event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION
                holders = {self._of_event(key, materialized, None), self._of_event(key, materialized, event.partition)}
                holders |= self._of_watermark(key)
            if run.run_id in holders:
                return True
        return False

    def _run_of_event(self, key: dg.AssetKey, materialized: bool, partition: str | None) -> str | None:
        """The id of the run with the newest materialization (or observation) of the asset; None where there is none.

        ``partition``: None means the newest event of all.
        """
        records_filter = dg.AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition])
        fetch = self._instance.fetch_materializations if materialized else self._instance.fetch_observations
        return next((record.run_id for record in fetch(records_filter, limit=1).records), None)

    def _run_of_check(self, key: dg.AssetCheckKey, whichever: bool, partition: str | None) -> str | None:
        """The id of the run with the newest evaluation of the check; None where there is none.

        ``whichever``: of any partition; else of ``partition``, where None means evaluations without partition. What is only planned does
        not count.
        """
        only = None if whichever else PartitionKeyFilter(key=partition)
        storage = self._instance.event_log_storage
        found = storage.get_asset_check_execution_history(key, limit=1, status=_EVALUATED, partition_filter=only)
        return found[0].run_id if found else None
