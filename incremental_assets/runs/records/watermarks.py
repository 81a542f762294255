"""Reads watermarks from Dagster's event log: the record that people, the UI and ``incremental-assets watermarks`` see."""

import datetime
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from incremental_assets.core.capture import lsn_text
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import json_value, value_from_json
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.unfilled import keys_of
from incremental_assets.core.watermark import Holder
from incremental_assets.delta.result import HELD_BACK_BY, LSN, NEW, PREVIOUS, SIGNATURE, VERSION
from incremental_assets.delta.table import LakeTable
from incremental_assets.runs.dagster_internals.newest_events import MOST_OBSERVATIONS, newest_events
from incremental_assets.runs.records.metadata import plain

PAGE = 500
"""How many events are fetched at once for a history."""
_MOST_HELD_BACK = 1000
"""How many events are read at most, to find since when a watermark is held back."""


def _events(instance: dg.DagsterInstance, key: dg.AssetKey, page: int) -> Iterator[dg.EventLogRecord]:
    """The materializations of an asset, the newest first.

    ``fetch_materializations`` leaves out the events of deleted runs; ``get_latest_materialization_event`` does not.
    """
    cursor: str | None = None
    while True:
        found = instance.fetch_materializations(key, limit=page, cursor=cursor)
        yield from found.records
        if not found.has_more:
            return
        cursor = found.cursor


@dataclass(frozen=True)
class WatermarkEvent:
    """What the newest event that carries a watermark says.

    ``watermark``: in the unit of the identifier's cursor type; None where there is none, or where it belongs to another identifier of the
    container. ``at``: when the event was recorded, in seconds since 1970 UTC. ``held_back_by``: the transactions that held it back then.
    """

    watermark: int | None
    at: float
    held_back_by: Sequence[Holder] = ()


def newest_event(instance: dg.DagsterInstance, container: Container) -> WatermarkEvent | None:
    """The newest event that carries a watermark; None where there is none.

    It is a materialization, or the observation of a sync that had nothing to read.
    """
    if container.cursor_type is None:
        return None
    materialized = next((r for r in _events(instance, _key(container), 20) if _carries(_values(r.asset_materialization))), None)
    observed = _newest_observed(instance, _key(container), materialized)
    newest = observed or materialized
    return _event_of(container, newest) if newest is not None else None


def newest_watermark(instance: dg.DagsterInstance, container: Container) -> int | None:
    """The watermark of ``newest_event``; None where there is none."""
    event = newest_event(instance, container)
    return event.watermark if event is not None else None


def held_back_since(instance: dg.DagsterInstance, container: Container, newest: WatermarkEvent) -> float | None:
    """Since when open transactions have held the watermark back, in seconds since 1970 UTC; None if none does.

    It is when the oldest of them has begun. Where the role may not see that, it is the first sync in a row that has found the watermark at
    the same place and held back.
    """
    if not newest.held_back_by:
        return None
    begun = [datetime.datetime.fromisoformat(one.since).timestamp() for one in newest.held_back_by if one.since is not None]
    if begun:
        return min(begun)
    since = newest.at
    for record in itertools.islice(_events(instance, _key(container), 100), _MOST_HELD_BACK):
        event = _event_of(container, record) if _carries(_values(record.asset_materialization)) else None
        if event is not None and (event.watermark != newest.watermark or not event.held_back_by):
            break
        since = event.at if event is not None else since
    return since


def reported_version(instance: dg.DagsterInstance, container: Container) -> int | None:
    """The Delta version up to which the container's materializations tell what was written; None where there is none."""
    for record in _events(instance, _key(container), 20):
        values = _values(record.asset_materialization)
        if VERSION in values:
            return int(values[VERSION])
    return None


def newest_events_with_watermark(instance: dg.DagsterInstance, containers: Sequence[Container]) -> Mapping[str, WatermarkEvent | None]:
    """Returns the same as ``newest_event`` for many containers at once, by their labels.

    Left out are those of which the newest event alone does not tell it.
    """
    by_key = {_key(container): container for container in containers if container.cursor_type is not None}
    found: dict[str, WatermarkEvent | None] = {}
    for key, events in newest_events(instance, list(by_key)).items():
        container, materialization = by_key[key], events.materialization
        carries = materialization is not None and _carries(_values(materialization.asset_materialization))
        newest = next((record for record in events.observations if _carries(_values(record.asset_observation))), None)
        # Events without a watermark, such as those of other programs, may hide older ones that have one.
        if newest is None and ((materialization is not None and not carries) or len(events.observations) == MOST_OBSERVATIONS):
            continue
        newest = newest or materialization
        found[container.label] = _event_of(container, newest) if newest is not None else None
    return found


def newest_watermarks(instance: dg.DagsterInstance, containers: Sequence[Container]) -> Mapping[str, int | None]:
    """Returns the same as ``newest_watermark`` for many containers at once, as ``newest_events_with_watermark`` does."""
    events = newest_events_with_watermark(instance, containers)
    return {label: event.watermark if event is not None else None for label, event in events.items()}


def _carries(values: Mapping[str, Any]) -> bool:
    """Whether an event says where the watermark is. If open transactions have held it back from the first load on, there is none yet."""
    return NEW in values or HELD_BACK_BY in values


def _event_of(container: Container, record: dg.EventLogRecord) -> WatermarkEvent:
    """What an event with a watermark says."""
    values = _values(record.asset_materialization or record.asset_observation)
    held_back_by = values.get(HELD_BACK_BY) or []
    holders: Sequence[Any] = json.loads(held_back_by) if isinstance(held_back_by, str) else held_back_by
    return WatermarkEvent(_watermark_in(container, values), record.timestamp, tuple(Holder(**one) for one in holders))


def _watermark_in(container: Container, values: Mapping[str, Any]) -> int | None:
    """The watermark in the metadata of an event; None where there is none, or where it belongs to another identifier."""
    fits = container.cursor_type is not None and NEW in values and values.get(SIGNATURE) == container.signature
    return value_from_json(container.cursor_type, values[NEW]) if fits and container.cursor_type is not None else None


def _newest_observed(instance: dg.DagsterInstance, key: dg.AssetKey, materialized: dg.EventLogRecord | None) -> dg.EventLogRecord | None:
    """The newest observation that carries a watermark and is newer than the materialization; None where there is none."""
    cursor: str | None = None
    while True:
        found = instance.fetch_observations(key, limit=20, cursor=cursor)
        for record in found.records:
            # Storage ids grow from event to event, whatever their type. All further observations are older than the materialization.
            if materialized is not None and record.storage_id < materialized.storage_id:
                return None
            if _carries(_values(record.asset_observation)):
                return record
        if not found.has_more:
            return None
        cursor = found.cursor


def _values(event: dg.AssetMaterialization | dg.AssetObservation | None) -> dict[str, Any]:
    """The metadata of the event as plain values; empty where there is no event."""
    return plain(event.metadata) if event is not None else {}


def runs_with_watermark(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[str]:
    """The ids of the runs whose events ``newest_watermark`` reads. They must not be deleted."""
    materialized = next((r for r in _events(instance, key, 20) if _carries(_values(r.asset_materialization))), None)
    observed = _newest_observed(instance, key, materialized)
    return {record.run_id for record in (materialized, observed) if record is not None}


def _key(container: Container) -> dg.AssetKey:
    return dg.AssetKey(list(container.key_path))


def history(instance: dg.DagsterInstance, container: Container) -> Iterator[dict[str, Any]]:
    """The records of ``watermarks --history``: one for each run that materialized the container, the newest first."""
    seen: set[str] = set()
    for record in _events(instance, _key(container), PAGE):
        materialization = record.asset_materialization
        if materialization is None or record.run_id in seen:
            continue
        values = plain(materialization.metadata)
        if "sync/rows_read" not in values:
            continue
        seen.add(record.run_id)
        completed = datetime.datetime.fromtimestamp(record.timestamp, datetime.timezone.utc)
        started = completed - datetime.timedelta(seconds=float(values.get("sync/seconds", 0)))
        yield {
            "container": container.label,
            "column": _column(values.get(SIGNATURE)),
            "previous": values.get(PREVIOUS),
            "new": values.get(NEW),
            "rows": values.get("sync/rows_read"),
            "run_id": record.run_id,
            "started_at": started.isoformat(timespec="milliseconds"),
            "completed_at": completed.isoformat(timespec="milliseconds"),
            "lsn": values.get(LSN),
            "lag_bytes": None,
            "lag_seconds": None,
            "refresh_needed": None,
        }


def _column(signature: Any) -> str | None:
    """The columns of the identifier at the time of the event, from its signature (the inverse of ``Identifier.signature``)."""
    return None if signature in (None, "none") else str(signature).rsplit(":", 2)[0].replace("+", "/")


def current(
    instance: dg.DagsterInstance, container: Container, lake: str, newest: dict[str, Any] | None, partitions: Partitions | None
) -> dict[str, Any]:
    """The record of the watermark that counts now.

    It is the record ``newest`` of the history, with ``new`` corrected by the table's property: the lower of the property and the newest
    event counts. A container without identifier has no watermark. ``new`` is None where there is no table, or where the table belongs to
    another identifier: the next sync then loads the whole container. ``lsn``: how far a container with ``capture: log`` has come; how far
    it lags is not known here. ``refresh_needed``: the keys of the ``partitions`` whose older rows lack values of columns that were added
    (``core.unfilled``). ``newest``: None where the event log has no record.
    """
    record = newest or {
        "container": container.label,
        "column": "/".join(container.identifier.columns) if container.identifier else None,
        **dict.fromkeys(
            ("previous", "new", "rows", "run_id", "started_at", "completed_at", "lsn", "lag_bytes", "lag_seconds", "refresh_needed")
        ),
    }
    head = LakeTable(lake, *container.key_path).head()
    position = head.captured_to if head is not None and container.is_captured else None
    record |= {"lsn": lsn_text(position[1]) if position is not None else None}
    state = head.state(container) if head is not None and head.signature() == container.signature else None
    if container.cursor_type is None:
        return record
    # There is no table, or it belongs to another identifier or has no state: the next sync loads the whole container.
    if state is None:
        return record | {"new": None}
    counts = state.counting_watermark(newest_watermark(instance, container))
    return record | {"new": json_value(container.cursor_type, counts), "refresh_needed": keys_of(state.unfilled, partitions)}
