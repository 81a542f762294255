"""A folder of an object store, through the driver that the lake uses.

The driver names no key with ``//``, ``/./``, ``/../`` or control characters in it, and returns nothing of a folder that has one.
"""

import errno
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError
from pyarrow.fs import FileInfo, FileSelector, FileType, S3FileSystem

from incremental_assets.core.files import FileStamp
from incremental_assets.delta.store import bucket_at, open_object
from incremental_assets.files.beneath import NotRead
from incremental_assets.files.trees import NoPath, micros

_UNNAMED = re.compile(r"\.\.?|.*[\x00-\x1f\x7f].*", re.DOTALL)
"""Matches what the driver refuses as a part of a key."""
_AT_ONCE = 16


class StoreTree:
    """Raises BaseError for settings of which no store can be made."""

    def __init__(self, url: str) -> None:
        self._store, self._root = bucket_at(url)
        self._bucket = url.split("/")[2] if url.startswith("s3") else None
        self._folders: dict[str, frozenset[str]] = {}  # the names of the sub-folders of each folder that was listed
        self.vanished = False

    def entries(self, folder: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        here = self._path(folder)
        try:
            found = obstore.list_with_delimiter(self._store, here or None)
        except InvalidPathError as error:
            if self._bucket is None:
                what = str(error).partition("\n")[0]
                raise NotRead(f"has an object whose name hides all others of the folder. Rename it. ({what})") from None
            yield from self._one_by_one(here, self._bucket)
            return
        if here and not found["objects"] and not found["common_prefixes"]:
            raise FileNotFoundError(here)
        folders = [path.rpartition("/")[2] for path in found["common_prefixes"]]
        self._folders[folder] = frozenset(folders)
        yield from ((name, None) for name in folders)
        for one in found["objects"]:
            if one["path"] != here:  # the folder itself, as consoles put it
                yield one["path"].rpartition("/")[2], _stamp(micros(one["last_modified"]), one["size"], one)

    def check(self) -> None:
        if not self._has_objects(self._root):
            raise FileNotFoundError(self._root)

    def has_folder(self, path: str) -> bool:
        above, _, name = path.rpartition("/")
        if above in self._folders:
            return name in self._folders[above]
        try:
            return self._has_objects(self._path(path))
        except (BaseError, ValueError):
            return False

    def open(self, path: str) -> IO[bytes]:
        try:
            return open_object(self._store, self._path(path))
        except FileNotFoundError:  # its text has the store's answer, in many lines
            raise FileNotFoundError(errno.ENOENT, "No such object", path) from None

    def _one_by_one(self, here: str, bucket: str) -> Iterator[tuple[str, FileStamp | Exception | None]]:
        """The entries of a folder with keys that the driver cannot name. Another driver lists it, and ETags are asked for."""
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        files = S3FileSystem(region=region, endpoint_override=os.environ.get("AWS_ENDPOINT_URL"))
        place = f"{bucket}/{here}" if here else bucket
        objects: list[FileInfo] = []
        for one in files.get_file_info(FileSelector(place)):
            if one.path == place:
                yield "", NoPath()
            elif _UNNAMED.fullmatch(one.base_name):
                yield one.base_name, NotRead("has control characters in its name, so that it cannot be asked for. Rename it.")
            elif one.type == FileType.Directory:
                yield one.base_name, None
            else:
                objects.append(one)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for one, found in zip(objects, pool.map(self._stamped, objects), strict=True):
                if found is not None:
                    yield one.base_name, found

    def _stamped(self, one: FileInfo) -> FileStamp | None:
        """The stamp of an object that was listed; None if it has vanished."""
        try:
            return _stamp(one.mtime_ns // 1000, one.size, obstore.head(self._store, one.path.partition("/")[2]))
        except FileNotFoundError:
            self.vanished = True
            return None

    def _has_objects(self, path: str) -> bool:
        try:
            return any(obstore.list(self._store, path or None, chunk_size=1))
        except InvalidPathError:  # it is that of an object there
            return True

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root and path else self._root or path


def _stamp(modified: int, size: int, details: Any) -> FileStamp:
    return FileStamp(modified, size, (details["e_tag"] or "").strip('"') or None)
