"""The rows that broke a rule, as the scan saw them, and the rows with an open anomaly that are among those scanned."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.container import Container, Kind
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.rules.rule import FailedRow, Rule
from incremental_assets.core.rules.sql import ScannedTable
from incremental_assets.delta.guards import expr
from incremental_assets.quality.local_measures import LocalMeasures
from incremental_assets.quality.row_texts import key_texts, row_texts
from incremental_assets.quality.rows import PARTITION, Condition, Key, Rows

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

MOST_ROWS = 1_000
"""The largest number of rows that are fetched for one rule and partition."""
MOST_ROWS_A_SCAN = 50_000
"""The largest number of rows that one scan fetches; it is divided evenly among its failed pairs of rule and partition."""

MOST_HERE = 20_000
"""The largest number of rows whose keys this process writes."""

_Found = tuple[Key, str, str | None, str]
"""The partition of a failed row, the id of the rule that it broke, its key, and the row itself."""
_BROKEN = "incremental_assets_broken"
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = f"""map('ignoreNullFields', 'false', 'timestampFormat', "{_TIME}XXX", 'timestampNTZFormat', "{_TIME}")"""
"""Options of ``to_json``: NULL fields are written, and times are in ISO 8601 with microseconds."""


class FailedRows:
    """Fetches failed rows.

    ``anomalies`` are the open anomalies of the scanned rules. Rows that have one are fetched even beyond the limits; otherwise an anomaly
    would look resolved whenever its row is not among the fetched ones.
    """

    def __init__(self, rows: Rows, anomalies: Iterable[Anomaly]) -> None:
        self._rows = rows
        self._container = rows.scan_scope.container
        self._key = _key_in_sql(self._container, rows.in_sql)
        self._anomalies = [one for one in anomalies if one.is_open and one.key is not None]

    def taken_here(self, here: LocalMeasures, rules: Sequence[Rule], where: set[tuple[str, Key]]) -> Sequence[FailedRow] | None:
        """Return the failed rows of these rules; None if Spark has to fetch them. ``where``: see ``take``."""
        if not rules:
            return ()
        found = here.failed(rules)
        if found is None or sum(map(len, found.broken.values())) > MOST_HERE:
            return None
        self._rows.passes += 1
        most, open_keys, chosen = _most(where), {*self._open_keys()}, list[tuple[str, int, str | None]]()
        for rule, positions in found.broken.items():
            keys = self._keys_of(found.rows.take(positions))
            if keys is None:
                return None
            ordered = sorted(zip(positions.tolist(), keys, strict=True), key=lambda one: (one[1] is not None, (one[1] or "").encode()))
            places = Counter[int]()
            for position, key in ordered:
                partition = int(found.partitions[position])
                places[partition] += 1
                if places[partition] <= most or (rule, key) in open_keys:
                    chosen.append((rule, position, key))
        texts = row_texts(found.rows.take([position for _, position, _ in chosen]), self._rows.in_sql.columns)
        if texts is None:
            return None
        partitions = [found.keys[found.partitions[position]] for _, position, _ in chosen]
        return self._joined(((at, rule, key, row) for at, (rule, _, key), row in zip(partitions, chosen, texts, strict=True)), where)

    def take(
        self, conditions: Mapping[str, Condition], frames: Mapping[str, "DataFrame"], where: set[tuple[str, Key]]
    ) -> Sequence[FailedRow]:
        """Return the failed rows; no job runs if there are none.

        ``conditions`` are those for a row to break a rule about single rows, by the id of the rule. ``frames`` are the rows that break
        other rules. ``where`` are the failed pairs of (rule id, partition key).
        """
        from pyspark.sql.connect import functions

        if not conditions and not frames:
            return ()
        branches: list[DataFrame] = []
        names = [quote(column.name) for column in self._rows.in_sql.columns]
        row = f"struct({', '.join(names)}) AS row"
        key = f"{self._key} AS key"
        if conditions:
            # All rules about single rows share one pass: each row gets the ids of the rules that it breaks.
            flags = [functions.when(broken.column(), functions.lit(rule)) for rule, broken in conditions.items()]
            marked = self._rows.frame.withColumn(_BROKEN, functions.array_compact(functions.array(*flags)))
            marked = marked.where(f"size({_BROKEN}) > 0")
            branches.append(marked.selectExpr(PARTITION, key, row, f"explode({_BROKEN}) AS rule"))
        branches += [frame.selectExpr(PARTITION, key, row, f"{text(rule)} AS rule") for rule, frame in frames.items()]
        found = branches[0]
        for branch in branches[1:]:
            found = found.unionAll(branch)
        # Each branch of the union reads the rows once.
        self._rows.passes += len(branches)
        found = self._ranked(found)
        found = found.where(f"open OR place <= {_most(where)}").selectExpr(PARTITION, "rule", "key", f"to_json(row, {_JSON}) AS row")
        return self._joined(((self._rows.key(one[PARTITION]), one["rule"], one["key"], one["row"]) for one in found.collect()), where)

    def moved(self, keys: Sequence[Key], here: LocalMeasures) -> Mapping[str, Key]:
        """Return, for rows with an open anomaly that was found in other partitions than ``keys``, the partition they are in now.

        Such a row's identifier has changed since, so that an upsert moved it into the scope. Only MERGE moves a row to another partition,
        and it keeps one row of each key.
        """
        scanned = set(keys)
        elsewhere = [(one.key,) for one in self._anomalies if one.partition not in scanned]
        if not elsewhere or self._container.strategy is not Strategy.UPSERT or not _key_columns(self._container):
            return {}
        self._rows.passes += 1
        found = here.keys(_key_columns(self._container))
        texts = None if found is None or found.rows.num_rows > MOST_HERE else self._keys_of(found.rows)
        if found is not None and texts is not None:
            wanted = {key for (key,) in elsewhere}
            return {key: found.keys[at] for key, at in zip(texts, found.partitions, strict=True) if key is not None and key in wanted}
        known = self._rows.spark.createDataFrame(list(dict.fromkeys(elsewhere)), "key string")
        scanned_rows = self._rows.frame.selectExpr(PARTITION, f"{self._key} AS key")
        return {row["key"]: self._rows.key(row[PARTITION]) for row in scanned_rows.join(known, "key", "left_semi").collect()}

    def _open_keys(self) -> list[tuple[str, str]]:
        """Return the pairs of rule id and key of rows with an open anomaly that may be within the scan scope.

        These are the anomalies of the scope's partitions, and of all where the scope is not limited to partitions or where the container is
        upserted: an upsert may move a row to another partition.
        """
        keys = self._rows.scan_scope.keys
        everywhere = keys is None or self._container.strategy is Strategy.UPSERT
        chosen = {None, *(keys or ())}
        return [(one.rule, one.key) for one in self._anomalies if one.key is not None and (everywhere or one.partition in chosen)]

    def _ranked(self, found: "DataFrame") -> "DataFrame":
        """Add ``open`` and ``place`` to the failed rows.

        ``open`` says whether the row has an open anomaly of the rule. ``place`` numbers the rows of each rule and partition from 1, in
        order of keys.
        """
        keys = self._open_keys()
        if keys:
            known = self._rows.spark.createDataFrame(keys, "rule string, key string").withColumn("open", expr("true"))
            found = found.alias("l").join(known.alias("r"), expr("l.rule = r.rule AND l.key = r.key"), "left")
            found = found.selectExpr(PARTITION, "l.rule AS rule", "l.key AS key", "row", "coalesce(r.open, false) AS open")
        else:
            found = found.withColumn("open", expr("false"))
        return found.withColumn("place", expr(f"row_number() OVER (PARTITION BY rule, {PARTITION} ORDER BY key)"))

    def _keys_of(self, rows: pa.Table) -> Sequence[str | None] | None:
        """The keys of rows that this process has read, None for each row that has none; None if Spark has to write them."""
        names, columns = _key_columns(self._container), {column.name: column for column in self._rows.in_sql.columns}
        if not names:
            return [None] * rows.num_rows
        key = [columns[name] for name in names if name in columns]
        return key_texts(rows, key) if len(key) == len(names) else None

    def _joined(self, found: Iterable[_Found], where: set[tuple[str, Key]]) -> list[FailedRow]:
        """Return one ``FailedRow`` for each row, with all the rules that it broke, in order of their ids.

        Rows that are equal in all columns and have broken the same rule several times are returned as often as they occurred.
        """
        rules: dict[tuple[Key, str | None, str], Counter[str]] = {}
        for partition, rule, key, row in found:
            # Rows that a tolerance allows are no failed rows.
            if (rule, partition) in where:
                rules.setdefault((partition, key, row), Counter())[rule] += 1
        return [
            FailedRow(partition, key, row, tuple(sorted(rule for rule, count in broken.items() if count > nth)))
            for (partition, key, row), broken in rules.items()
            for nth in range(max(broken.values()))
        ]


def _most(where: set[tuple[str, Key]]) -> int:
    """The number of rows that are fetched for each failed pair of rule and partition."""
    return max(1, min(MOST_ROWS, MOST_ROWS_A_SCAN // max(1, len(where))))


def _key_columns(container: Container) -> tuple[str, ...]:
    """Return the columns that tell the rows of the container apart; empty where there are none, as for files."""
    return () if container.kind is Kind.FILES else container.primary_key


def _key_in_sql(container: Container, in_sql: ScannedTable) -> str:
    """Return Spark SQL for the key of a row as a JSON object, each value as text; NULL if the rows have no key."""
    names, types = _key_columns(container), {column.name: column.type for column in in_sql.columns}
    shown = (f"hex({quote(n)})" if types.get(n) == "binary" else f"cast({quote(n)} AS string)" for n in names)
    fields = ", ".join(f"{value} AS {quote(name)}" for name, value in zip(names, shown, strict=True))
    return f"to_json(struct({fields}), map('ignoreNullFields', 'false'))" if names else "cast(NULL AS string)"
