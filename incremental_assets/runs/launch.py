"""Builds the job of a container, and the config and tags with which its runs are launched."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from incremental_assets.catalog.definition import ContainerDefinition, max_runtime_seconds
from incremental_assets.core.capture import lsn_text
from incremental_assets.core.errors import ContainerBusy
from incremental_assets.core.partitions import contiguous_ranges
from incremental_assets.core.plan import Mode, Plan, Request
from incremental_assets.files.definition import FileDefinition
from incremental_assets.project.folders import dagster_home, lake_root
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.locks import container_lock
from incremental_assets.runs.partitions import RANGE_END, RANGE_START, add_keys, partitions_definition

log = logging.getLogger(__name__)
JOBS_OF_A_CONTAINER = ("sync", "scan", "profile", "audit")  # those that the YAML gives a schedule or sensor of their own
JOBS_OF_A_DATASTORE = ("sync", "scan", "profile", "sync_profile_scan", "audit", "maintain", "catalog")
"""What the names of the jobs begin with, before ``_`` and the name of their container (``op_name``) or of their datastore."""


def has_own_job(definition: ContainerDefinition) -> bool:
    """Whether a schedule or sensor of the container's own syncs it, and so a job of its own."""
    return definition.container.options.schedule is not None or isinstance(definition, FileDefinition)


def job_name(definition: ContainerDefinition) -> str:
    """The name of the container's own job. It has a prefix because Dagster has one namespace for ops and jobs (see ``op_name``)."""
    return f"sync_{op_name(definition)}"


def launched_job(definition: ContainerDefinition) -> str:
    """The name of the job that syncs the container, whoever launches it: its own one, or else Dagster's job of all assets, with the
    container's asset selected."""
    return job_name(definition) if has_own_job(definition) else IMPLICIT_ASSET_JOB_NAME


def op_name(definition: ContainerDefinition) -> str:
    """The name of the op behind the container's asset, which Dagster derives from the asset key. Run configs name it."""
    return "__".join(definition.container.key_path)


@dataclass(frozen=True)
class RunLaunch:
    """The config and tags with which the runs of a plan are launched.

    ``tags``: one mapping for each run. A refresh of several contiguous ranges of partitions has a run for each range, as the tags of a run
    name one range only; all others have one run. ``run_config``: the same for all of them.
    """

    plan: Plan
    run_config: Mapping[str, Any]
    tags: Sequence[Mapping[str, str]]


def keep_learned(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan) -> int | None:
    """Stores the state that a skipping plan has found out (``Plan.confirmed``). Returns the watermark that counts afterwards.

    Where another run holds the container, nothing is stored, and nobody waits: that run finds out the same for itself.
    """
    if plan.confirmed is None:
        return plan.watermark
    lake = lake_root()
    with contextlib.suppress(ContainerBusy):
        with container_lock(dagster_home(), definition.container, "of a plan", log.debug, instance, wait=0, lake=lake):
            return adapter_of(definition).keep_learned(instance, plan, lake)
    return plan.watermark


def config_of(definition: ContainerDefinition, request: Request) -> Mapping[str, Any]:
    """The run config that passes the request on to the container's asset (``assets.SyncConfig``). The partition keys are not part of it."""
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
    if request.sweep:
        config["sweep"] = True
    if request.changed_at is not None:
        config["changed_at"] = lsn_text(request.changed_at)
    if request.audit is not None:
        config["audit"] = True
        if request.audit.keys is not None:
            config["audit_partitions"] = list(request.audit.keys)
        if request.audit.start is not None:
            config["audit_start"] = request.audit.start
    return {"ops": {op_name(definition): {"config": config}}}


def launch_of(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan, keys: Sequence[str]) -> RunLaunch:
    """The config and tags of the runs of a plan that does not skip. ``keys``: the partition keys, as ``SourceAdapter.plan`` returns them.

    New dynamic partitions (integers, files) are added to Dagster first: it refuses a run whose tags name a partition that does not exist.
    """
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
    # A sync that is not a refresh of given partitions is one run, whichever partitions it writes. Of several ranges its tags name the last
    # one; the IO manager logs the events of all other partitions that it writes.
    if plan.request.keys is None:
        runs = runs[-1:]
    return RunLaunch(plan, run_config, [{RANGE_START: first, RANGE_END: last, **limit} for first, last in runs])
