"""Writes few changed rows in this process: into a new file, and where they replace rows of other files, into those files' places.

Small files in which rows are replaced are written anew without them (copy-on-write). Larger ones stay, and the rows are marked by deletion
vectors, as Spark does it. Spark takes a second to plan a query however few rows it writes, and is far slower in finding keys.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from incremental_assets.core.container import Identifier
from incremental_assets.core.errors import ConcurrentWriteError
from incremental_assets.delta.commit_files import (
    NOT_UNDERSTOOD,
    can_be_replaced,
    commit_files,
    discarded_on_error,
    reason_against,
    target_of,
)
from incremental_assets.delta.engine import why_spark_writes
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.guards import expect_unmoved
from incremental_assets.delta.local_rows import LocalComparison, arrow_schema, has_unique_keys, key_texts, marked, unmarked
from incremental_assets.delta.merge import still_there
from incremental_assets.delta.moved_rows import have_moved, is_followed
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.replaced_files import ReplacedFiles, expect_removable, find_replaced, written_marks
from incremental_assets.delta.replaced_rows import ReplacedRows, RowsOfBoth, RowsOfKeys, RowsOfWindows, axis_values, of_files
from incremental_assets.delta.store import Folder, folder_at
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import NotHere, Way, WriteBatch, WriteResult, WrittenFile

HAVE_MOVED = "rows have moved elsewhere in the source, and have to be looked up by their keys"


def write_here(table: LakeTable, head: Head, write_batch: WriteBatch, compared: LocalComparison) -> WriteResult:
    """Writes the rows that have changed, in one commit.

    Raises NotHere if another way has to write them, ConcurrentWriteError if the table is no longer at the version ``head``, and SourceError
    if the source's snapshot is not held.
    """
    expect_writable(table, head, write_batch)
    schema, apart = compared.new.schema, write_batch.container.partitioned_on
    wanted = columns_of(apart, schema)
    chosen = _chosen(write_batch, compared)
    place = ReplacedFiles(replaces_all=chosen.is_all)
    if chosen.replaced is not None:
        place = find_replaced(table, head, write_batch.container.engine, schema, chosen.replaced, wanted)
    if chosen.replaced_rows is not None and not chosen.is_all and place.replaced_rows != chosen.replaced_rows:
        raise NotHere("other rows were found in the table's files than were compared")
    commit_rows(table, head, write_batch, chosen.rows, place)
    counts = compared.counts
    if counts is None:
        missing = compared.differences.missing.num_rows
        updated = place.replaced_rows - missing
        counts = compared.differences.changed.num_rows - updated, updated, missing
    values = axis_values(apart, write_batch.container.partitioning, [*place.replaced, chosen.rows])
    return WriteResult(
        compared.new.num_rows, *counts, head.version + 1, head.version + 1, place.way, axis_values=values, message=place.message
    )


def replace_here(table: LakeTable, head: Head, write_batch: WriteBatch) -> WriteResult:
    """Puts the rows of a batch, if they are few, in the place of all rows of the table, in one commit.

    The table gets the batch's columns in place of its own. Raises as ``write_here`` does.
    """
    expect_writable(table, head, write_batch)
    rows = write_batch.rows.local()
    expect_permitted(write_batch)
    commit_rows(table, head, write_batch, rows, ReplacedFiles(replaces_all=True))
    return WriteResult(rows.num_rows, None, None, None, head.version + 1, head.version + 1, Way.REPLACE_ALL)


def write_by_key(
    table: LakeTable, head: Head, write_batch: WriteBatch, rows: pa.Table, replaced: ReplacedRows
) -> tuple[pa.Table, ReplacedFiles]:
    """Writes the rows in the place of ``replaced``, in one commit; none, if there are neither of them.

    Returns the rows that were replaced, with the columns by which they are known, and what happens to files. Raises as ``write_here``.
    """
    expect_writable(table, head, write_batch)
    known_by = pa.schema([rows.schema.field(name) for name in replaced.columns])
    place = find_replaced(table, head, write_batch.container.engine, rows.schema, replaced, known_by)
    nothing = not rows.num_rows and not place.replaced_rows
    if not nothing:
        commit_rows(table, head, write_batch, rows, place)
    return pa.concat_tables([known_by.empty_table(), *place.replaced]), place


def delete_here(table: LakeTable, head: Head, write_batch: WriteBatch, keys: pa.Table) -> WriteResult:
    """Deletes the rows with these primary keys in one commit, or marks them as deleted. Raises as ``write_here`` does."""
    schema = arrow_schema(head.columns)
    if schema is None:
        raise NotHere("a column's type is not known here")
    write_batch = replace(write_batch, columns=tuple(head.columns))  # no rows are written but those that the table has
    expect_writable(table, head, write_batch)
    is_kept = write_batch.deleted_at is not None
    place = find_replaced(table, head, write_batch.container.engine, schema, RowsOfKeys(keys), schema if is_kept else None)
    if place.replaced_rows != keys.num_rows:
        raise NotHere("a key was not found, or twice")
    rows = pa.concat_tables([schema.empty_table(), *place.replaced])
    if write_batch.deleted_at is not None:
        rows = marked(rows, write_batch.deleted_at)
    commit_rows(table, head, write_batch, rows, place)
    return WriteResult(0, 0, 0, keys.num_rows, head.version + 1, head.version + 1, place.way, message=place.message)


def commit_rows(
    table: LakeTable, head: Head, write_batch: WriteBatch, rows: pa.Table, place: ReplacedFiles, files: Sequence[WrittenFile] = ()
) -> None:
    """Writes the rows, and commits them with what happens to other files. ``files``: further new ones. Raises as ``write_here`` does."""
    if place.replaces_all:
        expect_removable(head)
    if place.replaces_all and not can_be_replaced(table, head):
        raise NotHere(f"the table's log {NOT_UNDERSTOOD}")
    target, folder = target_of(table.address, head, write_batch), folder_at(table.address)
    writer = FilesWriter(folder.new_files(), rows.schema, target.sort, target.indexed)
    with place_errors(table.url), discarded_on_error(writer.discard):
        writer.add(rows)
        for kept in place.kept():
            writer.add(kept)
        writer.close()
        write_batch.rows.still_there()
        expect_unmoved(write_batch.container.label, table, head)
        added = [*files, *(WrittenFile(*file) for file in writer.files)]
        now = int(time.time() * 1000)
        name, changes = written_marks(folder, place.marked, now)
        changes += [file.removed(now) for file in place.rewritten]
        with _removed_on_error(folder, name):
            commit_files(table, head, write_batch, added, changes, replace_all=place.replaces_all)


@contextlib.contextmanager
def _removed_on_error(folder: Folder, name: str) -> Iterator[None]:
    """Removes the file with the deletion vectors, if there is one, where it is known that no commit names it."""
    try:
        yield
    except ConcurrentWriteError:
        if name:
            folder.remove(name)
        raise


def expect_writable(table: LakeTable, head: Head, write_batch: WriteBatch) -> None:
    """Raises NotHere if Spark has to write, whatever the rows are."""
    reason = why_spark_writes(write_batch.container.engine) or reason_against(table, head, write_batch)
    if reason is not None:
        raise NotHere(reason)


# ---------------------------------------------------------------------- what is written, and what it replaces
@dataclass(frozen=True)
class _Chosen:
    """``rows``: those to be written. ``replaced``: the rows of the table that they replace; None if it is none, or all (``is_all``).
    ``replaced_rows``: how many these must be; None if that is not known.
    """

    rows: pa.Table
    replaced: ReplacedRows | None = None
    replaced_rows: int | None = None
    is_all: bool = False


def _chosen(write_batch: WriteBatch, compared: LocalComparison) -> _Chosen:
    """Raises NotHere if Spark has to write, as rows must be looked up again, or deletions may have to be refused."""
    identifier = write_batch.identifier
    if compared.counts is None:
        return _chosen_by_key(write_batch, compared, compared.differences.missing)
    _, updated, deleted = compared.counts
    if not updated and not deleted:
        return _Chosen(compared.added())
    expect_permitted(write_batch)
    if deleted and is_followed(write_batch) and have_moved(write_batch, compared):
        raise NotHere(HAVE_MOVED)
    if write_batch.files is not None:
        return _Chosen(compared.new, of_files(write_batch.files), compared.old.num_rows)
    if identifier is None:
        return _Chosen(compared.new, is_all=True)
    windows = RowsOfWindows(identifier, write_batch.windows, write_batch.include_nulls)
    if compared.key and all(has_unique_keys(rows, compared.key) for rows in (compared.old, compared.new)):
        # A key may be in other windows, too, whose rows stay.
        lost = compared.lost()
        return _Chosen(compared.added(), RowsOfBoth(windows, RowsOfKeys(lost.select(list(compared.key)))), lost.num_rows)
    return _Chosen(compared.new, windows, compared.old.num_rows)


def _chosen_by_key(write_batch: WriteBatch, compared: LocalComparison, missing: pa.Table) -> _Chosen:
    """The same of an upsert, by the primary key. ``missing``: keys that the table has, and the source has no more, or elsewhere."""
    rows, key = compared.differences.changed, list(compared.key)
    if missing.num_rows:
        if still_there(write_batch, key_texts(missing))[0]:
            raise NotHere(HAVE_MOVED)
        expect_permitted(write_batch)
    keys = pa.concat_tables([rows.select(key), missing])
    return _Chosen(pa.concat_tables([rows, marked_rows(compared.old, missing, compared.deleted_at)]), RowsOfKeys(keys))


def marked_rows(old: pa.Table, missing: pa.Table, deleted_at: int | None) -> pa.Table:
    """The old rows with these keys, marked as deleted, if such rows stay; otherwise none. See ``WriteBatch`` for ``deleted_at``."""
    if deleted_at is None or not missing.num_rows:
        return old.slice(0, 0)
    there = unmarked(old)
    return marked(there.filter(RowsOfKeys(missing).among(there.select(missing.column_names))), deleted_at)


def columns_of(axis: Identifier | None, schema: pa.Schema) -> pa.Schema | None:
    """The columns of the axis of partitions, if these are no windows of the identifier. Raises NotHere if one is a decimal."""
    columns = None if axis is None else pa.schema([schema.field(name) for name in axis.columns])
    if columns is not None and any(pa.types.is_decimal(field.type) for field in columns):
        raise NotHere("the partitions' column is a decimal")  # which may be larger than the integers of this process
    return columns


def expect_permitted(write_batch: WriteBatch) -> None:
    """Raises NotHere if rows must not be deleted without further questions, which Spark asks."""
    if not write_batch.allow_empty and write_batch.rows.emptied():
        raise NotHere("partitions would be emptied")
