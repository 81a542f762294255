"""Sweeps a container: finds the rows of the lake that the source no longer has, by their keys, and has them deleted or marked.

The keys of all rows are compared with the source's snapshot in which the sync has just read and committed its rows. Both sides compute a
checksum of each bucket of keys, and only the keys of buckets that differ travel. A key that only the source has is a row that the lake
lacks: a row that has returned, if the lake has it marked, and otherwise one that no sync has seen, which a sweep leaves as it is.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.comparison import Difference, Key, RowScope, compare_buckets, rows_that_differ
from incremental_assets.core.container import Container
from incremental_assets.core.deletes import MARK, Deletes, most_deleted
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.databases.source import SourceSnapshot
from incremental_assets.delta.guards import moved, newest
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.delta.local_keys import LocalKeys, are_read_here, keys_of, read_keys
from incremental_assets.delta.local_rows import key_texts
from incremental_assets.delta.merge import still_there
from incremental_assets.delta.sweep import marked_keys, remove_keys, values_of
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

PREFIX = "sweep/"
"""Begins the metadata keys of a sweep (``Sweep.metadata``)."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep has found and done.

    ``rows``: how many keys the lake had. ``gone``: how many of them the source does not have; ``refused``: they were left as they are, as
    they are more than ``most``. ``returned``: how many marked rows the source has again. ``missing``: how many keys only the source has.
    ``values``: a value of each partition that has lost or regained rows, as an integer of the cursor type. ``result``: of the commit.
    """

    rows: int
    gone: int
    refused: bool
    most: int
    returned: int
    missing: int
    result: WriteResult
    values: frozenset[int] = field(default_factory=frozenset[int])
    seconds: float = 0.0

    def messages(self, container: Container) -> tuple[list[str], list[str]]:
        """The messages of the sweep, and its warnings."""
        notes, warnings = [], []
        done = "deleted" if container.options.deletes is Deletes.SWEEP else "marked as deleted"
        if self.refused:
            warnings.append(
                f"the sweep was refused, and nothing was {done}: the source does not have {self.gone:,} of "
                f"{counted(self.rows, 'key')} of the lake, and max_deleted_share permits {self.most:,}. If they were really deleted: "
                f"incremental-assets sync {container.label} --sweep --allow-empty"
            )
        elif self.gone:
            notes.append(
                f"sweep: of {counted(self.rows, 'key')} of the lake the source no longer has {self.gone:,}; their rows were {done}"
            )
        else:
            notes.append(f"sweep: the source has all {counted(self.rows, 'key')} of the lake")
        if self.returned:
            notes.append(f"marked rows that the source has again: {self.returned:,}")
        if self.missing:
            warnings.append(
                f"keys of the source that the sweep did not find in the lake: {self.missing:,}; their rows came below the watermark. This "
                f"finds and repairs their partitions: incremental-assets audit {container.label} --repair"
            )
        return notes, warnings

    def metadata(self) -> dict[str, int | float]:
        """The numbers of the sweep, by metadata key. ``refused`` is 0 or 1."""
        numbers = {"keys": self.rows, "gone": self.gone, "refused": int(self.refused), "returned": self.returned, "missing": self.missing}
        return {**{f"{PREFIX}{name}": number for name, number in numbers.items()}, f"{PREFIX}seconds": round(self.seconds, 3)}


def is_swept_here(table: LakeTable, container: Container) -> bool:
    """Whether this process hashes the keys of the table, so that a sweep that finds nothing else needs no Spark."""
    head = table.head()
    return head is not None and are_read_here(table, head, _key(container, head))


def sweep(
    snapshot: SourceSnapshot,
    session: "Callable[[], SparkSession]",
    table: LakeTable,
    write_batch: WriteBatch,
    *,
    allow_any: bool,
    expect_lease: Callable[[], None],
) -> Sweep:
    """Compares all keys of the newest version of the table with the snapshot, which must be held, and removes those that are gone.

    ``write_batch``: its version is the one to be compared; its state is written afterwards. ``allow_any``: however many rows are gone.
    ``expect_lease``: see ``ContainerSync.sweep``. Raises ConcurrentWriteError if the table is at another version; SourceError; LakeError.
    """
    started = time.monotonic()
    container, head = write_batch.container, newest(table)
    if head.version != write_batch.base_version:
        raise moved(container.label, table, "no deleted row was looked for")
    marks = MARK.name if write_batch.deleted_at is not None else None
    key = _key(container, head)
    assert container.axis is not None
    here = read_keys(table, head, key, container.axis, marks)
    lake = here or LakeHashedRows(session, table, head.version, container, key, marks)
    found = _compared(snapshot, lake, table, key, container, allow_any)
    gone = keys_of(found.gone, key)
    returned = gone.schema.empty_table()
    if found.missing and marks is not None:
        returned = _returned(keys_of(found.missing, key), here, session, table, head, marks)
    # The source may have a row under another spelling of its key, which a comparison of texts does not see. It is read again then.
    respelled = still_there(write_batch, key_texts(gone))[0]
    there = [*key_texts(returned), *respelled]
    values = here.values_of(gone) if here is not None else values_of(session(), table, head.version, write_batch, gone)
    expect_lease()
    result = remove_keys(session, table, write_batch, gone, there)
    if there:
        again = pa.concat_tables([gone, returned])
        values |= values_of(session(), table, result.data_version, write_batch, again)
    missing = max(0, found.missing_rows - returned.num_rows - len(respelled))
    return Sweep(
        rows=found.rows,
        gone=found.gone_rows - len(respelled),
        refused=found.refused,
        most=found.most,
        returned=returned.num_rows,
        missing=missing,
        result=result,
        values=values,
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Compared:
    """``gone``: the keys that only the lake has; none of them if they are more than ``most`` (``refused``). ``missing``: those that only
    the source has, as far as a sweep has to do with them."""

    rows: int
    most: int
    gone: list[Key]
    gone_rows: int
    missing: list[Key]
    missing_rows: int

    @property
    def refused(self) -> bool:
        return self.gone_rows > self.most


def _compared(
    snapshot: SourceSnapshot,
    lake: LocalKeys | LakeHashedRows,
    table: LakeTable,
    key: list[Column],
    container: Container,
    allow_any: bool,
) -> _Compared:
    source, scope = snapshot.hashed_rows(key), RowScope()
    buckets = compare_buckets(source, lake, scope, table.rows())
    rows = buckets.lake_rows
    most = rows if allow_any else most_deleted(container.options.max_deleted_share, rows)
    gone: list[Key] = []
    missing: list[Key] = []
    gone_rows = missing_rows = 0
    for kind, found, times in rows_that_differ(source, lake, scope, buckets):
        if kind is Difference.SURPLUS:
            gone_rows += times
            if gone_rows <= most:
                gone.append(found)
        elif kind is Difference.MISSING:
            missing_rows += times
            if container.options.deletes is Deletes.SOFT:
                missing.append(found)
    return _Compared(rows, most, gone if gone_rows <= most else [], gone_rows, missing, missing_rows)


def _returned(
    missing: pa.Table, here: LocalKeys | None, session: "Callable[[], SparkSession]", table: LakeTable, head: Head, marks: str
) -> pa.Table:
    """Those of the keys for which the lake has a row that is marked as deleted."""
    if here is not None:
        return here.marked_among(missing)
    return marked_keys(session(), table, head.version, missing, marks)


def _key(container: Container, head: Head) -> list[Column]:
    """The columns that identify a row, as they are in the lake."""
    by_name = {column.name.lower(): column for column in head.columns}
    return [by_name[name.lower()] for name in container.lake_key]


def swept_batch(write_batch: WriteBatch, outcome: WriteResult) -> WriteBatch:
    """The batch of the commit in which a sweep removes rows, after that of the rows: ``write_batch``, with this outcome."""
    state = replace(outcome.named_in(write_batch.state), swept_at=time.time_ns() // 1000)
    metadata = {**write_batch.commit_metadata, "action": "sweep"}
    return replace(
        write_batch, base_version=outcome.version, state=state, allow_empty=True, commit_metadata=metadata, replaces=write_batch.read
    )
