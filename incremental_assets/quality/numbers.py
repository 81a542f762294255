"""Rules about an aggregate of a partition's rows (``core.rules.numbers``): what they ask of the passes, and of earlier partitions.

Rules with the same filter share a pass. They cannot join the first pass, because a filter cannot be added from outside to an aggregate that
the user wrote.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from incremental_assets.core.rules.numbers import AggregateRule, plain
from incremental_assets.core.rules.rule import Rule, Status, Verdict
from incremental_assets.quality.passes import Pass, pass_of
from incremental_assets.quality.rows import ROW_COUNT, Aggregate, Key, Measurements, Rows, Values, asserted_name, number_name


class EarlierScans(Protocol):
    """What earlier scans have found. ``quality.records.Records`` knows it."""

    def metrics(
        self, container: str, rules: Collection[str], partitions: Collection[str | None], statuses: Collection[Status]
    ) -> Mapping[tuple[str, str | None], Verdict]:
        """Return the newest verdict with one of the statuses, for each of the rules and partitions that has one."""
        ...


def aggregates(rows: Rows, rules: Sequence[AggregateRule]) -> list[Aggregate]:
    """Return the aggregates of the rules; rules that cannot be evaluated are noted and left out."""
    found: list[Aggregate] = []
    for rule in rules:
        if rows.can_evaluate(rule):
            with rows.noting(rule):
                found.append(Aggregate(rule.id, number_name(rule), rule.aggregate(rows.in_sql), numeric=True))
    return found


def by_filter(rules: Sequence[Rule]) -> dict[str | None, list[AggregateRule]]:
    """Return the rules about an aggregate, by their filter."""
    found: dict[str | None, list[AggregateRule]] = {}
    for rule in rules:
        if isinstance(rule, AggregateRule):
            found.setdefault(rule.filter, []).append(rule)
    return found


def filtered_numbers(rows: Rows, rules: Sequence[Rule]) -> dict[str, Values]:
    """Compute the rules that have a filter, one pass for each distinct filter. Return the values by rule id."""
    own: dict[str, Values] = {}
    for condition, together in _filtered(rules).items():
        own.update(dict.fromkeys((rule.id for rule in together), rows.aggregate(rows.frame, _with_counts(rows, together), condition)))
    return own


def filtered_passes(rows: Rows, rules: Sequence[Rule]) -> list[Pass]:
    """Return the same passes, to be run in one query with others."""
    return [
        pass_of(together, rows.filtered(condition), wanted)
        for condition, together in _filtered(rules).items()
        if (wanted := _with_counts(rows, together))
    ]


def _filtered(rules: Sequence[Rule]) -> dict[str, list[AggregateRule]]:
    return {condition: together for condition, together in by_filter(rules).items() if condition is not None}


def _with_counts(rows: Rows, together: Sequence[AggregateRule]) -> list[Aggregate]:
    wanted = aggregates(rows, together)
    # The filter is applied to the rows of this pass, so that its number of rows is the number of asserted rows.
    return [*wanted, *(Aggregate(rule.id, asserted_name(rule), "count(*)") for rule in together if rows.can_evaluate(rule))]


def numbers_of_none(rows: Rows, rules: Sequence[Rule], keys: Sequence[Key], found: Measurements) -> dict[str, Any]:
    """Return the values of aggregates over zero rows, if a partition has no rows or a filter keeps none of a partition's rows."""
    first = found.first
    # A requested partition without rows is missing in ``first``. A partition of which a filter keeps nothing is missing in ``own``.
    some = any(key not in first for key in keys)
    evaluated = [rule for rule in rules if isinstance(rule, AggregateRule) and not rule.counts_rows and rows.can_evaluate(rule)]
    return rows.of_none(
        aggregates(rows, [r for r in evaluated if some or (r.filter is not None and found.own[r.id].keys() < first.keys())])
    )


class EarlierPartitions:
    """The numbers of partitions before those that are scanned, for the rules that compare with them.

    They are taken from this scan if it covers the partition, else from earlier scans, else they are counted now.
    """

    def __init__(self, rows: Rows, rules: Sequence[Rule], keys: Sequence[Key], found: Measurements, scans: EarlierScans) -> None:
        self._rows, self._scan_scope = rows, rows.scan_scope
        compare = [rule for rule in rules if isinstance(rule, AggregateRule) and rule.earlier_partitions and rows.can_evaluate(rule)]
        here = [key for key in keys if key is not None]
        wanted = {(rule.id, one) for rule in compare for key in here for one in self._before(rule, key)}
        self._known = {(rule.id, key): (found.rows(key), plain(found.number(rule, key))) for rule in compare for key in here}
        unknown = sorted({key for _, key in wanted - self._known.keys()})
        if unknown:
            # The numbers of this scan take precedence over those of earlier scans.
            self._known = {**self._of_scans(scans, compare, unknown), **self._known}
        missing = sorted({key for _, key in wanted - self._known.keys()})
        if missing:
            self._known = {**self._counted(compare, missing), **self._known}

    def numbers(self, rule: Rule, key: Key) -> tuple[float, ...]:
        """Return the numbers of the partitions that the rule compares this one with; those without rows or number are left out."""
        if key is None or not isinstance(rule, AggregateRule) or not rule.earlier_partitions:
            return ()
        earlier = [self._known[rule.id, one] for one in self._before(rule, key) if (rule.id, one) in self._known]
        return tuple(number for rows, number in earlier if rows and number is not None)

    def _before(self, rule: AggregateRule, key: str) -> Sequence[str]:
        return self._scan_scope.before(key, rule.earlier_partitions)

    def _of_scans(
        self, scans: EarlierScans, rules: Sequence[AggregateRule], keys: Sequence[str]
    ) -> dict[tuple[str, str], tuple[int, float | None]]:
        """Return the row counts and numbers that earlier scans found, by rule id and partition.

        Only results of rules as they are now count. A result without judgement (``UNASSERTED``) counts too: the first scan had nothing to
        compare with, but it has counted.
        """
        asks = {rule.id: self._scan_scope.question_digest(rule) for rule in rules}
        found = scans.metrics(self._scan_scope.container.label, list(asks), keys, (Status.PASSED, Status.FAILED, Status.UNASSERTED))
        return {(i, k): (one.rows, one.value) for (i, k), one in found.items() if k is not None and one.asks == asks[i]}

    def _counted(self, rules: Sequence[AggregateRule], keys: Sequence[str]) -> dict[tuple[str, str], tuple[int, float | None]]:
        """Count partitions that lie outside the scope."""
        rows = self._rows
        frame = rows.whole.where(self._scan_scope.of_keys(keys))
        together = by_filter(rules)
        first = rows.aggregate(frame, [ROW_COUNT, *aggregates(rows, together.pop(None, []))])
        own: dict[str, Values] = {}
        for condition, some in together.items():
            own.update(dict.fromkeys((rule.id for rule in some), rows.aggregate(frame, aggregates(rows, some), condition)))
        none = rows.of_none(aggregates(rows, [rule for some in together.values() for rule in some if not rule.counts_rows]))
        found = Measurements(first, own, none)
        return {(rule.id, key): (found.rows(key), plain(found.number(rule, key))) for rule in rules for key in keys}
