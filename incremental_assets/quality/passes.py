"""Passes over the rows of a scan that are known as values before they run: each by itself, or several of them as one query of Spark.

Spark spends longer on planning a query over few rows, and on the ways to and fro, than on the rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.rules.rule import Rule
from incremental_assets.quality.rows import PARTITION, Aggregate, Rows, Values

if TYPE_CHECKING:
    from pyspark.sql.column import Column
    from pyspark.sql.dataframe import DataFrame

_PASS = "incremental_assets_pass"


@dataclass(frozen=True)
class Pass:
    """One pass: ``rows``, grouped by ``PARTITION``, and the ``aggregates`` of each partition by their names.

    ``rules``: those that the pass is about, to which an error of it belongs. ``reads``: how many times it reads rows of the table.
    ``numeric``: the names of those aggregates that have to be numbers. ``of_table``: the rows are not grouped; the only answer has the key
    None.
    """

    rules: Sequence[Rule]
    rows: "DataFrame"
    aggregates: Mapping[str, "Column"]
    reads: int = 1
    numeric: Collection[str] = ()
    of_table: bool = False

    def frame(self, names: Mapping[str, str] | None = None) -> "DataFrame":
        """Return the query. ``names``: other names for the aggregates."""
        grouped = self.rows.groupBy() if self.of_table else self.rows.groupBy(PARTITION)
        return grouped.agg(*(column.alias(name if names is None else names[name]) for name, column in self.aggregates.items()))


def pass_of(rules: Sequence[Rule], rows: "DataFrame", wanted: Sequence[Aggregate]) -> Pass:
    """Return the pass that computes the aggregates."""
    return Pass(rules, rows, {one.name: one.column() for one in wanted}, numeric={one.name for one in wanted if one.numeric})


def run(rows: Rows, one: Pass) -> Values:
    """Return the aggregates of each partition, by a query of its own. Raises PySparkException."""
    rows.passes += one.reads
    return {None: one.frame().collect()[0].asDict()} if one.of_table else rows.collect(one.frame())


def run_together(rows: Rows, passes: Sequence[Pass]) -> list[Values] | None:
    """Return those of several passes, by one query for all of them; None if an aggregate that has to be a number is none.

    Raises PySparkException if one of them fails: which one, only ``run`` tells.
    """
    # The aggregates are called by numbers, as those of two passes may have names that are the same to Spark.
    called = [{name: f"v{number}_{i}" for i, name in enumerate(one.aggregates)} for number, one in enumerate(passes)]
    united: DataFrame | None = None
    for number, one in enumerate(passes):
        frame = one.frame(called[number]).selectExpr("*", f"{number} AS {_PASS}")
        united = frame if united is None else united.unionByName(frame, allowMissingColumns=True)
    assert united is not None
    answer = united.toArrow()  # other than ``collect``, it has no trouble with dates that Python does not know
    numbers = [names[name] for one, names in zip(passes, called, strict=True) for name in one.numeric]
    if not all(_is_number(answer.schema.field(name).type) for name in numbers):
        return None
    rows.passes += sum(one.reads for one in passes)
    found: list[Values] = [{} for _ in passes]
    for row in answer.to_pylist():
        number = row[_PASS]
        key = None if passes[number].of_table else rows.key(row[PARTITION])
        found[number][key] = {name: row[column] for name, column in called[number].items()}
    return found


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_)
