"""Whether a file keeps to the limits: its bytes as stored and as unpacked, and its longest line, found out without keeping any of it.

Belongs here: counting. Does not belong: columns and keys, which are counted where they are found; what becomes of a file that does not keep
to them (it is refused).
"""

from collections.abc import Iterable
from typing import IO

from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import Limits
from incremental_assets.files.readers.reading import ReadFile, Reading, refusal

CHUNK = 1 << 20
_ZST_PIECE = 1024
"""Of a zst file, three bytes may be unpacked to 128 KiB: what one piece becomes has to fit into the memory."""
_DEFLATED = 1032
"""Deflate packs no more bytes into one."""


class Meter:
    """Is fed with a file's bytes, unpacked, and raises SourceError where there are too many of them. ``record``: they are one record."""

    def __init__(self, file: ReadFile, reading: Reading, *, record: bool) -> None:
        end = reading.option("linesep")
        self._ends = (end.encode(),) if end else (b"\n", b"\r")
        self._file, self._limits, self._record = file, reading.limits, record
        self._total = self._line = 0

    def feed(self, chunk: bytes) -> None:
        self._total += len(chunk)
        if self._total > self._limits.file_bytes:
            raise SourceError(refusal(self._file, self._limits.too_large("unpacked, it has")))
        if self._record:
            self._line = self._total
        else:
            self._count_lines(chunk)
        if self._line > self._limits.line_bytes:
            what = "it is one JSON value and not one a line, of" if self._record else "it has a line of"
            raise SourceError(refusal(self._file, self._limits.too_long(what)))

    def _count_lines(self, chunk: bytes) -> None:
        first = min((at for at in (chunk.find(end) for end in self._ends) if at >= 0), default=-1)
        if first < 0:
            self._line += len(chunk)
            return
        longest = self._line + first
        if len(chunk) > self._limits.line_bytes:  # else no line within it is too long
            for end in self._ends[1:]:
                chunk = chunk.replace(end, self._ends[0])
            longest = max([longest, *map(len, chunk.split(self._ends[0])[1:-1])])
        last = max(at + len(end) for at, end in ((chunk.rfind(end), end) for end in self._ends) if at >= 0)
        self._line = longest if longest > self._limits.line_bytes else len(chunk) - last


def is_surely_small(size: int, compression: str | None, limits: Limits) -> bool:
    """Whether a text file of so many stored bytes keeps to the limits whatever is in it."""
    if compression is None:
        most = size
    elif compression == "gzip":
        most = size * _DEFLATED
    else:
        return False
    return most <= min(limits.line_bytes, limits.file_bytes)


def expect_stored(file: ReadFile, size: int, limits: Limits) -> None:
    """Raises SourceError for a file that is too large as it is."""
    if size > limits.file_bytes:
        raise SourceError(refusal(file, limits.too_large(f"it has {size:,} bytes,")))


def unzst(stream: IO[bytes]) -> Iterable[bytes]:
    """All frames of a zst file. Raises for one that ends too early: zstandard's own reader takes that for the end of the file."""
    try:
        import zstandard
    except ImportError:
        raise ImportError("the package zstandard is not installed (pip install zstandard)") from None
    frame = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    while chunk := stream.read(_ZST_PIECE):
        while chunk:
            begun = True
            yield frame.decompress(chunk)
            chunk = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
    if begun:
        raise EOFError("it ends in the middle of a zst frame")
