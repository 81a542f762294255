"""Reads CSV and TSV in this process, and writes the rows into Parquet files of their own: several times as fast as by asking Spark.

Each file is read once, as long as the types that its beginning suggests for new columns fit all that follows; otherwise twice more. A line
whose meaning is not sure is kept aside for Spark, which has the last word on every line. If there are many of them, or anything else is not
sure, nothing that was read here counts, and Spark reads all files.
"""

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.utils import infer_compression

from incremental_assets.core.errors import SourceError, SourceInterrupted
from incremental_assets.core.schema import Column
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.files.readers import delimited
from incremental_assets.files.readers.beginning import HEAD_BYTES, Beginning, expect_text
from incremental_assets.files.readers.cells import ALL_TYPES, type_of_mask
from incremental_assets.files.readers.local_files import LocalFiles, rows_schema
from incremental_assets.files.readers.local_lines import MOST_COLUMNS, SEPARATORS, Block, Cells, Splitter
from incremental_assets.files.readers.local_values import Unsure, arrow_type, is_of_type, possible_types, values
from incremental_assets.files.readers.measure import expect_stored
from incremental_assets.files.readers.quoting import MarkedLines, Quoting
from incremental_assets.files.readers.read import FileRows
from incremental_assets.files.readers.reading import Group, ReadFile, Reading

BLOCK = 4 << 20
"""So many bytes of lines are parsed at a time, by each thread."""
LONGEST_LINE = 8 * BLOCK
"""A file without the end of a line in so many bytes is left to Spark."""
CHUNK_BYTES = 64 << 20
"""So many bytes of rows are held by each thread before they are written."""
FEW_BYTES = 16 << 20
"""Up to so many bytes of files are read by one thread, and become one Parquet file."""
THREADS = max(2, min(4, os.cpu_count() or 2))
MOST_DOUBTFUL_LINES, MOST_DOUBTFUL_BYTES = 20_000, 16 << 20
"""If Spark has to decide about more lines, it reads all files."""
MOST_KEPT_BYTES = 64 << 20
"""So many bytes of small files are kept after their beginnings were looked at, and not read again."""
_OPTIONS = frozenset(("header", "sep", "delimiter", "encoding", "charset", "multiline"))
PLAIN_NAME = re.compile(r"[^\x00-\x1f`\"$\\]+")
"""The names of columns that stay the same in Parquet, whoever writes it or reads it: Hadoop replaces ``${…}``."""
_Own = TypeVar("_Own")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def reason_against(reading: Reading, files: Sequence[ReadFile]) -> str | None:
    """Why files of CSV are not read in this process; None if they may be."""
    if not {name.lower() for name in reading.options} <= _OPTIONS or reading.encoding is not None:
        return "they have options that only Spark knows"
    if not reading.header or reading.separator not in SEPARATORS:
        return "they have no header, or an unusual separator"
    if any(infer_compression(file.path) is not None or file.path.lower().endswith(".zst") for file in files):
        return "some are compressed"
    return None


def declared_types(reading: Reading) -> dict[str, str] | None:
    """The types that the YAML sets, by column name in lower case; None if one of them is not known here."""
    found = {name.lower(): _DECIMAL.sub(r"decimal(\1,\2)", type_.strip().lower()) for name, type_ in reading.types.items()}
    return None if any(arrow_type(type_) is None for type_ in found.values()) else found


@dataclass(frozen=True)
class _Source:
    """The files of one header: their numbers, and how their lines are split."""

    group: Group
    numbers: Sequence[int]
    splitter: Splitter


class LocalRows:
    """The rows of files, read and written to Parquet files when an instance is made, except for those of doubtful lines.

    ``columns``: the known ones and the new ones after them. ``refused``: by key, why a file could not be read. ``rows``: the rows of every
    other file, by key. ``doubtful``: by key, the lines that Spark has to read. ``inferred``: the types of new columns that the YAML does
    not set.

    Raises Unsure where Spark has to read the files, and SourceInterrupted where the disk, the machine or the network fails.
    """

    def __init__(self, given: LocalFiles) -> None:
        files = self._files = tuple(given.files)
        self._address, self._reading, self._folder, self._indexed = given.address, given.reading, given.folder, given.indexed
        self._types, self._quoting = given.types, Quoting(given.reading)
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._lock = threading.Lock()
        self._keys = pa.array([file.key for file in files], pa.string())
        self._modified = pa.array([file.modified for file in files], pa.int64()).cast(pa.timestamp("us", "UTC"))
        self._doubtful: dict[int, list[bytes]] = {}
        self._doubts = self._doubtful_bytes = 0
        self._counts = np.zeros(len(files), np.int64)
        self._writers: list[FilesWriter] = []
        self.refused: dict[str, str] = {}
        self._sources = self._take(given.known)
        try:
            self._read(given.columns)
        except SourceInterrupted:
            self._forget()
            raise
        except (Unsure, SourceError, pa.ArrowException) as error:
            self._forget()
            raise Unsure from error
        finally:
            self._kept.clear()

    @property
    def rows(self) -> dict[str, int]:
        return {file.key: int(count) for file, count in zip(self._files, self._counts, strict=True) if file.key not in self.refused}

    @property
    def doubtful(self) -> dict[str, Sequence[bytes]]:
        return {self._files[number].key: lines for number, lines in sorted(self._doubtful.items())}

    @property
    def as_lines(self) -> Reading:
        """How Spark reads the files of ``lines_of``."""
        # As a header looks like data or not beside the lines below it, and these are others now, it is said to be one.
        return Reading(self._reading.format, {"header": "true", "sep": self._reading.separator}, self._reading.types, self._reading.limits)

    def lines_of(self, key: str) -> bytes:
        """A file of the doubtful lines of a file, with its header."""
        names = next(source.group.names for source in self._sources if any(file.key == key for file in source.group.files))
        header = self._reading.separator.join('"' + name.replace('"', '""') + '"' for name in names)
        return b"".join([header.encode(), b"\n", *self.doubtful[key]])

    def expect_same(self, odd: FileRows) -> None:
        """Raises Unsure where the doubtful lines would have changed the types of new columns."""
        types = {name: type_ for name, type_ in self.inferred.items() if type_ is not None and type_ != "string"}
        # A column without any text so far would have got its type from these lines.
        if None in self.inferred.values() or not odd.have_types(types):
            raise Unsure

    def close(self, others: pa.Table | None = None) -> list[tuple[str, int, int, str]]:
        """Writes what is not written yet, with the rows of the doubtful lines. Returns ``FilesWriter.files`` of all threads."""
        if others is not None and others.num_rows:
            if not self._writers:
                self._writers.append(self._writer())
            self._writers[0].add(others.select(self.schema.names).cast(self.schema))
        for writer in self._writers:
            writer.close()
        return [file for writer in self._writers for file in writer.files]

    # ------------------------------------------------------------------ the files
    def _take(self, known: Sequence[Column]) -> list[_Source]:
        """Looks at the beginnings of the files, and groups them by their headers."""
        with ThreadPoolExecutor(16) as pool:  # threads, as each access to a remote folder waits for the network
            found = dict(zip((file.key for file in self._files), pool.map(self._head, self._files), strict=True))
        self.refused |= {key: str(head) for key, head in found.items() if isinstance(head, SourceError)}
        heads = {key: head for key, head in found.items() if not isinstance(head, SourceError)}
        full = [file for file in self._files if file.key in heads and not (heads[file.key].whole and heads[file.key].blank)]
        groups, refused = delimited.grouped(self._reading, full, heads, known)
        self.refused |= refused
        if any(group.separator is not None for group in groups):
            raise Unsure
        if any(not PLAIN_NAME.fullmatch(name) for group in groups for name in group.names):
            raise Unsure
        if any(len(group.names) > MOST_COLUMNS for group in groups):
            raise Unsure
        numbers = {file.key: number for number, file in enumerate(self._files)}
        return [
            _Source(group, [numbers[file.key] for file in group.files], Splitter(self._reading.separator, len(group.names)))
            for group in groups
        ]

    def _head(self, file: ReadFile) -> Beginning | SourceError:
        try:
            expect_stored(file, file.size, self._reading.limits)
            with self._address.open(file.path, decompress=False) as stream:
                head = stream.read(HEAD_BYTES)
            expect_text(file, head)
        except SourceInterrupted:
            raise
        except SourceError as error:
            return error
        begins = Beginning.of(head, self._reading)
        with self._lock:
            if begins.whole and self._kept_bytes + len(head) <= MOST_KEPT_BYTES:
                self._kept[file.key] = head
                self._kept_bytes += len(head)
        return begins

    def _blocks(self, source: _Source) -> Iterator[tuple[_Source, Block]]:
        parts: list[tuple[int, bytes]] = []
        size = 0
        for number in source.numbers:
            for lines in self._lines(self._files[number]):
                parts.append((number, lines))
                size += len(lines)
                if size >= BLOCK:
                    yield source, Block(parts)
                    parts, size = [], 0
        if parts:
            yield source, Block(parts)

    def _lines(self, file: ReadFile) -> Iterator[bytes]:
        """Yields the lines of a file after its header, with marks, many at a time.

        Raises Unsure beyond the limits, and where a quote is not closed.
        """
        if file.key in self._kept:
            lines = MarkedLines((self._kept[file.key],), file, self._reading, not_text=False)
            yield from self._whole_lines(iter(lines))
        else:
            with self._address.open(file.path, decompress=False) as stream:
                lines = MarkedLines(iter(lambda: stream.read(BLOCK), b""), file, self._reading, not_text=False)
                yield from self._whole_lines(iter(lines))
        if lines.is_open:
            raise Unsure

    def _whole_lines(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        limits, total, rest, is_first = self._reading.limits, 0, b"", True
        for chunk in chunks:
            total += len(chunk)
            data = rest + chunk if rest else chunk
            end = data.rfind(b"\n") + 1
            lines, rest = data[:end], data[end:]
            if total > limits.file_bytes or len(rest) > LONGEST_LINE:
                raise Unsure
            self._expect_short(lines)
            if end and is_first:
                lines, is_first = _without_header(lines), False
            if lines:
                yield lines
        self._expect_short(rest)
        if rest and is_first:
            _without_header(rest + b"\n")
        elif rest:
            yield rest + b"\n"

    def _expect_short(self, lines: bytes) -> None:
        """Raises Unsure where a line is longer than the limit."""
        longest = self._reading.limits.line_bytes
        if longest < LONGEST_LINE + BLOCK and len(lines) > longest and max(map(len, lines.split(b"\n"))) > longest:
            raise Unsure

    # ------------------------------------------------------------------ the rows
    def _read(self, known: tuple[Column, ...]) -> None:
        """Reads all rows, with the types that the first blocks suggest, and if these do not fit, with those that all rows permit."""
        have = {column.name.lower() for column in known}
        new = list(dict.fromkeys(name for source in self._sources for name in source.group.names if name.lower() not in have))
        asked = [name for name in new if name.lower() not in self._types]
        first = [block for source in self._sources for block in itertools.islice(self._blocks(source), 1)]
        self.inferred = self._inferred(asked, iter(first)) if asked else {}
        types = {name: self._types[name.lower()] for name in new if name.lower() in self._types}
        for last in (False, True):
            found = {name: types.get(name) or self.inferred[name] for name in new}
            self.valueless = tuple(name for name, type_ in found.items() if type_ is None)
            self.columns = known + tuple(Column(name, type_) for name, type_ in found.items() if type_ is not None)
            self.schema = rows_schema(self.columns, [arrow_type(column.type) for column in self.columns])
            if self._convert():
                return
            if last:
                raise Unsure  # a file has changed meanwhile
            self._forget()
            self.inferred = self._inferred(asked, self._all_blocks())

    def _all_blocks(self) -> Iterator[tuple[_Source, Block]]:
        for source in self._sources:
            yield from self._blocks(source)

    def _inferred(self, names: Sequence[str], blocks: Iterator[tuple[_Source, Block]]) -> dict[str, str | None]:
        """The first type that fits all texts of a column; None if there are none. Doubtful lines are left out."""
        possible: dict[str, int | None] = dict.fromkeys(names)

        def work(_: None, source: _Source, cells: Cells) -> None:
            for name, texts in zip(source.group.names, cells.columns, strict=True):
                if name not in possible or texts.null_count == len(texts):
                    continue
                before = possible[name]
                found = possible_types(texts, ALL_TYPES if before is None else before)
                with self._lock:
                    now = possible[name]
                    possible[name] = found if now is None else found & now

        self._in_threads(blocks, lambda: None, work)
        return {name: None if bits is None else type_of_mask(bits) for name, bits in possible.items()}

    def _convert(self) -> bool:
        """Converts and writes all rows. Returns False as soon as a text of a new column is not of the type that was assumed."""
        fits = True

        def work(writer: FilesWriter, source: _Source, cells: Cells) -> None:
            nonlocal fits
            if not fits:
                return
            texts = {name.lower(): column for name, column in zip(source.group.names, cells.columns, strict=True)}
            if not self._are_inferred(texts):
                fits = False
                return
            self._write(writer, texts, cells)

        def begin() -> FilesWriter:
            writer = self._writer()
            self._writers.append(writer)
            return writer

        self._in_threads(self._all_blocks(), begin, work)
        return fits

    def _are_inferred(self, texts: Mapping[str, pa.Array]) -> bool:
        for name, type_ in self.inferred.items():
            column = texts.get(name.lower())
            if column is None or column.null_count == len(column) or type_ == "string":
                continue
            if type_ is None or not is_of_type(column, type_):
                return False
        return True

    def _write(self, writer: FilesWriter, texts: Mapping[str, pa.Array], cells: Cells) -> None:
        count, files = len(cells.files), pa.array(cells.files)
        columns = [self._keys.take(files), self._modified.take(files)]
        doubtful: pa.Array | None = None
        for column, field in zip(self.columns, list(self.schema)[2:], strict=True):
            own = texts.get(column.name.lower())
            if own is None:
                columns.append(pa.nulls(count, field.type))
                continue
            found, unsure = values(own, column.type, is_declared=column.name.lower() in self._types)
            columns.append(found)
            if unsure is not None:
                doubtful = unsure if doubtful is None else pc.or_(doubtful, unsure)  # pyright: ignore[reportAttributeAccessIssue]
        rows, numbers = pa.table(columns, schema=self.schema), cells.files
        aside = list(cells.doubtful)
        if doubtful is not None:
            mask = doubtful.to_numpy(zero_copy_only=False)
            aside += zip(numbers[mask].tolist(), cells.lines.where(doubtful), strict=True)
            rows, numbers = rows.filter(pc.invert(doubtful)), numbers[~mask]  # pyright: ignore[reportAttributeAccessIssue]
        with self._lock:
            self._counts += np.bincount(numbers, minlength=len(self._files))
            for number, line in aside:
                self._doubtful.setdefault(number, []).append(self._quoting.originals(line))
                self._doubtful_bytes += len(line)
            self._doubts += len(aside)
            if self._doubts > MOST_DOUBTFUL_LINES or self._doubtful_bytes > MOST_DOUBTFUL_BYTES:
                raise Unsure
        writer.add(rows)

    def _writer(self) -> FilesWriter:
        return FilesWriter(str(self._folder), self.schema, (), self._indexed, CHUNK_BYTES)

    def _forget(self) -> None:
        """Takes back what was written and counted."""
        for writer in self._writers:
            writer.discard()
        self._writers, self._doubtful = [], {}
        self._doubts = self._doubtful_bytes = 0
        self._counts[:] = 0

    def _in_threads(
        self, blocks: Iterator[tuple[_Source, Block]], begin: Callable[[], _Own], work: Callable[[_Own, _Source, Cells], None]
    ) -> None:
        """Splits all blocks and works on their cells, in several threads where there is much to do. Each begins something of its own."""
        taking, failed = threading.Lock(), threading.Event()

        def run(own: _Own) -> None:
            try:
                while not failed.is_set():
                    with taking:
                        found = next(blocks, None)
                    if found is None:
                        return
                    source, block = found
                    work(own, source, source.splitter.split(block))
            except BaseException:
                failed.set()
                raise

        threads = 1 if sum(file.size or FEW_BYTES for file in self._files) <= FEW_BYTES else THREADS
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(run, begin()) for _ in range(threads)]:
                done.result()


def _without_header(lines: bytes) -> bytes:
    """The lines after the first one. Raises Unsure where it may not be the header."""
    header, _, rest = lines.partition(b"\n")
    if not header.strip() or b"\r" in header.removesuffix(b"\r") or b"\x00" in header:
        raise Unsure
    return rest
