"""What a sync did, in numbers: as materialization metadata, and read back from it for the command line.

Belongs here: the names of the metadata keys, once. Does not belong: measuring. Watermarks are ISO 8601 text or integers; numbers are
numbers, so that the UI plots them; what is unknown is left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from incremental_assets.lake.extraction import Outcome
from incremental_assets.model.axis import json_value
from incremental_assets.orchestration.plan import Plan
from incremental_assets.sources.postgres.transactions import Holder

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


def result_metadata(result: Result, url: str) -> dict[str, Any]:
    """Metadata of each materialization event of a sync."""
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
            "watermark/held_back_by": dg.MetadataValue.json([asdict(h) for h in result.held_back_by]) if result.held_back_by else None,
        }
    return shown(values)


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as metadata, without those that are not known."""
    return {name: dg.MetadataValue.int(v) if isinstance(v, int) else v for name, v in values.items() if v is not None}


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata values as plain Python values."""
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def line(
    container: str,
    status: str,
    *,
    mode: str | None = None,
    strategy: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    partitions: list[str] | None = None,
    run_id: str | None = None,
    seconds: float = 0.0,
    message: str = "",
    watermark: int | str | None = None,
    checks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One line of ``sync --json``; the fields are a contract. ``checks``: what the scan in the same run told of itself."""
    found = plain(metadata or {})
    holders = found.get("watermark/held_back_by")
    return {
        "container": container,
        "status": status,
        "mode": found.get("sync/mode", mode),
        "strategy": found.get("sync/strategy", strategy),
        "rows_read": found.get("sync/rows_read", 0 if status == "skipped" else None),
        "rows_inserted": found.get("sync/rows_inserted", 0 if status == "skipped" else None),
        "rows_updated": found.get("sync/rows_updated", 0 if status == "skipped" else None),
        "rows_deleted": found.get("sync/rows_deleted", 0 if status == "skipped" else None),
        "watermark": {
            "previous": found.get(PREVIOUS, watermark),
            "new": found.get(NEW, watermark),
            "held_back_by": json.loads(holders) if isinstance(holders, str) else holders or None,
        },
        "partitions": partitions or [],
        "delta_version": found.get("sync/delta_version"),
        "checks": checks,
        "run_id": run_id,
        "seconds": round(seconds, 3),
        "message": message or found.get("sync/message", ""),
    }


def _checks_in_one(checks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Of several scans: sums of what is counted by partition, the last word on the rest."""
    if not checks:
        return None
    last = checks[-1]
    sums = {name: sum(one[name] for one in checks) for name in ("rows_scanned", "partitions", "passes")}
    worst = {name: max(one[name] for one in checks) for name in ("failed", "errored")}
    lists = {name: [each for one in checks for each in one[name]] for name in ("blocked", "verdicts")}
    counts = {name: sum(one["anomalies"][name] for one in checks) for name in ("opened", "reopened", "resolved")}
    rules = sorted({rule for one in checks for rule in one["error_rules"]})
    return {**last, **sums, **worst, **lists, "error_rules": rules, "anomalies": {**last["anomalies"], **counts}}


def in_one(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one line of a container that took several runs (partitions that are no neighbours in Dagster's list); ids are the last run's."""
    if len(lines) == 1:
        return lines[0]

    def total(name: str) -> int | None:
        values = [one[name] for one in lines]
        return None if None in values else sum(values)

    worst = max(lines, key=lambda one: ("skipped", "synced", "warning", "failed").index(one["status"]))
    counts = {name: total(name) for name in ("rows_read", "rows_inserted", "rows_updated", "rows_deleted")}
    messages = dict.fromkeys(one["message"] for one in lines if one["message"])
    return {
        **lines[-1],
        **counts,
        "status": worst["status"],
        "watermark": {**lines[-1]["watermark"], "previous": lines[0]["watermark"]["previous"]},
        "checks": _checks_in_one([one["checks"] for one in lines if one["checks"] is not None]),
        "partitions": [key for one in lines for key in one["partitions"]],
        "seconds": round(sum(one["seconds"] for one in lines), 3),
        "message": "; ".join(messages),
    }
