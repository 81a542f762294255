"""The stored states of profiles: one Delta table for each datastore, and the profile of any set of partitions, merged from their states.

The table is physically partitioned by container, so that writes for different containers do not conflict. Where Delta reports a conflict
all the same (the table is just being created, or maintained), the write is repeated without reading the container's rows again.
"""

import contextlib
import datetime
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties

from incremental_assets.core.errors import ConcurrentWriteError
from incremental_assets.core.names import encode_name
from incremental_assets.core.rules.sql import text
from incremental_assets.core.schema import Column
from incremental_assets.core.stored_format import known_value
from incremental_assets.delta.errors import lake_errors, place_errors
from incremental_assets.delta.folders import QUALITY_FOLDER
from incremental_assets.delta.guards import expr
from incremental_assets.delta.private import keep_private
from incremental_assets.delta.table import LakeTable
from incremental_assets.profiles.column import ColumnProfile, Form, Frequent, Key, Lengths, Moments, Profile, merge_columns
from incremental_assets.profiles.states import (
    ESTIMATE_COLUMNS,
    PARAMETERS,
    RANKS,
    SHOW_VALUES,
    STATE_COLUMNS,
    TEXT_FORMS,
    Parameters,
    empty_states,
    estimates,
    frequent_state,
    kept_columns,
    profile_states,
)
from incremental_assets.spark.exceptions import spark_exception

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

MERGED_RANKS = tuple(sorted({*RANKS, *(n / 50 for n in range(51))}))
"""The ranks of the quantiles of a merged profile. They include ``RANKS``."""
MOST_TRIES = 8
"""How many times a write is tried when it conflicts."""
_ROWS_PER_FILE = 2000
"""The largest number of states in a file. Replacing the states of a partition rewrites the files that they are in, so files are kept small.
"""

_OWN_COLUMNS = {
    "container": ("string", "The container; the folders go by it."),
    "partition": ("string", "The partition's key; NULL: rows of no partition, or a container without partitions."),
    "delta_version": ("bigint", "Version of the container's table that the state is of."),
    "profiled_at": ("timestamp", "When it was made."),
    "operation_id": ("string", "Dagster run that made it."),
}
_COLUMNS = {**_OWN_COLUMNS, **STATE_COLUMNS, **ESTIMATE_COLUMNS}
_SKETCHES = ("distinct_state", "quantiles_state", "frequent_state")
_GROUP = ("column_name", "form", "layout")
_MADE_WITH = ("form", "layout", "distinct_lg_k", "quantiles_k", "frequent_items")
"""Columns that must be equal in states that are merged."""


@dataclass(frozen=True)
class Refreshed:
    """The result of storing states.

    ``rows`` is the number of rows of each partition whose states were replaced. ``version`` is the version of the table of profiles
    afterwards.
    """

    rows: Mapping[Key, int]
    version: int | None


class ProfileStore:
    """The states of all containers of one datastore, in ``<lake>/<datastore>/_quality/profiles``."""

    def __init__(self, lake: str, datastore: str) -> None:
        self.table = LakeTable(lake, encode_name(datastore), QUALITY_FOLDER, "profiles")

    def refresh(
        self,
        frame: "DataFrame",
        container: str,
        columns: Sequence[Column],
        *,
        delta_version: int,
        operation_id: str,
        partition: str | None = None,
        keys: Sequence[Key] = (),
        key_of: Callable[[Any], str] = str,
        whole: bool = False,
        parameters: Parameters = PARAMETERS,
        samples: bool = True,
    ) -> Refreshed:
        """Profile the rows of the frame in one pass, and replace the states of their partitions in one commit.

        - ``frame`` has all rows of the partitions to profile. Its column ``partition`` tells them apart (None: the container has no
          partitions), and ``key_of`` turns a value of this column into a partition key; different values must give different keys.
        - ``delta_version`` is the version of the container's table that the frame reads, ``operation_id`` the id of the Dagster run.
        - ``keys`` are further partitions in the scope. Those that have no rows in the frame are stored as empty. None stands for the rows
          without an identifier.
        - ``whole`` says that the frame has all rows of the container. The states of all other partitions are then removed.
        - ``samples`` says whether text values and frequent values are stored.

        Raises LakeError or ConcurrentWriteError, and ValueError if two partitions have the same key.
        """
        spark: Any = frame.sparkSession
        with place_errors(self.table.url):
            keep_private(self.table.url.rpartition("/")[0])
        with lake_errors(container, self.table.url):
            # The checkpoint reads the rows once, even if the write has to be repeated, and this large plan is not analysed again.
            with _active(spark):
                states = profile_states(frame, columns, partition, parameters).localCheckpoint()
            found = states.where("position = 0").select("partition", "rows").collect()
            named: dict[str | None, Key] = {_as_text(value): None if value is None else key_of(value) for value, _ in found}
            if len({*named.values()}) < len(named):
                raise ValueError(f"{container}: two partitions of the frame have the same key")
            empty = [] if partition is None else [key for key in dict.fromkeys(keys) if key not in named.values()]
            rows = _with_keys(spark, states, named)
            if empty:
                nothing = [{"partition": key, **state} for key in empty for state in empty_states(columns, parameters)]
                rows = rows.unionByName(spark.createDataFrame([tuple(one.values()) for one in nothing], _schema(nothing[0])))
        stamp = (f"{int(delta_version)}L AS delta_version", "current_timestamp() AS profiled_at", f"{text(operation_id)} AS operation_id")
        of_what = f"{text(container)} AS container"
        stamped = rows.selectExpr(of_what, "partition", *stamp, *kept_columns(samples))
        self._write(stamped, container, None if whole or partition is None else [*named.values(), *empty])
        head = self.table.head()
        counts = {named[_as_text(value)]: int(count) for value, count in found}
        return Refreshed({**counts, **dict.fromkeys(empty, 0)}, head.version if head else None)

    def known(self, spark: "SparkSession", container: str) -> list[Key]:
        """Return the keys of the partitions that have states. Raises LakeError."""
        if self.table.head() is None:
            return []
        with lake_errors(container, self.table.url):
            states = spark.read.format("delta").load(self.table.url).where(f"{_where(container, None)} AND position = 0")
            return sorted_keys({row["partition"] for row in states.select("partition").collect()})

    def profile(
        self, spark: "SparkSession", container: str, partitions: Sequence[Key] | None = None, order: Sequence[str] = ()
    ) -> Profile | None:
        """Return the profile of the partitions, merged from their states; None if there are no states. The container's table is not read.

        ``partitions`` None means all of them, ordered by their keys. ``order`` gives the keys in order of arrival, if their names do not
        show it. Raises LakeError.
        """
        if self.table.head() is None:
            return None
        with lake_errors(container, self.table.url):
            states = spark.read.format("delta").load(self.table.url).where(_where(container, partitions))
            kept = [
                row.asDict(recursive=True)
                for row in states.drop(*_SKETCHES).withColumn("profiled_at", expr("unix_micros(profiled_at)")).collect()
            ]
            if not kept:
                return None
            merged = _merged(states, {(row["distinct_lg_k"], row["quantiles_k"], row["frequent_items"]) for row in kept})
        return _profile(
            container, kept, merged, partitions if partitions is not None else sorted_keys({r["partition"] for r in kept}, order)
        )

    def forget_samples(self, before: datetime.datetime) -> int:
        """Set to NULL what shows values of rows in states that are older than the given time; return how many states were changed.

        Counts, the bounds of numbers and times, and the sketches of distinct values and quantiles stay, so that the states still merge. It
        goes through delta-rs: the states are few, and the maintenance job need not wait for Spark. Raises LakeError, ConcurrentWriteError.
        """
        with place_errors(self.table.url):
            delta = self.table.opened_to_change()
            if delta is None:
                return 0
            forms = ", ".join(text(form) for form in TEXT_FORMS)
            # The condition does not name the list columns, which delta-rs (1.6) cannot test. It need not: a state with examples has
            # frequent values as well, or it is of texts and has bounds.
            shown = ["frequent_state IS NOT NULL", f"(form IN ({forms}) AND (minimum IS NOT NULL OR maximum IS NOT NULL))"]
            moment = f"arrow_cast({int(before.timestamp() * 1_000_000)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
            bounds = {name: f"CASE WHEN form IN ({forms}) THEN NULL ELSE {name} END" for name in ("minimum", "maximum")}
            done = delta.update(
                predicate=f"profiled_at < {moment} AND ({' OR '.join(shown)})",
                updates={**dict.fromkeys(SHOW_VALUES, "NULL"), **bounds},
                commit_properties=CommitProperties(max_commit_retries=0),
            )
            return int(done["num_updated_rows"])

    # ------------------------------------------------------------------ the table
    def _write(self, rows: "DataFrame", container: str, keys: Sequence[Key] | None) -> None:
        """Replace the states of the given partitions by these rows; ``keys`` None replaces all states of the container."""
        spark: Any = rows.sparkSession
        if keys is not None and not keys:
            return

        def write() -> None:
            if self.table.head() is None:
                try:
                    spark.sql(self._definition()).collect()
                except spark_exception():
                    # It is only an error if there is still no table; else another container's first profile has created it in the meantime.
                    if self.table.head() is None:
                        raise
            writer = rows.write.format("delta").mode("overwrite").option("maxRecordsPerFile", _ROWS_PER_FILE)
            writer.option("replaceWhere", _where(container, keys)).save(self.table.url)

        self._retried(container, write)

    def _retried(self, container: str, write: Callable[[], object]) -> None:
        """Run ``write``, and repeat it after a random wait if it conflicts with another commit."""
        for attempt in range(1, MOST_TRIES + 1):
            try:
                with lake_errors(container, self.table.url):
                    write()
                return
            except ConcurrentWriteError:
                if attempt == MOST_TRIES:
                    raise
                # The random part keeps several waiting writers from colliding again.
                time.sleep(random.uniform(0.1, 0.5) * attempt)

    def _definition(self) -> str:
        columns = ", ".join(f"{name} {kind} COMMENT {text(meaning)}" for name, (kind, meaning) in _COLUMNS.items())
        # Not every reader of Delta supports deletion vectors, and the files are small enough to be rewritten.
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table.sql_name} ({columns}) USING delta PARTITIONED BY (container) "
            f"COMMENT 'Profiles of containers, as states that can be merged' "
            f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'false', 'delta.checkpointInterval' = '20')"
        )


@contextlib.contextmanager
def _active(spark: Any) -> Iterator[None]:
    """Make ``spark`` the active session of this thread for the duration of the block.

    pyspark runs ``localCheckpoint`` in the thread's active session, and a session of our own is not registered as such.
    """
    threads = type(spark)._active_session
    before = getattr(threads, "session", None)
    threads.session = spark
    try:
        yield
    finally:
        threads.session = before


def _with_keys(spark: "SparkSession", states: "DataFrame", named: Mapping[str | None, Key]) -> "DataFrame":
    """Replace the values of the column ``partition`` by the keys of the partitions."""
    if all(value == key for value, key in named.items()):
        return states.withColumn("partition", expr("cast(partition AS string)"))
    keys = _keys_frame(spark, list(named.items()))
    found = states.withColumnRenamed("partition", "value").join(keys, expr("cast(value AS string) <=> was"))
    return found.drop("value", "was")


def _schema(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {_COLUMNS[name][0]}" for name in names)


def _keys_frame(spark: "SparkSession", pairs: Sequence[tuple[Key, Key]]) -> "DataFrame":
    return spark.createDataFrame(list(pairs), "was string, partition string")


def _as_text(value: object) -> str | None:
    """Return a value as Spark casts it to a string."""
    return None if value is None else str(value)


def _where(container: str, keys: Sequence[Key] | None) -> str:
    """Return the predicate for the states of the given partitions of a container; ``keys`` None stands for all partitions."""
    here = f"container = {text(container)}"
    if keys is None:
        return here
    known = [text(key) for key in keys if key is not None]
    either = [f"partition IN ({', '.join(known)})"] if known else []
    if None in keys:
        either.append("partition IS NULL")
    return f"{here} AND ({' OR '.join(either) or 'false'})"


# ---------------------------------------------------------------- merging
def _merged(states: "DataFrame", used: set[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Return what the merged sketches say, for each column and each way in which its states were computed.

    ``used`` are the triples (lgConfigK, k, tracked values) of sketch parameters that occur.
    """
    found: list[dict[str, Any]] = []
    for one in sorted(used):
        parameters = Parameters(*one)
        alike = states.where(f"distinct_lg_k = {one[0]} AND quantiles_k = {one[1]} AND frequent_items = {one[2]}")
        of_doubles = f"(form LIKE 'decimal%' OR form = '{Form.FLOATING.value}')"
        values = alike.groupBy(*_GROUP).agg(
            expr("CASE WHEN count(distinct_state) > 0 THEN hll_union_agg(distinct_state, false) END AS distinct_state"),
            expr(
                f"CASE WHEN count(quantiles_state) = 0 THEN NULL "
                f"WHEN {of_doubles} THEN kll_merge_agg_double(quantiles_state, {one[1]}) FILTER (WHERE {of_doubles}) "
                f"ELSE kll_merge_agg_bigint(quantiles_state, {one[1]}) FILTER (WHERE NOT {of_doubles}) END AS quantiles_state"
            ),
        )
        # This is a separate aggregation, because ``approx_top_k_combine`` fails for a group without any sketch, even if a FILTER excludes
        # that group.
        combined = f"approx_top_k_combine({frequent_state('frequent_state', parameters)}, {one[2]}).sketch AS frequent_state"
        frequent = alike.where("frequent_state IS NOT NULL").groupBy(*_GROUP).agg(expr(combined))
        shown = values.join(frequent, list(_GROUP), "left").selectExpr(
            *_GROUP, *estimates("distinct_state", "quantiles_state", "frequent_state", parameters, MERGED_RANKS)
        )
        made = dict(zip(_MADE_WITH[2:], one, strict=True))
        found += [{**row.asDict(recursive=True), **made} for row in shown.collect()]
    return found


def _made_with(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _MADE_WITH)


def _profile(container: str, kept: Sequence[Mapping[str, Any]], merged: Sequence[Mapping[str, Any]], partitions: Sequence[Key]) -> Profile:
    """Build the profile from the states and the merged sketches."""
    newest = max(row["profiled_at"] for row in kept)
    order = {key: n for n, key in enumerate(partitions)}
    rows = sorted(kept, key=lambda row: (order[row["partition"]], row["position"]))
    shown: defaultdict[Key, dict[str, ColumnProfile]] = defaultdict(dict)
    by_column: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        shown[row["partition"]][row["column_name"]] = _column(row, RANKS)
        by_column[row["column_name"]].append(row)
    sketched = {(row["column_name"], *_made_with(row)): row for row in merged}
    columns: list[tuple[int, ColumnProfile]] = []
    left_out: dict[str, tuple[Key, ...]] = {}
    for name, own in by_column.items():
        # The newest state decides which type and parameters count. States with others cannot be merged with it.
        last = max(own, key=lambda row: (row["profiled_at"], order[row["partition"]]))
        alike = [row for row in own if _made_with(row) == _made_with(last)]
        if len(alike) < len(own):
            left_out[name] = tuple(row["partition"] for row in own if _made_with(row) != _made_with(last))
        whole = merge_columns([_column(row, RANKS) for row in alike])
        columns.append((last["position"], _estimated(replace(whole, type=last["type"]), sketched[(name, *_made_with(last))], MERGED_RANKS)))
    columns.sort(key=lambda pair: (pair[0], pair[1].column))
    version = max(row["delta_version"] for row in kept)
    at = datetime.datetime.fromtimestamp(newest / 1_000_000, datetime.timezone.utc)
    return Profile(container, tuple(column for _, column in columns), dict(shown), left_out, version, at)


def _column(row: Mapping[str, Any], ranks: Sequence[float]) -> ColumnProfile:
    """Return the profile of one column in one partition from its state."""
    plain = ColumnProfile(
        column=row["column_name"],
        type=row["type"],
        form=known_value(Form, row["form"].partition("(")[0], f"{row['container']}: its profile"),
        rows=row["rows"],
        nulls=row["nulls"],
        nans=row["nans"],
        minimum=row["minimum"],
        maximum=row["maximum"],
        moments=Moments(row["numbers"], row["mean"], row["m2"]) if row["numbers"] else None,
        lengths=Lengths(row["lengths"], row["length_min"], row["length_max"], row["length_sum"]) if row["lengths"] else None,
        examples=tuple(row["examples"] or ()),
    )
    return _estimated(plain, row, ranks)


def _estimated(column: ColumnProfile, row: Mapping[str, Any], ranks: Sequence[float]) -> ColumnProfile:
    """Add the figures that come from sketches."""
    distinct = row["distinct_count"]
    parameters = Parameters(row["distinct_lg_k"], row["quantiles_k"], row["frequent_items"])
    frequent = [Frequent(one["item"], one["count"]) for one in row["frequent"] or ()]
    return replace(
        column,
        # The estimate may be greater than the number of values.
        distinct=min(distinct, column.values) if distinct is not None else None,
        quantiles=dict(zip(ranks, row["quantiles"] or (), strict=False)),
        frequent=tuple(sorted(frequent, key=lambda one: (-one.count, one.value))),
        frequent_error=parameters.frequent_error(column.values, distinct),
    )


def sorted_keys(keys: Collection[Key], order: Sequence[str] = ()) -> list[Key]:
    """Return the keys, oldest first, after the rows without an identifier (None).

    Keys that are not in ``order``, for example of files that no longer exist, come before those that are. Integer keys are sorted by value.
    """
    position = {key: n for n, key in enumerate(order)}
    named = sorted(key for key in keys if key is not None)
    if all(key.lstrip("-").isdecimal() for key in named):
        named.sort(key=int)
    named.sort(key=lambda key: position.get(key, -1))
    return [*([None] if None in keys else []), *named]
