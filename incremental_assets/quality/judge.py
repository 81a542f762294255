"""This module turns the numbers that the passes of a scan returned into verdicts. It works without Spark.

Belongs here: which number belongs to which rule, tolerances, bounds, and the message of a verdict. Does not belong: counting (``scan``),
rules about the table as a whole (``table_rules``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from incremental_assets.core.rules import Change, DistinctCount, ExistsIn, Metric, NumberRule, RowRule, Rule, Sum, Unique, UniqueScope
from incremental_assets.quality.groups import DISTINCT, REPEATED, REPEATED_IN_TABLE
from incremental_assets.quality.predicates import bounds_in_words, within
from incremental_assets.quality.rows import Key, Values
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.quality.verdict import Status, Verdict

History = Mapping[tuple[str, str], tuple[int, float | None]]
"""Maps (rule id, key of an earlier partition) to the number of its rows and the number that the rule is about, None if there is none."""


def asserted_name(rule: Rule) -> str:
    """Return the name of the aggregate that counts the rows that the rule's filter keeps.

    The colon keeps the names apart from all others, because an id cannot contain one.
    """
    return f"asserted:{rule.id}"


def failed_name(rule: Rule) -> str:
    """Return the name of the aggregate that counts the rows that break the rule."""
    return f"failed:{rule.id}"


def value_name(rule: Rule) -> str:
    """Return the name of the aggregate whose result is the number that the rule is about."""
    return f"value:{rule.id}"


@dataclass(frozen=True)
class MeasuredValues:
    """The numbers that the passes returned, for each partition.

    ``first`` are those of the first pass, over all rows of the scope. ``own`` are those of the passes for single rules, by rule id.
    ``of_none`` are the values that aggregates have over zero rows. ``troubles`` maps the ids of rules that could not be evaluated to the
    reason.
    """

    first: Values
    own: Mapping[str, Values]
    of_none: Mapping[str, Any]
    troubles: Mapping[str, str] = field(repr=False)

    def rows(self, key: Key) -> int:
        """Return the number of rows of a partition."""
        return int(self.first.get(key, {}).get("n", 0))

    def asserted(self, rule: Rule, key: Key) -> int:
        """Return the number of rows of a partition that the rule's filter keeps."""
        if rule.filter is None:
            return self.rows(key)
        name = asserted_name(rule)
        return int(self.first.get(key, {}).get(name) or self.own.get(rule.id, {}).get(key, {}).get(name) or 0)

    def failed(self, rule: Rule, key: Key) -> int:
        """Return the number of rows of a partition that break the rule."""
        if isinstance(rule, RowRule):
            return int(self.first.get(key, {}).get(failed_name(rule)) or 0)
        found = self.own.get(rule.id, {}).get(key, {})
        if isinstance(rule, ExistsIn):
            return int(found.get("failed") or 0)
        assert isinstance(rule, Unique)
        return int(found.get(REPEATED_IN_TABLE if rule.scope is UniqueScope.TABLE else REPEATED) or 0)

    def value(self, rule: NumberRule, key: Key) -> Any:
        """Return the number that the rule is about, for one partition; None if it is NULL."""
        found = self.own.get(rule.id, {}).get(key, {})
        if isinstance(rule, DistinctCount):
            return found.get(DISTINCT, 0)
        name = value_name(rule)
        if rule.filter is None:
            found = self.first.get(key, {})
        # Grouping by partition returns no row for a partition of which the filter keeps nothing.
        return found[name] if name in found else self.of_none.get(name)


class Judge:
    """Makes the verdict of one rule for one partition.

    ``history`` has the numbers of earlier partitions for the rules that compare with them.
    """

    def __init__(self, found: MeasuredValues, scan_scope: ScanScope, history: History) -> None:
        self._found, self._ground, self._history = found, scan_scope, history

    def verdict(self, rule: Rule, key: Key) -> Verdict:
        """Return the verdict of the rule for the partition ``key``."""
        found = self._found

        def verdict(status: Status, asserted: int, failed: int | None, value: float | None, message: str) -> Verdict:
            asks = self._ground.question_digest(rule)
            return Verdict(rule.id, key, status, rule.severity, rule.blocking, found.rows(key), asserted, failed, value, message, asks)

        trouble = found.troubles.get(rule.id)
        if trouble is not None:
            return verdict(Status.ERRORED, 0, None, None, trouble)
        # An earlier scan has found an anomaly in the rows without an identifier, and now there are no such rows any more.
        if key is None and self._ground.partition is not None and not found.rows(key):
            return verdict(Status.PASSED, 0, None if isinstance(rule, NumberRule) else 0, None, "there are no rows without identifier now")
        asserted = found.asserted(rule, key)
        if isinstance(rule, NumberRule):
            status, value, message = self._number(rule, key)
            return verdict(status, asserted, None, value, message)
        failed = found.failed(rule, key)
        share = failed / asserted if asserted else 0.0
        good = rule.tolerates(failed, asserted)
        message = f"{failed:,} of {asserted:,} rows break it" if failed else f"all {asserted:,} rows pass" if asserted else "no rows"
        if failed and good:
            message += f", which the tolerance of {rule.tolerance} allows"
        return verdict(Status.PASSED if good else Status.FAILED, asserted, failed, share, message)

    def _number(self, rule: NumberRule, key: Key) -> tuple[Status, float | None, str]:
        """Compare the number with the rule's bounds. Return status, value and message."""
        value = self._found.value(rule, key)
        if isinstance(rule, Change):
            return self._change(rule, key, plain(value))
        assert isinstance(rule, Sum | DistinctCount | Metric)
        good = within(value, rule.min, rule.max)
        shown = "there is no value" if value is None else _shown(value)
        return (Status.PASSED if good else Status.FAILED), plain(value), f"{shown}; expected {bounds_in_words(rule.min, rule.max)}"

    def _change(self, rule: Change, key: Key, now: float | None) -> tuple[Status, float | None, str]:
        """Compare the number with the mean of earlier partitions. Return status, value and message."""
        values = self._earlier(rule, key)
        if now is None:
            return Status.UNASSERTED, None, "there is no value"
        if not values:
            return Status.UNASSERTED, now, "there is nothing to compare with: no earlier partition has rows"
        mean = sum(values) / len(values)
        if mean == 0:
            return Status.UNASSERTED, now, f"there is nothing to compare with: the mean of {len(values)} earlier partitions is 0"
        change = (now - mean) / abs(mean)
        told = f"{now:,.6g} is {change:+.1%} of the mean {mean:,.6g} of {len(values)} earlier partitions"
        expected = bounds_in_words(rule.min_change, rule.max_change)
        if within(change, rule.min_change, rule.max_change):
            return Status.PASSED, now, f"{told}; expected {expected}"
        # More rows may still come, so a number below the lower bound says nothing yet.
        if rule.min_change is not None and change < rule.min_change and key is not None and not self._ground.is_over(key):
            return Status.UNASSERTED, now, f"{told}, and the partition is still being filled"
        return Status.FAILED, now, f"{told}; expected {expected}"

    def _earlier(self, rule: Change, key: Key) -> Sequence[float]:
        """Return the numbers of the earlier partitions that have rows and a number."""
        if key is None:
            return ()
        earlier = [self._history[rule.id, k] for k in self._ground.before(key, rule.over) if (rule.id, k) in self._history]
        return [number for rows, number in earlier if rows and number is not None]


def plain(value: Any) -> float | None:
    """Return a number as records and charts can hold it; None for NaN and infinite values."""
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _shown(value: Any) -> str:
    """Return a number for a message, without trailing zeros of an exact decimal."""
    if not isinstance(value, Decimal):
        return f"{value:,}"
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
