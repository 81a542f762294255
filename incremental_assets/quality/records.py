"""The records of scans, profiles and audits: five Delta tables of a datastore, under ``<lake>/<datastore key>/_quality/``.

The tables are **append-only**, because blind appends never conflict in Delta. Scans of several containers, on several hosts, and changes by
people therefore need no lock. Delta has no transaction over several tables, so a scan appends its findings first and its row of
``scan_operations`` last. That row is the commit point: rows of the other tables only count if their ``recording`` is in
``scan_operations``. A scan that is killed half way leaves rows that do not count; ``tidy`` deletes them.

All five tables are partitioned by ``container`` (its label, ``shop/orders``) and have the columns ``recording`` (the id of one call of
``Records.record``; NULL for a change by a person), ``operation_id`` (the id of the Dagster run; a run that was tried again has several
recordings, of which the newest counts) and ``recorded_at``. Times are in UTC.

- ``scan_operations`` has a row for each recording: ``type`` (scan, profile), ``started``, ``ended``, ``result`` (success, failure),
  ``message``, ``triggered_by``, ``schedule``, ``options`` (JSON), ``delta_version`` (of the container's table), ``passes`` (how many times
  its rows were read), ``rows`` (how many were scanned), ``rules`` and ``failed_rules`` (how many), ``watermark`` (exact text),
  ``identifier`` (the signature of the incremental identifier that the watermark is about).
- ``check_metrics`` has a row for each rule and partition: ``status`` (passed, failed, errored, unasserted), ``severity``, ``blocking``,
  ``rows`` (of the partition), ``asserted`` (how many of them the filter keeps), ``failed`` (NULL for a rule about a number), ``value``,
  ``message``, ``asks`` (a digest of what was measured).
- ``failed_rows`` has the rows that a scan keeps: ``partition``, ``key`` (JSON of the key columns), ``row`` (JSON of the row as it was),
  ``rules`` (those that it broke).
- ``anomalies`` has a row for each change of an anomaly: ``id`` and all other fields of ``core.anomalies.Anomaly``. Of the rows that count,
  the newest one is the anomaly's state.

- ``audits`` has a row for each audit, with NULL as its ``recording``: ``rows`` (of the source), ``rejected`` (rows of files that are kept
  beside the table), ``partitions_checked`` (how many), ``partitions_different`` (their keys), ``missing``, ``stale``, ``surplus`` (how many
  rows), ``examples`` (keys, as JSON), ``seconds``.

How to query them in SQL: docs/anomalies.md.
"""

import json
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.anomalies import Anomaly, State, fingerprint
from incremental_assets.core.rules.rule import FailedRow, Severity, Status, Verdict
from incremental_assets.core.stored_format import known_value
from incremental_assets.delta import maintenance
from incremental_assets.delta.append_only import AppendOnly
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import QUALITY_FOLDER
from incremental_assets.delta.private import keep_private
from incremental_assets.delta.table import LakeTable

BROKEN_OFF_AFTER = timedelta(days=1)
"""The age from which a recording without its row of ``scan_operations`` counts as abandoned.

It is far longer than a scan takes to record its findings, and longer than the clocks of hosts may differ.
"""
_TEXT, _COUNT, _TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_ORIGIN: list[Any] = [("container", _TEXT), ("recording", _TEXT), ("operation_id", _TEXT), ("recorded_at", _TIME)]
OPERATIONS, CHECK_METRICS, FAILED_ROWS, ANOMALIES = "scan_operations", "check_metrics", "failed_rows", "anomalies"
AUDITS = "audits"
_SCHEMAS = {
    OPERATIONS: pa.schema(
        [
            *_ORIGIN, ("type", _TEXT), ("started", _TIME), ("ended", _TIME), ("result", _TEXT), ("message", _TEXT), ("triggered_by", _TEXT),
            ("schedule", _TEXT), ("options", _TEXT), ("delta_version", _COUNT), ("passes", _COUNT), ("rows", _COUNT), ("rules", _COUNT),
            ("failed_rules", _COUNT), ("watermark", _TEXT), ("identifier", _TEXT),
        ]
    ),
    CHECK_METRICS: pa.schema(
        [
            *_ORIGIN, ("rule", _TEXT), ("partition", _TEXT), ("status", _TEXT), ("severity", _TEXT), ("blocking", pa.bool_()),
            ("rows", _COUNT), ("asserted", _COUNT), ("failed", _COUNT), ("value", pa.float64()), ("message", _TEXT), ("asks", _TEXT),
        ]
    ),
    FAILED_ROWS: pa.schema([*_ORIGIN, ("partition", _TEXT), ("key", _TEXT), ("row", _TEXT), ("rules", pa.list_(_TEXT))]),
    ANOMALIES: pa.schema(
        [
            *_ORIGIN, ("id", _TEXT), ("rule", _TEXT), ("partition", _TEXT), ("key", _TEXT), ("rows", _COUNT), ("message", _TEXT),
            ("severity", _TEXT), ("state", _TEXT), ("first_seen", _TIME), ("changed_at", _TIME), ("changed_by", _TEXT), ("comment", _TEXT),
            ("value", _TEXT),
        ]
    ),
    AUDITS: pa.schema(
        [
            *_ORIGIN, ("triggered_by", _TEXT), ("delta_version", _COUNT), ("rows", _COUNT), ("partitions_checked", _COUNT),
            ("partitions_different", pa.list_(_TEXT)), ("missing", _COUNT), ("stale", _COUNT), ("surplus", _COUNT), ("examples", _TEXT),
            ("seconds", pa.float64()), ("message", _TEXT), ("rejected", _COUNT),
        ]
    ),
}  # fmt: skip


_OF_WATERMARK = ["recorded_at", "recording", "operation_id", "type", "result", "watermark", "identifier"]
_NEWEST_FIRST = [("recorded_at", "descending"), ("recording", "descending")]
_ROWS_AT_ONCE = 100
"""How many rows of ``scan_operations`` are turned into Python objects at a time."""

_Kind = TypeVar("_Kind", Verdict, Anomaly, "ScanOperation")


@dataclass(frozen=True)
class LastAudit:
    """An audit of a container: when it was recorded, and how many partitions were different."""

    at: datetime
    different: int


class OperationType(str, Enum):
    """The type of an operation. Scans and profiles are recorded alike, and each type has a watermark of its own."""

    SCAN = "scan"
    PROFILE = "profile"


class OperationResult(str, Enum):
    """The result of an operation, not of its rules: a scan that finds broken rules has succeeded."""

    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True)
class ScanOperation:
    """One scan or profile of one container. Fields that are not described here are described in the module docstring.

    ``id`` is the id of the Dagster run, which may scan several containers. ``started`` and ``ended`` are microseconds since 1970 UTC.
    ``watermark`` is the container's scan (or profile) watermark after this operation; None if the operation does not set one.
    """

    id: str
    container: str
    started: int
    ended: int
    result: OperationResult
    type: OperationType = OperationType.SCAN
    message: str = ""
    triggered_by: str | None = None
    schedule: str | None = None
    options: str = "{}"
    delta_version: int | None = None
    passes: int = 0
    rows: int = 0
    rules: int = 0
    failed_rules: int = 0
    watermark: str | None = None
    identifier: str | None = None


@dataclass(frozen=True)
class ScanWatermark:
    """A stored watermark: ``text`` is its exact text. It only counts for the incremental identifier with the signature ``identifier``."""

    text: str
    identifier: str | None


class Records:
    """The records of one datastore. All methods raise LakeError if the tables cannot be read or written."""

    def __init__(self, lake: str, datastore_key: str) -> None:
        self._folder = LakeTable(lake, datastore_key, QUALITY_FOLDER).url
        self.tables = {name: AppendOnly(LakeTable(lake, datastore_key, QUALITY_FOLDER, name), schema) for name, schema in _SCHEMAS.items()}

    # ---------------------------------------------------------------- writing
    def record(
        self, operation: ScanOperation, verdicts: Iterable[Verdict], failed_rows: Iterable[FailedRow], changes: Iterable[Anomaly]
    ) -> None:
        """Record an operation with all that it found; if this fails half way, nothing of it counts.

        ``changes`` must be made from the result of ``anomalies`` just before, so that a change by a person in the meantime is not
        overwritten. If the same operation is recorded again, the new recording replaces the old one, except that changes of anomalies
        remain. Raises ValueError if a change belongs to another operation.
        """
        changes = list(changes)
        if any((one.container, one.operation) != (operation.container, operation.id) for one in changes):
            raise ValueError(f"changes of another scan than {operation.id} of {operation.container}")
        newest = max(
            self._read(OPERATIONS, operation.container, columns=["recorded_at"])["recorded_at"].cast(_COUNT).to_pylist(), default=0
        )
        origin = {
            "container": operation.container,
            "recording": uuid.uuid4().hex,
            "operation_id": operation.id,
            # The newest recording must have the greatest time, even if the clock was set back.
            "recorded_at": max(_now(), newest + 1),
        }
        # The order matters: the row of ``scan_operations`` is the commit point, and comes last.
        parts = {FAILED_ROWS: failed_rows, CHECK_METRICS: verdicts, ANOMALIES: changes, OPERATIONS: [operation]}
        full = [name for name, rows in parts.items() if self._append(name, [{**_plain(row), **origin} for row in rows])]
        for name in full:
            self.tables[name].compact()

    def change(self, anomaly: Anomaly) -> None:
        """Record a change that a person made to an anomaly (``core.anomalies.by_person``). It counts at once, as it has no recording.

        Raises ValueError for a change by a scan.
        """
        if anomaly.operation is not None:
            raise ValueError("changes by a scan are recorded with the scan")
        if self._append(ANOMALIES, [{**_plain(anomaly), "recording": None, "operation_id": None, "recorded_at": _now()}]):
            self.tables[ANOMALIES].compact()

    def record_audit(self, container: str, run_id: str, summary: Mapping[str, Any], message: str, triggered_by: str, at: int) -> None:
        """Record an audit. It counts at once. ``summary``: see ``core.audit.summary_of``; ``at``: microseconds since 1970 UTC."""
        row = {
            **summary, "examples": json.dumps(summary["examples"], ensure_ascii=False), "message": message, "triggered_by": triggered_by,
            "container": container, "recording": None, "operation_id": run_id, "recorded_at": at,
        }  # fmt: skip
        if self._append(AUDITS, [row]):
            self.tables[AUDITS].compact()

    def adopt(self, others: "Records", before: str, label: str) -> None:
        """Append the records of a container that has another label from now on: those of ``others`` under the label ``before``.

        The id of an anomaly is computed from the label, so that it is another one. A table that has records of the new label is left as it
        is: an earlier attempt has appended them.
        """
        for name in (FAILED_ROWS, CHECK_METRICS, ANOMALIES, AUDITS, OPERATIONS):  # the last one makes the others count
            if len(self._read(name, label, columns=["container"])):
                continue
            rows = [{**row, "container": label} for row in _listed(others._read(name, before))]
            if name == ANOMALIES:
                rows = [{**row, "id": fingerprint(label, row["rule"], row["partition"], row["key"])} for row in rows]
            self._append(name, rows)

    # ---------------------------------------------------------------- reading
    def anomalies(self, container: str | None = None) -> dict[str, Anomaly]:
        """Return the current state of each anomaly by its id, closed ones included. ``container`` None: of all containers."""
        rows = self._changes(container)
        last = dict(zip(rows["id"].to_pylist(), range(len(rows)), strict=True))
        return {row["id"]: _anomaly(row) for row in _listed(rows.take(pa.array(last.values(), _COUNT)))}

    def history(self, id: str) -> list[Anomaly]:
        """Return the changes of an anomaly, oldest first; empty if there is no anomaly with this id."""
        changes: list[Anomaly] = []
        for one in map(_anomaly, _listed(self._changes(None, ("id", [id])))):
            # An operation that was recorded again has repeated its changes; a repeated one is left out.
            if one.operation is None or not changes or not _is_same_step(changes[-1], one):
                changes.append(one)
        return changes

    def operations(self, container: str | None = None) -> list[ScanOperation]:
        """Return the operations, newest first. An operation that was recorded again is returned once, as it was recorded last."""
        rows = self._read(OPERATIONS, container).sort_by(_NEWEST_FIRST)
        newest: dict[tuple[str, str], ScanOperation] = {}
        for row in _listed(rows):
            newest.setdefault((row["container"], row["operation_id"]), _as(ScanOperation, row, id=row["operation_id"]))
        return list(newest.values())

    def last_audits(self) -> dict[str, LastAudit]:
        """Return the newest audit of each container that was audited, by the container's label."""
        rows = self._read(AUDITS, None, columns=["container", "recorded_at", "partitions_different"]).sort_by("recorded_at")
        return {row["container"]: LastAudit(row["recorded_at"], len(row["partitions_different"] or ())) for row in rows.to_pylist()}

    def scan_watermark(self, container: str, type: OperationType = OperationType.SCAN) -> ScanWatermark | None:
        """Return the watermark of the newest successful operation of this type that has one; None if there is none."""
        rows = self._read(OPERATIONS, container, columns=_OF_WATERMARK).sort_by(_NEWEST_FIRST)
        seen: set[str] = set()
        # The first row usually has a watermark already, and there may be a hundred thousand rows, so they are converted in small steps.
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            for row in rows.slice(at, _ROWS_AT_ONCE).to_pylist():
                again = row["operation_id"] in seen
                seen.add(row["operation_id"])
                if (
                    not again
                    and (row["type"], row["result"]) == (type.value, OperationResult.SUCCESS.value)
                    and row["watermark"] is not None
                ):
                    return ScanWatermark(row["watermark"], row["identifier"])
        return None

    def judged(self, container: str, newer_than: int, since: int) -> set[tuple[str, str | None]]:
        """Return the pairs of (rule id, partition key) that newer scans have judged.

        Newer are scans of a table version above ``newer_than`` that ended at ``since`` (microseconds since 1970 UTC) or later.
        """
        newer = {
            one.id
            for one in self.operations(container)
            if one.type is OperationType.SCAN and one.ended >= since and one.delta_version is not None and one.delta_version > newer_than
        }
        if not newer:
            return set()
        rows = self._read(CHECK_METRICS, container).filter(_is_in("recording", self.counting(container)) & _is_in("operation_id", newer))
        return set(zip(rows["rule"].to_pylist(), rows["partition"].to_pylist(), strict=True))

    def metrics(
        self,
        container: str,
        rules: Collection[str],
        partitions: Collection[str | None],
        statuses: Collection[Status] = (Status.PASSED, Status.FAILED),
    ) -> dict[tuple[str, str | None], Verdict]:
        """Return the newest verdict with one of the ``statuses``, for each of the rules and partitions that has one."""
        if not rules:
            return {}
        counting = self.counting(container)
        where = [("rule", sorted(rules)), ("status", [status.value for status in statuses])]
        # SQL's ``IN`` never matches NULL, so the keys are only part of the query if None is not among them. The exact filter is applied
        # below.
        named = [key for key in partitions if key is not None]
        if len(named) == len(partitions):
            where.append(("partition", named))
        rows = self._read(CHECK_METRICS, container, *where)
        for column, wanted in (("recording", counting), ("partition", partitions)):
            rows = rows.filter(_is_in(column, wanted))
        rows = rows.sort_by([("recorded_at", "ascending"), ("recording", "ascending")])
        last = {place: row for row, place in enumerate(zip(rows["rule"].to_pylist(), rows["partition"].to_pylist(), strict=True))}
        return {(row["rule"], row["partition"]): _as(Verdict, row) for row in _listed(rows.take(pa.array(last.values(), _COUNT)))}

    # ---------------------------------------------------------------- upkeep
    def forget_values(self, container: str) -> None:
        """Remove ``value`` from all changes of the container's anomalies, as it keeps no samples any more.

        If another process changes the table at the same moment, this is left for the next scan.
        """
        with maintenance.next_time_if_moved():
            self.tables[ANOMALIES].blank("value", ("container", [container]))

    def tidy(self) -> int:
        """Delete what abandoned scans have left, join small files, and return how many rows were deleted.

        If another process changes a table at the same moment, that part is left for the next run.
        """
        removed, before = 0, datetime.now(timezone.utc) - BROKEN_OFF_AFTER
        for name, table in self.tables.items():
            with maintenance.next_time_if_moved():
                if name != OPERATIONS:
                    removed += self._remove_broken_off(name, before)
                maintenance.tidy(table.table)
        return removed

    def _remove_broken_off(self, name: str, before: datetime) -> int:
        """Delete the rows of recordings that are older than ``before`` and were never finished; return how many."""
        rows = self._read(name, None, columns=["recording", "recorded_at"])
        old = rows.filter(pc.field("recorded_at") < before)["recording"].drop_null().unique()
        # The finished recordings are read after the rows: a recording that was finished in between must not look unfinished.
        left = set(old.to_pylist()) - self.counting(None)
        delta = self.tables[name].opened_to_change()
        if delta is None or not left:
            return 0
        # The ids are hexadecimal digits (``uuid4``), so they need no escaping.
        listed = ", ".join(f"'{recording}'" for recording in sorted(left))
        with place_errors(self.tables[name].table.url):
            return int(delta.delete(f"recording IN ({listed})")["num_deleted_rows"] or 0)

    # ---------------------------------------------------------------- the tables
    def _append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Append rows to a table, and return whether its files should be joined now."""
        if rows:
            with place_errors(self._folder):
                # The records hold values of the data, so only their owner may read the folder.
                keep_private(self._folder)
        return bool(rows) and self.tables[name].append(rows)

    def _read(self, name: str, container: str | None, *more: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows of a table, whether they count or not. ``more`` are pairs of (column, allowed values)."""
        return self.tables[name].read(*([] if container is None else [("container", [container])]), *more, columns=columns)

    def counting(self, container: str | None = None) -> set[str]:
        """Return the ids of the recordings that were finished. Only their rows count."""
        return set(self._read(OPERATIONS, container, columns=["recording"])["recording"].to_pylist())

    def _changes(self, container: str | None, *more: tuple[str, Sequence[str]]) -> pa.Table:
        """Return the rows of ``anomalies`` that count, oldest first."""
        # This is read before the rows: a recording in it was finished by then, so that all its rows are read below.
        counting = self.counting(container)
        rows = self._read(ANOMALIES, container, *more)
        rows = rows.filter(pc.field("recording").is_null() | _is_in("recording", counting))
        rows = rows.append_column("by_person", rows["recording"].is_null())
        # Of two changes in the same microsecond, neither knew of the other. The person's sorts last and counts: a scan can repeat its
        # change, a person does not.
        return rows.sort_by([(name, "ascending") for name in ("changed_at", "by_person", "recorded_at", "recording")])


def _now() -> int:
    """Return the time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def _is_in(column: str, values: Collection[str | None]) -> pc.Expression:
    return pc.field(column).isin(pa.array(list(values), _TEXT))


def _plain(value: Verdict | FailedRow | Anomaly | ScanOperation) -> dict[str, Any]:
    """Return the fields of a dataclass as a row; enums as their values."""
    values = {f.name: getattr(value, f.name) for f in fields(value)}
    return {name: one.value if isinstance(one, Enum) else one for name, one in values.items()}


def _listed(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, with times as microseconds since 1970 UTC."""
    for position, one in enumerate(rows.schema):
        if one.type == _TIME:
            rows = rows.set_column(position, one.name, rows.column(position).cast(_COUNT))
    return rows.to_pylist()


_ENUMS: dict[str, type[Enum]] = {"severity": Severity, "status": Status, "state": State, "result": OperationResult, "type": OperationType}


def _as(kind: type[_Kind], row: Mapping[str, Any], **more: Any) -> _Kind:
    """Make a dataclass from a row. A NULL stands for the field's default, as tables of an earlier version may lack columns.

    Raises NewerFormat for a value that only a newer version can have written.
    """
    own = {f.name: row[f.name] for f in fields(kind) if f.name in row and (row[f.name] is not None or f.default is MISSING)}
    what = f"{row['container']}: a record of its scans"
    values = {name: known_value(_ENUMS[name], value, what) if name in _ENUMS else value for name, value in own.items()}
    return kind(**{**values, **more})


def _anomaly(row: Mapping[str, Any]) -> Anomaly:
    return _as(Anomaly, row, operation=row["operation_id"])


def _is_same_step(one: Anomaly, other: Anomaly) -> bool:
    """Whether both changes come from the same operation and lead to the same state."""
    return (one.operation, one.state, one.partition, one.severity) == (other.operation, other.state, other.partition, other.severity)
