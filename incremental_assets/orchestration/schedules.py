"""Schedules: of one container, and of all containers of a datastore.

Belongs here: what a tick decides. A tick plans in plain SQL first and says in numbers why there is nothing to do; it starts neither a run
nor Spark then. Does not belong: the plan itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME

from incremental_assets.catalog.definition import ContainerDefinition, Settings, is_named
from incremental_assets.model.errors import ContainerMissing, SourceUnreachable, SyncError
from incremental_assets.model.names import encode_name
from incremental_assets.orchestration.jobs import (
    CONTAINER_TAG,
    RANGE_START,
    Launch,
    config_of,
    is_sync,
    job_name,
    keep_learned,
    launch_of,
    plan_container,
)
from incremental_assets.orchestration.locks import holder_of
from incremental_assets.orchestration.mover import mover_of
from incremental_assets.orchestration.partition_keys import container_key
from incremental_assets.orchestration.plan import Action, Plan
from incremental_assets.orchestration.project import dagster_home

_WAITING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
Requests = Iterator[dg.RunRequest | dg.SkipReason]


def container_schedule(definition: ContainerDefinition, cron: str) -> dg.ScheduleDefinition:
    """Runs by default; skips with the numbers when there is nothing to do."""
    name = job_name(definition)

    @dg.schedule(
        name=f"{name}_schedule",
        job_name=name,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Syncs {definition.container.label} when something has changed.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Requests:
        yield from _requests(context, [definition])

    return schedule


def datastore_schedule(settings: Settings, definitions: Sequence[ContainerDefinition], cron: str) -> dg.ScheduleDefinition:
    """All containers, those with a schedule of their own too: one run each for those with something to do."""

    @dg.schedule(
        name=f"sync_{encode_name(settings.name)}_schedule",
        job_name=IMPLICIT_ASSET_JOB_NAME,  # the only asset job whose assets may differ in their partitions
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Syncs those containers of {settings.name} in which something has changed.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Requests:
        yield from _requests(context, definitions)

    return schedule


def _requests(context: dg.ScheduleEvaluationContext, definitions: Sequence[ContainerDefinition]) -> Requests:
    """Trouble must not look like having nothing to do: where a container cannot be planned its run is started all the same, and fails with
    the reason. Where the source is away, the tick fails, once."""
    reasons: list[str] = []
    for definition in definitions:
        try:
            found = _tick(context, definition)
        except SourceUnreachable as error:
            raise dg.Failure(str(error)) from error
        except SyncError as error:
            context.log.error(str(error))
            yield _request(context, definition, config_of(definition, mover_of(definition).due), {})
            continue
        if isinstance(found, str):
            reasons.append(found)
        else:
            yield from found
    if len(reasons) == len(definitions):
        yield dg.SkipReason("\n".join(reasons))


def _tick(context: dg.ScheduleEvaluationContext, definition: ContainerDefinition) -> str | list[dg.RunRequest]:
    """Run requests, or the reason for none. Raises SyncError where the container cannot be planned."""
    launch = launch_if_due(context.instance, definition)
    if isinstance(launch, NotDue):
        return launch.reason
    return [_request(context, definition, launch.run_config, tags) for tags in launch.tags]


@dataclass(frozen=True)
class NotDue:
    """Why no run is started; ``plan`` where it says so, and not that somebody else is at work."""

    reason: str
    plan: Plan | None = None


def launch_if_due(instance: dg.DagsterInstance, definition: ContainerDefinition) -> Launch | NotDue:
    """What a run of the container would be started with now, or why none is. Raises SyncError where it cannot be planned."""
    container = definition.container
    label = container.label
    # First the lock, not the status of a run: a killed one stays "started", and its pool stays taken, until somebody says so.
    holder = holder_of(dagster_home(), container, instance)
    if holder is not None:
        return NotDue(f"{label}: it is being synced by {holder}")
    runs = instance.get_runs(dg.RunsFilter(statuses=_WAITING, tags={CONTAINER_TAG: label}), limit=20)
    waiting = [run for run in runs if is_sync(run)]
    if waiting:
        return NotDue(f"{label}: run {waiting[0].run_id} is about to sync it")
    try:
        plan, keys = plan_container(definition, instance, mover_of(definition).due)
    except ContainerMissing as error:
        if is_named(definition):
            raise
        return NotDue(str(error))
    if plan.action is Action.SKIP:
        keep_learned(definition, instance, plan)
        return NotDue(f"{label}: {plan.reason}", plan)
    return launch_of(definition, instance, plan, keys)


def _request(
    context: dg.ScheduleEvaluationContext, definition: ContainerDefinition, run_config: Mapping[str, Any], tags: Mapping[str, str]
) -> dg.RunRequest:
    label = definition.container.label
    at = context.scheduled_execution_time.isoformat()  # a tick of several requests must name each, so that a retried one starts none twice
    return dg.RunRequest(
        run_key=f"{label} {tags.get(RANGE_START, '')} {at}",
        asset_selection=[container_key(definition.container)],
        run_config=run_config,
        tags={CONTAINER_TAG: label, **tags},
    )
