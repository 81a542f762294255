"""Lists a folder, on a local disk or behind any fsspec URL, and opens its files.

Belongs here: paths, stamps and bytes of files, and the messages for failures, which never show a password. Does not belong: deciding which
files are read (``core.files``) and which belong together (``core.file_groups``), or parsing them (``files.readers``).
"""

import contextlib
import datetime
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import unquote

from fsspec.compression import compr
from fsspec.core import url_to_fs
from fsspec.registry import known_implementations, registry
from fsspec.utils import infer_compression

from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted, SourceUnreachable
from incremental_assets.core.files import FileStamp, is_hidden
from incremental_assets.core.globs import PatternReach, fixed_part
from incremental_assets.files.trouble import Leaves, inside, passing_remedy

_BLOCK = 1 << 20
"""The block size in bytes for reading remote files. Some drivers read ahead by tens of megabytes; often only the first bytes are needed."""

# The last @ ends the password, as a password may contain one. Without a colon there is no password (abfss://container@account).
_PASSWORD = re.compile(r"(://[^:/@]*):(.*)@", re.DOTALL)
# The names under which fsspec's drivers return modification time and etag, in order of preference.
_TIME_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_ETAG_KEYS = ("ETag", "etag", "md5Hash")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

OnTrouble = Callable[[str, str], None]
"""Is called with the path of what could not be inspected, and with the message."""


@dataclass(frozen=True)
class FolderAddress:
    """The address of a datastore's folder. ``url`` may hold a password, so that ``repr`` leaves it out; ``display`` masks it."""

    datastore: str
    url: str = field(repr=False)

    @classmethod
    def parse(cls, datastore: str, url: str | None) -> "FolderAddress":
        """Raises ConfigurationError for an empty path, and for a URL that fsspec has no driver for. Does not access the folder."""
        if not url or not url.strip():
            raise ConfigurationError(f"{datastore}: path is empty; is the environment variable set that it refers to?")
        scheme, separator, _ = url.partition("://")
        # In a chained URL (simplecache::s3://…) fsspec needs a driver for each part.
        unknown = [link for link in scheme.split("::") if link not in known_implementations and link not in registry]
        if separator and unknown:
            raise ConfigurationError(
                f"{datastore}: path begins with {unknown[0]!r}, which no installed driver of fsspec is for. Use a local folder, or install "
                f"one: s3fs for s3://…, gcsfs for gs://…, adlfs for abfss://…"
            )
        return cls(datastore, url)

    @property
    def display(self) -> str:
        """The address for messages and metadata, without password and without query (which may hold a signature)."""
        local = _local_path(self.url)
        if local is not None:
            return local
        return _PASSWORD.sub(r"\1:****@", self.url).partition("?")[0]

    @property
    def local(self) -> Path | None:
        """The folder as a path of this machine; None where it is behind a URL of another scheme."""
        path = _local_path(self.url)
        return None if path is None else Path(path)

    def spark_url(self, path: str) -> str:
        """The URL by which Spark reads a file. It is neither percent-encoded, nor are the characters of Hadoop's globs escaped.

        ``path``: relative to the datastore's folder.
        """
        if self.local is not None:
            return f"file:{self.local / path}"
        url = self.url.rpartition("::")[2].partition("?")[0].rstrip("/")
        return f"{'s3a' + url[2:] if url.startswith('s3:') else url}/{path}"

    def list(self, prefix: str = "", on_trouble: OnTrouble | None = None, wanted: Sequence[str] = ()) -> Iterator[tuple[str, FileStamp]]:
        """Yields path and stamp of each file below the folder ``prefix``, in no particular order; hidden files below it are left out.

        ``wanted``: globs relative to the datastore's folder; only files that one of them matches are yielded. A folder that can have no
        such file is neither listed nor reported. Listing begins at the folder that all globs have in common (``fixed_part``), where that
        lies further down than ``prefix``. Without globs all files are yielded.

        Raises SourceUnreachable where the datastore's folder is not there, or where the folder at which listing begins cannot be read. If
        that folder is not there, it has no files. What cannot be inspected further down is reported to ``on_trouble`` and skipped; the
        caller must not take the files there for removed. Without ``on_trouble``, SourceError is raised.
        """
        tree = self._tree()
        start = _deeper(prefix.strip("/"), wanted)
        reach = PatternReach(wanted or ("**",)).below(start)
        pending = [(start, reach)] if reach else []
        tree.vanished = not reach  # where nothing is listed, the check at the end still finds that the folder is not there
        while pending:
            folder, reach = pending.pop()
            try:
                for name, found in tree.entries(folder):
                    path = f"{folder}/{name}" if folder else name
                    if is_hidden(name):
                        continue
                    if isinstance(found, FileStamp):
                        if reach.has(name):
                            yield path, found
                        continue
                    inner = reach.within(name)
                    if found is None:
                        if inner:
                            pending.append((path, inner))
                    elif inner or reach.has(name):  # ``found`` is the exception: its kind and stamp are unknown
                        self._trouble(path, found, on_trouble)
            except (FileNotFoundError, NotADirectoryError) as error:
                if not folder:
                    raise self._unreachable("", error) from None
                tree.vanished = True
            except SourceError:
                raise
            except Exception as error:  # noqa: BLE001 - drivers raise their libraries' own errors, not only OSError
                if folder == start:
                    raise self._unreachable(folder, error) from None
                self._trouble(folder, error, on_trouble)
        if tree.vanished:
            # If the whole folder has vanished, as when a disk is unmounted, its files must not count as removed.
            try:
                tree.check()
            except Exception as error:  # noqa: BLE001 - drivers raise errors of their own
                raise self._unreachable("", error) from None

    def head(self, path: str, size: int) -> bytes:
        """The first ``size`` bytes of a file, decompressed according to its extension. Raises what ``open`` raises."""
        with self.open(path) as stream:
            return stream.read(size)

    def resolved(self, path: str) -> Path:
        """The real path of a file of a local folder, after symbolic links. Raises SourceError where it is outside of the folder."""
        assert self.local is not None
        try:
            return Path(inside(str(self.local), path))
        except OSError as error:
            raise self._unreadable(path, error) from None

    @contextlib.contextmanager
    def open(self, path: str, *, decompress: bool = True) -> Iterator[IO[bytes]]:
        """Opens a file for reading its bytes, decompressed according to its extension unless ``decompress`` is False.

        Raises SourceError for a file that cannot be read, also for an exception within the block. Raises SourceInterrupted where the
        disk, the machine or the network fails, and not the file.
        """
        tree = self._tree()
        try:
            with contextlib.ExitStack() as stack:
                stream = stack.enter_context(tree.open(path))
                compression = infer_compression(path) if decompress else None
                if compression is not None:
                    stream = stack.enter_context(compr[compression](stream, mode="r"))  # pyright: ignore[reportArgumentType]
                # fsspec knows the extension only where the package is installed. Without it, the bytes would pass for text.
                elif decompress and path.lower().endswith(".zst"):
                    raise ImportError("the package zstandard is not installed")
                yield stream
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers and decompressors raise errors of their own
            raise self._unreadable(path, error) from None

    def _unreadable(self, path: str, error: Exception) -> SourceError:
        """The error for a file that could not be read; SourceInterrupted where the file is not at fault."""
        what = f"{self.datastore}: the file {path!r} in {self.display}"
        if isinstance(error, Leaves):
            return SourceError(f"{what} {error}")
        remedy = passing_remedy(error)
        if remedy is not None:
            where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
            said = f"{self._reason(error)}{where}. {remedy}, then sync again"
            return SourceInterrupted(f"{what} could not be read now, though nothing is wrong with the file: {said}.")
        return SourceError(f"{what} cannot be read: {self._reason(error)}. Is it complete, is it what its name says, and may it be read?")

    def _tree(self) -> "_Tree":
        local = _local_path(self.url)
        if local is not None:
            return _LocalTree(local)
        try:
            file_system, root = url_to_fs(self.url)
        except ImportError as error:
            raise ConfigurationError(f"{self.datastore}: {self.display} needs a package that is not installed. {error}") from None
        except Exception as error:  # noqa: BLE001 - drivers raise errors of their own
            raise self._unreachable("", error) from None
        return _RemoteTree(file_system, root)

    def _trouble(self, path: str, error: Exception, on_trouble: OnTrouble | None) -> None:
        """Reports what cannot be inspected. Raises SourceError where there is no ``on_trouble``."""
        message = f"{self.datastore}: {path!r} in {self.display} {self._what(error)}"
        if on_trouble is None:
            raise SourceError(message) from None
        on_trouble(path, message)

    def _unreachable(self, folder: str, error: Exception) -> SourceUnreachable:
        where = f"{self.display.rstrip('/')}/{folder}" if folder else self.display
        return SourceUnreachable(f"{self.datastore}: the folder {where} {self._what(error)}")

    def _what(self, error: Exception) -> str:
        """The end of a sentence about a folder or file: what is wrong with it, and what to do."""
        local = _local_path(self.url) is not None
        if isinstance(error, Leaves):
            return str(error)
        if isinstance(error, _NoPath):
            return "has keys with // in them, which Spark cannot read. Rename those objects."
        if isinstance(error, FileNotFoundError):
            hint = "that its disk is mounted" if local else "that there is a file in it: an object store has no empty folders"
            return f"is not there. Check the path, and {hint}."
        if isinstance(error, NotADirectoryError):
            return "is no folder. Name the folder that the files are in."
        if isinstance(error, PermissionError):
            who = f"the user {os.geteuid()} that runs this" if local else "the credentials that are used"
            return f"may not be read ({self._reason(error)}). Allow {who} to list and to read it."
        return f"cannot be read: {self._reason(error)}. Check " + ("its disk." if local else "address, credentials and network.")

    def _reason(self, error: Exception) -> str:
        """The driver's own text, without the URL's password and query, which some drivers repeat."""
        text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        password = _PASSWORD.search(self.url)
        for secret in (password[2] if password else "", self.url.partition("?")[2]):
            if secret and _local_path(self.url) is None:
                text = text.replace(secret, "****").replace(unquote(secret), "****")
        return text.rstrip(".?! ")


def _deeper(folder: str, patterns: Sequence[str]) -> str:
    """The deepest folder that all matches of the patterns lie in, if it is below ``folder``; else ``folder``."""
    parts = [fixed_part(pattern).split("/") for pattern in patterns]
    same = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))
    deeper = "/".join(names[0] for names in same)
    return deeper if not folder or deeper.startswith(f"{folder}/") else folder


def _local_path(url: str) -> str | None:
    """The absolute path that a local URL or path names; None for a URL of another scheme."""
    scheme, separator, path = url.partition("://")
    if separator and scheme not in ("file", "local"):
        return None
    return os.path.abspath(os.path.expanduser(path if separator else url))


class _Tree(Protocol):
    """The datastore's folder with all files below it. Paths are relative to it, and ``""`` is the folder itself."""

    vanished: bool
    """Whether a file or folder of a listing was no longer there when it was inspected."""

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        """Yields each name in a folder with the stamp of the file, None for a sub-folder, or the exception that inspecting it raised."""
        ...

    def check(self) -> None:
        """Raises an exception where the datastore's folder itself is not there."""
        ...

    def open(self, path: str) -> IO[bytes]: ...


class _NoPath(ValueError):
    """An object store has keys such as ``a//b.csv``. Hadoop takes two slashes for one, and would look for another object."""


class _LocalTree:
    """A folder on a local disk.

    Symbolic links to files within the folder are followed. Links to folders are not: they may lead in circles.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self.vanished = False

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        with os.scandir(os.path.join(self._root, folder)) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        yield entry.name, None
                        continue
                    seen = entry.stat()
                    if entry.is_symlink() and stat.S_ISREG(seen.st_mode):
                        inside(self._root, os.path.join(folder, entry.name))
                except FileNotFoundError:
                    self.vanished = True
                    continue
                except OSError as error:
                    yield entry.name, error
                    continue
                # Only regular files: to open a named pipe that nobody writes to blocks for ever.
                if stat.S_ISREG(seen.st_mode):
                    yield entry.name, FileStamp(seen.st_mtime_ns // 1000, seen.st_size)

    def check(self) -> None:
        os.stat(self._root)

    def open(self, path: str) -> IO[bytes]:
        return open(inside(self._root, path), "rb")


class _RemoteTree:
    """A folder behind an fsspec driver. Links are refused: they are resolved by the server, and may lead anywhere on it."""

    def __init__(self, file_system: Any, root: str) -> None:
        self._fs, self._root = file_system, root.rstrip("/")
        self.vanished = False

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        # Folders are listed one by one, which bounds the memory; fsspec's own walk does not report sub-folders that it may not enter.
        here = self._path(folder)
        # fsspec keeps driver instances as long as the process lives, and drivers cache listings: an old one would hide new files.
        self._fs.invalidate_cache(here)
        found = self._fs.ls(here, detail=True)
        self._fs.invalidate_cache(here)
        for detail in found:
            name = str(detail["name"])
            path = name.rstrip("/")
            if path == here and name != here:  # ``here/`` is an object of its own, a marker or a prefix: keys are no paths
                if detail["type"] == "directory":
                    yield "", _NoPath()
            elif path != here and (detail["type"] == "link" or detail.get("islink")):
                yield path.rpartition("/")[2], Leaves("is a link, and where it leads cannot be seen from here. Put the file itself there.")
            elif path != here:
                yield path.rpartition("/")[2], None if detail["type"] == "directory" else _stamp(detail)
            elif detail["type"] != "directory" and len(found) == 1:  # drivers list a file as itself
                raise NotADirectoryError(here)

    def check(self) -> None:
        self._fs.invalidate_cache(self._root)
        if not self._fs.isdir(self._root):
            raise FileNotFoundError(self._root)

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
    return FileStamp(_micros(modified), int(detail.get("size") or 0), None if etag is None else str(etag).strip('"'))


def _micros(value: object) -> int:
    """Microseconds since 1970 UTC, of a driver's seconds since 1970, datetime or ISO 8601 text. Without a zone it is taken for UTC."""
    if isinstance(value, (int, float)):
        return round(value * 1_000_000)
    if not isinstance(value, datetime.datetime):
        # In Python 3.10, fromisoformat() accepts neither a Z nor fractions of other than three or six digits.
        text = re.sub(r"(\.\d{1,6})\d*", lambda match: match[1].ljust(7, "0"), str(value))
        value = datetime.datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))
    zoned = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    return (zoned - _EPOCH) // datetime.timedelta(microseconds=1)
