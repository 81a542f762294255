"""Runs one sync of a container of files: reads the planned files, commits their rows at once, and records each file in the manifest.

Belongs here: the order of the steps. Does not belong: Dagster's contexts (``dagster.assets``), reading a file (``files.readers``), or
writing Delta tables (``delta``).

The rows are committed first, then the table's state, then the rejected rows; then Dagster's events are recorded, and the manifest is
written last. Wherever that breaks off, the files count as not read, and are read and replaced again; the next sync compares the manifest
with the files that the table holds (``recheck``).
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.files import FILE, MODIFIED, shown_path
from incremental_assets.core.names import backticked
from incremental_assets.core.plan import Mode
from incremental_assets.core.schema import Column
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import Window
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.result import SyncResult
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import WriteBatch, WriteResult
from incremental_assets.files.attempt import Attempt
from incremental_assets.files.attempts import Attempts
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import EVERY_FILE, FileRecord, Manifest
from incremental_assets.files.plan import FilesPlan
from incremental_assets.files.readers.read import FileCount, FileRows, ReadFile, Reading
from incremental_assets.files.rejected import rejected_table, replace_rejected

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

SHOWN_FILES = 20
"""The largest number of files that the metadata of an event lists by name, for each kind of trouble."""


@dataclass(frozen=True)
class _StoredRows:
    """The number of rows of one file in the container's table, and of rejected ones in the table beside it.

    ``modified``: the modification time that the rows carry, in microseconds since 1970 UTC; None: there are neither.
    """

    rows: int = 0
    rejected: int = 0
    modified: int | None = None

    def is_as(self, record: FileRecord) -> bool:
        """Whether the manifest's record agrees with this.

        The time is not compared for a refused file: the record has that of the version that could not be read, the rows that of the
        version before.
        """
        same_time = record.refused is not None or self.modified in (None, record.modified)
        return (self.rows, self.rejected) == (record.rows, record.rejected) and same_time


_NOTHING = _StoredRows()


@dataclass(frozen=True)
class _BatchRows:
    """The ``BatchRows`` of a sync of files. ``rows``: None where no file was read, as when rows are only removed."""

    rows: FileRows | None
    columns: Sequence[Column]

    def frame(self, spark: "SparkSession") -> "DataFrame":
        if self.rows is not None:
            return self.rows.good()
        # An empty frame with the table's columns deletes the rows of the files to be dropped.
        empty = ", ".join(f"cast(NULL AS {c.type}) AS {backticked(c.name)}" for c in self.columns)
        return spark.sql(f"SELECT {empty} WHERE false")

    def still_there(self) -> None:
        """Does nothing: a file that changed meanwhile has another stamp than its record, and is read again by the next sync."""

    def emptied(self) -> Sequence[Window]:
        return ()


class FileSync(ContainerSync):
    """The sync of a container of files. It has one write batch.

    ``forget``: removes the partitions with the given keys from Dagster.
    """

    def __init__(
        self,
        definition: FileDefinition,
        plan: FilesPlan,
        table: LakeTable,
        manifest: Manifest,
        scope: LakeScope,
        run_id: str,
        log: Callable[[str], None],
        forget: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(table, None, SyncResult(plan, plan.watermark, plan.watermark, warnings=list(plan.warnings)))
        self._definition, self._plan, self._manifest = definition, plan, manifest
        self._scope, self._run_id, self._log, self._forget = scope, run_id, log, forget
        self._started = time.monotonic()
        self._attempt = Attempt(scope, Attempts(scope.lake, plan.container.key_path), log)
        self._rows: FileRows | None = None
        self._columns: tuple[Column, ...] = ()
        self._files, self._drop = plan.files, plan.drop
        self._held: Mapping[str, _StoredRows] | None = None  # None: the plan asks for no recheck
        self._found: Mapping[str, _StoredRows] = {}  # files in the tables that the manifest lacks or has otherwise
        self._records: list[FileRecord] = []

    def prepare(self) -> bool:
        """Reads the files. Returns whether there is anything to commit.

        There is nothing where no file could be read and no rows are to be removed; the whole table is never replaced by nothing.
        """
        plan = self._plan
        head = self.table.head()
        self._manifest.keep_only(plan.remembered)
        if plan.recheck:
            self._recheck()
        in_lake = () if head is None or plan.whole else tuple(c for c in head.columns if c.name not in (FILE.name, MODIFIED.name))
        if self._files:
            self._files, self._rows = self._attempt.read(self._files, lambda files: self._read(files, in_lake))
        self._columns = self._rows.columns if self._rows is not None else in_lake
        self._note()
        if not self._counts and (plan.whole or not self._drop):
            self._note_nothing(head)
            return False
        # The manifest is emptied before the table is replaced, so that a sync that breaks off here leaves no file that counts as read.
        if plan.whole:
            self._manifest.clear()
        return True

    def _note_nothing(self, head: Head | None) -> None:
        """Records the outcome of a sync that has nothing to commit, as of the commit that the table has now."""
        plan = self._plan
        if plan.whole:
            self.result.warnings.append("nothing was written: a table with rows is not replaced by none")
        table_id, version = (head.table_id, head.version) if head is not None else ("", -1)
        kept = plan.state.data_version if plan.state is not None and plan.state.data_version is not None else -1
        self._drop = ()
        self._records = self._all_records(table_id, kept)
        if plan.recheck:
            # Records that the table's commits have been compared. Without this, each following sync would recheck them again.
            self._records.append(self._blank(EVERY_FILE, table_id, version))
        self.result.seconds = time.monotonic() - self._started

    def finish(self) -> None:
        """Writes the manifest, after Dagster has recorded the events.

        Where a run ends before the events are recorded, the manifest is not written either, and the next sync does it all once more.
        """
        self._forget([*self._drop, *self._plan.phantoms])
        self._manifest.add(self._records)
        self._attempt.done()

    # ------------------------------------------------------------------ files that the manifest does not have
    def _recheck(self) -> None:
        """Compares the files in the table with the manifest, after a sync that broke off, or after a RESTORE of the table.

        A file that the table holds and the manifest lacks is removed where files are pruned, and recorded otherwise. A file that differs
        from its record is read again, if it is still in the folder; otherwise its record is corrected.
        """
        plan = self._plan
        self._held = held = self._in_tables()
        reading = {file.key for file in self._files}
        orphans = {key: one for key, one in held.items() if key not in plan.known and key not in reading}
        removed = {key for key in orphans if self._is_removed(key)}
        self._drop = (*self._drop, *sorted(removed))
        wrong = [key for key, record in plan.known.items() if not held.get(key, _NOTHING).is_as(record) and key not in reading]
        self._files = (*self._files, *(plan.listed.file(key) for key in wrong if key in plan.listed.stamps))
        corrected = {key: held.get(key, _NOTHING) for key in wrong if key not in plan.listed.stamps and key not in self._drop}
        self._found = {**{key: one for key, one in orphans.items() if key not in removed}, **corrected}

    def _in_tables(self) -> Mapping[str, _StoredRows]:
        """Counts the rows of each file in the container's table and in the table of rejected rows beside it, by key."""
        beside = rejected_table(self._scope.lake, self._plan.container.key_path)
        with lake_errors(self._plan.container.label, self.table.url):
            counted = f"SELECT {FILE.name}, count(*), max(unix_micros({MODIFIED.name})) FROM {{}} GROUP BY 1"
            rows = {key: (n, at) for key, n, at in self._scope.spark.sql(counted.format(self.table.sql_name)).collect()}
            bad = self._scope.spark.sql(counted.format(beside.sql_name)).collect() if beside.head() is not None else []
        rejected = {key: (n, at) for key, n, at in bad}
        none = (0, None)
        return {
            str(key): _StoredRows(rows.get(key, none)[0], rejected.get(key, none)[0], rows.get(key, rejected.get(key, none))[1])
            for key in {*rows, *rejected}
        }

    def _is_removed(self, key: str) -> bool:
        """Whether the rows of a file that the manifest lacks are removed."""
        plan = self._plan
        if key in plan.listed.elsewhere:
            return True
        # A listing without any file is not taken as proof that the file is gone: a disk that is not mounted looks the same.
        if key in plan.listed.stamps or plan.listed.may_hide(key) or not (plan.listed.stamps or plan.request.allow_empty):
            return False
        return plan.prunes

    def _blank(self, key: str, table_id: str, version: int) -> FileRecord:
        """A record of a file without stamp and rows, written now."""
        return FileRecord(key, 0, 0, None, 0, 0, None, False, table_id, version, _now(), self._run_id, self._definition.how)

    # ------------------------------------------------------------------ reading
    def _read(self, files: Sequence[ReadFile], known: tuple[Column, ...]) -> FileRows:
        definition = self._definition
        options = definition.options
        reading = Reading(definition.format, options.read, options.types, definition.limits)
        staging = Path(self._scope.stack.enter_context(tempfile.TemporaryDirectory(prefix="incremental-assets-")))
        rows = FileRows(self._scope.spark, definition.settings.address, reading, files, known, staging, self._log)
        self._scope.stack.callback(rows.close)
        return rows

    @property
    def _counts(self) -> Mapping[str, FileCount]:
        return self._rows.counts if self._rows is not None else {}

    @property
    def _refusals(self) -> Mapping[str, str]:
        return {**(self._rows.refused if self._rows is not None else {}), **self._attempt.refused}

    def _note(self) -> None:
        """Adds the counts, messages and warnings of the read to the result."""
        result, plan = self.result, self._plan
        rejected = sum(count.rejected for count in self._counts.values())
        result.more = {
            "sync/files_read": len(self._counts),
            "sync/files_refused": len(self._refusals),
            "sync/files_waiting": plan.waiting,
            "sync/files_left": plan.left + len(self._attempt.postponed),
            "sync/files_gone": len(plan.gone),
            "sync/rows_rejected": rejected,
        }
        result.messages.append(plan.reason)
        postponed = len(self._attempt.postponed)
        if postponed and plan.request.mode is Mode.REFRESH:
            result.warnings.append(f"{postponed:,} files were not read again, as the Spark server ended while it read them: ask once more")
        elif postponed:
            result.messages.append(f"{postponed:,} wait for the next sync, as the Spark server ended while it read them with others")
        if self._refusals:
            shown = list(self._refusals.values())[:3]
            more = f" … and {len(self._refusals) - 3:,} more" if len(self._refusals) > 3 else ""
            count = len(self._refusals)
            result.warnings.append(f"{count:,} file{' could' if count == 1 else 's could'} not be read: {'; '.join(shown)}{more}")
            lost = sum(plan.known[key].rows for key in self._refusals if key in plan.known) if plan.whole and self._counts else 0
            if lost:
                result.warnings.append(f"the {lost:,} rows that the table had of them are gone with the table that was replaced")
            result.more["files/refused"] = dict(list(self._refusals.items())[:SHOWN_FILES])
        if rejected:
            files = {key: count.rejected for key, count in self._counts.items() if count.rejected}
            table = rejected_table(self._scope.lake, self._plan.container.key_path)
            rows, of = "row" if rejected == 1 else "rows", "file" if len(files) == 1 else "files"
            result.warnings.append(
                f"{rejected:,} {rows} of {len(files):,} {of} did not fit the table's columns: kept, with the reason, in {table.url}"
            )
            result.more["files/rejected"] = dict(list(files.items())[:SHOWN_FILES])

    # ------------------------------------------------------------------ the commit
    def write_batches(self) -> Iterator[AbstractContextManager[WriteBatch]]:
        plan = self._plan
        columns = (FILE, MODIFIED, *self._columns)
        newest = max((file.modified for file in self._files if file.key in self._counts), default=None)
        # The watermark is the newest modification time that was read. It is informative only, as files are compared one by one.
        before = None if plan.whole else plan.watermark
        watermark = max((value for value in (before, newest) if value is not None), default=None)
        self.result.new = watermark
        yield nullcontext(
            WriteBatch(
                container=plan.container,
                windows=(),
                include_nulls=False,
                whole=plan.whole,
                columns=columns,
                base_version=plan.base_version,
                state=TableState(plan.container.signature, plan.container.strategy.value, (), "files", watermark, loaded=True),
                expected=sum(count.rows for count in self._counts.values()),
                allow_empty=True,  # a file without rows may replace one with rows; the plan has refused a folder without any file
                commit_metadata=plan.commit_metadata(watermark, self._run_id),
                rows=_BatchRows(self._rows, columns),
                files=(*self._counts, *self._drop),
                # True where no file has rows in the table yet. A recheck may have found files in it that the manifest does not have.
                only_adds=not plan.recheck
                and not self._drop
                and not any(plan.known[key].rows for key in self._counts if key in plan.known),
            )
        )

    def committed(self, write_batch: WriteBatch, outcome: WriteResult) -> None:
        """See ``ContainerSync``. Writes the rejected rows, and makes the manifest's records."""
        self.result.add(outcome)
        head = self.table.head()
        assert head is not None
        self._replace_rejected(write_batch.files or ())
        self._records = self._all_records(head.table_id, outcome.data_version)
        for column in outcome.evolution.add:
            self.result.messages.append(f"column {column.name} ({column.type}) was added; rows of files read before are NULL there")
        for old, new in outcome.evolution.widen:
            self.result.messages.append(f"column {new.name} was widened from {old.type} to {new.type}")
        self.result.seconds = time.monotonic() - self._started

    def _replace_rejected(self, keys: Sequence[str]) -> None:
        """Replaces the rejected rows of the files with these keys. Most syncs have none, before or now: then nothing is written."""
        now = any(count.rejected for count in self._counts.values())
        before = self._plan.recheck or any(self._plan.known[key].rejected for key in keys if key in self._plan.known)
        table = rejected_table(self._scope.lake, self._plan.container.key_path)
        if not now and (table.head() is None or not (self._plan.whole or before)):
            return
        frame = self._rows.bad() if self._rows is not None else self._scope.spark.read.format("delta").load(table.url).where("false")
        replace_rejected(self._plan.container.label, table, frame, None if self._plan.whole else keys)

    # ------------------------------------------------------------------ records and metadata of each file
    def _all_records(self, table_id: str, version: int) -> list[FileRecord]:
        """Returns the manifest's records of this sync, as of one commit of the table."""
        blank = {key: self._blank(key, table_id, version) for key in (*self._found, *self._drop)}
        return [
            *(self._record(key, count, table_id, version) for key, count in self._counts.items()),
            *(self._refused(key, table_id, version) for key in self._refusals),
            *(replace(blank[key], rows=one.rows, rejected=one.rejected, dropped=one == _NOTHING) for key, one in self._found.items()),
            *(replace(blank[key], dropped=True) for key in self._drop),
        ]

    def _record(self, key: str, count: FileCount, table_id: str, version: int) -> FileRecord:
        stamp = self._plan.listed.stamps[key]
        blank = self._blank(key, table_id, version)
        return replace(blank, modified=stamp.modified, size=stamp.size, etag=stamp.etag, rows=count.rows, rejected=count.rejected)

    def _refused(self, key: str, table_id: str, version: int) -> FileRecord:
        """The record of a file that could not be read: its rows are those of the version before, unless the table is replaced."""
        before = self._plan.known.get(key)
        remembered = FileCount(before.rows, before.rejected) if before is not None else FileCount(0, 0)
        # After a recheck, the number of the file's rows was queried from the table itself; otherwise it is in the record before.
        held = self._held.get(key, _NOTHING) if self._held is not None else remembered
        replaced = self._plan.whole and bool(self._counts)
        kept = FileCount(0, 0) if replaced else FileCount(held.rows, held.rejected)
        return replace(self._record(key, kept, table_id, version), refused=self._refusals[key])

    def metadata(self) -> dict[str, Any]:
        return {**super().metadata(), "dagster/column_schema": (FILE, MODIFIED, *self._columns)}

    def rows_of(self, keys: Sequence[str]) -> Mapping[str, int]:
        """The number of rows in the table, by key, of the given files and of all files that were read or refused."""
        rows = {key: self._plan.known[key].rows for key in keys if key in self._plan.known}
        rows |= {record.file: 0 if record.dropped else record.rows for record in self._records}
        return {key: rows.get(key, 0) for key in dict.fromkeys((*keys, *self._counts, *self._refusals))}

    def total_rows(self) -> int | None:
        """See ``ContainerSync``. It is the sum over the records of the files; after a recheck the rows are counted in the table itself."""
        if self._plan.recheck:
            return None
        rows = {} if self._plan.whole else {key: record.rows for key, record in self._plan.known.items()}
        return sum((rows | {record.file: 0 if record.dropped else record.rows for record in self._records}).values())

    def partition_metadata(self, key: str) -> Mapping[str, Any]:
        stamp, count = self._plan.listed.stamps.get(key), self._counts.get(key)
        values: dict[str, Any] = {"file/path": shown_path(self._plan.listed.paths.get(key, key))}
        if stamp is not None:
            values |= {"file/modified": format_value(CursorType.TIMESTAMP, stamp.modified), "file/size": stamp.size}
        if count is not None and count.rejected:
            values["file/rows_rejected"] = count.rejected
        if key in self._refusals:
            values |= {"file/refused": self._refusals[key], "sync/status": "warning"}
        return values


def _now() -> int:
    """This machine's clock, in microseconds since 1970 UTC."""
    return time.time_ns() // 1000
