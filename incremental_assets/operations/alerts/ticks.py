"""What is wrong with the schedules and sensors, by what Dagster's daemon has recorded of their ticks and runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import dagster as dg
from dagster._core.definitions.sensor_definition import DEFAULT_SENSOR_DAEMON_INTERVAL, SensorType
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorTick,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickStatus,
)
from dagster._core.storage.tags import SCHEDULE_NAME_TAG, SENSOR_NAME_TAG
from dagster._utils.schedules import schedule_execution_time_iterator

from incremental_assets.core.duration import for_people
from incremental_assets.operations.alerts.problems import Cause, Kind, Problem, Severity, as_line, moment
from incremental_assets.runs.records.event_log import failure_of, reason_of
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, is_sync, tag_of

_RUNS = 20
"""How many of a schedule's newest runs are looked at."""
_NOT_BEGUN = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
_AUTOMATION = (SensorType.AUTOMATION, SensorType.AUTO_MATERIALIZE)
"""Sensors that another part of the daemon evaluates."""
_START = "Start it: incremental-assets dev, or the service that runs dagster-daemon."
_SEE_DAEMON = "Is Dagster's daemon at work, and does the code location load? The page Deployment of Dagster's UI says both."


@dataclass(frozen=True)
class Expected:
    """The schedules and sensors of the code location.

    ``schedules``: by name, the cron expressions and their time zone. ``sensors``: by name, the seconds between two ticks.
    """

    schedules: Mapping[str, tuple[str | Sequence[str], str]]
    sensors: Mapping[str, int]

    @classmethod
    def of(cls, repository: dg.RepositoryDefinition, but: str | None = None) -> "Expected":
        """``but``: a sensor that is left out, as it is the one that looks."""
        sensors = [one for one in repository.sensor_defs if one.sensor_type not in _AUTOMATION and one.name != but]
        return cls(
            {one.name: (one.cron_schedule, one.execution_timezone or "UTC") for one in repository.schedule_defs},
            {one.name: one.minimum_interval_seconds or DEFAULT_SENSOR_DAEMON_INTERVAL for one in sensors},
        )

    def overdue_keys(self) -> frozenset[str]:
        """The keys of all that may be overdue."""
        return frozenset(_overdue(name) for name in (*self.schedules, *self.sensors))


@dataclass
class FoundOfTicks:
    """``problems``: by their keys. ``undecided``: the keys of those of which nothing can be said now, as a run is at work. ``stopped``: the
    schedules and sensors that start no sync. ``waiting``: the containers of which a problem is that their runs have not begun."""

    problems: dict[str, Problem] = field(default_factory=dict[str, Problem])
    undecided: set[str] = field(default_factory=set[str])
    stopped: set[str] = field(default_factory=set[str])
    waiting: set[str] = field(default_factory=set[str])

    def halts(self, label: str, automation: Sequence[str]) -> bool:
        """Whether a container is not synced because of one of the problems. ``automation``: the schedules and the sensor that sync it.

        A run that waits is of one container, and says nothing of the others that its schedule syncs.
        """
        return label in self.waiting or (bool(automation) and self.stopped.issuperset(automation))


def tick_problems(instance: dg.DagsterInstance, expected: Expected, overdue_seconds: int | None, now: float) -> FoundOfTicks:
    """What is wrong with schedules and sensors. What is switched off is no problem.

    ``overdue_seconds``: by how much something may be late; None: any time will do. ``now``: in seconds since 1970 UTC.
    """
    found = FoundOfTicks()
    waiting = _waiting(instance, now - overdue_seconds) if overdue_seconds is not None else {}
    for state, tick in _switched_on(instance, expected):
        name = state.instigator_name
        if tick is not None and tick.status is TickStatus.FAILURE:
            found.problems[_tick(name)] = _failed_tick(instance, state, tick)
            found.stopped.add(name)
        elif tick is not None and tick.status is TickStatus.STARTED:  # it is not known yet how it ends
            found.undecided.add(_tick(name))
        if overdue_seconds is None:
            continue
        problem, at_work = _late_tick(state, tick, expected, overdue_seconds, now), False
        if problem is not None:
            found.stopped.add(name)
        elif name in waiting:
            problem = _not_begun(name, waiting[name])
            syncs = [one.dagster_run for one in waiting[name] if is_sync(one.dagster_run)]
            found.waiting |= {label for run in syncs if (label := tag_of(run, CONTAINER_TAG)) is not None}
        elif name in expected.schedules:
            problem, at_work = _failed_runs(instance, name, _due(expected, name, now - overdue_seconds))
        if problem is not None:
            found.problems[_overdue(name)] = problem
        elif at_work:
            found.undecided.add(_overdue(name))
    return found


def daemon_problem(instance: dg.DagsterInstance, quiet_seconds: int, now: float) -> Problem | None:
    """What is wrong with Dagster's daemon; None if nothing is. Only who looks from outside of the daemon can see that it is down.

    ``quiet_seconds``: for how long it may give no sign of life.
    """
    signs = [one.timestamp for one in instance.get_daemon_heartbeats().values()]
    if not signs:
        return Problem(
            Severity.FAILURE, "Dagster's daemon has never run in this project: no schedule, sensor or alert is evaluated", _START
        )
    quiet = now - max(signs)
    if quiet <= quiet_seconds:
        return None
    text = f"Dagster's daemon has given no sign of life for {for_people(quiet)} (since {moment(max(signs))})"
    return Problem(Severity.FAILURE, f"{text}: no schedule, sensor or alert is evaluated", _START)


def _overdue(name: str) -> str:
    return f"overdue {name}"


def _tick(name: str) -> str:
    return f"tick {name}"


def name_in(key: str) -> str | None:
    """The schedule or sensor that the key of a problem is about; None if it is about something else."""
    name = key.partition(" ")[2]
    return name if key in (_overdue(name), _tick(name)) else None


def _failed_tick(instance: dg.DagsterInstance, state: InstigatorState, tick: InstigatorTick) -> Problem:
    name, why = state.instigator_name, ""
    if tick.error is not None:
        chosen, text = reason_of(tick.error)
        why = as_line(text or chosen.message)
    good = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1, statuses=[TickStatus.SUCCESS, TickStatus.SKIPPED])
    last = f"; the last one that was well was {moment(good[0].timestamp)}" if good else ""
    return Problem(Severity.FAILURE, f"{name}: its last tick has failed: {why.rstrip('.')}{last}", cause=Cause(Kind.FAILING, name, why))


def _switched_on(instance: dg.DagsterInstance, expected: Expected) -> Iterator[tuple[InstigatorState, InstigatorTick | None]]:
    """The schedules and sensors of the code location that are switched on, each with its newest tick.

    A code location that was renamed, or has lost a schedule, has left states in the instance that no daemon looks at any more. Of several
    states of one name the one with the newest tick counts.
    """
    newest: dict[str, tuple[float, InstigatorState, InstigatorTick | None]] = {}
    for state in instance.all_instigator_state():
        name = state.instigator_name
        if name not in expected.schedules and name not in expected.sensors:
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        tick = ticks[0] if ticks else None
        at = max(_looked_at(state), tick.timestamp if tick is not None else 0.0)
        if name not in newest or newest[name][0] < at:
            newest[name] = (at, state, tick)
    for _, state, tick in newest.values():
        if state.status in (InstigatorStatus.RUNNING, InstigatorStatus.DECLARED_IN_CODE):
            yield state, tick


def _looked_at(state: InstigatorState) -> float:
    """When the daemon has looked at it last, as its state says, or when it was switched on."""
    data = state.instigator_data
    if isinstance(data, ScheduleInstigatorData):
        return max(data.start_timestamp or 0.0, data.last_iteration_timestamp or 0.0)
    if isinstance(data, SensorInstigatorData):
        return max(data.last_sensor_start_timestamp or 0.0, data.last_tick_start_timestamp or 0.0, data.last_tick_timestamp or 0.0)
    return 0.0


def _late_tick(state: InstigatorState, tick: InstigatorTick | None, expected: Expected, overdue_seconds: int, now: float) -> Problem | None:
    """A tick that was not evaluated in time, or that has not ended."""
    name = state.instigator_name
    if tick is not None and tick.status is TickStatus.STARTED and tick.timestamp < now - overdue_seconds:
        return Problem(Severity.FAILURE, f"{name}: its tick of {moment(tick.timestamp)} has not ended", _SEE_DAEMON)
    looked = max(_looked_at(state), tick.timestamp if tick is not None else 0.0)
    last = f"; the last tick was {moment(tick.timestamp)}" if tick is not None else "; it has had no tick yet"
    if name in expected.sensors:
        every = expected.sensors[name]
        late = now - looked - every
        text = f"{name}: the sensor is evaluated every {for_people(every)}, and is overdue by {for_people(late)}{last}"
        return Problem(Severity.FAILURE, text, _SEE_DAEMON) if late > overdue_seconds else None
    due = _due(expected, name, now - overdue_seconds)
    text = f"{name}: its tick of {moment(due)} was not evaluated{last}"
    return Problem(Severity.FAILURE, text, _SEE_DAEMON) if looked < due else None


def _due(expected: Expected, name: str, before: float) -> float:
    """When the schedule was due the last time before a moment, by its cron expression."""
    cron, zone = expected.schedules[name]
    return next(schedule_execution_time_iterator(before, cron, zone, ascending=False)).timestamp()


def _waiting(instance: dg.DagsterInstance, before: float) -> Mapping[str, Sequence[dg.RunRecord]]:
    """By the names of schedules and sensors: runs of theirs that were launched before a moment, and have not begun."""
    asked = dg.RunsFilter(statuses=_NOT_BEGUN, created_before=datetime.fromtimestamp(before, timezone.utc))
    found: dict[str, list[dg.RunRecord]] = {}
    for record in instance.get_run_records(asked, limit=1000):
        tags = record.dagster_run.tags
        name = tags.get(SCHEDULE_NAME_TAG) or tags.get(SENSOR_NAME_TAG)
        if name is not None:
            found.setdefault(name, []).append(record)
    return found


def _not_begun(name: str, records: Sequence[dg.RunRecord]) -> Problem:
    """That these runs of a schedule or sensor have not begun."""
    oldest = min(records, key=lambda one: one.create_timestamp)
    launched = oldest.create_timestamp.replace(tzinfo=timezone.utc).timestamp()
    more = f", and {len(records) - 1:,} more" if len(records) > 1 else ""
    return Problem(
        Severity.FAILURE,
        f"{name}: its run {oldest.dagster_run.run_id}{more} was launched at {moment(launched)} and has not begun",
        "Dagster's UI says on the page of the run what it waits for: other runs, or a limit in dagster.yaml.",
    )


def _failed_runs(instance: dg.DagsterInstance, name: str, due: float) -> tuple[Problem | None, bool]:
    """The failure of the newest run of a schedule, if no run of it has succeeded since it was due; and whether a run is at work.

    Failed syncs of containers are left out: each of them is a problem of its container.
    """
    found = instance.get_run_records(dg.RunsFilter(tags={SCHEDULE_NAME_TAG: name}), limit=_RUNS)
    runs = [one for one in found if not (tag_of(one.dagster_run, CONTAINER_TAG) and is_sync(one.dagster_run))]
    if not runs:
        return None, False
    newest = runs[0].dagster_run
    good = next((one.end_time for one in runs if one.dagster_run.status is dg.DagsterRunStatus.SUCCESS and one.end_time), None)
    if newest.status is not dg.DagsterRunStatus.FAILURE or (good is not None and good >= due):
        return None, not newest.is_finished
    since = f"the last one that has succeeded ended at {moment(good)}" if good else f"none of the last {len(runs):,} has succeeded"
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    events = [entry.dagster_event for entry in instance.all_logs(newest.run_id, of_type=kinds) if entry.dagster_event is not None]
    why = as_line(failure_of(events)[1])
    reason = f": {why.rstrip('.')}" if why else ""
    return Problem(
        Severity.FAILURE,
        f"{name}: its last run has failed{reason}; {since}",
        f"More of it: incremental-assets operations {newest.run_id}",
        f"/runs/{newest.run_id}",
        cause=Cause(Kind.FAILING, name, why) if why else None,
    ), False
