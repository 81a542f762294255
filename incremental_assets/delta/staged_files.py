"""Writes a write batch whose rows the source has already written into Parquet files elsewhere: moves these into the table's folder.

It only ever adds files, where the table has no row in the place of theirs, or puts them in place of all files of the table. Few rows
that replace those of single files are then written by ``local_write``, and everything else by Spark, which reads the same files.
"""

from pathlib import Path

from incremental_assets.delta.commit_files import (
    NOT_UNDERSTOOD,
    can_be_replaced,
    commit_files,
    discard,
    discarded_on_error,
    reason_against,
    target_of,
)
from incremental_assets.delta.engine import why_spark_writes
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.guards import expect_unmoved
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import NotHere, StagedFiles, Way, WriteBatch, WriteResult


def add_staged(table: LakeTable, head: Head, write_batch: WriteBatch, staged: StagedFiles) -> WriteResult:
    """Moves the files and commits them.

    Raises NotHere if that is not right, ConcurrentWriteError if the table is no longer at the version ``head``, and LakeError if it cannot
    be written.
    """
    reason = _reason_against(table, head, write_batch, staged)
    if reason is not None:
        raise NotHere(reason)
    replaces_all = write_batch.whole and head.version > 0
    folder = folder_at(table.address)
    with place_errors(table.url), discarded_on_error(lambda: discard(folder, staged.files)):
        for file in staged.files:
            folder.move_here(Path(staged.folder, file.path), file.path)
        write_batch.rows.still_there()
        expect_unmoved(write_batch.container.label, table, head)
        commit_files(table, head, write_batch, staged.files, replace_all=replaces_all)
    count = sum(file.rows for file in staged.files)
    changed, way = ((None, None, None), Way.REPLACE_ALL) if replaces_all else ((count, 0, 0), Way.ADD_FILES)
    return WriteResult(count, *changed, head.version + 1, head.version + 1, way)


def _reason_against(table: LakeTable, head: Head, write_batch: WriteBatch, staged: StagedFiles) -> str | None:
    reason = why_spark_writes(write_batch.container.engine)
    if reason is not None:
        return reason
    if write_batch.whole and head.version > 0 and head.properties.get("delta.appendOnly") == "true":
        return "the table's rows must not be removed"
    if write_batch.whole and not can_be_replaced(table, head):
        return f"the table's log {NOT_UNDERSTOOD}"
    if not write_batch.whole and head.version > 0 and not write_batch.only_adds:
        return "rows of the table are replaced"
    reason = reason_against(table, head, write_batch)
    if reason is None and target_of(table.address, head, write_batch).indexed != staged.indexed:
        return "the table has statistics of another number of columns"
    return reason
