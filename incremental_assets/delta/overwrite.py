"""Writes a write batch by overwriting: the rows read replace those of the windows, or the whole table, in one commit.

Belongs here: the overwrite, and counting what it changed. Does not belong: the decision when to overwrite (``write``), and the MERGE of an
upsert (``merge``). The strategies ``append`` and ``snapshot`` are written this way, and every first load.
"""

import json
import re
from typing import TYPE_CHECKING

from incremental_assets.core.files import FILE
from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.guards import expect_unmoved, expr, has_rows, metrics_of, newest, refuse_emptying
from incremental_assets.delta.local_rows import LocalComparison, local_frame
from incremental_assets.delta.sql import align, file_predicate, scope_predicate
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import WriteBatch, WriteResult
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

COMPARED_ROWS = 1_000_000
"""Up to this estimated number of rows, the rows that an overwrite really changes are counted. For this, Spark persists the rows read and
also reads the old ones. Above this number, the counts of inserted, updated and deleted rows are unknown."""


_UNHASHED = re.compile(r"\b(map<|variant\b)")
"""Types for which Spark's hash functions are not defined."""


def overwrite(
    spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, compared: LocalComparison | None = None
) -> WriteResult:
    """Replaces the rows of the batch's windows, files or whole table by the rows read, in one commit.

    ``compared``: its rows and the comparison with those of the lake, if this process has made it.

    Raises ConcurrentWriteError on a concurrent write, EmptyRefused if rows would be deleted without permission, and SourceError if the
    source's snapshot is no longer held.
    """
    container = write_batch.container
    local = write_batch.rows.local()
    frame = local_frame(spark, local) if local is not None else write_batch.rows.frame(spark)
    writer_options = {"userMetadata": json.dumps(write_batch.commit_metadata)}
    predicate = "true"
    if write_batch.whole and (head.version > 0 or tuple(head.columns) != write_batch.columns):
        writer_options["overwriteSchema"] = "true"
    else:
        frame = frame.selectExpr(*align(container, [(c.name, c.type) for c in head.columns], frame.columns))
        if write_batch.files is not None and head.version > 0:
            predicate = file_predicate(write_batch.files)
        elif write_batch.files is not None:
            predicate = "true"  # the table is empty, so there is nothing to select by file
        elif write_batch.identifier is not None:
            predicate = scope_predicate(write_batch.identifier, write_batch.windows, write_batch.include_nulls)
        if predicate != "true":
            writer_options["replaceWhere"] = predicate
    refuse_emptying(spark, table, head, write_batch, predicate)
    if container.axis is not None:
        # The rows of each file are sorted as partitions are, so that a later read of one window can skip the other pages of the file.
        by = container.axis.columns if write_batch.files is None else (FILE.name,)
        frame = frame.sortWithinPartitions(*map(quote, by))
    replaces = head.version > 0 and not write_batch.whole
    comparable = write_batch.expected <= COMPARED_ROWS and not any(_UNHASHED.search(column.type) for column in head.columns)
    count = replaces and comparable and not write_batch.only_adds
    # If the changes are not counted, one cheap query finds out whether there are old rows at all. If not, every row read is an insert.
    only_adds = head.version == 0 or write_batch.only_adds or (replaces and not count and not has_rows(spark, table, predicate))
    # Spark would read the rows from the source twice, to count the changes and to write them.
    held = PersistedRows(spark, frame) if count and local is None else None
    frame = held.frame if held is not None else frame
    try:
        changed = (compared.counts if compared is not None else None) or (None, None, None)
        if count and compared is None:
            changed = _changes(spark, table, head, frame, predicate, container.lake_key)
        write_batch.rows.still_there()
        expect_unmoved(container.label, table, head)
        frame.write.format("delta").mode("overwrite").options(**writer_options).save(table.url)
    finally:
        if held is not None:
            held.release()
    after = newest(table)
    metrics = metrics_of(table, after.version) if after.version > head.version else {}
    # If Delta rewrites a file in which only some rows are replaced, the other rows are copied, and numOutputRows counts them, too.
    rows = metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)
    return WriteResult(rows, *((rows, 0, 0) if only_adds else changed), after.version, after.version)


def _changes(
    spark: "SparkSession", table: LakeTable, head: Head, frame: "DataFrame", predicate: str, key: tuple[str, ...]
) -> tuple[int, int, int]:
    """The numbers of (inserted, updated, deleted) rows if the rows of the table within ``predicate`` are replaced by those of ``frame``.

    Each old row counts -1 and each new row +1 for the pair of its key's hash and its whole row's hash. Equal rows cancel each other out,
    and what remains on both sides for one key is an update. Without a key, a changed row counts as one deletion and one insertion.
    """
    row = f"xxhash64({', '.join(quote(column.name) for column in head.columns)})"
    name = f"xxhash64({', '.join(map(quote, key))})" if key else row
    digests = [f"{name} AS k", f"{row} AS r"]
    before = spark.sql(f"SELECT {', '.join(digests)}, -1L AS n FROM {table.sql_name} WHERE {predicate}")
    of_rows = before.unionAll(frame.selectExpr(*digests, "1L AS n")).groupBy("k", "r").agg(expr("sum(n) AS n"))
    come, gone = "sum(greatest(n, 0L))", "sum(greatest(-n, 0L))"
    of_keys = of_rows.groupBy("k").agg(expr(f"{come} AS come"), expr(f"{gone} AS gone"))
    counted = of_keys.selectExpr("sum(come - least(come, gone))", "sum(least(come, gone))", "sum(gone - least(come, gone))").collect()[0]
    return int(counted[0] or 0), int(counted[1] or 0), int(counted[2] or 0)
