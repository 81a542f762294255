"""A scan: it evaluates all rules of a container on the rows in the scan scope, in as few passes over them as possible.

What can be measured in this process is measured there (``local_measures``). Of the other rules, all that are about single rows and all
aggregates go into one pass that groups by partition. Each distinct set of columns that rows have to be
grouped by takes one more pass, and so does each lookup in another container (``groups``), and each distinct filter of rules about a number
(``numbers``).
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.rules.keys import ExistsIn, GroupedRule
from incremental_assets.core.rules.numbers import AggregateRule
from incremental_assets.core.rules.rule import FailedRow, Measured, Outcome, PartitionRule, Rule, Status, Verdict
from incremental_assets.core.rules.sql import ScannedTable
from incremental_assets.core.rules.table import TableRule
from incremental_assets.core.rules.values import RowRule
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head
from incremental_assets.quality.failed_rows import FailedRows
from incremental_assets.quality.groups import Bounds, Grouped, Lookup, bounds_found, bounds_here, bounds_to_find, groupings
from incremental_assets.quality.local_measures import LocalMeasures, measure_here
from incremental_assets.quality.numbers import (
    EarlierPartitions,
    EarlierScans,
    aggregates,
    filtered_numbers,
    filtered_passes,
    numbers_of_none,
)
from incremental_assets.quality.passes import Pass, pass_of, run, run_together
from incremental_assets.quality.rows import ROW_COUNT, Aggregate, Condition, Key, Measurements, Rows, Values, asserted_name, number_name
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.quality.spark_errors import reraise_if_gone
from incremental_assets.quality.table_rules import table_passes, table_verdict
from incremental_assets.spark.code_generation import interpret_few
from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

MOST_SENT_BYTES = 64 << 20
"""Few rows are sent to Spark once for each pass of a query; up to so many bytes in all."""
_OF_FILES = re.compile(r"_metadata\b|input_file", re.IGNORECASE)
"""What Spark SQL knows of the file that a row is in."""


@dataclass(frozen=True)
class ScanResult:
    """What one scan of one container found.

    ``version`` is the version of the Delta table that was read. ``passes`` counts how many times rows of the table were read. ``rows`` is
    the number of rows of each partition in the scan scope. ``moved`` concerns rows with an open anomaly that was found in another
    partition: it maps the key of each such row that the scan did read to the partition that the row is in now.
    """

    version: int
    passes: int
    rows: Mapping[str | None, int]
    verdicts: Sequence[Verdict] = field(repr=False)
    failed_rows: Sequence[FailedRow] = field(repr=False)
    moved: Mapping[str, str | None] = field(default_factory=dict[str, str | None], repr=False)

    def without(self, judged: Set[tuple[str, str | None]]) -> "ScanResult":
        """Return this result without the verdicts and failed rows of the given pairs of (rule id, partition key).

        It is used for pairs that another scan has judged on a newer version of the table in the meantime.
        """
        if not judged:
            return self
        rows = (replace(row, rules=tuple(rule for rule in row.rules if (rule, row.partition) not in judged)) for row in self.failed_rows)
        verdicts = [one for one in self.verdicts if (one.rule, one.partition) not in judged]
        return replace(self, verdicts=verdicts, failed_rows=[row for row in rows if row.rules])


def scan(
    lake: LakeScope,
    head: Head,
    scan_scope: ScanScope,
    rules: Sequence[Rule],
    *,
    now: datetime.datetime,
    timezone: str,
    earlier: EarlierScans,
    anomalies: Iterable[Anomaly],
) -> ScanResult:
    """Scan the rows in the scope and return the verdicts and failed rows.

    ``lake`` has the container's table and those of other containers. ``head`` fixes the version of the table. ``now`` is the time of the
    scan, and ``timezone`` the zone of columns without a time zone. ``anomalies`` are those of the rules, whatever their state. Raises
    LakeError if the rows themselves cannot be read; a rule that cannot be evaluated only makes its own verdict ``errored``.
    """
    container = scan_scope.container
    table, identifier = lake.table(*container.key_path), container.identifier
    in_sql = ScannedTable(head.columns, now, timezone, () if identifier is None else tuple(identifier.columns), head.valueless)

    def spark() -> "SparkSession":
        interpret_few(lake.spark, table.rows())
        return lake.spark

    with lake_errors(container.label, table.url):
        here = measure_here(lake, table, head, scan_scope, rules, in_sql)
        rows = Rows(spark, table, head, scan_scope, in_sql, may_be_sent=not any(_OF_FILES.search(repr(rule)) for rule in rules))
        return _Scan(lake, rows, rules, here).result(earlier, anomalies)


class _Scan:
    """One scan while it runs.

    ``_here`` has what was measured in this process, and ``_by_spark`` the other rules. By rule id, ``_own`` has the numbers of that and of
    the passes for single rules, ``_of_table`` the answers to rules about the table, and ``_broken_frames`` the rows that break a rule.
    """

    def __init__(self, lake: LakeScope, rows: Rows, rules: Sequence[Rule], here: LocalMeasures) -> None:
        self._lake, self._rows, self._rules, self._scan_scope = lake, rows, rules, rows.scan_scope
        self._here, self._by_spark = here, [rule for rule in rules if rule.id not in here.own]
        self._own: dict[str, Values] = {**here.own}
        self._of_table: dict[str, list[Values]] = {}
        self._broken_frames: dict[str, DataFrame] = {}

    def result(self, scans: EarlierScans, anomalies: Iterable[Anomaly]) -> ScanResult:
        """Run all passes and return the result. The order of the passes matters."""
        rows, rules = self._rows, self._rules
        rows.passes += self._here.passes
        first = self._measured()
        found, keys = Measurements(first, self._own), self._keys(first)
        found = replace(found, of_none=numbers_of_none(rows, rules, keys, found))
        earlier = EarlierPartitions(rows, rules, keys, found, scans)
        scanned = {key: found.rows(key) for key in keys}
        verdicts: list[Verdict] = []
        for rule in rules:
            # Rules about the table give one verdict for the scan, whatever its scope.
            if isinstance(rule, TableRule):
                verdicts.append(table_verdict(rule, rows, sum(scanned.values()), self._of_table.get(rule.id)))
            elif isinstance(rule, PartitionRule):
                verdicts += [self._verdict(rule, key, found, earlier) for key in keys]
        # These passes count too, so they come before ``passes`` is read.
        ids = {rule.id for rule in rules}
        failed_rows = FailedRows(rows, [one for one in anomalies if one.rule in ids])
        taken, moved = self._failed_rows(failed_rows, verdicts), failed_rows.moved(keys, self._here)
        return ScanResult(rows.head.version, rows.passes, scanned, verdicts, taken, moved)

    # ------------------------------------------------------------------ the passes
    def _measured(self) -> Values:
        """Run all passes, and return what the first one has found. What the others have found is then in ``_own`` and ``_of_table``."""
        rows = self._rows
        if self._here.own and not any(isinstance(rule, PartitionRule) for rule in self._by_spark):
            return self._here.rows
        bounds = bounds_here(rows, self._by_spark) if rows.are_few else None
        first = None if bounds is None else self._in_one_query(bounds)
        if first is None:
            # The first pass runs before the others: it finds the bounds that they use to skip files, and a rule whose filter fails needs no
            # further pass.
            first = rows.aggregate(rows.frame, [*self._first_pass(), *bounds_to_find(rows, self._by_spark)])
            self._own.update(filtered_numbers(rows, self._by_spark))
            for one in self._own_passes(bounds_found(rows, first)):
                with rows.noting(*one.rules):
                    self._note(one, run(rows, one))
        return first

    def _in_one_query(self, bounds: Bounds) -> Values | None:
        """The same by one query of Spark for all passes.

        Returns None if one of them fails, as only passes that run by themselves tell whose fault it is, or if too much would be sent.
        """
        rows, by_spark = self._rows, self._by_spark
        own = [*filtered_passes(rows, by_spark), *self._own_passes(bounds)]
        of_table: list[tuple[str, Pass]] = []
        for rule in by_spark:
            if isinstance(rule, TableRule):
                with rows.noting(rule):
                    of_table += [(rule.id, one) for one in table_passes(rule, rows)]
        passes = [pass_of((), rows.frame, self._first_pass()), *own, *(one for _, one in of_table)]
        if rows.few is not None and rows.few.nbytes * len(passes) > MOST_SENT_BYTES:
            return None
        try:
            found = run_together(rows, passes)
        except spark_exception() as error:
            reraise_if_gone(error)
            return None
        if found is None:
            return None
        for one, values in zip(own, found[1:], strict=False):
            self._note(one, values)
        for (rule_id, _), values in zip(of_table, found[1 + len(own) :], strict=True):
            self._of_table.setdefault(rule_id, []).append(values)
        return found[0]

    def _note(self, one: Pass, values: Values) -> None:
        self._own.update(dict.fromkeys((rule.id for rule in one.rules), values))

    def _first_pass(self) -> list[Aggregate]:
        """Return everything that needs no pass of its own."""
        wanted, rules = [ROW_COUNT], self._by_spark
        for rule in rules:
            if rule.filter is not None and isinstance(rule, RowRule | GroupedRule | ExistsIn):
                # The number of asserted rows. It also shows, before a pass of its own, whether the filter can be evaluated.
                wanted.append(Aggregate(rule.id, asserted_name(rule), Condition(rule.filter)))
            if isinstance(rule, RowRule):
                with self._rows.noting(rule):
                    wanted.append(Aggregate(rule.id, number_name(rule), self._broken(rule)))
        return wanted + aggregates(self._rows, [rule for rule in rules if isinstance(rule, AggregateRule) and rule.filter is None])

    def _broken(self, rule: RowRule) -> Condition:
        """Return the condition for a row to break the rule. Raises RuleNotApplicable."""
        return Condition(rule.condition(self._rows.in_sql), rule.filter, holds=False)

    def _own_passes(self, bounds: Bounds) -> Iterator[Pass]:
        """Make the passes of the rules that need one of their own, one for each grouping and each lookup."""
        rows = self._rows
        for grouping, together in groupings(self._by_spark).items():
            ready = [rule for rule in together if rows.can_evaluate(rule)]
            if not ready:
                continue
            with rows.noting(*ready):
                grouped = Grouped(rows, grouping, ready, bounds)
                self._broken_frames |= {one.id: grouped.broken(one.broken_groups) for one in ready if one.broken_groups is not None}
                yield grouped.measuring()
        for rule in self._by_spark:
            if isinstance(rule, ExistsIn) and rows.can_evaluate(rule):
                with rows.noting(rule):
                    lookup = Lookup(rows, rule, self._lake, bounds)
                    self._broken_frames[rule.id] = lookup.broken()
                    yield lookup.measuring()

    # ------------------------------------------------------------------ the verdicts
    def _keys(self, first: Values) -> list[Key]:
        """Return the partitions that get a verdict, in this order: the requested ones, the others, the rows without an identifier.

        The rows without an identifier (None) are included only if there are any, or if an anomaly of theirs is open.
        """
        scan_scope = self._scan_scope
        if scan_scope.partition is None:
            return [None]
        seen = {key for key in (*first, *scan_scope.with_open_anomalies) if key is not None}
        requested = scan_scope.keys or ()
        nowhere: list[Key] = [None] if None in first or None in scan_scope.with_open_anomalies else []
        return [*requested, *sorted(seen - set(requested), key=_in_order), *nowhere]

    def _verdict(self, rule: PartitionRule, key: Key, found: Measurements, earlier: EarlierPartitions) -> Verdict:
        """Return the verdict of the rule for one partition."""
        rows, asks = found.rows(key), self._scan_scope.question_digest(rule)
        if not self._rows.can_evaluate(rule):
            return rule.verdict(Outcome(Status.ERRORED, None, self._rows.troubles[rule.id]), key, rows, 0, asks)
        # An earlier scan has found an anomaly in the rows without an identifier, and now there are no such rows any more.
        if key is None and self._scan_scope.partition is not None and not rows:
            return rule.verdict(rule.outcome_without_rows("there are no rows without identifier now"), key, rows, 0, asks)
        before = earlier.numbers(rule, key)
        is_filling = bool(before) and key is not None and not self._scan_scope.is_over(key)
        asserted = found.asserted(rule, key)
        outcome = rule.outcome(Measured(rows, asserted, found.number(rule, key), before, is_filling))
        return rule.verdict(outcome, key, rows, asserted, asks)

    def _failed_rows(self, failed_rows: FailedRows, verdicts: Sequence[Verdict]) -> Sequence[FailedRow]:
        """Fetch the rows that broke a rule."""
        # ``failed`` is None for rules about a number, which have no failed rows.
        broken = {v.rule for v in verdicts if v.status is Status.FAILED and v.failed}
        where = {(v.rule, v.partition) for v in verdicts if v.status is Status.FAILED}
        taken = failed_rows.taken_here(self._here, [rule for rule in self._rules if rule.id in broken], where)
        if taken is not None:
            return taken
        conditions = {rule.id: self._broken(rule) for rule in self._rules if isinstance(rule, RowRule) and rule.id in broken}
        for rule in self._rules:
            # What breaks a rule that was measured here has not been asked of Spark yet.
            if rule.id in broken and rule.id in self._here.own:
                with self._rows.noting(rule):
                    if isinstance(rule, ExistsIn):
                        self._broken_frames[rule.id] = Lookup(self._rows, rule, self._lake, {}).broken()
                    elif isinstance(rule, GroupedRule) and rule.broken_groups is not None:
                        (grouping,) = groupings([rule])
                        self._broken_frames[rule.id] = Grouped(self._rows, grouping, [rule], {}).broken(rule.broken_groups)
        frames = {id: frame for id, frame in self._broken_frames.items() if id in broken}
        return failed_rows.take(conditions, frames, where)


def _in_order(key: str) -> tuple[bool, int, str]:
    """Sort key for partition keys: integers come first, by value, then all others as text."""
    number = key.lstrip("-").isdigit()
    return (not number, int(key) if number else 0, key)
