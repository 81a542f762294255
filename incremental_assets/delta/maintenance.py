"""Keeping a container's table in shape: small files joined, files that no version within the retention needs removed.

Belongs here: OPTIMIZE and VACUUM of one table, and what they did in numbers. Does not belong: the lock around it, or when it runs. Neither
changes a row, and neither touches the table's property, so the watermark is found beneath their commits.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError

from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.delta.errors import lake_errors, place_errors
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


@dataclass(frozen=True)
class Kept:
    """``files_removed``: from the disk, by VACUUM; the others are those of the newest version."""

    files_before: int
    files_after: int
    files_removed: int
    version: int

    def __str__(self) -> str:
        return f"{self.files_before:,} files are now {self.files_after:,}; {self.files_removed:,} old ones were removed"


def maintain(session: "Callable[[], SparkSession]", table: LakeTable, container: Container) -> Kept | None:
    """None where there is no table yet; no session is opened then. Raises LakeError, also for a table that is somebody else's."""
    head = table.head()
    if head is None:
        return None
    if head.owner != container.label:
        raise LakeError(f"{container.label}: {table.url} is not this container's table; it was left alone.")
    spark = session()
    with lake_errors(container.label, table.url):
        before = _files(spark, table)
        spark.sql(f"OPTIMIZE {table.sql_name}").collect()
        # The default retention: readers of the last week's versions, and zombie writers, find their files.
        spark.sql(f"VACUUM {table.sql_name}").collect()
        removed = next((c.metrics.get("numDeletedFiles", 0) for c in table.commits(4) if c.operation == "VACUUM END"), 0)
        after = _files(spark, table)
    now = table.head()
    assert now is not None
    return Kept(before, after, removed, now.version)


def tidy(table: LakeTable) -> None:
    """The same for a small table beside a container's, without Spark. Raises LakeError."""
    delta = table.opened()
    if delta is not None:
        with place_errors(table.url):
            delta.optimize.compact()
            delta.vacuum(dry_run=False)


@contextlib.contextmanager
def next_time_if_moved() -> Iterator[None]:
    """For what can wait: where somebody else changes the table at the same time, it is left for the next time."""
    try:
        yield
    except LakeError as error:
        if not isinstance(error.__cause__, CommitFailedError):
            raise


def _files(spark: "SparkSession", table: LakeTable) -> int:
    return int(spark.sql(f"DESCRIBE DETAIL {table.sql_name}").collect()[0]["numFiles"])
