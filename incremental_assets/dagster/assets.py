"""A container as a Dagster asset: its definition, and what happens when it is materialized.

Belongs here: the mapping from ``Container`` to an asset, and from a run's context to a ``Request``. Does not belong: the sync itself.
"""

import math
import time
import warnings
from collections.abc import Iterator
from enum import Enum
from typing import Any

import dagster as dg
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from incremental_assets.catalog.definition import ContainerDefinition, max_runtime_seconds, missing
from incremental_assets.core.errors import ContainerBusy
from incremental_assets.core.plan import Mode, Plan, Request
from incremental_assets.dagster.catalog_asset import RESULT_TAG
from incremental_assets.dagster.io_manager import OF_A_CONTAINER
from incremental_assets.dagster.locks import container_lock
from incremental_assets.dagster.metadata import as_metadata
from incremental_assets.dagster.mover import mover_of
from incremental_assets.dagster.partitions import add_keys, container_key, partitions_definition, restore_range
from incremental_assets.dagster.project import dagster_home
from incremental_assets.dagster.quality.evaluations import repeat_evaluations
from incremental_assets.dagster.quality.pages import PAGE, page_path
from incremental_assets.delta.result import result_values
from incremental_assets.delta.scope import LakeScope

MISSING_TAG = "incremental_assets/missing"


class ModeConfig(str, Enum):
    incremental = "incremental"
    refresh = "refresh"


class SyncConfig(dg.Config):
    """``mode``: schedules send ``incremental``; *Materialize* in the UI means ``refresh``: the chosen partitions are read whole.

    ``all_partitions``: a refresh of the whole container, whichever partitions the run is launched with. ``most_files``: of new and changed
    files at most so many are read; ``again_before``: and of those that could not be read, the ones that were refused before that moment.
    """

    mode: ModeConfig = ModeConfig.refresh
    all_partitions: bool = False
    reset_watermarks: bool = False
    allow_empty: bool = False
    most_files: int | None = None
    again_before: int | None = None


_CONFIG_SCHEMA: Any = (
    SyncConfig.to_config_schema()
)  # once: inferred again for each asset, it was a third of the time that many take to load


def container_asset(definition: ContainerDefinition) -> dg.AssetsDefinition:
    """The asset of one container."""
    with warnings.catch_warnings():
        # Backfill policies have been in beta since 2023; what we lean on is pinned by the characterization tests.
        warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)
        return _asset(definition)


def _asset(definition: ContainerDefinition) -> dg.AssetsDefinition:
    container, partitions_def = definition.container, partitions_definition(definition)
    mover = mover_of(definition)
    face = mover.face()
    metadata: dict[str, Any] = {
        "dagster/table_name": ".".join(container.key_path),
        OF_A_CONTAINER: container.strategy.value,
        "sync/identifier": container.signature,
        "sync/safety_lag": container.lag,
        "sync/safety_lag_is_auto": container.lag_is_auto,
        "sync/safety_lag_reason": container.lag_reason,
        **face.metadata,
    }

    @dg.asset(
        key=container_key(container),
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions_def else None,
        io_manager_key="delta",
        required_resource_keys={"lake"},
        deps=[mover.source().key],
        group_name=container.key_path[0],
        kinds=set(face.kinds),
        owners=list(container.options.owners) or None,
        tags={**container.options.tags, **({MISSING_TAG: "true"} if definition.missing_since else {})},
        metadata=metadata,
        description=face.description if definition.missing_since is None else f"**Missing.** {missing(definition)}",
        pool="/".join(container.key_path),
        config_schema=_CONFIG_SCHEMA,
        output_required=False,
    )
    def sync(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        writes, config = False, SyncConfig(**context.op_execution_context.op_config)
        for output in _materialize(context, config, definition):
            writes = True
            yield output
        if not writes:  # then Dagster runs no check
            repeat_evaluations(context, definition)

    return sync


def _materialize(context: dg.AssetExecutionContext, config: SyncConfig, definition: ContainerDefinition) -> Iterator[dg.Output[Any]]:
    scope: LakeScope = context.resources.lake
    container, instance, run_id = definition.container, context.instance, context.run.run_id
    log = context.log.info
    _limit_runtime(context, definition)
    restore_range(instance, definition, context.run.tags)
    # Everything entered here is given back when the run has ended, after its last event.
    scope.begin()
    try:
        lock = container_lock(dagster_home(), container, run_id, log, instance, lake=scope.lake, on_lost=scope.interrupt)
        scope.lease = scope.stack.enter_context(lock)
        begun = mover_of(definition).begin(instance, _request(context, config), scope, run_id, log)
    except ContainerBusy as error:
        log(str(error))
        context.log_event(dg.AssetObservation(container_key(container), metadata={"sync/status": "skipped", "sync/message": str(error)}))
        return
    for warning in begun.warnings if isinstance(begun, Plan) else begun.result.plan.warnings:
        context.log.warning(f"{container.label}: {warning}")
    if isinstance(begun, Plan):
        log(f"{container.label}: {begun.reason}")
        mover_of(definition).keep_learned(instance, begun, scope.lake)
        return
    page = page_path(scope.lake, container)
    if page.is_file():
        begun.result.more[PAGE] = dg.MetadataValue.path(str(page))
    found = begun.extractions(before_outside=lambda keys: add_keys(instance, partitions_definition(definition), keys))
    if found is not None:
        yield dg.Output(found)
    else:
        metadata = as_metadata(result_values(begun.result, scope.table(*container.key_path).url))
        context.log_event(dg.AssetObservation(container_key(container), metadata=metadata))
    begun.finish()
    if begun.result.warnings:
        instance.add_run_tags(run_id, {RESULT_TAG: "warning"})
    for warning in (one for one in begun.result.warnings if one not in begun.result.plan.warnings):
        context.log.warning(f"{container.label}: {warning}")


def _limit_runtime(context: dg.AssetExecutionContext, definition: ContainerDefinition) -> None:
    """*Materialize* in the UI starts a run of no job of ours, so that no limit is among its tags; the daemon reads them as it runs.

    A run of several containers gets the time of each, one after another.
    """
    if MAX_RUNTIME_SECONDS_TAG in context.run.tags:  # those that it was launched with
        return
    record = context.instance.get_run_record_by_id(context.run.run_id)
    started = record.start_time if record is not None and record.start_time is not None else time.time()
    limit = math.ceil(time.time() - started) + max_runtime_seconds(definition)
    context.instance.add_run_tags(context.run.run_id, {MAX_RUNTIME_SECONDS_TAG: str(limit)})


def _request(context: dg.AssetExecutionContext, config: SyncConfig) -> Request:
    mode = Mode(config.mode.value)
    keys: tuple[str, ...] | None = None
    some = not config.reset_watermarks and not config.all_partitions
    if mode is Mode.REFRESH and some and (context.has_partition_key or context.has_partition_key_range):
        keys = tuple(context.partition_keys)
    return Request(mode, keys, config.reset_watermarks, config.allow_empty, config.most_files, config.again_before)
