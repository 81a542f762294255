"""All that is wrong now, looked for from outside of Dagster's daemon: what is shown by ``incremental-assets alerts``."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.files.definition import FileDefinition
from incremental_assets.operations.alerts.look import look
from incremental_assets.operations.alerts.new_tables import new_table_problems
from incremental_assets.operations.alerts.problems import Limits, Problem, Severity
from incremental_assets.operations.alerts.settings import AlertsComponent
from incremental_assets.operations.alerts.ticks import Expected, daemon_problem
from incremental_assets.runs.automation import schedules_of, sensor_name
from incremental_assets.runs.loading import LoadedProject

QUIET_SECONDS = 300
"""For how long the daemon may give no sign of life. It gives one every 30 seconds."""


@dataclass(frozen=True)
class CurrentProblem:
    """A problem with its key. ``base_url``: where Dagster's UI is; None if that is not known."""

    key: str
    problem: Problem
    base_url: str | None = None

    @property
    def link(self) -> str | None:
        """The address of a page of the UI about it."""
        return f"{self.base_url}{self.problem.link}" if self.base_url is not None and self.problem.link else None

    @property
    def line(self) -> str:
        """The problem as a person reads it."""
        return f"{self.problem.severity.value}: {self.problem.in_words}" + (f" {self.link}" if self.link else "")

    @property
    def record(self) -> dict[str, Any]:
        """The problem with the fields of ``alerts --json``."""
        one = self.problem
        since = None if one.since is None else datetime.fromtimestamp(one.since, timezone.utc).isoformat(timespec="seconds")
        return {
            "problem": self.key,
            "severity": one.severity.value,
            "text": one.with_example,
            "since": since,
            "remedy": one.remedy,
            "link": self.link,
        }


def missing_daemon(instance: dg.DagsterInstance, chosen: Sequence[ContainerDefinition], now: float | None = None) -> str | None:
    """That no daemon evaluates the schedules and sensors of these containers, as one sentence; None where one does, or none is switched on.

    ``now``: in seconds since 1970 UTC; None: the clock's.
    """
    problem = daemon_problem(instance, QUIET_SECONDS, time.time() if now is None else now)
    return f"{problem.text}. {problem.remedy}" if problem is not None and _are_switched_on(instance, chosen) else None


def _are_switched_on(instance: dg.DagsterInstance, chosen: Sequence[ContainerDefinition]) -> bool:
    """Whether a schedule or a sensor of the containers is switched on: by the YAML, if nobody has switched it on or off."""
    names = {name: True for one in chosen for name in schedules_of(one)}
    names |= {sensor_name(one): not schedules_of(one) for one in chosen if isinstance(one, FileDefinition)}
    statuses = {state.instigator_name: state.status for state in instance.all_instigator_state() if state.instigator_name in names}
    by_hand = {InstigatorStatus.RUNNING: True, InstigatorStatus.STOPPED: False}
    return any(by_hand.get(statuses[name], on) if name in statuses else on for name, on in names.items())


def problems_now(project: LoadedProject, instance: dg.DagsterInstance, now: float | None = None) -> list[CurrentProblem]:
    """The problems, failures first. What counts is what the project's ``Alerts`` say; without one, their defaults.

    ``now``: in seconds since 1970 UTC; None: the clock's. Raises ConfigurationError.
    """
    at = time.time() if now is None else now
    alerts = project.components_of(AlertsComponent)
    chosen = [one for datastore in project.datastores for one in datastore.definitions]
    expected = Expected.of(project.definitions(chosen).get_repository_def())
    daemon = daemon_problem(instance, QUIET_SECONDS, at) if expected.schedules or expected.sensors else None
    # Nothing is evaluated while the daemon is down: that each schedule is overdue, and each container late, says nothing more.
    limits = _strictest([one.limits() for one in alerts])
    samples = all(one.samples for one in alerts)
    found = look(instance, chosen, limits, expected, at, daemon_is_down=daemon is not None, samples=samples)
    problems = {**found.problems, **new_table_problems(project.datastores)}
    if daemon is not None:
        problems["daemon"] = daemon
    ordered = sorted(problems.items(), key=lambda item: (item[1].severity is not Severity.FAILURE, item[0] != "daemon", item[1].text))
    base_url = next((url for one in alerts if (url := one.ui())), None)
    return [CurrentProblem(key, one, base_url) for key, one in ordered]


def _strictest(limits: Sequence[Limits]) -> Limits:
    """Of several limits the lowest of each kind."""
    if not limits:
        return Limits()
    values = {one.name: [getattr(each, one.name) for each in limits if getattr(each, one.name) is not None] for one in fields(Limits)}
    return Limits(**{name: min(found, default=None) for name, found in values.items()})
