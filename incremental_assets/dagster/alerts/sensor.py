"""The sensor that looks for problems, and sends what is new.

Belongs here: the sensor, and how a message is sent. Does not belong: what is a problem (``problems``, ``ticks``), and which problems are
new (``messages``).

Each destination has a state of its own in the sensor's cursor. So one that could not be reached gets the message later, and the others do
not get it twice.
"""

import hashlib
import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.names import encode_name
from incremental_assets.dagster.alerts.broken_rules import broken_rules
from incremental_assets.dagster.alerts.causes import one_for_each_cause
from incremental_assets.dagster.alerts.messages import Known, Message, Urls, from_cursor, news, to_cursor
from incremental_assets.dagster.alerts.new_tables import new_table_problems
from incremental_assets.dagster.alerts.page import page_url, report
from incremental_assets.dagster.alerts.problems import Facts, Found, Limits, Severity, found_in
from incremental_assets.dagster.alerts.replication_slots import slot_problems
from incremental_assets.dagster.alerts.ticks import Expected, name_in, tick_problems
from incremental_assets.dagster.project import current_project
from incremental_assets.dagster.schedules import schedules_of
from incremental_assets.dagster.sensors import sensor_name
from incremental_assets.dagster.status import open_anomalies, status_lines
from incremental_assets.files.definition import FileDefinition

NO_APPRISE = "no message is sent, as apprise is not installed. Run: pip install 'incremental-assets[alerts]'"
_PAUSE_SECONDS = 300
"""If the sensor was not evaluated for so much longer than it should be, the daemon was down, or has just been started."""


@dataclass(frozen=True)
class Settings:
    """The attributes of the YAML. ``to``: apprise's URLs. ``on``: which messages are sent. ``base_url``: without a slash at the end.
    ``samples``: whether messages have values and keys of rows."""

    name: str
    to: tuple[str, ...]
    on: frozenset[Severity]
    limits: Limits = field(default_factory=Limits)
    every_seconds: int = 60
    base_url: str | None = None
    samples: bool = True

    @property
    def urls(self) -> Urls | None:
        """The addresses of Dagster's UI, if they are known."""
        return None if self.base_url is None else Urls(self.base_url, page_url(self.name, self.base_url))


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

        datastores = load_datastores(current_project())
        chosen = [one for datastore in datastores for one in datastore.definitions]
        assert context.repository_def is not None, "the daemon always gives it"
        expected = Expected.of(context.repository_def, but=settings.name)
        found = look(context.instance, chosen, settings.limits, expected, samples=settings.samples)
        found = found.with_more(new_table_problems(datastores))
        # If the daemon was down, what it has not evaluated meanwhile is evaluated within its first minutes.
        last = context.last_tick_completion_time
        if last is not None and time.time() - last > _PAUSE_SECONDS + settings.every_seconds:
            found = found.without(expected.overdue_keys())
        report(context.instance, settings.name, found.problems, settings.base_url or "")
        return tick(settings, context.cursor, found)

    return sensor


def tick(settings: Settings, cursor: str | None, found: Found) -> dg.SensorResult:
    """Sends what is new. Raises Failure if no destination could be reached, which leaves the cursor as it was."""
    if not can_send():
        raise dg.Failure(NO_APPRISE, allow_retries=False)
    before = from_cursor(cursor)
    after: dict[str, Known] = {}
    sent: list[str] = []
    failed: list[str] = []
    for url in settings.to:
        key, kind = _digest(url), url.partition("://")[0]
        message, known = news(before.get(key), found, settings.on, settings.urls)
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
    return dg.SensorResult(skip_reason="; ".join(words) or "nothing new", cursor=to_cursor(after))


def look(
    instance: dg.DagsterInstance,
    chosen: Sequence[ContainerDefinition],
    limits: Limits,
    expected: Expected,
    now: float | None = None,
    *,
    daemon_is_down: bool = False,
    samples: bool = True,
) -> Found:
    """What is wrong with the containers, with the logs of their sources, and with the schedules and sensors of the code location.

    ``now``: in seconds since 1970 UTC; None: the clock's. ``daemon_is_down``: what is late as nothing is evaluated is left out then.
    ``samples``: whether values and keys of rows are shown, of the containers that allow it.
    """
    at = time.time() if now is None else now
    anomalies = open_anomalies(chosen)
    records = status_lines(instance, chosen, datetime.fromtimestamp(at, timezone.utc), anomalies)
    facts = {one.container.label: _facts(one, samples) for one in chosen}
    ticks = tick_problems(instance, expected, limits.overdue_seconds, at)
    halted = {label for label, one in facts.items() if (daemon_is_down and one.automation) or ticks.halts(label, one.automation)}
    blocked = _blocked(records, anomalies)
    found = found_in(records, limits, facts, halted=halted, blocked=blocked).with_more(*slot_problems(instance, chosen, limits, at))
    found = found.with_more(broken_rules(anomalies, facts, blocked)).with_more(ticks.problems, ticks.undecided)
    if daemon_is_down:
        found = found.without(expected.overdue_keys())
    return one_for_each_cause(found, _StoreOf(chosen))


def _blocked(records: Sequence[Mapping[str, Any]], anomalies: Sequence[Anomaly]) -> Mapping[str, Sequence[str]]:
    """By containers whose last sync has failed because of blocking rules, these rules, if all of them have open anomalies.

    A rule that could not be evaluated has none, and the sync says so.
    """
    are_open = {(one.container, one.rule) for one in anomalies}
    failed = {record["container"]: record["blocked_by"] for record in records if record["result"] == "failure" and record["blocked_by"]}
    return {label: rules for label, rules in failed.items() if all((label, rule) in are_open for rule in rules)}


def _facts(definition: ContainerDefinition, samples: bool) -> Facts:
    container = definition.container
    names = [*schedules_of(definition)]
    if isinstance(definition, FileDefinition) and not names:
        names.append(sensor_name(definition))
    return Facts(container.key_path, container.options.every or 0, samples and container.options.samples, names)


class _StoreOf:
    """Says which datastore the key of a problem is about."""

    def __init__(self, chosen: Sequence[ContainerDefinition]) -> None:
        self._of_label = {one.container.label: one.container.datastore for one in chosen}
        self._of_jobs = {encode_name(one): one for one in self._of_label.values()}

    def __call__(self, key: str) -> str | None:
        name = name_in(key)
        if name is None:
            return self._of_label.get(key.rpartition(" ")[0].removesuffix(" held"))
        # The names of schedules and sensors are those of jobs: sync_shop_schedule, sync_shop__orders_files, catalog_shop_schedule.
        _, _, rest = name.partition("_")
        return max((store for job, store in self._of_jobs.items() if rest.startswith(f"{job}_")), key=len, default=None)


def send(url: str, message: Message) -> bool:
    """Sends a message. Returns whether the destination has taken it."""
    import apprise

    destination = apprise.Apprise()
    kind = apprise.NotifyType(message.severity.value)
    # The body is plain text: without that word, apprise sends it as HTML in a mail, and as markup in chats, whatever names are in it.
    plain = apprise.NotifyFormat.TEXT
    return destination.add(url) and bool(destination.notify(message.body, message.title, kind, body_format=plain))


def can_send() -> bool:
    """Whether apprise is installed, and can be imported."""
    try:
        importlib.import_module("apprise")
    except ImportError:
        return False
    return True


def is_understood(url: str) -> bool:
    """Whether apprise knows this kind of URL; of none if it is not installed, which the ticks report."""
    if not can_send():
        return True
    import apprise

    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def _digest(url: str) -> str:
    """What stands for a destination in the cursor, which everybody can read: URLs have passwords."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]
