"""One scan of one container: from the request to the records of its results.

Nothing of a scan counts before its row of ``scan_operations``, which is written last and carries the watermark. A scan that is killed
before leaves nothing that counts.
"""

import contextlib
import datetime
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.anomalies import Anomaly, State, after_scan, capped, findings_of, scanned_places_of
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import format_value, json_value, parse_value
from incremental_assets.core.errors import SyncError
from incremental_assets.core.rules.rule import Rule, Status
from incremental_assets.core.rules.table import TableRule
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.operation_tables import EndedAs, OperationKind
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head
from incremental_assets.project.folders import dagster_home
from incremental_assets.quality.records import OperationResult as Ended
from incremental_assets.quality.records import OperationType, Records, ScanOperation
from incremental_assets.quality.scan import ScanResult, scan
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.runs.locks import record_lock, scan_lock
from incremental_assets.runs.quality.request import ScanRequest, requested_scope, scanned_after
from incremental_assets.runs.quality.summary import ScanSummary


@dataclass(frozen=True)
class ScanOrigin:
    """How a scan was started, for its record.

    ``triggered_by``: a person, a schedule or a sensor; None where that is not known. ``schedule``: the name of the schedule, if there is
    one.
    """

    run_id: str
    triggered_by: str | None = None
    schedule: str | None = None


def scan_container(
    definition: ContainerDefinition,
    instance: dg.DagsterInstance,
    scope: LakeScope,
    request: ScanRequest,
    rules: Sequence[Rule],
    origin: ScanOrigin,
    log: Callable[[str], None],
    report: Callable[[ScanSummary], None],
    *,
    in_sync: bool = False,
) -> ScanSummary | None:
    """Scans the container, records the results, and returns their summary; None where there is no table yet.

    ``rules``: those of the container's rules that are evaluated. ``origin``: how the scan was started. ``log``: writes to the run's log.
    ``report``: called with the summary before the results are recorded; a process that is killed meanwhile has recorded nothing, and the
    scan is made again. ``in_sync``: the scan is part of a sync's run, which does not wait for a scan or profile of another run.

    Raises SyncError; the failure is recorded then.
    """
    container = definition.container
    records = Records(scope.lake, container.key_path[0])
    started = _now()
    operation = ScanOperation(
        id=origin.run_id,
        container=container.label,
        started=started,
        ended=started,
        result=Ended.FAILURE,
        triggered_by=origin.triggered_by,
        schedule=origin.schedule,
        options=json.dumps(request.options(), ensure_ascii=False),
        rules=len(rules),
        identifier=container.signature,
    )
    home = dagster_home()
    scope.operations.begin(OperationKind.SCAN, container.datastore, container.label)
    with contextlib.ExitStack() as held:
        if not in_sync:
            held.enter_context(scan_lock(home, container, origin.run_id, log, instance))
        try:
            head = scope.table(*container.key_path).head()
            if head is None:
                scope.operations.end(OperationKind.SCAN, container.label, EndedAs.SKIPPED, message="there is no table yet")
                return None
            scanned = _scan_rows(definition, instance, scope, request, rules, records, head)
            # The record lock is taken only now. Reading the rows may take hours, in which syncs record what their checks find.
            held.enter_context(record_lock(home, container, origin.run_id, log, instance))
            summary, changes = _judged(definition, request, rules, records, operation, scanned)
            report(summary)
            if not container.options.samples:
                records.forget_values(container.label)
            records.record(summary.operation, summary.result.verdicts, summary.result.failed_rows, changes)
        except SyncError as error:
            records.record(replace(operation, ended=_now(), message=str(error)), (), (), ())
            raise
    log(f"{container.label}: {summary.operation.message}")
    scope.operations.end(
        OperationKind.SCAN,
        container.label,
        EndedAs.WARNING if any(one.status in (Status.FAILED, Status.ERRORED) for one in summary.result.verdicts) else EndedAs.SUCCESS,
        rows=summary.operation.rows,
        partitions=len(summary.result.rows),
        table_version=summary.operation.delta_version,
        message=summary.operation.message,
    )
    return summary


@dataclass(frozen=True)
class _ScannedRows:
    """The results of reading the rows, with the state that they were read in.

    ``head``: the version of the table. ``before``: the watermark of earlier scans. ``known``: the anomalies of the container when the scan
    began, by their ids. ``clock``: ``time.monotonic`` at that moment.
    """

    head: Head
    scan_scope: ScanScope
    result: ScanResult
    before: int | None
    known: Mapping[str, Anomaly]
    clock: float


def _scan_rows(
    definition: ContainerDefinition,
    instance: dg.DagsterInstance,
    scope: LakeScope,
    request: ScanRequest,
    rules: Sequence[Rule],
    records: Records,
    head: Head,
) -> _ScannedRows:
    """Reads the rows and evaluates the rules. This may take hours, during which other runs may scan, sync and record."""
    container, clock = definition.container, time.monotonic()
    before = scanned_to(records, container)
    known = records.anomalies(container.label)
    of_table = {rule.id for rule in container.options.checks if isinstance(rule, TableRule)}
    # Anomalies of rules about the whole table have no partition either. Without this filter they would stand for the rows without
    # identifier.
    noted = {one.partition for one in known.values() if one.is_open and one.rule not in of_table}
    scan_scope = requested_scope(definition, instance, request, head, before, sorted(noted, key=lambda key: key or ""))
    result = scan(
        scope,
        head,
        scan_scope,
        rules,
        now=datetime.datetime.now(datetime.timezone.utc),
        timezone=container.timezone,
        earlier=records,
        anomalies=known.values(),
    )
    return _ScannedRows(head, scan_scope, result, before, known, clock)


def _judged(
    definition: ContainerDefinition,
    request: ScanRequest,
    rules: Sequence[Rule],
    records: Records,
    operation: ScanOperation,
    scanned: _ScannedRows,
) -> tuple[ScanSummary, list[Anomaly]]:
    """The summary of the scan, and the anomalies that it changes.

    The caller holds the record lock, so that no other run records meanwhile.
    """
    container, scan_scope, before = definition.container, scanned.scan_scope, scanned.before
    # A sync that ran meanwhile may have written a newer version, which its checks have judged already. Verdicts on those rules and
    # partitions are outdated and left out.
    result = scanned.result.without(records.judged(container.label, scanned.result.version, operation.started))
    resolve = request.auto_resolve or container.options.auto_resolve
    # The anomalies are read again under the lock: a person may have changed one since the scan began. A change that is made from now on is
    # later than those of this scan.
    now = _now()
    known = records.anomalies(container.label)
    if not container.options.samples:
        known = {id: replace(one, value=None) for id, one in known.items()}
    by_id = {rule.id: rule for rule in rules}
    shown = by_id if container.options.samples else {}
    findings = capped(findings_of(result.verdicts, result.failed_rows, shown), known, container.label)
    # Rows for which another run has opened an anomaly meanwhile were not looked up by their keys. So this scan knows nothing of them and
    # must not resolve their anomalies: their rules and partitions count as not scanned.
    open_before = {id for id, one in scanned.known.items() if one.is_open}
    new = {(one.rule, one.partition) for id, one in known.items() if one.key is not None and one.is_open and id not in open_before}
    scanned_places = scanned_places_of(result.verdicts) - new
    # The failed rows were needed to tell which of them have an anomaly. Without `samples` they are not stored.
    if not container.options.samples:
        result = replace(result, failed_rows=())
    changes = after_scan(known, scanned_places, findings, container.label, operation.id, now, resolve, result.moved)
    all_rules = len(rules) == len(container.options.checks)
    # A scan of some of the rules does not move the watermark: the others were not evaluated.
    after = scanned_after(container, scanned.head, scan_scope, before) if all_rules else before
    rows = sum(result.rows.values())
    failed = {v.rule for v in result.verdicts if v.status is Status.FAILED}
    errored = {v.rule for v in result.verdicts if v.status is Status.ERRORED}
    operation = replace(
        operation,
        ended=_now(),
        result=Ended.SUCCESS,
        message=_message(rows, len(result.rows), len(rules), failed, errored, result.passes),
        delta_version=result.version,
        passes=result.passes,
        rows=rows,
        failed_rules=len(failed),
        watermark=None if after is None or container.cursor_type is None else format_value(container.cursor_type, after),
    )
    now_open = known | {change.id: change for change in changes}
    cursor_type = container.cursor_type
    summary = ScanSummary(
        container=container.label,
        operation=operation,
        result=result,
        rules=by_id,
        opened=sum(1 for change in changes if change.id not in known),
        reopened=sum(1 for change in changes if change.id in known and known[change.id].state is State.RESOLVED),
        resolved=sum(1 for change in changes if change.state is State.RESOLVED),
        still_open=sum(1 for anomaly in now_open.values() if anomaly.is_open),
        previous=None if cursor_type is None else json_value(cursor_type, before),
        new=None if cursor_type is None else json_value(cursor_type, after),
        seconds=time.monotonic() - scanned.clock,
    )
    return summary, changes


def scanned_to(records: Records, container: Container, type: OperationType = OperationType.SCAN) -> int | None:
    """The watermark of the container's scans (or profiles).

    None where there is none, or where it belongs to another identifier than the container has now.
    """
    found = records.scan_watermark(container.label, type)
    if found is None or container.cursor_type is None or found.identifier != container.signature:
        return None
    return parse_value(container.cursor_type, found.text)


def _message(rows: int, partitions: int, rules: int, failed: set[str], errored: set[str], passes: int) -> str:
    """The results in words, for the record and the log."""
    asked = f"{counted(rules, 'rule')} in {counted(passes, 'pass', 'passes')}"
    parts = [f"{counted(rows, 'row')} of {counted(partitions, 'partition')} by {asked}"]
    parts.append(f"broken: {', '.join(sorted(failed))}" if failed else "none is broken")
    if errored:
        parts.append(f"could not be asked: {', '.join(sorted(errored))}")
    return "; ".join(parts)


def _now() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000
