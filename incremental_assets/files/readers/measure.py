"""Measures whether a file keeps to the limits of stored size, unpacked size and line length, without keeping any of its content."""

from collections.abc import Iterable
from typing import IO

from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import Limits
from incremental_assets.files.readers.reading import ReadFile, Reading, refusal

CHUNK = 1 << 20
"""The number of bytes that are read of a file at a time."""
_ZST_PIECE = 1024
"""The number of bytes of a zst file that are decompressed at a time.

A block of three or four bytes may become 128 KiB (RFC 8878, RLE blocks), and what one piece becomes has to fit into memory."""
_DEFLATED = 1032
"""The largest number of bytes that deflate, the compression of gzip, packs into one."""
_DECODED = 3
"""The largest number of bytes of UTF-8 that a byte of another encoding becomes, as one that is none of that encoding does (U+FFFD)."""


class Meter:
    """Counts the unpacked bytes of a file, which ``feed`` receives in chunks and as UTF-8, and the length of its longest line.

    ``record``: the whole file is one JSON value, so that the limit of a line applies to all of it.
    """

    def __init__(self, file: ReadFile, reading: Reading, *, record: bool) -> None:
        end = reading.option("linesep")
        self._ends = (end.encode(),) if end else (b"\n", b"\r")
        self._file, self._limits, self._record = file, reading.limits, record
        self._total = self._line = 0

    def feed(self, chunk: bytes) -> None:
        """Counts a chunk. Raises SourceError as soon as the file exceeds a limit."""
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
        """Leaves in ``_line`` the length of the line that the chunk ends in, or of its longest line where that is too long."""
        first = min((at for at in (chunk.find(end) for end in self._ends) if at >= 0), default=-1)
        if first < 0:
            self._line += len(chunk)
            return
        longest = self._line + first
        if len(chunk) > self._limits.line_bytes:  # a line within a shorter chunk cannot be too long
            for end in self._ends[1:]:
                chunk = chunk.replace(end, self._ends[0])
            longest = max([longest, *map(len, chunk.split(self._ends[0])[1:-1])])
        last = max(at + len(end) for at, end in ((chunk.rfind(end), end) for end in self._ends) if at >= 0)
        self._line = longest if longest > self._limits.line_bytes else len(chunk) - last


def is_surely_small(size: int, compression: str | None, reading: Reading) -> bool:
    """Whether a text file keeps to the limits whatever its content. ``size``: its stored bytes; ``compression``: None: it has none."""
    limits = reading.limits
    if reading.encoding is not None:
        size *= _DECODED
    if compression is None:
        most = size
    elif compression == "gzip":
        most = size * _DEFLATED
    else:
        return False
    return most <= min(limits.line_bytes, limits.file_bytes)


def expect_stored(file: ReadFile, size: int, limits: Limits) -> None:
    """Raises SourceError for a file whose stored bytes exceed the limit. ``size``: in bytes."""
    if size > limits.file_bytes:
        raise SourceError(refusal(file, limits.too_large(f"it has {size:,} bytes,")))


def unzst(stream: IO[bytes]) -> Iterable[bytes]:
    """Yields the decompressed bytes of all frames of a zst file.

    Raises EOFError for a file that ends within a frame, which zstandard's own reader takes for the end of the file, and ImportError where
    that package is not installed.
    """
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
