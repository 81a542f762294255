"""A container as a Dagster asset: its definition, and what happens when it is materialized.

Belongs here: the mapping from ``Container`` to an asset, and from a run's context to a ``Request``. Does not belong: the sync itself.
"""

import warnings
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import dagster as dg

from incremental_assets.catalog.datastore import ContainerDefinition
from incremental_assets.lake.partitioning import WINDOWS_METADATA, dagster_partitions, partitions_of, windows_metadata
from incremental_assets.lake.scope import LakeScope
from incremental_assets.model.container import Container
from incremental_assets.model.errors import ContainerBusy
from incremental_assets.model.names import encode_name
from incremental_assets.model.partitions import Partitions
from incremental_assets.orchestration.locks import container_lock
from incremental_assets.orchestration.planning import Action, Mode, Request, make_plan
from incremental_assets.orchestration.project import dagster_home
from incremental_assets.orchestration.sync import ContainerSync
from incremental_assets.orchestration.watermarks import newest_watermark
from incremental_assets.sources.postgres.extract import carried_columns
from incremental_assets.sources.postgres.reader import PostgresReader

LINEAGE_LIMIT = 500
KEYS_A_BATCH = 1000
MISSING_TAG = "incremental_assets/missing"


class ModeConfig(str, Enum):
    incremental = "incremental"
    refresh = "refresh"


class SyncConfig(dg.Config):
    """``mode``: schedules send ``incremental``; *Materialize* in the UI means ``refresh``: the chosen partitions are read whole.

    ``all_partitions``: a refresh of the whole container, whichever partitions the run is launched with.
    """

    mode: ModeConfig = ModeConfig.refresh
    all_partitions: bool = False
    reset_watermarks: bool = False
    allow_empty: bool = False


def container_key(container: Container) -> dg.AssetKey:
    return dg.AssetKey(list(container.key_path))


def source_key(container: Container) -> dg.AssetKey:
    """The source table as an upstream asset: where the data comes from."""
    return dg.AssetKey([container.key_path[0], encode_name(container.schema), container.key_path[1]])


def container_partitions(
    definition: ContainerDefinition, dagster_definition: dg.PartitionsDefinition | None, instance: dg.DagsterInstance
) -> Partitions | None:
    container = definition.container
    if dagster_definition is None or container.axis is None or container.cut is None:
        return None
    return partitions_of(container.axis, container.cut, dagster_definition, instance)


def source_spec(definition: ContainerDefinition) -> dg.AssetSpec:
    container, address = definition.container, definition.settings.address
    return dg.AssetSpec(
        source_key(container),
        group_name=f"{container.key_path[0]}_source",
        kinds={"postgres", "view" if "view" in container.kind.value else "table"},
        description=container.comment or f"The {container.kind.value} {container.schema}.{container.name} of {address.display}.",
        metadata={
            "dagster/table_name": f"{address.database}.{container.schema}.{container.name}",
            "dagster/column_schema": dg.TableSchema([dg.TableColumn(c.name, c.type) for c in container.columns]),
        },
    )


def container_asset(definition: ContainerDefinition) -> dg.AssetsDefinition:
    """The asset of one container."""
    container, settings = definition.container, definition.settings
    partitions_def = dagster_partitions(container, settings.timezone)
    lineage = {
        c.name: [dg.TableColumnDep(source_key(container), c.name)] for c in container.columns if len(container.columns) <= LINEAGE_LIMIT
    }
    metadata: dict[str, Any] = {
        "dagster/table_name": ".".join(container.key_path),
        "dagster/column_schema": dg.TableSchema(
            [
                dg.TableColumn(c.column.name, c.column.type, description=f"{source.type} in the source")
                for c, source in zip(carried_columns(container), container.columns, strict=True)
            ]
        ),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
        "sync/strategy": container.strategy.value,
        "sync/identifier": container.signature,
        "sync/safety_lag": container.lag,
    }
    if not definition.is_specified and definition.proposal.reasons:
        metadata["catalog/proposal"] = definition.proposal.entry(container.schema, container.name) or "none"
        metadata["catalog/why"] = "\n".join(definition.proposal.reasons)
    if container.identifier is not None:
        metadata["partition_expr"] = container.identifier.columns[0]
        metadata[WINDOWS_METADATA] = windows_metadata(container)

    with warnings.catch_warnings():
        # Backfill policies have been in beta since 2023; what we lean on is pinned by the characterization tests.
        warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)
        return _asset(definition, partitions_def, metadata)


def _asset(
    definition: ContainerDefinition, partitions_def: dg.PartitionsDefinition | None, metadata: dict[str, Any]
) -> dg.AssetsDefinition:
    container = definition.container

    @dg.asset(
        key=container_key(container),
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions_def else None,
        io_manager_key="delta",
        required_resource_keys={"lake"},
        deps=[source_key(container)],
        group_name=container.key_path[0],
        kinds={"postgres", "deltalake", "spark"},
        owners=list(container.options.owners) or None,
        tags={**container.options.tags, **({MISSING_TAG: "true"} if definition.missing_since else {})},
        metadata=metadata,
        description=_description(definition),
        pool="/".join(container.key_path),
        output_required=False,
    )
    def sync(context: dg.AssetExecutionContext, config: SyncConfig) -> Iterator[dg.Output[Any]]:
        yield from _materialize(context, config, definition, partitions_def)

    return sync


def _description(definition: ContainerDefinition) -> str:
    container = definition.container
    if definition.missing_since is not None:
        return f"**Missing.** {definition.missing}"
    what = f"{container.kind.value.capitalize()} `{container.schema}.{container.name}`, kept in step by {container.strategy.value}"
    by = f" on `{'`, `'.join(container.identifier.columns)}`" if container.identifier else ": the whole container each time"
    return f"{container.comment}\n\n{what}{by}." if container.comment else f"{what}{by}."


def _materialize(
    context: dg.AssetExecutionContext,
    config: SyncConfig,
    definition: ContainerDefinition,
    partitions_def: dg.PartitionsDefinition | None,
) -> Iterator[dg.Output[Any]]:
    scope: LakeScope = context.resources.lake
    container, settings, instance = definition.container, definition.settings, context.instance
    log = context.log.info
    # Everything entered here is given back when the run has ended, after its last event.
    scope.begin()
    try:
        lock = container_lock(dagster_home(), container, context.run.run_id, log, lambda run: report_killed(instance, run))
        scope.stack.enter_context(lock)
        reader = scope.stack.enter_context(PostgresReader(settings.address, container, timezone=settings.timezone))
        table = scope.table(*container.key_path)
        partitions = container_partitions(definition, partitions_def, instance)
        plan = make_plan(container, reader, table, partitions, _request(context, config), newest_watermark(instance, container))
        for warning in plan.warnings:
            context.log.warning(f"{container.label}: {warning}")
        if plan.action is Action.SKIP:
            log(f"{container.label}: {plan.reason}")
            return
        expected = reader.estimate(plan.windows, plan.include_nulls)
        log(f"{container.label}: {plan.reason}: {plan.asked}, about {expected:,} rows by {container.strategy.value}")
    except ContainerBusy as error:
        log(str(error))
        context.log_event(dg.AssetObservation(container_key(container), metadata={"sync/status": "skipped", "sync/message": str(error)}))
        return
    sync = ContainerSync(definition, plan, reader, table, partitions, context.run.run_id, log)
    yield dg.Output(sync.extractions(before_outside=lambda key: add_keys(instance, partitions_def, [key])))
    for warning in sync.result.warnings:
        context.log.warning(f"{container.label}: {warning}")


def report_killed(instance: dg.DagsterInstance, run_id: str) -> None:
    """A run whose process was killed stays "started" for ever otherwise: nobody else notices."""
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_failed(run, "Its process ended without a word (killed?). The sync after it heals what it left.")


def add_keys(instance: dg.DagsterInstance, partitions_def: dg.PartitionsDefinition | None, keys: Sequence[str]) -> None:
    """Adds those that a dynamic definition does not have yet; others need no adding. In batches: SQLite takes so many variables."""
    if not isinstance(partitions_def, dg.DynamicPartitionsDefinition) or partitions_def.name is None:
        return
    known = set(instance.get_dynamic_partitions(partitions_def.name))
    new = [key for key in keys if key not in known]
    for at in range(0, len(new), KEYS_A_BATCH):
        instance.add_dynamic_partitions(partitions_def.name, new[at : at + KEYS_A_BATCH])


def _request(context: dg.AssetExecutionContext, config: SyncConfig) -> Request:
    mode = Mode(config.mode.value)
    keys: tuple[str, ...] | None = None
    some = not config.reset_watermarks and not config.all_partitions
    if mode is Mode.REFRESH and some and (context.has_partition_key or context.has_partition_key_range):
        keys = tuple(context.partition_keys)
    return Request(mode, keys, config.reset_watermarks, config.allow_empty)
