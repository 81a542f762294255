"""The summary of a scan in numbers: written as metadata of an event, and read back from it for the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from incremental_assets.core.rules.rule import Rule, Severity, Status, Verdict
from incremental_assets.quality.records import ScanOperation
from incremental_assets.quality.scan import ScanResult
from incremental_assets.runs.quality.tables import verdicts_table

SUMMARY, PROFILE_SUMMARY = "quality/summary", "profile/summary"
"""The metadata keys of the summary of a scan and of a profile."""
MOST_VERDICTS = 1000
"""At most so many verdicts are in a summary; those that passed are left out."""


@dataclass(frozen=True)
class ScanSummary:
    """The results of a scan in numbers, with the verdicts that they come from.

    ``opened``, ``reopened``, ``resolved``: how many anomalies the scan changed to that state; ``still_open``: how many are open after it.
    ``previous`` and ``new``: the watermark of the container's scans before and after it, as JSON values; None where there is none.
    ``seconds``: how long the scan took.
    """

    container: str
    operation: ScanOperation
    result: ScanResult
    rules: Mapping[str, Rule] = field(repr=False)
    opened: int
    reopened: int
    resolved: int
    still_open: int
    previous: int | str | None
    new: int | str | None
    seconds: float

    def count(self, status: Status) -> int:
        """How many rules have this status for at least one partition."""
        return len({v.rule for v in self.result.verdicts if v.status is status})

    @property
    def failed(self) -> list[Verdict]:
        """The verdicts of rules that are broken or could not be evaluated."""
        return [v for v in self.result.verdicts if v.status in (Status.FAILED, Status.ERRORED)]

    @property
    def blocked(self) -> list[Verdict]:
        """The verdicts because of which assets downstream must not run."""
        return [v for v in self.result.verdicts if v.blocks]


def summary_metadata(summary: ScanSummary) -> dict[str, Any]:
    """The metadata of the observation that reports a scan."""
    return {
        SUMMARY: dg.MetadataValue.json(line_of(summary)),
        "quality/verdicts": verdicts_table(summary.result.verdicts),
        "quality/passes": dg.MetadataValue.int(summary.result.passes),
        "quality/rows_scanned": dg.MetadataValue.int(summary.operation.rows),
        "quality/anomalies_opened": dg.MetadataValue.int(summary.opened + summary.reopened),
        "quality/anomalies_resolved": dg.MetadataValue.int(summary.resolved),
        "quality/anomalies_open": dg.MetadataValue.int(summary.still_open),
    }


def line_of(summary: ScanSummary) -> dict[str, Any]:
    """The summary of a scan as plain JSON: the fields of ``scan --json`` and of ``checks`` in ``sync --json``."""
    verdicts = summary.result.verdicts
    return {
        "rules": summary.operation.rules,
        "passed": summary.count(Status.PASSED),
        "failed": summary.count(Status.FAILED),
        "errored": summary.count(Status.ERRORED),
        "rows_scanned": summary.operation.rows,
        "partitions": len(summary.result.rows),
        "passes": summary.result.passes,
        "delta_version": summary.result.version,
        "anomalies": {
            "opened": summary.opened,
            "reopened": summary.reopened,
            "resolved": summary.resolved,
            "open": summary.still_open,
        },
        "watermark": {"previous": summary.previous, "new": summary.new},
        "error_rules": sorted({v.rule for v in summary.failed if v.severity is Severity.ERROR}),
        "blocked": [{"rule": v.rule, "partition": v.partition} for v in summary.blocked],
        "verdicts": [_verdict_line(v) for v in verdicts if v.status is not Status.PASSED][:MOST_VERDICTS],
        "seconds": round(summary.seconds, 3),
        "message": summary.operation.message,
    }


def _verdict_line(verdict: Verdict) -> dict[str, Any]:
    return {
        "rule": verdict.rule,
        "partition": verdict.partition,
        "status": verdict.status.value,
        "severity": verdict.severity.value,
        "rows_asserted": verdict.asserted,
        "rows_failed": verdict.failed,
        "rows_unasserted": verdict.unasserted,
        "value": verdict.value,
        "message": verdict.message,
    }


def summary_in(events: Iterable[dg.DagsterEvent], name: str = SUMMARY) -> dict[str, Any] | None:
    """The summary of the scan (or profile) in the events of a run; None where there is none. ``name``: its metadata key."""
    for event in events:
        if event.is_asset_observation:
            found = event.asset_observation_data.asset_observation.metadata.get(name)
            if found is not None:
                recorded: Any = found.value
                return recorded
    return None
