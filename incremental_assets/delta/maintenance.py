"""Maintains a container's table: joins small files (OPTIMIZE), and removes files that no retained version needs (VACUUM).

Belongs here: OPTIMIZE and VACUUM of one table, and their results in numbers. Does not belong: the lock that the caller holds, and when
maintenance runs. Neither statement changes a row or the table's properties, so the sync state, and the watermark in it, stay as they are.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError

from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.delta.errors import lake_errors, place_errors
from incremental_assets.delta.parquet_files import FILE_BYTES
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


@dataclass(frozen=True)
class Kept:
    """The result of one maintenance.

    ``files_before`` and ``files_after``: the number of data files of the newest version. ``files_removed``: the number of files that VACUUM
    deleted from the storage. ``version``: the newest version afterwards.
    """

    files_before: int
    files_after: int
    files_removed: int
    version: int

    def __str__(self) -> str:
        return f"{self.files_before:,} files are now {self.files_after:,}; {self.files_removed:,} old ones were removed"


def maintain(session: "Callable[[], SparkSession]", table: LakeTable, container: Container) -> Kept | None:
    """Runs OPTIMIZE and VACUUM. ``session`` opens a Spark session.

    Returns None, without opening a session, if there is no table yet. Raises LakeError if the table belongs to another container or cannot
    be maintained.
    """
    head = table.head()
    if head is None:
        return None
    if head.owner != container.label:
        raise LakeError(f"{container.label}: {table.url} is not this container's table; it was left alone.")
    spark = session()
    with lake_errors(container.label, table.url):
        before = _files(spark, table)
        # By default, files are joined up to a gigabyte: a change of a few rows would then write a gigabyte anew, and no query could leave
        # out files of a smaller table.
        for setting in ("minFileSize", "maxFileSize"):
            spark.conf.set(f"spark.databricks.delta.optimize.{setting}", FILE_BYTES)
        spark.sql(f"OPTIMIZE {table.sql_name}").collect()
        # Delta's default retention of a week is kept: queries on the last week's versions, and writes that a killed client has left
        # running on the Spark server, still find their files.
        spark.sql(f"VACUUM {table.sql_name}").collect()
        # The log entry VACUUM END has the number of deleted files.
        removed = next((c.metrics.get("numDeletedFiles", 0) for c in table.commits(4) if c.operation == "VACUUM END"), 0)
        after = _files(spark, table)
    now = table.head()
    assert now is not None
    return Kept(before, after, removed, now.version)


def tidy(table: LakeTable) -> None:
    """Runs OPTIMIZE and VACUUM on a small table of the product itself, through delta-rs and without Spark. Raises LakeError."""
    delta = table.opened()
    if delta is not None:
        with place_errors(table.url):
            delta.optimize.compact()
            delta.vacuum(dry_run=False)


@contextlib.contextmanager
def next_time_if_moved() -> Iterator[None]:
    """Ignores the LakeError of a block that failed because of a concurrent write. For work that can wait until the next maintenance."""
    try:
        yield
    except LakeError as error:
        if not isinstance(error.__cause__, CommitFailedError):
            raise


def _files(spark: "SparkSession", table: LakeTable) -> int:
    return int(spark.sql(f"DESCRIBE DETAIL {table.sql_name}").collect()[0]["numFiles"])
