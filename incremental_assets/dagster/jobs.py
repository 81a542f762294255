"""The job of one container, and what the jobs over all containers of a datastore have in common: their reports, and their schedules."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from incremental_assets.catalog.definition import ContainerDefinition, Settings, max_runtime_seconds
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.runs.dagster_internals.one_asset_job import OneAssetJob, one_asset_job
from incremental_assets.runs.launch import job_name
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.operation_log import recorded_together
from incremental_assets.runs.records.run_tags import CONTAINER_TAG


def logged(context: dg.OpExecutionContext, lines: Iterable[dict[str, Any]], bad: Collection[str]) -> list[dict[str, Any]]:
    """Logs the record of each container as it comes, as an error if its status is one of ``bad``. Returns all of them."""
    found: list[dict[str, Any]] = []
    with recorded_together():
        for line in lines:
            found.append(line)
            log = context.log.error if line["status"] in bad else context.log.info
            log(f"{line['container']}: {line['status']}: {line['message']}" + (f" (run {line['run_id']})" if line["run_id"] else ""))
    return found


def named(settings: Settings, definitions: Sequence[ContainerDefinition], name: str) -> ContainerDefinition:
    """The container of this name, which the config of such a job asks for. Raises ConfigurationError where there is none.

    ``definitions``: those that the job is about.
    """
    found = next((one for one in definitions if name in (one.container.name, one.container.label)), None)
    if found is None:
        names = ", ".join(one.container.name for one in definitions) or "none"
        raise ConfigurationError(f"{settings.name} has no container {name!r} for this job. Those that it has: {names}.")
    return found


def counts_by_status(lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of containers of each status, as metadata of the job's output."""
    statuses = [line["status"] for line in lines]
    return {f"containers_{status}": statuses.count(status) for status in dict.fromkeys(statuses)}


def regular_schedule(job: str, cron: str, run_config: Mapping[str, Any] | None = None) -> dg.ScheduleDefinition:
    """The schedule that starts a job each time, in UTC. It is switched on by default. ``job``: its name."""
    return dg.ScheduleDefinition(
        name=f"{job}_schedule",
        job_name=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        run_config=run_config,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def container_job(definition: ContainerDefinition) -> OneAssetJob:
    """The container's own job (``has_own_job``). *Materialize* in the UI does not launch it."""
    return one_asset_job(
        job_name(definition),
        container_key(definition.container),
        description=f"Sync of {definition.container.label}.",
        tags={CONTAINER_TAG: definition.container.label, MAX_RUNTIME_SECONDS_TAG: str(max_runtime_seconds(definition))},
    )
