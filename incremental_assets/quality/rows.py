"""The rows of one scan, as Spark reads them, and jobs over them that find the rule that breaks them.

Belongs here: one frozen version of the table, the count of passes, and running aggregates such that one that cannot be computed does not
stop the others. Does not belong: which aggregates (``scan``, ``groups``).
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
from incremental_assets.quality.ground import Ground
from incremental_assets.quality.predicates import Asked

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

PARTITION = "incremental_assets_partition"
"""The column that tells partitions apart; NULL for the rows of none."""

Key = str | None
Values = dict[Key, dict[str, Any]]
"""Of each partition, the aggregates by their names."""


@dataclass(frozen=True)
class Aggregate:
    """``owner``: the rule that it is computed for (None: ours, which cannot break). ``column``: makes it, when Spark is there, from
    ``texts`` of SQL. ``numeric``: it has to give a number."""

    owner: str | None
    name: str
    column: Callable[[], Any] = field(repr=False)
    texts: tuple[str | None, ...] = ()
    numeric: bool = False


class Rows:
    """Those on the ground, in one version of the table. ``passes``: how many times they, or others of the table, were read."""

    def __init__(self, spark: "SparkSession", table: LakeTable, head: Head, ground: Ground, asked: Asked) -> None:
        self.spark, self.table, self.head, self.ground, self.asked = spark, table, head, ground, asked
        self.passes = 0
        self.troubles: dict[str, str] = {}
        self._kinds: dict[str, Any] = {}

    @cached_property
    def whole(self) -> "DataFrame":
        """All rows of the table, with the partition of each."""
        frame = self.spark.read.format("delta").option("versionAsOf", self.head.version).load(self.table.url)
        return frame.withColumn(PARTITION, expr(self.ground.partition or "cast(NULL AS string)"))

    @cached_property
    def frame(self) -> "DataFrame":
        return self.whole if self.ground.predicate is None else self.whole.where(self.ground.predicate)

    def filtered(self, condition: str | None) -> "DataFrame":
        """Those for which a rule's filter holds."""
        return self.frame if condition is None else self.frame.where(expr(condition))

    def key(self, value: object) -> Key:
        return None if value is None else self.ground.key_of(value)

    # ------------------------------------------------------------------
    def aggregate(self, frame: "DataFrame", wanted: Sequence[Aggregate], condition: str | None = None) -> Values:
        """By partition. Those of a rule that cannot be computed are left out, and the rule is noted in ``troubles``.

        ``condition``: the filter of the rules that they are computed for.
        """
        if condition is None or not wanted:
            return self._run(frame, self._analysed(frame, wanted), proven=False)
        try:
            chosen = frame.where(expr(condition))
            _ = chosen.schema
            return self._run(chosen, self._analysed(chosen, wanted), proven=False)
        except PySparkException as error:  # of the filter: without it, the rows can be read
            self.note([one.owner for one in wanted if one.owner is not None], error)
            return {}

    def of_none(self, wanted: Sequence[Aggregate]) -> dict[str, Any]:
        """Of no rows, as far as that is anything: a count is 0, a mean NULL, and a share of nothing cannot be computed. Reads nothing."""
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
        """It is those rules' trouble, unless it is the server's own."""
        reraise_if_gone(error)
        self.troubles.update(dict.fromkeys(owners, explain(error)))

    def attempt(self, owners: Sequence[str], job: "Callable[[], Values]") -> Values:
        """A job of given rules alone; trouble is theirs."""
        try:
            self.passes += 1
            return job()
        except PySparkException as error:
            self.note(owners, error)
            return {}

    def collect(self, frame: "DataFrame") -> Values:
        """A frame that has one row a partition."""
        return {self.key(row[PARTITION]): row.asDict() for row in frame.collect()}

    def _analysed(self, frame: "DataFrame", wanted: Sequence[Aggregate]) -> list[Aggregate]:
        """Those that Spark understands. It is asked once for all, and for each rule only where it does not understand one."""
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
        """Why Spark does not understand them; where it does, ``_kinds`` has the type of each."""
        try:
            if wanted:
                schema = frame.groupBy(PARTITION).agg(*(one.column().alias(one.name) for one in wanted)).schema
                self._kinds.update({found.name: found.dataType for found in schema})
        except PySparkException as error:  # of any class: a decimal of 50 digits is an error of arithmetic
            reraise_if_gone(error)
            return error
        return None

    def _of_numbers(self, wanted: Sequence[Aggregate]) -> list[Aggregate]:
        """Without those that have to be numbers and are not. Not even read: Python has no date before the year 1."""
        from pyspark.sql.types import NullType, NumericType

        for one in wanted:
            kind = self._kinds[one.name]
            if one.numeric and one.owner is not None and not isinstance(kind, NumericType | NullType):
                self.troubles[one.owner] = f"the expression gives {kind.typeName()} and not a number."
        return [one for one in wanted if one.owner not in self.troubles]

    def _run(self, frame: "DataFrame", wanted: Sequence[Aggregate], proven: bool) -> Values:
        """In one job; where that breaks, in halves, until the rule is found. ``proven``: the rows themselves can be read."""
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
    """The one rule whose SQL Spark quotes as the place of the error; of a text of several lines it quotes one."""
    quoted = str(error).partition("== SQL (")[2].partition("==\n")[2]
    texts = {(one.owner, text) for one in wanted if one.owner is not None for text in one.texts if text and quoted.startswith(f"{text}\n")}
    owners = {owner for owner, _ in texts}
    return owners.pop() if len(owners) == 1 else None


def explain(error: PySparkException) -> str:
    """Spark's message in a line, without the plan that follows."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = _WHERE.sub("", lines[0]) if lines else type(error).__name__
    return kept.split(" SQLSTATE:")[0][:400].rstrip(". ;") + "."


def reraise_if_gone(error: PySparkException) -> None:
    """The server's own trouble is no rule's. By the condition, where it has one: the message may quote the user's SQL."""
    condition = error.getCondition()
    if condition.startswith(_SERVER) if condition else (server_is_gone(error) or any(f"[{mark}" in str(error) for mark in _SERVER)):
        raise error
    if "OutOfMemoryError" in str(error):
        raise error


_WHERE = re.compile(r"Job aborted due to stage failure: .*?: (?=[\w.]+(Exception|Error))")
_SERVER = (
    "OPERATION_CANCELED",
    "SPARK_JOB_CANCELLED",
    "FAILED_READ_FILE",
    "DELTA_",
    "INVALID_HANDLE",
    "INVALID_CURSOR",
    "RETRIES_EXCEEDED",
)


def plain_key(names: Sequence[str], types: Mapping[str, str]) -> str:
    """The columns that tell rows apart as JSON text, each value as text."""
    shown = (f"hex({quote(n)})" if types.get(n) == "binary" else f"cast({quote(n)} AS string)" for n in names)
    fields = ", ".join(f"{value} AS {quote(name)}" for name, value in zip(names, shown, strict=True))
    return f"to_json(struct({fields}), map('ignoreNullFields', 'false'))" if names else "cast(NULL AS string)"
