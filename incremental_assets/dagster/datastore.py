"""Builds the Dagster definitions of a datastore: assets, jobs and schedules of its containers, a job that syncs all, and maintenance.

The job that syncs all containers consists of an op. It is no asset job, because the assets of such a job must share one partitions
definition. It uses the code of the command line: each container is an ordinary run of its own, executed by worker processes of this
process. So it needs no daemon and no queue, waits for its runs, fails if one of them has failed, and cancels them when it is terminated.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.core.errors import ContainerBusy, SyncError
from incremental_assets.core.names import encode_name
from incremental_assets.core.shown_text import counted
from incremental_assets.dagster.asset_checks import container_checks
from incremental_assets.dagster.assets import GetAssetSpec, SyncContainer, container_asset, container_spec
from incremental_assets.dagster.audit_jobs import audit_job, audit_schedule, datastore_audit_job, datastore_audit_schedule
from incremental_assets.dagster.jobs import container_job, counts_by_status, logged, regular_schedule
from incremental_assets.dagster.quality_jobs import (
    datastore_quality_schedules,
    quality_jobs,
    quality_jobs_of,
    quality_schedules,
)
from incremental_assets.dagster.schedules import container_schedule, datastore_schedule
from incremental_assets.dagster.sensors import files_sensor
from incremental_assets.delta.maintenance import Kept, maintain, next_time_if_moved, tidy
from incremental_assets.delta.operation_tables import EndedAs, OperationKind, OperationTables
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.definition import FileDefinition
from incremental_assets.profiles.store import ProfileStore
from incremental_assets.project.folders import current_project, dagster_home
from incremental_assets.quality.records import Records
from incremental_assets.quality.retention import prune
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.catalog_run import catalog_key
from incremental_assets.runs.container_run import sync_container
from incremental_assets.runs.dagster_internals.event_batches import store_events_in_batches
from incremental_assets.runs.launch import has_own_job
from incremental_assets.runs.locks import container_lock
from incremental_assets.runs.parallel_sync import sync_in_workers
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.quality.pages import remove_page
from incremental_assets.runs.records.run_tags import DATASTORE_TAG
from incremental_assets.runs.run_history import forget_runs
from incremental_assets.runs.runner import SyncOptions


class DatastoreConfig(dg.Config):
    """The config of the job that syncs all containers. ``jobs``: how many containers are synced at a time."""

    jobs: int = 2


def sync_op(settings: Settings, definitions: Sequence[ContainerDefinition]) -> dg.OpDefinition:
    """The op that syncs all containers, as ``incremental-assets sync DATASTORE`` does."""
    name = encode_name(settings.name)

    @dg.op(name=f"{name}_containers", out=dg.Out(dg.Nothing), description=f"Syncs all containers of {settings.name}, a run each.")
    def sync_all(context: dg.OpExecutionContext, config: DatastoreConfig) -> None:
        options = SyncOptions(started_by=f"run {context.run_id}")
        lines = logged(context, sync_in_workers(current_project(), definitions, options, context.instance, config.jobs), ["failed"])
        context.add_output_metadata({"rows_read": sum(line["rows_read"] or 0 for line in lines), **counts_by_status(lines)})
        failed = [line["container"] for line in lines if line["status"] == "failed"]
        if failed:
            raise dg.Failure(f"failed: {', '.join(failed)}; the others were synced.", allow_retries=False)

    return sync_all


def datastore_job(settings: Settings, sync: dg.OpDefinition) -> dg.JobDefinition:
    """The job that syncs all containers. ``sync``: the op."""
    name = encode_name(settings.name)

    @dg.job(name=f"sync_{name}", description=f"Syncs all containers of {settings.name}.", tags={DATASTORE_TAG: settings.name})
    def job() -> None:
        sync()

    return job


def maintenance_job(settings: Settings, definitions: Sequence[ContainerDefinition]) -> dg.JobDefinition:
    """The job that maintains a datastore: OPTIMIZE and VACUUM of each table, one after another, under the lock of its container.

    It also deletes what is older than ``keep_days``. It fails at the end if a table could not be maintained.
    """
    name = encode_name(settings.name)

    @dg.op(
        name=f"{name}_tables",
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake"},
        description=f"Joins the small files of the tables of {settings.name}, and removes those that no version of the last days needs.",
    )
    def maintain_all(context: dg.OpExecutionContext) -> None:
        scope: LakeScope = context.resources.lake
        scope.operations.begin(OperationKind.MAINTENANCE, settings.name)
        failed: list[str] = []
        before = after = removed_files = 0
        for definition in definitions:
            container = definition.container
            if container.refusal is not None:
                continue
            table = scope.table(*container.key_path)
            try:
                with container_lock(dagster_home(), container, context.run_id, context.log.info, context.instance, lake=scope.lake):
                    kept = maintain(lambda: scope.spark, table, container)
                    for companion in adapter_of(definition).companion_tables(scope.lake):
                        tidy(companion, is_locked=True)
            # A container that another run holds is left to the next maintenance. That is no failure.
            except ContainerBusy as error:
                context.log.warning(str(error))
                continue
            except SyncError as error:
                context.log.error(str(error))
                failed.append(container.label)
                continue
            if kept is None:
                context.log.info(f"{container.label}: no table yet")
                continue
            before, after, removed_files = before + kept.files_before, after + kept.files_after, removed_files + kept.files_removed
            context.log.info(f"{container.label}: {kept}")
            context.log_event(dg.AssetObservation(container_key(container), description=str(kept), metadata=_metadata(kept)))
        _forget_old(context, settings, definitions, scope.lake)
        # Also without rules in the YAML: profiles write records, too, and so have rules that were there before.
        removed = Records(scope.lake, name).tidy()
        context.log.info(f"records of scans and profiles: joined; {counted(removed, 'row')} of scans that broke off removed")
        with next_time_if_moved():
            tidy(ProfileStore(scope.lake, settings.name).table)
        OperationTables(scope.lake).tidy()
        if failed:
            raise dg.Failure(f"failed: {', '.join(failed)}; the others were kept in shape.", allow_retries=False)
        scope.operations.end(OperationKind.MAINTENANCE, None, EndedAs.SUCCESS, message=str(Kept(before, after, removed_files, 0)))

    @dg.job(name=f"maintain_{name}", description=f"OPTIMIZE and VACUUM of {settings.name}.", tags={DATASTORE_TAG: settings.name})
    def job() -> None:
        maintain_all()

    return job


def _forget_old(context: dg.OpExecutionContext, settings: Settings, definitions: Sequence[ContainerDefinition], lake: str) -> None:
    """Deletes what is older than the datastore's ``keep_days``: runs, records of scans, rows of the tables ``_operations``, profile pages,
    and sample values in profiles.

    ``keep_days`` of None keeps everything.
    """
    if settings.keep_days is None:
        return
    before = datetime.now(timezone.utc) - timedelta(days=settings.keep_days)
    rows = prune(Records(lake, encode_name(settings.name)), before)
    operations = OperationTables(lake).forget(settings.name, before)
    states = 0
    with next_time_if_moved():
        states = ProfileStore(lake, settings.name).forget_samples(before)
    for definition in definitions:
        remove_page(lake, definition.container, before)
    keys = {container_key(definition.container) for definition in definitions} | {catalog_key(settings.name, definitions)}
    runs = forget_runs(context.instance, settings, keys, before)
    context.log.info(
        f"older than {counted(settings.keep_days, 'day')}: {counted(rows, 'row')} of the records of scans, {operations:,} of the "
        f"tables _operations and {counted(runs, 'run')} removed, and values shown by {states:,} states of profiles"
    )


def _metadata(kept: Kept) -> dict[str, Any]:
    return {
        "maintenance/files_before": kept.files_before,
        "maintenance/files_after": kept.files_after,
        "maintenance/files_removed": kept.files_removed,
        "maintenance/delta_version": kept.version,
    }


def datastore_definitions(
    settings: Settings,
    definitions: Sequence[ContainerDefinition],
    get_asset_spec: GetAssetSpec = container_spec,
    sync: SyncContainer = sync_container,
    *,
    all_of: Sequence[ContainerDefinition] | None = None,
) -> dg.Definitions:
    """The assets, checks, jobs, schedules and sensors of one datastore.

    ``definitions``: the containers. ``get_asset_spec``, ``sync``: methods of the datastore's component, which a project may override.
    ``all_of``: the containers that the jobs and the schedule of the whole datastore are about, where ``definitions`` are only some of them.
    """
    # Each process that executes a run builds the definitions first, including those that the daemon starts.
    store_events_in_batches()
    everything = definitions if all_of is None else all_of
    # A container has jobs of its own only where something of its own starts them: of hundreds of jobs, nobody finds one, and each more for
    # a thousand containers is a second more for each process that loads them.
    jobs: list[Any] = [container_job(d) for d in definitions if has_own_job(d)]
    schedules = [container_schedule(d, d.container.options.schedule) for d in definitions if d.container.options.schedule]
    if everything:
        sync_all = sync_op(settings, everything)
        jobs += [datastore_job(settings, sync_all), maintenance_job(settings, everything), datastore_audit_job(settings, everything)]
        jobs += quality_jobs(settings, everything, sync_all)
        schedules += datastore_quality_schedules(settings)
        if settings.audit is not None and settings.audit.schedule is not None:
            schedules.append(datastore_audit_schedule(settings, settings.audit, settings.audit.schedule))
    for one in definitions:
        own = one.container.options.audit
        if own is not None and own.schedule is not None:
            jobs.append(audit_job(one))
            schedules.append(audit_schedule(one, own, own.schedule))
        jobs += quality_jobs_of(one)
        schedules += quality_schedules(one)
    if settings.schedule and everything:
        schedules.append(datastore_schedule(settings, everything, settings.schedule))
    if settings.maintenance and everything:
        schedules.append(regular_schedule(f"maintain_{encode_name(settings.name)}", settings.maintenance))
    return dg.Definitions(
        assets=[*(container_asset(d, get_asset_spec, sync) for d in definitions), *(adapter_of(d).source() for d in definitions)],
        asset_checks=[check for d in definitions for check in container_checks(d)],
        jobs=jobs,
        schedules=schedules,
        sensors=[files_sensor(d) for d in definitions if isinstance(d, FileDefinition)],
    )
