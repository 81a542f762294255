"""Finds the files of a table that have rows to be replaced, and says what happens to these files."""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from obstore.exceptions import BaseError

from incremental_assets.core.container import Engine
from incremental_assets.delta.commit_files import NOT_UNDERSTOOD, RemovedFile
from incremental_assets.delta.deletion_vectors import write_vectors
from incremental_assets.delta.evolve import VECTORS
from incremental_assets.delta.local_files import IN_OTHER_FOLDERS, LocalFiles, size_of
from incremental_assets.delta.log import Action, LogFile, files_of
from incremental_assets.delta.replaced_rows import ReplacedRows
from incremental_assets.delta.store import Folder, folder_at
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import NotHere, Way

log = logging.getLogger(__name__)

MOST_WHOLE_BYTES = 256 << 20
"""Up to so many bytes of files are read with all columns, for rows that are kept although they are deleted in the source."""
MOST_WRITTEN_BYTES = 8 << 20
"""Up to so many bytes of files are written anew. Rows of larger ones are marked."""
MOST_UNMARKED_BYTES = 1 << 30
"""The same where the table permits no marks."""
MUCH_WRITTEN_BYTES = 64 << 20
"""From so many bytes on, a sync of a table without marks says so. They take about a second to be written anew."""
WRITTEN_ANEW = (
    f"files of more than {MUCH_WRITTEN_BYTES >> 20} MB were written anew, as the table has no deletion vectors: `deletion_vectors: true` "
    "for the container switches them on with the next sync, and programs that read the table must know them then"
)


@dataclass(frozen=True)
class MarkedFile:
    """A file of which rows get marked as deleted. ``rows``: the numbers of all its rows that are deleted then, if any others are left.

    ``stats``: its statistics, which do not count as exact any more.
    """

    file: LogFile
    rows: np.ndarray | None
    stats: str


@dataclass(frozen=True)
class ReplacedFiles:
    """What happens to the files that have rows to be replaced.

    ``rewritten``: they leave the table, or all files do (``replaces_all``). ``marked``: files that stay, with marked rows.
    ``replaced_rows``: the number of rows that do not stay. ``replaced``: these rows, if they were asked for. ``message``: for the user, if
    much is written anew that marks would have spared.
    """

    rewritten: Sequence[RemovedFile | LogFile] = ()
    replaced_rows: int = 0
    replaces_all: bool = False
    marked: Sequence[MarkedFile] = ()
    replaced: Sequence[pa.Table] = ()
    message: str | None = None
    _kept: Sequence["_Staying"] = ()

    def kept(self) -> Iterator[pa.Table]:
        """Yields the rows that stay of files that leave the table, file by file. Raises NotHere if one is not read here."""
        for each in self._kept:
            with _read_as_spark_does(each.file.path):
                rows = each.rows()
            yield rows

    @property
    def way(self) -> Way:
        if self.replaces_all:
            return Way.REPLACE_ALL
        return Way.MARK_ROWS if self.marked else Way.REWRITE_FILES if self.rewritten else Way.ADD_FILES


def expect_removable(head: Head) -> None:
    """Raises NotHere if no row of the table must be removed: Spark refuses it, and its message says so."""
    if head.properties.get("delta.appendOnly") == "true":
        raise NotHere("the table's rows must not be removed")


def find_replaced(
    table: LakeTable, head: Head, engine: Engine, schema: pa.Schema, replaced: ReplacedRows, wanted: pa.Schema | None = None
) -> ReplacedFiles:
    """Finds the rows to be replaced.

    ``schema``: all columns of the table. ``wanted``: the result has these rows, with these columns. Raises NotHere if too many files would
    have to be read or written anew, or if a file is not read here as Spark reads it.
    """
    delta, folder = table.opened_at(head.version), folder_at(table.address)
    there = LocalFiles.of(delta, folder)
    if there is None:
        raise NotHere(IN_OTHER_FOLDERS)
    searched = there.searched(replaced, engine)
    with _read_as_spark_does(table.url):
        are_read = wanted is not None and set(wanted.names) <= set(replaced.columns)
        found = there.hits(searched, schema, replaced, with_rows=are_read)
        hits = {file: one.among for file, one in found.items()}
        rows = sum(among.true_count for among in hits.values())
        if rows:
            expect_removable(head)
        if wanted == schema and size_of(list(hits)) > MOST_WHOLE_BYTES:
            raise NotHere(f"more than {MOST_WHOLE_BYTES >> 20} MB of files would have to be read with all columns")
        gone: list[pa.Table] = []
        if wanted is not None:
            read = [there.rows(file, wanted, one.among) if one.rows is None else one.rows for file, one in found.items()]
            gone = [of_file.select(wanted.names) for of_file in read]
        # A file with a deletion vector leaves only by name and vector.
        has_vectors = any(file.path in there.live for file in hits)
        permits_vectors = _permits_vectors(head, delta)
        is_small = size_of(list(hits)) <= (MOST_WRITTEN_BYTES if permits_vectors else MOST_UNMARKED_BYTES)
        if not is_small and not permits_vectors:
            raise NotHere(f"files of more than {MOST_UNMARKED_BYTES >> 20} MB change, and the table has none of `deletion_vectors`")
        known = files_of(folder, delta) if has_vectors or not is_small else {}
        if known is None:
            raise NotHere(f"the table's log {NOT_UNDERSTOOD}")
        if is_small:
            kept = [_Staying(there, schema, file, among) for file, among in hits.items()]
            message = None if permits_vectors or size_of(list(hits)) < MUCH_WRITTEN_BYTES else WRITTEN_ANEW
            return ReplacedFiles([known.get(file.path, file) for file in hits], rows, replaced=gone, message=message, _kept=kept)
        return ReplacedFiles(replaced_rows=rows, marked=_marked(known, hits, there), replaced=gone)


@contextlib.contextmanager
def _read_as_spark_does(url: str) -> Iterator[None]:
    """Raises NotHere if a file is not read here as Spark reads it. ``url``: for the log."""
    try:
        yield
    except (pa.ArrowException, OSError, BaseError) as error:
        log.debug("%s: Spark writes, as a file was not read: %s", url, error)
        raise NotHere("a file of the table was not read") from error


def _permits_vectors(head: Head, delta: DeltaTable) -> bool:
    # Another program may have set the property alone. Readers that look at the table's features would then not see the marks.
    is_feature = "deletionVectors" in (delta.protocol().writer_features or ())
    return is_feature and head.properties.get(VECTORS) == "true"


@dataclass(frozen=True)
class _Staying:
    """The rows of a file that leaves the table which stay in it. ``hit``: for each of its rows, whether it does not."""

    there: LocalFiles
    schema: pa.Schema
    file: RemovedFile
    hit: pa.Array

    def rows(self) -> pa.Table:
        rows = self.there.read(self.file, self.schema)
        live = self.there.live_rows(self.file, rows.num_rows)
        other = pc.invert(self.hit)  # pyright: ignore[reportAttributeAccessIssue]
        return rows.filter(other if live is None else pc.and_(live, other))  # pyright: ignore[reportAttributeAccessIssue]


def _marked(known: Mapping[str, LogFile], hits: Mapping[RemovedFile, pa.Array], there: LocalFiles) -> Sequence[MarkedFile]:
    """The same files with all their rows that are deleted then. Raises NotHere if the log does not say enough of one."""
    marked: list[MarkedFile] = []
    for file, among in hits.items():
        found = known[file.path]
        stats = _with_wide_bounds(found.stats, len(among))
        live = there.live_rows(file, len(among))
        if stats is None or (found.vector is not None) != (live is not None):
            raise NotHere("a file's number of rows, or its deletion vector, is not known")
        deleted = among.to_numpy(zero_copy_only=False)
        if live is not None:
            deleted = deleted | ~live.to_numpy(zero_copy_only=False)
        marked.append(MarkedFile(found, None if deleted.all() else np.flatnonzero(deleted), stats))
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


def written_marks(folder: Folder, marked: Sequence[MarkedFile], now: int) -> tuple[str, list[Action]]:
    """Writes the deletion vectors of the marked rows. Returns the name of their file, if there are any, and the actions that name them."""
    deleted = [each.rows for each in marked if each.rows is not None]
    name, vectors = write_vectors(folder, deleted) if deleted else ("", ())
    next_vector, actions = iter(vectors), list[Action]()
    for each in marked:
        actions.append(each.file.removed(now))
        if each.rows is not None:
            actions.append(each.file.marked(next(next_vector), each.stats))
    return name, actions
