"""Records operations that have ended, and watermarks that were written, in the tables ``_operations`` of the lake.

No sync fails because of these tables: a row that cannot be appended is lost, with a warning that says so.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import dagster as dg

from incremental_assets.core.container import Container
from incremental_assets.core.stored_format import product_version
from incremental_assets.delta.operation_tables import EndedAs, Operation, OperationKind, OperationTables, Rows
from incremental_assets.delta.run_operations import BegunOperation, RunOperations
from incremental_assets.runs.records.event_log import INTERRUPTED, failure_of, is_interrupted
from incremental_assets.runs.records.run_tags import schedule_of, started_by

log = logging.getLogger(__name__)
WAIT_SECONDS = 10.0
"""How long a row waits for others, at most, in a block of ``recorded_together``. So little is lost where the process is killed."""
Warn = Callable[[str], object]


@dataclass
class _Waiting:
    """The rows of this process that wait to be appended, by lake. ``blocks``: how many blocks of ``recorded_together`` are open.

    ``guard`` is held while the fields are changed, and ``appending`` while rows are appended.
    """

    rows: dict[str, Rows] = field(default_factory=dict[str, Rows])
    blocks: int = 0
    timer: threading.Timer | None = None
    guard: threading.Lock = field(default_factory=threading.Lock)
    appending: threading.Lock = field(default_factory=threading.Lock)


_waiting = _Waiting()


@contextlib.contextmanager
def recorded_together() -> Iterator[None]:
    """Within the block, the rows of several operations are appended in one commit: after some seconds, and when the block ends."""
    with _waiting.guard:
        _waiting.blocks += 1
    try:
        yield
    finally:
        with _waiting.guard:
            _waiting.blocks -= 1
        append_waiting()


def record(lake: str, rows: Rows, warn: Warn = log.warning) -> None:
    """Appends the rows to the tables of the lake, at once or together with others. ``warn``: is called with a message if that fails."""
    if not rows:
        return
    with _waiting.guard:
        waits = _waiting.blocks > 0
        if waits:
            _waiting.rows[lake] = _waiting.rows.get(lake, Rows()) + rows
            if _waiting.timer is None:
                _waiting.timer = threading.Timer(WAIT_SECONDS, append_waiting)
                _waiting.timer.daemon = True
                _waiting.timer.start()
    if not waits:
        _append(lake, rows, warn)


def append_waiting() -> None:
    """Appends the rows that wait."""
    with _waiting.appending:
        with _waiting.guard:
            found, _waiting.rows = _waiting.rows, {}
            if _waiting.timer is not None:
                _waiting.timer.cancel()
                _waiting.timer = None
        for lake, rows in found.items():
            _append(lake, rows, log.warning)


def _append(lake: str, rows: Rows, warn: Warn) -> None:
    try:
        OperationTables(lake).append(rows)
    except Exception as error:  # noqa: BLE001 whatever it is, the operations themselves have ended, and must not seem to have failed
        what = ", ".join(dict.fromkeys(one.container or one.datastore for one in (*rows.operations, *rows.watermarks)))
        warn(f"{what}: the tables _operations of the lake lack a row of what was done; nothing else is missing. {error}")


def record_unplanned(lake: str, container: Container, message: str, seconds: float, started_by: str) -> None:
    """Records a sync that has failed before it had a run, as it could not be planned."""
    operations = RunOperations()
    operations.add(OperationKind.SYNC, container, EndedAs.FAILURE, seconds, message=message, triggered_by=started_by)
    record(lake, Rows([replace(one, code_version=product_version()) for one in operations.ended]))


# ---------------------------------------------------------------------- the operations of a run
def record_run(context: dg.InitResourceContext, lake: str, operations: RunOperations) -> None:
    """Records the operations of a run that ends now. Those that have not ended themselves have failed, or were interrupted."""
    run, instance = context.run, context.instance
    if run is None or instance is None:
        return
    failed = _failures(instance, run.run_id, operations) if operations.unfinished else []
    warn = context.log.warning if context.log else log.warning
    record(lake, rows_of(run, operations, failed), warn)


def rows_of(run: dg.DagsterRun, operations: RunOperations, failed: list[Operation] | None = None) -> Rows:
    """The rows of the run's operations, with what is known of the run. ``failed``: further operations."""
    common = {
        "run_id": run.run_id,
        "triggered_by": started_by(run.tags),
        "schedule": schedule_of(run.tags),
        "code_version": product_version(),
    }
    ended = [replace(one, **common) for one in (*operations.ended, *(failed or ()))]
    return Rows(ended, [replace(one, run_id=run.run_id) for one in operations.watermarks])


def _failures(instance: dg.DagsterInstance, run_id: str, operations: RunOperations) -> list[Operation]:
    kinds = {dg.DagsterEventType.STEP_FAILURE}
    events = [entry.dagster_event for entry in instance.all_logs(run_id, of_type=kinds) if entry.dagster_event is not None]
    return [_failed(one, [event for event in events if one.step is None or event.step_key == one.step]) for one in operations.unfinished]


def _failed(begun: BegunOperation, events: list[dg.DagsterEvent]) -> Operation:
    """The operation, which has failed. ``events``: the failures of its step."""
    if is_interrupted(events):
        return begun.ended(EndedAs.ABORTED, message=INTERRUPTED)
    return begun.ended(EndedAs.FAILURE, message=failure_of(events)[1] or "its run ended before it had ended itself")
