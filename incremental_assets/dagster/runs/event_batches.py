"""Dagster's events of one run's partitions, written to its SQLite databases many at a time.

Belongs here: that one method of Dagster's storage, until Dagster has it. Does not belong: which events there are.

A run of 1,000 partitions has 2,000 events, and SQLite's storage makes an engine and a transaction for each, twice: 40 ms of the processor
each, minutes for the run. Dagster hands such events over in batches where ``DAGSTER_EVENT_BATCH_SIZE`` says so, which its PostgreSQL
storage may write at once and its SQLite storage writes one by one (docs/decisions/events-in-batches.md).
"""

import os
from collections.abc import Sequence

from dagster import EventLogEntry
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log.base import EventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlalchemy_compat import db_result

BATCH_VARIABLE = "DAGSTER_EVENT_BATCH_SIZE"
BATCH = 1000


def store_events_in_batches() -> None:
    """From now on, in this process; does nothing where Dagster's storage has a method of its own."""
    os.environ.setdefault(BATCH_VARIABLE, str(BATCH))
    if "store_event_batch" not in vars(SqliteEventLogStorage):
        SqliteEventLogStorage.store_event_batch = _store_event_batch


def _store_event_batch(self: SqliteEventLogStorage, events: Sequence[EventLogEntry]) -> None:
    """As ``store_event`` of each, with a transaction for the run's database and one for that of all assets."""
    runs = {event.run_id for event in events}
    if len(runs) != 1 or any(event.dagster_event_type not in ASSET_EVENTS for event in events):
        EventLogStorage.store_event_batch(self, events)
        return
    inserts = [self.prepare_insert_event(event) for event in events]
    with self.run_connection(*runs) as connection:
        for insert in inserts:
            connection.execute(insert)
    with self.index_transaction() as connection:
        ids: list[int] = []
        newest: dict[tuple[object, object], tuple[EventLogEntry, int]] = {}
        for event, insert in zip(events, inserts, strict=True):
            with db_result(connection, insert) as result:
                ids.append(result.inserted_primary_key[0])
            # The asset's own row says what was last of each kind, so that the others need not be written there.
            of = (event.get_dagster_event().asset_key, event.dagster_event_type)
            newest.pop(of, None)
            newest[of] = event, ids[-1]
        self._store_asset_event_tags(connection, events, ids)
        for event, number in newest.values():
            self._store_asset_event(connection, event, number)
