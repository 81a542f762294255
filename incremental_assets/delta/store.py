"""Reads and writes the objects of a table's folder: on a disk, or in an object store.

Names are relative to the folder, with ``/`` between their parts. Everything raises OSError (of a disk), or obstore's BaseError.
"""

import contextlib
import io
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from incremental_assets.delta.new_file import write_new_file
from incremental_assets.delta.parquet_files import DiskFiles, NewFiles

READ_WHOLE = 8 << 20
"""An object of up to so many bytes is read by one request."""
_BLOCK = 1 << 20
"""So many bytes at least of an object that is read in parts are read by one request."""
_READ_ONCE = 1 << 20
"""A file of rows of up to so many bytes is read once by a process that needs it again soon. No other file ever gets its name."""
_VERSION = re.compile(r"(\d{20})\.json")
_BUCKET = re.compile(r"((?:s3a?|gs|az|azure|abfss?)://[^/]+)/*(.*)", re.DOTALL)


class Folder(Protocol):
    """The folder of a table."""

    def make(self, below: str) -> None:
        """Makes the folder, and one in it, where there are none: a store has none."""
        ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Puts a new object, which is complete as soon as it has its name. Returns False if there is another one of that name.

        An object with the same content counts as the one that was put: an answer was lost, and the request was sent again. So there must be
        something in the content that no other writer has.
        """
        ...

    def get(self, name: str) -> bytes:
        """The content of an object."""
        ...

    def opened(self, name: str, size: int) -> Any:
        """What pyarrow reads an object from, of which the size in bytes is known: a path, or an open file."""
        ...

    def names(self, below: str = "") -> Sequence[str]:
        """The names of what lies directly in the folder, or in the folder ``below`` in it; none if there is no such folder."""
        ...

    def versions(self, since: int) -> Mapping[int, str]:
        """The versions of the table from this one on whose files the log has, in their order. Each with what distinguishes its file from
        another one of that name."""
        ...

    def move_here(self, file: Path, name: str) -> None:
        """Moves a file of this machine's disk into the folder."""
        ...

    def remove(self, name: str) -> None:
        """Removes an object."""
        ...

    def new_files(self) -> NewFiles:
        """What rows are written to, by this process or by a task of Spark."""
        ...


def spark_url(url: str) -> str:
    """The URL by which Spark finds what is at ``url``. Its connectors know S3 as s3a://, and a container of Azure as one of its account.

    Where AZURE_STORAGE_ACCOUNT_NAME is not set, az:// stays: delta-rs, which comes first, says that it is missing.
    """
    scheme, separator, place = url.partition("://")
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if scheme == "s3":
        return f"s3a{separator}{place}"
    if scheme in ("az", "azure") and account:
        container, slash, path = place.partition("/")
        plain = os.environ.get("AZURE_STORAGE_ENDPOINT", "").startswith("http://")
        return f"{'abfs' if plain else 'abfss'}://{container}@{account}.dfs.core.windows.net{slash}{path}"
    return url


def folder_at(address: str) -> Folder:
    """The folder at ``LakeTable.address``."""
    return (
        StoreFolder(address, _store(address, frozenset(storage_options().items())))
        if urlsplit(address).scheme
        else _DiskFolder(os.path.abspath(address))
    )


def packages_of(address: str) -> tuple[str, ...]:
    """What a task of Spark imports that writes into the folder, beside what it needs for a disk."""
    return ("obstore",) if urlsplit(address).scheme else ()


@dataclass(frozen=True)
class _DiskFolder:
    path: str

    def make(self, below: str) -> None:
        os.makedirs(self._at(below), exist_ok=True)

    def put_new(self, name: str, content: bytes) -> bool:
        try:
            write_new_file(self._at(name), [content])
        except FileExistsError:
            return False
        return True

    def get(self, name: str) -> bytes:
        with open(self._at(name), "rb") as file:
            return file.read()

    def opened(self, name: str, size: int) -> Any:
        return self._at(name)

    def names(self, below: str = "") -> Sequence[str]:
        path = self._at(below)
        return os.listdir(path) if os.path.isdir(path) else ()

    def versions(self, since: int) -> Mapping[int, str]:
        found: dict[int, str] = {}
        # All of them are listed: a cleanup of the log removes files in any order, so that one which is not there need not be the end.
        for number in sorted(n for name in self.names("_delta_log") if (n := _number_of(name)) is not None and n >= since):
            with contextlib.suppress(FileNotFoundError):
                file = os.stat(self._at(version_file(number)))
                found[number] = f"{file.st_ino} {file.st_mtime_ns} {file.st_size}"
        return found

    def move_here(self, file: Path, name: str) -> None:
        shutil.move(file, self._at(name))

    def remove(self, name: str) -> None:
        os.remove(self._at(name))

    def new_files(self) -> NewFiles:
        return DiskFiles(self.path)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, *name.split("/"))


@dataclass(frozen=True)
class StoreFolder:
    address: str
    store: ObjectStore

    def make(self, below: str) -> None:
        pass

    def put_new(self, name: str, content: bytes) -> bool:
        _PUT.pop(self.address, None)
        try:
            file = obstore.put(self.store, name, content, mode="create")["e_tag"]
        except BaseError:  # also where the answer was lost: then only the object itself says whether it is there
            try:
                return self.get(name) == content
            except FileNotFoundError:
                pass
            raise
        if file is not None:
            _PUT[self.address] = Put(name, file, content)
        return True

    def put(self, name: str, content: bytes) -> str:
        """Puts an object, which may replace another one. Returns what distinguishes it, as ``log_files`` does."""
        return obstore.put(self.store, name, content)["e_tag"] or ""

    def get(self, name: str) -> bytes:
        return bytes(obstore.get(self.store, name).bytes())

    def get_known(self, name: str, most_bytes: int) -> tuple[bytes, str]:
        """The content of an object, and what distinguishes it, as ``log_files`` has it. Raises ValueError if it has more bytes."""
        found = obstore.get(self.store, name)
        if found.meta["size"] > most_bytes:
            raise ValueError(f"{name} has {found.meta['size']:,} bytes")
        return bytes(found.bytes()), _known_by(found.meta)

    def opened(self, name: str, size: int) -> Any:
        if size <= READ_WHOLE:
            known_by = self.address, frozenset(storage_options().items()), name
            return pa.BufferReader(_read_once(*known_by) if size <= _READ_ONCE else self.get(name))
        return _Object(self.store, name, size)

    def names(self, below: str = "") -> Sequence[str]:
        found = obstore.list_with_delimiter(self.store, below or None)
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in (*found["common_prefixes"], *(one["path"] for one in found["objects"]))]

    def versions(self, since: int) -> Mapping[int, str]:
        named = {_number_of(name.rsplit("/", 1)[-1]): file for name, file in self.log_files(since).items()}
        return dict(sorted((number, file) for number, file in named.items() if number is not None))

    def log_files(self, since: int) -> Mapping[str, str]:
        """What the log has of this version and later ones, by name; each with what distinguishes it from another one of that name."""
        first = f"_delta_log/{max(since, 0):020}"
        found = (one for objects in obstore.list(self.store, "_delta_log", offset=first) for one in objects)
        return {one["path"]: _known_by(one) for one in found if one["path"] >= first}  # some of Azure's stores list everything

    def move_here(self, file: Path, name: str) -> None:
        obstore.put(self.store, name, file)
        file.unlink()

    def remove(self, name: str) -> None:
        obstore.delete(self.store, name)

    def new_files(self) -> NewFiles:
        return _StoreFiles(self.address)


@lru_cache(maxsize=32)
def _read_once(address: str, options: frozenset[tuple[str, str]], name: str) -> bytes:
    return bytes(obstore.get(_store(address, options), name).bytes())


def _known_by(object_: Any) -> str:
    """What distinguishes an object of a store from another one of its name."""
    return object_["e_tag"] or f"{object_['last_modified'].isoformat()} {object_['size']}"


@dataclass(frozen=True)
class Put:
    """An object that this process has put. ``file``: what distinguishes it from another one of that name (``Folder.versions``)."""

    name: str
    file: str
    content: bytes


_PUT: dict[str, Put] = {}
"""The new object that was put last below each address."""


def last_put(address: str, name: str) -> Put | None:
    """The new object of this name, if it is what this process has put last below the address; None if it is not, or not on a store."""
    found = _PUT.get(address)
    return found if found is not None and found.name == name else None


class _StoreFiles(NewFiles):
    """New objects of a store. One that is not larger than a part of an upload is put by one request.

    It is sent to the tasks of Spark, and opens the store there.
    """

    def __init__(self, address: str) -> None:
        self._address, self._open = address, dict[str, _Upload]()

    def create(self, name: str) -> Any:
        self._open[name] = _Upload(obstore.open_writer(from_url(self._address), name))
        return self._open[name]

    def size(self, name: str) -> int:
        return self._open[name].tell()

    def complete(self, name: str) -> None:
        self._open[name].complete()

    def remove(self, name: str) -> None:
        obstore.delete(from_url(self._address), name)


class _Upload(io.RawIOBase):
    """An object that is being written. It is there once it is complete."""

    def __init__(self, writer: Any) -> None:
        self._writer, self._size = writer, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._writer.write(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def complete(self) -> None:
        self._writer.close()


class _Object(io.RawIOBase):
    """An object of which parts are read, each by a request."""

    def __init__(self, store: ObjectStore, name: str, size: int, etag: str | None = None) -> None:
        self._store, self._name, self._size, self._at = store, name, size, 0
        self._same = {"if_match": etag} if etag else {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        options: Any = {"range": (self._at, self._at + length), **self._same}
        data = obstore.get(self._store, self._name, options=options).bytes()
        buffer[:length] = memoryview(data)
        self._at += length
        return length


def is_bucket(url: str) -> bool:
    """Whether the URL is that of a bucket, or of a folder in one."""
    return _BUCKET.fullmatch(url) is not None


def bucket_at(url: str) -> tuple[ObjectStore, str]:
    """The bucket of a URL, and the name of the folder in it, as it is written. Raises obstore's BaseError for wrong settings."""
    parts = _BUCKET.fullmatch(url)
    assert parts is not None
    return _store(parts[1], frozenset(storage_options().items())), parts[2].rstrip("/")


def open_object(store: ObjectStore, name: str) -> IO[bytes]:
    """Opens an object for reading: a small one by one request. Of another one parts are read, which fails once it is replaced."""
    found = obstore.get(store, name)
    size, etag = found.meta["size"], found.meta["e_tag"]
    return io.BytesIO(found.bytes()) if size <= _BLOCK else io.BufferedReader(_Object(store, name, size, etag), _BLOCK)


def version_file(number: int) -> str:
    """The name of the file of a version."""
    return f"_delta_log/{number:020}.json"


def _number_of(name: str) -> int | None:
    """The number of the version whose file in the log has this name; None if it is another file."""
    match = _VERSION.fullmatch(name)
    return None if match is None else int(match[1])


def storage_options() -> dict[str, str]:
    """Options of object stores, such as credentials, from the environment variables that the stores' own tools use."""
    wanted = ("AWS_", "AZURE_", "GOOGLE_")
    return {name: value for name, value in os.environ.items() if name.startswith(wanted)}


@lru_cache(maxsize=64)
def _store(address: str, options: frozenset[tuple[str, str]]) -> ObjectStore:
    """``options``: they are read by obstore from the environment; a store of other ones is another one."""
    return from_url(address)


def has_objects(address: str) -> bool:
    """Whether the object store has any object below this address. Raises obstore's BaseError if it cannot be listed."""
    return any(obstore.list(from_url(address), chunk_size=1))


def refuses_to_replace(address: str, name: str) -> bool:
    """Whether the store refuses a new object of a name that it has: only then are the commits of two hosts kept apart.

    ``address``: ``LakeTable.address``. ``name``: that of an object below it, which is put for this and stays. Raises obstore's BaseError if
    the store cannot be written.
    """
    store = from_url(address) if urlsplit(address).scheme else LocalStore(address)
    for _ in range(2):  # the first one is refused where the object is there from an earlier time, which answers the question as well
        try:
            obstore.put(store, name, b"Put twice, to see that the store refuses it the second time.\n", mode="create")
        except AlreadyExistsError:
            return True
    return False
