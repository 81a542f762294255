"""Partitions without rows that a sync has covered: Dagster gets an event of each, so that they are not *missing* for ever.

Belongs here: finding these partitions, and how their events are told from those of partitions that were written. Does not belong: logging
the events (``container_output``), and the partitions of a run, which have an event each whether they have rows or not.

Dagster calls a partition missing as long as it has no materialization event, and an automation condition such as ``eager()`` waits for the
missing partitions of an upstream asset. A source may have no row in the newest months of the calendar. A sync has read all rows above the
lag window, and so it knows that these partitions are empty.
"""

from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from incremental_assets.core.partitions import TimePartitions
from incremental_assets.core.plan import Action
from incremental_assets.dagster.partitions import KEYS_A_BATCH
from incremental_assets.delta.container_sync import ContainerSync

WITHOUT_ROWS = "sync/without_rows"
"""The metadata key, with the value True, of the event of a partition that was covered by a sync, is empty, and was not written."""


def covered_without_rows(instance: dg.DagsterInstance, key: dg.AssetKey, sync: ContainerSync, written: Collection[str]) -> list[str]:
    """The keys of the partitions after the newest row that the sync has covered, and of which Dagster has no event yet, ascending.

    ``key``: of the container's asset. ``written``: the keys of the partitions that have events of this run, whatever is found here. Only
    calendars have partitions without rows. A refresh covers the partitions of its run alone.
    """
    partitions, container = sync.partitions, sync.container
    if not isinstance(partitions, TimePartitions) or sync.result.plan.action not in (Action.LOAD, Action.SYNC):
        return []
    newest = sync.result.new
    last = max([*written, *([] if newest is None else [partitions.key_of(newest)])], default=None)
    after = partitions.keys_between(None if last is None else partitions.window_of(last).lower, None)
    candidates = [one for one in after if last is None or one > last]
    if not candidates or container.partitioning is None:
        return []
    # Of very many, all are asked for: SQLite limits the variables of a statement.
    named = set(candidates) if len(candidates) <= KEYS_A_BATCH else None
    known = instance.event_log_storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION, named)
    return [one for one in candidates if one not in known]


def is_written(metadata: Mapping[str, Any]) -> bool:
    """Whether a materialization event is of rows that were written, or of a partition that was asked for, by its metadata."""
    return WITHOUT_ROWS not in metadata
