"""Writes few changed rows in this process: into a new file, with the other rows of the files in which rows are replaced (copy-on-write).

Belongs here: the rule by which a batch is written so, and which rows of which files stay. Does not belong: the comparison that has found
the changed rows (``local_rows``), how a file is written (``parquet_files``), and the commit (``commit_files``).

A Spark query takes about a second to plan however few rows it writes, and a server to run on. Where many files would have to be written
anew, Spark is better all the same: it marks the replaced rows by deletion vectors.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from incremental_assets.core.container import Identifier
from incremental_assets.core.window import Window
from incremental_assets.delta.commit_files import RemovedFile, commit_files, reason_against, target_of
from incremental_assets.delta.guards import expect_unmoved
from incremental_assets.delta.local_rows import LocalComparison, key_texts
from incremental_assets.delta.merge import still_there
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import WriteBatch, WriteResult, WrittenFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

WRITE_BY = "INCREMENTAL_ASSETS_WRITE_BY"
"""The environment variable that says who writes few rows: ``spark``, or else this process where it can."""
MOST_READ_BYTES = 64 << 20
"""Up to so many bytes of files are searched for the rows to be replaced."""
MOST_WRITTEN_BYTES = 16 << 20
"""Up to so many bytes of files are written anew."""
_MICROS_CUT = 999
"""Spark writes the bounds of times into the statistics in milliseconds, cut off."""


@runtime_checkable
class _Replaced(Protocol):
    """Chooses the rows of the table that the batch replaces. ``columns``: those by which they are known."""

    columns: tuple[str, ...]

    def extent(self) -> tuple[Any, Any, bool]:
        """The lowest and the highest value that the first column has in these rows, and whether it may be NULL.

        Bounds are integers for days and microseconds. None: there is no bound."""
        ...

    def among(self, rows: pa.Table) -> pa.Array:
        """For each of the given rows, whether it is one of them. The rows have ``columns`` only."""
        ...


def copy_on_write(table: LakeTable, head: Head, write_batch: WriteBatch, compared: LocalComparison) -> WriteResult | None:
    """Writes the rows that have changed, in one commit. None if nothing was done and Spark has to write them.

    Raises ConcurrentWriteError if the table is no longer at the version ``head``, and SourceError if the source's snapshot is not held.
    """
    reason = f"{WRITE_BY} says so" if os.environ.get(WRITE_BY) else reason_against(table, head, write_batch)
    chosen = None if reason is not None else _chosen(write_batch, compared)
    if chosen is None:
        log.debug("%s: Spark writes: %s", write_batch.container.label, reason or "keys have moved, or partitions would be emptied")
        return None
    folder = os.path.abspath(table.address)
    kept = _kept(table, head, folder, compared.new.schema, chosen.replaced) if isinstance(chosen.replaced, _Replaced) else chosen.replaced
    if kept is None or (chosen.replaced_rows is not None and kept.replaced_rows != chosen.replaced_rows):
        return None
    target = target_of(folder, head, write_batch)
    writer = FilesWriter(folder, compared.new.schema, target.sort, target.indexed)
    try:
        writer.add(pa.concat_tables([chosen.rows, *kept.rows]))
        writer.close()
        write_batch.rows.still_there()
        expect_unmoved(write_batch.container.label, table, head)
    except BaseException:
        writer.discard()
        raise
    files = [WrittenFile(*file) for file in writer.files]
    commit_files(table, head, write_batch, files, kept.files, replace_all=kept.replaces_all)
    counts = compared.counts
    if counts is None:
        missing = compared.differences.missing.num_rows
        updated = kept.replaced_rows - missing
        counts = chosen.rows.num_rows - updated, updated, missing
    return WriteResult(compared.new.num_rows, *counts, head.version + 1, head.version + 1)


# ---------------------------------------------------------------------- what is written, and what it replaces
@dataclass(frozen=True)
class _Chosen:
    """``rows``: those to be written. ``replaced``: the rows of the table that they replace, or what stays of it if that is known already.
    ``replaced_rows``: how many these must be; None if that is not known.
    """

    rows: pa.Table
    replaced: "_Replaced | _Kept"
    replaced_rows: int | None = None


def _chosen(write_batch: WriteBatch, compared: LocalComparison) -> _Chosen | None:
    """None if Spark has to write, as rows must be looked up again, or deletions may have to be refused."""
    identifier = write_batch.container.identifier
    if compared.counts is not None:
        _, updated, deleted = compared.counts
        old = compared.old.num_rows
        if not updated and not deleted:
            return _Chosen(compared.added(), _Kept())
        if not _may_delete(write_batch):
            return None
        if identifier is None:
            return _Chosen(compared.new, _Kept(replaced_rows=old, replaces_all=True), old)
        return _Chosen(compared.new, _OfWindows(identifier, write_batch.windows, write_batch.include_nulls), old)
    found = compared.differences
    if found.missing.num_rows and (still_there(write_batch, iter(key_texts(found.missing)))[0] or not _may_delete(write_batch)):
        return None
    keys = pa.concat_tables([found.changed.select(list(compared.key)), found.missing])
    return _Chosen(found.changed, _OfKeys(keys))


def _may_delete(write_batch: WriteBatch) -> bool:
    """Whether rows may be deleted without further questions."""
    return write_batch.allow_empty or not write_batch.rows.emptied()


class _OfWindows:
    """The rows of the windows, as ``delta.sql.scope_predicate`` selects them."""

    def __init__(self, identifier: Identifier, windows: Sequence[Window], include_nulls: bool) -> None:
        self.columns = identifier.columns
        self._windows, self._nulls = windows, include_nulls

    def extent(self) -> tuple[Any, Any, bool]:
        if len(self.columns) > 1:  # the greater one of two columns counts, and either may be far below it
            return None, None, True
        lower, upper = [w.lower for w in self._windows], [w.upper for w in self._windows]
        return (
            None if None in lower else min(lower, default=None),  # pyright: ignore[reportCallIssue, reportArgumentType]
            None if None in upper else max(upper, default=None),  # pyright: ignore[reportCallIssue, reportArgumentType]
            self._nulls,
        )

    def among(self, rows: pa.Table) -> pa.Array:
        values = reduce(pc.max_element_wise, (_integers(column) for column in rows.columns))  # pyright: ignore[reportAttributeAccessIssue]
        is_null = pc.is_null(values)  # pyright: ignore[reportAttributeAccessIssue]
        inside = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
        for window in self._windows:
            here = pc.invert(is_null)  # pyright: ignore[reportAttributeAccessIssue]
            if window.lower is not None:
                here = pc.and_(here, pc.greater_equal(values, window.lower))  # pyright: ignore[reportAttributeAccessIssue]
            if window.upper is not None:
                here = pc.and_(here, pc.less(values, window.upper))  # pyright: ignore[reportAttributeAccessIssue]
            inside = pc.or_(inside, pc.fill_null(here, False))  # pyright: ignore[reportAttributeAccessIssue]
        return _one(pc.or_(inside, is_null) if self._nulls else inside)  # pyright: ignore[reportAttributeAccessIssue]


class _OfKeys:
    """The rows with these primary keys, wherever in the table they are."""

    def __init__(self, keys: pa.Table) -> None:
        self.columns = tuple(keys.column_names)
        self._keys = keys

    def extent(self) -> tuple[Any, Any, bool]:
        first = self._keys.column(0)
        if not (pa.types.is_integer(first.type) or pa.types.is_date32(first.type) or pa.types.is_timestamp(first.type)):
            return None, None, True
        found = pc.min_max(_integers(first)).as_py()  # pyright: ignore[reportAttributeAccessIssue]
        return found["min"], found["max"], False

    def among(self, rows: pa.Table) -> pa.Array:
        names = [f"c{i}" for i in range(rows.num_columns)]
        numbered = rows.rename_columns(names).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
        found = numbered.join(self._keys.rename_columns(names), names, join_type="left semi", use_threads=False)
        return pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=found.column("row").combine_chunks())  # pyright: ignore[reportAttributeAccessIssue]


# ---------------------------------------------------------------------- the files in which they are
@dataclass(frozen=True)
class _Kept:
    """What stays of the files that leave the table.

    ``rows``: the rows that stay. ``files``: those that leave, if it is not all (``replaces_all``). ``replaced_rows``: the number of rows
    that do not stay.
    """

    rows: Sequence[pa.Table] = ()
    files: Sequence[RemovedFile] = ()
    replaced_rows: int = 0
    replaces_all: bool = False


def _kept(table: LakeTable, head: Head, folder: str, schema: pa.Schema, replaced: _Replaced) -> _Kept | None:
    """None if too many files would have to be read or written anew, or if a file is not read here as Spark reads it."""
    delta = table.opened()
    if delta is None or delta.version() != head.version:
        return None
    actions = pa.table(delta.get_add_actions(flatten=True))
    files = [RemovedFile(path, size) for path, size in zip(*(actions.column(c).to_pylist() for c in ("path", "size_bytes")), strict=True)]
    searched = [file for file, may in zip(files, _may_have(actions, replaced), strict=True) if may]
    if any(not _is_plain(file.path) for file in files) or _bytes(searched) > MOST_READ_BYTES:
        return None
    live = _live(delta)
    names = list(replaced.columns)
    try:
        hits: dict[RemovedFile, pa.Array] = {}
        for file in searched:
            among = replaced.among(_read(folder, file, pa.schema([schema.field(name) for name in names])))
            if file.path in live:
                live[file.path] = _of_length(live[file.path], len(among))
                among = pc.and_(among, live[file.path])  # pyright: ignore[reportAttributeAccessIssue]
            if among.true_count:
                hits[file] = among
        # A file with a deletion vector leaves only by name and vector, and delta-rs names the vectors only if it removes all files.
        replaces_all = any(file.path in live for file in hits)
        leaving = files if replaces_all else list(hits)
        if _bytes(leaving) > MOST_WRITTEN_BYTES:
            return None
        rows: list[pa.Table] = []
        for file in leaving:
            whole = _read(folder, file, schema)
            stays = _of_length(live[file.path], whole.num_rows) if file.path in live else None
            if file in hits:
                other = pc.invert(hits[file])  # pyright: ignore[reportAttributeAccessIssue]
                stays = other if stays is None else pc.and_(stays, other)  # pyright: ignore[reportAttributeAccessIssue]
            rows.append(whole if stays is None else whole.filter(stays))
    except (pa.ArrowException, OSError) as error:
        log.debug("%s: Spark writes, as a file was not read: %s", table.url, error)
        return None
    return _Kept(rows, () if replaces_all else leaving, sum(among.true_count for among in hits.values()), replaces_all)


def _live(delta: "DeltaTable") -> dict[str, pa.Array]:
    """For each file with a deletion vector, by its name, which of its rows are still there."""
    if "deletionVectors" not in (delta.protocol().reader_features or ()):
        return {}
    found = pa.table(delta.deletion_vectors())
    paths = [path.rsplit("/", 1)[-1] for path in found.column("filepath").to_pylist()]
    return {path: pa.array(vector.as_py(), pa.bool_()) for path, vector in zip(paths, found.column("selection_vector"), strict=True)}


def _of_length(live: pa.Array, rows: int) -> pa.Array:
    """The same for all rows of a file: those after the last one of which something is known are there."""
    return pa.concat_arrays([live, pa.array([True] * (rows - len(live)), pa.bool_())])


def _is_plain(path: str) -> bool:
    """Whether the path is the name of a file in the table's own folder, with nothing in it that may be encoded."""
    return all(character.isalnum() or character in "-_." for character in path)


def _bytes(files: Sequence[RemovedFile]) -> int:
    return sum(file.size for file in files)


def _read(folder: str, file: RemovedFile, schema: pa.Schema) -> pa.Table:
    """The columns of a file. A column that came to the table later is NULL. Raises ArrowInvalid if a column is not as it should be."""
    with pq.ParquetFile(os.path.join(folder, file.path)) as opened:
        there = opened.schema_arrow.names
        absent = [name for name in schema.names if name not in there]
        if {name.lower() for name in absent} & {name.lower() for name in there} or len(set(there)) != len(there):
            raise pa.ArrowInvalid(f"{file.path} has columns of similar names")
        if any(opened.schema.column(i).physical_type == "INT96" for i in range(len(opened.schema))):
            raise pa.ArrowInvalid(f"{file.path} has times in nanoseconds, which cover only three centuries")
        found = opened.read([name for name in schema.names if name in there])
        if set(found.column_names) | set(absent) != set(schema.names):
            raise pa.ArrowInvalid(f"{file.path} has columns that are not read by their names")
    columns = [pa.nulls(found.num_rows, f.type) if f.name in absent else found.column(f.name).cast(f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _may_have(actions: pa.Table, replaced: _Replaced) -> Sequence[bool]:
    """For each file, whether its statistics permit that it has rows to be replaced."""
    low, high, nulls = replaced.extent()
    column = replaced.columns[0]
    needed = [f"min.{column}", f"max.{column}", f"null_count.{column}"]
    known = set(needed) <= set(actions.column_names) and not any(pa.types.is_null(actions.column(name).type) for name in needed)
    if (low is None and high is None) or not known:
        return [True] * actions.num_rows
    lowest, highest = _integers(actions.column(needed[0])), _integers(actions.column(needed[1]))
    if pa.types.is_timestamp(actions.column(needed[1]).type):
        highest = pc.add(highest, _MICROS_CUT)  # pyright: ignore[reportAttributeAccessIssue]
    may = pa.chunked_array([pa.array([True] * actions.num_rows, pa.bool_())])
    if high is not None:
        may = pc.and_(may, pc.fill_null(pc.less_equal(lowest, high), True))  # pyright: ignore[reportAttributeAccessIssue]
    if low is not None:
        may = pc.and_(may, pc.fill_null(pc.greater_equal(highest, low), True))  # pyright: ignore[reportAttributeAccessIssue]
    if nulls:
        may = pc.or_(may, pc.fill_null(pc.greater(actions.column(needed[2]), 0), True))  # pyright: ignore[reportAttributeAccessIssue]
    return may.to_pylist()


def _integers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers, and days and microseconds since 1970."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz))
    return values.cast(pa.int64())


def _one(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
