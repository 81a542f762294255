"""The plan of a scan: which rules share a pass over the rows.

Belongs here: the plan, which depends on the rules alone. Does not belong: SQL (``predicates``), running the passes (``scan``).

All rules about rows and all aggregates go into one job that groups by partition. Each distinct set of columns that rows have to be grouped
by (``unique``, ``distinct_count``) takes one more job, and so does each lookup in another container. Rules about a number that have a
filter share a job with those that have the same filter. They cannot join the first job, because a filter cannot be added from outside to an
aggregate that the user wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from incremental_assets.core.rules import Change, DistinctCount, ExistsIn, NumberRule, RowRule, Rule, Unique


@dataclass(frozen=True)
class Grouping:
    """One grouping of the rows: the columns to group by, and the filter (Spark SQL; None keeps all rows) that rows have to satisfy."""

    columns: tuple[str, ...]
    filter: str | None


@dataclass(frozen=True)
class ScanPlan:
    """The rules of one scan, arranged by the pass that evaluates them.

    ``rows`` are the rules about single rows. ``numbers`` are the rules about a number, by their filter; those with the filter None are
    computed in the first pass, together with ``rows``. ``groups`` are the rules that need rows grouped by other columns, one job for each
    grouping. ``lookups`` need another container, one job each. Rules about the table as a whole are not part of the plan.
    """

    rows: tuple[RowRule, ...]
    numbers: Mapping[str | None, Sequence[NumberRule]]
    groups: Mapping[Grouping, Sequence[Unique | DistinctCount]]
    lookups: tuple[ExistsIn, ...]

    @property
    def changes(self) -> list[Change]:
        """The rules that compare a partition with earlier ones."""
        return [rule for rules in self.numbers.values() for rule in rules if isinstance(rule, Change)]


def plan_scan(rules: Sequence[Rule]) -> ScanPlan:
    """Arrange the rules by pass. Groupings do not depend on the case or the order of the columns."""
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
