"""One commit of rows to one table, and right after it the tiny commit that remembers the watermark.

Belongs here: the three strategies and their order of steps. Does not belong: which rows (``model``), predicates' text (``sql``), schema
changes (``evolve``). Everything here may be repeated: a commit that was lost half-way is made again by the next sync.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.connect import functions

from incremental_assets.lake.errors import lake_errors
from incremental_assets.lake.evolve import allow_names, create_table, evolve_table
from incremental_assets.lake.extraction import Extraction, Outcome
from incremental_assets.lake.sql import align, key_text, scope_predicate, text
from incremental_assets.lake.table import STATE_PROPERTY, Head, LakeTable
from incremental_assets.model.errors import EmptyRefused, LakeMoved
from incremental_assets.model.grammar import Strategy
from incremental_assets.model.names import backticked as quote
from incremental_assets.model.schema import Evolution, plan_evolution
from incremental_assets.model.window import in_words

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
KEYS_A_LOOKUP = 10_000
COMPARED_ROWS = 1_000_000
"""Up to so many rows, what an overwrite really changed is counted: they are held by Spark for it, and the old ones read. Above it is not
known."""
_GONE = "__incremental_assets_gone"


def commit(spark: "SparkSession", table: LakeTable, extraction: Extraction, log: Callable[[str], None]) -> Outcome:
    """Writes the rows, then the state.

    Raises LakeMoved where the table is not the one the plan saw, RebuildNeeded where its columns cannot follow, EmptyRefused where rows
    would vanish unasked, LakeError where the place cannot be written.
    """
    container = extraction.container
    head = table.head()
    if (head.version if head else None) != extraction.base_version:
        raise _moved(container.label, table, "nothing was written")
    with lake_errors(container.label, table.url):
        head, evolution = _prepare(spark, table, head, extraction)
        if container.strategy is Strategy.UPSERT and not extraction.whole and head.version > 0:
            outcome = _merge(spark, table, head, extraction)
        else:
            outcome = _overwrite(spark, table, head, extraction)
        if any(c.story != extraction.story for c in table.data_commits_since(head.version)):
            # Another host's sync, which no lock here keeps out, came before ours: its newer rows may be gone. Neither watermark holds, but
            # the one that both began from does.
            set_property(spark, table, STATE_PROPERTY, head.properties.get(STATE_PROPERTY, ""))
            raise _moved(container.label, table, "the watermark stays")
        log(f"wrote {outcome.rows_read:,} rows as version {outcome.data_version}")
        state = replace(extraction.state, data_version=outcome.data_version)
        set_property(spark, table, STATE_PROPERTY, state.to_json(container.axis))
    return replace(outcome, evolution=evolution, version=_head(table).version)


def _moved(label: str, table: LakeTable, what: str) -> LakeMoved:
    return LakeMoved(f"{label}: somebody else wrote to {table.url} during this sync; {what}. Sync again.")


def _expect_unmoved(label: str, table: LakeTable, head: Head) -> None:
    """The last look before the write, which itself conflicts with whatever is committed while it runs."""
    if table.data_commits_since(head.version):
        raise _moved(label, table, "nothing was written")


def set_property(spark: "SparkSession", table: LakeTable, name: str, value: str) -> None:
    """A commit without data. It also fences: a write that was planned before it can no longer commit (Delta's conflict rules)."""
    spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({text(name)} = {text(value)})")


def _prepare(spark: "SparkSession", table: LakeTable, head: Head | None, extraction: Extraction) -> tuple[Head, Evolution]:
    """The table as it must be before rows are written: made, or with its columns added and widened."""
    if head is None:
        create_table(spark, table, extraction)
        return _head(table), Evolution()
    if extraction.whole:
        allow_names(spark, table, head, extraction.columns)
        return _head(table), Evolution()
    evolution = plan_evolution(extraction.container.label, head.columns, extraction.columns)
    if evolution:
        evolve_table(spark, table, head, evolution)
        return _head(table), evolution
    return head, evolution


def _head(table: LakeTable) -> Head:
    head = table.head()
    assert head is not None
    return head


# ---------------------------------------------------------------------- append, snapshot, and every first load
def _overwrite(spark: "SparkSession", table: LakeTable, head: Head, extraction: Extraction) -> Outcome:
    container = extraction.container
    frame = extraction.frame(spark)
    writer_options = {"userMetadata": json.dumps(extraction.story)}
    predicate = "true"
    if extraction.whole and head.version > 0:
        writer_options["overwriteSchema"] = "true"
    else:
        frame = frame.selectExpr(*align(container, [(c.name, c.type) for c in head.columns], frame.columns))
        if container.identifier is not None:
            predicate = scope_predicate(container.identifier, extraction.windows, extraction.include_nulls)
            writer_options["replaceWhere"] = predicate
    _refuse_emptying(spark, table, head, extraction, predicate)
    if container.identifier is not None:
        # Within each file rows lie by identifier, so that later reads of a window skip the other pages of it.
        frame = frame.sortWithinPartitions(*(quote(name) for name in container.identifier.columns))
    replaces = head.version > 0 and not extraction.whole
    count = replaces and extraction.expected <= COMPARED_ROWS
    only_adds = head.version == 0 or (replaces and not count and not _has_rows(spark, table, predicate))
    if count:
        frame = frame.persist()
    try:
        changed = _changes(spark, table, head, frame, predicate, container.primary_key) if count else (None, None, None)
        extraction.still_there()
        _expect_unmoved(container.label, table, head)
        frame.write.format("delta").mode("overwrite").options(**writer_options).save(table.url)
    finally:
        if count:
            _release(frame)
    after = _head(table)
    metrics = _metrics(table, after.version) if after.version > head.version else {}
    rows = metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)  # a rewritten file carries old rows along
    return Outcome(rows, *((rows, 0, 0) if only_adds else changed), after.version, after.version)


def _has_rows(spark: "SparkSession", table: LakeTable, predicate: str) -> bool:
    return not spark.sql(f"SELECT 1 FROM {table.sql_name} WHERE {predicate} LIMIT 1").isEmpty()


def _refuse_emptying(spark: "SparkSession", table: LakeTable, head: Head, extraction: Extraction, predicate: str) -> None:
    """Raises EmptyRefused where rows would vanish that nobody said were deleted."""
    if extraction.allow_empty or head.version == 0:
        return
    emptied = tuple(extraction.emptied())
    if not emptied:
        return
    identifier = extraction.container.identifier
    if identifier is not None and emptied != extraction.windows:
        predicate = scope_predicate(identifier, emptied, False)
    if _has_rows(spark, table, predicate):
        raise EmptyRefused(
            f"{extraction.container.label}: the source has no rows for {in_words(extraction.container.axis, emptied)}, where the lake has "
            f"some; nothing was written. If they were really deleted, say so with --allow-empty."
        )


def _metrics(table: LakeTable, version: int) -> dict[str, int]:
    found = table.commit(version)
    return dict(found.metrics) if found else {}


def _changes(
    spark: "SparkSession", table: LakeTable, head: Head, frame: "DataFrame", predicate: str, key: tuple[str, ...]
) -> tuple[int, int, int]:
    """(inserted, updated, deleted) if the rows within the predicate become those of the frame. Without a key an update is one of each."""
    row = f"xxhash64({', '.join(quote(column.name) for column in head.columns)})"
    name = f"xxhash64({', '.join(map(quote, key))})" if key else row
    digests = [f"{name} AS k", f"{row} AS r"]
    before = spark.sql(f"SELECT {', '.join(digests)}, -1L AS n FROM {table.sql_name} WHERE {predicate}")
    of_rows = before.unionAll(frame.selectExpr(*digests, "1L AS n")).groupBy("k", "r").agg(functions.expr("sum(n) AS n"))
    come, gone = "sum(greatest(n, 0L))", "sum(greatest(-n, 0L))"
    of_keys = of_rows.groupBy("k").agg(functions.expr(f"{come} AS come"), functions.expr(f"{gone} AS gone"))
    counted = of_keys.selectExpr("sum(come - least(come, gone))", "sum(least(come, gone))", "sum(gone - least(come, gone))").collect()[0]
    return int(counted[0] or 0), int(counted[1] or 0), int(counted[2] or 0)


# ---------------------------------------------------------------------- upsert
def _merge(spark: "SparkSession", table: LakeTable, head: Head, extraction: Extraction) -> Outcome:
    container = extraction.container
    identifier = container.identifier
    assert identifier is not None
    names = [c.name for c in head.columns]
    shape = [(c.name, c.type) for c in head.columns]

    def aligned(frame: "DataFrame") -> "DataFrame":
        return frame.selectExpr(*align(container, shape, frame.columns))

    _refuse_emptying(spark, table, head, extraction, scope_predicate(identifier, extraction.windows, extraction.include_nulls))
    read = aligned(extraction.frame(spark)).persist()
    held = [read]
    try:
        first = quote(container.primary_key[0])
        rows, bounds = _extent(read, first, dict(shape)[container.primary_key[0]])
        changed = _without_equals(spark, table, extraction, read, shape)
        source = changed.selectExpr("*", f"false AS {_GONE}")
        gone, found = _missing(spark, table, extraction, read, dict(shape))
        if found:
            keys = list(container.primary_key)
            # The source may take two spellings for one key (citext, 1 and 1.0): a row that was read already is no second one, and the
            # lake's spelling is gone. Spark and the lake know spellings only.
            chunks = [aligned(extraction.frame_of_keys(spark, chunk)) for chunk in _chunks(iter(found))]
            came = read.selectExpr(*map(quote, keys))
            moved = functools.reduce(lambda a, b: a.unionByName(b), chunks).join(came, keys, "left_anti").dropDuplicates(keys).persist()
            held.append(moved)
            rows += moved.count()
            source = source.unionByName(moved.selectExpr(*map(quote, names), f"false AS {_GONE}"))
            gone = gone.join(moved.selectExpr(*map(quote, keys)), keys, "left_anti") if gone is not None else None
        if gone is not None:
            source = source.unionByName(gone.selectExpr(*align(container, shape, container.primary_key), f"true AS {_GONE}"))
        source.createOrReplaceTempView("__incremental_assets_source")
        on = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in container.primary_key)
        if gone is None and bounds is not None:  # file statistics leave out files that hold no such key
            on += f" AND t.{first} BETWEEN {bounds[0]} AND {bounds[1]}"
        sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names)
        clauses = [
            f"WHEN MATCHED AND s.{_GONE} THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {sets}",
            f"WHEN NOT MATCHED AND NOT s.{_GONE} THEN INSERT ({', '.join(map(quote, names))}) "
            f"VALUES ({', '.join('s.' + quote(name) for name in names)})",
        ]
        extraction.still_there()
        _expect_unmoved(container.label, table, head)
        spark.conf.set(USER_METADATA, json.dumps(extraction.story))  # this session is one container's own
        try:
            spark.sql(f"MERGE INTO {table.sql_name} t USING __incremental_assets_source s ON {on} {' '.join(clauses)}")
        finally:
            _unset(spark)
        after = _head(table)
        metrics = _metrics(table, after.version) if after.version > head.version else {}
        return Outcome(
            rows,
            metrics.get("numTargetRowsInserted", 0),
            metrics.get("numTargetRowsUpdated", 0),
            metrics.get("numTargetRowsDeleted", 0),
            after.version,
            after.version,
        )
    finally:
        for frame in held:
            _release(frame)


def _without_equals(
    spark: "SparkSession", table: LakeTable, extraction: Extraction, read: "DataFrame", shape: list[tuple[str, str]]
) -> "DataFrame":
    """The rows that the lake does not have exactly so. One that it has lies in the windows too, so nothing else of the table is looked at.

    Not a condition of the MERGE: that would carry all columns of the table through its joins, which took half its time.
    """
    assert extraction.container.identifier is not None
    predicate = scope_predicate(extraction.container.identifier, extraction.windows, extraction.include_nulls)
    in_lake = spark.sql(f"SELECT * FROM {table.sql_name} WHERE {predicate}")
    same = " AND ".join(_same(quote(name), type_) for name, type_ in shape)
    return read.alias("s").join(in_lake.alias("t"), functions.expr(same), "left_anti")


def _same(name: str, type_: str) -> str:
    """Whether source and table hold the very same value; Spark takes 0 and -0 for equal, which PostgreSQL prints as they are."""
    equal = f"t.{name} <=> s.{name}"
    if type_ not in ("float", "double"):
        return equal
    return f"({equal} AND (t.{name} IS NULL OR t.{name} <> 0 OR cast(t.{name} AS string) = cast(s.{name} AS string)))"


def _extent(read: "DataFrame", name: str, type_: str) -> tuple[int, tuple[str, str] | None]:
    """How many rows there are, and lower and upper bound of a key's first column as Spark SQL; None where its text may not be exact."""
    as_text = key_text("{}", type_)
    rows, *ends = read.selectExpr("count(*)", as_text.format(f"min({name})"), as_text.format(f"max({name})")).collect()[0]
    literal = _LITERALS.get(type_) or ("{}BD" if type_.startswith("decimal") else None)
    if type_ == "string":
        ends = [text(end) if end is not None and len(end) <= 200 and end.isprintable() else None for end in ends]
    return int(rows), None if literal is None or None in ends else (literal.format(ends[0]), literal.format(ends[1]))


_LITERALS = {
    "date": "date_from_unix_date({})",
    "timestamp": "timestamp_micros({})",
    **dict.fromkeys(("string", "smallint", "int", "bigint"), "{}"),
}
"""What makes a key's text (``key_text``) the same value again, for types whose text is exact."""


def _unset(spark: "SparkSession") -> None:
    with contextlib.suppress(PySparkException):  # the server is gone; the session with it
        spark.conf.unset(USER_METADATA)


def _release(frame: "DataFrame") -> None:
    with contextlib.suppress(PySparkException):  # the server is gone; the rows with it
        frame.unpersist()


def _missing(
    spark: "SparkSession", table: LakeTable, extraction: Extraction, read: "DataFrame", types: dict[str, str]
) -> "tuple[DataFrame | None, list[tuple[str, ...]]]":
    """Keys the lake has in the windows and the read did not return (None: no such key), and those of them that the source has."""
    container = extraction.container
    assert container.identifier is not None
    names = container.primary_key
    predicate = scope_predicate(container.identifier, extraction.windows, extraction.include_nulls)
    picked = [f"{quote(name)} AS k{i}" for i, name in enumerate(names)]
    keys = [f"k{i}" for i in range(len(names))]
    in_lake = spark.sql(f"SELECT {', '.join(picked)} FROM {table.sql_name} WHERE {predicate}")
    missing = in_lake.join(read.selectExpr(*picked), keys, "left_anti")
    texts = [key_text(key, types[name]) for key, name in zip(keys, names, strict=True)]
    found: list[tuple[str, ...]] = []
    any_missing = False
    for chunk in _chunks(tuple(row) for row in missing.selectExpr(*texts).toLocalIterator()):
        any_missing = True
        found += [chunk[position] for position in extraction.existing_keys(chunk)]
    return missing.selectExpr(*(f"k{i} AS {quote(name)}" for i, name in enumerate(names))) if any_missing else None, found


def _chunks(rows: Iterator[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    while chunk := list(itertools.islice(rows, KEYS_A_LOOKUP)):
        yield chunk
