"""Reads JSON in this process, where the files are small enough to be held: mostly, Spark takes longer to plan than this to read them.

A record is doubtful if it is no JSON by its standard, if Spark would reject it, or if a value is not surely one of its column's type.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.errors import SourceError, SourceInterrupted
from incremental_assets.core.schema import Column
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.files.readers.beginning import HEAD_BYTES, Beginning, expect_text, wide_encoding
from incremental_assets.files.readers.json_texts import BIGINT, DOUBLE, Cells, Splitter
from incremental_assets.files.readers.json_types import Values, columns_of
from incremental_assets.files.readers.local import CHUNK_BYTES, MOST_DOUBTFUL_BYTES, MOST_DOUBTFUL_LINES, PLAIN_NAME
from incremental_assets.files.readers.local_files import LocalFiles, rows_schema
from incremental_assets.files.readers.local_values import Unsure, arrow_type, values
from incremental_assets.files.readers.measure import expect_stored
from incremental_assets.files.readers.read import FileRows
from incremental_assets.files.readers.reading import RESERVED, ReadFile, Reading

MOST_BYTES = 64 << 20
"""So many bytes of files, unpacked, are read here, in a few seconds; Spark reads more in several processes."""
ROWS = 10_000
"""So many records are made Arrow arrays at a time."""
_OPTIONS = frozenset(("multiline", "encoding", "charset"))
_BLANK = b" \t\n\x0b\x0c\r"
_DOUBLES = [str(mask) for mask in range(8) if mask & DOUBLE]
_NO_BIGINTS = [str(mask) for mask in range(8) if not mask & BIGINT]


def reason_against_json(reading: Reading, files: Sequence[ReadFile]) -> str | None:
    """Why files of JSON are not read in this process; None if they may be."""
    if not {name.lower() for name in reading.options} <= _OPTIONS or reading.encoding is not None:
        return "they have options that only Spark knows"
    if any(file.path.lower().endswith(".zst") for file in files):
        return "some are compressed by zstandard"
    if sum(file.size for file in files) > MOST_BYTES:
        return f"they have more than {MOST_BYTES >> 20} MB"
    return None


class _Chunk:
    """Some records: the number of the file of each, its text, and its cells by key."""

    def __init__(self, files: list[int], texts: list[str], cells: list[Cells]) -> None:
        self.files, self.texts = pa.array(files, pa.int64()), pa.array(texts, pa.string())
        keys = dict.fromkeys(key for one in cells for key in one)
        self.cells = {key: pa.array([one.get(key) for one in cells], pa.string()) for key in keys}
        self.counts = Counter(key for one in cells for key in one)


class LocalJsonRows:
    """The rows of files of JSON: the ``LocalRead`` of ``local_read``. Parameters and attributes are those of ``LocalRows``.

    Raises Unsure where Spark has to read the files, and SourceInterrupted where the disk, the machine or the network fails.
    """

    def __init__(self, given: LocalFiles) -> None:
        files = self._files = tuple(given.files)
        self._address, self._reading, self._types = given.address, given.reading, given.types
        self._splitter = Splitter()
        self._counts = [0] * len(files)
        self._doubtful: dict[int, list[bytes]] = defaultdict(list)
        self._doubts = self._doubtful_bytes = 0
        self._unparsed = False
        self.refused: dict[str, str] = {}
        try:
            chunks = list(self._chunks())
            self._name(chunks, given.columns)
            self._writer = FilesWriter(str(given.folder), self.schema, (), given.indexed, CHUNK_BYTES)
            for chunk in chunks:
                self._write(chunk)
        except SourceInterrupted:
            raise
        except (SourceError, pa.ArrowException) as error:
            raise Unsure from error

    @property
    def rows(self) -> dict[str, int]:
        return {file.key: count for file, count in zip(self._files, self._counts, strict=True) if file.key not in self.refused}

    @property
    def doubtful(self) -> dict[str, Sequence[bytes]]:
        return {self._files[number].key: lines for number, lines in sorted(self._doubtful.items())}

    @property
    def as_lines(self) -> Reading:
        """How Spark reads the file of ``lines_of``."""
        return Reading(self._reading.format, {}, self._reading.types, self._reading.limits, by_line=True)

    def lines_of(self, key: str) -> bytes:
        return b"".join(line + b"\n" for line in self.doubtful[key])

    def expect_same(self, odd: FileRows) -> None:
        """Raises Unsure where records that only Spark can parse might have changed the types of new columns."""
        if self.inferred and self._unparsed and any(count.rows for count in odd.counts.values()):
            raise Unsure

    def close(self, others: pa.Table | None = None) -> list[tuple[str, int, int, str]]:
        if others is not None and others.num_rows:
            self._writer.add(others.select(self.schema.names).cast(self.schema))
        self._writer.close()
        return self._writer.files

    # ------------------------------------------------------------------ the files
    def _chunks(self) -> Iterator[_Chunk]:
        """Yields the records of all files that are not doubtful by themselves."""
        files: list[int] = []
        texts: list[str] = []
        cells: list[Cells] = []
        for number, data in enumerate(self._read()):
            for text, own in self._records(number, data):
                files.append(number)
                texts.append(text)
                cells.append(own)
                if len(files) == ROWS:
                    yield _Chunk(files, texts, cells)
                    files, texts, cells = [], [], []
        if files:
            yield _Chunk(files, texts, cells)

    def _read(self) -> Iterator[bytes]:
        """Yields the bytes of each file, as UTF-8; none of those that are refused."""
        total = 0
        with ThreadPoolExecutor(16) as pool:  # threads, as each access to a remote folder waits for the network
            for file, data in zip(self._files, pool.map(self._data, self._files), strict=True):
                if isinstance(data, SourceError):
                    self.refused[file.key] = str(data)
                    yield b""
                    continue
                total += len(data)
                if total > MOST_BYTES:
                    raise Unsure
                yield data

    def _data(self, file: ReadFile) -> bytes | SourceError:
        try:
            expect_stored(file, file.size, self._reading.limits)
            with self._address.open(file.path) as stream:
                data = stream.read(MOST_BYTES + 1)
            expect_text(file, data[:HEAD_BYTES])
        except SourceInterrupted:
            raise
        except SourceError as error:
            return error
        if len(data) > self._reading.limits.file_bytes:
            raise Unsure
        encoding = wide_encoding(data)
        try:
            return data if encoding is None else data.decode(encoding).encode()
        except UnicodeError:
            raise Unsure from None

    def _records(self, number: int, data: bytes) -> Iterator[tuple[str, Cells]]:
        """Yields the records of a file that are not doubtful. Raises Unsure beyond the limits."""
        begins = Beginning.of(data[:HEAD_BYTES], self._reading)
        data = data.removeprefix(b"\xef\xbb\xbf")
        lines = [data] if begins.record else data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if len(line) > self._reading.limits.line_bytes:
                raise Unsure
            if not line.strip(_BLANK):
                continue
            try:
                found = self._splitter.records(line.decode())
            except UnicodeDecodeError:
                self._doubt(number, line)
                continue
            if found is None:
                self._unparsed = True
                self._doubt(number, line)
            for text, cells in found or ():
                if cells is None:
                    self._unparsed = True
                    # An array within an array is no record, but would be records on a line of its own.
                    self._doubt(number, (f"[{text}]" if text.startswith("[") else text).encode())
                    continue
                keys = {key.lower() for key in cells}
                if len(keys) < len(cells) or not keys.isdisjoint(RESERVED):
                    self._doubt(number, text.encode())
                else:
                    yield text, cells

    def _doubt(self, number: int, line: bytes) -> None:
        self._doubts += 1
        self._doubtful_bytes += len(line)
        if b"\n" in line or b"\r" in line or self._doubts > MOST_DOUBTFUL_LINES or self._doubtful_bytes > MOST_DOUBTFUL_BYTES:
            raise Unsure  # it is no line that Spark could read
        self._doubtful[number].append(line)

    # ------------------------------------------------------------------ the rows
    def _name(self, chunks: Sequence[_Chunk], known: Sequence[Column]) -> None:
        """Determines the columns. Raises Unsure for more than the limit, and for names that others may read otherwise."""
        counts: Counter[str] = Counter()
        found: dict[str, list[Values]] = defaultdict(list)
        for chunk in chunks:
            counts += chunk.counts
            for key, cells in chunk.cells.items():
                found[key].append(_values(cells))
        facts = {key: Values.together(found[key]) for key in sorted(found, key=lambda key: (key.lower(), -counts[key], key))}
        have = {column.name.lower() for column in known}
        if len(have | {key.lower() for key in facts}) > self._reading.limits.columns:
            raise Unsure
        self.columns, self._spellings, self.inferred, self.valueless = columns_of(facts, known, self._types)
        if not all(PLAIN_NAME.fullmatch(column.name) for column in self.columns):
            raise Unsure
        self.schema = rows_schema(self.columns, [arrow_type(column.type) for column in self.columns])

    def _write(self, chunk: _Chunk) -> None:
        keys = pa.array([file.key for file in self._files], pa.string())
        modified = pa.array([file.modified for file in self._files], pa.int64()).cast(pa.timestamp("us", "UTC"))
        columns = [keys.take(chunk.files), modified.take(chunk.files)]
        doubtful: pa.Array | None = None
        for column, spellings, field in zip(self.columns, self._spellings, list(self.schema)[2:], strict=True):
            own = [chunk.cells[name] for name in spellings if name in chunk.cells]
            if not own:
                columns.append(pa.nulls(len(chunk.files), field.type))
                continue
            cells = pc.coalesce(*own)  # pyright: ignore[reportAttributeAccessIssue]
            found, unsure = _column(cells, column.type, is_declared=column.name.lower() in self._types)
            columns.append(found)
            if unsure is not None:
                doubtful = unsure if doubtful is None else pc.or_(doubtful, unsure)  # pyright: ignore[reportAttributeAccessIssue]
        rows, numbers = pa.table(columns, schema=self.schema), chunk.files
        if doubtful is not None:
            for number, text in zip(numbers.filter(doubtful).to_pylist(), chunk.texts.filter(doubtful).to_pylist(), strict=True):
                self._doubt(number, text.encode())
            sure = pc.invert(doubtful)  # pyright: ignore[reportAttributeAccessIssue]
            rows, numbers = rows.filter(sure), numbers.filter(sure)
        for number, count in Counter(numbers.to_pylist()).items():
            self._counts[number] += count
        self._writer.add(rows)


def _values(cells: pa.Array) -> Values:
    """What is known of cells, as ``records.keys_of`` finds it."""
    kinds = pc.utf8_slice_codeunits(cells, 0, 1)  # pyright: ignore[reportAttributeAccessIssue]
    found = frozenset(kinds.drop_null().unique().to_pylist())
    numbers = cells.filter(pc.is_in(kinds, pa.array(_NO_BIGINTS))).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
    parts = [text[1:].removeprefix("-").partition(".") for text in numbers]
    before = max((len(whole.lstrip("0")) for whole, _, _ in parts), default=0)
    return Values(found, before, max((len(fraction.rstrip("0")) for _, _, fraction in parts), default=0))


def _column(cells: pa.Array, type_: str, *, is_declared: bool) -> tuple[pa.Array, pa.Array | None]:
    """The values of cells, and which are not surely of the type: see ``local_values.values``."""
    texts = pc.utf8_slice_codeunits(cells, 1)  # pyright: ignore[reportAttributeAccessIssue]
    if type_ != "double":
        return values(texts, type_, is_declared=is_declared)
    sure = pc.is_in(pc.utf8_slice_codeunits(cells, 0, 1), pa.array(_DOUBLES))  # pyright: ignore[reportAttributeAccessIssue]
    doubles = pc.if_else(sure, texts, None).cast(pa.float64())  # pyright: ignore[reportAttributeAccessIssue]
    others, doubtful = values(pc.if_else(sure, None, texts), type_, is_declared=is_declared)  # pyright: ignore[reportAttributeAccessIssue]
    return pc.coalesce(doubles, others), doubtful  # pyright: ignore[reportAttributeAccessIssue]
