"""A scan: it evaluates all rules of a container on the rows in the scan scope, in as few passes over them as possible.

Belongs here: the passes and their order. Does not belong: which rows are read (``scan_scope``), SQL (``predicates``), jobs (``rows``,
``groups``), verdicts (``judge``, ``table_rules``), what is recorded of a scan (``records``) or shown of it (``dagster.quality``).
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from incremental_assets.core.rules import (
    Change,
    DistinctCount,
    ExistsIn,
    ExpectedSchema,
    Freshness,
    NumberRule,
    RowRule,
    Rule,
    Unique,
    UniqueScope,
)
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.guards import expr
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.quality.capture import Capture, OpenKeys
from incremental_assets.quality.groups import Grouped, Lookup
from incremental_assets.quality.judge import History, Judge, MeasuredValues, asserted_name, failed_name, plain, value_name
from incremental_assets.quality.planner import ScanPlan, plan_scan
from incremental_assets.quality.predicates import PredicateContext, RuleNotApplicable, exact, number, row_predicate
from incremental_assets.quality.rows import PARTITION, Aggregate, Key, Rows, Values, plain_key
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.quality.table_rules import table_verdict
from incremental_assets.quality.verdict import FailedRow, ScanResult, Status, Verdict

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_Made = TypeVar("_Made")
_COUNT = Aggregate(None, "n", partial(expr, "count(*)"))
"""The number of rows of each partition. Every first pass computes it."""
_RANGED = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "string")
"""Types whose least and greatest value can be collected and then written back into SQL without any change."""

Baseline = Callable[[Sequence[str], Sequence[str]], Mapping[tuple[str, str], tuple[int, float | None]]]
"""Returns, for rule ids and partition keys, the number of rows and the value that an earlier scan found.

Pairs that no scan has a result for are left out.
"""


@dataclass(frozen=True)
class Scanner:
    """What a scan needs besides the rows.

    ``spark`` opens the session. ``timezone`` is the zone of columns without a time zone. ``now`` is the time of the scan. ``other`` returns
    another container's table by its name (``container`` or ``datastore/container``), None if there is no such container. ``open_keys``
    returns, by rule id, the keys of rows with an open anomaly. ``elsewhere`` returns the keys of those rows whose anomaly was found in
    other partitions than the given ones.
    """

    spark: "Callable[[], SparkSession]" = field(repr=False)
    timezone: str
    now: datetime.datetime
    other: Callable[[str], LakeTable | None] = field(repr=False)
    baseline: Baseline = field(repr=False)
    open_keys: OpenKeys = field(repr=False)
    elsewhere: Callable[[Sequence[Key]], Sequence[str]] = field(default=lambda keys: (), repr=False)

    def scan(
        self, label: str, table: LakeTable, head: Head, scan_scope: ScanScope, rules: Sequence[Rule], key: Sequence[str]
    ) -> ScanResult:
        """Scan the rows in the scope and return the verdicts and failed rows.

        ``label`` is the container's label, for messages. ``head`` fixes the version of the table. ``key`` are the columns that tell rows
        apart. Raises LakeError if the rows themselves cannot be read; a rule that cannot be evaluated only makes its own verdict
        ``errored``.
        """
        asked = PredicateContext({column.name: column.type for column in head.columns}, self.now, self.timezone)
        with lake_errors(label, table.url):
            rows = Rows(self.spark(), table, head, scan_scope, asked)
            return _Scan(self, rows, rules, tuple(key)).result()


class _Scan:
    """One scan while it runs.

    ``_own`` has the numbers of the passes for single rules, by rule id. ``_broken`` has, by rule id, a function that makes the frame of the
    rows that break the rule.
    """

    def __init__(self, scanner: Scanner, rows: Rows, rules: Sequence[Rule], key: tuple[str, ...]) -> None:
        self._scanner, self._rows, self._rules, self._key = scanner, rows, rules, key
        self._plan: ScanPlan = plan_scan(rules)
        self._own: dict[str, Values] = {}
        self._broken: dict[str, Callable[[], Any]] = {}

    def result(self) -> ScanResult:
        """Run all passes and return the result. The order of the passes matters."""
        # The first pass runs before the others: it finds the bounds that they use to skip files, and a rule whose filter fails needs no
        # further pass.
        first = self._first_pass()
        self._filtered_numbers()
        self._grouped(first)
        self._looked_up(first)
        keys = self._keys(first)
        found = MeasuredValues(first, self._own, self._of_none(keys, first), self._rows.troubles)
        judge = Judge(found, self._rows.scan_scope, self._history(keys, found))
        scanned = sum(found.rows(key) for key in keys)
        verdicts: list[Verdict] = []
        for rule in self._rules:
            # Rules about the table give one verdict for the scan, whatever its scope.
            if isinstance(rule, ExpectedSchema | Freshness):
                verdicts.append(table_verdict(rule, self._rows, scanned))
            else:
                verdicts += [judge.verdict(rule, key) for key in keys]
        # These passes count too, so they come before ``passes`` is read.
        failed_rows, moved = self._failed_rows(verdicts), self._moved(keys)
        return ScanResult(self._rows.head.version, self._rows.passes, {key: found.rows(key) for key in keys}, verdicts, failed_rows, moved)

    # ------------------------------------------------------------------ the passes
    def _first_pass(self) -> Values:
        """Compute everything that needs no pass of its own.

        That is: all rules about rows, all aggregates without a filter, and the least and greatest values that later passes use to skip
        files.
        """
        wanted = [_COUNT]
        for rule in self._rules:
            if rule.filter is not None and isinstance(rule, RowRule | Unique | ExistsIn | DistinctCount):
                # The number of asserted rows. It also shows, before a pass of its own, whether the filter can be evaluated.
                holds = partial(_count_if, partial(expr, rule.filter))
                wanted.append(Aggregate(rule.id, asserted_name(rule), holds, (rule.filter,)))
            if isinstance(rule, RowRule):
                condition = self._asked(rule, partial(row_predicate, rule, self._rows.asked))
                if condition is not None:
                    breaks = partial(_count_if, partial(_breaks, rule, condition))
                    wanted.append(Aggregate(rule.id, failed_name(rule), breaks, (condition, rule.filter)))
        wanted += self._number_aggregates(self._plan.numbers.get(None, ()))
        for column, kind in self._ranged().items():
            quoted = self._rows.asked.column(column)
            # Python has no dates before year 1, so dates are collected as days since 1970.
            value = f"unix_date({quoted})" if kind == "date" else quoted
            wanted += [Aggregate(None, f"{end}:{column}", partial(expr, f"{end}({value})")) for end in ("min", "max")]
        return self._rows.aggregate(self._rows.frame, wanted)

    def _number_aggregates(self, rules: Sequence[NumberRule]) -> list[Aggregate]:
        """Return the aggregates of rules about a number; rules that cannot be evaluated are noted and left out."""
        found: list[Aggregate] = []
        for rule in rules:
            text = self._asked(rule, partial(number, rule, self._rows.asked))
            if text is not None:
                found.append(Aggregate(rule.id, value_name(rule), partial(expr, text), (text,), numeric=True))
        return found

    def _filtered_numbers(self) -> None:
        """Compute the rules about a number that have a filter, one pass for each distinct filter."""
        for condition, rules in self._plan.numbers.items():
            if condition is None:
                continue
            wanted = self._number_aggregates(rules)
            # The filter is applied to the rows of this pass, so that its number of rows is the number of asserted rows.
            wanted += [Aggregate(one.owner, f"asserted:{one.owner}", partial(expr, "count(*)")) for one in wanted]
            self._own.update(dict.fromkeys((rule.id for rule in rules), self._rows.aggregate(self._rows.frame, wanted, condition)))

    def _grouped(self, first: Values) -> None:
        """Compute the rules that need rows grouped by other columns, one pass for each grouping."""
        for grouping, rules in self._plan.groups.items():
            ready = [rule for rule in rules if rule.id not in self._rows.troubles]
            grouped = self._made(ready, partial(Grouped, self._rows, grouping, ready, partial(self._range, first)))
            if grouped is None:
                continue
            found = self._rows.attempt([rule.id for rule in ready], grouped.numbers)
            for rule in ready:
                self._own[rule.id] = found
                if isinstance(rule, Unique):
                    self._broken[rule.id] = partial(grouped.broken, rule)

    def _looked_up(self, first: Values) -> None:
        """Compute the rules that need a lookup in another container, one pass each."""
        for rule in self._plan.lookups:
            if rule.id in self._rows.troubles:
                continue
            other = self._scanner.other(rule.container)
            lookup = self._made([rule], partial(Lookup, self._rows, rule, other, partial(self._range, first)))
            if lookup is not None:
                self._own[rule.id] = self._rows.attempt([rule.id], lookup.numbers)
                self._broken[rule.id] = lookup.broken

    def _of_none(self, keys: Sequence[Key], first: Values) -> dict[str, Any]:
        """Return the values of aggregates over zero rows, if a partition has no rows or a filter keeps none of a partition's rows."""
        rules = [rule for rules in self._plan.numbers.values() for rule in rules if rule.id not in self._rows.troubles]
        # A requested partition without rows is missing in ``first``. A partition of which a filter keeps nothing is missing in ``_own``.
        some = any(key not in first for key in keys)
        return self._rows.of_none(
            self._number_aggregates([r for r in rules if some or (r.filter is not None and self._own[r.id].keys() < first.keys())])
        )

    # ------------------------------------------------------------------ what is known before a pass
    def _asked(self, rule: Rule, make: Callable[[], str]) -> str | None:
        """Return the SQL that ``make`` builds; None if the rule cannot be evaluated, which is then noted."""
        if rule.id in self._rows.troubles:
            return None
        try:
            return make()
        except RuleNotApplicable as error:
            self._rows.troubles[rule.id] = str(error)
            return None

    def _made(self, rules: Sequence[Rule], make: Callable[[], _Made]) -> _Made | None:
        """Return the job that ``make`` builds; None if the rules cannot be evaluated, which is then noted."""
        if not rules:
            return None
        try:
            return make()
        except RuleNotApplicable as error:
            self._rows.troubles.update(dict.fromkeys((rule.id for rule in rules), str(error)))
            return None

    def _ranged(self) -> dict[str, str]:
        """Return the columns, with their types, whose least and greatest value later tells which files outside the scope can matter.

        These are the columns of ``unique`` over the table, unless the scope is the whole table anyway, and those of lookups.
        """
        uniques = [r for rules in self._plan.groups.values() for r in rules if isinstance(r, Unique) and r.scope is UniqueScope.TABLE]
        wanted = [name for rule in uniques for name in rule.columns] if self._rows.scan_scope.predicate is not None else []
        wanted += [rule.column for rule in self._plan.lookups]
        types = {name.lower(): kind for name, kind in self._rows.asked.types.items()}
        return {name: types[name] for name in dict.fromkeys(n.lower() for n in wanted) if types.get(name, "").startswith(_RANGED)}

    def _range(self, first: Values, column: str) -> tuple[str, str] | None:
        """Return the least and the greatest value of a column over all partitions in the scope, as constants; None if none are known."""
        name = column.lower()
        values = [(v[f"min:{name}"], v[f"max:{name}"]) for v in first.values() if v.get(f"min:{name}") is not None]
        if not values:
            return None
        kind = self._rows.asked.type_of(column)
        # Python orders texts by code points, which is the order of UTF-8 bytes, and so the order of Spark.
        return exact(min(least for least, _ in values), kind), exact(max(most for _, most in values), kind)

    def _keys(self, first: Values) -> list[Key]:
        """Return the partitions that get a verdict, in this order: the requested ones, the others, the rows without an identifier.

        The rows without an identifier (None) are included only if there are any, or if an anomaly of theirs is open.
        """
        scan_scope = self._rows.scan_scope
        if scan_scope.partition is None:
            return [None]
        seen = {key for key in (*first, *scan_scope.with_open_anomalies) if key is not None}
        asked = scan_scope.keys or ()
        nowhere: list[Key] = [None] if None in first or None in scan_scope.with_open_anomalies else []
        return [*asked, *sorted(seen - set(asked), key=_in_order), *nowhere]

    def _history(self, keys: Sequence[Key], found: MeasuredValues) -> History:
        """Return the rows and values of earlier partitions, for the rules that compare with them.

        They are taken from this scan if it covers the partition, else from earlier scans, else they are counted now.
        """
        rules = [rule for rule in self._plan.changes if rule.id not in self._rows.troubles]
        scan_scope = self._rows.scan_scope
        wanted = {(r.id, k) for r in rules for key in keys if key is not None for k in scan_scope.before(key, r.over)}
        here = [key for key in keys if key is not None]
        known = {(rule.id, key): (found.rows(key), plain(found.value(rule, key))) for rule in rules for key in here}
        unknown = sorted({key for _, key in wanted - known.keys()})
        if not unknown:
            return known
        # The numbers of this scan take precedence over those of earlier scans.
        known = {**self._scanner.baseline([rule.id for rule in rules], unknown), **known}
        missing = sorted({key for _, key in wanted - known.keys()})
        return {**self._counted(rules, missing), **known} if missing else known

    def _counted(self, rules: Sequence[Change], keys: Sequence[str]) -> History:
        """Count partitions that lie outside the scope."""
        frame = self._rows.whole.where(self._rows.scan_scope.of_keys(keys))
        plain_rules = [rule for rule in rules if rule.filter is None]
        first = self._rows.aggregate(frame, [_COUNT, *self._number_aggregates(plain_rules)])
        own: dict[str, Values] = {}
        for condition in dict.fromkeys(rule.filter for rule in rules if rule.filter is not None):
            mine = [rule for rule in rules if rule.filter == condition]
            values = self._rows.aggregate(frame, self._number_aggregates(mine), condition)
            own.update(dict.fromkeys((rule.id for rule in mine), values))
        none = self._rows.of_none(self._number_aggregates([rule for rule in rules if rule.filter is not None]))
        found = MeasuredValues(first, own, none, {})
        return {(rule.id, key): (found.rows(key), plain(found.value(rule, key))) for rule in rules for key in keys}

    # ------------------------------------------------------------------ the rows that broke a rule
    def _failed_rows(self, verdicts: Sequence[Verdict]) -> Sequence[FailedRow]:
        """Fetch the rows that broke a rule; no job runs if there are none."""
        # ``failed`` is None for rules about a number, which have no failed rows.
        broken = {v.rule for v in verdicts if v.status is Status.FAILED and v.failed}
        rows = [(r, row_predicate(r, self._rows.asked)) for r in self._plan.rows if r.id in broken]
        frames = {name: make for name, make in self._broken.items() if name in broken}
        if not rows and not frames:
            return ()
        where = {(v.rule, v.partition) for v in verdicts if v.status is Status.FAILED}
        conditions = [(rule, partial(_breaks, rule, condition)) for rule, condition in rows]
        return Capture(self._rows, self._key, self._scanner.open_keys).take(conditions, frames, where)

    def _moved(self, keys: Sequence[Key]) -> Mapping[str, Key]:
        """Return, for rows with an open anomaly that was found in another partition, the partition they are in now.

        Such a row's identifier has changed since, so that an upsert moved it into the scope.
        """
        wanted = self._scanner.elsewhere(keys) if self._key else ()
        if not wanted:
            return {}
        self._rows.passes += 1
        known = self._rows.spark.createDataFrame([(key,) for key in wanted], "key string")
        here = self._rows.frame.selectExpr(PARTITION, f"{plain_key(self._key, self._rows.asked.types)} AS key")
        return {row["key"]: self._rows.key(row[PARTITION]) for row in here.join(known, "key", "left_semi").collect()}


def _breaks(rule: Rule, condition: str) -> Any:
    """Return the Spark condition that is true for a row that the filter keeps and that breaks the rule.

    The condition is not evaluated for other rows, where it might fail. Filter and condition are parsed separately.
    """
    from pyspark.sql.connect import functions

    # ``NOT`` of NULL is NULL, so a row for which the condition is NULL passes.
    broken = ~expr(condition)
    return broken if rule.filter is None else functions.when(expr(rule.filter), broken)


def _count_if(condition: Callable[[], Any]) -> Any:
    """Count the rows for which the condition is true, without Spark's own ``count_if``.

    Spark's ``count_if`` evaluates each condition twice. From some 30 rules on the generated code is split differently, and takes five times
    as long.
    """
    from pyspark.sql.connect import functions

    return functions.count(functions.when(condition(), functions.lit(1)))


def _in_order(key: str) -> tuple[bool, int, str]:
    """Sort key for partition keys: integers come first, by value, then all others as text."""
    number = key.lstrip("-").isdigit()
    return (not number, int(key) if number else 0, key)
