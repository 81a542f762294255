"""Collects the numbers of one sync, and names them as they are recorded in Dagster's metadata.

Watermarks are ISO 8601 text or integers; counts stay numbers, so that Dagster's UI plots them.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from incremental_assets.core.capture import RetainedLog
from incremental_assets.core.comparison import Comparison
from incremental_assets.core.cursor_type import json_value
from incremental_assets.core.plan import Plan
from incremental_assets.core.unfilled import Unfilled
from incremental_assets.core.watermark import Holder
from incremental_assets.delta.write_batch import WriteResult

NEW, PREVIOUS, SIGNATURE = "watermark/new", "watermark/previous", "watermark/identifier"
"""Metadata keys of a materialization event: the watermark after the sync, the one before it, and the identifier's signature."""
HELD_BACK_BY = "watermark/held_back_by"
"""The metadata key of the open transactions that hold the watermark back; it is there if there are any."""
MISSED_CHANGES = "sync/missed_changes"
"""The metadata key of how many changed rows of the source no sync has met; it is there if there are any."""
LSN = "capture/lsn"
"""The metadata key of the position in the source's log up to which the table has everything."""
VERSION = "sync/delta_version"
"""The metadata key of the table's version after the sync."""
WAY = "sync/way"
"""The metadata key of how the rows came into the table, by whom, and why in no other way (``delta.choose``)."""
NULL_ROWS = "sync/null_identifiers"
"""The metadata key of the number of rows in the source that have no identifier. It is there if the sync has read or refused them."""

INTERNALS = (
    "sync/status",
    "sync/mode",
    "sync/strategy",
    "sync/range",
    "sync/message",
    "sync/row_security",
    "sync/safety_lag",
    "sync/safety_lag_reason",
    WAY,
    SIGNATURE,
    HELD_BACK_BY,
    LSN,
)
"""The metadata keys of values that are no figures. An event has them in one entry, and in its words what matters to a person."""


@dataclass
class SyncResult:
    """The result of one sync, which grows with each of its commits.

    ``previous`` and ``new`` are the watermarks before and after the sync, as integers of the cursor type (None: no watermark). The counts
    of rows are None if they are unknown. ``version``: the table's newest Delta version. ``null_rows``: the number of rows in the source
    that have no identifier. ``seconds``: the duration of the sync. ``audited``: what its audit has found; None if there was none.
    ``retained``: as in ``Plan``, when the log was last read. ``unfilled``: as in ``TableState``, after the sync. ``partitions``: how
    many partitions were written; None for a container without partitions. ``left_out``: the keys of partitions that a refresh was asked
    for and has left as they were, as it would have emptied them. ``ways``: how its commits have written rows (``WriteResult.how``), each
    once. ``more``: further metadata by key.
    """

    plan: Plan
    previous: int | None
    new: int | None
    held_back_by: list[Holder] = field(default_factory=list[Holder])
    rows_read: int = 0
    rows_inserted: int | None = 0
    rows_updated: int | None = 0
    rows_deleted: int | None = 0
    version: int | None = None
    null_rows: int | None = None
    messages: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    audited: Comparison | None = None
    retained: RetainedLog | None = None
    unfilled: Unfilled | None = None
    partitions: int | None = None
    left_out: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, outcome: WriteResult) -> None:
        """Adds the counts of one commit. A count that is unknown for one commit stays unknown for the whole sync."""
        self.rows_read += outcome.rows_read
        self.rows_inserted = _sum(self.rows_inserted, outcome.rows_inserted)
        self.rows_updated = _sum(self.rows_updated, outcome.rows_updated)
        self.rows_deleted = _sum(self.rows_deleted, outcome.rows_deleted)
        self.version = outcome.version
        self.ways = tuple(dict.fromkeys((*self.ways, outcome.how)))
        if outcome.message is not None and outcome.message not in self.messages:
            self.messages.append(outcome.message)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def result_values(result: SyncResult, url: str) -> dict[str, Any]:
    """The metadata of each materialization event of a sync, as plain values by metadata key. None means that a value is not known.

    ``url`` is the location of the container's table.
    """
    container = result.plan.container
    cursor_type = container.cursor_type
    message = "; ".join([*result.warnings, *result.messages]) or result.plan.reason
    values: dict[str, Any] = {
        "sync/status": "warning" if result.warnings else "synced",
        "sync/mode": result.plan.request.mode.value,
        "sync/strategy": container.strategy.value,
        "sync/range": result.plan.requested,
        "sync/rows_read": result.rows_read,
        "sync/rows_inserted": result.rows_inserted,
        "sync/rows_updated": result.rows_updated,
        "sync/rows_deleted": result.rows_deleted,
        WAY: "; then ".join(result.ways) or None,
        NULL_ROWS: result.null_rows,
        "sync/seconds": round(result.seconds, 3),
        VERSION: result.version,
        "sync/message": message,
        "dagster/uri": url,
        "dagster/table_name": ".".join(container.key_path),
        **result.more,
    }
    if cursor_type is not None:
        values |= {
            NEW: json_value(cursor_type, result.new),
            PREVIOUS: json_value(cursor_type, result.previous),
            SIGNATURE: container.signature,
            "sync/safety_lag": container.lag,
            "sync/safety_lag_reason": container.lag_reason or None,
            HELD_BACK_BY: [asdict(holder) for holder in result.held_back_by] or None,
        }
    return values
