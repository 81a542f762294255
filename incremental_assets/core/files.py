"""Files of a folder as partitions: formats, limits, partition keys, and the comparison of the folder with what was read before.

Belongs here: decisions about paths and stamps, as plain values. A path is relative to the datastore's folder, with ``/`` between its parts.
Does not belong: which files form a container (``core.file_groups``), listing a folder (``files.listing``), or reading files
(``files.readers``).
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote_to_bytes

from incremental_assets.core.schema import Column

FILE, MODIFIED = Column("_file", "string"), Column("_file_modified", "timestamp")
"""The columns that every row of a file gets: the partition key of the file, and the file's modification time."""

LONGEST_KEY = 400
"""The longest partition key of a file, in characters. Dagster stores partition keys in a VARCHAR(512) on PostgreSQL and MySQL."""
_KEPT_OF_A_LONG_KEY = 300


# ---------------------------------------------------------------- formats
class FileFormat(str, Enum):
    """The format of a file, whatever its compression. ``TEXT`` has one row for each line."""

    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    TEXT = "text"


EXTENSION = re.compile(r"(?<=[^/])\.(?:(csv|tsv|json|jsonl|ndjson|txt)(?:\.(?:gz|bz2|zst))?|(parquet|avro))\Z", re.IGNORECASE | re.ASCII)
_FORMATS = {"jsonl": FileFormat.JSON, "ndjson": FileFormat.JSON, "txt": FileFormat.TEXT}


def format_of(name: str) -> FileFormat | None:
    """The format by the extension of the name, without regard to case; None if the extension is not supported."""
    found = EXTENSION.search(name)
    if found is None:
        return None
    extension = (found[1] or found[2]).lower()
    return _FORMATS.get(extension) or FileFormat(extension)


def is_hidden(path: str) -> bool:
    """Whether a part of the path begins with ``.`` or ``_``: ``_SUCCESS``, ``_temporary/…``, ``.orders.csv.part``. Spark skips them too."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


@dataclass(frozen=True)
class Limits:
    """Limits for one file. A file beyond one of them becomes a failed file, so that it cannot use up the memory or the disk for all others.

    ``file_bytes``: the size of the file, both as it is stored and after decompression. ``line_bytes``: the length of a line, or of a JSON
    file that is a single array or object. ``columns``: the number of columns of the file, and of the table after its columns were added.

    The methods return the reason for refusing a file; ``what`` describes the thing that is beyond the limit.
    """

    file_bytes: int = 8 * 1024**3
    line_bytes: int = 64 * 1024**2
    columns: int = 2000

    def too_large(self, what: str) -> str:
        """The reason for refusing a file because of ``file_bytes``."""
        return f"{what} more than max_file_bytes ({self.file_bytes:,}). If the file is right, set a higher max_file_bytes"

    def too_long(self, what: str) -> str:
        """The reason for refusing a file because of ``line_bytes``."""
        return f"{what} more than max_line_bytes ({self.line_bytes:,}). If the file is right, set a higher max_line_bytes"

    def too_many(self, count: int, what: str) -> str:
        """The reason for refusing a file with ``count`` columns; ``what`` is what they are called."""
        return f"it has {count:,} {what}, more than max_columns ({self.columns:,}). If they are no data, set a higher max_columns"


LONGEST_LINE = 2**31 - 2**20
"""The upper limit for ``line_bytes``: an array of the JVM has less than 2^31 elements, of which the JVM needs a few itself."""


# ---------------------------------------------------------------- partition keys Matches the characters that are encoded. Lookbehinds of
# ``re.sub`` see the original path, not the text replaced so far: of several dots, and of several slashes, in a row only the first one stays
# as it is.
_NOT_AS_IT_IS = re.compile(r"[^A-Za-z0-9_\-./=+,@]|(?<![^./])\.|\.\Z|(?<![^/])/|/\Z")
_TORN = re.compile(r"%[0-9A-F]?\Z")


def encode_path(path: str) -> str:
    """The partition key of a file: ``sales/order 1.csv`` → ``sales/order%201.csv``. Two files never have the same key.

    A key consists of ``A-Za-z0-9_-./=+,@`` and ``%XX`` for every other byte. It contains no ``..``, because ``...`` joins the two ends of a
    range in Dagster. A name that is not UTF-8 must be text as Python has it (``surrogateescape``); its original bytes are encoded. A key of
    more than 400 characters is cut and ends in ``~`` and 128 bits of its SHA-256; it cannot be decoded.
    """
    # Decoding the bytes as Latin-1 makes each byte one character for the regular expression.
    raw = path.encode("utf-8", "surrogateescape").decode("latin-1")
    key = _NOT_AS_IT_IS.sub(lambda match: f"%{ord(match[0]):02X}", raw)
    if len(key) <= LONGEST_KEY:
        return key
    return f"{_TORN.sub('', key[:_KEPT_OF_A_LONG_KEY])}~{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def decode_path(key: str) -> str | None:
    """The path whose key ``encode_path`` made; None for a shortened key, and for a text that is not the key of any file."""
    if not key.isascii():
        return None
    path = unquote_to_bytes(key).decode("utf-8", "surrogateescape")
    return path if encode_path(path) == key else None


def shown_path(path: str) -> str:
    """The path for messages and metadata: bytes that are not UTF-8 become ``\\xNN``, as text with surrogates cannot be encoded."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# ---------------------------------------------------------------- files to read
@dataclass(frozen=True)
class FileStamp:
    """The attributes by which a change of a file is recognized.

    ``modified``: the modification time in microseconds since 1970 UTC. ``size``: in bytes. ``etag``: the store's ETag; None if it has none.
    """

    modified: int
    size: int
    etag: str | None = None

    def same(self, other: "FileStamp") -> bool:
        """Whether the file is unchanged. ETags are compared only if both stamps have one."""
        tags = {self.etag, other.etag} - {None}
        return (self.modified, self.size) == (other.modified, other.size) and len(tags) < 2


@dataclass(frozen=True)
class FilePlan:
    """The result of ``plan_files``: paths, each tuple in the order of modification time and path.

    ``new`` and ``changed``: files to read. ``removed``: files that are no longer in the folder. ``waiting``: files that were modified so
    recently that they may still be written. ``left``: how many more files the next sync has to read, as ``most`` did not allow them.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    waiting: tuple[str, ...]
    left: int

    @property
    def read(self) -> tuple[str, ...]:
        """The files to read, changed ones first."""
        return self.changed + self.new


def plan_files(
    found: Mapping[str, FileStamp],
    known: Mapping[str, FileStamp],
    now: int,
    settle: int,
    asked: Collection[str] | None = None,
    most: int | None = None,
) -> FilePlan:
    """Compares the files of the folder with what was read before, file by file. So a file that arrives late with an old time is found.

    ``found`` and ``known``: the stamps of the files in the folder, and of those that were read, by key. ``now``: microseconds since 1970
    UTC.

    ``settle``: a file that was modified less than this number of microseconds before or after ``now`` may still be written, and waits. A
    time further in the future does not make a file wait: the clock that set it is far ahead, and the wait would be long.

    ``asked``: the files of a refresh; exactly these are read, changed or not, without waiting. A file that is still being written then gets
    another stamp later, and is read again. None: all new and changed files are read.

    ``most``: the highest number of files to read, the oldest first; None: no limit.
    """
    due: list[str] = []
    waiting: list[str] = []
    chosen = None if asked is None else frozenset(asked)
    for path, stamp in found.items():
        before = known.get(path)
        if chosen is not None:
            if path in chosen:
                due.append(path)
        elif before is None or not stamp.same(before):
            (waiting if abs(now - stamp.modified) < settle else due).append(path)
    due = _by_age(due, found)
    reading = due[:most]
    return FilePlan(
        new=tuple(path for path in reading if path not in known),
        changed=tuple(path for path in reading if path in known),
        removed=tuple(_by_age((path for path in known if path not in found), known)),
        waiting=tuple(_by_age(waiting, found)),
        left=len(due) - len(reading),
    )


def _by_age(paths: Iterable[str], stamps: Mapping[str, FileStamp]) -> list[str]:
    return sorted(paths, key=lambda path: (stamps[path].modified, path))
