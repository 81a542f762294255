"""The tables ``operations`` and ``watermarks`` of a lake, under ``<lake>/_operations/``: what the product has done, for queries in SQL.

Nothing in the product reads these tables: the state that syncs go by is in the tables of the containers.

Both tables are **append-only**: appends of several processes and hosts never conflict. ``operations`` has a row for each operation that has
ended. ``watermarks`` has a row for each time that a watermark was written; of a container's rows, the newest counts. docs/operating.md
describes the columns, and has queries.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Any

import pyarrow as pa

from incremental_assets.delta import maintenance
from incremental_assets.delta.append_only import AppendOnly
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import OPERATIONS_FOLDER
from incremental_assets.delta.private import keep_private
from incremental_assets.delta.table import LakeTable

_TEXT, _COUNT, _TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_LONGEST_MESSAGE = 10_000
"""Longer messages are cut to so many characters."""
OPERATIONS, WATERMARKS = "operations", "watermarks"
"""The names of the two tables."""
_SCHEMAS = {
    OPERATIONS: pa.schema(
        [
            ("datastore", _TEXT), ("container", _TEXT), ("kind", _TEXT), ("run_id", _TEXT), ("result", _TEXT), ("started", _TIME),
            ("ended", _TIME), ("rows", _COUNT), ("rows_inserted", _COUNT), ("rows_updated", _COUNT), ("rows_deleted", _COUNT),
            ("partitions", _COUNT), ("table_version", _COUNT), ("message", _TEXT), ("triggered_by", _TEXT), ("schedule", _TEXT),
            ("code_version", _TEXT),
        ]
    ),
    WATERMARKS: pa.schema(
        [
            ("datastore", _TEXT), ("container", _TEXT), ("watermark", _TEXT), ("identifier", _TEXT), ("strategy", _TEXT), ("lsn", _TEXT),
            ("table_version", _COUNT), ("run_id", _TEXT), ("updated_at", _TIME),
        ]
    ),
}  # fmt: skip


class OperationKind(str, Enum):
    """What an operation does."""

    CATALOG = "catalog"
    SYNC = "sync"
    SWEEP = "sweep"
    SCAN = "scan"
    PROFILE = "profile"
    AUDIT = "audit"
    MAINTENANCE = "maintenance"


class EndedAs(str, Enum):
    """The result of an operation, not of the rows: a scan that finds broken rules has succeeded.

    ``WARNING``: it has succeeded, and its message says what to look at. ``SKIPPED``: there was nothing to do, or another run had the
    container. ``ABORTED``: it was interrupted or terminated.
    """

    SUCCESS = "success"
    WARNING = "warning"
    SKIPPED = "skipped"
    FAILURE = "failure"
    ABORTED = "aborted"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation that has ended. ``container``: its label; None for one of a whole datastore. ``started``, ``ended``: microseconds since
    1970 UTC. ``rows``: how many it has read. ``partitions``: how many it has written, scanned, profiled or compared."""

    datastore: str
    container: str | None
    kind: OperationKind
    result: EndedAs
    started: int
    ended: int
    run_id: str | None = None
    rows: int | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    partitions: int | None = None
    table_version: int | None = None
    message: str = ""
    triggered_by: str | None = None
    schedule: str | None = None
    code_version: str | None = None


@dataclass(frozen=True, kw_only=True)
class WrittenWatermark:
    """A watermark as a sync has written it. ``watermark``: its exact text. ``identifier``: the column, or two with ``/`` between them.
    ``lsn``: of a container with ``capture: log``. ``updated_at``: microseconds since 1970 UTC."""

    datastore: str
    container: str
    watermark: str | None
    identifier: str | None
    strategy: str
    table_version: int | None
    updated_at: int
    run_id: str | None = None
    lsn: str | None = None


@dataclass(frozen=True)
class Rows:
    """Rows for the two tables of one lake."""

    operations: Sequence[Operation] = ()
    watermarks: Sequence[WrittenWatermark] = ()

    def __bool__(self) -> bool:
        return bool(self.operations or self.watermarks)

    def __add__(self, other: "Rows") -> "Rows":
        return Rows((*self.operations, *other.operations), (*self.watermarks, *other.watermarks))


class OperationTables:
    """The two tables of one lake. All methods raise LakeError if they cannot be read or written."""

    def __init__(self, lake: str) -> None:
        self._folder = LakeTable(lake, OPERATIONS_FOLDER).url
        self.tables = {
            name: AppendOnly(LakeTable(lake, OPERATIONS_FOLDER, name), schema, partition_by=()) for name, schema in _SCHEMAS.items()
        }

    def append(self, rows: Rows) -> None:
        """Appends the rows: one commit to each table for which there are some."""
        with place_errors(self._folder):
            # Messages of operations may hold values of the data.
            keep_private(self._folder)
        parts = {name: some for name, some in ((WATERMARKS, rows.watermarks), (OPERATIONS, rows.operations)) if some}
        with ThreadPoolExecutor(len(parts) or 1) as threads:  # each table is on the disk, or behind the network, by itself
            list(threads.map(self._append, parts, parts.values()))

    def _append(self, name: str, rows: Sequence[Operation] | Sequence[WrittenWatermark]) -> None:
        if self.tables[name].append([_plain(one) for one in rows]):
            self.tables[name].compact()

    def read(self, name: str) -> pa.Table:
        """All rows of one of the two tables."""
        return self.tables[name].read()

    def tidy(self) -> None:
        """Joins small files, and removes those that no version of the last week needs. A table that another process changes at the same
        moment is left for the next maintenance."""
        for table in self.tables.values():
            with maintenance.next_time_if_moved():
                maintenance.tidy(table.table)

    def forget(self, datastore: str, before: datetime) -> int:
        """Deletes the rows of a datastore that are older, and returns how many; the newest watermark of each container stays.

        A table that another process changes at the same moment is left for the next maintenance.
        """
        forgotten = 0
        for name, age, keep in ((OPERATIONS, "ended", None), (WATERMARKS, "updated_at", _newest)):
            with maintenance.next_time_if_moved():
                forgotten += self.tables[name].forget(age, before, keep, ("datastore", [datastore]))
        return forgotten


def _newest(rows: pa.Table) -> pa.Table:
    """Of each container the newest row of ``watermarks``."""
    rows = rows.sort_by([("updated_at", "ascending"), ("table_version", "ascending")])
    last = dict(zip(rows["container"].to_pylist(), range(len(rows)), strict=True))
    return rows.take(pa.array(last.values(), _COUNT))


def _plain(row: Operation | WrittenWatermark) -> dict[str, Any]:
    values = {f.name: getattr(row, f.name) for f in fields(row)}
    plain = {name: one.value if isinstance(one, Enum) else one for name, one in values.items()}
    if isinstance(row, Operation):
        plain["message"] = row.message[:_LONGEST_MESSAGE]
    return plain
