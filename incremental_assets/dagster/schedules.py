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
from incremental_assets.core.errors import ContainerMissing, SyncError
from incremental_assets.core.names import encode_name
from incremental_assets.core.plan import Action, Plan
from incremental_assets.dagster.adapters import adapter_of
from incremental_assets.dagster.jobs import (
    CONTAINER_TAG,
    RANGE_START,
    RunLaunch,
    config_of,
    is_sync,
    job_name,
    keep_learned,
    launch_of,
    plan_container,
)
from incremental_assets.dagster.locks import holder_of
from incremental_assets.dagster.partitions import container_key
from incremental_assets.dagster.project import dagster_home
from incremental_assets.dagster.runs.side_by_side import ParallelPlanning

TICK_SECONDS = 40.0
"""Of the minute that Dagster's daemon waits for a tick."""
_WAITING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
Requests = Iterator[dg.RunRequest | dg.SkipReason]


def container_schedule(definition: ContainerDefinition, cron: str) -> dg.ScheduleDefinition:
    """Runs by default; skips with the numbers when there is nothing to do."""
    name, label = job_name(definition), definition.container.label
    return _schedule(f"{name}_schedule", name, [definition], cron, f"Syncs {label} when something has changed.")


def datastore_schedule(settings: Settings, definitions: Sequence[ContainerDefinition], cron: str) -> dg.ScheduleDefinition:
    """All containers, those with a schedule of their own too: one run each for those with something to do."""
    return _schedule(
        f"sync_{encode_name(settings.name)}_schedule",
        IMPLICIT_ASSET_JOB_NAME,  # the only asset job whose assets may differ in their partitions
        definitions,
        cron,
        f"Syncs those containers of {settings.name} in which something has changed.",
    )


def _schedule(name: str, job: str, definitions: Sequence[ContainerDefinition], cron: str, description: str) -> dg.ScheduleDefinition:
    tick = _Tick(name, definitions)

    @dg.schedule(
        name=name,
        job_name=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Requests:
        yield from tick.requests(context)

    return schedule


@dataclass(frozen=True)
class NotDue:
    """Why no run is started; ``plan`` where it says so, and not that somebody else is at work."""

    reason: str
    plan: Plan | None = None


class _Tick:
    """The ticks of one schedule, in this process.

    Trouble must not look like having nothing to do: where a container cannot be planned, or not in time, its run is started all the same;
    its own plan decides, or fails with the reason. Where the source is away for all, the tick fails, once. What was not begun in time is
    first in the next tick, so that none is left out for ever.
    """

    def __init__(self, schedule: str, definitions: Sequence[ContainerDefinition]) -> None:
        self._cursor = f"incremental_assets/tick/{schedule}"
        self._definitions = list(definitions)
        self._planning = ParallelPlanning()

    def requests(self, context: dg.ScheduleEvaluationContext) -> Requests:
        instance = context.instance
        seen = self._planning.plan(self._in_turn(instance), lambda definition: launch_if_due(instance, definition), TICK_SECONDS)
        self._remember(instance, seen.left)
        reasons: list[str] = []
        requests: list[dg.RunRequest] = []
        for definition, launch in seen.done:
            if isinstance(launch, NotDue):
                reasons.append(launch.reason)
            else:
                requests += [_request(context, definition, launch.run_config, tags) for tags in launch.tags]
        for definition, error in seen.failed:
            context.log.error(f"{definition.container.label}: {error}" if not isinstance(error, SyncError) else str(error))
            requests.append(_own_plan(context, definition))
        for definition in seen.late:
            busy = at_work(instance, definition)
            if busy is not None:
                reasons.append(busy.reason)
                continue
            context.log.warning(
                f"{definition.container.label}: it could not be planned within {TICK_SECONDS:g} s. A run of it is started, which plans it "
                f"without that limit."
            )
            requests.append(_own_plan(context, definition))
        if seen.unreachable:
            named = ", ".join(definition.container.label for definition, _ in seen.unreachable)
            if not requests:
                raise dg.Failure(str(seen.unreachable[0][1]))
            context.log.error(f"{named}: {seen.unreachable[0][1]}")
            requests.append(_own_plan(context, seen.unreachable[0][0]))  # which fails with the reason, where it is still so
        if seen.left:
            reasons.append(
                f"{len(seen.left):,} of {len(self._definitions):,} containers were not planned within {TICK_SECONDS:g} s; the next tick "
                f"begins with {seen.left[0].container.label}"
            )
            context.log.warning(reasons[-1])
        yield from requests
        if not requests:
            yield dg.SkipReason("\n".join(reasons))

    def _in_turn(self, instance: dg.DagsterInstance) -> list[ContainerDefinition]:
        """All of them, from the one that the last tick did not come to."""
        first = instance.daemon_cursor_storage.get_cursor_values({self._cursor}).get(self._cursor)
        at = next((n for n, definition in enumerate(self._definitions) if definition.container.label == first), 0)
        return self._definitions[at:] + self._definitions[:at]

    def _remember(self, instance: dg.DagsterInstance, left: Sequence[ContainerDefinition]) -> None:
        if left:
            instance.daemon_cursor_storage.set_cursor_values({self._cursor: left[0].container.label})


def _own_plan(context: dg.ScheduleEvaluationContext, definition: ContainerDefinition) -> dg.RunRequest:
    """A run that plans by itself what is due."""
    return _request(context, definition, config_of(definition, adapter_of(definition).due), {})


def at_work(instance: dg.DagsterInstance, definition: ContainerDefinition) -> NotDue | None:
    """Who syncs the container, or is about to; None where nobody does."""
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
    return None


def launch_if_due(instance: dg.DagsterInstance, definition: ContainerDefinition) -> RunLaunch | NotDue:
    """What a run of the container would be started with now, or why none is. Raises SyncError where it cannot be planned."""
    label = definition.container.label
    busy = at_work(instance, definition)
    if busy is not None:
        return busy
    try:
        plan, keys = plan_container(definition, instance, adapter_of(definition).due)
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
