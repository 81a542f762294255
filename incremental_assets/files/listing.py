"""Lists a folder, on a local disk, in an object store or behind any fsspec URL, and opens its files."""

import contextlib
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from fsspec.compression import compr
from fsspec.core import url_to_fs
from fsspec.registry import known_implementations, registry
from fsspec.utils import infer_compression
from obstore.exceptions import BaseError

from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted, SourceUnreachable
from incremental_assets.core.files import FileStamp, is_hidden
from incremental_assets.core.globs import PatternReach, fixed_part
from incremental_assets.delta.aws_profile import expect_no_profile
from incremental_assets.delta.store import is_bucket, spark_url
from incremental_assets.delta.store_errors import reason
from incremental_assets.files.archives import only_file
from incremental_assets.files.beneath import NotRead
from incremental_assets.files.store_tree import StoreTree
from incremental_assets.files.table_folders import NOT_OF_A_TABLE, IsTable, TableFolders
from incremental_assets.files.trees import LocalTree, NoPath, RemoteTree, Tree
from incremental_assets.files.trouble import passing_remedy

_CHUNK = 1 << 20
_RIGHTS = "list and read"
# The last @ ends the password, as a password may contain one. Without a colon there is no password (abfss://container@account).
_PASSWORD = re.compile(r"(://[^:/@]*):(.*)@", re.DOTALL)


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
        if separator and unknown and not is_bucket(url):
            raise ConfigurationError(
                f"{datastore}: path begins with {unknown[0]!r}, which no installed driver of fsspec is for. Use a local folder, an object "
                f"store (s3://…, gs://…, az://…, abfss://…), or install a driver"
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
        return f"{spark_url(url)}/{path}"

    def list(self, prefix: str = "", unseen: dict[str, str] | None = None, wanted: Sequence[str] = ()) -> Iterator[tuple[str, FileStamp]]:
        """Yields path and stamp of each file below the folder ``prefix``, in no particular order; hidden files below it are left out.

        ``wanted``: globs relative to the datastore's folder; only files that one of them matches are yielded. A folder that can have no
        such file is neither listed nor reported. Listing begins at the folder that all globs have in common (``fixed_part``), where that
        lies further down than ``prefix``. Without globs all files are yielded.

        Raises SourceUnreachable where the datastore's folder is not there, or where the folder at which listing begins cannot be read. If
        that folder is not there, it has no files. What cannot be inspected further down, links that are not followed, and folders that are
        tables (``table_folders``) are skipped, and added to ``unseen`` by their paths, with the reason; the caller must not take the files
        there for gone. Without ``unseen``, SourceError is raised.
        """
        tree = self._tree()
        tables = TableFolders(tree)
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
                            table = None if NOT_OF_A_TABLE.search(name) else tables.of(folder)
                            if table is None:
                                yield path, found
                            else:
                                self._skip(table.folder, table, unseen)
                        continue
                    inner = reach.within(name)
                    if found is None:
                        if inner:
                            pending.append((path, inner))
                    elif inner or reach.has(name):  # ``found`` is the exception: its kind and stamp are unknown
                        self._skip(path, found, unseen)
            except (FileNotFoundError, NotADirectoryError) as error:
                if not folder:
                    raise self._unreachable("", error) from None
                tree.vanished = True
            except SourceError:
                raise
            except Exception as error:  # noqa: BLE001 - drivers raise their libraries' own errors, not only OSError
                if folder == start and not isinstance(error, NotRead):
                    raise self._unreachable(folder, error) from None
                self._skip(folder, error, unseen)
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

    def sha256(self, path: str) -> str:
        """The SHA-256 of a file's bytes as they are stored. Raises what ``open`` raises."""
        found = hashlib.sha256()
        with self.open(path, decompress=False) as stream:
            while chunk := stream.read(_CHUNK):
                found.update(chunk)
        return found.hexdigest()

    def descriptor(self, path: str) -> int:
        """Opens a file of a local folder for reading, and returns the descriptor, which the caller closes. Raises what ``open`` raises."""
        assert self.local is not None
        try:
            return LocalTree(str(self.local)).descriptor(path)
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
                if compression == "zip":
                    stream = stack.enter_context(only_file(stream))
                elif compression is not None:
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
        if isinstance(error, NotRead):
            return SourceError(f"{what} {error}")
        remedy = passing_remedy(error)
        if remedy is not None:
            where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
            reason = f"{self._reason(error)}{where}. {remedy}, then sync again"
            return SourceInterrupted(f"{what} could not be read now, though nothing is wrong with the file: {reason}.")
        return SourceError(f"{what} cannot be read: {self._reason(error)}. Is it complete, is it what its name says, and may it be read?")

    def _tree(self) -> Tree:
        local = _local_path(self.url)
        if local is not None:
            return LocalTree(local)
        try:
            if is_bucket(self.url):
                expect_no_profile(self.url)
                return StoreTree(self.url)
            file_system, root = url_to_fs(self.url)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.datastore}: {error}") from None
        except ImportError as error:
            raise ConfigurationError(f"{self.datastore}: {self.display} needs a package that is not installed. {error}") from None
        except Exception as error:  # noqa: BLE001 - drivers raise errors of their own
            raise self._unreachable("", error) from None
        return RemoteTree(file_system, root)

    def _skip(self, path: str, error: Exception, unseen: dict[str, str] | None) -> None:
        """Adds what cannot be inspected to ``unseen``. Raises SourceError where there is none."""
        where = f"{path!r} in {self.display}" if path else f"the folder {self.display}"
        message = f"{self.datastore}: {where} {self._what(error)}"
        if unseen is None:
            raise SourceError(message) from None
        unseen[path] = message

    def _unreachable(self, folder: str, error: Exception) -> SourceUnreachable:
        where = f"{self.display.rstrip('/')}/{folder}" if folder else self.display
        return SourceUnreachable(f"{self.datastore}: the folder {where} {self._what(error)}")

    def _what(self, error: Exception) -> str:
        """The end of a sentence about a folder or file: what is wrong with it, and what to do."""
        local = _local_path(self.url) is not None
        if isinstance(error, NotRead | IsTable):
            return str(error)
        if isinstance(error, NoPath):
            return "has keys with // in them, which Spark cannot read. Rename those objects."
        if isinstance(error, FileNotFoundError):
            hint = "that its disk is mounted" if local else "that there is a file in it: an object store has no empty folders"
            return f"is not there. Check the path, and {hint}."
        if isinstance(error, NotADirectoryError):
            return "is no folder. Name the folder that the files are in."
        if isinstance(error, PermissionError):
            who = f"the user {os.geteuid()} that runs this" if local else "the credentials that are used"
            return f"may not be read ({self._reason(error)}). Allow {who} to list and to read it."
        if isinstance(error, BaseError):
            return f"cannot be read: {reason(error, 'the path', _RIGHTS, 'Check address, credentials and network.')}"
        return f"cannot be read: {self._reason(error)}. Check " + ("its disk." if local else "address, credentials and network.")

    def _reason(self, error: Exception) -> str:
        """The driver's own text, without the URL's password and query, which some drivers repeat."""
        if isinstance(error, BaseError):
            return reason(error, "the path", _RIGHTS).rstrip(".")
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
