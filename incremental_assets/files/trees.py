"""What a tree of files is, and two kinds of them: a folder on a local disk, and one behind a driver of fsspec."""

import datetime
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import IO, Any, Protocol

from incremental_assets.core.files import FileStamp
from incremental_assets.files.beneath import LINKED_FOLDER, NOWHERE, NotRead, inside, opened
from incremental_assets.files.mounts import identifies_files

_BLOCK = 1 << 20
"""The block size in bytes for reading remote files. Some drivers read ahead by tens of megabytes; often only the first bytes are needed."""

# The names under which fsspec's drivers return modification time and etag, in order of preference.
_TIME_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_ETAG_KEYS = ("ETag", "etag", "md5Hash")
_SPREAD, _INT64 = 0x9E3779B97F4A7C15, 2**63 - 1
"""A factor that spreads the numbers of inodes over all bits, and the largest integer of 64 bits."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Tree(Protocol):
    """The datastore's folder with all files below it. Paths are relative to it, and ``""`` is the folder itself."""

    vanished: bool
    """Whether a file or folder of a listing was no longer there when it was inspected."""

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        """Yields each name in a folder with the stamp of the file, None for a sub-folder, or the exception that inspecting it raised."""
        ...

    def check(self) -> None:
        """Raises an exception where the datastore's folder itself is not there."""
        ...

    def has_folder(self, path: str) -> bool:
        """Whether there is a folder; False where that cannot be found out."""
        ...

    def open(self, path: str) -> IO[bytes]: ...


class NoPath(ValueError):
    """An object store has keys such as ``a//b.csv``. Hadoop takes two slashes for one, and would look for another object."""


class LocalTree:
    """A folder on a local disk.

    Symbolic links to files within the folder are followed. Links to folders are not: they may lead in circles. They are reported, as a
    folder that was there before may have become one, and its files are not gone then. So are links to what is not there.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._identifies: dict[int, bool] = {}  # by device
        self.vanished = False

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        descriptor = opened(self._root, folder, folder=True)
        try:
            device = os.fstat(descriptor).st_dev
            if device not in self._identifies:
                self._identifies[device] = identifies_files(os.path.join(self._root, folder))
            identifies = self._identifies[device]
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            yield entry.name, None
                            continue
                        seen = entry.stat()
                        # Only regular files: to open a named pipe that nobody writes to blocks for ever.
                        regular = stat.S_ISREG(seen.st_mode)
                        if regular and entry.is_symlink():
                            inside(self._root, os.path.join(folder, entry.name))
                    except FileNotFoundError:
                        if entry.is_symlink():
                            yield entry.name, NotRead(NOWHERE)
                        else:
                            self.vanished = True
                        continue
                    except OSError as error:
                        yield entry.name, error
                        continue
                    if regular:
                        identity = (seen.st_ino * _SPREAD ^ seen.st_ctime_ns) & _INT64 if identifies else None
                        yield entry.name, FileStamp(seen.st_mtime_ns // 1000, seen.st_size, None, identity)
                    elif stat.S_ISDIR(seen.st_mode):
                        yield entry.name, NotRead(LINKED_FOLDER)
        finally:
            os.close(descriptor)

    def check(self) -> None:
        os.stat(self._root)

    def has_folder(self, path: str) -> bool:
        return os.path.isdir(os.path.join(self._root, path))

    def descriptor(self, path: str) -> int:
        """Opens a file for reading; see ``beneath.opened``. The caller closes the descriptor."""
        return opened(self._root, path)

    def open(self, path: str) -> IO[bytes]:
        return os.fdopen(self.descriptor(path), "rb")


class RemoteTree:
    """A folder behind an fsspec driver. Links are refused: they are resolved by the server, and may lead anywhere on it."""

    def __init__(self, file_system: Any, root: str) -> None:
        self._fs, self._root = file_system, root.rstrip("/")
        self._folders: dict[str, frozenset[str]] = {}  # the names of the sub-folders of each folder that was listed
        self.vanished = False

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        # Folders are listed one by one, which bounds the memory; fsspec's own walk does not report sub-folders that it may not enter.
        here = self._path(folder)
        # fsspec keeps driver instances as long as the process lives, and drivers cache listings: an old one would hide new files.
        self._fs.invalidate_cache(here)
        found = self._fs.ls(here, detail=True)
        self._fs.invalidate_cache(here)
        folders = (str(detail["name"]).rstrip("/") for detail in found if detail["type"] == "directory")
        self._folders[folder] = frozenset(path.rpartition("/")[2] for path in folders)
        for detail in found:
            name = str(detail["name"])
            path = name.rstrip("/")
            if path == here and name != here:  # ``here/`` is an object of its own, a marker or a prefix: keys are no paths
                if detail["type"] == "directory":
                    yield "", NoPath()
            elif path != here and (detail["type"] == "link" or detail.get("islink")):
                yield path.rpartition("/")[2], NotRead("is a link, and where it leads cannot be seen from here. Put the file itself there.")
            elif path != here:
                yield path.rpartition("/")[2], None if detail["type"] == "directory" else _stamp(detail)
            elif detail["type"] != "directory" and len(found) == 1:  # drivers list a file as itself
                raise NotADirectoryError(here)

    def check(self) -> None:
        self._fs.invalidate_cache(self._root)
        if not self._fs.isdir(self._root):
            raise FileNotFoundError(self._root)

    def has_folder(self, path: str) -> bool:
        above, _, name = path.rpartition("/")
        if above in self._folders:
            return name in self._folders[above]
        try:
            return bool(self._fs.isdir(self._path(path)))
        except Exception:  # noqa: BLE001 - drivers raise errors of their own
            return False

    def open(self, path: str) -> IO[bytes]:
        return self._fs.open(self._path(path), "rb", block_size=_BLOCK)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _stamp(detail: Mapping[str, Any]) -> FileStamp:
    """The stamp in a driver's details of a file. Raises ValueError where they have no modification time."""
    modified = next((detail[key] for key in _TIME_KEYS if detail.get(key) not in (None, "")), None)
    if modified is None:
        raise ValueError("it does not report when its files were modified")
    etag = next((detail[key] for key in _ETAG_KEYS if detail.get(key)), None)
    return FileStamp(micros(modified), int(detail.get("size") or 0), None if etag is None else str(etag).strip('"'))


def micros(value: object) -> int:
    """Microseconds since 1970 UTC, of a driver's seconds since 1970, datetime or ISO 8601 text. Without a zone it is taken for UTC."""
    if isinstance(value, (int, float)):
        return round(value * 1_000_000)
    if not isinstance(value, datetime.datetime):
        # In Python 3.10, fromisoformat() accepts neither a Z nor fractions of other than three or six digits.
        text = re.sub(r"(\.\d{1,6})\d*", lambda match: match[1].ljust(7, "0"), str(value))
        value = datetime.datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))
    zoned = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    return (zoned - _EPOCH) // datetime.timedelta(microseconds=1)
