"""Writes the events of a run's partitions to Dagster's SQLite databases in batches.

A run of 1,000 partitions has 2,000 events, and one more for each rule and partition. Dagster's SQLite storage creates an engine and a
transaction for each of them, twice: that takes 40 ms of processor time each, and minutes for the run. Where ``DAGSTER_EVENT_BATCH_SIZE`` is
set, Dagster passes such events to its storage in batches. A storage may write a batch at once; the SQLite storage writes its events one by
one (docs/decisions/events-in-batches.md).
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
"""The environment variable by which Dagster limits the number of events of a batch."""
BATCH = 1000
"""The number of events of a batch where the environment says nothing."""


def log_evaluations_together(context: dg.OpExecutionContext, evaluations: Sequence[dg.AssetCheckEvaluation]) -> None:
    """Logs the evaluations as one batch. ``context.log_event`` would write each by itself: Dagster does not batch this type of event."""
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
        # `log_event` appends to the same list, and so the order of the op's events is kept.
        context._events.append(event)


def log_materializations_together(context: dg.OutputContext, materializations: Sequence[dg.AssetMaterialization]) -> None:
    """Logs the materializations as one batch. ``context.log_event`` would write each by itself."""
    batch = generate_event_batch_id()
    for number, one in enumerate(materializations, 1):
        about = DagsterEventBatchMetadata(batch, is_end=number == len(materializations))
        # `log_event` appends to the same list, and so the order of the output's events is kept.
        context._events.append(DagsterEvent.asset_materialization(context.step_context, one, about))


def store_events_in_batches() -> None:
    """Makes Dagster's SQLite storage write events in batches, in this process. Does nothing where a storage of Dagster has the method."""
    os.environ.setdefault(BATCH_VARIABLE, str(BATCH))
    if "store_event_batch" not in vars(SqliteEventLogStorage):
        SqliteEventLogStorage.store_event_batch = _store_event_batch
        SqliteEventLogStorage._store_asset_check_evaluation_planned = _plan_evaluations


def _store_event_batch(self: SqliteEventLogStorage, events: Sequence[EventLogEntry]) -> None:
    """Stores the events as ``store_event`` would store each, with one connection to the run's database and one transaction on the index.

    The index is the database of all runs, which has the events of assets and checks. Batches with other events, or of several runs, are
    left to Dagster's own method.
    """
    runs = {event.run_id for event in events}
    if len(runs) != 1 or any(event.dagster_event_type not in ASSET_EVENTS | ASSET_CHECK_EVENTS for event in events):
        EventLogStorage.store_event_batch(self, events)
        return
    inserts = [self.prepare_insert_event(event) for event in events]
    # Dagster stores single events where a batch raises. The index is written first, because all runs share it and it may be locked: then
    # nothing of the batch is stored yet, and no event is stored twice.
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
            # The row of an asset only has its last event of each type. So only the newest of each asset and type is written there.
            of = (event.get_dagster_event().asset_key, event.dagster_event_type)
            newest.pop(of, None)
            newest[of] = of_assets[-1]
        self._store_asset_event_tags(connection, [event for event, _ in of_assets], [number for _, number in of_assets])
        for event, number in newest.values():
            self._store_asset_event(connection, event, number)
    with self.run_connection(*runs) as connection:
        for insert in inserts:
            connection.execute(insert)


def _plan_evaluations(self: SqliteEventLogStorage, event: EventLogEntry, event_id: int | None) -> None:
    """Writes a row for each partition for which an evaluation of a check is planned. It replaces Dagster's own method.

    Dagster's method writes all rows in one statement, which SQLite refuses from 31,250 partitions on. It also stores the keys of all
    partitions in each row, which is 100 MB for each check of 10,000 partitions.
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
    """Dagster's storage, with methods that use a transaction which is already open.

    The storage's own methods for checks open a connection of their own each time.
    """

    def __init__(self, storage: SqliteEventLogStorage, connection: Connection) -> None:
        self._storage, self._connection = storage, connection

    def __getattr__(self, name: str) -> Any:
        """Returns a method of the storage bound to this object, so that it calls ``index_connection`` below, or another attribute of it."""
        member = getattr(type(self._storage), name, None)
        return member.__get__(self) if callable(member) else getattr(self._storage, name)

    @contextmanager
    def index_connection(self) -> Iterator[Connection]:
        yield self._connection
