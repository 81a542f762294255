"""What is in a folder, local or behind any fsspec URL: the paths and stamps of its files, and the first bytes of one.

Belongs here: listing and reading bytes, the mapping of failures to messages, never showing a password. Does not belong: which files are
read and which belong together (``core.files``), or what is in them.
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
from incremental_assets.core.globs import Reach, fixed_part
from incremental_assets.files.trouble import Leaves, inside, passing_remedy

_BLOCK = 1 << 20
"""Drivers read ahead by tens of megabytes unless told; the first bytes are asked for here."""

# The last userinfo sign counts, as a password may contain one; without a colon it is none (abfss://container@account).
_PASSWORD = re.compile(r"(://[^:/@]*):(.*)@", re.DOTALL)
_TIME_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_ETAG_KEYS = ("ETag", "etag", "md5Hash")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

OnTrouble = Callable[[str, str], None]


@dataclass(frozen=True)
class FolderAddress:
    """Where the files are. ``repr`` carries no password."""

    datastore: str
    url: str = field(repr=False)

    @classmethod
    def parse(cls, datastore: str, url: str | None) -> "FolderAddress":
        """Raises ConfigurationError where this is neither a local folder nor a URL that fsspec has a driver for."""
        if not url or not url.strip():
            raise ConfigurationError(f"{datastore}: path is empty; is the environment variable set that it refers to?")
        scheme, separator, _ = url.partition("://")
        # Of a chain (simplecache::s3://…) each link has to be known.
        unknown = [link for link in scheme.split("::") if link not in known_implementations and link not in registry]
        if separator and unknown:
            raise ConfigurationError(
                f"{datastore}: path begins with {unknown[0]!r}, which no installed driver of fsspec is for. Use a local folder, or install "
                f"one: s3fs for s3://…, gcsfs for gs://…, adlfs for abfss://…"
            )
        return cls(datastore, url)

    @property
    def display(self) -> str:
        """For messages and metadata: no password, no signature."""
        local = _local_path(self.url)
        if local is not None:
            return local
        return _PASSWORD.sub(r"\1:****@", self.url).partition("?")[0]

    @property
    def local(self) -> Path | None:
        """The folder, where it is on this machine's disks."""
        path = _local_path(self.url)
        return None if path is None else Path(path)

    def spark_url(self, path: str) -> str:
        """The URL that Spark reads a file by, as it stands: neither quoted nor are patterns' characters escaped."""
        if self.local is not None:
            return f"file:{self.local / path}"
        url = self.url.rpartition("::")[2].partition("?")[0].rstrip("/")
        return f"{'s3a' + url[2:] if url.startswith('s3:') else url}/{path}"

    def list(self, prefix: str = "", on_trouble: OnTrouble | None = None, wanted: Sequence[str] = ()) -> Iterator[tuple[str, FileStamp]]:
        """Path and stamp of each file below the folder ``prefix``, as they come; hidden ones (below ``prefix``) are left out.

        ``wanted``: globs, relative to the datastore's folder. Then these are files that one of them matches, and no folder is looked into,
        or told of, that can have none. Listing begins at the folder that all of them name (``fixed_part``), where that is further down.

        Raises SourceUnreachable where the datastore's folder is not there, or that where listing begins may not be read; one that is
        not there has no files. What cannot be looked at further down is told to ``on_trouble``, by path and message, and skipped: the
        files there are not known to be gone. Without ``on_trouble`` it raises SourceError.
        """
        tree = self._tree()
        start = _deeper(prefix.strip("/"), wanted)
        reach = Reach(wanted or ("**",)).below(start)
        pending = [(start, reach)] if reach else []
        tree.vanished = not reach
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
                    elif inner or reach.has(name):  # why it cannot be told
                        self._trouble(path, found, on_trouble)
            except (FileNotFoundError, NotADirectoryError) as error:
                if not folder:
                    raise self._unreachable("", error) from None
                tree.vanished = True
            except SourceError:
                raise
            except Exception as error:  # noqa: BLE001 - drivers raise what their libraries do, not only OSError
                if folder == start:
                    raise self._unreachable(folder, error) from None
                self._trouble(folder, error, on_trouble)
        if tree.vanished:
            # Not only a file or a sub-folder, but everything? Then nothing is known to be gone.
            try:
                tree.check()
            except Exception as error:  # noqa: BLE001 - as above
                raise self._unreachable("", error) from None

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a file, decompressed as its name says. Raises SourceError for a file that cannot be read."""
        with self.open(path) as stream:
            return stream.read(size)

    def resolved(self, path: str) -> Path:
        """Where a file of a local folder really is. Raises SourceError where that is outside of the folder."""
        assert self.local is not None
        try:
            return Path(inside(str(self.local), path))
        except OSError as error:
            raise self._unreadable(path, error) from None

    @contextlib.contextmanager
    def open(self, path: str, *, decompress: bool = True) -> Iterator[IO[bytes]]:
        """A file's bytes. Raises SourceError for a file that cannot be read, also for what goes wrong within the block.

        Raises SourceInterrupted where it is the disk, the machine or the network that fails, and not the file.
        """
        tree = self._tree()
        try:
            with contextlib.ExitStack() as stack:
                stream = stack.enter_context(tree.open(path))
                compression = infer_compression(path) if decompress else None
                if compression is not None:
                    stream = stack.enter_context(compr[compression](stream, mode="r"))  # pyright: ignore[reportArgumentType]
                elif decompress and path.lower().endswith(".zst"):
                    raise ImportError("the package zstandard is not installed")
                yield stream
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - as above, and each decompressor has errors of its own
            raise self._unreadable(path, error) from None

    def _unreadable(self, path: str, error: Exception) -> SourceError:
        what = f"{self.datastore}: the file {path!r} in {self.display}"
        if isinstance(error, Leaves):
            return SourceError(f"{what} {error}")
        remedy = passing_remedy(error)
        if remedy is not None:
            where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
            said = f"{self._reason(error)}{where}. {remedy}, then sync again"
            return SourceInterrupted(f"{what} could not be read now, which is not its fault: {said}.")
        return SourceError(f"{what} cannot be read: {self._reason(error)}. Is it complete, is it what its name says, and may it be read?")

    def _tree(self) -> "_Tree":
        local = _local_path(self.url)
        if local is not None:
            return _LocalTree(local)
        try:
            file_system, root = url_to_fs(self.url)
        except ImportError as error:
            raise ConfigurationError(f"{self.datastore}: {self.display} needs a package that is not installed. {error}") from None
        except Exception as error:  # noqa: BLE001 - as above
            raise self._unreachable("", error) from None
        return _RemoteTree(file_system, root)

    def _trouble(self, path: str, error: Exception, on_trouble: OnTrouble | None) -> None:
        message = f"{self.datastore}: {path!r} in {self.display} {self._what(error)}"
        if on_trouble is None:
            raise SourceError(message) from None
        on_trouble(path, message)

    def _unreachable(self, folder: str, error: Exception) -> SourceUnreachable:
        where = f"{self.display.rstrip('/')}/{folder}" if folder else self.display
        return SourceUnreachable(f"{self.datastore}: the folder {where} {self._what(error)}")

    def _what(self, error: Exception) -> str:
        """What is the matter, and what to do."""
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
        text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        password = _PASSWORD.search(self.url)
        for secret in (password[2] if password else "", self.url.partition("?")[2]):
            if secret and _local_path(self.url) is None:
                text = text.replace(secret, "****").replace(unquote(secret), "****")
        return text.rstrip(".?! ")


def _deeper(folder: str, patterns: Sequence[str]) -> str:
    """The folder below ``folder`` that all matches of the patterns lie in."""
    parts = [fixed_part(pattern).split("/") for pattern in patterns]
    same = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))
    deeper = "/".join(names[0] for names in same)
    return deeper if not folder or deeper.startswith(f"{folder}/") else folder


def _local_path(url: str) -> str | None:
    scheme, separator, path = url.partition("://")
    if separator and scheme not in ("file", "local"):
        return None
    return os.path.abspath(os.path.expanduser(path if separator else url))


class _Tree(Protocol):
    """A folder and all below. Paths are relative to it, ``""`` is itself."""

    vanished: bool
    """Something was not there any more when it was looked at."""

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        """Each name in a folder: a file's stamp, None for a sub-folder, or why it cannot be told."""
        ...

    def check(self) -> None:
        """Raises where the folder itself is not there."""
        ...

    def open(self, path: str) -> IO[bytes]: ...


class _NoPath(ValueError):
    """There are keys such as ``a//b.csv``: Hadoop takes two slashes for one, and would look for another file."""


class _LocalTree:
    """Symbolic links to files within the folder are followed. Those to folders are not: they may lead round in circles."""

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
                # To open a pipe would be to wait for ever.
                if stat.S_ISREG(seen.st_mode):
                    yield entry.name, FileStamp(seen.st_mtime_ns // 1000, seen.st_size)

    def check(self) -> None:
        os.stat(self._root)

    def open(self, path: str) -> IO[bytes]:
        return open(inside(self._root, path), "rb")


class _RemoteTree:
    def __init__(self, file_system: Any, root: str) -> None:
        self._fs, self._root = file_system, root.rstrip("/")
        self.vanished = False

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        # Folder by folder, which bounds the memory; fsspec's own walk does not tell of sub-folders that it may not enter.
        here = self._path(folder)
        # Drivers live as long as the process, and remember what they have listed.
        self._fs.invalidate_cache(here)
        found = self._fs.ls(here, detail=True)
        self._fs.invalidate_cache(here)
        for detail in found:
            name = str(detail["name"])
            path = name.rstrip("/")
            if path == here and name != here:  # an object store's: keys are no paths
                if detail["type"] == "directory":
                    yield "", _NoPath()
            elif path != here and (detail["type"] == "link" or detail.get("islink")):
                yield path.rpartition("/")[2], Leaves("is a link, and where it leads cannot be seen from here. Put the file itself there.")
            elif path != here:
                yield path.rpartition("/")[2], None if detail["type"] == "directory" else _stamp(detail)
            elif detail["type"] != "directory" and len(found) == 1:
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
    modified = next((detail[key] for key in _TIME_KEYS if detail.get(key) not in (None, "")), None)
    if modified is None:
        raise ValueError("it does not tell when its files were modified")
    etag = next((detail[key] for key in _ETAG_KEYS if detail.get(key)), None)
    return FileStamp(_micros(modified), int(detail.get("size") or 0), None if etag is None else str(etag).strip('"'))


def _micros(value: object) -> int:
    if isinstance(value, (int, float)):
        return round(value * 1_000_000)
    if not isinstance(value, datetime.datetime):
        # Python 3.10 reads neither a Z nor other than three or six digits of a second.
        text = re.sub(r"(\.\d{1,6})\d*", lambda match: match[1].ljust(7, "0"), str(value))
        value = datetime.datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))
    zoned = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    return (zoned - _EPOCH) // datetime.timedelta(microseconds=1)
