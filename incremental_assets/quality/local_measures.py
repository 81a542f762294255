"""Measures rules in this process, with Arrow, where few rows are scanned: it takes milliseconds where Spark takes seconds."""

# The functions of pyarrow.compute are made when it is imported, so that no stub names them.
# pyright: reportAttributeAccessIssue=false

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from incremental_assets.core.errors import LakeError
from incremental_assets.core.rules.keys import DistinctCount, ExistsIn, GroupedRule, Unique
from incremental_assets.core.rules.numbers import AggregateRule
from incremental_assets.core.rules.rule import Rule
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable
from incremental_assets.core.rules.values import RowRule
from incremental_assets.delta.local_query import readable_here
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable, double_quoted, query_within, without_views
from incremental_assets.quality.groups import other_table
from incremental_assets.quality.local_conditions import Broken, broken_by, comparable
from incremental_assets.quality.rows import ROW_COUNT, Key, Values, number_name
from incremental_assets.quality.scan_scope import ScanScope

log = logging.getLogger(__name__)

MOST_ROWS = 500_000
"""The largest number of rows in a scope that is measured here."""
MOST_BYTES = 256 * 2**20
"""The largest size in memory of the columns of a scope, and of a column that values are looked up in."""


@dataclass(frozen=True)
class LocalMeasures:
    """``rows``: the number of rows of each partition. ``own``: the numbers of the rules that were measured here, by the id of the rule.
    ``passes``: how many times rows of the table were read. ``reading``: reads them again; None if nothing was measured here."""

    rows: Values
    own: Mapping[str, Values]
    passes: int
    reading: "_Reading | None" = None

    def failed(self, rules: Sequence[Rule]) -> "LocalRows | None":
        """The rows of the scope with all their columns, and which of them break each of the rules; None if Spark has to find them.

        Of the rules, those about a number have no such rows.
        """
        if self.reading is None or not all(rule.id in self.own for rule in rules):
            return None
        names = [column.name for column in self.reading.in_sql.columns]
        return self.reading.failed(rules, names)

    def keys(self, names: Sequence[str]) -> "LocalRows | None":
        """The rows of the scope with these columns; None if Spark has to read them."""
        return None if self.reading is None else self.reading.failed((), names)


@dataclass(frozen=True)
class LocalRows:
    """Rows of a scope. ``rows``: their columns have names in lower case. ``partitions``: the partition of each row, as its position in
    ``keys``. ``broken``: by the id of a rule, the positions of the rows that break it."""

    rows: pa.Table
    keys: Sequence[Key]
    partitions: "np.ndarray[Any, np.dtype[np.int64]]"
    broken: "Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]"


NOTHING = LocalMeasures({}, {}, 0)


def measure_here(
    lake: LakeScope, table: LakeTable, head: Head, scan_scope: ScanScope, rules: Sequence[Rule], in_sql: ScannedTable
) -> LocalMeasures:
    """Measure those of the rules that can be measured here.

    These are none if there are too many rows, or if delta-rs cannot read them.
    """
    conditions = {rule.id: found for rule in rules if isinstance(rule, RowRule) and (found := _condition(rule, in_sql)) is not None}
    chosen = [rule for rule in rules if rule.id in conditions or _is_counted_here(rule, in_sql)]
    if not chosen:
        return NOTHING
    try:
        delta = readable_here(table, head.version)
        if delta is None:
            return NOTHING
        return _Reading(lake, delta, scan_scope, in_sql, conditions).measured(chosen)
    except (DeltaError, pa.ArrowException) as error:
        log.debug("%s: Spark measures its rules: %s", table.url, error)
        return NOTHING


def _condition(rule: RowRule, in_sql: ScannedTable) -> Broken | None:
    try:
        return broken_by(rule, in_sql) if rule.filter is None else None
    except RuleNotApplicable:
        return None  # the passes of Spark note the reason


def _is_counted_here(rule: Rule, in_sql: ScannedTable) -> bool:
    """Whether the rule is about the number of rows, or about values that Arrow compares as Spark does."""
    if rule.filter is not None:
        return False
    if isinstance(rule, AggregateRule):
        return rule.counts_rows
    types = _types(in_sql)
    return isinstance(rule, GroupedRule | ExistsIn) and all(
        name.lower() in types and comparable(types[name.lower()]) is not None for name in rule.columns_used
    )


def _types(in_sql: ScannedTable) -> dict[str, str]:
    """The Spark types of the columns, by their names in lower case."""
    return {column.name.lower(): column.type for column in in_sql.columns}


@dataclass(frozen=True)
class _Scoped:
    """The rows of a scope. ``keys``: its partitions that have rows. ``of``: for each row, the position of its partition in ``keys``."""

    rows: pa.Table
    keys: Sequence[Key]
    of: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def read(cls, delta: DeltaTable, scan_scope: ScanScope, names: Iterable[str]) -> "_Scoped | None":
        """Read columns. Returns None if there are too many rows, or if the engine cannot select or group them."""
        condition = scan_scope.local_condition(delta)
        if condition is None:
            return None
        rows = _read(delta, (*scan_scope.local_columns, *names), f"{condition} LIMIT {MOST_ROWS + 1}")
        if rows is None or rows.num_rows > MOST_ROWS:
            return None
        grouped = scan_scope.local_keys(rows)
        return None if grouped is None else cls(rows, *grouped)

    def count(self, marked: pa.ChunkedArray) -> dict[Key, int]:
        """The number of rows of each partition that are marked."""
        return self.by_key(self.of[marked.to_numpy()])

    def by_key(self, of: np.ndarray[Any, np.dtype[np.int64]], weights: np.ndarray[Any, Any] | None = None) -> dict[Key, int]:
        """How often each position occurs in ``of``, each time with its weight, by the keys of the partitions."""
        numbers = np.bincount(of, weights, len(self.keys))
        return {key: int(number) for key, number in zip(self.keys, numbers, strict=True)}


@dataclass(frozen=True)
class _Reading:
    """Reads the rows of one scope at one version of the table. ``conditions``: those of rules about single rows, by id."""

    lake: LakeScope
    delta: DeltaTable
    scan_scope: ScanScope
    in_sql: ScannedTable
    conditions: Mapping[str, Broken]

    def measured(self, rules: Sequence[Rule]) -> LocalMeasures:
        """The numbers of the rules. Raises DeltaError and pa.ArrowException."""
        scoped = _Scoped.read(self.delta, self.scan_scope, (name for rule in rules for name in rule.columns_used))
        if scoped is None:
            return NOTHING
        measuring, own = _Measuring(self, scoped), dict[str, Values]()
        for rule in rules:
            try:
                numbers = measuring.numbers(rule)
            except (DeltaError, pa.ArrowException) as error:
                log.debug("%s: Spark measures the rule %s: %s", self.scan_scope.container.label, rule.id, error)
                continue
            if numbers is not None:
                own[rule.id] = {key: {number_name(rule): number} for key, number in numbers.items()}
        rows = {key: {ROW_COUNT.name: count} for key, count in scoped.by_key(scoped.of).items()}
        return LocalMeasures(rows, own, measuring.passes, self)

    def failed(self, rules: Sequence[Rule], names: Iterable[str]) -> LocalRows | None:
        """The rows with these columns and those of the rules, and which of them break each rule; None if Spark has to find them."""
        try:
            scoped = _Scoped.read(self.delta, self.scan_scope, (*names, *(name for rule in rules for name in rule.columns_used)))
            measuring = None if scoped is None else _Measuring(self, scoped)
            broken = {} if measuring is None else {rule.id: measuring.broken(rule) for rule in rules}
        except (DeltaError, pa.ArrowException) as error:
            log.debug("%s: Spark fetches the failed rows: %s", self.scan_scope.container.label, error)
            return None
        found = {id: positions for id, positions in broken.items() if positions is not None}
        return None if scoped is None or len(found) < len(broken) else LocalRows(scoped.rows, scoped.keys, scoped.of, found)


class _Measuring:
    """The rules of one scan while they are measured here. ``passes``: how many times rows of the table were read."""

    def __init__(self, reading: _Reading, scoped: _Scoped) -> None:
        self._lake, self._delta, self._scan_scope, self._in_sql = reading.lake, reading.delta, reading.scan_scope, reading.in_sql
        self._conditions, self._scoped, self._types = reading.conditions, scoped, _types(reading.in_sql)
        self.passes = 1

    def numbers(self, rule: Rule) -> Mapping[Key, int] | None:
        """The number of each partition; None if Spark has to measure the rule after all."""
        scoped = self._scoped
        if isinstance(rule, Unique):
            groups = self._repeated(rule)
            return None if groups is None else scoped.by_key(groups["of"].to_numpy(), groups["n"].to_numpy())
        if isinstance(rule, DistinctCount):
            return scoped.by_key(self._groups(rule.columns)["of"].to_numpy())
        if isinstance(rule, AggregateRule):
            return scoped.by_key(scoped.of)
        marked = self._marked(rule)
        return None if marked is None else scoped.count(marked)

    def broken(self, rule: Rule) -> "np.ndarray[Any, np.dtype[np.int64]] | None":
        """The positions of the rows that break the rule; None if Spark has to find them. A rule about a number has none."""
        if isinstance(rule, Unique):
            groups, names = self._repeated(rule), _numbered(rule.columns)
            if groups is None:
                return None
            rows = self._values(self._scoped.rows, rule.columns).append_column("of", pa.array(self._scoped.of))
            rows = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
            return rows.join(groups, keys=[*names, "of"], join_type="left semi")["row"].to_numpy()
        if isinstance(rule, DistinctCount | AggregateRule):
            return np.empty(0, np.int64)
        marked = self._marked(rule)
        return None if marked is None else np.flatnonzero(marked.to_numpy())

    def _marked(self, rule: Rule) -> pa.ChunkedArray | None:
        """Whether each row breaks a rule that looks at one row at a time; None if Spark has to tell it."""
        rows, broken = self._scoped.rows, self._conditions.get(rule.id)
        if broken is not None:
            return broken(rows)
        assert isinstance(rule, ExistsIn)
        known = self._looked_up(rule)
        if known is None:
            return None
        column = self._column(rows, rule.column)
        found = pc.is_in(column, value_set=known)
        return pc.and_(pc.is_valid(column), found if rule.is_broken_if_found else pc.invert(found))

    def _repeated(self, rule: Unique) -> pa.Table | None:
        """The values that other rows of the partition, or of the table, have too, with their number ``n`` in each partition ``of``.

        None if the table has too many.
        """
        groups, names = self._groups(rule.columns), _numbered(rule.columns)
        if rule.is_of_table:
            everywhere = self._everywhere(rule.columns, groups)
            if everywhere is None:
                return None
            repeated = _counted(everywhere)
            repeated = repeated.filter(pc.greater(repeated["n"], 1)).select(names)
            return groups.join(repeated, keys=names, join_type="left semi")
        return groups.filter(pc.greater(groups["n"], 1))

    def _groups(self, names: Sequence[str]) -> pa.Table:
        """The distinct values in each partition (``of``), with the number of rows that have them (``n``); no value is NULL."""
        return _counted(self._values(self._scoped.rows, names).append_column("of", pa.array(self._scoped.of)).drop_null())

    def _everywhere(self, names: Sequence[str], groups: pa.Table) -> pa.Table | None:
        """The values of those rows of the table that may be equal to values of the groups; None if there are too many."""
        if self._scan_scope.predicate is None:
            return self._values(self._scoped.rows, names).drop_null()
        wanted = {name: groups[number] for name, number in zip(names, _numbered(names), strict=True)}
        condition = " AND ".join(_bounds(name, values) for name, values in wanted.items())
        read = _read(self._delta, names, condition)
        if read is None:
            return None
        self.passes += 1
        found = self._values(read, names)
        for number, values in zip(_numbered(names), wanted.values(), strict=True):
            found = found.filter(pc.is_in(found[number], value_set=values.combine_chunks()))
        return found

    def _looked_up(self, rule: ExistsIn) -> pa.Array | None:
        """The values of the other container's field that may be equal to values in the scope; None if Spark has to look them up."""
        table = other_table(rule, self._lake, self._scan_scope.container)
        try:
            head = table.head()
            field = None if head is None else rule.lookup_field(self._in_sql, head.columns)
        except (LakeError, RuleNotApplicable):
            return None  # the pass of Spark notes the reason
        delta = None if field is None else readable_here(table)
        if field is None or delta is None or comparable(field.type) != comparable(self._types[rule.column.lower()]):
            return None
        read = _read(delta, [field.name], _bounds(field.name, self._column(self._scoped.rows, rule.column)))
        return None if read is None else read.column(0).cast(comparable(field.type)).drop_null().combine_chunks()

    def _values(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """The columns, called by their numbers."""
        return pa.table([self._column(rows, name) for name in names], _numbered(names))

    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray:
        return rows.column(name.lower()).cast(comparable(self._types[name.lower()]))


def _numbered(names: Sequence[str]) -> list[str]:
    return [str(number) for number in range(len(names))]


def _counted(values: pa.Table) -> pa.Table:
    """The distinct rows, with the number of each as ``n``."""
    return values.group_by(values.column_names).aggregate([([], "count_all")]).rename_columns([*values.column_names, "n"])


def _bounds(name: str, values: pa.ChunkedArray) -> str:
    """A condition for rows that may have one of the values. By the bounds of integers, the engine leaves out files that have none."""
    ends = pc.min_max(values) if pa.types.is_integer(values.type) else None
    if ends is None or not ends["min"].is_valid:
        return "true"
    return f"{double_quoted(name)} >= {int(ends['min'].as_py())} AND {double_quoted(name)} <= {int(ends['max'].as_py())}"


def _read(delta: DeltaTable, names: Iterable[str], condition: str) -> pa.Table | None:
    """Read columns of the rows for which a condition holds; None if they take too much memory. The columns get names in lower case.

    Raises DeltaError.
    """
    actual = {field.name.lower(): field.name for field in delta.schema().fields}
    wanted = list(dict.fromkeys(name.lower() for name in names))
    columns = ", ".join(f"{double_quoted(actual[name])} AS {double_quoted(name)}" for name in wanted)
    found = query_within(delta, f'SELECT {columns or "1"} FROM "rows" WHERE {condition}', MOST_BYTES)
    return None if found is None else without_views(found)
