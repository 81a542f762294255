"""Builds the schedules of single containers and of whole datastores.

A tick first plans each container without Spark; where there is nothing to do, it starts neither a run nor Spark, and the reason with its
numbers is shown as the reason of the skip.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.core.errors import SyncError
from incremental_assets.core.shown_text import counted
from incremental_assets.project.folders import current_project, location_name
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.automation import container_schedule_name, datastore_schedule_name, next_tick, schedules_of
from incremental_assets.runs.due import LookedUp, NotDue, at_work, launch_if_due
from incremental_assets.runs.launch import (
    RANGE_START,
    config_of,
    job_name,
)
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.looks import remember
from incremental_assets.runs.records.operation_log import recorded_together
from incremental_assets.runs.records.run_tags import CONTAINER_TAG
from incremental_assets.runs.side_by_side import ParallelPlanning

TICK_SECONDS = 40.0
"""How long a tick may plan: most of the 60 seconds that Dagster's daemon waits for it."""
Requests = Iterator[dg.RunRequest | dg.SkipReason]


def container_schedule(definition: ContainerDefinition, cron: str) -> dg.ScheduleDefinition:
    """The schedule of one container. It is switched on by default. A tick with nothing to do is skipped, with the reason."""
    name, label = job_name(definition), definition.container.label
    return _schedule(container_schedule_name(definition), name, [definition], cron, f"Syncs {label} when something has changed.")


def datastore_schedule(settings: Settings, definitions: Sequence[ContainerDefinition], cron: str) -> dg.ScheduleDefinition:
    """The schedule of all containers of a datastore, including those with a schedule of their own.

    A tick requests runs of those containers that have something to do.
    """
    return _schedule(
        datastore_schedule_name(settings),
        IMPLICIT_ASSET_JOB_NAME,  # the only asset job of Dagster whose assets may have different partitions definitions
        definitions,
        cron,
        f"Syncs those containers of {settings.name} in which something has changed.",
    )


def schedules_shown(definition: ContainerDefinition) -> dg.MarkdownMetadataValue | None:
    """The schedules that sync the container, for a person: name, cron, next tick and a link to the page in the UI; None if there are none.

    The tick is the next one after the code location was loaded, which the text says: Dagster asks for metadata only then.
    """
    crons = [cron for cron in (definition.container.options.schedule, definition.settings.schedule) if cron]
    now = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    location = quote(location_name(current_project()), safe="")
    lines = [
        f"[{name}](/locations/{location}/schedules/{name}): `{cron}` in UTC; the next tick after {now:%Y-%m-%d %H:%M}, when this was "
        f"loaded, is {next_tick(cron, now):%Y-%m-%d %H:%M}"
        for name, cron in zip(schedules_of(definition), crons, strict=True)
    ]
    return dg.MetadataValue.md("\n\n".join(lines)) if lines else None


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
        # A tick may find that watermarks have moved.
        with recorded_together():
            yield from tick.requests(context)

    return schedule


class _Tick:
    """Evaluates the ticks of one schedule.

    A failure must not be shown as a skip. So where a container cannot be planned, or not in time, its run is requested all the same: the
    run makes its own plan, and fails with the reason if it has to. Where the source cannot be reached for any container, the tick itself
    fails, so that there is one failure and not one for each container. Containers whose planning was not begun in time are the first of the
    next tick, so that none is left out for ever.
    """

    def __init__(self, schedule: str, definitions: Sequence[ContainerDefinition]) -> None:
        self._cursor = f"incremental_assets/tick/{schedule}"
        self._definitions = list(definitions)
        self._planning = ParallelPlanning()

    def requests(self, context: dg.ScheduleEvaluationContext) -> Requests:
        """Yields the run requests of one tick, or else one SkipReason. Raises Failure where the source cannot be reached."""
        instance = context.instance
        in_turn = self._in_turn(instance)
        known = LookedUp.now(instance, in_turn)
        seen = self._planning.plan(in_turn, lambda definition: launch_if_due(instance, definition, known), TICK_SECONDS)
        self._remember(instance, seen.left)
        remember(instance, {one.container.label: launch.look for one, launch in seen.done if isinstance(launch, NotDue)})
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
            # Only some are unreachable. One run is enough to show the failure: it fails with the reason if the source is still away.
            requests.append(_own_plan(context, seen.unreachable[0][0]))
        if seen.left:
            reasons.append(
                f"{len(seen.left):,} of {counted(len(self._definitions), 'container')} were not planned within {TICK_SECONDS:g} s; the "
                f"next tick begins with {seen.left[0].container.label}"
            )
            context.log.warning(reasons[-1])
        yield from requests
        if not requests:
            yield dg.SkipReason("\n".join(reasons))

    def _in_turn(self, instance: dg.DagsterInstance) -> list[ContainerDefinition]:
        """All containers, beginning with the first one that an earlier tick has left."""
        first = instance.daemon_cursor_storage.get_cursor_values({self._cursor}).get(self._cursor)
        at = next((n for n, definition in enumerate(self._definitions) if definition.container.label == first), 0)
        return self._definitions[at:] + self._definitions[:at]

    def _remember(self, instance: dg.DagsterInstance, left: Sequence[ContainerDefinition]) -> None:
        """Stores with which container the next tick begins: with the first that was left, else with the first of all."""
        storage = instance.daemon_cursor_storage
        first = left[0].container.label if left else ""
        if storage.get_cursor_values({self._cursor}).get(self._cursor, "") != first:
            storage.set_cursor_values({self._cursor: first})


def _own_plan(context: dg.ScheduleEvaluationContext, definition: ContainerDefinition) -> dg.RunRequest:
    """The request of a run without partitions, which makes its own plan of an incremental sync."""
    return _request(context, definition, config_of(definition, adapter_of(definition).due), {})


def _request(
    context: dg.ScheduleEvaluationContext, definition: ContainerDefinition, run_config: Mapping[str, Any], tags: Mapping[str, str]
) -> dg.RunRequest:
    """The run request of one container. ``tags``: of one run, as in ``RunLaunch.tags``."""
    label = definition.container.label
    # Dagster needs a key for each request of a tick that has several. A tick that is retried then starts no run twice.
    at = context.scheduled_execution_time.isoformat()
    return dg.RunRequest(
        run_key=f"{label} {tags.get(RANGE_START, '')} {at}",
        asset_selection=[container_key(definition.container)],
        run_config=run_config,
        tags={CONTAINER_TAG: label, **tags},
    )
