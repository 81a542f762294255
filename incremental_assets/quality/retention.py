"""Retention of the records of scans: which of them are deleted after a given time, and which stay however old they are.

Records that a later scan or a person may still need are kept: the newest verdict of each rule, partition and status (later scans compare
with it), the newest audit of each container, the newest state of each anomaly that is not resolved (a discarded one must not be opened
again), the watermarks of scans and profiles, and the operations that any of these rows refer to. All other records older than the given
time are deleted; failed rows always are. The operations are deleted last: if the process dies before that, the remaining rows still refer
to an operation and so still count.
"""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.delta.maintenance import next_time_if_moved
from incremental_assets.quality.records import ANOMALIES, AUDITS, CHECK_METRICS, FAILED_ROWS, OPERATIONS, OperationResult, Records

_PLACE = ["container", "rule", "partition", "status"]
_CLOSED = ["resolved"]


def prune(records: Records, before: datetime) -> int:
    """Delete what was recorded before the given time, and return the number of deleted rows.

    A table that another process changes at the same moment is left for the next run. Raises LakeError if the tables cannot be read or
    written.
    """
    counting = pa.array(sorted(records.counting()), pa.string())
    forgotten = 0
    for name, keep in ((FAILED_ROWS, _none), (CHECK_METRICS, _newest_verdicts), (ANOMALIES, _unresolved), (AUDITS, _newest_audits)):
        with next_time_if_moved():
            forgotten += records.tables[name].forget("recorded_at", before, lambda rows, keep=keep: keep(_counted(rows, counting)))
    with next_time_if_moved():
        used = [records.tables[name].read(columns=["recording"])["recording"] for name in (FAILED_ROWS, CHECK_METRICS, ANOMALIES)]
        needed = pa.chunked_array([chunk for column in used for chunk in column.chunks], pa.string())
        forgotten += records.tables[OPERATIONS].forget("recorded_at", before, lambda rows: _needed_operations(rows, needed))
    return forgotten


def _counted(rows: pa.Table, counting: pa.Array) -> pa.Table:
    """Return the rows that a finished operation or a person has written. Others come from a scan that was killed, and do not count."""
    return rows.filter(pc.field("recording").is_null() | pc.field("recording").isin(counting))


def _none(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


def _newest_verdicts(rows: pa.Table) -> pa.Table:
    """Return the newest verdict of each rule, partition and status."""
    return _newest(rows, _PLACE, ["recorded_at", "recording"])


def _newest_audits(rows: pa.Table) -> pa.Table:
    """Return the newest audit of each container."""
    return _newest(rows, ["container"], ["recorded_at"])


def _unresolved(rows: pa.Table) -> pa.Table:
    """Return the newest state of each anomaly, unless that state is ``resolved``."""
    # The same order as in ``Records``: of two changes in one microsecond, a person's counts as the later one.
    rows = rows.append_column("by_person", rows["recording"].is_null())
    newest = _newest(rows, ["id"], ["changed_at", "by_person", "recorded_at", "recording"])
    return newest.filter(~pc.field("state").isin(_CLOSED))


def _needed_operations(rows: pa.Table, used: pa.ChunkedArray) -> pa.Table:
    """Return all recordings of the operations that are still needed.

    Those are, for each container and type, the newest operation and the newest one with a watermark, and all operations that rows in
    ``used`` refer to by their recording. All recordings of such an operation stay, because only the newest one counts, and readers must be
    able to tell which it is.
    """
    of_type = ["container", "type"]
    watermarks = rows.filter((pc.field("result") == OperationResult.SUCCESS.value) & pc.field("watermark").is_valid())
    parts = [_newest(some, of_type, ["recorded_at", "recording"]) for some in (rows, watermarks)]
    parts.append(rows.filter(pc.field("recording").isin(used.combine_chunks())))
    ids = pa.concat_tables([part.select(["operation_id"]) for part in parts])["operation_id"]
    return rows.filter(pc.field("operation_id").isin(ids.combine_chunks()))


def _newest(rows: pa.Table, by: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Return of each group the last row in the given order. ``by`` are the columns that make the groups."""
    rows = rows.sort_by([(name, "ascending") for name in order])
    numbered = rows.select(by).append_column("nth", pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(by).aggregate([("nth", "max")])["nth_max"]
    return rows.take(last.combine_chunks())
