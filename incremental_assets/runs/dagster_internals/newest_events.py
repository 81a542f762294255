"""Reads the newest events of very many assets from Dagster's event log on one connection.

For each asset, Dagster's own ``fetch_materializations`` and ``fetch_observations`` open four connections to SQLite, and translate each
query anew: a tick over 1,000 containers spent a third of its time on that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.events import DagsterEventType
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._serdes import deserialize_value
from sqlalchemy import Connection, bindparam, select

KEYS_A_QUESTION = 500
"""How many assets one question is about: SQLite limits the variables of a statement, and holds a lock while it is asked."""
MOST_OBSERVATIONS = 20
"""The most observations that are read of one asset."""
_EVENTS = SqlEventLogStorageTable.c
_NEWEST = (
    select(_EVENTS.id, _EVENTS.event)
    .where(_EVENTS.asset_key == bindparam("key"), _EVENTS.dagster_event_type == bindparam("type"), _EVENTS.id > bindparam("after"))
    .order_by(_EVENTS.id.desc())
    .limit(bindparam("most"))
)


@dataclass(frozen=True)
class NewestEvents:
    """The newest events of one asset.

    ``materialization``: the newest one; None where there is none. ``observations``: those that are newer than it, the newest first, but at
    most ``MOST_OBSERVATIONS``.
    """

    materialization: dg.EventLogRecord | None
    observations: Sequence[dg.EventLogRecord]


def newest_events(instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> Mapping[dg.AssetKey, NewestEvents]:
    """The newest events of these assets.

    Left out are assets whose events were wiped, as Dagster leaves some of these in its tables, and all of them where the event log is in no
    SQL database: those have to be asked for by Dagster's own methods.
    """
    storage = instance.event_log_storage
    found: dict[dg.AssetKey, NewestEvents] = {}
    if not isinstance(storage, SqlEventLogStorage):
        return found
    for first in range(0, len(keys), KEYS_A_QUESTION):
        some = keys[first : first + KEYS_A_QUESTION]
        details = storage._get_assets_details(some)
        with storage.index_connection() as connection:
            for key, one in zip(some, details, strict=True):
                if one is None or one.last_wipe_timestamp is None:
                    newest = _records(connection, key, DagsterEventType.ASSET_MATERIALIZATION, 0, 1)
                    after = newest[0].storage_id if newest else 0
                    observed = _records(connection, key, DagsterEventType.ASSET_OBSERVATION, after, MOST_OBSERVATIONS)
                    found[key] = NewestEvents(newest[0] if newest else None, observed)
    return found


def _records(connection: Connection, key: dg.AssetKey, kind: DagsterEventType, after: int, most: int) -> Sequence[dg.EventLogRecord]:
    """The newest events of one kind with a storage id above ``after``."""
    rows = connection.execute(_NEWEST, {"key": key.to_string(), "type": kind.value, "after": after, "most": most})
    return [dg.EventLogRecord(id_, deserialize_value(event, dg.EventLogEntry)) for id_, event in rows]
