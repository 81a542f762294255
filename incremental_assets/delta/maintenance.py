"""Maintains tables: joins small files (of a container's table: OPTIMIZE), and removes files that no retained version needs (VACUUM).

Neither changes a row or a table's properties, so the sync state, and the watermark in it, stay as they are.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.errors import lake_errors, place_errors
from incremental_assets.delta.parquet_files import FILE_BYTES
from incremental_assets.delta.table import LakeTable, among, read_rows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

JOINED_BYTES = 64 << 20
"""About so many bytes of files are read at once, and written as one commit, where the files of a table of the product itself are joined."""


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
        return (
            f"{counted(self.files_before, 'file is', 'files are')} now {self.files_after:,}; {self.files_removed:,} old ones were removed"
        )


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


def tidy(table: LakeTable, *, is_locked: bool = False) -> None:
    """Joins the files of a table of the product itself, and removes those that no version of the last week needs, without Spark.

    ``is_locked``: the caller holds a lock by which no other process joins them. Raises LakeError, as ``join_files`` does.
    """
    if is_locked:
        delta = table.opened_to_change()
        if delta is not None:
            with place_errors(table.url):
                delta.optimize.compact()
    else:
        join_files(table)
    delta = table.opened_to_change()
    if delta is not None:
        with place_errors(table.url):
            delta.vacuum(dry_run=False)


def join_files(table: LakeTable) -> None:
    """Joins the files of each partition, or of a small table without partitions, into one.

    delta-rs's own compaction is not used: where two processes compact at the same time, both of them commit, and every row is in the
    table twice (1.6.6). This is an overwrite, which is committed only on top of the version that was read. The partitions that are read at
    once, and committed together, have about ``JOINED_BYTES``. Raises LakeError, whose cause is a CommitFailedError if another process has
    committed in the meantime; nothing has changed then since the last commit.
    """
    delta = table.opened_to_change()
    if delta is None:
        return
    with place_errors(table.url):
        column = next(iter(delta.metadata().partition_columns), None)
        for values in _fragmented(delta, column):
            filters = [] if column is None else [(column, values)]
            write_deltalake(
                delta,
                read_rows(delta, *filters).cast(pa.schema(delta.schema().to_arrow())),
                mode="overwrite",
                predicate=among(*filters) or None,
                commit_properties=CommitProperties(max_commit_retries=0),
            )


def _fragmented(delta: DeltaTable, column: str | None) -> list[list[str]]:
    """The values of those partitions that have several files, divided into lists to be joined at once.

    ``column``: that of the partitions, of which tables of the product have one at most; None: the table itself is one, without a name.
    """
    actions = pa.table(delta.get_add_actions(flatten=True))
    sizes: dict[str | None, list[int]] = {}
    values = [""] * len(actions) if column is None else actions.column(f"partition.{column}").to_pylist()
    for value, size in zip(values, actions.column("size_bytes").to_pylist(), strict=True):
        sizes.setdefault(value, []).append(size)
    divided: list[list[str]] = []
    held = 0
    for value, size in sorted((value, sum(files)) for value, files in sizes.items() if value is not None and len(files) > 1):
        if not divided or held + size > JOINED_BYTES:
            divided.append([])
            held = 0
        divided[-1].append(value)
        held += size
    return divided


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
