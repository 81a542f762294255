"""A scan: every rule of a container asked of the rows on a ground, in as few passes over them as there can be.

Belongs here: the passes and their order. Does not belong: which rows (``ground``), SQL (``predicates``), jobs (``rows``, ``groups``), what
follows from the numbers (``judge``), what is kept of it (``records``) or shown (orchestration).
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
    Reach,
    RowRule,
    Rule,
    Unique,
)
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.guards import expr
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.quality.capture import Capture, OpenKeys
from incremental_assets.quality.ground import Ground
from incremental_assets.quality.groups import Grouped, Lookup
from incremental_assets.quality.judge import Found, History, Judge, asserted_name, failed_name, plain, value_name
from incremental_assets.quality.planner import ScanPlan, plan_scan
from incremental_assets.quality.predicates import Asked, CannotAsk, exact, number, row_predicate
from incremental_assets.quality.rows import PARTITION, Aggregate, Key, Rows, Values, plain_key
from incremental_assets.quality.table_rules import table_verdict
from incremental_assets.quality.verdict import FailedRow, ScanResult, Status, Verdict

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_Made = TypeVar("_Made")
_COUNT = Aggregate(None, "n", partial(expr, "count(*)"))
_RANGED = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "string")
"""Types whose least and greatest values come back from Spark as they went."""

Baseline = Callable[[Sequence[str], Sequence[str]], Mapping[tuple[str, str], tuple[int, float | None]]]
"""Of rules and partitions: (rows, value) as an earlier scan found them."""


@dataclass(frozen=True)
class Scanner:
    """What a scan needs besides the rows. ``other``: another container's table by its name; ``open_keys``: rows with an open anomaly;
    ``elsewhere``: of those, the keys of such as were found in other partitions than these.
    """

    spark: "Callable[[], SparkSession]" = field(repr=False)
    timezone: str
    now: datetime.datetime
    other: Callable[[str], LakeTable | None] = field(repr=False)
    baseline: Baseline = field(repr=False)
    open_keys: OpenKeys = field(repr=False)
    elsewhere: Callable[[Sequence[Key]], Sequence[str]] = field(default=lambda keys: (), repr=False)

    def scan(self, label: str, table: LakeTable, head: Head, ground: Ground, rules: Sequence[Rule], key: Sequence[str]) -> ScanResult:
        """``key``: the columns that tell rows apart. Raises LakeError where the rows themselves cannot be read."""
        asked = Asked({column.name: column.type for column in head.columns}, self.now, self.timezone)
        with lake_errors(label, table.url):
            rows = Rows(self.spark(), table, head, ground, asked)
            return _Scan(self, rows, rules, tuple(key)).result()


class _Scan:
    def __init__(self, scanner: Scanner, rows: Rows, rules: Sequence[Rule], key: tuple[str, ...]) -> None:
        self._scanner, self._rows, self._rules, self._key = scanner, rows, rules, key
        self._plan: ScanPlan = plan_scan(rules)
        self._own: dict[str, Values] = {}
        self._broken: dict[str, Callable[[], Any]] = {}

    def result(self) -> ScanResult:
        first = self._first_pass()
        self._filtered_numbers()
        self._grouped(first)
        self._looked_up(first)
        keys = self._keys(first)
        found = Found(first, self._own, self._of_none(keys, first), self._rows.troubles)
        judge = Judge(found, self._rows.ground, self._history(keys, found))
        scanned = sum(found.rows(key) for key in keys)
        verdicts: list[Verdict] = []
        for rule in self._rules:
            if isinstance(rule, ExpectedSchema | Freshness):
                verdicts.append(table_verdict(rule, self._rows, scanned))
            else:
                verdicts += [judge.verdict(rule, key) for key in keys]
        failed_rows, moved = self._failed_rows(verdicts), self._moved(keys)
        return ScanResult(self._rows.head.version, self._rows.passes, {key: found.rows(key) for key in keys}, verdicts, failed_rows, moved)

    # ------------------------------------------------------------------ the passes
    def _first_pass(self) -> Values:
        """All rules of rows, all aggregates without a filter, and what the other passes need to know beforehand."""
        wanted = [_COUNT]
        for rule in self._rules:
            if rule.filter is not None and isinstance(rule, RowRule | Unique | ExistsIn | DistinctCount):
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
            value = f"unix_date({quoted})" if kind == "date" else quoted
            wanted += [Aggregate(None, f"{end}:{column}", partial(expr, f"{end}({value})")) for end in ("min", "max")]
        return self._rows.aggregate(self._rows.frame, wanted)

    def _number_aggregates(self, rules: Sequence[NumberRule]) -> list[Aggregate]:
        found: list[Aggregate] = []
        for rule in rules:
            text = self._asked(rule, partial(number, rule, self._rows.asked))
            if text is not None:
                found.append(Aggregate(rule.id, value_name(rule), partial(expr, text), (text,), numeric=True))
        return found

    def _filtered_numbers(self) -> None:
        for condition, rules in self._plan.numbers.items():
            if condition is None:
                continue
            wanted = self._number_aggregates(rules)
            wanted += [Aggregate(one.owner, f"asserted:{one.owner}", partial(expr, "count(*)")) for one in wanted]
            self._own.update(dict.fromkeys((rule.id for rule in rules), self._rows.aggregate(self._rows.frame, wanted, condition)))

    def _grouped(self, first: Values) -> None:
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
        for rule in self._plan.lookups:
            if rule.id in self._rows.troubles:
                continue
            other = self._scanner.other(rule.container)
            lookup = self._made([rule], partial(Lookup, self._rows, rule, other, partial(self._range, first)))
            if lookup is not None:
                self._own[rule.id] = self._rows.attempt([rule.id], lookup.numbers)
                self._broken[rule.id] = lookup.broken

    def _of_none(self, keys: Sequence[Key], first: Values) -> dict[str, Any]:
        """The numbers of no rows, where some partition has none, or none that a filter leaves."""
        rules = [rule for rules in self._plan.numbers.values() for rule in rules if rule.id not in self._rows.troubles]
        some = any(key not in first for key in keys)
        return self._rows.of_none(
            self._number_aggregates([r for r in rules if some or (r.filter is not None and self._own[r.id].keys() < first.keys())])
        )

    # ------------------------------------------------------------------ what is known before a pass
    def _asked(self, rule: Rule, make: Callable[[], str]) -> str | None:
        if rule.id in self._rows.troubles:
            return None
        try:
            return make()
        except CannotAsk as error:
            self._rows.troubles[rule.id] = str(error)
            return None

    def _made(self, rules: Sequence[Rule], make: Callable[[], _Made]) -> _Made | None:
        if not rules:
            return None
        try:
            return make()
        except CannotAsk as error:
            self._rows.troubles.update(dict.fromkeys((rule.id for rule in rules), str(error)))
            return None

    def _ranged(self) -> dict[str, str]:
        """Columns, with their types, whose least and greatest value tells which files elsewhere can matter."""
        uniques = [r for rules in self._plan.groups.values() for r in rules if isinstance(r, Unique) and r.scope is Reach.TABLE]
        wanted = [name for rule in uniques for name in rule.columns] if self._rows.ground.predicate is not None else []
        wanted += [rule.column for rule in self._plan.lookups]
        types = {name.lower(): kind for name, kind in self._rows.asked.types.items()}
        return {name: types[name] for name in dict.fromkeys(n.lower() for n in wanted) if types.get(name, "").startswith(_RANGED)}

    def _range(self, first: Values, column: str) -> tuple[str, str] | None:
        """Of all partitions."""
        name = column.lower()
        values = [(v[f"min:{name}"], v[f"max:{name}"]) for v in first.values() if v.get(f"min:{name}") is not None]
        if not values:
            return None
        kind = self._rows.asked.type_of(column)
        return exact(min(least for least, _ in values), kind), exact(max(most for _, most in values), kind)

    def _keys(self, first: Values) -> list[Key]:
        """Those asked for, or those with rows; and the rows of no partition, where there are some."""
        ground = self._rows.ground
        if ground.partition is None:
            return [None]
        seen = {key for key in (*first, *ground.also) if key is not None}
        asked = ground.keys or ()
        nowhere: list[Key] = [None] if None in first or None in ground.also else []
        return [*asked, *sorted(seen - set(asked), key=_in_order), *nowhere]

    def _history(self, keys: Sequence[Key], found: Found) -> History:
        """Rows and number of earlier partitions, for each rule that compares: from this scan, from earlier ones, or else counted now."""
        rules = [rule for rule in self._plan.changes if rule.id not in self._rows.troubles]
        ground = self._rows.ground
        wanted = {(r.id, k) for r in rules for key in keys if key is not None for k in ground.before(key, r.over)}
        here = [key for key in keys if key is not None]
        known = {(rule.id, key): (found.rows(key), plain(found.value(rule, key))) for rule in rules for key in here}
        unknown = sorted({key for _, key in wanted - known.keys()})
        if not unknown:
            return known
        known = {**self._scanner.baseline([rule.id for rule in rules], unknown), **known}
        missing = sorted({key for _, key in wanted - known.keys()})
        return {**self._counted(rules, missing), **known} if missing else known

    def _counted(self, rules: Sequence[Change], keys: Sequence[str]) -> History:
        """Of partitions that are not on the ground."""
        frame = self._rows.whole.where(self._rows.ground.of_keys(keys))
        plain_rules = [rule for rule in rules if rule.filter is None]
        first = self._rows.aggregate(frame, [_COUNT, *self._number_aggregates(plain_rules)])
        own: dict[str, Values] = {}
        for condition in dict.fromkeys(rule.filter for rule in rules if rule.filter is not None):
            mine = [rule for rule in rules if rule.filter == condition]
            values = self._rows.aggregate(frame, self._number_aggregates(mine), condition)
            own.update(dict.fromkeys((rule.id for rule in mine), values))
        none = self._rows.of_none(self._number_aggregates([rule for rule in rules if rule.filter is not None]))
        found = Found(first, own, none, {})
        return {(rule.id, key): (found.rows(key), plain(found.value(rule, key))) for rule in rules for key in keys}

    # ------------------------------------------------------------------ the rows that broke a rule
    def _failed_rows(self, verdicts: Sequence[Verdict]) -> Sequence[FailedRow]:
        broken = {v.rule for v in verdicts if v.status is Status.FAILED and v.failed}
        rows = [(r, row_predicate(r, self._rows.asked)) for r in self._plan.rows if r.id in broken]
        frames = {name: make for name, make in self._broken.items() if name in broken}
        if not rows and not frames:
            return ()
        where = {(v.rule, v.partition) for v in verdicts if v.status is Status.FAILED}
        conditions = [(rule, partial(_breaks, rule, condition)) for rule, condition in rows]
        return Capture(self._rows, self._key, self._scanner.open_keys).take(conditions, frames, where)

    def _moved(self, keys: Sequence[Key]) -> Mapping[str, Key]:
        """Where rows are now that something is on record of in other partitions: their identifier has changed since."""
        wanted = self._scanner.elsewhere(keys) if self._key else ()
        if not wanted:
            return {}
        self._rows.passes += 1
        known = self._rows.spark.createDataFrame([(key,) for key in wanted], "key string")
        here = self._rows.frame.selectExpr(PARTITION, f"{plain_key(self._key, self._rows.asked.types)} AS key")
        return {row["key"]: self._rows.key(row[PARTITION]) for row in here.join(known, "key", "left_semi").collect()}


def _breaks(rule: Rule, condition: str) -> Any:
    """True for a row that the filter leaves and that breaks the rule; of others nothing is asked. Each text is parsed by itself."""
    from pyspark.sql.connect import functions

    broken = ~expr(condition)
    return broken if rule.filter is None else functions.when(expr(rule.filter), broken)


def _count_if(condition: Callable[[], Any]) -> Any:
    """Not Spark's ``count_if``: its code has each condition twice, and from some 30 rules on takes five times as long."""
    from pyspark.sql.connect import functions

    return functions.count(functions.when(condition(), functions.lit(1)))


def _in_order(key: str) -> tuple[bool, int, str]:
    number = key.lstrip("-").isdigit()
    return (not number, int(key) if number else 0, key)
