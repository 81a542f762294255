"""Commits files that were not written by Spark's own writer, in one commit through delta-rs.

Belongs here: for which tables this is right, the commit, and the checkpoints that Spark would make after its commits. Does not belong: how
the files came to be (``add_files``: by Spark's tasks; ``local_write``: in this process), and which rows are in them.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from incremental_assets.core.errors import LakeError
from incremental_assets.core.schema import Column
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.guards import moved, newest
from incremental_assets.delta.log_schema import NTZ, are_plain, schema_string
from incremental_assets.delta.store import storage_options
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import FilesTarget, WriteBatch, WrittenFile

log = logging.getLogger(__name__)

INDEXED_COLUMNS = 32
"""How many columns get statistics, if the table does not say it: the same number as Delta's default."""
CHECKPOINT_INTERVAL = 10
"""After how many commits there is a checkpoint, if the table does not say it: the same number as Delta's default."""
_WRITER_FEATURES = frozenset(("appendOnly", "invariants", "deletionVectors", "timestampNtz"))
"""The table features that ask nothing of a writer of whole files, or only what ``reason_against`` looks at."""


@dataclass(frozen=True)
class RemovedFile:
    """A file that the commit takes out of the table: its path in the table's folder, and its size. It has no deletion vector."""

    path: str
    size: int


def reason_against(table: LakeTable, head: Head, write_batch: WriteBatch) -> str | None:
    """Why delta-rs cannot commit files with the rows of the batch so that all readers see the right rows; None if it can.

    delta-rs itself refuses some of these tables, but not all: of a table with column mapping, every value of its files is read as NULL.
    """
    # The files have the columns as they are read, so these must be those of the table, in name, type and order, or replace them.
    if tuple(head.columns) != write_batch.columns and not (write_batch.whole and _may_replace(head, write_batch.columns)):
        return "the table has other columns than the source"
    delta = table.opened()
    if delta is None:
        return "there is no table"
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
    """Whether delta-rs can give the table these columns in place of its own."""
    needs_feature = any(c.type == NTZ for c in columns) and not any(c.type == NTZ for c in head.columns)
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
    removed: Sequence[RemovedFile] = (),
    *,
    replace_all: bool = False,
) -> None:
    """Commits the files as the version after ``head``, or fails: a retry would append them on top of a concurrent write.

    ``removed``: files that leave the table. ``replace_all``: all files leave the table instead, with their deletion vectors, and of a batch
    for the whole table its columns take the place of the table's. Raises
    ConcurrentWriteError if there is a newer version, and LakeError if the table cannot be written.
    """
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [AddAction(file.path, file.size, {}, now, True, file.statistics) for file in files]
    actions += [RemoveAction(file.path, True, now, file.size, {}) for file in removed]
    replaces_columns = write_batch.whole and tuple(head.columns) != write_batch.columns
    with place_errors(table.url):
        delta = DeltaTable(table.address, version=head.version, storage_options=storage_options() or None)
        try:
            delta.create_write_transaction(
                actions,
                "overwrite" if replace_all or replaces_columns else "append",
                Schema.from_json(schema_string(write_batch.columns)) if replaces_columns else delta.schema(),
                commit_properties=CommitProperties(custom_metadata=user_metadata(write_batch), max_commit_retries=0),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
            )
        except CommitFailedError as error:
            if newest(table).version == head.version:  # delta-rs refuses this table, and would refuse it each time
                raise
            raise moved(write_batch.container.label, table, "nothing was written") from error


def user_metadata(write_batch: WriteBatch) -> dict[str, str]:
    """What the commit says of the sync that has made it (``core.plan.Plan.commit_metadata``)."""
    return {"userMetadata": json.dumps(write_batch.commit_metadata)}


def add_action(file: WrittenFile, now: int) -> dict[str, Any]:
    """The action of the log that names a new file."""
    described = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": now, "dataChange": True}
    return {"add": {**described, "stats": file.statistics}}


def checkpoint_if_due(table: LakeTable, before: Head) -> None:
    """Makes a checkpoint of the newest version, if one was due since the version ``before``.

    Spark makes one after each tenth version that it commits, so a table that is hardly ever written by Spark would get none, and each
    reader would read all of its log. It is no part of a commit: if it fails, the next one is made ten versions later.
    """
    interval = int(before.properties.get("delta.checkpointInterval", CHECKPOINT_INTERVAL))
    try:
        delta = table.opened()
        if delta is not None and delta.version() // interval > before.version // interval:
            delta.create_checkpoint()
    except (DeltaError, LakeError, OSError) as error:
        log.warning("%s: no checkpoint was made: %s", table.url, error)
