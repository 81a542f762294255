"""What an audit has found, as plain values and in words.

Belongs here: the fields of a record of ``audit --json``, and messages. Does not belong: the comparison (``core.comparison``), which rows
are compared (``databases.audit``, ``files.audit``), and repairs (``dagster.audit``).
"""

from typing import Any

from incremental_assets.core.comparison import Comparison, Difference

SUMMARY = "audit/summary"
"""The metadata key of the numbers of an audit, as JSON (``summary_of``)."""


def summary_of(found: Comparison) -> dict[str, Any]:
    """The numbers of an audit as plain values: the fields of a record of ``audit --json``."""
    return {
        "rows": found.rows,
        "rejected": found.rejected,
        "partitions_checked": len(found.keys),
        "partitions_different": [one.key for one in found.different],
        **{kind.value: found.counts[kind] for kind in Difference},
        "examples": {kind.value: [list(key) for key in found.examples.get(kind, ())] for kind in Difference},
        "delta_version": found.version,
        "seconds": round(found.seconds, 3),
    }


def audit_values(found: Comparison) -> dict[str, Any]:
    """The metadata of the observation of an audit whose sync had nothing to do, or of files."""
    return {
        "sync/status": "skipped" if found.equal else "warning",
        "sync/message": message_of(found),
        SUMMARY: summary_of(found),
    }


def message_of(found: Comparison) -> str:
    """What the audit has found, in words."""
    return "; ".join([_verdict(found), *found.notes])


def _verdict(found: Comparison) -> str:
    if found.equal:
        where = "1 partition" if len(found.keys) == 1 else f"{len(found.keys):,} partitions"
        return f"audit: {found.rows:,} rows in {where} are equal in source and lake"
    numbers = ", ".join(f"{found.counts[kind]:,} {kind.value}" for kind in Difference if found.counts[kind])
    named = ", ".join(one.key or "the rows without identifier" for one in found.different[:5])
    more = f" and {len(found.different) - 5} more" if len(found.different) > 5 else ""
    where = f" in {len(found.different):,} of {len(found.keys):,} partitions ({named}{more})" if len(found.keys) > 1 else ""
    return f"audit: source and lake differ{where}" + (f": {numbers}" if numbers else "")
