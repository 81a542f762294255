"""What both ways of writing rows look at before and after: has anybody else written, would rows vanish unasked, what did the commit change.

Belongs here: guards and small helpers of ``overwrite`` and ``merge``. Does not belong: writing.
"""

import contextlib
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from incremental_assets.core.errors import EmptyRefused, LakeMoved
from incremental_assets.core.window import in_words
from incremental_assets.delta.extraction import Extraction
from incremental_assets.delta.sql import scope_predicate
from incremental_assets.delta.table import Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.column import Column
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


def moved(label: str, table: LakeTable, what: str) -> LakeMoved:
    return LakeMoved(f"{label}: somebody else wrote to {table.url} during this sync; {what}. Sync again.")


def expect_unmoved(label: str, table: LakeTable, head: Head) -> None:
    """The last look before the write, which itself conflicts with whatever is committed while it runs."""
    if table.data_commits_since(head.version):
        raise moved(label, table, "nothing was written")


def newest(table: LakeTable) -> Head:
    head = table.head()
    assert head is not None
    return head


def refuse_emptying(
    spark: "SparkSession", table: LakeTable, head: Head, extraction: Extraction, predicate: str, gone: "DataFrame | None" = None
) -> None:
    """Raises EmptyRefused where rows would vanish that nobody said were deleted. ``gone``: their keys (None: all that are there)."""
    if extraction.allow_empty or head.version == 0:
        return
    emptied = tuple(extraction.emptied())
    if not emptied:
        return
    identifier = extraction.container.identifier
    if identifier is not None and emptied != extraction.windows:
        predicate = scope_predicate(identifier, emptied, False)
    vanish = spark.sql(f"SELECT * FROM {table.sql_name} WHERE {predicate}")
    if gone is not None:
        vanish = vanish.join(gone, list(extraction.container.primary_key), "left_semi")
    if not vanish.limit(1).isEmpty():
        raise EmptyRefused(
            f"{extraction.container.label}: the source has no rows for {in_words(extraction.container.axis, emptied)}, where the lake has "
            f"some; nothing was written. If they were really deleted, say so with --allow-empty."
        )


def has_rows(spark: "SparkSession", table: LakeTable, predicate: str) -> bool:
    return not spark.sql(f"SELECT 1 FROM {table.sql_name} WHERE {predicate} LIMIT 1").isEmpty()


def metrics_of(table: LakeTable, version: int) -> dict[str, int]:
    found = table.commit(version)
    return dict(found.metrics) if found else {}


def release(frame: "DataFrame") -> None:
    with contextlib.suppress(PySparkException):  # the server is gone; the rows with it
        frame.unpersist()


def expr(text: str) -> "Column":
    """A column of Spark SQL."""
    from pyspark.sql.connect import functions  # with pandas behind it: most of a second, which a plan without a write is spared

    return functions.expr(text)
