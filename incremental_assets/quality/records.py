"""What scans leave behind, in four Delta tables of a datastore under ``<lake>/<datastore key>/_quality/``.

Belongs here: appending to them, reading what counts, clearing what does not; all through delta-rs, without Spark. Does not belong: what
becomes of an anomaly (``core.anomalies``), or how a verdict is reached (``quality.scan``).

**Only appended to**, as blind appends never conflict in Delta: scans of several containers, on several hosts, and people's changes go side
by side. What a scan found is written first, its row of ``scan_operations`` last: that row is the commit point, and rows of other tables
count only if their ``recording`` is in it. So a scan that is killed half way leaves nothing that counts; ``tidy`` removes it.

All four are partitioned by ``container`` (its label, ``shop/orders``) and have ``recording`` (of one call of ``Records.record``; NULL for
what a person did), ``operation_id`` (Dagster's run; one that was tried again has several recordings, and the newest counts) and
``recorded_at``. Times are in UTC.

- ``scan_operations``: ``type`` (scan, profile), ``started``, ``ended``, ``result`` (success, failure), ``message``, ``triggered_by``,
  ``schedule``, ``options`` (JSON), ``delta_version`` (of the container's table), ``passes`` (how many times its rows were read), ``rows``
  (scanned), ``rules`` and ``failed_rules`` (how many), ``watermark`` (exact text), ``identifier`` (the signature of what it is of).
- ``check_metrics``, a row for each rule and partition: ``status`` (passed, failed, errored, unasserted), ``severity``, ``blocking``,
  ``rows`` (of the partition), ``asserted`` (of these, what the filter left), ``failed`` (NULL for a rule about a number), ``value``,
  ``message``.
- ``failed_rows``, as many as a scan keeps: ``partition``, ``key`` (JSON of the columns that tell rows apart), ``row`` (JSON of the row as
  it was), ``rules`` (those it broke).
- ``anomalies``, a row for each change of one: ``id`` and all else of ``core.anomalies.Anomaly``. Of those that count, the newest
  is its state.

How to query them in SQL: docs/anomalies.md.
"""

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.anomalies import Anomaly, State
from incremental_assets.core.rules import Severity
from incremental_assets.delta import maintenance
from incremental_assets.delta.append_only import AppendOnly
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import QUALITY_FOLDER
from incremental_assets.delta.private import keep_private
from incremental_assets.delta.table import LakeTable
from incremental_assets.quality.verdict import FailedRow, Status, Verdict

BROKEN_OFF_AFTER = timedelta(days=1)
"""How old a recording without its row of ``scan_operations`` is when nobody is writing it any more. Clocks of hosts may differ by less."""
_TEXT, _COUNT, _TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_ORIGIN: list[Any] = [("container", _TEXT), ("recording", _TEXT), ("operation_id", _TEXT), ("recorded_at", _TIME)]
OPERATIONS, CHECK_METRICS, FAILED_ROWS, ANOMALIES = "scan_operations", "check_metrics", "failed_rows", "anomalies"
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
        ]
    ),
}  # fmt: skip


_OF_WATERMARK = ["recorded_at", "recording", "operation_id", "type", "result", "watermark", "identifier"]
_NEWEST_FIRST = [("recorded_at", "descending"), ("recording", "descending")]
_ROWS_AT_ONCE = 100

_Kind = TypeVar("_Kind", Verdict, Anomaly, "ScanOperation")


class OperationType(str, Enum):
    """Both are recorded alike, and have a watermark of their own each."""

    SCAN = "scan"
    PROFILE = "profile"


class Result(str, Enum):
    """Of a scan, not of its rules: one that found failures has succeeded."""

    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True)
class ScanOperation:
    """A scan of one container; what is not told here is told of the columns of ``scan_operations``.

    ``id``: Dagster's run, which may scan several containers. ``started``, ``ended``: microseconds since 1970 UTC. ``watermark``: how far
    the container is scanned now; None where this scan has nothing to say of that.
    """

    id: str
    container: str
    started: int
    ended: int
    result: Result
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
    """``text``: exactly as it was stored. It counts only for the identifier of this signature."""

    text: str
    identifier: str | None


class Records:
    """The records of a datastore. All methods raise LakeError where the place cannot be read or written."""

    def __init__(self, lake: str, datastore_key: str) -> None:
        self._folder = LakeTable(lake, datastore_key, QUALITY_FOLDER).url
        self.tables = {name: AppendOnly(LakeTable(lake, datastore_key, QUALITY_FOLDER, name), schema) for name, schema in _SCHEMAS.items()}

    # ---------------------------------------------------------------- writing
    def record(
        self, operation: ScanOperation, verdicts: Iterable[Verdict], failed_rows: Iterable[FailedRow], changes: Iterable[Anomaly]
    ) -> None:
        """All or nothing. ``changes``: made from the ``anomalies`` of just before, so that a person's word of meanwhile is not lost.

        Once more for the same operation takes the place of what was recorded of it, except that changes of anomalies stay.
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
            "recorded_at": max(_now(), newest + 1),  # clocks may be set back
        }
        parts = {FAILED_ROWS: failed_rows, CHECK_METRICS: verdicts, ANOMALIES: changes, OPERATIONS: [operation]}  # in this order
        full = [name for name, rows in parts.items() if self._append(name, [{**_plain(row), **origin} for row in rows])]
        for name in full:
            self.tables[name].compact()

    def change(self, anomaly: Anomaly) -> None:
        """Records what a person made of an anomaly (``core.anomalies.by_person``); it counts at once."""
        if anomaly.operation is not None:
            raise ValueError("changes by a scan are recorded with the scan")
        if self._append(ANOMALIES, [{**_plain(anomaly), "recording": None, "operation_id": None, "recorded_at": _now()}]):
            self.tables[ANOMALIES].compact()

    # ---------------------------------------------------------------- reading
    def anomalies(self, container: str | None = None) -> dict[str, Anomaly]:
        """Each as it is now, by its id; also those that are closed."""
        rows = self._changes(container)
        last = dict(zip(rows["id"].to_pylist(), range(len(rows)), strict=True))
        return {row["id"]: _anomaly(row) for row in _listed(rows.take(pa.array(last.values(), _COUNT)))}

    def history(self, id: str) -> list[Anomaly]:
        """The changes of one, oldest first; empty where there is none of this id."""
        changes: list[Anomaly] = []
        for one in map(_anomaly, _listed(self._changes(None, ("id", [id])))):
            if one.operation is None or not changes or not _is_same_step(changes[-1], one):  # else its operation was recorded again
                changes.append(one)
        return changes

    def operations(self, container: str | None = None) -> list[ScanOperation]:
        """The newest first; each once for a container, as it was recorded last."""
        rows = self._read(OPERATIONS, container).sort_by(_NEWEST_FIRST)
        newest: dict[tuple[str, str], ScanOperation] = {}
        for row in _listed(rows):
            newest.setdefault((row["container"], row["operation_id"]), _as(ScanOperation, row, id=row["operation_id"]))
        return list(newest.values())

    def scan_watermark(self, container: str, type: OperationType = OperationType.SCAN) -> ScanWatermark | None:
        """Of the newest successful operation of the type that has one."""
        rows = self._read(OPERATIONS, container, columns=_OF_WATERMARK).sort_by(_NEWEST_FIRST)
        seen: set[str] = set()
        for at in range(0, len(rows), _ROWS_AT_ONCE):  # the first has one, as a rule: there may be a hundred thousand
            for row in rows.slice(at, _ROWS_AT_ONCE).to_pylist():
                again = row["operation_id"] in seen
                seen.add(row["operation_id"])
                if not again and (row["type"], row["result"]) == (type.value, Result.SUCCESS.value) and row["watermark"] is not None:
                    return ScanWatermark(row["watermark"], row["identifier"])
        return None

    def judged(self, container: str, newer_than: int, since: int) -> set[tuple[str, str | None]]:
        """The rules and partitions that scans of newer versions of the table have judged which ended since that moment."""
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
        """The newest verdict of each rule and partition, among those of one of the ``statuses``."""
        if not rules:
            return {}
        counting = self.counting(container)
        where = [("rule", sorted(rules)), ("status", [status.value for status in statuses])]
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
    def tidy(self) -> int:
        """Removes what scans that were broken off have left, and joins small files. Returns how many rows were removed.

        Where somebody else tidies at the same time, a part is left for the next time.
        """
        removed, before = 0, datetime.now(timezone.utc) - BROKEN_OFF_AFTER
        for name, table in self.tables.items():
            with maintenance.next_time_if_moved():
                if name != OPERATIONS:
                    removed += self._remove_broken_off(name, before)
                if table.opened() is not None:
                    maintenance.tidy(table.table)
        return removed

    def _remove_broken_off(self, name: str, before: datetime) -> int:
        rows = self._read(name, None, columns=["recording", "recorded_at"])
        old = rows.filter(pc.field("recorded_at") < before)["recording"].drop_null().unique()
        left = set(old.to_pylist()) - self.counting(None)  # asked after the rows were read, so that it has what was recorded meanwhile
        delta = self.tables[name].opened()
        if delta is None or not left:
            return 0
        listed = ", ".join(f"'{recording}'" for recording in sorted(left))  # hexadecimal digits
        with place_errors(self.tables[name].table.url):
            return int(delta.delete(f"recording IN ({listed})")["num_deleted_rows"] or 0)

    # ---------------------------------------------------------------- the tables
    def _append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Returns whether its files are to be joined now."""
        if rows:
            with place_errors(self._folder):
                keep_private(self._folder)
        return bool(rows) and self.tables[name].append(rows)

    def _read(self, name: str, container: str | None, *more: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, counting or not."""
        return self.tables[name].read(*([] if container is None else [("container", [container])]), *more, columns=columns)

    def counting(self, container: str | None = None) -> set[str]:
        """The recordings that were finished."""
        return set(self._read(OPERATIONS, container, columns=["recording"])["recording"].to_pylist())

    def _changes(self, container: str | None, *more: tuple[str, Sequence[str]]) -> pa.Table:
        """The rows of ``anomalies`` that count, oldest first."""
        # Before the rows are read: then all rows of those that are in it are there.
        counting = self.counting(container)
        rows = self._read(ANOMALIES, container, *more)
        rows = rows.filter(pc.field("recording").is_null() | _is_in("recording", counting))
        rows = rows.append_column("by_person", rows["recording"].is_null())
        # Of two changes in one microsecond neither knew of the other. A scan says again what it found; a person does not.
        return rows.sort_by([(name, "ascending") for name in ("changed_at", "by_person", "recorded_at", "recording")])


def _now() -> int:
    return time.time_ns() // 1000


def _is_in(column: str, values: Collection[str | None]) -> pc.Expression:
    return pc.field(column).isin(pa.array(list(values), _TEXT))


def _plain(value: Verdict | FailedRow | Anomaly | ScanOperation) -> dict[str, Any]:
    said = {f.name: getattr(value, f.name) for f in fields(value)}
    return {name: one.value if isinstance(one, Enum) else one for name, one in said.items()}


def _listed(rows: pa.Table) -> list[dict[str, Any]]:
    """Times as microseconds since 1970 UTC."""
    for position, one in enumerate(rows.schema):
        if one.type == _TIME:
            rows = rows.set_column(position, one.name, rows.column(position).cast(_COUNT))
    return rows.to_pylist()


_ENUMS: dict[str, type[Enum]] = {"severity": Severity, "status": Status, "state": State, "result": Result, "type": OperationType}


def _as(kind: type[_Kind], row: Mapping[str, Any], **more: Any) -> _Kind:
    own = {f.name: row[f.name] for f in fields(kind) if f.name in row and (row[f.name] is not None or f.default is MISSING)}
    values = {name: _ENUMS[name](value) if name in _ENUMS else value for name, value in own.items()}
    return kind(**{**values, **more})


def _anomaly(row: Mapping[str, Any]) -> Anomaly:
    return _as(Anomaly, row, operation=row["operation_id"])


def _is_same_step(one: Anomaly, other: Anomaly) -> bool:
    return (one.operation, one.state, one.partition, one.severity) == (other.operation, other.state, other.partition, other.severity)
