"""This module fetches a limited number of the rows that broke a rule, as the scan saw them.

Belongs here: the one job that fetches them. Does not belong: how many there are (``scan``), or where they are stored (``records``).
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
"""The largest number of rows that are fetched for one rule and partition."""
MOST_ROWS_A_SCAN = 50_000
"""The largest number of rows that one scan fetches; it is divided evenly among its failed pairs of rule and partition."""

OpenKeys = Callable[[], Mapping[str, Sequence[str]]]
"""Returns, by rule id, the keys of rows with an open anomaly.

These rows are fetched even beyond the limits. Otherwise an anomaly would look resolved whenever its row is not among the fetched ones.
"""

_BROKEN = "incremental_assets_broken"
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = f"""map('ignoreNullFields', 'false', 'timestampFormat', "{_TIME}XXX", 'timestampNTZFormat', "{_TIME}")"""
"""Options of ``to_json``: NULL fields are written, and times are in ISO 8601 with microseconds."""


class Capture:
    """Fetches failed rows. ``key`` are the columns that tell rows apart; if it is empty, the fetched rows have no key."""

    def __init__(self, rows: Rows, key: tuple[str, ...], open_keys: OpenKeys) -> None:
        self._rows, self._key, self._open_keys = rows, key, open_keys

    def take(
        self,
        conditions: Sequence[tuple[Rule, Callable[[], Any]]],
        frames: Mapping[str, "Callable[[], DataFrame]"],
        where: set[tuple[str, Key]],
    ) -> list[FailedRow]:
        """Return the failed rows.

        ``conditions`` has the rules about single rows, each with a function that makes the Spark condition which is true for a row that
        breaks it. ``frames`` has for each id of another rule a function that makes the frame of the rows that break it. ``where`` are the
        failed pairs of (rule id, partition key).
        """
        from pyspark.sql.connect import functions

        branches: list[DataFrame] = []
        names = [quote(name) for name in self._rows.asked.types]
        row = f"struct({', '.join(names)}) AS row"
        key = f"{plain_key(self._key, self._rows.asked.types)} AS key"
        if conditions:
            # All rules about single rows share one pass: each row gets the ids of the rules that it breaks.
            flags = [functions.when(broken(), functions.lit(rule.id)) for rule, broken in conditions]
            marked = self._rows.frame.withColumn(_BROKEN, functions.array_compact(functions.array(*flags)))
            marked = marked.where(f"size({_BROKEN}) > 0")
            branches.append(marked.selectExpr(PARTITION, key, row, f"explode({_BROKEN}) AS rule"))
        branches += [make().selectExpr(PARTITION, key, row, f"{text(name)} AS rule") for name, make in frames.items()]
        found = branches[0]
        for branch in branches[1:]:
            found = found.unionAll(branch)
        # Each branch of the union reads the rows once.
        self._rows.passes += len(branches)
        most = max(1, min(MOST_ROWS, MOST_ROWS_A_SCAN // max(1, len(where))))
        found = self._ranked(found)
        found = found.where(f"open OR place <= {most}").selectExpr(PARTITION, "rule", "key", f"to_json(row, {_JSON}) AS row")
        return self._joined(found, where)

    def _ranked(self, found: "DataFrame") -> "DataFrame":
        """Add ``open`` and ``place`` to the failed rows.

        ``open`` says whether the row has an open anomaly of the rule. ``place`` numbers the rows of each rule and partition from 1, in
        order of keys.
        """
        keys = [(rule, key) for rule, some in self._open_keys().items() for key in some]
        if keys:
            known = self._rows.spark.createDataFrame(keys, "rule string, key string").withColumn("open", expr("true"))
            found = found.alias("l").join(known.alias("r"), expr("l.rule = r.rule AND l.key = r.key"), "left")
            found = found.selectExpr(PARTITION, "l.rule AS rule", "l.key AS key", "row", "coalesce(r.open, false) AS open")
        else:
            found = found.withColumn("open", expr("false"))
        return found.withColumn("place", expr(f"row_number() OVER (PARTITION BY rule, {PARTITION} ORDER BY key)"))

    def _joined(self, found: "DataFrame", where: set[tuple[str, Key]]) -> list[FailedRow]:
        """Return one ``FailedRow`` for each row, with all the rules that it broke.

        Rows that are equal in all columns and have broken the same rule several times are returned as often as they occurred.
        """
        rules: dict[tuple[Key, str | None, str], Counter[str]] = {}
        for one in found.collect():
            partition = self._rows.key(one[PARTITION])
            # Rows that a tolerance allows are no failed rows.
            if (one["rule"], partition) in where:
                rules.setdefault((partition, one["key"], one["row"]), Counter())[one["rule"]] += 1
        return [
            FailedRow(partition, key, row, tuple(rule for rule, count in broken.items() if count > nth))
            for (partition, key, row), broken in rules.items()
            for nth in range(max(broken.values()))
        ]
