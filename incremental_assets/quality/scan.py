"""A scan: every rule of a container asked of the rows on a ground, in as few passes over them as there can be.

Belongs here: from rules to verdicts. Does not belong: which rows (``ground``), SQL (``predicates``), jobs (``rows``, ``groups``), what is
kept of it (``records``) or shown (orchestration).
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from incremental_assets.lake.errors import lake_errors
from incremental_assets.lake.guards import expr
from incremental_assets.lake.table import Head, LakeTable
from incremental_assets.model.rules import Change, DistinctCount, ExistsIn, Metric, NumberRule, Reach, RowRule, Rule, Sum, Unique
from incremental_assets.quality.capture import Capture, OpenKeys
from incremental_assets.quality.ground import Ground
from incremental_assets.quality.groups import DISTINCT, REPEATED, REPEATED_IN_TABLE, Grouped, Lookup
from incremental_assets.quality.planner import ScanPlan, plan_scan
from incremental_assets.quality.predicates import Asked, CannotAsk, bounds_in_words, number, row_predicate, within
from incremental_assets.quality.rows import PARTITION, Aggregate, Key, Rows, Values
from incremental_assets.quality.table_rules import fresh, schema_as_expected
from incremental_assets.quality.verdict import FailedRow, ScanResult, Status, Verdict

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_RANGED = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "string")
"""Types whose least and greatest values come back from Spark as they went."""

Baseline = Callable[[Sequence[str], Sequence[str]], Mapping[tuple[str, str], tuple[int, float | None]]]
"""Of rules and partitions: (rows, value) as an earlier scan found them."""


@dataclass(frozen=True)
class Scanner:
    """What a scan needs besides the rows. ``other``: another container's table by its name; ``open_keys``: rows with an open anomaly."""

    spark: "Callable[[], SparkSession]" = field(repr=False)
    timezone: str
    now: datetime.datetime
    other: Callable[[str], LakeTable | None] = field(repr=False)
    baseline: Baseline = field(repr=False)
    open_keys: OpenKeys = field(repr=False)

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
        self._names = {id(rule): f"r{number}" for number, rule in enumerate(rules)}
        self._numbers: dict[str, dict[Key, Any]] = {}
        self._broken: dict[str, Callable[[], Any]] = {}
        self._groups: dict[str, Values] = {}

    def result(self) -> ScanResult:
        first = self._first_pass()
        self._filtered_numbers()
        self._grouped(first)
        self._looked_up(first)
        keys = self._keys(first)
        self._of_no_rows(keys, first)
        history = self._history(keys, first)
        verdicts: list[Verdict] = []
        for rule in self._rules:
            verdicts += self._verdicts(rule, keys, first, history)
        failed_rows = self._failed_rows(verdicts)
        counted = {key: first.get(key, {}).get("n", 0) for key in keys}
        return ScanResult(self._rows.head.version, self._rows.passes, counted, verdicts, failed_rows)

    # ------------------------------------------------------------------ the passes
    def _first_pass(self) -> Values:
        """All rules of rows, all aggregates without a filter, and what the other passes need to know beforehand."""
        wanted = [Aggregate(None, "n", lambda: expr("count(*)"))]
        for rule in self._rules:
            name = self._names[id(rule)]
            if rule.filter is not None and not isinstance(rule, NumberRule):
                wanted.append(Aggregate(rule.id, f"{name}_asserted", lambda rule=rule: _count_if(expr(rule.filter or "")), (rule.filter,)))
            if isinstance(rule, RowRule):
                condition = self._asked(rule, lambda rule=rule: row_predicate(rule, self._rows.asked))
                if condition is not None:
                    texts = (condition, rule.filter)
                    wanted.append(Aggregate(rule.id, f"{name}_failed", lambda rule=rule, c=condition: _count_if(_breaks(rule, c)), texts))
        wanted += self._number_aggregates(self._plan.numbers.get(None, ()))
        for column in self._ranged():
            quoted = self._rows.asked.column(column)
            wanted += [
                Aggregate(None, f"least_{column}", lambda q=quoted: expr(f"min({q})")),
                Aggregate(None, f"most_{column}", lambda q=quoted: expr(f"max({q})")),
            ]
        return self._rows.aggregate(self._rows.frame, wanted)

    def _number_aggregates(self, rules: Sequence[NumberRule]) -> list[Aggregate]:
        found: list[Aggregate] = []
        for rule in rules:
            text = self._asked(rule, lambda rule=rule: number(rule, self._rows.asked))
            if text is not None:
                found.append(Aggregate(rule.id, f"{self._names[id(rule)]}_value", lambda t=text: expr(t), (text,)))
        return found

    def _filtered_numbers(self) -> None:
        for condition, rules in self._plan.numbers.items():
            if condition is None:
                continue
            counted = [Aggregate(rule.id, f"{self._names[id(rule)]}_asserted", lambda: expr("count(*)")) for rule in rules]
            wanted = [*self._number_aggregates(rules), *counted]
            try:
                _ = self._rows.filtered(condition).schema
            except Exception as error:  # noqa: BLE001 looked at below
                self._note_trouble(rules, error)
                continue
            found = self._rows.aggregate(self._rows.filtered(condition), wanted)
            for rule in rules:
                self._groups[rule.id] = found

    def _grouped(self, first: Values) -> None:
        for grouping, rules in self._plan.groups.items():
            ready = [rule for rule in rules if rule.id not in self._rows.troubles]
            grouped = self._made(ready, lambda g=grouping, r=ready: Grouped(self._rows, g, r, lambda column: _range(first, column)))
            if grouped is None:
                continue
            found = self._rows.attempt([rule.id for rule in ready], grouped.numbers)
            for rule in ready:
                self._groups[rule.id] = found
                if isinstance(rule, Unique):
                    self._broken[rule.id] = lambda g=grouped, rule=rule: g.broken(rule)

    def _looked_up(self, first: Values) -> None:
        for rule in self._plan.lookups:
            if rule.id in self._rows.troubles:
                continue
            other = self._scanner.other(rule.container)
            lookup = self._made([rule], lambda rule=rule, o=other: Lookup(self._rows, rule, o, lambda column: _range(first, column)))
            if lookup is not None:
                self._groups[rule.id] = self._rows.attempt([rule.id], lookup.numbers)
                self._broken[rule.id] = lookup.broken

    def _of_no_rows(self, keys: Sequence[Key], first: Values) -> None:
        """Aggregates of partitions without rows: a count is 0 there, a mean is NULL. Reads nothing."""
        missing = [key for key in keys if key not in first]
        rules = [rule for rules in self._plan.numbers.values() for rule in rules if rule.id not in self._rows.troubles]
        if not missing or not rules:
            return
        wanted = self._number_aggregates(rules)
        found = self._rows.frame.where("false").groupBy().agg(*(one.column().alias(one.name) for one in wanted)).collect()[0].asDict()
        for key in missing:
            first[key] = {"n": 0, **found}

    # ------------------------------------------------------------------ what is known before a pass
    def _asked(self, rule: Rule, make: Callable[[], str]) -> str | None:
        if rule.id in self._rows.troubles:
            return None
        try:
            return make()
        except CannotAsk as error:
            self._rows.troubles[rule.id] = str(error)
            return None

    def _made(self, rules: Sequence[Rule], make: Callable[[], Any]) -> Any:
        if not rules:
            return None
        try:
            return make()
        except CannotAsk as error:
            self._note_trouble(rules, error)
            return None

    def _note_trouble(self, rules: Sequence[Rule], error: Exception) -> None:
        from pyspark.errors import AnalysisException, ParseException

        from incremental_assets.quality.rows import explain

        if not isinstance(error, AnalysisException | ParseException | CannotAsk):
            raise error
        for rule in rules:
            self._rows.troubles[rule.id] = str(error) if isinstance(error, CannotAsk) else explain(error)

    def _ranged(self) -> list[str]:
        """Columns whose least and greatest value tells which files elsewhere can matter."""
        uniques = [r for rules in self._plan.groups.values() for r in rules if isinstance(r, Unique) and r.scope is Reach.TABLE]
        wanted = [name for rule in uniques for name in rule.columns] if self._rows.ground.predicate is not None else []
        wanted += [rule.column for rule in self._plan.lookups]
        types = {name.lower(): kind for name, kind in self._rows.asked.types.items()}
        return [name for name in dict.fromkeys(n.lower() for n in wanted) if types.get(name, "").startswith(_RANGED)]

    def _keys(self, first: Values) -> list[Key]:
        """Those asked for, or those with rows; and the rows of no partition, where there are some."""
        ground = self._rows.ground
        if ground.partition is None:
            return [None]
        seen = [key for key in first if key is not None]
        return [*(ground.keys if ground.keys is not None else sorted(seen, key=_in_order)), *([None] if None in first else [])]

    def _history(self, keys: Sequence[Key], first: Values) -> Mapping[tuple[str, str], tuple[int, float | None]]:
        """Rows and number of earlier partitions, for each rule that compares: from this scan, from earlier ones, or else counted now."""
        rules = [rule for rule in self._plan.changes if rule.id not in self._rows.troubles]
        ground = self._rows.ground
        known: dict[tuple[str, str], tuple[int, float | None]] = {}
        wanted = {(r.id, k) for r in rules for key in keys if key is not None for k in ground.before(key, r.over)}
        for rule in rules:
            for key in first:
                if key is not None:
                    known[rule.id, key] = (first[key].get("n", 0), _plain(self._value(rule, key, first)))
        stored = self._scanner.baseline([rule.id for rule in rules], sorted({key for _, key in wanted - known.keys()})) if rules else {}
        known = {**stored, **known}
        missing = sorted({key for _, key in wanted - known.keys()})
        if missing:
            for condition in {rule.filter for rule in rules}:
                mine = [rule for rule in rules if rule.filter == condition]
                aggregates = [*self._number_aggregates(mine), Aggregate(None, "n", lambda: expr("count(*)"))]
                frame = self._rows.whole.where(ground.of_keys(missing))
                found = self._rows.aggregate(frame if condition is None else frame.where(expr(condition)), aggregates)
                for rule in mine:
                    for key in missing:
                        values = found.get(key, {})
                        known.setdefault((rule.id, key), (values.get("n", 0), _plain(values.get(f"{self._names[id(rule)]}_value"))))
        return known

    # ------------------------------------------------------------------ the verdicts
    def _verdicts(self, rule: Rule, keys: Sequence[Key], first: Values, history: Mapping[tuple[str, str], Any]) -> list[Verdict]:
        if rule in self._plan.schemas or rule in self._plan.freshness:
            return [self._of_table(rule, first)]
        return [self._of_partition(rule, key, first, history) for key in keys]

    def _of_table(self, rule: Rule, first: Values) -> Verdict:
        rows = self._rows
        try:
            if rule in self._plan.schemas:
                status, value, message = schema_as_expected(rule, rows.head.columns)  # pyright: ignore[reportArgumentType]
            else:
                identifier = rows.ground.container.identifier
                status, value, message = fresh(rule, rows, identifier.columns if identifier else ())  # pyright: ignore[reportArgumentType]
        except CannotAsk as error:
            status, value, message = Status.ERRORED, None, str(error)
        total = sum(values.get("n", 0) for values in first.values())
        return Verdict(rule.id, None, status, rule.severity, rule.blocking, total, total, None, value, message)

    def _of_partition(self, rule: Rule, key: Key, first: Values, history: Mapping[tuple[str, str], Any]) -> Verdict:
        count = first.get(key, {}).get("n", 0)

        def verdict(status: Status, asserted: int, failed: int | None, value: float | None, message: str) -> Verdict:
            return Verdict(rule.id, key, status, rule.severity, rule.blocking, count, asserted, failed, value, message)

        trouble = self._rows.troubles.get(rule.id)
        if trouble is not None:
            return verdict(Status.ERRORED, 0, None, None, trouble)
        asserted = self._asserted(rule, key, count, first)
        if isinstance(rule, NumberRule):
            status, value, message = self._judge(rule, key, first, history)
            return verdict(status, asserted, None, value, message)
        failed = self._failed(rule, key, first)
        share = failed / asserted if asserted else 0.0
        good = rule.tolerates(failed, asserted)
        message = f"{failed:,} of {asserted:,} rows break it" if failed else f"all {asserted:,} rows pass" if asserted else "no rows"
        if failed and good:
            message += f", which the tolerance of {rule.tolerance} allows"
        return verdict(Status.PASSED if good else Status.FAILED, asserted, failed, share, message)

    def _asserted(self, rule: Rule, key: Key, count: int, first: Values) -> int:
        if rule.filter is None:
            return count
        own = self._groups.get(rule.id, {}) if isinstance(rule, NumberRule) else first
        return int(own.get(key, {}).get(f"{self._names[id(rule)]}_asserted") or 0)

    def _failed(self, rule: Rule, key: Key, first: Values) -> int:
        if isinstance(rule, RowRule):
            return int(first.get(key, {}).get(f"{self._names[id(rule)]}_failed") or 0)
        found = self._groups.get(rule.id, {}).get(key, {})
        if isinstance(rule, ExistsIn):
            return int(found.get("failed") or 0)
        assert isinstance(rule, Unique)
        return int(found.get(REPEATED_IN_TABLE if rule.scope is Reach.TABLE else REPEATED) or 0)

    def _value(self, rule: NumberRule, key: Key, first: Values) -> Any:
        name = f"{self._names[id(rule)]}_value"
        if isinstance(rule, DistinctCount):
            return self._groups.get(rule.id, {}).get(key, {}).get(DISTINCT, 0)
        own = self._groups.get(rule.id, {}).get(key, {}) if rule.filter is not None else {}
        return own[name] if name in own else first.get(key, {}).get(name, 0 if rule.rule in ("sum", "volumetric") else None)

    def _judge(self, rule: NumberRule, key: Key, first: Values, history: Mapping[tuple[str, str], Any]) -> tuple[Status, float | None, str]:
        value = self._value(rule, key, first)
        if isinstance(value, Decimal):
            value = float(value)
        if value is not None and not isinstance(value, int | float):
            return Status.ERRORED, None, f"the expression gives {type(value).__name__} and not a number."
        if isinstance(rule, Change):
            return self._change(rule, key, value, history)
        assert isinstance(rule, Sum | DistinctCount | Metric)
        good = within(value, rule.min, rule.max)
        shown = "there is no value" if value is None else f"{value:,}"
        return (Status.PASSED if good else Status.FAILED), _plain(value), f"{shown}; expected {bounds_in_words(rule.min, rule.max)}"

    def _change(self, rule: Change, key: Key, value: Any, history: Mapping[tuple[str, str], Any]) -> tuple[Status, float | None, str]:
        now = _plain(value)
        ground = self._rows.ground
        earlier = [history[rule.id, k] for k in ground.before(key, rule.over) if (rule.id, k) in history] if key is not None else []
        values = [number for rows, number in earlier if rows and number is not None]
        mean = sum(values) / len(values) if values else 0.0
        if now is None or mean == 0:
            return Status.UNASSERTED, now, "there is nothing to compare with: no earlier partition has rows"
        change = (now - mean) / abs(mean)
        told = f"{now:,.6g} is {change:+.1%} of the mean {mean:,.6g} of {len(values)} earlier partitions"
        expected = bounds_in_words(rule.min_change, rule.max_change)
        if within(change, rule.min_change, rule.max_change):
            return Status.PASSED, now, f"{told}; expected {expected}"
        if rule.min_change is not None and change < rule.min_change and key is not None and not ground.is_over(key):
            return Status.UNASSERTED, now, f"{told}, and the partition is still being filled"
        return Status.FAILED, now, f"{told}; expected {expected}"

    # ------------------------------------------------------------------ the rows that broke a rule
    def _failed_rows(self, verdicts: Sequence[Verdict]) -> Sequence[FailedRow]:
        broken = {v.rule for v in verdicts if v.status is Status.FAILED and v.failed}
        rows = [(r, row_predicate(r, self._rows.asked)) for r in self._plan.rows if r.id in broken]
        frames = {name: make for name, make in self._broken.items() if name in broken}
        if not rows and not frames:
            return ()
        where = {(v.rule, v.partition) for v in verdicts if v.status is Status.FAILED}
        return Capture(self._rows, self._key, self._scanner.open_keys).take(
            [(r, lambda r=r, c=c: _breaks(r, c)) for r, c in rows], frames, where
        )


def _breaks(rule: Rule, condition: str) -> Any:
    """True for a row that the filter leaves and that breaks the rule. Each text is parsed by itself."""
    broken = ~expr(condition)
    return broken if rule.filter is None else expr(rule.filter) & broken


def _count_if(condition: Any) -> Any:
    from pyspark.sql.connect import functions

    return functions.count_if(condition)


def _range(first: Values, column: str) -> tuple[Any, Any] | None:
    """Over all partitions."""
    name = column.lower()
    least = [v[f"least_{name}"] for v in first.values() if v.get(f"least_{name}") is not None]
    most = [v[f"most_{name}"] for v in first.values() if v.get(f"most_{name}") is not None]
    return (min(least), max(most)) if least else None


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


def _in_order(key: str) -> tuple[bool, int, str]:
    number = key.lstrip("-").isdigit()
    return (not number, int(key) if number else 0, key)


__all__ = ["PARTITION", "Scanner"]
