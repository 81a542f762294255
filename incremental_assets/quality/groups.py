"""Rules that need the rows grouped by other columns, or looked up in another table: ``unique``, ``distinct_count``, ``exists_in``.

Belongs here: their jobs, one for each grouping or lookup, and the frames of the rows that break these rules. Does not belong: which verdict
follows from the numbers (``judge``), or when the jobs run (``scan``).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.errors import LakeError
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.rules import DistinctCount, ExistsIn, Unique, UniqueScope
from incremental_assets.delta.guards import expr
from incremental_assets.delta.table import LakeTable
from incremental_assets.quality.planner import Grouping
from incremental_assets.quality.predicates import RuleNotApplicable, family
from incremental_assets.quality.rows import PARTITION, Rows, Values

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

Range = Callable[[str], tuple[str, str] | None]
"""Returns the least and the greatest value of a column in the scan scope, as constants of Spark SQL; None if they are not known."""

DISTINCT, REPEATED, REPEATED_IN_TABLE = "distinct_values", "repeated_rows", "repeated_in_table"
"""The numbers of a grouping: distinct values, rows that repeat a value of their partition, and rows that repeat a value of the table."""


class Grouped:
    """One grouping of the rows, shared by all rules that need it. Raises RuleNotApplicable if the table lacks one of its columns."""

    def __init__(self, rows: Rows, grouping: Grouping, rules: Sequence[Unique | DistinctCount], range_of: Range) -> None:
        self._rows, self._grouping, self._range_of = rows, grouping, range_of
        self._in_table = any(isinstance(rule, Unique) and rule.scope is UniqueScope.TABLE for rule in rules)
        # Quoting raises RuleNotApplicable for a column that the table does not have.
        self._names = [rows.asked.column(name) for name in grouping.columns]
        # The key columns are renamed, because a column of the table may be called ``n`` or ``again``, like the columns that are added here.
        self._keys = [f"key_{number}" for number in range(len(self._names))]

    def numbers(self) -> Values:
        """Return ``DISTINCT``, ``REPEATED`` and ``REPEATED_IN_TABLE`` of each partition.

        The last one is only right if a rule asks for uniqueness in the table; else it is the same as ``REPEATED``.
        """
        counted = self._counted().groupBy(PARTITION).agg(
            expr("count(*)").alias(DISTINCT),
            expr("coalesce(sum(n) FILTER (WHERE n > 1), 0)").alias(REPEATED),
            expr("coalesce(sum(n) FILTER (WHERE again), 0)").alias(REPEATED_IN_TABLE),
        )  # fmt: skip
        if self._in_table and self._rows.scan_scope.predicate is not None:
            # ``_elsewhere`` is a second read: of the rows outside the scope that can have the same values.
            self._rows.passes += 1
        return self._rows.collect(counted)

    def broken(self, rule: Unique) -> "DataFrame":
        """Return the rows in the scope that break the rule: all rows of a repeated value, not only the second and later ones."""
        again = self._counted().where("again" if rule.scope is UniqueScope.TABLE else "n > 1").select(PARTITION, *self._keys)
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
        if not self._in_table:
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
            frame = _between(frame, quoted, self._range_of(name))
        return frame


class Lookup:
    """The lookup of a column's values among the values of a field in another container.

    Raises RuleNotApplicable if the other container has no table or no such field, if its table cannot be read, or if the types cannot be
    compared.
    """

    def __init__(self, rows: Rows, rule: ExistsIn, other: LakeTable | None, range_of: Range) -> None:
        self._rows, self._rule, self._range_of = rows, rule, range_of
        self._column, kind = rows.asked.column(rule.column), rows.asked.type_of(rule.column)
        try:
            head = other.head() if other is not None else None
        except LakeError as error:
            raise RuleNotApplicable(str(error)) from error
        if other is None or head is None:
            raise RuleNotApplicable(f"container {rule.container!r} has no table yet")
        fields = {column.name.lower(): column for column in head.columns}
        if rule.field.lower() not in fields:
            raise RuleNotApplicable(f"container {rule.container!r} has no column {rule.field!r}")
        self._other, self._field = other, fields[rule.field.lower()]
        if family(kind) != family(self._field.type):
            raise RuleNotApplicable(
                f"column {rule.column!r} is {kind}, and {rule.field!r} of container {rule.container!r} is {self._field.type}"
            )

    def numbers(self) -> Values:
        """Return for each partition the number of rows that break the rule."""
        counted = self._values().groupBy(PARTITION).agg(expr("sum(n)").alias("failed"))
        return self._rows.collect(counted)

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
        # The other container is read in its newest version, and only where its files can hold values between the bounds of the column.
        name = quote(self._field.name)
        other = self._rows.spark.read.format("delta").load(self._other.url)
        other = _between(other, name, self._range_of(self._rule.column))
        known = other.selectExpr(f"{name} AS known").where("known IS NOT NULL").distinct()
        kind = "left_anti" if self._rule.rule == "exists_in" else "left_semi"
        return counted.alias("l").join(known.alias("r"), expr("l.value = r.known"), kind)


def _between(frame: "DataFrame", quoted: str, bounds: tuple[str, str] | None) -> "DataFrame":
    return frame if bounds is None else frame.where(expr(f"{quoted} >= {bounds[0]} AND {quoted} <= {bounds[1]}"))
