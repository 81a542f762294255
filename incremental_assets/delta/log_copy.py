"""A copy of the log of a table on an object store, on this machine's disk, which delta-rs opens in the place of the log itself.

delta-rs reads each commit of a log twice, and a checkpoint in parts. For a copy each object is read once, and not again by a process with
the same DAGSTER_HOME (``seen``). An object is known by its name and by what distinguishes it from another one of that name.
"""

import hashlib
import json
import logging
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from incremental_assets.core.shown_text import counted
from incremental_assets.delta import seen
from incremental_assets.delta.deletion_vectors import vector_file
from incremental_assets.delta.log import actions_in, files_of
from incremental_assets.delta.store import Put, StoreFolder, folder_at, version_file

log = logging.getLogger(__name__)

_LAST = "_delta_log/_last_checkpoint"
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")
_VERSION = re.compile(r"_delta_log/(\d{20})\.json")
_MOST_FILES = 40
"""A copy that has so many objects of the log follows no further, and is made anew from the newest checkpoint."""
_MOST_VECTORS = 100
"""So many files of deletion vectors are brought at once."""
_MOST_BYTES = 32 << 20
"""A checkpoint with more bytes is not copied."""
_VECTORS = "deletionVectors"
_FEATURES = frozenset((_VECTORS, "timestampNtz", "columnMapping", "typeWidening", "variantType"))
"""The features of readers with which a table is known by its commits, its checkpoints of one file, and the files of deletion vectors."""


@dataclass
class LogCopy:
    """``files``: the objects that are in the copy, by name. ``delta``: the version that they tell, whose rows must not be read."""

    folder: StoreFolder
    files: dict[str, str]
    delta: DeltaTable
    _here: Path = field(repr=False)

    @property
    def version(self) -> int:
        return self.delta.version()

    @property
    def file(self) -> str:
        """What distinguishes the file of the version, as ``Folder.versions`` has it."""
        return self.files[version_file(self.version)]

    def content(self, name: str, file: str) -> bytes | None:
        """The content of an object; None if it is not in the copy, or is another one."""
        return (self._here / name).read_bytes() if self.files.get(name) == file else None

    def newer(self, files: Mapping[int, str]) -> "LogCopy | None":
        """A copy with these versions besides. None if they do not follow its own one by one, or are too many.

        Raises as ``Folder`` does.
        """
        first, names = self.version + 1, {version_file(number): file for number, file in files.items()}
        follow = list(files) == list(range(first, first + len(files))) and not self._is_full and len(names) <= _MOST_FILES
        return copy_of(self.folder, {**self.files, **names}, self) if follow else None

    def follow(self, own: Put) -> bool:
        """Brings the copy to the version after its own, which this process has put. Returns False if it stays as it is, as it has grown too
        large, or would not be complete. Raises DeltaError, and as ``Folder`` does."""
        if self._is_full:
            return False
        if _VECTORS in (self.delta.protocol().reader_features or ()):
            named = [add["deletionVector"] for action in actions_in(own.content) if "deletionVector" in (add := action.get("add", {}))]
            if not self._bring(named):
                return False
        (self._here / own.name).write_bytes(own.content)
        self.delta.update_incremental()
        self.files[own.name] = own.file
        self._keep({own.name: own.content})
        return True

    def bring_vectors(self) -> bool:
        """Brings the deletion vectors of the version. Returns False if it is not known of all where they are, or if they are too large.

        Raises as ``Folder`` does.
        """
        if _VECTORS not in (self.delta.protocol().reader_features or ()):
            return True
        files = files_of(folder_at(str(self._here)), self.delta)
        return files is not None and self._bring([file.vector for file in files.values() if file.vector is not None])

    def _bring(self, vectors: Sequence[Mapping[str, Any]]) -> bool:
        """Brings the files of these vectors that are not there yet."""
        try:
            names = sorted({name for vector in vectors if (name := vector_file(vector)) is not None} - set(self.files))
            if len(names) > _MOST_VECTORS:
                raise ValueError(f"{counted(len(names), 'file')} have its deletion vectors")
            with ThreadPoolExecutor(8) as threads:
                found = dict(zip(names, threads.map(lambda name: self.folder.get_known(name, _MOST_BYTES), names), strict=True))
        except (FileNotFoundError, ValueError) as error:
            log.debug("%s: its log is not copied: %s", self.folder.address, error)
            return False
        if found:
            contents = {name: content for name, (content, _) in found.items()}
            self.files |= {name: file for name, (_, file) in found.items()}
            _write(self._here, contents)
            self._keep(contents)
        return True

    @property
    def _is_full(self) -> bool:
        return sum(name.startswith("_delta_log/") for name in self.files) >= _MOST_FILES

    def make_checkpoint(self) -> None:
        """Makes a checkpoint of the version in the table itself. Raises DeltaError, and as ``Folder`` does."""
        self.delta.create_checkpoint()
        name, own = f"_delta_log/{self.version:020}.checkpoint.parquet", version_file(self.version)
        content = (self._here / name).read_bytes()
        file = self.folder.put(name, content)
        self.folder.put(_LAST, (self._here / _LAST).read_bytes())
        vectors = {name: file for name, file in self.files.items() if not name.startswith("_delta_log/")}
        self.files = {name: file, own: self.files[own], **vectors}
        self._keep({name: content})

    def _keep(self, contents: Mapping[str, bytes]) -> None:
        """Keeps these objects for other processes, and of all others only those that are in the copy."""
        for name, content in contents.items():
            seen.keep(self.folder.address, _kept_as(name, self.files[name]), content)
        seen.keep_only(self.folder.address, {_kept_as(name, file) for name, file in self.files.items()})


def copy_of(folder: StoreFolder, files: Mapping[str, str] | None = None, before: LogCopy | None = None) -> LogCopy | None:
    """A copy of the table's log, from its newest checkpoint on. None if there is no table, or if more than its log is needed to know it.

    ``files``: the objects that it has, if they are known already. ``before``: a copy that has some of them. Raises as ``Folder`` does.
    """
    names = _needed(folder) if files is None else files
    found = None if names is None else _read(folder, names, before)
    if names is None or found is None:
        return None
    here = Path(tempfile.mkdtemp(prefix="incremental-assets-log-"))
    _write(here, found)
    try:
        copy = LogCopy(folder, dict(names), DeltaTable(str(here)), here)
        weakref.finalize(copy.delta, shutil.rmtree, here, ignore_errors=True)
        is_known = version_file(copy.version) in names and not set(copy.delta.protocol().reader_features or ()) - _FEATURES
        if not is_known or not copy.bring_vectors():
            return None
        copy._keep(found)
        return copy
    except (DeltaError, OSError, ValueError) as error:
        shutil.rmtree(here, ignore_errors=True)
        log.debug("%s: its log is not copied: %s", folder.address, error)
        return None


def _needed(folder: StoreFolder) -> Mapping[str, str] | None:
    """The objects of the log that tell the newest version; None if there is none, or if they are of a kind that is not known here."""
    try:
        since = int(json.loads(folder.get(_LAST))["version"])
    except FileNotFoundError:
        since = 0
    except (ValueError, KeyError, TypeError):
        return None
    files = folder.log_files(since)
    numbers = sorted(int(match[1]) for name in files if (match := _VERSION.fullmatch(name)))
    checkpoints = [int(match[1]) for name in files if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= max(numbers, default=-1)]
    others = [name for name in files if ".checkpoint" in name and not _CHECKPOINT.fullmatch(name)]
    first = max(checkpoints, default=None)
    follow = [number for number in numbers if first is None or number > first]
    begins = 0 if first is None else first + 1
    if not numbers or others or len(follow) > _MOST_FILES or follow != list(range(begins, begins + len(follow))):
        return None
    names = [f"_delta_log/{first:020}.checkpoint.parquet"] if first is not None else []
    return {name: files[name] for name in [*names, *map(version_file, follow or numbers[-1:])]}


def _read(folder: StoreFolder, names: Mapping[str, str], before: LogCopy | None) -> dict[str, bytes] | None:
    """The contents of these objects; None if one of them is another one by now, or too large. ``before``: see ``copy_of``."""

    def read(name: str) -> bytes | None:
        kept = before.content(name, names[name]) if before is not None else None
        kept = kept or seen.kept(folder.address, _kept_as(name, names[name]))
        if kept is not None:
            return kept
        content, file = folder.get_known(name, _MOST_BYTES)
        return content if file == names[name] else None

    try:
        with ThreadPoolExecutor(8) as threads:
            contents = dict(zip(names, threads.map(read, names), strict=True))
    except (FileNotFoundError, ValueError) as error:
        log.debug("%s: its log is not copied: %s", folder.address, error)
        return None
    found = {name: content for name, content in contents.items() if content is not None}
    return found if len(found) == len(names) else None


def _write(here: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)


def _kept_as(name: str, file: str) -> str:
    return f"{name.rsplit('/', 1)[-1]}.{hashlib.sha256(file.encode()).hexdigest()[:16]}"
