"""The rows that broke a rule, as they were: a bounded number of them.

Belongs here: the one job that fetches them. Does not belong: how many there were (``scan``), or where they are kept (``records``).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.rules import Rule
from incremental_assets.delta.guards import expr
from incremental_assets.quality.rows import PARTITION, Key, Rows, plain_key
from incremental_assets.quality.verdict import FailedRow

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

MOST_ROWS = 1_000
"""Of one rule and partition."""
MOST_ROWS_A_SCAN = 50_000

OpenKeys = Callable[[], Mapping[str, Sequence[str]]]
"""By rule: keys of rows with an open anomaly. Those are fetched in any case, as it must be seen whether they still break the rule."""

_BROKEN = "incremental_assets_broken"
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = f"""map('ignoreNullFields', 'false', 'timestampFormat', "{_TIME}XXX", 'timestampNTZFormat', "{_TIME}")"""


class Capture:
    """``key``: the columns that tell rows apart; without, a row has none."""

    def __init__(self, rows: Rows, key: tuple[str, ...], open_keys: OpenKeys) -> None:
        self._rows, self._key, self._open_keys = rows, key, open_keys

    def take(
        self,
        conditions: Sequence[tuple[Rule, Callable[[], Any]]],
        frames: Mapping[str, "Callable[[], DataFrame]"],
        where: set[tuple[str, Key]],
    ) -> list[FailedRow]:
        """Of rules of rows, by what holds for a row that breaks them; of others, the frame of such rows. ``where``: rule, partition."""
        from pyspark.sql.connect import functions

        branches: list[DataFrame] = []
        names = [quote(name) for name in self._rows.asked.types]
        row = f"struct({', '.join(names)}) AS row"
        key = f"{plain_key(self._key, self._rows.asked.types)} AS key"
        if conditions:
            flags = [functions.when(broken(), functions.lit(rule.id)) for rule, broken in conditions]
            marked = self._rows.frame.withColumn(_BROKEN, functions.array_compact(functions.array(*flags)))
            marked = marked.where(f"size({_BROKEN}) > 0")
            branches.append(marked.selectExpr(PARTITION, key, row, f"explode({_BROKEN}) AS rule"))
        branches += [make().selectExpr(PARTITION, key, row, f"{text(name)} AS rule") for name, make in frames.items()]
        found = branches[0]
        for branch in branches[1:]:
            found = found.unionAll(branch)
        self._rows.passes += len(branches)
        most = max(1, min(MOST_ROWS, MOST_ROWS_A_SCAN // max(1, len(where))))
        found = self._ranked(found)
        found = found.where(f"open OR place <= {most}").selectExpr(PARTITION, "rule", "key", f"to_json(row, {_JSON}) AS row")
        return self._joined(found, where)

    def _ranked(self, found: "DataFrame") -> "DataFrame":
        """With ``open``, and ``place`` among the rows of the rule and partition."""
        keys = [(rule, key) for rule, some in self._open_keys().items() for key in some]
        if keys:
            known = self._rows.spark.createDataFrame(keys, "rule string, key string").withColumn("open", expr("true"))
            found = found.alias("l").join(known.alias("r"), expr("l.rule = r.rule AND l.key = r.key"), "left")
            found = found.selectExpr(PARTITION, "l.rule AS rule", "l.key AS key", "row", "coalesce(r.open, false) AS open")
        else:
            found = found.withColumn("open", expr("false"))
        return found.withColumn("place", expr(f"row_number() OVER (PARTITION BY rule, {PARTITION} ORDER BY key)"))

    def _joined(self, found: "DataFrame", where: set[tuple[str, Key]]) -> list[FailedRow]:
        """One for each row, with all the rules that it broke; of rows that are the same in all, one for each time a rule has them."""
        rules: dict[tuple[Key, str | None, str], Counter[str]] = {}
        for one in found.collect():
            partition = self._rows.key(one[PARTITION])
            if (one["rule"], partition) in where:  # not those that a tolerance allows
                rules.setdefault((partition, one["key"], one["row"]), Counter())[one["rule"]] += 1
        return [
            FailedRow(partition, key, row, tuple(rule for rule, count in broken.items() if count > nth))
            for (partition, key, row), broken in rules.items()
            for nth in range(max(broken.values()))
        ]
