"""Commits files that were not written by Spark's own writer, in one commit."""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from incremental_assets.core.errors import LakeError
from incremental_assets.core.schema import Column
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.guards import moved
from incremental_assets.delta.log import Action, LogFile, commit_info, files_of, put_version
from incremental_assets.delta.log_schema import NTZ, are_plain, schema_string
from incremental_assets.delta.properties import metadata_of
from incremental_assets.delta.store import Folder, folder_at
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import FilesTarget, WriteBatch, WrittenFile

log = logging.getLogger(__name__)

INDEXED_COLUMNS = 32
"""How many columns get statistics, if the table does not say it: the same number as Delta's default."""
CHECKPOINT_INTERVAL = 10
"""After how many commits there is a checkpoint, if the table does not say it: the same number as Delta's default."""
NOT_UNDERSTOOD = "has what is not understood here"
_WRITER_FEATURES = frozenset(("appendOnly", "invariants", "deletionVectors", "timestampNtz"))
"""The table features that ask nothing of a writer of whole files, or only what ``reason_against`` looks at."""


@dataclass(frozen=True)
class RemovedFile:
    """A file of the table that may leave it: its path in the table's folder, and its size."""

    path: str
    size: int

    def removed(self, now: int) -> Action:
        """The action that takes the file out of the table. It has no deletion vector."""
        return LogFile(self.path, self.size, 0, None, None, None).removed(now)


def reason_against(table: LakeTable, head: Head, write_batch: WriteBatch) -> str | None:
    """Why files with the rows of the batch cannot be committed here so that all readers see the right rows; None if they can.

    Of a table with column mapping, for example, every value of such files would be read as NULL.
    """
    # The files have the columns as they are read, so these must be those of the table, in name, type and order, or replace them.
    if tuple(head.columns) != write_batch.columns and not (write_batch.whole and _may_replace(head, write_batch.columns)):
        return "the table has other columns than the source"
    delta = table.opened_at(head.version)
    protocol = delta.protocol()
    features = set(protocol.writer_features or [f"writer version {protocol.min_writer_version}"])
    if protocol.min_writer_version > 2 and features - _WRITER_FEATURES:
        return f"the table has Delta's {', '.join(sorted(features - _WRITER_FEATURES))}"
    if delta.metadata().partition_columns:
        return "the table has physical partitions"
    if any(name.startswith("delta.constraints.") for name in head.properties):
        return "the table has constraints"
    fields = json.loads(delta.schema().to_json())["fields"]
    if any(not field["nullable"] or set(field["metadata"]) - {"comment"} for field in fields):
        return "a column of the table has constraints of its own"
    return None


def _may_replace(head: Head, columns: Sequence[Column]) -> bool:
    """Whether the commit can give the table these columns in place of its own."""
    needs_feature = any(NTZ in c.type for c in columns) and not any(NTZ in c.type for c in head.columns)
    return head.version > 0 and are_plain(columns) and are_plain(head.columns) and not needs_feature


def target_of(folder: str, head: Head, write_batch: WriteBatch) -> FilesTarget:
    """How files of the batch are written into the table's folder."""
    axis = write_batch.container.axis
    return FilesTarget(
        folder=folder,
        names=tuple(column.name for column in (write_batch.columns if write_batch.whole else head.columns)),
        sort=axis.columns if axis else (),
        indexed=indexed_columns(head),
    )


def indexed_columns(head: Head | None) -> int:
    """How many of the first columns get statistics. None: of a new table."""
    if head is None:
        return INDEXED_COLUMNS
    indexed = int(head.properties.get("delta.dataSkippingNumIndexedCols", INDEXED_COLUMNS))
    return indexed if indexed >= 0 else len(head.columns)


def commit_files(
    table: LakeTable,
    head: Head,
    write_batch: WriteBatch,
    files: Sequence[WrittenFile],
    changes: Sequence[Action] = (),
    *,
    replace_all: bool = False,
) -> None:
    """Commits the files as the version after ``head``, and never on top of a concurrent write.

    ``changes``: the actions by which other files leave the table, or stay with marked rows (``log``). ``replace_all``: all files leave the
    table instead, with their deletion vectors; of a batch for the whole table its columns take the place of the table's. Raises
    ConcurrentWriteError if there is a newer version, and LakeError if the table cannot be written.
    """
    delta = table.opened_at(head.version)
    replaces_columns = write_batch.whole and tuple(head.columns) != write_batch.columns
    now = int(time.time() * 1000)
    if replace_all or replaces_columns:
        known = files_of(folder_at(table.address), delta)
        if known is None:
            raise LakeError(f"{table.url} cannot be written: its log {NOT_UNDERSTOOD}. Nothing was written.")
        changes = [file.removed(now) for file in known.values()]
    if changes and head.properties.get("delta.appendOnly") == "true":
        raise LakeError(f"{table.url} is append-only (delta.appendOnly): no row of it can be replaced. Nothing was written.")
    mode = {"mode": "Overwrite" if changes else "Append"}
    actions = [commit_info("WRITE", mode, readVersion=head.version, isBlindAppend=False, **user_metadata(write_batch))]
    if replaces_columns:
        actions.append(metadata_of(delta, schema_string=schema_string(write_batch.columns)))
    actions += [*changes, *(add_action(file, now) for file in files)]
    with place_errors(table.url):
        if not put_version(folder_at(table.address), head.version + 1, actions):
            raise moved(write_batch.container.label, table, "nothing was written")


def discard(folder: Folder, files: Sequence[WrittenFile]) -> None:
    """Removes files that no commit names, as far as they are there. VACUUM removes what is left."""
    for file in files:
        with contextlib.suppress(OSError, BaseError):
            folder.remove(file.path)


@contextlib.contextmanager
def discarded_on_error(discard: Callable[[], None]) -> Iterator[None]:
    """Removes what was written for a commit, unless it is possible that the commit names it."""
    try:
        yield
    except LakeError:  # of the commit itself, and nobody knows what has become of it
        raise
    except Exception:  # and no interrupt, which may come when the commit is made already
        discard()
        raise


def can_be_replaced(table: LakeTable, head: Head) -> bool:
    """Whether all files of the table can be taken out of it here: the log may have what only Spark understands."""
    return head.version == 0 or files_of(folder_at(table.address), table.opened_at(head.version)) is not None


def user_metadata(write_batch: WriteBatch) -> dict[str, str]:
    """What the commit says of the sync that has made it (``core.plan.Plan.commit_metadata``)."""
    return {"userMetadata": json.dumps(write_batch.commit_metadata)}


def add_action(file: WrittenFile, now: int) -> dict[str, Any]:
    """The action of the log that names a new file."""
    described = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": now, "dataChange": True}
    return {"add": {**described, "stats": file.statistics}}


def checkpoint_if_due(table: LakeTable, now: DeltaTable, before: Head) -> None:
    """Makes a checkpoint of the newest version, ``now``, if one was due since the version ``before``.

    Spark makes one after each tenth version that it commits, so a table that is hardly ever written by Spark would get none, and each
    reader would read all of its log. It is no part of a commit: if it fails, the next one is made ten versions later.
    """
    interval = int(before.properties.get("delta.checkpointInterval", CHECKPOINT_INTERVAL))
    try:
        if now.version() // interval > before.version // interval:
            table.make_checkpoint(now)
    except (DeltaError, LakeError, OSError) as error:
        log.warning("%s: no checkpoint was made: %s", table.url, error)
