"""Finds what is wrong with the containers, and says so once: when a problem begins, and when it is over.

Belongs here: what counts as a problem, which of them are new or over, the words, and the sensor. Does not belong: the state of the
containers (``status``), the YAML (``components.alerts``), and sending to mail, chats and web hooks, which is apprise's.

Each destination has a state of its own in the sensor's cursor. So one that could not be reached gets the message later, and the others do
not get it twice.
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus, TickStatus

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.rules.rule import Severity as RuleSeverity
from incremental_assets.dagster.project import current_project
from incremental_assets.dagster.status import open_anomalies, status_lines

_MOST_LINES = 50
"""How many problems a message names; of the others it has the number."""


class Severity(str, Enum):
    """How bad it is. The values are those of apprise's kinds of messages, and of the attribute ``on``."""

    FAILURE = "failure"
    WARNING = "warning"
    SUCCESS = "success"


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now. ``text``: one line, for people."""

    severity: Severity
    text: str


@dataclass(frozen=True)
class Settings:
    """The attributes of the YAML. ``to``: apprise's URLs. ``on``: which messages are sent. ``max_lag_seconds``: None: any lag will do."""

    name: str
    to: tuple[str, ...]
    on: frozenset[Severity]
    max_lag_seconds: int | None = None
    every_seconds: int = 60


@dataclass(frozen=True)
class Known:
    """What a destination knows. ``problems``: those that it has got a message of and that are not over, by their keys. ``runs``: of each
    container the last sync that it knows."""

    problems: Mapping[str, Problem] = field(default_factory=dict[str, Problem])
    runs: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Found:
    """What a look has found. ``problems``: by their keys. ``undecided``: keys of which nothing can be said now, as a run is at work.
    ``runs``: of each container its last successful sync, and what it has done."""

    problems: Mapping[str, Problem]
    undecided: frozenset[str]
    runs: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Message:
    """What is sent."""

    severity: Severity
    title: str
    body: str


# ---------------------------------------------------------------------- what is wrong
def found_in(records: Sequence[Mapping[str, Any]], anomalies: Iterable[Anomaly], max_lag_seconds: int | None) -> Found:
    """The problems of containers. ``records``: those of ``status --json``. ``anomalies``: all that are open."""
    of_rules: dict[str, Counter[str]] = {}
    for one in anomalies:
        of_rules.setdefault(one.container, Counter())[one.severity.value] += 1
    problems: dict[str, Problem] = {}
    undecided: set[str] = set()
    runs: dict[str, tuple[str, str]] = {}
    for record in records:
        label, result = record["container"], record["result"]
        if result in ("running", "queued", "aborted"):  # what the sync before has found still holds
            undecided.add(f"{label} sync")
        elif result in ("failure", "missing"):
            text = "it is gone from the source" if result == "missing" else f"the last sync has failed: {_line(record['message'])}"
            problems[f"{label} sync"] = Problem(Severity.FAILURE, f"{label}: {text}")
        elif result == "success" and record["run_id"] is not None:
            runs[label] = record["run_id"], f"{label}: {_line(record['message'])}"
        if record["audit"] == "different":
            problems[f"{label} audit"] = Problem(Severity.FAILURE, f"{label}: the last audit has found differences from its source")
        lag = record["lag_seconds"]
        if max_lag_seconds is not None and lag is not None and lag > max_lag_seconds:
            problems[f"{label} lag"] = Problem(Severity.WARNING, f"{label}: its watermark is {lag:,} s behind the clock")
        rules = of_rules.get(label)
        if rules:
            severity = Severity.FAILURE if rules[RuleSeverity.ERROR.value] else Severity.WARNING
            problems[f"{label} anomalies"] = Problem(severity, f"{label}: {rules.total():,} open anomalies")
    return Found(problems, frozenset(undecided), runs)


def failed_ticks(instance: dg.DagsterInstance) -> dict[str, Problem]:
    """The schedules and sensors whose last tick has failed, by their keys. Those that are switched off do not count."""
    problems: dict[str, Problem] = {}
    for state in instance.all_instigator_state():
        if state.status not in (InstigatorStatus.RUNNING, InstigatorStatus.DECLARED_IN_CODE):
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        if ticks and ticks[0].status is TickStatus.FAILURE:
            error = ticks[0].error
            text = f"{state.instigator_name}: its last tick has failed: {_line(error.message if error else '')}"
            problems[f"tick {state.instigator_name}"] = Problem(Severity.FAILURE, text)
    return problems


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


# ---------------------------------------------------------------------- what is new
def news(before: Known | None, found: Found, on: frozenset[Severity]) -> tuple[Message | None, Known]:
    """What is sent to a destination (None: nothing), and what it knows afterwards. ``before``: what it knows; None: it is a new one.

    There is one message of a problem, and one more when it is over. One that was a warning and is a failure now counts as new.
    """
    reports_syncs = before is not None and Severity.SUCCESS in on
    before = before or Known()
    problems = {key: one for key, one in found.problems.items() if one.severity in on}
    begun = [one for key, one in problems.items() if key not in before.problems or _is_worse(one, before.problems[key])]
    over = [one for key, one in before.problems.items() if key not in problems and key not in found.undecided]
    kept = {key: one for key, one in before.problems.items() if key in found.undecided}
    after = Known({**kept, **problems}, {label: run for label, (run, _) in found.runs.items()})
    synced = [text for label, (run, text) in found.runs.items() if reports_syncs and before.runs.get(label) != run]
    if not (begun or over or synced):
        return None, after
    return _message(begun, over, synced), after


def _is_worse(one: Problem, before: Problem) -> bool:
    return one.severity is Severity.FAILURE and before.severity is not Severity.FAILURE


def _message(begun: Sequence[Problem], over: Sequence[Problem], synced: Sequence[str]) -> Message:
    ordered = sorted(begun, key=lambda one: (one.severity is not Severity.FAILURE, one.text))
    severity = ordered[0].severity if ordered else Severity.SUCCESS
    counts = [(len(begun), "new problem", "new problems"), (len(over), "problem over", "problems over"), (len(synced), "sync", "syncs")]
    title = "incremental-assets: " + ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in counts if number)
    lines = [f"{one.severity.value}: {one.text}" for one in ordered]
    lines += [f"over: {one.text}" for one in over] + [f"synced: {text}" for text in synced]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES:,} more: incremental-assets status"]
    return Message(severity, title, "\n".join(lines))


# ---------------------------------------------------------------------- the sensor
def alerts_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, which starts no runs. It is switched on by default."""

    @dg.sensor(
        name=settings.name,
        minimum_interval_seconds=settings.every_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Says once when something is wrong with a container, a schedule or a sensor, and once when it is over.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from incremental_assets.dagster.loading import load_datastores

        chosen = [one for datastore in load_datastores(current_project()) for one in datastore.definitions]
        return tick(settings, context.cursor, look(context.instance, chosen, settings))

    return sensor


def tick(settings: Settings, cursor: str | None, found: Found) -> dg.SensorResult:
    """Sends what is new. Raises Failure if no destination could be reached, which leaves the cursor as it was."""
    before = _from_cursor(cursor)
    after: dict[str, Known] = {}
    sent: list[str] = []
    failed: list[str] = []
    for url in settings.to:
        key, kind = _digest(url), url.partition("://")[0]
        message, known = news(before.get(key), found, settings.on)
        if message is None or send(url, message):
            after[key] = known
            sent += [] if message is None else [f"{kind}: {message.title}"]
            continue
        failed.append(kind)
        if key in before:
            after[key] = before[key]
    if failed and not sent:
        raise dg.Failure(f"nothing could be sent by {', '.join(failed)}; the next tick tries again.", allow_retries=False)
    words = [*sent, *(f"{kind}: could not be reached; the next tick tries again" for kind in failed)]
    return dg.SensorResult(skip_reason="; ".join(words) or "nothing new", cursor=_to_cursor(after))


def look(instance: dg.DagsterInstance, chosen: Sequence[ContainerDefinition], settings: Settings) -> Found:
    """What is wrong now with the containers, and with the schedules and sensors of the instance."""
    anomalies = open_anomalies(chosen)
    records = status_lines(instance, chosen, datetime.now(timezone.utc), anomalies)
    found = found_in(records, anomalies, settings.max_lag_seconds)
    return dataclasses.replace(found, problems={**found.problems, **failed_ticks(instance)})


def send(url: str, message: Message) -> bool:
    """Sends a message. Returns whether the destination has taken it."""
    import apprise

    destination = apprise.Apprise()
    kind = apprise.NotifyType(message.severity.value)
    return destination.add(url) and bool(destination.notify(title=message.title, body=message.body, notify_type=kind))


def is_understood(url: str) -> bool:
    """Whether apprise knows this kind of URL."""
    import apprise

    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def _digest(url: str) -> str:
    """What stands for a destination in the cursor, which everybody can read: URLs have passwords."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _to_cursor(known: Mapping[str, Known]) -> str:
    return json.dumps({key: dataclasses.asdict(one) for key, one in known.items()})


def _from_cursor(text: str | None) -> dict[str, Known]:
    return {key: Known(dict(_problems(one["problems"])), one["runs"]) for key, one in json.loads(text or "{}").items()}


def _problems(found: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, Problem]]:
    for key, one in found.items():
        yield key, Problem(Severity(one["severity"]), one["text"])
