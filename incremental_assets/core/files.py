"""Files of a folder as partitions: formats, limits, partition keys, and the comparison of the folder with what was read before.

A path is relative to the datastore's folder, with ``/`` between its parts.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote, unquote_to_bytes

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


TEXT_ENDING = r"\.(csv|tsv|json|jsonl|ndjson|txt)(?:\.(?:gz|bz2|zst))?\Z"
EXTENSION = re.compile(rf"(?<=[^/])(?:{TEXT_ENDING}|\.(parquet|avro)\Z)", re.IGNORECASE | re.ASCII)
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
    return path.startswith((".", "_")) or "/." in path or "/_" in path


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


# ---------------------------------------------------------------- partition keys
# Matches the characters that are encoded. Lookbehinds of ``re.sub`` see the original path, not the text replaced so far: of several dots,
# and of several slashes, in a row only the first one stays as it is.
_NOT_AS_IT_IS = re.compile(r"[^A-Za-z0-9_\-./=+,@]|(?<![^./])\.|\.\Z|(?<![^/])/|/\Z")
# Matches most paths that are their own keys. They are recognized in a fifth of the time, and share one text, which halves the memory that a
# listing of many files takes.
_SURELY_AS_IT_IS = re.compile(r"[A-Za-z0-9_\-=+,@]+(?:[./][A-Za-z0-9_\-=+,@]+)*")
_TORN = re.compile(r"%[0-9A-F]?\Z")


def encode_path(path: str) -> str:
    """The partition key of a file: ``sales/order 1.csv`` → ``sales/order%201.csv``. Two files never have the same key.

    A key consists of ``A-Za-z0-9_-./=+,@`` and ``%XX`` for every other byte. It contains no ``..``, because ``...`` joins the two ends of a
    range in Dagster. A name that is not UTF-8 must be text as Python has it (``surrogateescape``); its original bytes are encoded. A key of
    more than 400 characters is cut and ends in ``~`` and 128 bits of its SHA-256; it cannot be decoded.
    """
    if len(path) <= LONGEST_KEY and _SURELY_AS_IT_IS.fullmatch(path) is not None:
        return path
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


# ---------------------------------------------------------------- columns of a path
HIVE_FOLDER = re.compile(r"([^=/]+)=([^/]*)")
"""Matches a folder of which Hive and Spark say that it is a value of a column: ``month=01``."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What a folder says instead of a value, where there is none."""


def path_columns(path: str) -> dict[str, str | None]:
    """The columns that the folders of a path name, with the text of their value: ``year=2026/month=01/a.csv``.

    Raises ValueError for names and values that are no text, and where one column has two values.
    """
    found: dict[str, str | None] = {}
    spelt: dict[str, str] = {}
    for match in filter(None, map(HIVE_FOLDER.fullmatch, path.split("/")[:-1])):
        try:
            name, text = (unquote(part, errors="strict") for part in match.groups())
            f"{name}{text}".encode()
        except UnicodeError:
            raise ValueError(f"the folder {shown_path(match[0])!r} has bytes that are no UTF-8") from None
        name = spelt.setdefault(name.lower(), name)
        value = None if text == HIVE_NULL else text
        if found.setdefault(name, value) != value:
            raise ValueError(f"its folders have two values of {name}")
    return found


def shown_path(path: str) -> str:
    """The path for messages and metadata: bytes that are not UTF-8 become ``\\xNN``, as text with surrogates cannot be encoded."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# ---------------------------------------------------------------- the states of files
class FileStamp(NamedTuple):
    """The attributes by which a change of a file is recognized. A tuple, as a listing makes one for each of a million files.

    ``modified``: the modification time in microseconds since 1970 UTC. ``size``: in bytes. ``etag``: the store's ETag; None if it has none.
    ``identity``: a number for the file's inode and for the time at which that was changed; None where these say nothing, as on a network
    mount.
    """

    modified: int
    size: int
    etag: str | None = None
    identity: int | None = None

    def same(self, other: "FileStamp") -> bool:
        """Whether the file is unchanged. ETags, and identities, are compared only if both stamps have one."""
        return self._looks_like(other) and (self.identity == other.identity or self.identity is None or other.identity is None)

    def is_doubtful(self, before: "FileStamp") -> bool:
        """Whether only the identity differs: the file was replaced or rewritten, or merely copied, moved or given other permissions."""
        return self._looks_like(before) and not self.same(before)

    def _looks_like(self, other: "FileStamp") -> bool:
        same_tag = self.etag == other.etag or self.etag is None or other.etag is None
        return self.modified == other.modified and self.size == other.size and same_tag


class FileState(str, Enum):
    """What is known of a file before a sync, or after it. Each file of a container is in one of these states.

    ``DUE``: this sync reads it, as it is new, has changed, was asked for, or is tried again. ``WAITING``: it is to be read, but by a later
    sync: it may still be written, or this sync reads enough other files. ``READ``: the table has the rows of this version of the file.
    ``REFUSED``: this version could not be read; the table has the rows of the version before, if any. ``GONE``: it is no longer in the
    folder, or it belongs to another container now; the table has its rows until they are dropped.

    A sync makes each file that is due one that was read or refused, or lets it wait for the next sync.
    """

    DUE = "due"
    WAITING = "waiting"
    READ = "read"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True)
class ComparedFiles:
    """The result of ``compare_files``: the keys of the files that are due, waiting and gone. All other files are as they were.

    ``due``: changed files first, then new ones. ``waiting``: first the ``recent`` files that were modified so recently that they may still
    be written, then those that ``most`` did not allow. Otherwise the order is that of modification time and key.
    """

    due: tuple[str, ...]
    waiting: tuple[str, ...]
    recent: int
    gone: tuple[str, ...]


def compare_files(
    found: Mapping[str, FileStamp],
    known: Mapping[str, FileStamp],
    now: int,
    settle: int,
    requested: Collection[str] | None = None,
    most: int | None = None,
) -> ComparedFiles:
    """Compares the files of the folder with what was read before, file by file. So a file that arrives late with an old time is found.

    ``found`` and ``known``: the stamps of the files in the folder, and of those that were read, by key. ``now``: microseconds since 1970
    UTC.

    ``settle``: a file that was modified less than this number of microseconds before or after ``now`` may still be written, and waits. A
    time further in the future does not make a file wait: the clock that set it is far ahead, and the wait would be long.

    ``requested``: the files of a refresh; exactly these are read, changed or not, without waiting. A file that is still being written then
    gets another stamp later, and is read again. None: all new and changed files are read.

    ``most``: the highest number of files to read, the oldest first; None: no limit.
    """
    wanted: list[str] = []
    recent: list[str] = []
    if requested is not None:
        wanted = [key for key in dict.fromkeys(requested) if key in found]
    else:
        for key, stamp in found.items():
            state = _state(stamp, known.get(key), now, settle)
            if state is FileState.DUE:
                wanted.append(key)
            elif state is FileState.WAITING:
                recent.append(key)
    wanted = _by_age(wanted, found)
    due, later = (wanted, []) if most is None else (wanted[:most], wanted[most:])
    return ComparedFiles(
        due=tuple(sorted(due, key=lambda key: key not in known)),
        waiting=(*_by_age(recent, found), *later),
        recent=len(recent),
        gone=tuple(_by_age((key for key in known if key not in found), known)),
    )


def _state(stamp: FileStamp, before: FileStamp | None, now: int, settle: int) -> FileState:
    """The state of a listed file by its stamps alone: ``before`` is that of the version that was read, or could not be (None: none)."""
    if before is not None and stamp.same(before):
        return FileState.READ
    return FileState.WAITING if abs(now - stamp.modified) < settle else FileState.DUE


def _by_age(keys: Iterable[str], stamps: Mapping[str, FileStamp]) -> list[str]:
    return sorted(keys, key=lambda key: (stamps[key].modified, key))
