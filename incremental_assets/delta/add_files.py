"""Writes a write batch by adding files into which its rows were read, in one commit past Spark.

Tasks of Spark read them where it has other machines than this one; otherwise this process does, and no Spark server is needed. Both are
much faster than Spark's own writer, which gets the rows one by one from JDBC. It only ever adds whole files, to a table without files or in
place of all files that the table has. Where others stay, ``replace_by_files`` says which of their rows leave.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from incremental_assets.core.errors import LakeError
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.commit_files import NOT_UNDERSTOOD, can_be_replaced, commit_files, reason_against, target_of
from incremental_assets.delta.engine import are_read_into_files, have_tasks, why_spark_reads
from incremental_assets.delta.guards import expect_unmoved
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import By, NotHere, RowsInFiles, Way, WriteBatch, WriteResult, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

LEAST_ROWS = 100_000
"""Fewer rows are not read by Spark's tasks, as starting its Python workers takes a second or two."""


def add_files(
    table: LakeTable, head: Head, write_batch: WriteBatch, choice: "Choice", log_info: Callable[[str], None], report: Callable[[int], None]
) -> WriteResult:
    """Reads the rows of ``choice.rows`` into files, and commits these.

    ``log_info`` gets messages for the user, and ``report`` the numbers of rows that this process has read. Raises ConcurrentWriteError if
    the table is no longer at the version ``head``, and SourceError if the source failed or its snapshot is no longer held.
    """
    files = read_into_files(table, head, write_batch, choice, log_info, report)
    write_batch.rows.still_there()
    expect_unmoved(write_batch.container.label, table, head)
    commit_files(table, head, write_batch, files, replace_all=choice.replaces_all)
    count = sum(file.rows for file in files)
    changed, way = ((None, None, None), Way.REPLACE_ALL) if choice.replaces_all else ((count, 0, 0), Way.ADD_FILES)
    return WriteResult(count, *changed, head.version + 1, head.version + 1, way, choice.by)


def read_into_files(
    table: LakeTable, head: Head, write_batch: WriteBatch, choice: "Choice", log_info: Callable[[str], None], report: Callable[[int], None]
) -> Sequence[WrittenFile]:
    """Reads the rows of ``choice.rows`` into files of the table, which no commit names yet. Raises SourceError if the source failed."""
    target = target_of(_absolute(table.address), head, write_batch)
    files = choice.rows.write(choice.tasks_of, target, report)
    _expect_there(table, files)
    log_info(f"{counted(len(files), 'file')} of rows, to be committed")
    return files


# ---------------------------------------------------------------------- the rule
@dataclass(frozen=True)
class Choice:
    """How a batch is read into files.

    ``rows``: what is read. ``tasks_of``: the Spark server whose tasks read it; None: this process does. ``replaces_all``: the files take
    the place of all that the table has. ``is_beside``: the table has files that stay, with or without rows in their place
    (``replace_by_files``).
    """

    rows: RowsInFiles
    tasks_of: "SparkSession | None" = None
    replaces_all: bool = False
    is_beside: bool = False

    @property
    def by(self) -> By:
        """Who reads the rows into files."""
        return By.PROCESS if self.tasks_of is None else By.TASKS


def plan_files(session: Callable[[], "SparkSession"], table: LakeTable, head: Head, write_batch: WriteBatch) -> Choice:
    """The rows of a batch that are read into files. Raises NotHere if all are read through JDBC and written by Spark.

    The cheap questions come first; the last ones start a Python worker of Spark, where its tasks are to read.
    """
    engine = write_batch.container.engine
    by_tasks = have_tasks(engine)
    least = 0 if are_read_into_files(engine) else LEAST_ROWS
    rows = write_batch.rows.in_files()
    _expect_none(why_spark_reads(engine))
    if by_tasks and write_batch.expected < least:
        raise NotHere("they are too few for tasks of Spark")
    _expect_none(reason_against(table, head, write_batch))
    spark = session() if by_tasks else None
    _expect_none(rows.reason_against(spark, table.address))
    if _is_empty(table):
        return Choice(rows, spark)
    if write_batch.whole:
        _expect_replaceable(table, head, write_batch)
    return Choice(rows, spark, replaces_all=write_batch.whole, is_beside=not write_batch.whole)


def _expect_none(reason: str | None) -> None:
    if reason is not None:
        raise NotHere(reason)


def _is_empty(table: LakeTable) -> bool:
    """Whether the table has no file. The number of rows in its statistics is not used: a file without statistics would count as none."""
    delta = table.log_opened()
    return delta is not None and not delta.file_uris()


def _expect_replaceable(table: LakeTable, head: Head, write_batch: WriteBatch) -> None:
    """Raises NotHere if not all rows of a table can be replaced here."""
    if head.properties.get("delta.appendOnly") == "true":
        raise NotHere("the table's rows must not be removed")
    if not write_batch.allow_empty and write_batch.rows.emptied():
        raise NotHere("all rows may be gone in the source")
    if not can_be_replaced(table, head):
        raise NotHere(f"the table's log {NOT_UNDERSTOOD}")


def _absolute(address: str) -> str:
    """The address of a folder for Spark's workers, which are in another folder."""
    return address if "://" in address else os.path.abspath(address)


def _expect_there(table: LakeTable, files: Sequence[WrittenFile]) -> None:
    """Raises LakeError if a file is not where the table's readers look for it: a worker of Spark has written it to another disk."""
    for file in files if "://" not in table.address else ():  # an object that this process has written is there
        path = os.path.join(table.address, file.path)
        try:
            size = os.path.getsize(path)
        except OSError:
            size = -1
        if size != file.size:
            raise LakeError(
                f"{path} was written by one of Spark's workers, and this process does not see it ({size} of {file.size} bytes). Do they "
                f"share the folder? Nothing was committed. engine: spark lets Spark write the rows, and engine: arrow this process."
            )
