"""Reads rows out of the Parquet files of a table in this process: which rows of which files are meant, and these rows.

delta-rs reads a file whole if it has a deletion vector. Here only the row groups with such rows are read.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from incremental_assets.core.container import Engine
from incremental_assets.delta.commit_files import RemovedFile
from incremental_assets.delta.engine import have_tasks
from incremental_assets.delta.replaced_rows import ReplacedRows, integers
from incremental_assets.delta.store import Folder
from incremental_assets.delta.write_batch import NotHere

IN_OTHER_FOLDERS = "files of the table are in other folders"
MOST_SEARCHED_BYTES = 2 << 30
"""Up to so many bytes of files are searched here where Spark has other machines. Only the columns by which rows are known are read."""
_MICROS_CUT = 999
"""Spark writes the bounds of times into the statistics in milliseconds, cut off."""


@dataclass(frozen=True)
class LocalFiles:
    """The files of one version of a table in its folder.

    ``live``: for each file with a deletion vector, by its name, which of its rows are still there. The methods raise pa.ArrowException,
    OSError or obstore's BaseError if a file cannot be read here as Spark reads it.
    """

    folder: Folder
    files: Sequence[RemovedFile]
    live: Mapping[str, pa.Array]
    _actions: pa.Table
    _known_extents: dict[str, Mapping[str, "Extent"]] = field(default_factory=dict[str, Mapping[str, "Extent"]])

    @classmethod
    def of(cls, delta: DeltaTable, folder: Folder) -> "LocalFiles | None":
        """None if one of the files is not in the folder itself."""
        actions = pa.table(delta.get_add_actions(flatten=True))
        names = (actions.column(c).to_pylist() for c in ("path", "size_bytes"))
        files = [RemovedFile(path, size) for path, size in zip(*names, strict=True)]
        return cls(folder, files, dict(live_rows(delta)), actions) if all(_is_plain(file.path) for file in files) else None

    def that_may_have(self, meant: ReplacedRows) -> Sequence[RemovedFile]:
        """The files whose statistics permit that they have some of the rows."""
        return [file for file, may in zip(self.files, _may_have(self._actions, meant), strict=True) if may]

    def searched(self, meant: ReplacedRows, engine: Engine) -> Sequence[RemovedFile]:
        """The same files. Raises NotHere if Spark searches them faster, whose other machines share the work."""
        files = self.that_may_have(meant)
        if have_tasks(engine) and size_of(files) > MOST_SEARCHED_BYTES:
            raise NotHere(f"more than {MOST_SEARCHED_BYTES >> 30} GB of files would have to be searched")
        return files

    def hits(
        self, searched: Sequence[RemovedFile], schema: pa.Schema, meant: ReplacedRows, *, with_rows: bool = False
    ) -> dict[RemovedFile, "Hits"]:
        """Those of the files that have some of the rows.

        ``schema``: all columns of the table. ``with_rows``: whether the rows themselves are asked for, with the columns of ``meant``.
        """
        columns = pa.schema([schema.field(name) for name in meant.columns])

        def search(file: RemovedFile) -> Hits:
            read = self.read(file, columns)
            among, live = meant.among(read), self.live_rows(file, read.num_rows)
            among = among if live is None else pc.and_(among, live)  # pyright: ignore[reportAttributeAccessIssue]
            return Hits(among, read.filter(among) if with_rows else None)

        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as threads:
            found = zip(searched, threads.map(search, searched), strict=True)
            return {file: hits for file, hits in found if hits.among.true_count}

    def values(self, files: Sequence[RemovedFile], schema: pa.Schema) -> Iterator[pa.Table]:
        """Yields the rows of each file, with the given columns of the table."""

        def live(file: RemovedFile) -> pa.Table:
            rows = self.read(file, schema)
            alive = self.live_rows(file, rows.num_rows)
            return rows if alive is None else rows.filter(alive)

        cores = os.cpu_count() or 1
        with ThreadPoolExecutor(max_workers=cores) as threads:
            for start in range(0, len(files), cores):  # and no more at a time than are used
                yield from threads.map(live, files[start : start + cores])

    def extent(self, file: RemovedFile, column: str) -> "Extent | None":
        """What the statistics say of a column of a file; None if they do not say it, or if rows of the file are deleted."""
        known = self._extents(column)
        return None if file.path in self.live else known.get(file.path)

    def _extents(self, column: str) -> "Mapping[str, Extent]":
        if column not in self._known_extents:
            names = ["path", "num_records", *(f"{what}.{column}" for what in ("min", "max", "null_count"))]
            known = set(names) <= set(self._actions.column_names) and not pa.types.is_null(self._actions.column(names[2]).type)
            found: dict[str, Extent] = {}
            if known:
                paths, rows, lowest, highest, nulls = (self._actions.column(name) for name in names)
                cut = _MICROS_CUT if pa.types.is_timestamp(highest.type) else 0
                columns = (paths, rows, integers(lowest), integers(highest), nulls)
                for path, *values in zip(*(one.to_pylist() for one in columns), strict=True):
                    if None not in values:
                        found[path] = Extent(values[0], values[1], values[2] + cut, values[3])
            self._known_extents[column] = found
        return self._known_extents[column]

    def live_rows(self, file: RemovedFile, rows: int) -> pa.Array | None:
        """For each row of a file, of which it has so many, whether it is still there; None if all are."""
        live = self.live.get(file.path)
        # Those after the last one of which something is known are there.
        return None if live is None else pa.concat_arrays([live, pa.array([True] * (rows - len(live)), pa.bool_())])

    def rows(self, file: RemovedFile, schema: pa.Schema, among: pa.Array) -> pa.Table:
        """Those rows of a file for which ``among`` is true. Row groups without such rows are not read."""
        with pq.ParquetFile(self.folder.opened(file.path, file.size), pre_buffer=True) as opened:
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
            starts = np.cumsum([0, *sizes])
            parts = [among.slice(int(start), size) for start, size in zip(starts[:-1], sizes, strict=True)]
            chosen = [group for group, part in enumerate(parts) if part.true_count]
            rows = _columns(opened, file, schema, chosen)
        return rows.filter(pa.concat_arrays([parts[group] for group in chosen]) if chosen else pa.array([], pa.bool_()))

    def read(self, file: RemovedFile, schema: pa.Schema) -> pa.Table:
        """All rows of a file, also those that are deleted by its deletion vector."""
        with pq.ParquetFile(self.folder.opened(file.path, file.size), pre_buffer=True) as opened:
            return _columns(opened, file, schema, None)


@dataclass(frozen=True)
class Extent:
    """A column of a file: the number of the file's rows, between which integers of the cursor type the values lie, and how many are NULL.

    The bounds need not be reached."""

    rows: int
    lowest: int
    highest: int
    nulls: int


@dataclass(frozen=True)
class Hits:
    """``among``: for each row of a file, whether it is one of those that were searched. ``rows``: these, if they were asked for."""

    among: pa.Array
    rows: pa.Table | None = None


def size_of(files: Sequence[RemovedFile]) -> int:
    """The size of files in bytes."""
    return sum(file.size for file in files)


def live_rows(delta: DeltaTable) -> Iterator[tuple[str, pa.Array]]:
    """Yields the name of each file with a deletion vector, and which of its rows are still there."""
    if "deletionVectors" in (delta.protocol().reader_features or ()):
        found = pa.table(delta.deletion_vectors())
        paths = [path.rsplit("/", 1)[-1] for path in found.column("filepath").to_pylist()]
        yield from ((path, vector.values) for path, vector in zip(paths, found.column("selection_vector"), strict=True))


def _is_plain(path: str) -> bool:
    """Whether the path is the name of a file in the table's own folder, with nothing in it that may be encoded."""
    return all(character.isalnum() or character in "-_." for character in path)


def _columns(opened: pq.ParquetFile, file: RemovedFile, schema: pa.Schema, groups: list[int] | None) -> pa.Table:
    """The columns of a file, or of some of its row groups. A column that came to the table later is NULL.

    Raises ArrowInvalid if a column is not as it should be.
    """
    there = opened.schema_arrow.names
    absent = [name for name in schema.names if name not in there]
    if {name.lower() for name in absent} & {name.lower() for name in there} or len(set(there)) != len(there):
        raise pa.ArrowInvalid(f"{file.path} has columns of similar names")
    if any(opened.schema.column(i).physical_type == "INT96" for i in range(len(opened.schema))):
        raise pa.ArrowInvalid(f"{file.path} has times in nanoseconds, which cover only three centuries")
    names = [name for name in schema.names if name in there]
    found = opened.read(names) if groups is None else opened.read_row_groups(groups, names)
    if set(found.column_names) | set(absent) != set(schema.names):
        raise pa.ArrowInvalid(f"{file.path} has columns that are not read by their names")
    columns = [pa.nulls(found.num_rows, f.type) if f.name in absent else found.column(f.name).cast(f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _may_have(actions: pa.Table, replaced: ReplacedRows) -> Sequence[bool]:
    """For each file, whether its statistics permit that it has rows to be replaced."""
    low, high, nulls = replaced.extent()
    column = replaced.columns[0]
    needed = [f"min.{column}", f"max.{column}", f"null_count.{column}"]
    known = set(needed) <= set(actions.column_names) and not any(pa.types.is_null(actions.column(name).type) for name in needed)
    if (low is None and high is None) or not known:
        return [True] * actions.num_rows
    lowest, highest = integers(actions.column(needed[0])), integers(actions.column(needed[1]))
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
