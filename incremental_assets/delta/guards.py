"""Checks that both ways of writing rows make before and after a commit: concurrent writes, unwanted deletions, and the commit's metrics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.errors import ConcurrentWriteError, EmptyRefused
from incremental_assets.core.schema import Column as LakeColumn
from incremental_assets.core.window import Window, in_words
from incremental_assets.delta.sql import scope_predicate
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import Way, WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.column import Column
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


def moved(label: str, table: LakeTable, what: str) -> ConcurrentWriteError:
    """The error for a concurrent write. ``what`` says in words what has happened to this sync's own commit."""
    return ConcurrentWriteError(f"{label}: another writer committed to {table.url} during this sync; {what}. Sync again.")


def expect_unmoved(label: str, table: LakeTable, head: Head) -> None:
    """Raises ConcurrentWriteError if rows were committed since the version ``head``.

    This is the last check before a write. Commits that are made while the write runs are found by Delta's own conflict detection.
    """
    if table.data_commits_since(head.version):
        raise moved(label, table, "nothing was written")


def already_there(table: LakeTable, head: Head, write_batch: WriteBatch, rows: int) -> WriteResult:
    """The result of a write that is not needed: the table has exactly the rows that were read. ``rows``: how many were read.

    Raises as the last checks before a write do.
    """
    write_batch.rows.still_there()
    expect_unmoved(write_batch.container.label, table, head)
    return WriteResult(rows, 0, 0, 0, head.version, head.version, Way.ALREADY_THERE)


def newest(table: LakeTable) -> Head:
    """The metadata of the newest version of a table that is known to exist."""
    head = table.head()
    assert head is not None
    return head


class WindowsEmptied(EmptyRefused):
    """A write batch would remove all rows of these windows of the table. Nothing was written."""

    def __init__(self, message: str, windows: Sequence[Window]) -> None:
        super().__init__(message)
        self.windows = windows


def refuse_emptying(
    spark: "SparkSession", table: LakeTable, head: Head, write_batch: WriteBatch, predicate: str, gone: "DataFrame | None" = None
) -> None:
    """Raises WindowsEmptied if the write would remove all rows of a requested window and nobody has allowed that.

    ``predicate`` selects the rows that the write replaces. ``gone``: the primary keys of the rows that would be deleted; None means all
    rows that ``predicate`` selects.
    """
    if write_batch.allow_empty or head.version == 0:
        return
    emptied = tuple(write_batch.rows.emptied())
    if not emptied:
        return
    identifier = write_batch.identifier
    is_one_by_one = identifier is not None and emptied != write_batch.windows  # only some of the windows are empty in the source
    if identifier is not None and is_one_by_one:
        predicate = scope_predicate(identifier, emptied, False)
    vanish = spark.sql(f"SELECT * FROM {table.sql_name} WHERE {predicate}")
    if gone is not None:
        vanish = vanish.join(gone, list(write_batch.container.lake_key), "left_semi")
    if identifier is not None and is_one_by_one:
        conditions = (f"bool_or({scope_predicate(identifier, (window,), False)}) AS w{i}" for i, window in enumerate(emptied))
        found = vanish.selectExpr(*conditions).collect()[0]
        emptied = tuple(window for window, has_rows_there in zip(emptied, found, strict=True) if has_rows_there)
    elif vanish.limit(1).isEmpty():
        return
    if emptied:
        cursor_type = identifier.cursor_type if identifier is not None else None
        raise WindowsEmptied(
            f"{write_batch.container.label}: the source has no rows for {in_words(cursor_type, emptied)}, "
            f"where the lake has some; nothing was written. If they were really deleted, say so with --allow-empty.",
            emptied,
        )


def has_rows(spark: "SparkSession", table: LakeTable, predicate: str) -> bool:
    return not spark.sql(f"SELECT 1 FROM {table.sql_name} WHERE {predicate} LIMIT 1").isEmpty()


def metrics_of(table: LakeTable, version: int) -> dict[str, int]:
    """Delta's operation metrics of one of the most recent commits; empty if that commit is not found."""
    found = table.commit(version)
    return dict(found.metrics) if found else {}


def expr(text: str) -> "Column":
    """A Spark column from an expression in Spark SQL."""
    # This imports pandas, which takes most of a second. A plan that writes nothing does not have to wait for it.
    from pyspark.sql.connect import functions

    return functions.expr(text)


def named(column: LakeColumn, text: str) -> "Column":
    """The expression under the name of a column of the lake, and with its comment, which an overwrite of the schema would lose."""
    return expr(text).alias(column.name, metadata={"comment": column.comment}) if column.comment else expr(text).alias(column.name)
