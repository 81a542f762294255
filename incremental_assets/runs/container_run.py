"""One run of a container's asset: from its config and partitions to a ``Request``, and the sync under the container's lock."""

import math
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import dagster as dg
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from incremental_assets.catalog.definition import ContainerDefinition, max_runtime_seconds
from incremental_assets.core.audit import SUMMARY, audit_values, message_of
from incremental_assets.core.capture import parse_lsn
from incremental_assets.core.comparison import Comparison
from incremental_assets.core.errors import ConfigurationError, ContainerBusy, LogLost
from incremental_assets.core.plan import AuditRequest, Mode, Plan, Request
from incremental_assets.delta.operation_tables import EndedAs, OperationKind
from incremental_assets.delta.scope import LakeScope
from incremental_assets.project.folders import dagster_home
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.launch import op_name
from incremental_assets.runs.locks import container_lock
from incremental_assets.runs.loggers import PLANNED
from incremental_assets.runs.metadata_export import write_after_sync
from incremental_assets.runs.partitions import container_key, restore_range
from incremental_assets.runs.quality.pages import PAGE, page_link, page_path
from incremental_assets.runs.records.audit_results import report_audit, report_unfilled
from incremental_assets.runs.records.looks import remember
from incremental_assets.runs.records.metadata import as_event_metadata, as_metadata
from incremental_assets.runs.records.operation_rows import end_sync
from incremental_assets.runs.records.retained_log import report_lost, report_retained
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, RESULT_TAG, tag_of


class ModeConfig(str, Enum):
    incremental = "incremental"
    refresh = "refresh"


class SyncConfig(dg.Config):
    """The run config of a container's asset (see ``core.plan.Request``).

    ``mode``: schedules and sensors launch runs with ``incremental``. *Materialize* in the UI uses the default ``refresh``: the chosen
    partitions are read completely. ``all_partitions``: refreshes the whole container, whichever partitions the run is launched with.
    ``reset_watermarks``: loads the whole container anew. ``allow_empty``: the sync may remove rows although the source has none in their
    place. ``most_files``: the highest number of new and changed files to read (None: no limit). ``again_before``: files that failed before
    this time are tried again, too (microseconds since 1970 UTC). ``audit``: afterwards the lake is compared with the source.
    ``audit_partitions``: the partitions that are compared; left out, all rows are. ``audit_start``: see ``AuditRequest.start``. ``sweep``:
    a container that has sweeps is swept now. ``changed_at``: where in the source's log a change was seen, as PostgreSQL writes positions.
    """

    mode: ModeConfig = ModeConfig.refresh
    all_partitions: bool = False
    reset_watermarks: bool = False
    allow_empty: bool = False
    most_files: int | None = None
    again_before: int | None = None
    audit: bool = False
    audit_partitions: list[str] | None = None
    audit_start: int | None = None
    sweep: bool = False
    changed_at: str | None = None


def sync_container(context: dg.AssetExecutionContext, definition: ContainerDefinition) -> Iterator[dg.Output[Any]]:
    """Syncs the container as the run's config and partitions say. The component of the datastore may override this.

    It yields at most one output: the sync (``ContainerSync``), whose write batches the IO manager commits. A plan that skips has no output.
    A sync that finds nothing to commit logs an observation instead. A run that waits in vain for the container's lock does not fail: it
    logs an observation with the status ``skipped``. Raises SyncError.
    """
    config = SyncConfig(**context.op_execution_context.op_config)
    scope: LakeScope = context.resources.lake
    container, instance, run_id = definition.container, context.instance, context.run.run_id
    log = context.log.info
    if container.refusal is not None:
        raise ConfigurationError(container.refusal)  # before a lock is made for it
    _name_container(context, definition)
    _limit_runtime(context, definition)
    restore_range(instance, definition, context.run.tags)
    # The stack of the scope is closed when the run has ended, after its last event. So the lock is still held while the IO manager commits.
    scope.begin()
    scope.operations.begin(OperationKind.SYNC, container.datastore, container.label, step=op_name(definition))
    try:
        lock = container_lock(dagster_home(), container, run_id, log, instance, lake=scope.lake, on_lost=scope.interrupt)
        scope.lease = scope.stack.enter_context(lock)
        begun = adapter_of(definition).begin(instance, _request(context, config), scope, run_id, log)
    except ContainerBusy as error:
        log(str(error))
        scope.operations.end(OperationKind.SYNC, container.label, EndedAs.SKIPPED, rows=0, message=str(error))
        context.log_event(dg.AssetObservation(container_key(container), metadata={"sync/status": "skipped", "sync/message": str(error)}))
        return
    except LogLost as error:
        report_lost(context, definition, error)
        raise
    for warning in begun.warnings if isinstance(begun, Plan) else begun.result.plan.warnings:
        context.log.warning(f"{container.label}: {warning}", extra={PLANNED: True})
    if isinstance(begun, Plan):
        log(f"{container.label}: {begun.reason}")
        adapter_of(definition).keep_learned(instance, begun, scope.lake)
        remember(instance, {container.label: begun.look})
        scope.operations.end(OperationKind.SYNC, container.label, EndedAs.SKIPPED, rows=0, message=begun.reason)
        report_retained(context, definition, begun.retained)
        if begun.audited is not None:
            _observe_audit(context, definition, begun.audited)
        _warn(context, definition, write_after_sync(context, definition, scope.lake))
        return
    page = page_path(scope.lake, container.key_path)
    if page.is_file():
        begun.result.more[PAGE] = page_link(container)
    if begun.prepare():
        yield dg.Output(begun)
    else:
        context.log_event(dg.AssetObservation(container_key(container), metadata=as_event_metadata(begun.metadata())))
    begun.finish()
    remember(instance, {container.label: begun.look})
    end_sync(scope.operations, begun)
    report_retained(context, definition, begun.result.retained or begun.result.plan.retained)
    report_unfilled(context, definition, begun)
    # The audit of a table is among the metadata of its materialization; that of files comes after it.
    if begun.result.audited is not None and SUMMARY in begun.result.more:
        report_audit(context, definition, begun.result.audited)
    elif begun.result.audited is not None:
        _observe_audit(context, definition, begun.result.audited)
    if begun.result.warnings:
        instance.add_run_tags(run_id, {RESULT_TAG: "warning"})
    _warn(context, definition, [one for one in begun.result.warnings if one not in begun.result.plan.warnings])
    _warn(context, definition, write_after_sync(context, definition, scope.lake))


def _observe_audit(context: dg.AssetExecutionContext, definition: ContainerDefinition, found: Comparison) -> None:
    """Records an audit by an observation of its own."""
    context.log_event(dg.AssetObservation(container_key(definition.container), metadata=as_metadata(audit_values(found))))
    report_audit(context, definition, found)
    _warn(context, definition, [] if found.equal else [message_of(found)])


def _warn(context: dg.AssetExecutionContext, definition: ContainerDefinition, warnings: Sequence[str]) -> None:
    """Logs warnings, and marks the run by a tag."""
    for warning in warnings:
        context.log.warning(f"{definition.container.label}: {warning}")
    if warnings:
        context.instance.add_run_tags(context.run.run_id, {RESULT_TAG: "warning"})


def _name_container(context: dg.AssetExecutionContext, definition: ContainerDefinition) -> None:
    """Gives the run of one container the tag by which `status`, alerts and schedules find its runs, if who launched it did not."""
    chosen = context.run.asset_selection
    if tag_of(context.run, CONTAINER_TAG) is None and chosen is not None and len(chosen) == 1:
        context.instance.add_run_tags(context.run.run_id, {CONTAINER_TAG: definition.container.label})


def _limit_runtime(context: dg.AssetExecutionContext, definition: ContainerDefinition) -> None:
    """Limits the duration of a run that has no limit among its tags.

    Such a run was started by *Materialize* in the UI, which uses Dagster's own job and not the container's. The daemon reads the tags while
    the run executes, so the limit may be added now. It counts from the start of the run. A run of several containers syncs one after
    another: each of them adds its own limit to the time that has passed until then.
    """
    # `context.run` has the tags with which the run was launched, and not the limit that an earlier container of the same run has added.
    if MAX_RUNTIME_SECONDS_TAG in context.run.tags:
        return
    record = context.instance.get_run_record_by_id(context.run.run_id)
    started = record.start_time if record is not None and record.start_time is not None else time.time()
    limit = math.ceil(time.time() - started) + max_runtime_seconds(definition)
    context.instance.add_run_tags(context.run.run_id, {MAX_RUNTIME_SECONDS_TAG: str(limit)})


def _request(context: dg.AssetExecutionContext, config: SyncConfig) -> Request:
    """The request of the run. The partitions that the run was launched with matter only to a refresh: other syncs plan what they read."""
    mode = Mode(config.mode.value)
    keys: tuple[str, ...] | None = None
    some = not config.reset_watermarks and not config.all_partitions
    if mode is Mode.REFRESH and some and (context.has_partition_key or context.has_partition_key_range):
        keys = tuple(context.partition_keys)
    audited = None if config.audit_partitions is None else tuple(config.audit_partitions)
    audit = AuditRequest(audited, config.audit_start) if config.audit else None
    changed_at = None if config.changed_at is None else parse_lsn(config.changed_at)
    return Request(
        mode, keys, config.reset_watermarks, config.allow_empty, config.most_files, config.again_before, audit, config.sweep, changed_at
    )
