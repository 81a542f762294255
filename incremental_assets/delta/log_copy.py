"""A copy of the log of a table on an object store, on this machine's disk, which delta-rs opens in the place of the log itself.

Belongs here: which objects of a log are copied, how a copy follows the table, and checkpoints that are made of it. Does not belong: whether
the copy is of the newest version (``table``), and reading rows, which are not beside a copy.

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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from incremental_assets.delta import seen
from incremental_assets.delta.store import Put, StoreFolder, version_file

log = logging.getLogger(__name__)

_LAST = "_delta_log/_last_checkpoint"
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")
_VERSION = re.compile(r"_delta_log/(\d{20})\.json")
_MOST_FILES = 40
"""A copy that follows a table has so many objects at most; then it is made anew, from the newest checkpoint."""
_MOST_BYTES = 32 << 20
"""A checkpoint with more bytes is not copied."""
_FEATURES = frozenset(("deletionVectors", "timestampNtz", "columnMapping", "typeWidening", "variantType"))
"""The features of readers with which a log has nothing beside its commits and its checkpoints of one file."""


@dataclass
class LogCopy:
    """``files``: the objects that are in the copy, by name. ``delta``: the newest version of them, whose rows must not be read."""

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
        follow = list(files) == list(range(first, first + len(files))) and len(self.files) + len(names) <= _MOST_FILES
        return copy_of(self.folder, {**self.files, **names}, self) if follow else None

    def follow(self, own: Put) -> bool:
        """Brings the copy to the version after its own, which this process has put. Returns False if it cannot be used any more: it has
        grown too large, or more than the log is needed to know the version. Raises DeltaError."""
        if len(self.files) >= _MOST_FILES:
            return False
        (self._here / own.name).write_bytes(own.content)
        self.delta.update_incremental()
        self.files[own.name] = own.file
        self._keep({own.name: own.content})
        return _is_complete(self.delta)

    def make_checkpoint(self) -> None:
        """Makes a checkpoint of the version in the table itself. Raises DeltaError, and as ``Folder`` does."""
        self.delta.create_checkpoint()
        name, own = f"_delta_log/{self.version:020}.checkpoint.parquet", version_file(self.version)
        content = (self._here / name).read_bytes()
        file = self.folder.put(name, content)
        self.folder.put(_LAST, (self._here / _LAST).read_bytes())
        self.files = {name: file, own: self.files[own]}
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
        copy._keep(found)
        return copy if _is_complete(copy.delta) and version_file(copy.version) in names else None
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
    (here / "_delta_log").mkdir(exist_ok=True)
    for name, content in contents.items():
        (here / name).write_bytes(content)


def _is_complete(delta: DeltaTable) -> bool:
    """Whether all that is known of the table is in its log: deletion vectors, and parts of some checkpoints, are files beside it."""
    features = set(delta.protocol().reader_features or ())
    try:
        if "deletionVectors" in features:
            pa.table(delta.deletion_vectors())
    except DeltaError:  # their file is not found
        return False
    return not features - _FEATURES


def _kept_as(name: str, file: str) -> str:
    return f"{name.rsplit('/', 1)[-1]}.{hashlib.sha256(file.encode()).hexdigest()[:16]}"
