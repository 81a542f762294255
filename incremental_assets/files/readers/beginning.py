"""Parses the first bytes of a file: its first lines, whether it is one JSON value, its Avro schema.

Only the result is kept: with many files, the bytes themselves would fill the memory.
"""

import codecs
import csv
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import FileFormat
from incremental_assets.files.archives import no_text
from incremental_assets.files.readers.quoting import BYTE_ORDER_MARK, Quoting
from incremental_assets.files.readers.reading import ReadFile, Reading, refusal

HEAD_BYTES = 256 * 1024
"""The number of bytes that are read of the beginning of each file, after decompression."""
_NUMBER, _DAY = re.compile(r"\s*[+-]?[0-9]+([.,][0-9]+)?\s*\Z"), re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?\Z")
_WIDE = {
    b"\0\0\0\1": "utf-32-be",
    b"\1\0\0\0": "utf-32-le",
    b"\0\1\0\1": "utf-16-be",
    b"\1\0\1\0": "utf-16-le",
}
"""The encodings of JSON by which of its first four bytes are not zero."""
_LINE_END = re.compile(r"\r\n|\n|\r")
LINES = 50
"""So many lines are looked at, to see whether the first one has the form of those that follow."""
_NAMED_SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=(\\t|[^\r\n\"]{1,4}?)\"?(?:\r\n|\n|\r)", re.IGNORECASE)
csv.field_size_limit(max(csv.field_size_limit(), HEAD_BYTES))


@dataclass(frozen=True)
class Beginning:
    """The beginning of one file.

    ``whole``: the file ends within its first HEAD_BYTES bytes. ``blank``: those are empty, or white space only.
    Of CSV: ``separator``: that the first line names (``sep=;``, as Excel has it), if it does; all else is of what follows. ``first``: the
    cells of the first line; ``lines``: how many lines were found, at most LINES; ``data``: the first line looks like data, as one of its
    cells is a number or a date like the cell below it; ``trouble``: why the first line cannot be used, else None; ``title``: so many lines
    seem to stand before the header, as no later line has the form of the first one.
    Of JSON: ``record``: the file is one array or object, and not one record per line.
    Of Avro: ``schema``: the part of the file's header that holds the schema; empty: it was not found.
    """

    whole: bool
    blank: bool
    first: tuple[str, ...] = ()
    lines: int = 0
    data: bool = False
    trouble: str | None = None
    separator: str | None = None
    title: int = 0
    record: bool = False
    schema: bytes = b""

    @classmethod
    def of(cls, head: bytes, reading: Reading) -> "Beginning":
        """Parses the first HEAD_BYTES bytes of a file (all of a shorter one), decompressed and as UTF-8."""
        whole, columnar = len(head) < HEAD_BYTES, reading.format in (FileFormat.PARQUET, FileFormat.AVRO)
        if columnar:
            begin = head.find(b"avro.schema") if reading.format is FileFormat.AVRO else -1
            # The header's end is left out: a random synchronization marker follows, which differs between files of the same schema.
            return cls(whole, not head, schema=head[begin : head.find(b"\x00", begin)] if begin >= 0 else b"")
        text = head.decode("utf-8-sig", errors="replace")
        blank = not text.strip()
        if reading.format is FileFormat.JSON:
            return cls(whole, blank, record=is_whole(head, reading))
        if reading.format is FileFormat.TEXT or blank:
            return cls(whole, blank)
        named = _NAMED_SEPARATOR.match(head)
        if named is not None:
            separator = named[1].decode(errors="replace").replace("\\t", "\t")
            return replace(cls.of(head[named.end() :], reading.separated_by(separator)), separator=separator, whole=whole)
        try:
            at, lines = first_lines(reading, head)
        except csv.Error as error:
            return cls(whole, blank, trouble=f"its first line cannot be read: {error}")
        if not lines:
            return cls(whole, blank)
        if len(lines[0]) > reading.limits.columns:
            return cls(whole, blank, trouble=reading.limits.too_many(len(lines[0]), "cells in its first line"))
        if any("\ufffd" in cell for cell in lines[0]):
            return cls(whole, blank, trouble="its first line is not UTF-8; say options: {encoding: windows-1252}, or whichever it is")
        quoting = Quoting(reading)
        lines = [[quoting.original_text(cell) for cell in line] for line in lines]
        data = len(lines) > 1 and any(kind.match(a) and kind.match(b) for a, b in zip(*lines[:2], strict=False) for kind in (_NUMBER, _DAY))
        title = _title(lines) if whole or len(lines) == LINES else 0
        return cls(whole, blank, tuple(lines[0]), len(lines), data, title=at[title] if title else 0)


def expect_text(file: ReadFile, head: bytes) -> None:
    """Raises SourceError where the first bytes of a file, decompressed, are those of an archive or of another format than text."""
    reason = no_text(head)
    if reason is not None:
        raise SourceError(refusal(file, reason))


def wide_encoding(head: bytes) -> str | None:
    """The encoding of JSON that has two or four bytes for a character, by its first bytes; None: it has another one.

    Its first two characters are ASCII in any case, so that it is recognized without a mark, too.
    """
    for encoding, mark in (("utf-32", codecs.BOM_UTF32_LE), ("utf-32", codecs.BOM_UTF32_BE)):
        if head.startswith(mark):
            return encoding
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return _WIDE.get(bytes(byte != 0 for byte in head[:4]))


def is_whole(head: bytes, reading: Reading) -> bool:
    """Whether a JSON file is one array or one object over several lines, by its first bytes.

    If its first line is a complete JSON value, the file has one record per line, except where that line is an array and all of the file.
    """
    if reading.by_line or reading.is_true("multiline"):
        return not reading.by_line
    text = head.decode("utf-8-sig", errors="replace").strip()
    first, _, rest = text.partition("\n")
    if _is_json(first):
        return first.lstrip().startswith("[") and not rest.strip()
    if text.startswith("["):
        return True
    if len(head) < HEAD_BYTES and _is_json(text):
        return True
    return first.rstrip().endswith(("{", ",", ":", "["))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _split(text: str, end: re.Pattern[str]) -> Iterator[str]:
    """Yields the lines one by one, so that those after the last one needed are never split."""
    at = 0
    for found in end.finditer(text):
        yield text[at : found.start()]
        at = found.end()
    yield text[at:]


def _title(lines: Sequence[Sequence[str]]) -> int:
    """Which line looks like a header, and has as many cells as all that follow; 0: none does after the first one.

    None does if any later line has as many cells as the first one.
    """
    counts = [len(line) for line in lines]
    for at in range(1, len(lines) - 1):
        cells = [cell.strip() for cell in lines[at]]
        like_names = len(cells) > 1 and all(cells) and len(set(cells)) == len(cells) and not any(map(_NUMBER.match, cells))
        if like_names and set(counts[at:]) == {counts[at]} and counts[0] not in counts[1:]:
            return at
    return 0


def first_lines(reading: Reading, head: bytes) -> tuple[Sequence[int], list[list[str]]]:
    """Returns the first LINES lines that are neither empty nor a comment: their numbers, and their cells with marks. Raises csv.Error."""
    separator, comment = reading.separator, reading.option("comment")
    end = reading.option("linesep")
    text = Quoting(reading).marked(head.removeprefix(BYTE_ORDER_MARK), False, not_text=True)[0].decode(errors="replace")
    lines = _split(text, re.compile(re.escape(end)) if end else _LINE_END)
    some = ((i, line) for i, line in enumerate(lines) if line.strip() and not (comment and line.startswith(comment)))
    found = list(itertools.islice(some, LINES))
    at, full = [i for i, _ in found], [line for _, line in found]
    # Python's csv module takes separators of one character only.
    if len(separator) > 1:
        return at, [line.split(separator) for line in full]
    quote = '"' if reading.option("quote") is None else reading.option("quote") or None
    escape = reading.option("escape")
    doubled = escape is None or escape in ('"', quote)
    form = {
        "delimiter": separator,
        "quotechar": quote,
        "quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        "doublequote": doubled,
        "escapechar": None if doubled else escape,
    }
    return at, [next(csv.reader([line], **form), [""]) for line in full]
