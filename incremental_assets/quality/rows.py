"""The rows of one scan, as Spark reads them, and aggregation jobs that find out which rule makes them fail.

Belongs here: one fixed version of the table, the count of passes, and running aggregates so that one that cannot be computed does not stop
the others. Does not belong: which aggregates there are (``scan``, ``groups``).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.errors import server_is_gone
from incremental_assets.delta.guards import expr
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.quality.predicates import PredicateContext
from incremental_assets.quality.scan_scope import ScanScope

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

PARTITION = "incremental_assets_partition"
"""The added column whose value tells the partitions apart (``ScanScope.partition``). It is NULL for rows without an identifier."""

Key = str | None
"""A partition's key; None for the rows without an identifier, and for all rows of a container without partitions."""
Values = dict[Key, dict[str, Any]]
"""For each partition, the values of the aggregates by their names."""


@dataclass(frozen=True)
class Aggregate:
    """One aggregate to compute for each partition.

    ``owner`` is the id of the rule that it is computed for; None marks aggregates of this package, which do not fail by themselves.
    ``name`` is the name of the result column. ``column`` makes the Spark column; it is only called once there is a Spark session. ``texts``
    are the SQL texts that it is made from, so that an error message of Spark can be traced back to the rule. ``numeric`` requires a number
    as the result.
    """

    owner: str | None
    name: str
    column: Callable[[], Any] = field(repr=False)
    texts: tuple[str | None, ...] = ()
    numeric: bool = False


class Rows:
    """The rows in the scan scope, in one version of the table.

    ``passes`` counts how many times these rows, or other rows of the table, were read. ``troubles`` maps the ids of rules that could not be
    evaluated to the reason.
    """

    def __init__(self, spark: "SparkSession", table: LakeTable, head: Head, scan_scope: ScanScope, asked: PredicateContext) -> None:
        self.spark, self.table, self.head, self.scan_scope, self.asked = spark, table, head, scan_scope, asked
        self.passes = 0
        self.troubles: dict[str, str] = {}
        self._kinds: dict[str, Any] = {}

    @cached_property
    def whole(self) -> "DataFrame":
        """All rows of the table, with the added column ``PARTITION``."""
        frame = self.spark.read.format("delta").option("versionAsOf", self.head.version).load(self.table.url)
        return frame.withColumn(PARTITION, expr(self.scan_scope.partition or "cast(NULL AS string)"))

    @cached_property
    def frame(self) -> "DataFrame":
        """The rows in the scan scope."""
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
        except PySparkException as error:
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
        except PySparkException as error:
            reraise_if_gone(error)
            guilty = named_by(error, wanted)
            if guilty is not None:
                return self.of_none([one for one in wanted if one.owner != guilty])
            half = len(wanted) // 2
            return {} if len(wanted) == 1 else {**self.of_none(wanted[:half]), **self.of_none(wanted[half:])}

    def note(self, owners: Sequence[str], error: PySparkException) -> None:
        """Record the error as the reason why these rules could not be evaluated. Raises the error again if the Spark server caused it."""
        reraise_if_gone(error)
        self.troubles.update(dict.fromkeys(owners, explain(error)))

    def attempt(self, owners: Sequence[str], job: "Callable[[], Values]") -> Values:
        """Run a job that belongs to these rules alone. If it fails, the failure is recorded for all of them, and the result is empty."""
        try:
            self.passes += 1
            return job()
        except PySparkException as error:
            self.note(owners, error)
            return {}

    def collect(self, frame: "DataFrame") -> Values:
        """Return the rows of a frame that has one row for each partition, by partition key."""
        return {self.key(row[PARTITION]): row.asDict() for row in frame.collect()}

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

    def _trouble_of(self, frame: "DataFrame", wanted: Sequence[Aggregate]) -> PySparkException | None:
        """Return the error that Spark raises when it analyses the aggregates, or None. Their result types are kept in ``_kinds``."""
        try:
            if wanted:
                schema = frame.groupBy(PARTITION).agg(*(one.column().alias(one.name) for one in wanted)).schema
                self._kinds.update({found.name: found.dataType for found in schema})
        except PySparkException as error:
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
            return self.collect(frame.groupBy(PARTITION).agg(*(one.column().alias(one.name) for one in wanted)))
        except PySparkException as error:
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
            ours = [one for one in wanted if one.owner is None] or [Aggregate(None, "n", lambda: expr("count(*)"))]
            found = {} if proven else self._run(frame, ours, proven=True)
            if len(owners) == 1:
                self.troubles[owners[0]] = explain(error)
                return found
            for half in (owners[: len(owners) // 2], owners[len(owners) // 2 :]):
                part = self._run(frame, [one for one in wanted if one.owner in half], proven=True)
                for key, values in part.items():
                    found.setdefault(key, {}).update(values)
            return found


def named_by(error: PySparkException, wanted: Sequence[Aggregate]) -> str | None:
    """Return the id of the only rule whose SQL Spark quotes as the place of the error; None if it is not clear.

    Of a text with several lines Spark quotes one line only, so such a rule is found by bisection instead.
    """
    quoted = str(error).partition("== SQL (")[2].partition("==\n")[2]
    texts = {(one.owner, text) for one in wanted if one.owner is not None for text in one.texts if text and quoted.startswith(f"{text}\n")}
    owners = {owner for owner, _ in texts}
    return owners.pop() if len(owners) == 1 else None


def explain(error: PySparkException) -> str:
    """Return Spark's error message on one line, at most 400 characters, without the query plan that follows it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = _WHERE.sub("", lines[0]) if lines else type(error).__name__
    return kept.split(" SQLSTATE:")[0][:400].rstrip(". ;") + "."


def reraise_if_gone(error: PySparkException) -> None:
    """Raise the error again if the Spark server or its storage is the cause, because then no rule is at fault.

    It is recognised by the error condition if there is one. The message text is only searched otherwise, because it may quote the user's
    SQL.
    """
    condition = error.getCondition()
    if condition.startswith(_SERVER) if condition else (server_is_gone(error) or any(f"[{mark}" in str(error) for mark in _SERVER)):
        raise error
    if "OutOfMemoryError" in str(error):
        raise error


_WHERE = re.compile(r"Job aborted due to stage failure: .*?: (?=[\w.]+(Exception|Error))")
"""The beginning of a message of a failed Spark job, up to the name of the exception that a task raised."""
_SERVER = (
    "OPERATION_CANCELED",
    "SPARK_JOB_CANCELLED",
    "FAILED_READ_FILE",
    "DELTA_",
    "INVALID_HANDLE",
    "INVALID_CURSOR",
    "RETRIES_EXCEEDED",
)
"""Beginnings of the error conditions of failures that no rule can cause."""


def plain_key(names: Sequence[str], types: Mapping[str, str]) -> str:
    """Return Spark SQL for the key columns as a JSON object, each value as text; NULL if ``names`` is empty."""
    shown = (f"hex({quote(n)})" if types.get(n) == "binary" else f"cast({quote(n)} AS string)" for n in names)
    fields = ", ".join(f"{value} AS {quote(name)}" for name, value in zip(names, shown, strict=True))
    return f"to_json(struct({fields}), map('ignoreNullFields', 'false'))" if names else "cast(NULL AS string)"
