"""Reads from a table's log which files a version has, and writes the file of a new version.

The protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md. What is not understood completely is left to Spark.
"""

import json
import logging
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from obstore.exceptions import BaseError

from incremental_assets.core.errors import LakeError
from incremental_assets.delta.store import Folder, folder_at, version_file
from incremental_assets.delta.store_errors import reason

log = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_ADD_FIELDS = ("path", "size", "modificationTime", "tags", "stats", "deletionVector", "partitionValues")
_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
Action = dict[str, Any]
"""An action of the log, as the protocol describes it."""


@dataclass(frozen=True)
class LogFile:
    """A file of a version. ``stats``: the text of its statistics, if it has some. ``vector``: its deletion vector's descriptor."""

    path: str
    size: int
    modified: int
    stats: str | None
    tags: Mapping[str, str] | None
    vector: Mapping[str, Any] | None

    def removed(self, now: int) -> Action:
        """The action that takes the file, with its deletion vector, out of the table."""
        action = {"path": self.path, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True, "partitionValues": {}}
        return {"remove": {**action, "size": self.size, **({"deletionVector": dict(self.vector)} if self.vector else {})}}

    def marked(self, vector: Mapping[str, Any], stats: str) -> Action:
        """The action that names the file again, with another deletion vector."""
        action = {"path": self.path, "partitionValues": {}, "size": self.size, "modificationTime": self.modified, "dataChange": True}
        return {"add": {**action, "stats": stats, **({"tags": dict(self.tags)} if self.tags else {}), "deletionVector": dict(vector)}}


def files_of(folder: Folder, delta: DeltaTable) -> Mapping[str, LogFile] | None:
    """The files of the version that is opened, by path; None if they are not exactly those that delta-rs has found."""
    found: dict[tuple[str, str], LogFile] = {}
    try:
        for action in _actions(folder, delta.version()):
            for kind in ("remove", "add"):
                if (content := action.get(kind)) is not None:
                    key = content["path"], _vector_id(content.get("deletionVector"))
                    if kind == "add":
                        found[key] = _log_file(content)
                    else:
                        found.pop(key, None)
    except (OSError, BaseError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        log.debug("%s: its log is left to Spark: %s", folder, error)
        return None
    paths = sorted(path for path, _ in found)
    if paths != sorted(uri.rsplit("/", 1)[-1] for uri in delta.file_uris()):
        log.debug("%s: its log is left to Spark: delta-rs finds other files", folder)
        return None
    return {path: file for (path, _), file in found.items()}


def _actions(folder: Folder, version: int) -> Iterator[Action]:
    """The actions from the newest checkpoint on. In a commit, removals come before what takes their place."""
    checkpoints = [int(match[1]) for name in folder.names("_delta_log") if (match := _CHECKPOINT.fullmatch(name))]
    newest = max((n for n in checkpoints if n <= version), default=None)
    if newest is not None:
        columns = [f"add.{name}" for name in _ADD_FIELDS]
        checkpoint = pa.BufferReader(folder.get(f"_delta_log/{newest:020}.checkpoint.parquet"))
        rows = pq.ParquetFile(checkpoint).read(columns).column("add")
        yield from ({"add": add} for add in rows.to_pylist() if add is not None and add["path"] is not None)
    for number in range(0 if newest is None else newest + 1, version + 1):
        yield from sorted(actions_of(folder, number), key=lambda action: "remove" not in action)


def _vector_id(vector: Mapping[str, Any] | None) -> str:
    """What tells the deletion vectors of one file apart, by the protocol; empty without one."""
    if vector is None or vector.get("storageType") is None:
        return ""
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _log_file(add: Mapping[str, Any]) -> LogFile:
    if add.get("partitionValues"):
        raise ValueError("the table has physical partitions")
    vector = add.get("deletionVector")
    kept = {name: vector[name] for name in _VECTOR_FIELDS if vector.get(name) is not None} if vector else {}
    tags = add.get("tags")
    return LogFile(add["path"], add["size"], add["modificationTime"], add.get("stats"), dict(tags) if tags else None, kept or None)


def commit_info(operation: str, parameters: Mapping[str, str], **more: object) -> Action:
    """The first action of a commit of ours, which says what it does. ``operation``, ``parameters``: as Delta names the change."""
    said = {"timestamp": int(time.time() * 1000), "operation": operation, "operationParameters": parameters}
    return {"commitInfo": {**said, "engineInfo": "incremental-assets", **more}}


def write_version(address: str, version: int, actions: Sequence[Mapping[str, object]]) -> bool:
    """Writes the actions as this version of a table. Returns False if that version exists, or cannot be made so.

    Raises LakeError where it is not known whether the version was written.
    """
    try:
        return put_version(folder_at(address), version, actions)
    except OSError as error:  # of a disk: no space, no permission, or no hard links here
        log.debug("%s: version %d was not written: %s", address, version, error)
        return False
    except BaseError as error:
        raise LakeError(f"{address} cannot be written: {reason(error)}") from error


def put_version(folder: Folder, version: int, actions: Sequence[Mapping[str, object]]) -> bool:
    """Writes the actions as this version of the table in the folder. Returns False if that version exists. Raises as ``Folder`` does.

    The first action, of ``commit_info``, gets a ``txnId`` of its own, by which the version is known as that of this process where the
    answer of an object store was lost.

    No character is escaped that need not be: delta-rs reads \\ud842\\udfb7 as another character than U+20BB7, and so all from U+20000 on.
    """
    info: Any = actions[0]["commitInfo"]
    known = [{"commitInfo": {**info, "txnId": str(uuid.uuid4())}}, *actions[1:]]
    lines = (json.dumps(action, separators=(",", ":"), ensure_ascii=False) + "\n" for action in known)
    return folder.put_new(version_file(version), "".join(lines).encode())


def actions_of(folder: Folder, version: int) -> Sequence[Action]:
    """The actions in the file of a version. Raises FileNotFoundError if the log does not have it, ValueError, and as ``Folder`` does."""
    return actions_in(folder.get(version_file(version)))


def actions_in(content: bytes) -> Sequence[Action]:
    """The actions in the content of a version's file. Raises ValueError."""
    return [json.loads(line) for line in content.decode().split("\n") if line.strip()]


def newest_version(folder: Folder) -> int | None:
    """The number of the newest version; None if there is no table. It lists no more of the log than what follows the last checkpoint.

    Raises ValueError, KeyError and TypeError if that is not understood, and as ``Folder`` does.
    """
    try:
        checkpoint = int(json.loads(folder.get("_delta_log/_last_checkpoint"))["version"])
    except FileNotFoundError:
        checkpoint = 0
    return max(folder.versions(checkpoint), default=None)
