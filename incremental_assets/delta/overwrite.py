"""append, snapshot and every first load: what was read replaces the windows, or the whole table, in one commit.

Belongs here: the overwrite and what it changed. Does not belong: when to use it (``write``), or the MERGE of an upsert (``merge``).
"""

import json
import re
from typing import TYPE_CHECKING

from incremental_assets.core.files import FILE
from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.extraction import Extraction, Outcome
from incremental_assets.delta.guards import expect_unmoved, expr, has_rows, metrics_of, newest, refuse_emptying, release
from incremental_assets.delta.sql import align, file_predicate, scope_predicate
from incremental_assets.delta.table import Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

COMPARED_ROWS = 1_000_000
"""Up to so many rows, what an overwrite really changed is counted: they are held by Spark for it, and the old ones read. Above it is not
known."""


_UNHASHED = re.compile(r"\b(map<|variant\b)")
"""Types of which Spark makes no hash."""


def overwrite(spark: "SparkSession", table: LakeTable, head: Head, extraction: Extraction) -> Outcome:
    container = extraction.container
    frame = extraction.frame(spark)
    writer_options = {"userMetadata": json.dumps(extraction.story)}
    predicate = "true"
    if extraction.whole and head.version > 0:
        writer_options["overwriteSchema"] = "true"
    else:
        frame = frame.selectExpr(*align(container, [(c.name, c.type) for c in head.columns], frame.columns))
        if extraction.files is not None and head.version > 0:
            predicate = file_predicate(extraction.files)
        elif extraction.files is not None:
            predicate = "true"  # nothing is in it yet
        elif container.identifier is not None:
            predicate = scope_predicate(container.identifier, extraction.windows, extraction.include_nulls)
        if predicate != "true":
            writer_options["replaceWhere"] = predicate
    refuse_emptying(spark, table, head, extraction, predicate)
    if container.identifier is not None:
        # Within each file rows lie by identifier, so that later reads of a window skip the other pages of it.
        by = container.identifier.columns if extraction.files is None else (FILE.name,)
        frame = frame.sortWithinPartitions(*map(quote, by))
    replaces = head.version > 0 and not extraction.whole
    comparable = extraction.expected <= COMPARED_ROWS and not any(_UNHASHED.search(column.type) for column in head.columns)
    count = replaces and comparable and not extraction.only_adds
    only_adds = head.version == 0 or extraction.only_adds or (replaces and not count and not has_rows(spark, table, predicate))
    if count:
        frame = frame.persist()
    try:
        changed = _changes(spark, table, head, frame, predicate, container.primary_key) if count else (None, None, None)
        extraction.still_there()
        expect_unmoved(container.label, table, head)
        frame.write.format("delta").mode("overwrite").options(**writer_options).save(table.url)
    finally:
        if count:
            release(frame)
    after = newest(table)
    metrics = metrics_of(table, after.version) if after.version > head.version else {}
    rows = metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)  # a rewritten file carries old rows along
    return Outcome(rows, *((rows, 0, 0) if only_adds else changed), after.version, after.version)


def _changes(
    spark: "SparkSession", table: LakeTable, head: Head, frame: "DataFrame", predicate: str, key: tuple[str, ...]
) -> tuple[int, int, int]:
    """(inserted, updated, deleted) if the rows within the predicate become those of the frame. Without a key an update is one of each."""
    row = f"xxhash64({', '.join(quote(column.name) for column in head.columns)})"
    name = f"xxhash64({', '.join(map(quote, key))})" if key else row
    digests = [f"{name} AS k", f"{row} AS r"]
    before = spark.sql(f"SELECT {', '.join(digests)}, -1L AS n FROM {table.sql_name} WHERE {predicate}")
    of_rows = before.unionAll(frame.selectExpr(*digests, "1L AS n")).groupBy("k", "r").agg(expr("sum(n) AS n"))
    come, gone = "sum(greatest(n, 0L))", "sum(greatest(-n, 0L))"
    of_keys = of_rows.groupBy("k").agg(expr(f"{come} AS come"), expr(f"{gone} AS gone"))
    counted = of_keys.selectExpr("sum(come - least(come, gone))", "sum(least(come, gone))", "sum(gone - least(come, gone))").collect()[0]
    return int(counted[0] or 0), int(counted[1] or 0), int(counted[2] or 0)
