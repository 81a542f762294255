"""Partitions after the newest row that a sync has covered: Dagster gets an event of each, so that they are not *missing* for ever.

Dagster calls a partition missing as long as it has no materialization event, and an automation condition such as ``eager()`` waits for the
missing partitions of an upstream asset. A source may have no row in the newest months of the calendar. A sync that is not a refresh has
read whatever there is above the lag window, so what the lake has of these partitions, which mostly is nothing, is what the source had.
"""

from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from incremental_assets.core.partitions import TimePartitions
from incremental_assets.core.plan import Action
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.runs.partitions import KEYS_A_BATCH

NOT_WRITTEN = "sync/not_written"
"""The metadata key, with the value True, of the event of a partition that a sync has covered without writing rows of it."""


def covered_without_event(instance: dg.DagsterInstance, key: dg.AssetKey, sync: ContainerSync, written: Collection[str]) -> list[str]:
    """The keys of the partitions after the newest one with rows that the sync has covered, and of which Dagster has no event, ascending.

    ``key``: of the container's asset. ``written``: the keys of the partitions that have events of this run, whatever is found here. Only
    calendars have partitions without rows. A refresh covers the partitions of its run alone.
    """
    partitions, newest = sync.partitions, sync.result.new
    if not isinstance(partitions, TimePartitions) or sync.result.plan.action not in (Action.LOAD, Action.SYNC):
        return []
    known = set(written)
    # Where the partitions are cut along another column, the watermark is no value of it.
    if newest is not None and sync.container.partitioned_on is None:
        known.add(partitions.key_of(newest))
    last = max(known, default="")  # keys of times are ordered as texts
    lower = partitions.window_of(last).lower if last else None
    after = [one for one in partitions.keys_between(lower, None) if one > last]
    if not after:
        return []
    # Of very many, all are asked for: SQLite limits the variables of a statement.
    named = set(after) if len(after) <= KEYS_A_BATCH else None
    found = instance.event_log_storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION, named)
    return [one for one in after if one not in found]


def is_written(metadata: Mapping[str, Any]) -> bool:
    """Whether a materialization event is of rows that were written, or of a partition that was asked for, by its metadata."""
    return NOT_WRITTEN not in metadata
