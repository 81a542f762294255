"""Builds the schedules of single containers and of whole datastores.

Belongs here: the decision of a tick whether to start runs. A tick first plans each container without Spark; where there is nothing to do,
it starts neither a run nor Spark, and the reason with its numbers is shown as the reason of the skip. Does not belong: making the plan
(``databases.plan``, ``files.plan``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._utils.schedules import get_next_cron_tick

from incremental_assets.catalog.definition import ContainerDefinition, Settings, is_named
from incremental_assets.core.errors import ContainerMissing, SyncError
from incremental_assets.core.looks import Look
from incremental_assets.core.names import encode_name
from incremental_assets.core.plan import Action, Plan
from incremental_assets.core.shown_text import counted
from incremental_assets.dagster.adapters import adapter_of
from incremental_assets.dagster.jobs import (
    RANGE_START,
    RunLaunch,
    config_of,
    job_name,
    keep_learned,
    launch_of,
)
from incremental_assets.dagster.locks import holder_of
from incremental_assets.dagster.looks import remember
from incremental_assets.dagster.operation_log import recorded_together
from incremental_assets.dagster.partitions import container_key
from incremental_assets.dagster.project import current_project, dagster_home, lake_root, location_name
from incremental_assets.dagster.run_tags import CONTAINER_TAG, is_sync, tag_of
from incremental_assets.dagster.runs.side_by_side import ParallelPlanning
from incremental_assets.dagster.watermarks import newest_watermarks
from incremental_assets.databases.slot_counts import SlotCounts

TICK_SECONDS = 40.0
"""How long a tick may plan: most of the 60 seconds that Dagster's daemon waits for it."""
_WAITING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
"""The statuses of a run that has not begun to execute, and so cannot hold the container's lock yet."""
Requests = Iterator[dg.RunRequest | dg.SkipReason]


def container_schedule(definition: ContainerDefinition, cron: str) -> dg.ScheduleDefinition:
    """The schedule of one container. It is switched on by default. A tick with nothing to do is skipped, with the reason."""
    name, label = job_name(definition), definition.container.label
    return _schedule(_of_container(definition), name, [definition], cron, f"Syncs {label} when something has changed.")


def datastore_schedule(settings: Settings, definitions: Sequence[ContainerDefinition], cron: str) -> dg.ScheduleDefinition:
    """The schedule of all containers of a datastore, including those with a schedule of their own.

    A tick requests runs of those containers that have something to do.
    """
    return _schedule(
        _of_datastore(settings),
        IMPLICIT_ASSET_JOB_NAME,  # the only asset job of Dagster whose assets may have different partitions definitions
        definitions,
        cron,
        f"Syncs those containers of {settings.name} in which something has changed.",
    )


def schedules_of(definition: ContainerDefinition) -> Sequence[str]:
    """The names of the schedules that sync the container: its own one, and its datastore's."""
    own = [_of_container(definition)] if definition.container.options.schedule else []
    return [*own, _of_datastore(definition.settings)] if definition.settings.schedule else own


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


@lru_cache
def next_tick(cron: str, now: datetime) -> datetime:
    """When a schedule is due next after ``now``, both in UTC."""
    # Of a moment that is a tick, the function gives this one.
    return get_next_cron_tick(cron, now + timedelta(seconds=1), "UTC").astimezone(timezone.utc)


def _of_container(definition: ContainerDefinition) -> str:
    return f"{job_name(definition)}_schedule"


def _of_datastore(settings: Settings) -> str:
    return f"sync_{encode_name(settings.name)}_schedule"


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


@dataclass(frozen=True)
class NotDue:
    """The result for a container of which no run is started. ``reason``: a sentence for people.

    ``plan``: the plan that skips. None: no plan was made, because a run syncs the container or is about to, or because it is missing.
    """

    reason: str
    plan: Plan | None = None

    @property
    def look(self) -> Look | None:
        """See ``Plan.look``; None, too, where no plan was made."""
        return self.plan.look if self.plan is not None else None


@dataclass(frozen=True)
class LookedUp:
    """What a tick looks up once for all of its containers. The parts of Dagster's storage are read before it plans the first one.

    ``waiting``: by label, the newest run that is about to sync the container. ``events``: see ``watermarks.newest_watermarks``. A run that
    ends or begins after that is not missed: the watermark in the Delta table is read with the plan, the lower of both counts, and a run
    that is requested in spite of another one waits for its lock and makes a plan of its own.

    ``counts``: of the logs of the sources, which the first plan of a datastore looks at for all of its containers.
    """

    waiting: Mapping[str, str]
    events: Mapping[str, int | None]
    counts: SlotCounts

    @classmethod
    def now(cls, instance: dg.DagsterInstance, definitions: Sequence[ContainerDefinition]) -> "LookedUp":
        runs = [(tag_of(run, CONTAINER_TAG), run) for run in instance.get_runs(dg.RunsFilter(statuses=_WAITING)) if is_sync(run)]
        waiting = {label: run.run_id for label, run in reversed(runs) if label is not None}
        events = newest_watermarks(instance, [definition.container for definition in definitions])
        return cls(waiting, events, SlotCounts(definitions, lake_root()))


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


def at_work(instance: dg.DagsterInstance, definition: ContainerDefinition, known: LookedUp | None = None) -> NotDue | None:
    """Returns which run syncs the container or is about to; None where none does."""
    container = definition.container
    label = container.label
    # The lock says which run syncs the container; the status of a run does not. A killed run stays "started", and keeps its slot in the
    # pool, until it is reported as failed. `holder_of` does that.
    holder = holder_of(dagster_home(), container, instance)
    if holder is not None:
        return NotDue(f"{label}: it is being synced by {holder}")
    if known is not None:
        waiting = known.waiting.get(label)
    else:
        runs = instance.get_runs(dg.RunsFilter(statuses=_WAITING, tags={CONTAINER_TAG: label}), limit=20)
        waiting = next((run.run_id for run in runs if is_sync(run)), None)
    return None if waiting is None else NotDue(f"{label}: run {waiting} is about to sync it")


def launch_if_due(instance: dg.DagsterInstance, definition: ContainerDefinition, known: LookedUp | None = None) -> RunLaunch | NotDue:
    """Plans the container. Returns the config and tags to launch its run with, or the reason why no run is started.

    ``known``: what the tick has looked up for all containers; None: it is looked up for this one. Raises SyncError where it cannot be
    planned, and ContainerMissing where it is missing although the YAML names it.
    """
    busy = at_work(instance, definition, known)
    if busy is not None:
        return busy
    try:
        adapter = adapter_of(definition)
        events, counts = (known.events, known.counts) if known is not None else (None, None)
        plan, keys = adapter.plan(instance, adapter.due, lake_root(), events, counts)
    except ContainerMissing as error:
        if is_named(definition):
            raise
        return NotDue(str(error))
    return launch_planned(instance, definition, plan, keys)


def launch_planned(instance: dg.DagsterInstance, definition: ContainerDefinition, plan: Plan, keys: Sequence[str]) -> RunLaunch | NotDue:
    """Returns the same as ``launch_if_due`` for a plan. ``keys``: the partition keys that its run would have."""
    if plan.action is Action.SKIP:
        keep_learned(definition, instance, plan)
        return NotDue(f"{definition.container.label}: {plan.reason}", plan)
    return launch_of(definition, instance, plan, keys)


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
