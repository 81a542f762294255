"""The sensor that looks for problems, and sends what is new.

Each destination has a state of its own in the sensor's cursor. So one that could not be reached gets the message later, and the others do
not get it twice.
"""

import hashlib
import time

import dagster as dg

from incremental_assets.operations.alerts.look import look
from incremental_assets.operations.alerts.messages import Known, from_cursor, news, to_cursor
from incremental_assets.operations.alerts.new_tables import new_table_problems
from incremental_assets.operations.alerts.page import report
from incremental_assets.operations.alerts.problems import Found
from incremental_assets.operations.alerts.send import NO_APPRISE, can_send, send
from incremental_assets.operations.alerts.settings import Settings
from incremental_assets.operations.alerts.ticks import Expected
from incremental_assets.project.folders import current_project

_PAUSE_SECONDS = 300
"""If the sensor was not evaluated for so much longer than it should be, the daemon was down, or has just been started."""


def alerts_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, which starts no runs. It is switched on by default."""

    @dg.sensor(
        name=settings.name,
        minimum_interval_seconds=settings.every_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Says once when something is wrong with a container, a schedule or a sensor, and once when it is over.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from incremental_assets.runs.loading import load_datastores

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


def _digest(url: str) -> str:
    """What stands for a destination in the cursor, which everybody can read: URLs have passwords."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]
