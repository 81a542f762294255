"""Rules that need the rows grouped by other columns, or looked up in another table (``core.rules.keys``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import encode_name
from incremental_assets.core.rules.keys import ExistsIn, GroupedRule
from incremental_assets.core.rules.rule import Rule
from incremental_assets.core.rules.sql import RuleNotApplicable, exact
from incremental_assets.delta.guards import expr
from incremental_assets.delta.local_rows import few_rows, sent_frame
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.quality.passes import Pass
from incremental_assets.quality.rows import PARTITION, Aggregate, Rows, Values, number_name
from incremental_assets.spark.code_generation import FEW_ROWS

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

_BOUNDED = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "string")
"""Types whose least and greatest value can be collected and then written back into SQL without any change."""

Bounds = Mapping[str, tuple[str, str]]
"""The least and the greatest value of columns (in lower case) in the scan scope, as constants of Spark SQL."""


@dataclass(frozen=True)
class Grouping:
    """One grouping of the rows: the columns to group by, and the filter (Spark SQL; None keeps all rows) that rows have to satisfy."""

    columns: tuple[str, ...]
    filter: str | None


def groupings(rules: Sequence[Rule]) -> dict[Grouping, list[GroupedRule]]:
    """Return the rules that need grouped rows, by their grouping, which does not depend on the case or the order of the columns.

    The rules of a grouping share one job.
    """
    found: dict[Grouping, list[GroupedRule]] = {}
    for rule in rules:
        if isinstance(rule, GroupedRule):
            found.setdefault(Grouping(tuple(sorted(name.lower() for name in rule.columns)), rule.filter), []).append(rule)
    return found


def bounds_to_find(rows: Rows, rules: Sequence[Rule]) -> list[Aggregate]:
    """Return the aggregates for ``bounds_found``."""
    found: list[Aggregate] = []
    for name, type_ in bounded(rows, rules).items():
        # Python has no dates before year 1, so dates are collected as days since 1970.
        value = f"unix_date({quote(name)})" if type_ == "date" else quote(name)
        found += [Aggregate(None, f"{end}:{name}", f"{end}({value})") for end in ("min", "max")]
    return found


def bounded(rows: Rows, rules: Sequence[Rule]) -> dict[str, str]:
    """Return the types of columns by whose bounds jobs read rows outside the scope, or of another table; by name in lower case."""
    is_whole = rows.scan_scope.predicate is None
    wanted = [name for rule in rules if isinstance(rule, GroupedRule) and rule.is_of_table and not is_whole for name in rule.columns]
    wanted += [rule.column for rule in rules if isinstance(rule, ExistsIn)]
    types = {column.name.lower(): column.type for column in rows.in_sql.columns}
    return {name.lower(): types[name.lower()] for name in wanted if types.get(name.lower(), "").startswith(_BOUNDED)}


def bounds_found(rows: Rows, first: Values) -> Bounds:
    """Return the bounds over all partitions in the scope. Columns without a value have none."""
    found: dict[str, tuple[str, str]] = {}
    for column in rows.in_sql.columns:
        name = column.name.lower()
        ends = [(values[f"min:{name}"], values[f"max:{name}"]) for values in first.values() if values.get(f"min:{name}") is not None]
        if ends:
            # Python orders texts by code points, which is the order of UTF-8 bytes, and so the order of Spark.
            found[name] = exact(min(least for least, _ in ends), column.type), exact(max(most for _, most in ends), column.type)
    return found


def bounds_here(rows: Rows, rules: Sequence[Rule]) -> Bounds | None:
    """Return the same bounds, found in this process; None if its rows were not read here, so that Spark has to find those of a column."""
    wanted = bounded(rows, rules)
    if not wanted or rows.few is None:
        return None if wanted else {}
    columns = {name.lower(): rows.few.column(name) for name in rows.few.column_names}
    ends: dict[str, Any] = {}
    for name in wanted:
        values = columns[name]
        found = pc.min_max(values.cast(pa.int32()) if pa.types.is_date(values.type) else values)  # pyright: ignore[reportAttributeAccessIssue]
        ends |= {f"{end}:{name}": found[end].as_py() for end in ("min", "max")}
    return bounds_found(rows, {None: ends})


class Grouped:
    """One grouping of the rows, shared by all rules that need it. Raises RuleNotApplicable if the table lacks one of its columns."""

    def __init__(self, rows: Rows, grouping: Grouping, rules: Sequence[GroupedRule], bounds: Bounds) -> None:
        self._rows, self._grouping, self._rules, self._bounds = rows, grouping, rules, bounds
        self._of_table = any(rule.is_of_table for rule in rules)
        # Quoting raises RuleNotApplicable for a column that the table does not have.
        self._names = [rows.in_sql.column(name) for name in grouping.columns]
        # The key columns are renamed, because a column of the table may be called ``n`` or ``again``, like the columns that are added here.
        self._keys = [f"key_{number}" for number in range(len(self._names))]

    def measuring(self) -> Pass:
        """Return the pass that computes the number of each rule."""
        # If ``again`` is about the table, ``_elsewhere`` is a second read: of the rows outside the scope that can have the same values.
        reads = 2 if self._of_table and self._rows.scan_scope.predicate is not None else 1
        numbers = {number_name(rule): expr(rule.number_of_groups) for rule in self._rules}
        return Pass(self._rules, self._counted(), numbers, reads)

    def broken(self, groups: str) -> "DataFrame":
        """Return the rows in the scope that break a rule: all rows of the groups for which the condition ``groups`` is true."""
        again = self._counted().where(groups).select(PARTITION, *self._keys)
        same = " AND ".join(f"l.{name} = r.{key}" for name, key in zip(self._names, self._keys, strict=True))
        # ``<=>`` matches NULL with NULL, because the rows without an identifier are compared with each other too.
        return self._base().alias("l").join(again.alias("r"), expr(f"l.{PARTITION} <=> r.{PARTITION} AND {same}"), "left_semi")

    def _base(self) -> "DataFrame":
        present = " AND ".join(f"{name} IS NOT NULL" for name in self._names)
        return self._rows.filtered(self._grouping.filter).where(present)

    def _keyed(self, frame: "DataFrame", *more: str) -> "DataFrame":
        return frame.selectExpr(*more, *(f"{name} AS {key}" for name, key in zip(self._names, self._keys, strict=True)))

    def _counted(self) -> "DataFrame":
        """Count the rows of each value in each partition.

        The result has the count as ``n``, and ``again``, which says whether the table has further rows with the value. If no rule asks for
        the table, ``again`` is about the partition only.
        """
        keys = ", ".join(self._keys)
        counted = self._keyed(self._base(), PARTITION).groupBy(PARTITION, *self._keys).agg(expr("count(*)").alias("n"))
        if not self._of_table:
            return counted.withColumn("again", expr("n > 1"))
        # ``mine`` counts the value in the whole scope. Rows outside the scope are only joined to find out whether they have the value too.
        counted = counted.withColumn("mine", expr(f"sum(n) OVER (PARTITION BY {keys})"))
        if self._rows.scan_scope.predicate is None:
            return counted.withColumn("again", expr("mine > 1"))
        same = " AND ".join(f"l.{key} = r.{key}" for key in self._keys)
        found = self._keyed(self._elsewhere()).alias("l").join(counted.alias("r"), expr(same), "left_semi").distinct()
        marked = counted.alias("l").join(found.withColumn("found", expr("true")).alias("r"), expr(same), "left")
        shown = [f"l.{name}" for name in (PARTITION, *self._keys, "n")]
        return marked.selectExpr(*shown, "(l.mine > 1 OR r.found IS NOT NULL) AS again")

    def _elsewhere(self) -> "DataFrame":
        """Return the rows outside the scope whose values lie between the least and the greatest one in the scope.

        Delta uses these bounds, with its file statistics, to skip files.
        """
        # The predicate is NULL for rows without an identifier. ``coalesce`` makes such rows count as outside.
        frame = self._rows.whole.where(f"NOT coalesce({self._rows.scan_scope.predicate}, false)")
        if self._grouping.filter is not None:
            frame = frame.where(expr(self._grouping.filter))
        for name, quoted in zip(self._grouping.columns, self._names, strict=True):
            frame = _between(frame, quoted, self._bounds.get(name))
        return frame


def other_table(rule: ExistsIn, lake: LakeScope, container: Container) -> LakeTable:
    """Return the table of the container that the rule of ``container`` names, whether it exists or not."""
    store, slash, name = rule.container.partition("/")
    return lake.table(*((encode_name(store), encode_name(name)) if slash else (container.key_path[0], encode_name(rule.container))))


class Lookup:
    """The lookup of a column's values among the values of a field in another container.

    Raises RuleNotApplicable if the other container has no table or no such field, if its table cannot be read, or if the types cannot be
    compared.
    """

    def __init__(self, rows: Rows, rule: ExistsIn, lake: LakeScope, bounds: Bounds) -> None:
        self._rows, self._rule, self._bounds = rows, rule, bounds
        self._column = rows.in_sql.column(rule.column)
        self._other = other_table(rule, lake, rows.scan_scope.container)
        try:
            head = self._other.head()
        except LakeError as error:
            raise RuleNotApplicable(str(error)) from error
        if head is None:
            raise RuleNotApplicable(f"container {rule.container!r} has no table yet")
        self._head, self._field = head, rule.lookup_field(rows.in_sql, head.columns)

    def measuring(self) -> Pass:
        """Return the pass that computes the number of rows that break the rule."""
        return Pass([self._rule], self._values(), {number_name(self._rule): expr("sum(n)")})

    def broken(self) -> "DataFrame":
        """Return the rows in the scope that break the rule."""
        bad = self._values().select("value").distinct()
        return self._base().alias("l").join(bad.alias("r"), expr(f"l.{self._column} = r.value"), "left_semi")

    def _base(self) -> "DataFrame":
        return self._rows.filtered(self._rule.filter).where(f"{self._column} IS NOT NULL")

    def _values(self) -> "DataFrame":
        """Return the values that break the rule, in each partition, with the number of rows that have them."""
        values = self._base().selectExpr(PARTITION, f"{self._column} AS value")
        # The rows are counted by value first, so that the join looks up each value of a partition only once.
        counted = values.groupBy(PARTITION, "value").agg(expr("count(*)").alias("n"))
        # Of the other container, only files are read that can hold values between the bounds of the column.
        name = quote(self._field.name)
        other = _between(self._others(), name, self._bounds.get(self._rule.column.lower()))
        known = other.selectExpr(f"{name} AS known").where("known IS NOT NULL").distinct()
        kind = "left_semi" if self._rule.is_broken_if_found else "left_anti"
        return counted.alias("l").join(known.alias("r"), expr("l.value = r.known"), kind)

    def _others(self) -> "DataFrame":
        """Return the field of all rows of the other container, in the version that it has now. Few values are sent to Spark."""
        spark, table = self._rows.spark, self._other
        few = few_rows(table, self._head, lambda _: "true", [self._field]) if table.rows() <= FEW_ROWS else None
        if few is not None:
            return sent_frame(spark, few)
        return spark.read.format("delta").option("versionAsOf", self._head.version).load(table.url)


def _between(frame: "DataFrame", quoted: str, bounds: tuple[str, str] | None) -> "DataFrame":
    return frame if bounds is None else frame.where(expr(f"{quoted} >= {bounds[0]} AND {quoted} <= {bounds[1]}"))
