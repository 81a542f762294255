"""A container's job, and with what a run of it is launched: its config and partitions.

Belongs here: from a plan to a run's config and tags. Does not belong: the plan itself (``planning``), when it runs (``schedules``).
"""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from incremental_assets.catalog.definition import ContainerDefinition, max_runtime_seconds
from incremental_assets.core.errors import ContainerBusy
from incremental_assets.core.partitions import contiguous_ranges
from incremental_assets.core.plan import Mode, Plan, Request
from incremental_assets.dagster.adapters import adapter_of
from incremental_assets.dagster.locks import container_lock
from incremental_assets.dagster.partitions import RANGE_END, RANGE_START, add_keys, container_key, partitions_definition
from incremental_assets.dagster.project import dagster_home, lake_root

log = logging.getLogger(__name__)
CONTAINER_TAG, OPERATION_TAG = "incremental_assets/container", "incremental_assets/operation"
DATASTORE_TAG = "incremental_assets/datastore"


def job_name(definition: ContainerDefinition) -> str:
    """Not the key alone: that is the name of the asset's op, and ops and jobs share their names."""
    return f"sync_{op_name(definition)}"


def op_name(definition: ContainerDefinition) -> str:
    """Of the container's asset, as Dagster makes it from the key."""
    return "__".join(definition.container.key_path)


def is_sync(run: dg.DagsterRun) -> bool:
    """And no scan or profile, whose runs name the container too."""
    return run.tags.get(OPERATION_TAG, "sync") == "sync"


@dataclass(frozen=True)
class RunLaunch:
    """What a run of a plan is started with: one for each stretch of neighbouring partitions."""

    plan: Plan
    run_config: Mapping[str, Any]
    tags: Sequence[Mapping[str, str]]


def plan_container(
    definition: ContainerDefinition, instance: dg.DagsterInstance, request: Request, lake: str | None = None
) -> tuple[Plan, list[str]]:
    """The plan of one container now, and the partition keys its run would have. Raises SyncError."""
    return adapter_of(definition).plan(instance, request, lake or lake_root())


def keep_learned(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan) -> int | None:
    """Keeps what a plan that skips has found out, unless somebody else has the container: then it is theirs to find out.

    The watermark that counts from now on.
    """
    if plan.confirmed is None:
        return plan.watermark
    lake = lake_root()
    with contextlib.suppress(ContainerBusy):
        with container_lock(dagster_home(), definition.container, "of a plan", log.debug, instance, wait=0, lake=lake):
            return adapter_of(definition).keep_learned(instance, plan, lake)
    return plan.watermark


def config_of(definition: ContainerDefinition, request: Request) -> Mapping[str, Any]:
    """The run config that asks a container's asset for what was requested."""
    config: dict[str, Any] = {"mode": request.mode.value}
    if request.mode is Mode.REFRESH and request.keys is None:
        config["all_partitions"] = True
    if request.reset:
        config["reset_watermarks"] = True
    if request.allow_empty:
        config["allow_empty"] = True
    if request.max_files is not None:
        config["most_files"] = request.max_files
    if request.again_before is not None:
        config["again_before"] = request.again_before
    return {"ops": {op_name(definition): {"config": config}}}


def launch_of(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan, keys: Sequence[str]) -> RunLaunch:
    """Run config and partition tags; new integer partitions are added first, as a run names only those that exist."""
    run_config = config_of(definition, plan.request)
    partitions_def = partitions_definition(definition)
    limit = {MAX_RUNTIME_SECONDS_TAG: str(max_runtime_seconds(definition))}
    if partitions_def is None or not keys:
        return RunLaunch(plan, run_config, [limit])
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        add_keys(instance, partitions_def, keys)
        assert partitions_def.name is not None
        ordered: Sequence[str] = instance.get_dynamic_partitions(partitions_def.name)
        runs = contiguous_ranges(keys, ordered)
    else:
        runs = [(keys[0], keys[-1])] if plan.request.keys is None else contiguous_ranges(keys, partitions_def.get_partition_keys())
    if plan.request.keys is None:  # one sync is one run; rows that land elsewhere get their events all the same
        runs = runs[-1:]
    return RunLaunch(plan, run_config, [{RANGE_START: first, RANGE_END: last, **limit} for first, last in runs])


def container_job(definition: ContainerDefinition) -> Any:
    return dg.define_asset_job(
        job_name(definition),
        selection=dg.AssetSelection.assets(container_key(definition.container)),
        description=f"Sync of {definition.container.label}.",
        tags={CONTAINER_TAG: definition.container.label, MAX_RUNTIME_SECONDS_TAG: str(max_runtime_seconds(definition))},
    )
