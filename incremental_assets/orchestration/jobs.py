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
from incremental_assets.model.partitions import IntegerPartitions, stretches
from incremental_assets.orchestration.assets import container_key, container_partitions
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
    """The plan of one container now, and the partition keys its run would have. Opens and closes one connection."""
    container, settings = definition.container, definition.settings
    partitions = container_partitions(definition, dagster_partitions(container, settings.timezone), instance)
    table = LakeTable(lake or lake_root(), *container.key_path)
    with PostgresReader(settings.address, container, timezone=settings.timezone) as reader:
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
    _add_keys(instance, dagster_partitions(container, definition.settings.timezone), keys)
    return partitions.with_keys(keys)


def _add_keys(instance: dg.DagsterInstance, partitions_def: dg.PartitionsDefinition | None, keys: Sequence[str]) -> None:
    assert isinstance(partitions_def, dg.DynamicPartitionsDefinition) and partitions_def.name is not None
    known = set(instance.get_dynamic_partitions(partitions_def.name))
    new = [key for key in keys if key not in known]
    for at in range(0, len(new), 1000):
        instance.add_dynamic_partitions(partitions_def.name, new[at : at + 1000])


def launch_of(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan, keys: Sequence[str]) -> Launch:
    """Run config and partition tags; new integer partitions are added first, as a run names only those that exist."""
    container = definition.container
    config: dict[str, Any] = {"mode": plan.request.mode.value}
    if plan.request.mode is Mode.REFRESH and plan.request.keys is None:
        config["all_partitions"] = True
    if plan.request.reset:
        config["reset_watermarks"] = True
    if plan.request.allow_empty:
        config["allow_empty"] = True
    run_config = {"ops": {op_name(definition): {"config": config}}}
    partitions_def = dagster_partitions(container, definition.settings.timezone)
    if partitions_def is None or not keys:
        return Launch(plan, run_config, [{}])
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        _add_keys(instance, partitions_def, keys)
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
