"""Dagster's events of one run's partitions, written to its SQLite databases many at a time.

Belongs here: logging evaluations of checks together, and that one method of Dagster's storage, until Dagster has it. Does not belong: which
events there are.

A run of 1,000 partitions has 2,000 events, and one more for each rule and partition. SQLite's storage makes an engine and a transaction for
each of them, twice: 40 ms of the processor each, minutes for the run. Dagster hands such events over in batches where
``DAGSTER_EVENT_BATCH_SIZE`` says so, which its PostgreSQL storage may write at once and its SQLite storage writes one by one
(docs/decisions/events-in-batches.md).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import dagster as dg
from dagster import EventLogEntry
from dagster._core.events import (
    ASSET_CHECK_EVENTS,
    ASSET_EVENTS,
    DagsterEvent,
    DagsterEventBatchMetadata,
    DagsterEventType,
    generate_event_batch_id,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.base import EventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlalchemy_compat import db_result
from dagster._serdes import serialize_value
from dagster_shared.record import replace
from sqlalchemy.engine import Connection

BATCH_VARIABLE = "DAGSTER_EVENT_BATCH_SIZE"
BATCH = 1000


def log_evaluations_together(context: dg.OpExecutionContext, evaluations: Sequence[dg.AssetCheckEvaluation]) -> None:
    """As ``context.log_event`` of each, which writes each by itself: an evaluation is the one event that Dagster does not batch."""
    step, batch = context.get_step_execution_context(), generate_event_batch_id()
    for number, evaluation in enumerate(evaluations, 1):
        outcome = "passed." if evaluation.passed else "did not pass."
        about = f" Description: '{evaluation.description}'" if evaluation.description else ""
        event = DagsterEvent.from_step(
            DagsterEventType.ASSET_CHECK_EVALUATION,
            step,
            evaluation,
            f"Asset check '{evaluation.check_name}' on '{evaluation.asset_key.to_user_string()}' {outcome}{about}",
            DagsterEventBatchMetadata(batch, is_end=number == len(evaluations)),
        )
        context._events.append(event)


def store_events_in_batches() -> None:
    """From now on, in this process; does nothing where Dagster's storage has a method of its own."""
    os.environ.setdefault(BATCH_VARIABLE, str(BATCH))
    if "store_event_batch" not in vars(SqliteEventLogStorage):
        SqliteEventLogStorage.store_event_batch = _store_event_batch
        SqliteEventLogStorage._store_asset_check_evaluation_planned = _plan_evaluations


def _store_event_batch(self: SqliteEventLogStorage, events: Sequence[EventLogEntry]) -> None:
    """As ``store_event`` of each, with a transaction for the run's database and one for that of all assets."""
    runs = {event.run_id for event in events}
    if len(runs) != 1 or any(event.dagster_event_type not in ASSET_EVENTS | ASSET_CHECK_EVENTS for event in events):
        EventLogStorage.store_event_batch(self, events)
        return
    inserts = [self.prepare_insert_event(event) for event in events]
    with self.run_connection(*runs) as connection:
        for insert in inserts:
            connection.execute(insert)
    with self.index_transaction() as connection:
        within = cast("SqliteEventLogStorage", _Within(self, connection))
        ids: list[int] = []
        newest: dict[tuple[object, object], tuple[EventLogEntry, int]] = {}
        of_assets: list[tuple[EventLogEntry, int]] = []
        for event, insert in zip(events, inserts, strict=True):
            with db_result(connection, insert) as result:
                ids.append(result.inserted_primary_key[0])
            if event.dagster_event_type in ASSET_CHECK_EVENTS:
                within.store_asset_check_event(event, ids[-1])
                continue
            of_assets.append((event, ids[-1]))
            # The asset's own row says what was last of each kind, so that the others need not be written there.
            of = (event.get_dagster_event().asset_key, event.dagster_event_type)
            newest.pop(of, None)
            newest[of] = of_assets[-1]
        self._store_asset_event_tags(connection, [event for event, _ in of_assets], [number for _, number in of_assets])
        for event, number in newest.values():
            self._store_asset_event(connection, event, number)


def _plan_evaluations(self: SqliteEventLogStorage, event: EventLogEntry, event_id: int | None) -> None:
    """A row for each partition of a check that is planned.

    Dagster writes all rows in one statement, which SQLite refuses from 31,250 partitions on, and the keys of all partitions into each row,
    which is 100 MB for each check of 10,000 partitions.
    """
    planned = event.get_dagster_event().asset_check_planned_data
    keys = list(planned.partitions_subset.get_partition_keys()) if planned.partitions_subset else [None]
    if not keys:
        return
    of_one = event._replace(dagster_event=event.get_dagster_event()._replace(event_specific_data=replace(planned, partitions_subset=None)))
    common = {
        "asset_key": planned.asset_key.to_string(),
        "check_name": planned.check_name,
        "run_id": event.run_id,
        "execution_status": AssetCheckExecutionRecordStatus.PLANNED.value,
        "evaluation_event": serialize_value(of_one),
        "evaluation_event_timestamp": self._event_insert_timestamp(event),
        "evaluation_event_storage_id": event_id,
    }
    with self.index_connection() as connection:
        connection.execute(AssetCheckExecutionsTable.insert(), [{**common, "partition": key} for key in keys])


class _Within:
    """Dagster's storage within a transaction that is open: its methods for checks open connections of their own."""

    def __init__(self, storage: SqliteEventLogStorage, connection: Connection) -> None:
        self._storage, self._connection = storage, connection

    def __getattr__(self, name: str) -> Any:
        member = getattr(type(self._storage), name, None)
        return member.__get__(self) if callable(member) else getattr(self._storage, name)

    @contextmanager
    def index_connection(self) -> Iterator[Connection]:
        yield self._connection
