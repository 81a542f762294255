"""Reads small Parquet files in this process: Spark takes longer to open each of them than this takes to read it.

A file has no doubtful rows: where a value is not surely the one that Spark reads, Spark reads all files.
"""

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from incremental_assets.core.errors import SourceError, SourceInterrupted
from incremental_assets.core.schema import Column
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.files.readers.columnar import commonest_first, expect_some, footer_within, schema_text
from incremental_assets.files.readers.file_columns import FileColumns
from incremental_assets.files.readers.local import CHUNK_BYTES, PLAIN_NAME
from incremental_assets.files.readers.local_files import LocalFiles, rows_schema
from incremental_assets.files.readers.local_values import Unsure
from incremental_assets.files.readers.measure import expect_stored
from incremental_assets.files.readers.parquet_copy import BATCH, FinerTimes, Footer, converted, has_values
from incremental_assets.files.readers.parquet_types import columns_of, parquet_type, values
from incremental_assets.files.readers.reading import ReadFile, Reading

MOST_BYTES = 64 << 20
"""So many bytes of files are read here, in a few seconds; Spark reads more in several processes."""
MOST_CELLS = 20_000_000
"""The same in values, of which a byte may stand for any number."""
MOST_HELD = 256 << 20
"""The rows that are in memory at a time become no more bytes than this."""
FEWEST_ROWS = 256
"""A file of which even so many rows might become more is left to Spark."""
_CELL = 16
"""The most bytes of a value that is no text, and of where a text is."""
_WRITTEN_BY_SPARK, _OLD_TIMES = b"org.apache.spark.version", (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def reason_against_parquet(reading: Reading, files: Sequence[ReadFile]) -> str | None:
    """Why files of Parquet are not read in this process; None if they may be."""
    if reading.options:
        return "they have options that only Spark knows"
    if any(file.path.lower().endswith(".zst") for file in files):
        return "some are compressed as a whole"
    if sum(file.size for file in files) > MOST_BYTES:
        return f"they have more than {MOST_BYTES >> 20} MB"
    return None


@dataclass(frozen=True)
class _Taken:
    """A file: its bytes, what its footer tells, the columns that have values, and how many rows may be in memory at a time."""

    data: bytes
    footer: Footer
    columns: tuple[Column, ...]
    rows: int


class LocalParquetRows:
    """The rows of files of Parquet. Parameters and attributes are those of ``LocalRows``; no row is doubtful.

    Raises Unsure where Spark has to read the files, and SourceInterrupted where the disk, the machine or the network fails.
    """

    def __init__(self, given: LocalFiles) -> None:
        self._address, self._reading = given.address, given.reading
        self.refused: dict[str, str] = {}
        self.rows: dict[str, int] = {}
        self.valueless: tuple[str, ...] = ()
        try:
            taken, order = self._take(given.files)
            self._name(taken, order, given.columns, given.types)
            self._writer = FilesWriter(str(given.folder), self.schema, (), given.indexed, CHUNK_BYTES)
            for file in given.files:
                if file.key in taken:
                    self.rows[file.key] = self._write(file, taken.pop(file.key))
        except SourceInterrupted:
            raise
        except (SourceError, pa.ArrowException) as error:
            raise Unsure from error

    def close(self, others: pa.Table | None = None) -> list[tuple[str, int, int, str]]:
        """Writes what is not written yet. Returns ``FilesWriter.files``. ``others``: there are none."""
        self._writer.close()
        return self._writer.files

    # ------------------------------------------------------------------ the files
    def _take(self, files: Sequence[ReadFile]) -> tuple[dict[str, _Taken], Sequence[ReadFile]]:
        """Returns the files that are not refused by key, and one of each schema in the order in which their columns join."""
        taken: dict[str, _Taken] = {}
        alike: dict[tuple[str, bool], list[ReadFile]] = defaultdict(list)
        cells = 0
        with ThreadPoolExecutor(16) as pool:  # threads, as each access to a remote folder waits for the network
            for file, found in zip(files, pool.map(self._file, files), strict=True):
                if isinstance(found, SourceError):
                    self.refused[file.key] = str(found)
                    continue
                data, metadata, footer = found
                cells += sum(size.values for size in _sizes(metadata))
                if cells > MOST_CELLS:
                    raise Unsure
                text = schema_text(metadata)
                own = alike[text, footer.is_odd]
                first = taken[own[0].key] if own else None
                if first is not None and footer.carried != first.footer.carried:
                    raise Unsure  # only pyarrow sees a difference
                columns = first.columns if first is not None else columns_of(metadata, footer)
                _expect_newer_times(metadata)
                taken[file.key] = _Taken(data, footer, columns, _rows_at_a_time(metadata))
                own.append(file)
        return taken, [alike[key][0] for key in commonest_first(alike)]

    def _file(self, file: ReadFile) -> tuple[bytes, Any, Footer] | SourceError:
        try:
            expect_stored(file, file.size, self._reading.limits)
            with self._address.open(file.path, decompress=False) as stream:
                data = stream.read(MOST_BYTES + 1)
                is_whole = len(data) <= MOST_BYTES
                expect_some(file, not data)
                found = footer_within(io.BytesIO(data), file, self._reading) if is_whole else None
        except SourceInterrupted:
            raise
        except SourceError as error:
            return error
        if found is None:
            raise Unsure
        return data, *found

    # ------------------------------------------------------------------ the rows
    def _name(self, taken: Mapping[str, _Taken], order: Sequence[ReadFile], known: Sequence[Column], types: Mapping[str, str]) -> None:
        """Determines the columns.

        Raises Unsure where a file does not fit, where a column of the table widens, and for names that others may read otherwise.
        """
        all_columns = FileColumns(self._reading, known, types, _rewritten_by_spark)
        for file in order:
            own = taken[file.key]
            if all_columns.misfit(own.columns) is not None:
                raise Unsure
            all_columns.add(own.columns, own.footer.schema.names)
        self.columns = tuple(all_columns.columns)
        stored = [parquet_type(column.type) for column in self.columns]
        if self.columns[: len(known)] != tuple(known) or None in stored or not all(PLAIN_NAME.fullmatch(c.name) for c in self.columns):
            raise Unsure
        self.schema = rows_schema(self.columns, stored)

    def _write(self, file: ReadFile, own: _Taken) -> int:
        """Writes the rows of a file. Returns how many there are."""
        at = {column.name.lower(): (number, column.type) for number, column in _valued(own.footer.carried, own)}
        count = 0
        for batch in self._batches(own):
            times = pa.repeat(file.modified, batch.num_rows).cast(pa.timestamp("us", "UTC"))
            columns = [pa.repeat(file.key, batch.num_rows), times]
            for column, field in zip(self.columns, list(self.schema)[2:], strict=True):
                number, found = at.get(column.name.lower(), (None, ""))
                if number is None:
                    columns.append(pa.nulls(batch.num_rows, field.type))
                else:
                    columns.append(values(batch.column(number), found, column.type, field.type))
            self._writer.add(pa.table(columns, schema=self.schema))
            count += batch.num_rows
        return count

    def _batches(self, own: _Taken) -> Iterator[pa.RecordBatch]:
        try:
            for batch in converted(io.BytesIO(own.data), own.footer.carried, cuts_times=self._reading.cuts_times, rows=own.rows):
                batch.validate(full=True)  # Spark takes bytes that are no UTF-8 for a text
                yield batch
        except (OSError, FinerTimes) as error:  # pyarrow's, of broken pages
            raise Unsure from error


def _rewritten_by_spark() -> bool:
    raise Unsure


def _valued(carried: pa.Schema, own: _Taken) -> Iterator[tuple[int, Column]]:
    """Yields each column that has values, with its number among all."""
    numbers = [number for number, field in enumerate(own.footer.schema) if has_values(field.type)]
    return zip(numbers, own.columns, strict=True)


# ---------------------------------------------------------------------- footers
@dataclass(frozen=True)
class _Size:
    """How many values a column has in a row group, and the unpacked bytes of its texts. ``is_nested``: a row may have many of them."""

    values: int
    texts: int
    is_nested: bool


def _sizes(metadata: Any) -> Iterator[_Size]:
    nested = [metadata.schema.column(at).max_repetition_level > 0 for at in range(metadata.num_columns)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(metadata.num_columns):
            chunk = group.column(at)
            texts = chunk.total_uncompressed_size if chunk.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") else 0
            yield _Size(chunk.num_values, texts, nested[at])


def _rows_at_a_time(metadata: Any) -> int:
    """So many rows are surely not more than MOST_HELD bytes. Raises Unsure where they are too few.

    Each of the texts of a row group may be the longest one, which stands in the file once.
    """
    sizes = list(_sizes(metadata))
    if sum(size.values * (_CELL + size.texts) for size in sizes if size.is_nested) > MOST_HELD:
        raise Unsure
    of_row = sum(_CELL + size.texts for size in sizes if not size.is_nested)
    rows = min(BATCH, MOST_HELD // max(1, of_row))
    if rows < min(metadata.num_rows, FEWEST_ROWS):
        raise Unsure
    return max(1, rows)


def _expect_newer_times(metadata: Any) -> None:
    """Raises Unsure for a file whose days may be of another calendar before 1582: of Spark 2, or written like its files."""
    facts = metadata.metadata or {}
    version = facts.get(_WRITTEN_BY_SPARK)
    if any(key in facts for key in _OLD_TIMES) or (version is not None and re.match(rb"3\.[1-9]|[4-9]\.|[1-9][0-9]+\.", version) is None):
        raise Unsure
