"""What an audit has found, as plain values and in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from incremental_assets.core.comparison import MOST_EXAMPLES, Comparison, Difference
from incremental_assets.core.shown_text import counted

SUMMARY = "audit/summary"
"""The metadata key of the numbers of an audit, as JSON (``summary_of``)."""


def summary_of(found: Comparison) -> dict[str, Any]:
    """The numbers of an audit as plain values: the fields of a record of ``audit --json``, and ``following`` (``Comparison.following``)."""
    return {
        "rows": found.rows,
        "rejected": found.rejected,
        "partitions_checked": len(found.keys),
        "partitions_different": [one.key for one in found.different],
        **{kind.value: found.counts[kind] for kind in Difference},
        "examples": {kind.value: [list(key) for key in found.examples.get(kind, ())] for kind in Difference},
        "delta_version": found.version,
        "seconds": round(found.seconds, 3),
        "following": found.following,
    }


def joined(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of an audit that was made in several snapshots, from the summary of each."""
    if len(summaries) == 1:
        return dict(summaries[0])
    different = [key for one in summaries for key in one["partitions_different"]]
    added = ("rows", "partitions_checked", *(kind.value for kind in Difference))
    examples = {kind.value: [key for one in summaries for key in one["examples"][kind.value]][:MOST_EXAMPLES] for kind in Difference}
    return {
        **summaries[-1],
        "partitions_different": sorted(different, key=lambda key: key is None),  # those without identifier stay the last
        **{name: sum(one[name] for one in summaries) for name in added},
        "examples": examples,
        "seconds": round(sum(one["seconds"] for one in summaries), 3),
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
    return "; ".join([verdict(summary_of(found)), *found.notes])


def verdict(summary: Mapping[str, Any]) -> str:
    """The numbers of a summary in words."""
    checked, different = summary["partitions_checked"], summary["partitions_different"]
    if not different:
        where = f"in {counted(checked, 'partition')}"
        return f"audit: {counted(summary['rows'], f'row {where} is', f'rows {where} are')} equal in source and lake"
    numbers = ", ".join(f"{summary[kind.value]:,} {kind.value}" for kind in Difference if summary[kind.value])
    named = ", ".join(key or "the rows without identifier" for key in different[:5])
    more = f" and {len(different) - 5} more" if len(different) > 5 else ""
    where = f" in {len(different):,} of {counted(checked, 'partition')} ({named}{more})" if checked > 1 else ""
    return f"audit: source and lake differ{where}" + (f": {numbers}" if numbers else "")
