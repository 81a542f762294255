"""A container's job, and with what a run of it is launched: its config and partitions.

Belongs here: from a plan to a run's config and tags. Does not belong: the plan itself (``planning``), when it runs (``schedules``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from incremental_assets.catalog.datastore import ContainerDefinition
from incremental_assets.lake.partitioning import dagster_partitions
from incremental_assets.lake.table import LakeTable
from incremental_assets.model.errors import ContainerMissing, SourceError
from incremental_assets.model.partitions import IntegerPartitions, stretches
from incremental_assets.orchestration.assets import add_keys, container_key, container_partitions
from incremental_assets.orchestration.planning import Action, Mode, Plan, Request, integer_keys, make_plan, run_keys
from incremental_assets.orchestration.project import lake_root
from incremental_assets.orchestration.watermarks import newest_watermark
from incremental_assets.sources.postgres.reader import PostgresReader

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
CONTAINER_TAG = "incremental_assets/container"


def job_name(definition: ContainerDefinition) -> str:
    """Not the key alone: that is the name of the asset's op, and ops and jobs share their names."""
    return f"sync_{op_name(definition)}"


def op_name(definition: ContainerDefinition) -> str:
    """Of the container's asset, as Dagster makes it from the key."""
    return "__".join(definition.container.key_path)


@dataclass(frozen=True)
class Launch:
    """What a run of a plan is started with: one for each stretch of neighbouring partitions."""

    plan: Plan
    run_config: Mapping[str, Any]
    tags: Sequence[Mapping[str, str]]


def plan_container(
    definition: ContainerDefinition, instance: dg.DagsterInstance, request: Request, lake: str | None = None
) -> tuple[Plan, list[str]]:
    """The plan of one container now, and the partition keys its run would have. Opens and closes one connection.

    Raises ContainerMissing where it is gone from the source.
    """
    container, settings = definition.container, definition.settings
    partitions = container_partitions(definition, dagster_partitions(container, settings.timezone), instance)
    table = LakeTable(lake or lake_root(), *container.key_path)
    with PostgresReader(settings.address, container, timezone=settings.timezone) as reader:
        if definition.missing_since is not None and reader.table() is None:
            raise ContainerMissing(definition.missing)
        if container.identifier is not None and definition.table.span is None:
            raise SourceError(
                f"{container.label}: what its {'/'.join(container.identifier.columns)} begins with is not known yet, and its partitions "
                f"follow from that. Run: incremental-assets catalog {container.datastore}"
            )
        if isinstance(partitions, IntegerPartitions) and not partitions.known and table.head() is not None:
            partitions = _listed_again(definition, instance, reader, partitions)
        plan = make_plan(container, reader, table, partitions, request, newest_watermark(instance, container))
        keys = run_keys(plan, reader, partitions) if plan.action is not Action.SKIP else []
    return plan, keys


def _listed_again(
    definition: ContainerDefinition, instance: dg.DagsterInstance, reader: PostgresReader, partitions: IntegerPartitions
) -> IntegerPartitions:
    """The integer partitions of a table whose list was lost with its DAGSTER_HOME."""
    container = definition.container
    assert container.identifier is not None and container.cut is not None
    keys = integer_keys(reader, partitions.width, container.cut.batch, None, (container.identifier.ground,))
    add_keys(instance, dagster_partitions(container, definition.settings.timezone), keys)
    return partitions.with_keys(keys)


def config_of(definition: ContainerDefinition, request: Request) -> Mapping[str, Any]:
    """The run config that asks a container's asset for what was requested."""
    config: dict[str, Any] = {"mode": request.mode.value}
    if request.mode is Mode.REFRESH and request.keys is None:
        config["all_partitions"] = True
    if request.reset:
        config["reset_watermarks"] = True
    if request.allow_empty:
        config["allow_empty"] = True
    return {"ops": {op_name(definition): {"config": config}}}


def launch_of(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan, keys: Sequence[str]) -> Launch:
    """Run config and partition tags; new integer partitions are added first, as a run names only those that exist."""
    container = definition.container
    run_config = config_of(definition, plan.request)
    partitions_def = dagster_partitions(container, definition.settings.timezone)
    if partitions_def is None or not keys:
        return Launch(plan, run_config, [{}])
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        add_keys(instance, partitions_def, keys)
        assert partitions_def.name is not None
        ordered: Sequence[str] = instance.get_dynamic_partitions(partitions_def.name)
        runs = stretches(keys, ordered)
    else:
        runs = [(keys[0], keys[-1])] if plan.request.keys is None else stretches(keys, partitions_def.get_partition_keys())
    if plan.request.keys is None:  # one sync is one run; rows that land elsewhere get their events all the same
        runs = runs[-1:]
    return Launch(plan, run_config, [{RANGE_START: first, RANGE_END: last} for first, last in runs])


def container_job(definition: ContainerDefinition) -> Any:
    return dg.define_asset_job(
        job_name(definition),
        selection=dg.AssetSelection.assets(container_key(definition.container)),
        description=f"Sync of {definition.container.label}.",
        tags={CONTAINER_TAG: definition.container.label},
    )
