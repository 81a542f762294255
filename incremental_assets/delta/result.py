"""What a sync did, in numbers, and by which names it is told.

Belongs here: the numbers and their names. Does not belong: measuring, or Dagster's metadata (``dagster.metadata``). Watermarks are ISO 8601
text or integers; numbers are numbers, so that the UI plots them.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from incremental_assets.core.axis import json_value
from incremental_assets.core.plan import Plan
from incremental_assets.core.watermark import Holder
from incremental_assets.delta.extraction import Outcome

NEW, PREVIOUS, SIGNATURE = "watermark/new", "watermark/previous", "watermark/identifier"


@dataclass
class Result:
    """Counts are None where unknown. ``previous`` and ``new`` are watermarks as axis values; ``more`` is further metadata."""

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
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, outcome: Outcome) -> None:
        self.rows_read += outcome.rows_read
        self.rows_inserted = _sum(self.rows_inserted, outcome.rows_inserted)
        self.rows_updated = _sum(self.rows_updated, outcome.rows_updated)
        self.rows_deleted = _sum(self.rows_deleted, outcome.rows_deleted)
        self.version = outcome.version


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def result_values(result: Result, url: str) -> dict[str, Any]:
    """What each event of a sync says, by the names of Dagster's metadata, as plain values; None: not known."""
    container = result.plan.container
    axis = container.axis
    message = "; ".join([*result.warnings, *result.messages]) or result.plan.reason
    values: dict[str, Any] = {
        "sync/status": "warning" if result.warnings else "synced",
        "sync/mode": result.plan.request.mode.value,
        "sync/strategy": container.strategy.value,
        "sync/range": result.plan.asked,
        "sync/rows_read": result.rows_read,
        "sync/rows_inserted": result.rows_inserted,
        "sync/rows_updated": result.rows_updated,
        "sync/rows_deleted": result.rows_deleted,
        "sync/null_identifiers": result.null_rows,
        "sync/seconds": round(result.seconds, 3),
        "sync/delta_version": result.version,
        "sync/message": message,
        "dagster/uri": url,
        "dagster/table_name": ".".join(container.key_path),
        **result.more,
    }
    if axis is not None:
        values |= {
            NEW: json_value(axis, result.new),
            PREVIOUS: json_value(axis, result.previous),
            SIGNATURE: container.signature,
            "sync/safety_lag": container.lag,
            "sync/safety_lag_reason": container.lag_reason or None,
            "watermark/held_back_by": [asdict(holder) for holder in result.held_back_by] or None,
        }
    return values
