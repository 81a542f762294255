"""Writes rows into Parquet files of a Delta table's folder, with the statistics by which readers skip files.

This module is executed by Spark's Python workers, on machines where this project need not be installed: it is sent there as it is (pickled
by value), so it imports only the standard library and pyarrow.
"""

import contextlib
import datetime
import decimal
import json
import os
import uuid
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CHUNK_BYTES = 160 << 20
"""So many bytes of rows are held in memory, sorted, and written as row groups. Sorting needs as much again, and encoding a part of it."""
FILE_BYTES = 128 << 20
"""A file that has reached this size is closed, and the next rows go into another one."""
ROW_GROUP_ROWS = 1 << 17
"""Readers leave out row groups by their bounds. With a million rows in each, a month of a table takes three times as long to read."""
SAMPLED_ROWS = 5000
"""So many rows, from all over the first chunk of a file, say which columns have a dictionary."""
FEW = 100
"""Texts of which a sample has so few different ones have a dictionary in memory, too. In the file it is that of each row group."""
PREFIX = 32
"""Texts are cut to so many characters in the statistics, as Delta does by default."""
LAST_CHARACTER = "\U0010ffff"

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 both kinds of time are counted from here, and only digits are made of them
_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""0001-01-01 and 9999-12-31 in days since 1970: readers of the statistics understand no other years."""
_MICROS_A_DAY = 86_400_000_000


class NewFiles(Protocol):
    """Where new files are written, which are known by their names."""

    def create(self, name: str) -> Any:
        """What pyarrow writes a file to: a path, or an open file."""
        ...

    def size(self, name: str) -> int:
        """How many bytes of the file are written."""
        ...

    def complete(self, name: str) -> None:
        """Ends a file. It is there afterwards."""
        ...

    def remove(self, name: str) -> None:
        """Removes a file that was begun. Raises any exception where that is not possible."""
        ...


class DiskFiles(NewFiles):
    """New files in a folder of the disk."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create(self, name: str) -> Any:
        return os.path.join(self._folder, name)

    def size(self, name: str) -> int:
        return os.path.getsize(os.path.join(self._folder, name))

    def complete(self, name: str) -> None:
        """Does nothing: pyarrow has closed it."""

    def remove(self, name: str) -> None:
        os.remove(os.path.join(self._folder, name))


class FilesWriter:
    """Takes rows as Arrow tables and writes them to new files.

    ``into``: where they are made; a text is a folder of the disk. ``schema``: the columns, with the Arrow types of their Delta types.
    ``sort``: the columns by which the rows of each chunk of ``chunk_bytes`` are sorted. ``indexed``: how many of the columns get
    statistics. ``files``: what was written and closed so far: name, size in bytes, number of rows and statistics (JSON) of each.
    """

    def __init__(
        self, into: NewFiles | str, schema: pa.Schema, sort: tuple[str, ...], indexed: int, chunk_bytes: int | None = None
    ) -> None:
        self._chunk_bytes = CHUNK_BYTES if chunk_bytes is None else chunk_bytes
        self.files: list[tuple[str, int, int, str]] = []
        self._new = DiskFiles(into) if isinstance(into, str) else into
        self._schema, self._sort, self._indexed = schema, sort, indexed
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._distinct: dict[str, int] | None = None
        self._name = ""
        self._statistics = Statistics(schema, indexed)

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._chunk_bytes:
            self._write_chunk()

    def close(self) -> None:
        """Writes what is still held, and closes the last file."""
        self._write_chunk()
        self._close_file()

    def discard(self) -> None:
        """Removes the files again, as far as that is possible: no commit will name them."""
        with contextlib.suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        for name in [*(file[0] for file in self.files), *([self._name] if self._writer is not None else [])]:
            with contextlib.suppress(Exception):
                self._new.remove(name)

    def _write_chunk(self) -> None:
        if not self._held_bytes and not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        if rows.num_rows == 0:
            return
        if self._writer is None:
            self._distinct = _distinct(rows)
        rows = _with_dictionaries(rows, [name for name, count in (self._distinct or {}).items() if count <= FEW and name not in self._sort])
        if self._sort:
            # The columns are given plain names for this, as pyarrow takes a name such as ".a" for a path.
            keys = pa.table({f"k{i}": rows.column(name) for i, name in enumerate(self._sort)})
            order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])  # pyright: ignore[reportAttributeAccessIssue]
            rows = _taken(rows, order)
        if self._writer is None:
            # A name of its own for each attempt: what a failed task has left is named by no commit, and VACUUM removes it. It would keep
            # files whose names begin with _ or a dot.
            self._name = f"part-{uuid.uuid4()}.zstd.parquet"
            self._writer = pq.ParquetWriter(
                self._new.create(self._name),
                rows.schema,
                compression="zstd",
                store_decimal_as_integer=True,
                store_schema=False,
                use_dictionary=True if self._distinct is None else _repeating(self._distinct, rows.num_rows),  # pyright: ignore[reportArgumentType]
                # The bounds of floats in a file's footer leave NaN out, and Spark would skip its rows.
                write_statistics=[field.name for field in self._schema if not pa.types.is_floating(field.type)],  # pyright: ignore[reportArgumentType]
                write_page_index=True,
            )
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._statistics.add(rows)
        if self._new.size(self._name) >= FILE_BYTES:
            self._close_file()

    def _close_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        self._new.complete(self._name)
        self.files.append((self._name, self._new.size(self._name), self._statistics.rows, self._statistics.as_json()))
        self._statistics = Statistics(self._schema, self._indexed)


def _distinct(rows: pa.Table) -> dict[str, int] | None:
    """How many different values each column has in a sample of the rows; None where columns have parts, which have names of their own."""
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        return None
    step = max(1, rows.num_rows // SAMPLED_ROWS)
    batches = (batch.take(pa.array(range(0, batch.num_rows, step), pa.int64())) for batch in rows.to_batches())
    sample = pa.Table.from_batches(batches, rows.schema)
    counts = [0 if pa.types.is_null(values.type) else pc.count_distinct(values).as_py() for values in sample.columns]  # pyright: ignore[reportAttributeAccessIssue]
    return dict(zip(rows.column_names, counts, strict=True))


def _repeating(distinct: dict[str, int], rows: int) -> list[str]:
    """The columns whose values repeat, so that a dictionary makes them smaller. ``rows``: of how many the sample was taken.

    With one for each column, as is pyarrow's default, columns without repeating values get theirs in vain, for each row group: this takes a
    quarter more of the processor's time, and the file is a tenth larger.
    """
    return [name for name, count in distinct.items() if count <= min(rows, SAMPLED_ROWS) / 2]


def _with_dictionaries(rows: pa.Table, names: list[str]) -> pa.Table:
    """The rows with a dictionary for each of these columns that has texts: they are sorted, compared and encoded in half of the time."""
    for name in names:
        i = rows.schema.get_field_index(name)
        if pa.types.is_string(rows.schema.field(i).type):
            encoded = rows.column(i).dictionary_encode()
            rows = rows.set_column(i, pa.field(name, encoded.type), encoded)
    return rows


def _taken(rows: pa.Table, order: pa.Array) -> pa.Table:
    """The rows in another order. Column by column, each in one piece, it takes two thirds of the time."""
    if rows.nbytes > CHUNK_BYTES * 4:  # of very long texts, which may not fit into one piece
        return rows.take(order)
    return pa.table([pa.chunked_array([column.combine_chunks().take(order)]) for column in rows.columns], schema=rows.schema)


class Statistics:
    """The statistics of one file: the number of rows, and for the first ``indexed`` columns the number of NULLs and the bounds.

    A bound that is missing only costs time, as readers then read the file; a wrong one hides rows from them. So there are bounds only of
    types for which each reader has the same order: none of floats (NaN), of booleans, and of binary values.
    """

    def __init__(self, schema: pa.Schema, indexed: int) -> None:
        self.rows = 0
        self._fields = list(schema)[:indexed]
        self._nulls = [0] * len(self._fields)
        self._lowest: list[Any] = [None] * len(self._fields)
        self._highest: list[Any] = [None] * len(self._fields)

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for i, field in enumerate(self._fields):
            values = rows.column(i)
            self._nulls[i] += values.null_count
            if pa.types.is_dictionary(values.type):  # it has each of them once, and no others
                values = pa.chunked_array([chunk.dictionary for chunk in values.chunks])
            comparable = _comparable(values, field.type)
            if comparable is None or values.null_count == len(values):
                continue
            bounds = pc.min_max(comparable).as_py()  # pyright: ignore[reportAttributeAccessIssue]
            lowest, highest = bounds["min"], bounds["max"]
            self._lowest[i] = lowest if self._lowest[i] is None else min(self._lowest[i], lowest)
            self._highest[i] = highest if self._highest[i] is None else max(self._highest[i], highest)

    def as_json(self) -> str:
        lowest = [_bound(f.type, value, upper=False) for f, value in zip(self._fields, self._lowest, strict=True)]
        highest = [_bound(f.type, value, upper=True) for f, value in zip(self._fields, self._highest, strict=True)]
        # Of a struct, Delta has the numbers of its fields: an object, which these are none of.
        nulls = [None if pa.types.is_struct(f.type) else str(n) for f, n in zip(self._fields, self._nulls, strict=True)]
        parts = {"minValues": lowest, "maxValues": highest, "nullCount": nulls}
        inner = ",".join(f'"{part}":{self._object(values)}' for part, values in parts.items())
        return f'{{"numRecords":{self.rows},{inner},"tightBounds":true}}'

    def _object(self, values: list[str | None]) -> str:
        # It is put together as text, because a decimal must be written with all its digits, which no number of Python's JSON has.
        return "{" + ",".join(f"{_text(f.name)}:{v}" for f, v in zip(self._fields, values, strict=True) if v is not None) + "}"


def _comparable(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """The values in a form that pyarrow compares and returns exactly; None for types without bounds.

    Days and microseconds are compared as integers, as Python has no date before the year 1 or after 9999.
    """
    if pa.types.is_date32(type_):
        return pa.chunked_array([chunk.view(pa.int32()) for chunk in values.chunks], pa.int32())
    if pa.types.is_timestamp(type_):
        return pa.chunked_array([chunk.view(pa.int64()) for chunk in values.chunks], pa.int64())
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_string(type_):
        return values
    return None


def _bound(type_: pa.DataType, value: Any, *, upper: bool) -> str | None:
    """One bound as JSON; None if it has to be left out."""
    if value is None:
        return None
    if pa.types.is_date32(type_):
        if not _FIRST_DAY <= value <= _LAST_DAY:
            return None
        return json.dumps((_EPOCH + datetime.timedelta(days=value)).date().isoformat())
    if pa.types.is_timestamp(type_):
        if not _FIRST_DAY * _MICROS_A_DAY <= value < (_LAST_DAY + 1) * _MICROS_A_DAY:
            return None
        text = (_EPOCH + datetime.timedelta(microseconds=value)).isoformat(timespec="microseconds")
        return json.dumps(text + ("Z" if type_.tz else ""))
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, int):
        return str(value)
    if len(value) <= PREFIX:
        return _text(value)
    if not upper:
        return _text(value[:PREFIX])
    # A text that begins with the prefix lies below the prefix with the last of all characters, unless that very character follows there.
    return None if value[PREFIX] == LAST_CHARACTER else _text(value[:PREFIX] + LAST_CHARACTER)


def _text(value: str) -> str:
    """A text as JSON. Only what must be is escaped: delta-rs reads the escaped form of most characters from U+20000 on as others."""
    return json.dumps(value, ensure_ascii=False)
