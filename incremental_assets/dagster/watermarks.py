"""The watermarks as the event log has them: the record that people, the UI and ``incremental-assets watermarks`` read.

Belongs here: finding them in materialization events. Does not belong: which watermark counts (``planning``).
"""

import datetime
from collections.abc import Iterator
from typing import Any

import dagster as dg

from incremental_assets.core.axis import json_value, value_from_json
from incremental_assets.core.container import Container
from incremental_assets.dagster.metadata import plain
from incremental_assets.delta.result import NEW, PREVIOUS, SIGNATURE
from incremental_assets.delta.table import LakeTable

PAGE = 500


def _events(instance: dg.DagsterInstance, key: dg.AssetKey, page: int) -> Iterator[dg.EventLogRecord]:
    """Materializations, newest first; unlike ``get_latest_materialization_event`` this leaves deleted runs out."""
    cursor: str | None = None
    while True:
        found = instance.fetch_materializations(key, limit=page, cursor=cursor)
        yield from found.records
        if not found.has_more:
            return
        cursor = found.cursor


def newest_watermark(instance: dg.DagsterInstance, container: Container) -> int | None:
    """The watermark of the newest event that carries one of this container's identifier: a materialization, or the observation of a sync
    that had nothing to read."""
    if container.axis is None:
        return None
    materialized = next((r for r in _events(instance, _key(container), 20) if NEW in _values(r.asset_materialization)), None)
    observed = _newest_observed(instance, _key(container), materialized)
    newest = observed or materialized
    if newest is None:
        return None
    values = _values(newest.asset_observation if observed else newest.asset_materialization)
    return value_from_json(container.axis, values[NEW]) if values.get(SIGNATURE) == container.signature else None


def _newest_observed(instance: dg.DagsterInstance, key: dg.AssetKey, materialized: dg.EventLogRecord | None) -> dg.EventLogRecord | None:
    """The newest observation with a watermark that is newer than the materialization."""
    cursor: str | None = None
    while True:
        found = instance.fetch_observations(key, limit=20, cursor=cursor)
        for record in found.records:
            if materialized is not None and record.storage_id < materialized.storage_id:
                return None
            if NEW in _values(record.asset_observation):
                return record
        if not found.has_more:
            return None
        cursor = found.cursor


def _values(event: dg.AssetMaterialization | dg.AssetObservation | None) -> dict[str, Any]:
    return plain(event.metadata) if event is not None else {}


def runs_with_watermark(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[str]:
    """The runs of the events that ``newest_watermark`` goes by."""
    materialized = next((r for r in _events(instance, key, 20) if NEW in _values(r.asset_materialization)), None)
    observed = _newest_observed(instance, key, materialized)
    return {record.run_id for record in (materialized, observed) if record is not None}


def _key(container: Container) -> dg.AssetKey:
    return dg.AssetKey(list(container.key_path))


def history(instance: dg.DagsterInstance, container: Container) -> Iterator[dict[str, Any]]:
    """One record a run, newest first: the lines of ``watermarks --history``."""
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
        }


def _column(signature: Any) -> str | None:
    """The identifier's columns at the time of the event (the inverse of ``Identifier.signature``)."""
    return None if signature in (None, "none") else str(signature).rsplit(":", 2)[0].replace("+", "/")


def current(instance: dg.DagsterInstance, container: Container, lake: str, newest: dict[str, Any] | None) -> dict[str, Any]:
    """The watermark that counts now: the newest record, with the table's own word where the event log has none or is ahead of it."""
    record = newest or {
        "container": container.label,
        "column": "/".join(container.identifier.columns) if container.identifier else None,
        **dict.fromkeys(("previous", "new", "rows", "run_id", "started_at", "completed_at")),
    }
    head = LakeTable(lake, *container.key_path).head()
    state = head.state(container) if head is not None and head.signature() == container.signature else None
    if container.axis is None:
        return record
    if state is None:  # no table, or one built otherwise: the next sync loads all of it
        return record | {"new": None}
    counts = state.counting_watermark(newest_watermark(instance, container))
    return record | {"new": json_value(container.axis, counts)}
