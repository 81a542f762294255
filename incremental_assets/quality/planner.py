"""Which rules share a pass over the rows.

Belongs here: the plan, from the rules alone. Does not belong: SQL (``predicates``), running (``scan``).

All rules of rows and all aggregates go into one job that groups by partition; each distinct key that rows are grouped by (``unique``,
``distinct_count``) into one more; so does each lookup in another container. A number with a filter of its own shares its job with those
that have the same one: an aggregate that the user wrote cannot be told to leave rows out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from incremental_assets.core.rules import Change, DistinctCount, ExistsIn, NumberRule, RowRule, Rule, Unique


@dataclass(frozen=True)
class Grouping:
    """Rows are grouped by these columns, those that the filter leaves."""

    columns: tuple[str, ...]
    filter: str | None


@dataclass(frozen=True)
class ScanPlan:
    """``numbers``: by their filter; those of None are in the first pass, with the rows' rules."""

    rows: tuple[RowRule, ...]
    numbers: Mapping[str | None, Sequence[NumberRule]]
    groups: Mapping[Grouping, Sequence[Unique | DistinctCount]]
    lookups: tuple[ExistsIn, ...]

    @property
    def changes(self) -> list[Change]:
        """Those that compare with earlier partitions."""
        return [rule for rules in self.numbers.values() for rule in rules if isinstance(rule, Change)]


def plan_scan(rules: Sequence[Rule]) -> ScanPlan:
    numbers: dict[str | None, list[NumberRule]] = {}
    groups: dict[Grouping, list[Unique | DistinctCount]] = {}
    for rule in rules:
        if isinstance(rule, Unique | DistinctCount):
            groups.setdefault(Grouping(tuple(sorted(name.lower() for name in rule.columns)), rule.filter), []).append(rule)
        elif isinstance(rule, NumberRule):
            numbers.setdefault(rule.filter, []).append(rule)
    return ScanPlan(
        rows=tuple(rule for rule in rules if isinstance(rule, RowRule)),
        numbers=numbers,
        groups=groups,
        lookups=tuple(rule for rule in rules if isinstance(rule, ExistsIn)),
    )
