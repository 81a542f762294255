"""The rows of one scan, as Spark reads them, the aggregates over them, and what was measured by them for each rule."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from incremental_assets.core.rules.numbers import AggregateRule
from incremental_assets.core.rules.rule import Rule
from incremental_assets.core.rules.sql import RuleNotApplicable, ScannedTable
from incremental_assets.delta.guards import expr
from incremental_assets.delta.local_rows import few_rows, sent_frame
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.quality.spark_errors import explain, reraise_if_gone
from incremental_assets.spark.code_generation import FEW_ROWS
from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql.column import Column
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

PARTITION = "incremental_assets_partition"
"""The added column whose value tells the partitions apart (``ScanScope.partition``). It is NULL for rows without an identifier."""

Key = str | None
"""A partition's key; None for the rows without an identifier, and for all rows of a container without partitions."""
Values = dict[Key, dict[str, Any]]
"""For each partition, the values of the aggregates by their names."""


@dataclass(frozen=True)
class Condition:
    """A condition for a row: the rule's filter is true, and ``text`` is true; or false, if ``holds`` is False.

    Spark parses the two texts separately, so that neither can change the meaning of the other. It evaluates ``text`` only for the rows that
    the filter keeps, because it might fail for others.
    """

    text: str
    filter: str | None = None
    holds: bool = True

    def column(self) -> "Column":
        """Return the Spark column, which is NULL or false for all other rows."""
        from pyspark.sql.connect import functions

        # ``NOT`` of NULL is NULL, so a row for which the condition of a rule is NULL does not break it.
        found = expr(self.text) if self.holds else ~expr(self.text)
        return found if self.filter is None else functions.when(expr(self.filter), found)


@dataclass(frozen=True)
class Aggregate:
    """One aggregate to compute for each partition.

    ``owner`` is the id of the rule that it is computed for; None marks aggregates of this package, which do not fail by themselves.
    ``name`` is the name of the result column. ``of`` is the aggregate in Spark SQL, or the condition for the rows that are counted.
    ``numeric`` requires a number as the result.
    """

    owner: str | None
    name: str
    of: str | Condition
    numeric: bool = False

    def column(self) -> "Column":
        """Return the Spark column. It can only be made once there is a Spark session."""
        if isinstance(self.of, str):
            return expr(self.of)
        from pyspark.sql.connect import functions

        # Spark's ``count_if`` evaluates each condition twice. From some 30 rules on the generated code is split differently, and takes five
        # times as long.
        return functions.count(functions.when(self.of.column(), functions.lit(1)))

    @property
    def texts(self) -> tuple[str, ...]:
        """The SQL texts that it is made from, by which an error message of Spark can be traced back to the rule."""
        if isinstance(self.of, str):
            return (self.of,)
        return (self.of.text,) if self.of.filter is None else (self.of.text, self.of.filter)


ROW_COUNT = Aggregate(None, "n", "count(*)")
"""The number of rows of each partition. Each first pass computes it."""


def asserted_name(rule: Rule) -> str:
    """Return the name of the aggregate that counts the rows that the rule's filter keeps.

    The colon keeps the names apart from all others, because an id cannot contain one.
    """
    return f"asserted:{rule.id}"


def number_name(rule: Rule) -> str:
    """Return the name of the aggregate whose result is the number that is measured for the rule (``Measured.number``)."""
    return f"number:{rule.id}"


@dataclass(frozen=True)
class Measurements:
    """The numbers that the passes of a scan returned, for each partition.

    ``first`` are those of the first pass, over all rows of the scope. ``own`` are those of the passes for single rules, by rule id; a rule
    that is not in it was computed in the first pass. ``of_none`` are the values that aggregates have over zero rows.
    """

    first: Values
    own: Mapping[str, Values] = field(default_factory=dict)
    of_none: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, key: Key) -> int:
        """Return the number of rows of a partition."""
        return int(self.first.get(key, {}).get(ROW_COUNT.name, 0))

    def asserted(self, rule: Rule, key: Key) -> int:
        """Return the number of rows of a partition that the rule's filter keeps."""
        if rule.filter is None:
            return self.rows(key)
        name = asserted_name(rule)
        return int(self.first.get(key, {}).get(name) or self.own.get(rule.id, {}).get(key, {}).get(name) or 0)

    def number(self, rule: Rule, key: Key) -> Any:
        """Return the number that was measured for the rule in a partition; None if it is NULL."""
        name = number_name(rule)
        found = self.own.get(rule.id, self.first).get(key, {})
        if name in found:
            return found[name]
        # Grouping by partition returns no row for a partition of which the filter keeps nothing. Where rows or groups are counted, it is 0.
        return self.of_none.get(name) if isinstance(rule, AggregateRule) and not rule.counts_rows else 0


class Rows:
    """The rows in the scan scope, in one version of the table.

    ``open_spark`` returns the session, and is called at its first use: a scan whose rules are all measured in this process
    (``local_measures``) needs none. ``in_sql`` makes the SQL of its columns. ``passes`` counts how many times these rows, or other rows of
    the table, were read. ``troubles`` maps the ids of rules that could not be evaluated to the reason. ``may_be_sent``: whether the rules
    are about the rows alone, and not about the files that they are in.
    """

    def __init__(
        self,
        open_spark: Callable[[], "SparkSession"],
        table: LakeTable,
        head: Head,
        scan_scope: ScanScope,
        in_sql: ScannedTable,
        *,
        may_be_sent: bool = False,
    ) -> None:
        self._open_spark, self.table, self.head, self.scan_scope, self.in_sql = open_spark, table, head, scan_scope, in_sql
        self.passes, self._may_be_sent = 0, may_be_sent
        self.troubles: dict[str, str] = {}
        self._kinds: dict[str, Any] = {}

    @cached_property
    def spark(self) -> "SparkSession":
        """The session in which the rows are read."""
        return self._open_spark()

    @cached_property
    def whole(self) -> "DataFrame":
        """All rows of the table, with the added column ``PARTITION``."""
        few = self.few
        if self.scan_scope.predicate is not None and self._may_be_sent:
            few = few_rows(self.table, self.head, lambda _: "true") if self.table.rows() <= FEW_ROWS else None
        if few is not None:
            return self._with_partition(sent_frame(self.spark, few))
        return self._with_partition(self.spark.read.format("delta").option("versionAsOf", self.head.version).load(self.table.url))

    def _with_partition(self, frame: "DataFrame") -> "DataFrame":
        return frame.withColumn(PARTITION, expr(self.scan_scope.partition or "cast(NULL AS string)"))

    @cached_property
    def few(self) -> pa.Table | None:
        """The rows in the scan scope, read in this process, if they are few: Spark takes seconds to find out which files a table has."""
        return few_rows(self.table, self.head, self.scan_scope.local_condition) if self._may_be_sent else None

    @property
    def are_few(self) -> bool:
        """Whether the rows are so few that planning a query takes Spark longer than the query itself."""
        return self.few is not None or self.table.rows() <= FEW_ROWS

    @cached_property
    def frame(self) -> "DataFrame":
        """The rows in the scan scope. Few rows are sent to Spark."""
        if self.few is not None:
            return self._with_partition(sent_frame(self.spark, self.few))
        return self.whole if self.scan_scope.predicate is None else self.whole.where(self.scan_scope.predicate)

    def filtered(self, condition: str | None) -> "DataFrame":
        """Return the rows in the scope for which a rule's filter holds; None keeps all rows."""
        return self.frame if condition is None else self.frame.where(expr(condition))

    def key(self, value: object) -> Key:
        """Return the partition key for a value of the column ``PARTITION``."""
        return None if value is None else self.scan_scope.key_of(value)

    # ------------------------------------------------------------------
    def aggregate(self, frame: "DataFrame", wanted: Sequence[Aggregate], condition: str | None = None) -> Values:
        """Compute the aggregates for each partition, in one job if none of them fails.

        Rules whose aggregates cannot be computed are left out of the result and noted in ``troubles``. ``condition`` is the common filter
        of the rules that the aggregates belong to. Raises PySparkException if the rows themselves cannot be read.
        """
        if condition is None or not wanted:
            return self._run(frame, self._analysed(frame, wanted), proven=False)
        try:
            chosen = frame.where(expr(condition))
            # Over Spark Connect a plan is lazy. Asking for the schema makes Spark analyse the filter now, inside this ``try``.
            _ = chosen.schema
            return self._run(chosen, self._analysed(chosen, wanted), proven=False)
        except spark_exception() as error:
            # Only the filter can be the reason, because the rows were read without it before.
            self.note([one.owner for one in wanted if one.owner is not None], error)
            return {}

    def of_none(self, wanted: Sequence[Aggregate]) -> dict[str, Any]:
        """Return the values of the aggregates over zero rows: a count is 0, a mean is NULL. No data is read.

        An aggregate that fails without rows, for example a share of nothing, is left out of the result.
        """
        if not wanted:
            return {}
        try:
            nothing = self.frame.where("false").groupBy()
            return nothing.agg(*(one.column().alias(one.name) for one in wanted)).collect()[0].asDict()
        except spark_exception() as error:
            reraise_if_gone(error)
            guilty = named_by(error, wanted)
            if guilty is not None:
                return self.of_none([one for one in wanted if one.owner != guilty])
            half = len(wanted) // 2
            return {} if len(wanted) == 1 else {**self.of_none(wanted[:half]), **self.of_none(wanted[half:])}

    def note(self, owners: Sequence[str], error: "PySparkException") -> None:
        """Record the error as the reason why these rules could not be evaluated. Raises the error again if the Spark server caused it."""
        reraise_if_gone(error)
        self.troubles.update(dict.fromkeys(owners, explain(error)))

    @contextlib.contextmanager
    def noting(self, *rules: Rule) -> Iterator[None]:
        """Note an error of the block as the reason why these rules, which the block is about alone, could not be evaluated."""
        try:
            yield
        except RuleNotApplicable as error:
            self.troubles.update(dict.fromkeys((rule.id for rule in rules), str(error)))
        except spark_exception() as error:
            self.note([rule.id for rule in rules], error)

    def can_evaluate(self, rule: Rule) -> bool:
        """Whether no reason is known why the rule could not be evaluated."""
        return rule.id not in self.troubles

    def collect(self, frame: "DataFrame") -> Values:
        """Return the rows of a frame that has one row for each partition, by partition key."""
        return {self.key(row[PARTITION]): row.asDict() for row in frame.collect()}

    def _values(self, frame: "DataFrame", wanted: Sequence[Aggregate]) -> Values:
        """Compute the aggregates for each partition."""
        columns = [one.column().alias(one.name) for one in wanted]
        if frame is self.frame and self.scan_scope.is_one_partition and ROW_COUNT in wanted:
            # Without groups, Spark keeps the aggregates in local variables, which takes a fifth less time for thirty rules.
            try:
                found = frame.agg(*columns).collect()[0].asDict()
                only = None if self.scan_scope.keys is None else self.scan_scope.keys[0]
                return {only: found} if found[ROW_COUNT.name] else {}
            except spark_exception() as error:
                # An aggregate may fail because there are no rows, for example a share. Groups are aggregated only where they have rows.
                reraise_if_gone(error)
        return self.collect(frame.groupBy(PARTITION).agg(*columns))

    def _analysed(self, frame: "DataFrame", wanted: Sequence[Aggregate]) -> list[Aggregate]:
        """Return the aggregates that Spark can analyse, and note the rules of the others.

        Spark analyses all of them in one request. Only if that fails, it is asked again for each rule separately.
        """
        trouble = self._trouble_of(frame, wanted)
        if trouble is None:
            return self._of_numbers(wanted)
        good: list[Aggregate] = []
        for owner in dict.fromkeys(one.owner for one in wanted):
            own = [one for one in wanted if one.owner == owner]
            trouble = self._trouble_of(frame, own)
            if trouble is None:
                good += own
            elif owner is None:
                raise trouble
            else:
                self.troubles[owner] = explain(trouble)
        return self._of_numbers(good)

    def _trouble_of(self, frame: "DataFrame", wanted: Sequence[Aggregate]) -> "PySparkException | None":
        """Return the error that Spark raises when it analyses the aggregates, or None. Their result types are kept in ``_kinds``."""
        try:
            if wanted:
                schema = frame.groupBy(PARTITION).agg(*(one.column().alias(one.name) for one in wanted)).schema
                self._kinds.update({found.name: found.dataType for found in schema})
        except spark_exception() as error:
            # An analysis error can be of any subclass: a decimal of 50 digits, for example, is reported as an arithmetic error.
            reraise_if_gone(error)
            return error
        return None

    def _of_numbers(self, wanted: Sequence[Aggregate]) -> list[Aggregate]:
        """Leave out, and note, the rules whose aggregate is not a number although it has to be.

        This is decided by the type, without reading the value: collecting a date before year 1 into Python would fail the whole job.
        """
        from pyspark.sql.types import NullType, NumericType

        for one in wanted:
            kind = self._kinds[one.name]
            if one.numeric and one.owner is not None and not isinstance(kind, NumericType | NullType):
                self.troubles[one.owner] = f"the expression gives {kind.typeName()} and not a number."
        return [one for one in wanted if one.owner not in self.troubles]

    def _run(self, frame: "DataFrame", wanted: Sequence[Aggregate], proven: bool) -> Values:
        """Compute the aggregates in one job. If it fails, bisect the rules until those that cause the failure are found.

        ``proven`` says that the rows themselves were read without an error, so that a failure must come from a rule.
        """
        if not wanted:
            return {}
        try:
            self.passes += 1
            return self._values(frame, wanted)
        except spark_exception() as error:
            reraise_if_gone(error)
            owners = list(dict.fromkeys(one.owner for one in wanted if one.owner is not None))
            if not owners:
                raise
            guilty = named_by(error, wanted)
            if guilty is not None:
                self.troubles[guilty] = explain(error)
                return self._run(frame, [one for one in wanted if one.owner != guilty], proven)
            # Before the rules are bisected, a job without any rule proves that the rows can be read. If it fails as well, the error is not
            # a rule's.
            ours = [one for one in wanted if one.owner is None] or [ROW_COUNT]
            found = {} if proven else self._run(frame, ours, proven=True)
            if len(owners) == 1:
                self.troubles[owners[0]] = explain(error)
                return found
            for half in (owners[: len(owners) // 2], owners[len(owners) // 2 :]):
                part = self._run(frame, [one for one in wanted if one.owner in half], proven=True)
                for key, values in part.items():
                    found.setdefault(key, {}).update(values)
            return found


def named_by(error: "PySparkException", wanted: Sequence[Aggregate]) -> str | None:
    """Return the id of the only rule whose SQL Spark quotes as the place of the error; None if it is not clear.

    Of a text with several lines Spark quotes one line only, so such a rule is found by bisection instead.
    """
    quoted = str(error).partition("== SQL (")[2].partition("==\n")[2]
    texts = {(one.owner, text) for one in wanted if one.owner is not None for text in one.texts if text and quoted.startswith(f"{text}\n")}
    owners = {owner for owner, _ in texts}
    return owners.pop() if len(owners) == 1 else None
