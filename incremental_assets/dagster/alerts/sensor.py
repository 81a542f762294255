"""The sensor that looks for problems, and sends what is new.

Belongs here: the sensor, and how a message is sent. Does not belong: what is a problem (``problems``, ``ticks``), and which problems are
new (``messages``).

Each destination has a state of its own in the sensor's cursor. So one that could not be reached gets the message later, and the others do
not get it twice.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.dagster.alerts.messages import Known, Message, from_cursor, news, to_cursor
from incremental_assets.dagster.alerts.new_tables import new_table_problems
from incremental_assets.dagster.alerts.problems import Found, Limits, Severity, found_in
from incremental_assets.dagster.alerts.replication_slots import slot_problems
from incremental_assets.dagster.alerts.ticks import Expected, tick_problems
from incremental_assets.dagster.project import current_project
from incremental_assets.dagster.status import open_anomalies, status_lines

_PAUSE_SECONDS = 300
"""If the sensor was not evaluated for so much longer than it should be, the daemon was down, or has just been started."""


@dataclass(frozen=True)
class Settings:
    """The attributes of the YAML. ``to``: apprise's URLs. ``on``: which messages are sent."""

    name: str
    to: tuple[str, ...]
    on: frozenset[Severity]
    limits: Limits = field(default_factory=Limits)
    every_seconds: int = 60


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
        found = look(context.instance, chosen, settings.limits, expected).with_more(new_table_problems(datastores))
        # If the daemon was down, what it has not evaluated meanwhile is evaluated within its first minutes.
        last = context.last_tick_completion_time
        if last is not None and time.time() - last > _PAUSE_SECONDS + settings.every_seconds:
            found = found.without(expected.overdue_keys())
        return tick(settings, context.cursor, found)

    return sensor


def tick(settings: Settings, cursor: str | None, found: Found) -> dg.SensorResult:
    """Sends what is new. Raises Failure if no destination could be reached, which leaves the cursor as it was."""
    before = from_cursor(cursor)
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
    return dg.SensorResult(skip_reason="; ".join(words) or "nothing new", cursor=to_cursor(after))


def look(
    instance: dg.DagsterInstance, chosen: Sequence[ContainerDefinition], limits: Limits, expected: Expected, now: float | None = None
) -> Found:
    """What is wrong with the containers, with the logs of their sources, and with the schedules and sensors of the code location.

    ``now``: in seconds since 1970 UTC; None: the clock's.
    """
    at = time.time() if now is None else now
    anomalies = open_anomalies(chosen)
    records = status_lines(instance, chosen, datetime.fromtimestamp(at, timezone.utc), anomalies)
    every = {one.container.label: one.container.options.every or 0 for one in chosen}
    found = found_in(records, anomalies, limits, every).with_more(*slot_problems(instance, chosen, limits, at))
    return found.with_more(*tick_problems(instance, expected, limits.overdue_seconds, at))


def send(url: str, message: Message) -> bool:
    """Sends a message. Returns whether the destination has taken it."""
    import apprise

    destination = apprise.Apprise()
    kind = apprise.NotifyType(message.severity.value)
    # The body is plain text: without that word, apprise sends it as HTML in a mail, and as markup in chats, whatever names are in it.
    plain = apprise.NotifyFormat.TEXT
    return destination.add(url) and bool(destination.notify(message.body, message.title, kind, body_format=plain))


def is_understood(url: str) -> bool:
    """Whether apprise knows this kind of URL."""
    import apprise

    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def _digest(url: str) -> str:
    """What stands for a destination in the cursor, which everybody can read: URLs have passwords."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]
