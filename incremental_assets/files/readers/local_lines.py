"""Splits lines of CSV into cells in this process: all lines of which it is sure that Spark splits them in the same way.

Of all others, Spark decides: those with a quote in an unusual place, with another number of cells, with bytes that are not UTF-8, with
control characters. So there is one reader that decides what an odd line means. Lines have marks in place of their ends within quotes
(``quoting``), and cells the ends again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from incremental_assets.files.readers.local_values import Unsure
from incremental_assets.files.readers.quoting import END_MARKS

SEPARATORS = frozenset(",;\t|")
"""The separators that are known here."""
MOST_COLUMNS = 500
"""More columns are left to Spark: the expression that recognizes a line grows with them."""
_BLANK = r"\A[\t\r\n ]*\z"


@dataclass(frozen=True)
class Block:
    """Some whole lines, each with its end, of one or several files of the same header.

    ``parts``: the number of each file, and its lines.
    """

    parts: Sequence[tuple[int, bytes]]


@dataclass(frozen=True)
class Cells:
    """The cells of a block.

    ``columns``: their texts by position; an empty cell is NULL. ``files``: the number of each row's file. ``doubtful``: the lines that
    Spark has to split, with the number of their file. ``lines``: the line of each row.
    """

    columns: Sequence[pa.Array]
    files: np.ndarray
    doubtful: Sequence[tuple[int, bytes]]
    lines: "Lines"


class Lines:
    """The lines of some bytes as texts, without copying them. They are found when they are first asked for."""

    def __init__(self, data: bytes | pa.Buffer, is_text: bool = True) -> None:
        self._data, self._is_text = data, is_text
        self._array: pa.Array | None = None

    @property
    def array(self) -> pa.Array:
        if self._array is None:
            ends = np.flatnonzero(np.frombuffer(self._data, np.uint8) == 10) + 1
            offsets = np.concatenate([[0], ends]).astype(np.int32)
            type_ = pa.string() if self._is_text else pa.binary()
            self._array = pa.Array.from_buffers(type_, len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(self._data)])
        return self._array

    def where(self, mask: pa.Array) -> list[bytes]:
        return self.array.filter(mask).cast(pa.binary()).to_pylist()


class Splitter:
    """Splits the lines of files with so many columns."""

    def __init__(self, separator: str, columns: int) -> None:
        self._separator, self._columns = separator, columns
        plain = rf"[^{re.escape(separator)}\"\x00-\x08\x0a-\x1f]*"
        if separator == "\t":
            plain = r"[^\"\x00-\x1f]*"
        cell = rf'(?:{plain}|"(?:[^"\x00-\x08\x0a-\x1f]|"")*")'
        rest = rf"(?:{re.escape(separator)}{cell}){{{columns - 1}}}" if columns > 1 else ""
        self._row = rf"\A{cell}{rest}\r?\n\z"
        # A line that Spark drops as blank may be a row of empty cells to pyarrow.
        self._may_be_blank = columns == 1 or separator.isspace()

    def split(self, block: Block) -> Cells:
        """Splits a block. Raises Unsure where pyarrow finds other rows than the lines that were checked."""
        data = b"".join(lines for _, lines in block.parts)
        numbers = [number for number, _ in block.parts]
        files = np.repeat(np.array(numbers, np.int32), [lines.count(b"\n") for _, lines in block.parts])
        if not self._may_be_blank and _is_plain(data):
            columns = self._cells(data, len(files), quotes=False)
            if columns is not None:
                return Cells(columns, files, (), Lines(data))
        return self._checked(data, files)

    def _checked(self, data: bytes, files: np.ndarray) -> Cells:
        """The cells of those lines that have a usual form; the others are doubtful, and blank ones are none."""
        doubtful: list[tuple[int, bytes]] = []
        if not _is_utf8(data):
            lines = Lines(data, is_text=False)
            readable = np.array([_is_utf8(line) for line in lines.array.to_pylist()])
            broken = lines.where(pa.array(~readable))
            doubtful = list(zip(files[~readable].tolist(), broken, strict=True))
            data, files = b"".join(lines.where(pa.array(readable))), files[readable]
        lines = Lines(data)
        blank = pc.match_substring_regex(lines.array, _BLANK)  # pyright: ignore[reportAttributeAccessIssue]
        usual = pc.match_substring_regex(lines.array, self._row)  # pyright: ignore[reportAttributeAccessIssue]
        rows = pc.and_not(usual, blank)  # pyright: ignore[reportAttributeAccessIssue]
        odd = pc.invert(pc.or_(usual, blank))  # pyright: ignore[reportAttributeAccessIssue]
        if odd.true_count:
            doubtful += zip(files[odd.to_numpy(zero_copy_only=False)].tolist(), lines.where(odd), strict=True)
        # The lines one after the other are what the filtered array consists of.
        kept = lines.array.filter(rows)
        data = kept.buffers()[2][: kept.buffers()[2].size] if len(kept) else pa.py_buffer(b"")
        end = int(np.frombuffer(kept.buffers()[1], np.int32)[len(kept)]) if len(kept) else 0
        data = data[:end]
        columns = self._cells(data, len(kept), quotes=True)
        if columns is None:
            raise Unsure
        return Cells(columns, files[rows.to_numpy(zero_copy_only=False)], doubtful, Lines(data))

    def _cells(self, data: bytes | pa.Buffer, rows: int, *, quotes: bool) -> list[pa.Array] | None:
        """The cells of lines; None if they are not so many rows of the expected number of cells."""
        names = [f"c{i}" for i in range(self._columns)]
        if not rows:
            return [pa.array([], pa.string()) for _ in names]
        try:
            found = csv.read_csv(
                pa.BufferReader(data),
                csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                csv.ParseOptions(delimiter=self._separator, quote_char='"' if quotes else False, double_quote=quotes, escape_char=False),
                csv.ConvertOptions(check_utf8=False, column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
            )
        except pa.ArrowInvalid:
            return None
        if found.num_rows != rows:
            return None
        columns = [_without_empty(column.combine_chunks()) for column in found.columns]
        return [_with_ends(column) for column in columns] if quotes else columns


def _is_plain(data: bytes) -> bool:
    """Whether the bytes are UTF-8 and have nothing that Spark may take for something else than text, a separator or the end of a line."""
    return not any(odd in data for odd in (b'"', b"\r", b"\x00", b"\x01")) and (data.isascii() or _is_utf8(data))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _with_ends(texts: pa.Array) -> pa.Array:
    """The texts with the ends of lines in place of their marks."""
    for end, mark in END_MARKS.items():
        if pc.any(pc.match_substring(texts, mark)).as_py():  # pyright: ignore[reportAttributeAccessIssue]
            texts = pc.replace_substring(texts, mark, end)  # pyright: ignore[reportAttributeAccessIssue]
    return texts


def _without_empty(texts: pa.Array) -> pa.Array:
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks)
    shortest = pc.min(pc.binary_length(texts)).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return texts if shortest else pc.if_else(pc.equal(texts, ""), None, texts)  # pyright: ignore[reportAttributeAccessIssue]
