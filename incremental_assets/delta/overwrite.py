"""Writes a write batch by overwriting: the rows read replace those of the windows, or the whole table, in one commit.

The strategies ``append`` and ``snapshot`` are written this way, and every first load.
"""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.files import FILE
from incremental_assets.core.names import backticked as quote
from incremental_assets.delta.guards import expect_unmoved, expr, has_rows, metrics_of, named, newest, refuse_emptying
from incremental_assets.delta.local_rows import LocalComparison, counted_by, sent_or_read
from incremental_assets.delta.moved_rows import is_followed, left_rows, replace_and_move, replaced_rows
from incremental_assets.delta.sql import align, file_predicate, scope_predicate
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import By, Way, WriteBatch, WriteResult
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
    frame, are_sent = sent_or_read(spark, write_batch.rows)
    writer_options = {"userMetadata": json.dumps(write_batch.commit_metadata)}
    predicate = "true"
    if write_batch.whole and (head.version > 0 or tuple(head.columns) != write_batch.columns):
        writer_options["overwriteSchema"] = "true"
        frame = frame.select(*(named(column, quote(column.name)) for column in write_batch.columns))  # with their comments
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
    if container.axis is not None:
        # The rows of each file are sorted as partitions are, so that a later read of one window can skip the other pages of the file.
        by = container.axis.columns if write_batch.files is None else (FILE.name,)
        frame = frame.sortWithinPartitions(*map(quote, by))
    replaces = head.version > 0 and not write_batch.whole
    comparable = write_batch.expected <= COMPARED_ROWS and not any(_UNHASHED.search(column.type) for column in head.columns)
    count = replaces and comparable and not write_batch.only_adds
    # If the changes are not counted, one cheap query finds out whether there are old rows at all. If not, every row read is an insert.
    only_adds = head.version == 0 or write_batch.only_adds or (replaces and not count and not has_rows(spark, table, predicate))
    follows = replaces and not only_adds and is_followed(write_batch)
    # Spark would read the rows from the source several times, to find what has changed and to write them.
    held = [PersistedRows(spark, frame)] if (count or follows) and not are_sent else []
    frame = held[0].frame if held else frame
    try:
        gone, moved, keys, values = None, None, None, None
        if follows:
            gone, moved = left_rows(spark, table, head, write_batch, predicate, frame)
        if moved is not None:
            held.append(PersistedRows(spark, moved))
            moved = held[-1].frame
            keys = moved.selectExpr(*map(quote, container.lake_key))
            frame = frame.unionByName(moved)
            gone = gone.join(keys, keys.columns, "left_anti") if gone is not None else None
        refuse_emptying(spark, table, head, write_batch, predicate, gone)
        changed = (compared.counts if compared is not None and moved is None else None) or (None, None, None)
        if count and None in changed:
            old = replaced_rows(spark, table, predicate, keys)
            changed = _changes(old, frame, head, counted_by(write_batch))
        write_batch.rows.still_there()
        expect_unmoved(container.label, table, head)
        if keys is None:
            frame.write.format("delta").mode("overwrite").options(**writer_options).save(table.url)
        else:
            values = replace_and_move(spark, table, head, write_batch, predicate, frame, keys)
    finally:
        for rows_held in held:
            rows_held.release()
    after = newest(table)
    metrics = metrics_of(table, after.version) if after.version > head.version else {}
    if keys is not None:
        inserted = metrics.get("numTargetRowsInserted", 0)
        return WriteResult(inserted, *changed, after.version, after.version, Way.MERGE, By.SPARK, axis_values=values)
    # If Delta rewrites a file in which only some rows are replaced, the other rows are copied, and numOutputRows counts them, too.
    rows = metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)
    way = Way.ADD_FILES if only_adds else Way.REPLACE_WHERE if predicate != "true" else Way.REPLACE_ALL
    return WriteResult(rows, *((rows, 0, 0) if only_adds else changed), after.version, after.version, way, By.SPARK)


def _changes(old: "DataFrame", new: "DataFrame", head: Head, by: Sequence[str]) -> tuple[int, int, int]:
    """The numbers of (inserted, updated, deleted) rows if the old rows of the table are replaced by the new ones.

    Each old row counts -1 and each new row +1 for the pair of the hash of what it is counted by and its whole row's hash. Equal rows
    cancel each other out, and what remains on both sides is an update.
    """
    row = f"xxhash64({', '.join(quote(column.name) for column in head.columns)})"
    name = f"xxhash64({', '.join(map(quote, by))})"
    digests = [f"{name} AS k", f"{row} AS r"]
    of_rows = old.selectExpr(*digests, "-1L AS n").unionAll(new.selectExpr(*digests, "1L AS n")).groupBy("k", "r").agg(expr("sum(n) AS n"))
    come, gone = "sum(greatest(n, 0L))", "sum(greatest(-n, 0L))"
    of_keys = of_rows.groupBy("k").agg(expr(f"{come} AS come"), expr(f"{gone} AS gone"))
    counted = of_keys.selectExpr("sum(come - least(come, gone))", "sum(least(come, gone))", "sum(gone - least(come, gone))").collect()[0]
    return int(counted[0] or 0), int(counted[1] or 0), int(counted[2] or 0)
