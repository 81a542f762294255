"""Files of a folder as partitions: their formats, their keys, and what has changed since they were read.

Belongs here: decisions over paths and stamps, as plain values. A path is relative to the datastore's folder, with ``/`` between its parts.
Does not belong: which files belong together (``file_groups``), listing a folder or opening a file (``files.readers``).
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote_to_bytes

from incremental_assets.core.schema import Column

FILE, MODIFIED = Column("_file", "string"), Column("_file_modified", "timestamp")
"""What each row carries of its file: the key of its partition, and when it was modified."""

LONGEST_KEY = 400
"""Dagster keeps a partition key in a VARCHAR(512) on PostgreSQL and MySQL."""
_KEPT_OF_A_LONG_KEY = 300


# ---------------------------------------------------------------- formats
class FileFormat(str, Enum):
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    TEXT = "text"


EXTENSION = re.compile(r"(?<=[^/])\.(?:(csv|tsv|json|jsonl|ndjson|txt)(?:\.(?:gz|bz2|zst))?|(parquet|avro))\Z", re.IGNORECASE | re.ASCII)
_FORMATS = {"jsonl": FileFormat.JSON, "ndjson": FileFormat.JSON, "txt": FileFormat.TEXT}


def format_of(name: str) -> FileFormat | None:
    """What the extension says, in any case; None for one that is not supported."""
    found = EXTENSION.search(name)
    if found is None:
        return None
    extension = (found[1] or found[2]).lower()
    return _FORMATS.get(extension) or FileFormat(extension)


def is_hidden(path: str) -> bool:
    """A part of the path begins with ``.`` or ``_``: ``_SUCCESS``, ``_temporary/…``, ``.orders.csv.part``. Spark skips these too."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


@dataclass(frozen=True)
class Limits:
    """A file beyond one of these is refused, so that no file can use up the memory or the disk that others need too.

    ``file_bytes``: of a file, as it is stored, and as it is when it is unpacked. ``line_bytes``: of a line, or of a JSON file that is one
    array or object. ``columns``: of a file, and of the table that it makes.
    """

    file_bytes: int = 8 * 1024**3
    line_bytes: int = 64 * 1024**2
    columns: int = 2000

    def too_large(self, what: str) -> str:
        return f"{what} more than max_file_bytes ({self.file_bytes:,}). If it is what it should be, say a higher max_file_bytes"

    def too_long(self, what: str) -> str:
        return f"{what} more than max_line_bytes ({self.line_bytes:,}). If it is what it should be, say a higher max_line_bytes"

    def too_many(self, count: int, what: str) -> str:
        """``what`` there are so many of."""
        return f"it has {count:,} {what}, more than max_columns ({self.columns:,}). If they are names and no data, say a higher max_columns"


LONGEST_LINE = 2**31 - 2**20
"""The JVM has no longer arrays, and needs a little of them itself."""


# ---------------------------------------------------------------- partition keys
# Lookbehinds see the path as it was: of several dots, and of several slashes, only the first one stays as it is.
_NOT_AS_IT_IS = re.compile(r"[^A-Za-z0-9_\-./=+,@]|(?<![^./])\.|\.\Z|(?<![^/])/|/\Z")
_TORN = re.compile(r"%[0-9A-F]?\Z")


def encode_path(path: str) -> str:
    """The partition key of a file: ``sales/order 1.csv`` → ``sales/order%201.csv``. Two files never share one.

    Made of ``A-Za-z0-9_-./=+,@`` and ``%XX``, without ``..``: in Dagster ``...`` joins the two ends of a range. Names that are no UTF-8 are
    taken as Python has them. A long one ends in ``~`` and a hash, and cannot be decoded.
    """
    # As Latin-1 each byte is one character.
    raw = path.encode("utf-8", "surrogateescape").decode("latin-1")
    key = _NOT_AS_IT_IS.sub(lambda match: f"%{ord(match[0]):02X}", raw)
    if len(key) <= LONGEST_KEY:
        return key
    return f"{_TORN.sub('', key[:_KEPT_OF_A_LONG_KEY])}~{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def decode_path(key: str) -> str | None:
    """The path that ``encode_path`` made ``key`` from; None for a shortened one, and for a text that is no file's key."""
    if not key.isascii():
        return None
    path = unquote_to_bytes(key).decode("utf-8", "surrogateescape")
    return path if encode_path(path) == key else None


def shown_path(path: str) -> str:
    """For messages and metadata: names that are no UTF-8 are not text."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# ---------------------------------------------------------------- what there is to read
@dataclass(frozen=True)
class FileStamp:
    """By what a change of a file is known. ``modified``: microseconds since 1970 UTC."""

    modified: int
    size: int
    etag: str | None = None

    def same(self, other: "FileStamp") -> bool:
        tags = {self.etag, other.etag} - {None}
        return (self.modified, self.size) == (other.modified, other.size) and len(tags) < 2


@dataclass(frozen=True)
class FilePlan:
    """What is to be done, each by modification time and path. ``left``: how many more are to be read, by the next sync."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    waiting: tuple[str, ...]
    left: int

    @property
    def read(self) -> tuple[str, ...]:
        return self.changed + self.new


def plan_files(
    found: Mapping[str, FileStamp],
    known: Mapping[str, FileStamp],
    now: int,
    settle: int,
    asked: Collection[str] | None = None,
    most: int | None = None,
) -> FilePlan:
    """Compares file by file what is in the folder with what was read, so that one that arrives late with an old time is found.

    ``settle``: a file modified less than so many microseconds from ``now`` may still be written and waits; not so one from a clock that
    is far ahead, which would wait for long. ``asked`` (a refresh): just these are read, changed or not, and at once: one that is still
    being written gets another stamp by that, and is read again. ``most``: at most so many are read, the oldest first.
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
