"""Writes few changed rows in this process: into a new file, and where they replace rows of other files, into those files' places.

Belongs here: the rule by which a batch is written so, and which rows of which files it replaces. Does not belong: the comparison that has
found the changed rows (``local_rows``), how a file is written (``parquet_files``), and the commits (``commit_files``, ``log``).

Small files in which rows are replaced are written anew without them (copy-on-write). Larger ones stay, and the rows are marked by deletion
vectors, as Spark does it. Spark takes a second to plan a query however few rows it writes, and is far slower in finding keys.
"""

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from obstore.exceptions import BaseError

from incremental_assets.core.errors import ConcurrentWriteError, LakeError
from incremental_assets.delta.commit_files import NOT_UNDERSTOOD, RemovedFile, can_be_replaced, commit_files, reason_against, target_of
from incremental_assets.delta.deletion_vectors import write_vectors
from incremental_assets.delta.engine import why_spark_writes
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.guards import expect_unmoved
from incremental_assets.delta.local_files import LocalFiles, size_of
from incremental_assets.delta.local_rows import LocalComparison, arrow_schema, has_unique_keys, key_texts, marked, unmarked
from incremental_assets.delta.log import Action, LogFile, files_of
from incremental_assets.delta.merge import still_there
from incremental_assets.delta.moved_rows import have_moved, is_followed
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.replaced_rows import ReplacedRows, RowsOfBoth, RowsOfKeys, RowsOfWindows, axis_values, of_files
from incremental_assets.delta.store import Folder, folder_at
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import NotHere, Way, WriteBatch, WriteResult, WrittenFile

log = logging.getLogger(__name__)

MOST_READ_BYTES = 2 << 30
"""Up to so many bytes of files are searched for the rows to be replaced. Only the columns by which they are known are read."""
MOST_WHOLE_BYTES = 256 << 20
"""Up to so many bytes of files are read with all columns, for rows that are kept although they are deleted in the source."""
MOST_WRITTEN_BYTES = 8 << 20
"""Up to so many bytes of files are written anew."""
_HAVE_MOVED = "rows have moved elsewhere in the source, and have to be looked up by their keys"


def write_here(table: LakeTable, head: Head, write_batch: WriteBatch, compared: LocalComparison) -> WriteResult:
    """Writes the rows that have changed, in one commit.

    Raises NotHere if another way has to write them, ConcurrentWriteError if the table is no longer at the version ``head``, and SourceError
    if the source's snapshot is not held.
    """
    _expect_writable(table, head, write_batch)
    chosen = _chosen(write_batch, compared)
    schema, folder, apart = compared.new.schema, folder_at(table.address), write_batch.container.partitioned_on
    wanted = None if apart is None else pa.schema([schema.field(name) for name in apart.columns])
    if wanted is not None and any(pa.types.is_decimal(field.type) for field in wanted):
        raise NotHere("the partitions' column is a decimal")  # which may be larger than the integers of this process
    place = _Place(replaces_all=chosen.is_all)
    if chosen.replaced is not None:
        place = _place(table, head, folder, schema, chosen.replaced, wanted)
    if chosen.replaced_rows is not None and not chosen.is_all and place.replaced_rows != chosen.replaced_rows:
        raise NotHere("other rows were found in the table's files than were compared")
    _commit(table, head, write_batch, folder, chosen.rows, place)
    counts = compared.counts
    if counts is None:
        missing = compared.differences.missing.num_rows
        updated = place.replaced_rows - missing
        counts = compared.differences.changed.num_rows - updated, updated, missing
    values = axis_values(apart, [*place.replaced, chosen.rows])
    return WriteResult(compared.new.num_rows, *counts, head.version + 1, head.version + 1, place.way, axis_values=values)


def replace_here(table: LakeTable, head: Head, write_batch: WriteBatch) -> WriteResult:
    """Puts the rows of a batch, if they are few, in the place of all rows of the table, in one commit.

    The table gets the batch's columns in place of its own. Raises as ``write_here`` does.
    """
    _expect_writable(table, head, write_batch)
    rows = write_batch.rows.local()
    _expect_permitted(write_batch)
    _commit(table, head, write_batch, folder_at(table.address), rows, _Place(replaces_all=True))
    return WriteResult(rows.num_rows, None, None, None, head.version + 1, head.version + 1, Way.REPLACE_ALL)


def write_by_key(table: LakeTable, head: Head, write_batch: WriteBatch, rows: pa.Table, replaced: ReplacedRows) -> tuple[pa.Table, Way]:
    """Writes the rows in the place of ``replaced``, in one commit; none, if there are neither of them.

    Returns the rows that were replaced, with the columns by which they are known. Raises as ``write_here`` does.
    """
    _expect_writable(table, head, write_batch)
    schema, folder = rows.schema, folder_at(table.address)
    known_by = pa.schema([schema.field(name) for name in replaced.columns])
    place = _place(table, head, folder, schema, replaced, known_by)
    nothing = not rows.num_rows and not place.replaced_rows
    if not nothing:
        _commit(table, head, write_batch, folder, rows, place)
    return pa.concat_tables([known_by.empty_table(), *place.replaced]), place.way


def delete_here(table: LakeTable, head: Head, write_batch: WriteBatch, keys: pa.Table) -> WriteResult:
    """Deletes the rows with these primary keys in one commit, or marks them as deleted. Raises as ``write_here`` does."""
    schema = arrow_schema(head.columns)
    if schema is None:
        raise NotHere("a column's type is not known here")
    write_batch = replace(write_batch, columns=tuple(head.columns))  # no rows are written but those that the table has
    _expect_writable(table, head, write_batch)
    folder = folder_at(table.address)
    is_kept = write_batch.deleted_at is not None
    place = _place(table, head, folder, schema, RowsOfKeys(keys), schema if is_kept else None)
    if place.replaced_rows != keys.num_rows:
        raise NotHere("a key was not found, or twice")
    rows = pa.concat_tables([schema.empty_table(), *place.replaced])
    if write_batch.deleted_at is not None:
        rows = marked(rows, write_batch.deleted_at)
    _commit(table, head, write_batch, folder, rows, place)
    return WriteResult(0, 0, 0, keys.num_rows, head.version + 1, head.version + 1, place.way)


def _commit(table: LakeTable, head: Head, write_batch: WriteBatch, folder: Folder, rows: pa.Table, place: "_Place") -> None:
    """Writes the rows, and commits them with what happens to other files. Raises as ``write_here`` does."""
    if place.removes and head.properties.get("delta.appendOnly") == "true":
        raise NotHere("the table's rows must not be removed")  # Spark refuses it, and its message says so
    if place.replaces_all and not can_be_replaced(table, head):
        raise NotHere(f"the table's log {NOT_UNDERSTOOD}")
    target = target_of(table.address, head, write_batch)
    writer = FilesWriter(folder.new_files(), rows.schema, target.sort, target.indexed)
    with place_errors(table.url), _discarded_on_error(writer):
        writer.add(pa.concat_tables([rows, *place.kept]))
        writer.close()
        write_batch.rows.still_there()
        expect_unmoved(write_batch.container.label, table, head)
        files = [WrittenFile(*file) for file in writer.files]
        now = int(time.time() * 1000)
        name, changes = _marks(folder, place.marked, now)
        changes += [file.removed(now) for file in place.rewritten]
        with _removed_on_error(folder, name):
            commit_files(table, head, write_batch, files, changes, replace_all=place.replaces_all)


@contextlib.contextmanager
def _removed_on_error(folder: Folder, name: str) -> Iterator[None]:
    """Removes the file with the deletion vectors, if there is one, where it is known that no commit names it."""
    try:
        yield
    except ConcurrentWriteError:
        if name:
            folder.remove(name)
        raise


@contextlib.contextmanager
def _discarded_on_error(writer: FilesWriter) -> Iterator[None]:
    """Removes what the writer has written, unless it is possible that a commit names it."""
    try:
        yield
    except LakeError:  # of the commit itself, and nobody knows what has become of it
        raise
    except BaseException:
        writer.discard()
        raise


def _expect_writable(table: LakeTable, head: Head, write_batch: WriteBatch) -> None:
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
        found = compared.differences
        if found.missing.num_rows:
            if still_there(write_batch, iter(key_texts(found.missing)))[0]:
                raise NotHere(_HAVE_MOVED)
            _expect_permitted(write_batch)
        keys = pa.concat_tables([found.changed.select(list(compared.key)), found.missing])
        rows = found.changed
        if compared.deleted_at is not None and found.missing.num_rows:
            there = unmarked(compared.old)
            kept = there.filter(RowsOfKeys(found.missing).among(there.select(list(compared.key))))
            rows = pa.concat_tables([rows, marked(kept, compared.deleted_at)])
        return _Chosen(rows, RowsOfKeys(keys))
    _, updated, deleted = compared.counts
    if not updated and not deleted:
        return _Chosen(compared.added())
    _expect_permitted(write_batch)
    if deleted and is_followed(write_batch) and have_moved(write_batch, compared):
        raise NotHere(_HAVE_MOVED)
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


def _expect_permitted(write_batch: WriteBatch) -> None:
    """Raises NotHere if rows must not be deleted without further questions, which Spark asks."""
    if not write_batch.allow_empty and write_batch.rows.emptied():
        raise NotHere("partitions would be emptied")


# ---------------------------------------------------------------------- the files in which they are
@dataclass(frozen=True)
class _Marked:
    """A file of which rows get marked as deleted. ``rows``: the numbers of all its rows that are deleted then, if any others are left.

    ``stats``: its statistics, which do not count as exact any more.
    """

    file: LogFile
    rows: np.ndarray | None
    stats: str


@dataclass(frozen=True)
class _Place:
    """What happens to the files that have rows to be replaced.

    ``rewritten``: they leave the table, or all files do (``replaces_all``). ``kept``: the rows of these that stay. ``marked``: files that
    stay, with marked rows. ``replaced_rows``: the number of rows that do not stay. ``replaced``: these rows, if they were asked for.
    """

    kept: Sequence[pa.Table] = ()
    rewritten: Sequence[RemovedFile | LogFile] = ()
    replaced_rows: int = 0
    replaces_all: bool = False
    marked: Sequence[_Marked] = ()
    replaced: Sequence[pa.Table] = ()

    @property
    def removes(self) -> bool:
        """Whether rows or files leave the table."""
        return bool(self.rewritten or self.replaces_all or self.marked)

    @property
    def way(self) -> Way:
        if self.replaces_all:
            return Way.REPLACE_ALL
        return Way.MARK_ROWS if self.marked else Way.REWRITE_FILES if self.rewritten else Way.ADD_FILES


def _place(
    table: LakeTable,
    head: Head,
    folder: Folder,
    schema: pa.Schema,
    replaced: ReplacedRows,
    wanted: pa.Schema | None = None,
) -> _Place:
    """Finds the rows to be replaced.

    ``wanted``: the place has these rows, with these columns. Raises NotHere if too many files would have to be read or written anew, or if
    a file is not read here as Spark reads it.
    """
    delta = table.opened_at(head.version)
    there = LocalFiles.of(delta, folder)
    if there is None:
        raise NotHere("files of the table are in other folders")
    searched = there.that_may_have(replaced)
    if size_of(searched) > MOST_READ_BYTES:
        raise NotHere(f"more than {MOST_READ_BYTES >> 30} GB of files would have to be searched")
    try:
        are_read = wanted is not None and set(wanted.names) <= set(replaced.columns)
        found = there.hits(searched, schema, replaced, with_rows=are_read)
        hits = {file: one.among for file, one in found.items()}
        rows = sum(among.true_count for among in hits.values())
        if wanted == schema and size_of(list(hits)) > MOST_WHOLE_BYTES:
            raise NotHere(f"more than {MOST_WHOLE_BYTES >> 20} MB of files would have to be read with all columns")
        gone: list[pa.Table] = []
        if wanted is not None:
            read = [there.rows(file, wanted, one.among) if one.rows is None else one.rows for file, one in found.items()]
            gone = [of_file.select(wanted.names) for of_file in read]
        # A file with a deletion vector leaves only by name and vector.
        has_vectors = any(file.path in there.live for file in hits)
        is_small = size_of(list(hits)) <= MOST_WRITTEN_BYTES
        known = files_of(folder, delta) if has_vectors or not is_small else {}
        if known is None:
            raise NotHere(f"the table's log {NOT_UNDERSTOOD}")
        if is_small:
            kept = [_staying(there, schema, file, among) for file, among in hits.items()]
            return _Place(kept, [known.get(file.path, file) for file in hits], rows, replaced=gone)
        return _Place(replaced_rows=rows, marked=_marked(head, known, hits, there), replaced=gone)
    except (pa.ArrowException, OSError, BaseError) as error:
        log.debug("%s: Spark writes, as a file was not read: %s", table.url, error)
        raise NotHere("a file of the table was not read") from error


def _staying(there: LocalFiles, schema: pa.Schema, file: RemovedFile, hit: pa.Array) -> pa.Table:
    """The rows of a file that leaves the table which stay in it."""
    rows = there.read(file, schema)
    live = there.live_rows(file, rows.num_rows)
    other = pc.invert(hit)  # pyright: ignore[reportAttributeAccessIssue]
    return rows.filter(other if live is None else pc.and_(live, other))  # pyright: ignore[reportAttributeAccessIssue]


def _marked(head: Head, known: Mapping[str, LogFile], hits: Mapping[RemovedFile, pa.Array], there: LocalFiles) -> Sequence[_Marked]:
    """The same files with all their rows that are deleted then. Raises NotHere if the table permits no deletion vectors."""
    if head.properties.get("delta.enableDeletionVectors") != "true":
        raise NotHere(f"files of more than {MOST_WRITTEN_BYTES >> 20} MB change, and the table permits no deletion vectors")
    marked: list[_Marked] = []
    for file, among in hits.items():
        found = known[file.path]
        stats = _with_wide_bounds(found.stats, len(among))
        live = there.live_rows(file, len(among))
        if stats is None or (found.vector is not None) != (live is not None):
            raise NotHere("a file's number of rows, or its deletion vector, is not known")
        deleted = among.to_numpy(zero_copy_only=False)
        if live is not None:
            deleted = deleted | ~live.to_numpy(zero_copy_only=False)
        marked.append(_Marked(found, None if deleted.all() else np.flatnonzero(deleted), stats))
    return marked


def _with_wide_bounds(stats: str | None, rows: int) -> str | None:
    """The statistics of a file of which rows are deleted: its rows may not reach as far as the bounds do.

    None if they are not known well enough: readers take the number of rows of a file with a deletion vector from them.
    """
    known = json.loads(stats) if stats else {}
    if not stats or known.get("numRecords") != rows:
        return None
    exact, wide = ',"tightBounds":true}', ',"tightBounds":false}'
    if stats.endswith(exact):  # the text is not written anew, as numbers with many digits would lose some
        return stats.removesuffix(exact) + wide
    if known.get("tightBounds") is False:
        return stats
    return None if "tightBounds" in known else stats.rstrip().removesuffix("}") + wide


def _marks(folder: Folder, marked: Sequence[_Marked], now: int) -> tuple[str, list[Action]]:
    """Writes the deletion vectors of the marked rows. Returns the name of their file, if there are any, and the actions that name them."""
    deleted = [each.rows for each in marked if each.rows is not None]
    name, vectors = write_vectors(folder, deleted) if deleted else ("", ())
    next_vector, actions = iter(vectors), list[Action]()
    for each in marked:
        actions.append(each.file.removed(now))
        if each.rows is not None:
            actions.append(each.file.marked(next(next_vector), each.stats))
    return name, actions
