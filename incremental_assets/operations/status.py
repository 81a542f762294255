"""What state each container is in: the records of ``incremental-assets status``."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.container import Container
from incremental_assets.core.counted_changes import is_said, said_of
from incremental_assets.core.cursor_type import MICROS_PER_DAY, MICROS_PER_SECOND, CursorType, json_value, value_at
from incremental_assets.core.looks import Looks, lag_seconds
from incremental_assets.core.rules.rule import Severity
from incremental_assets.operations.history import is_of_chosen_partitions, sync_of
from incremental_assets.project.folders import lake_root
from incremental_assets.quality.records import LastAudit, Records
from incremental_assets.runs.automation import next_tick
from incremental_assets.runs.records.looks import looked_at
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, is_sync, runs_with
from incremental_assets.runs.records.watermarks import WatermarkEvent, held_back_since, newest_event, newest_events_with_watermark

_RUNS = 20
"""Among how many of a container's newest runs its last sync is looked for: the others are scans, profiles and audits."""
_FIGURES = ("rows", "rows_read", "rows_inserted", "rows_updated", "rows_deleted", "failed_checks", "retained_bytes")
"""Which figures of its last sync a record has."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def status_lines(
    instance: dg.DagsterInstance, chosen: Sequence[ContainerDefinition], now: datetime, anomalies: Sequence[Anomaly] | None = None
) -> list[dict[str, Any]]:
    """One record for each container, with the fields of ``status --json``. ``now``: an aware time. ``anomalies``: those that are open, if
    they are known already."""
    events = dict(newest_events_with_watermark(instance, [definition.container for definition in chosen]))
    for container in (definition.container for definition in chosen):
        if container.label not in events:
            events[container.label] = newest_event(instance, container)
    opened = defaultdict[str, list[Anomaly]](list)
    for one in open_anomalies(chosen) if anomalies is None else anomalies:
        opened[one.container].append(one)
    audits = dict[str, LastAudit]()
    for records in _records(chosen):
        audits |= records.last_audits()
    looks = looked_at(instance, {one.container.datastore for one in chosen})
    return [_line(instance, one, now, events, looks, opened[one.container.label], audits.get(one.container.label)) for one in chosen]


def open_anomalies(chosen: Sequence[ContainerDefinition]) -> list[Anomaly]:
    """The anomalies that are active or acknowledged in the datastores of the containers."""
    return [one for records in _records(chosen) for one in records.anomalies().values() if one.state.is_open]


def _records(chosen: Sequence[ContainerDefinition]) -> list[Records]:
    """The tables of quality of the containers' datastores."""
    return [Records(lake_root(), store) for store in dict.fromkeys(one.container.key_path[0] for one in chosen)]


def _line(
    instance: dg.DagsterInstance,
    definition: ContainerDefinition,
    now: datetime,
    events: Mapping[str, WatermarkEvent | None],
    looks: Looks,
    opened: Sequence[Anomaly],
    audit: LastAudit | None,
) -> dict[str, Any]:
    container = definition.container
    label = container.label
    syncs = _syncs(instance, label)
    last = sync_of(instance, syncs[0]) if syncs else None
    ended = None if last is None else last["end_time"]
    succeeded = next((one.end_time for one in syncs if one.dagster_run.is_success), None)
    event = events[label]
    watermark = event.watermark if event is not None else None
    look = looks.get(label)
    looked = _last_covered(syncs) if look is None else look.at
    result, message = ("never", "") if last is None else (last["result"], last["message"])
    if look is not None and look.missed and result in ("success", "warning"):
        result, message = _with_missed(container, look.missed, result, message)
    return {
        "container": label,
        "result": "missing" if definition.missing_since is not None else result,
        "synced_at": ended,
        "age_seconds": None if ended is None else round((now - datetime.fromisoformat(ended)).total_seconds()),
        "run_id": None if last is None else last["id"],
        "message": message,
        "missed_changes": 0 if look is None else look.missed,
        "blocked_by": None if last is None else last["blocked_by"],
        "failing_since": _failing_since(syncs),
        "looked_at": None if looked is None else datetime.fromtimestamp(looked, timezone.utc).isoformat(timespec="seconds"),
        "lag_seconds": lag_seconds(looked, now.timestamp()),
        "watermark": None if container.cursor_type is None else json_value(container.cursor_type, watermark),
        "newest_row_age_seconds": _newest_row_age(container.cursor_type, watermark, now, container.timezone),
        "held_back_by": [asdict(one) for one in event.held_back_by] if event is not None and event.held_back_by else None,
        "held_back_seconds": _held_back_seconds(instance, definition, event, looked),
        "open_anomalies": len(opened),
        "broken_rules": sorted({anomaly.rule for anomaly in opened if anomaly.severity is Severity.ERROR}),
        "audit": None if audit is None else "different" if audit.different else "equal",
        "audited_at": None if audit is None else audit.at.isoformat(timespec="milliseconds"),
        "next_tick": _next_tick(definition, now),
        "success_age_seconds": None if succeeded is None else round(now.timestamp() - succeeded),
        **{name: None if last is None else last[name] for name in _FIGURES},
    }


def _with_missed(container: Container, missed: int, result: str, message: str) -> tuple[str, str]:
    """The result and the message of the last sync with what the last look, which may be a later one, knows of missed changes."""
    others = [one for one in message.split("; ") if not is_said(one)] if result == "warning" else []
    return "warning", "; ".join([*others, said_of(container.label, container.strategy, missed)])


def _syncs(instance: dg.DagsterInstance, label: str) -> list[dg.RunRecord]:
    """The syncs among the container's newest runs, the newest first."""
    return [record for record in runs_with(instance, CONTAINER_TAG, label, _RUNS) if is_sync(record.dagster_run)]


def _failing_since(syncs: Sequence[dg.RunRecord]) -> str | None:
    """When the first of the syncs in a row that have failed has ended; None if the newest that has ended by itself has succeeded."""
    since: float | None = None
    for one in syncs:
        if one.dagster_run.is_success:
            break
        if one.dagster_run.status is dg.DagsterRunStatus.FAILURE and one.end_time is not None:
            since = one.end_time
    return None if since is None else datetime.fromtimestamp(since, timezone.utc).isoformat(timespec="seconds")


def _last_covered(syncs: Sequence[dg.RunRecord]) -> float | None:
    """When the last of the syncs has ended after which the lake had all; None if there is none. It stands in for a look until one is
    recorded, as versions before have recorded none."""
    ended = (one.end_time for one in syncs if one.dagster_run.is_success and not is_of_chosen_partitions(one.dagster_run))
    return next(ended, None)


def _newest_row_age(cursor_type: CursorType | None, watermark: int | None, now: datetime, zone: str) -> int | None:
    """The age of the newest row: how far the watermark lies behind the clock, at least 0; None where it is no time. Of a date, its whole
    day counts as passed."""
    if cursor_type is None or not cursor_type.is_time or watermark is None:
        return None
    # Of a date, the time of day counts, too.
    clock = CursorType.TIMESTAMP_NTZ if cursor_type is CursorType.DATE else cursor_type
    shown = value_at(clock, (now - _EPOCH) // timedelta(microseconds=1), zone)
    reached = (watermark + 1) * MICROS_PER_DAY if cursor_type is CursorType.DATE else watermark
    return max(0, (shown - reached) // MICROS_PER_SECOND)


def _held_back_seconds(
    instance: dg.DagsterInstance, definition: ContainerDefinition, event: WatermarkEvent | None, looked: float | None
) -> int | None:
    """For how long open transactions have held the watermark back, as far as somebody has looked; None if none does.

    ``looked``: when the source was last looked at and found covered. If nobody has looked since the last sync, it is not known whether they
    are still open, and the time up to that sync counts.
    """
    since = held_back_since(instance, definition.container, event) if event is not None else None
    if event is None or since is None:
        return None
    return max(0, round(min(max(event.at, looked or 0.0), time.time()) - since))


def _next_tick(definition: ContainerDefinition, now: datetime) -> str | None:
    """When a schedule, the container's or its datastore's, is due next; None if neither has one."""
    crons = [cron for cron in (definition.container.options.schedule, definition.settings.schedule) if cron]
    ticks = [next_tick(cron, now) for cron in crons]
    return min(ticks).isoformat(timespec="seconds") if ticks else None
