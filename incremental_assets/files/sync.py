"""Runs one sync of a container of files: reads the planned files, commits their rows at once, and records each file in the manifest.

The rows are committed first, then the table's state, then the rejected rows; then Dagster's events are recorded, and the manifest is
written last. Wherever that breaks off, the files count as not read, and are read and replaced again; the next sync compares the manifest
with the files that the table holds (``recheck``).
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.errors import SourceError, SourceInterrupted
from incremental_assets.core.files import FILE, MODIFIED, FileState, shown_path
from incremental_assets.core.ladder import TEXT
from incremental_assets.core.looks import Look
from incremental_assets.core.names import backticked
from incremental_assets.core.nested_types import NESTED
from incremental_assets.core.plan import Mode
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import Window
from incremental_assets.delta.as_text import REWRITTEN_BYTES, may_be_rewritten
from incremental_assets.delta.commit_files import indexed_columns
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.local_rows import arrow_schema
from incremental_assets.delta.result import SyncResult
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import AllRows, BatchRows, NotHere, OfFiles, StagedFiles, WriteBatch, WriteResult
from incremental_assets.files.attempt import Attempt
from incremental_assets.files.attempts import Attempts
from incremental_assets.files.audit import audit
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.local_read import RowsReadHere, read_here
from incremental_assets.files.manifest import EVERY_FILE, FileRecord, Manifest
from incremental_assets.files.plan import FilesPlan
from incremental_assets.files.readers.options import without_effect
from incremental_assets.files.readers.path_values import names_of
from incremental_assets.files.readers.read import FileCount, FileRows
from incremental_assets.files.readers.reading import ReadFile, Reading
from incremental_assets.files.recheck import NO_ROWS, Recheck, StoredRows, recheck
from incremental_assets.files.rejected import rejected_table, replace_rejected

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

SHOWN_FILES = 20
"""The largest number of files that the metadata of an event lists by name, for each kind of trouble."""


class FilePartitions(Protocol):
    """The list of the container's partitions in Dagster."""

    def remove(self, keys: Sequence[str]) -> None:
        """Removes the partitions with these keys, as no row is left of their files."""
        ...


@dataclass(frozen=True)
class _BatchRows(BatchRows):
    """The ``BatchRows`` of a sync of files. ``rows``: None where no file was read, as when rows are only removed."""

    rows: FileRows | RowsReadHere | None
    columns: Sequence[Column]

    def frame(self, spark: "SparkSession") -> "DataFrame":
        if self.rows is not None:
            return self.rows.good()
        # An empty frame with the table's columns deletes the rows of the files to be dropped.
        empty = ", ".join(f"cast(NULL AS {c.type}) AS {backticked(c.name)}" for c in self.columns)
        return spark.sql(f"SELECT {empty} WHERE false")

    @property
    def staged(self) -> StagedFiles | None:
        return self.rows.staged if isinstance(self.rows, RowsReadHere) else None

    def local(self) -> "pa.Table":
        if isinstance(self.rows, FileRows):
            raise NotHere("Spark reads the files")
        if self.rows is not None:
            return self.rows.local()
        schema = arrow_schema(self.columns)
        if schema is None:
            raise NotHere("a column's type is not known here")
        return schema.empty_table()

    def still_there(self) -> None:
        """Does nothing: a file that changed meanwhile has another stamp than its record, and is read again by the next sync."""

    def emptied(self) -> Sequence[Window]:
        return ()


class FileSync(ContainerSync):
    """The sync of a container of files. It has one write batch."""

    def __init__(
        self,
        definition: FileDefinition,
        plan: FilesPlan,
        table: LakeTable,
        manifest: Manifest,
        scope: LakeScope,
        run_id: str,
        log: Callable[[str], None],
        partitions: FilePartitions,
    ) -> None:
        super().__init__(table, None, SyncResult(plan, plan.watermark, plan.watermark, warnings=list(plan.warnings)))
        self._definition, self._plan, self._manifest = definition, plan, manifest
        self._scope, self._run_id, self._log, self._partitions = scope, run_id, log, partitions
        self._started = time.monotonic()
        self._attempt = Attempt(scope, Attempts(scope.lake, plan.container.key_path), log)
        self._rows: FileRows | RowsReadHere | None = None
        self._columns: tuple[Column, ...] = ()
        self._rewritten: frozenset[str] = frozenset()
        self._rejected = rejected_table(scope.lake, plan.container.key_path)
        self._due, self._drop = plan.due, plan.drop
        self._recheck: Recheck | None = None  # None: the plan asks for none
        self._records: list[FileRecord] = []
        self._contents: dict[str, str] = {}  # by key, the hashes of files that have one
        self._renewed: tuple[str, ...] = ()  # keys of files that were in doubt and have the same content as before

    def prepare(self) -> bool:
        """Reads the files. Returns whether there is anything to commit.

        There is nothing where no file could be read and no rows are to be removed; the whole table is never replaced by nothing.
        """
        plan = self._plan
        head = self.table.head()
        self._manifest.keep_only(plan.remembered)
        self._compare_contents()
        if plan.recheck:
            self._recheck = recheck(lambda: self._scope.spark, plan, self.table, self._rejected)
            self._due, self._drop = self._recheck.due, self._recheck.drop
        in_lake = () if head is None or plan.whole else tuple(c for c in head.columns if c.name not in (FILE.name, MODIFIED.name))
        if self._due:
            self._rows = self._read_here(head, in_lake)
            if self._rows is None:
                _, self._rows = self._attempt.read(self._due, lambda files: self._read(files, in_lake))
        self._columns = self._rows.columns if self._rows is not None else in_lake
        self._rewritten = self._may_need_rewriting(in_lake)
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
        """Writes the manifest, after Dagster has recorded the events, and compares the files with the lake where that is asked for.

        Where a run ends before the events are recorded, the manifest is not written either, and the next sync does it all once more.
        """
        self._partitions.remove([*self._partitions_gone(), *self._plan.unknown])
        self._manifest.add(self._records)
        self._attempt.done()
        if self._plan.request.audit is not None:
            if self._rows is not None:
                self._rows.close()  # an audit reads as many again
            self.result.audited = audit(self._definition, self._scope, self._plan.request.audit, self._log)

    # ------------------------------------------------------------------ reading
    def _compare_contents(self) -> None:
        """Finds out which of the files that may have been replaced have the same content as before, by hashes. These are not read again.

        A file gets a hash when it is in doubt for the first time. It is made before the file is read: if the file is replaced in between,
        its identity differs once more, and its hash, too.
        """
        plan = self._plan
        decides = plan.request.mode is Mode.INCREMENTAL and not plan.recheck and not plan.whole
        for file in self._due:
            record = plan.known.get(file.key)
            is_doubtful = record is not None and plan.listed.stamps[file.key].is_doubtful(record.stamp)
            if record is None or not (is_doubtful or record.sha256):
                continue
            try:
                self._contents[file.key] = found = self._definition.settings.address.sha256(file.path)
            except SourceInterrupted:
                raise
            except SourceError:
                continue  # its reader says what is wrong with it
            if decides and is_doubtful and record.state is FileState.READ and record.sha256 == found:
                self._renewed += (file.key,)
        renewed = frozenset(self._renewed)
        self._due = tuple(file for file in self._due if file.key not in renewed)

    def _read(self, files: Sequence[ReadFile], known: tuple[Column, ...]) -> FileRows:
        definition = self._definition
        address, reading = definition.settings.address, self._reading
        rows = FileRows(self._scope.spark, address, reading, files, known, self._folder(), self._log, self._may_be_rewritten)
        self._scope.stack.callback(rows.close)
        return rows

    def _read_here(self, head: Head | None, known: tuple[Column, ...]) -> RowsReadHere | None:
        address, reading = self._definition.settings.address, self._reading
        indexed, folder = indexed_columns(head), self._folder()
        return read_here(self._scope, self._attempt, address, reading, self._due, known, indexed, folder, self._may_be_rewritten)

    def _state(self, watermark: int | None) -> TableState:
        container = self._plan.container
        cut = container.cut if self._definition.folders is not None else None
        return TableState(
            container.signature, container.strategy.value, (), "files", watermark, loaded=True, valueless=self._valueless, cut=cut
        )

    @property
    def _reading(self) -> Reading:
        return replace(self._definition.reading, valueless=self._valueless_before)

    @property
    def _valueless_before(self) -> tuple[str, ...]:
        """The columns without any value that the table's state knows."""
        return self._plan.state.valueless if self._plan.state is not None and not self._plan.whole else ()

    @property
    def _valueless(self) -> tuple[str, ...]:
        """The columns that no file has had a value in, this sync included."""
        known = {column.name.lower() for column in self._columns}
        names = {name.lower(): name for name in (*self._valueless_before, *(self._rows.valueless if self._rows is not None else ()))}
        return tuple(name for lower, name in names.items() if lower not in known)

    def _may_need_rewriting(self, in_lake: Sequence[Column]) -> frozenset[str]:
        """The names of the table's inferred columns that are text, or another nested type, from this sync on."""
        before, declared = {column.name: column.type for column in in_lake}, {name.lower() for name in self._definition.reading.types}
        new = {
            column.name for column in self._columns if column.type.startswith((TEXT, *NESTED)) and before.get(column.name) != column.type
        }
        return frozenset(name for name in new if name.lower() not in declared)

    def _may_be_rewritten(self) -> bool:
        """Whether an inferred column may become text, for which the table has to be rewritten."""
        return may_be_rewritten(self.table)

    def _folder(self) -> Path:
        """A new folder for temporary files of this sync."""
        return Path(self._scope.stack.enter_context(tempfile.TemporaryDirectory(prefix="incremental-assets-")))

    def needs_spark(self) -> bool:
        """See ``ContainerSync``. Rows that were read here are mostly written without it if they replace none, all, or few."""
        rows = self._rows
        if rows is None:
            return False
        return not isinstance(rows, RowsReadHere) or not (self._plan.whole or self._only_adds or rows.are_few)

    @property
    def _only_adds(self) -> bool:
        """Whether no file has rows in the table yet. A recheck may have found files in it that the manifest does not have."""
        plan = self._plan
        return not plan.recheck and not self._drop and not any(plan.known[key].rows for key in self._counts if key in plan.known)

    @property
    def _corrected(self) -> Mapping[str, StoredRows]:
        """By key, the rows of files of which the manifest had other numbers than the table."""
        return self._recheck.corrected if self._recheck is not None else {}

    @property
    def _counts(self) -> Mapping[str, FileCount]:
        return self._rows.counts if self._rows is not None else {}

    @property
    def look(self) -> Look | None:
        return None if FileState.WAITING in self._states.values() else super().look

    @property
    def _refusals(self) -> Mapping[str, str]:
        return {**(self._rows.refused if self._rows is not None else {}), **self._attempt.refused}

    @property
    def _states(self) -> Mapping[str, FileState]:
        """The state in which the sync leaves each file that was due, or whose rows it drops, by key."""
        states = dict.fromkeys((file.key for file in self._due), FileState.WAITING)
        states |= dict.fromkeys(self._counts, FileState.READ)
        states |= dict.fromkeys(self._refusals, FileState.REFUSED)
        return states | dict.fromkeys(self._drop, FileState.GONE)

    def _note(self) -> None:
        """Adds the counts, messages and warnings of the read to the result."""
        result, plan, states = self.result, self._plan, Counter(self._states.values())
        waiting = states[FileState.WAITING]
        rejected = sum(count.rejected for count in self._counts.values())
        result.more = {
            "sync/files_read": states[FileState.READ],
            "sync/files_refused": states[FileState.REFUSED],
            "sync/files_waiting": plan.recent,
            "sync/files_left": plan.later + waiting,
            "sync/files_gone": len(plan.gone),
            "sync/rows_rejected": rejected,
        }
        result.messages.append(plan.reason)
        of_folders = names_of(self._due)
        if of_folders and not {name.lower() for name in of_folders} & {column.name.lower() for column in self._columns}:
            result.messages.append(
                f"{', '.join(of_folders)} of the folders' names are no columns of the table, as it was loaded without them; "
                f"--reset-watermarks loads it anew with them"
            )
        if self._renewed:
            result.messages.append(f"{len(self._renewed):,} of them have the same content as before, and are not read again")
        result.warnings += without_effect(self._definition.format, self._definition.options.read)
        if waiting and plan.request.mode is Mode.REFRESH:
            result.warnings.append(
                f"{counted(waiting, 'file was', 'files were')} not read again, as the Spark server ended meanwhile: ask once more"
            )
        elif waiting:
            result.messages.append(f"{waiting:,} wait for the next sync, as the Spark server ended while it read them with others")
        if self._refusals:
            shown = list(self._refusals.values())[:3]
            more = f" … and {len(self._refusals) - 3:,} more" if len(self._refusals) > 3 else ""
            count = len(self._refusals)
            result.warnings.append(f"{counted(count, 'file')} could not be read: {'; '.join(shown)}{more}")
            lost = sum(plan.known[key].rows for key in self._refusals if key in plan.known) if plan.whole and self._counts else 0
            if lost:
                result.warnings.append(f"gone with the table that was replaced: {counted(lost, 'row')} that it had of them")
            result.more["files/refused"] = dict(list(self._refusals.items())[:SHOWN_FILES])
        held = self._rows.held if self._rows is not None else ()
        if held:
            result.warnings.append(
                f"{' and '.join(held)} would have to become text, for which tables of more than {REWRITTEN_BYTES >> 30} GB are not "
                f"rewritten: say columns: {{{held[0]}: string}} in the YAML, and read all files again with --reset-watermarks"
            )
        new = [name for name in self._valueless if name not in self._valueless_before]
        if new:
            result.messages.append(
                f"no file has a value of {' and '.join(new)} yet: the table gets the column with the first value, and its type; columns: "
                f"{{{new[0]}: …}} in the YAML sets it before"
            )
        if rejected:
            files = {key: count.rejected for key, count in self._counts.items() if count.rejected}
            rows, of = "row" if rejected == 1 else "rows", "file" if len(files) == 1 else "files"
            result.warnings.append(
                f"{rejected:,} {rows} of {len(files):,} {of} did not fit the table's columns: kept, with the reason, in "
                f"{self._rejected.url}"
            )
            result.more["files/rejected"] = dict(list(files.items())[:SHOWN_FILES])

    # ------------------------------------------------------------------ the commit
    def write_batches(self) -> Iterator[AbstractContextManager[WriteBatch]]:
        plan = self._plan
        columns = (FILE, MODIFIED, *self._columns)
        newest = max((file.modified for file in self._due if file.key in self._counts), default=None)
        # The watermark is the newest modification time that was read. It is informative only, as files are compared one by one.
        before = None if plan.whole else plan.watermark
        watermark = max((value for value in (before, newest) if value is not None), default=None)
        self.result.new = watermark
        read = OfFiles((*self._counts, *self._drop), self._only_adds)
        yield nullcontext(
            WriteBatch(
                container=plan.container,
                replaces=AllRows(read) if plan.whole else read,
                columns=columns,
                base_version=plan.base_version,
                state=self._state(watermark),
                expected=sum(count.rows for count in self._counts.values()),
                allow_empty=True,  # a file without rows may replace one with rows; the plan has refused a folder without any file
                commit_metadata=plan.commit_metadata(watermark, self._run_id),
                rows=_BatchRows(self._rows, columns),
                rewritten=self._rewritten,
            )
        )

    def committed(self, write_batch: WriteBatch, outcome: WriteResult) -> None:
        """See ``ContainerSync``. Writes the rejected rows, and makes the manifest's records."""
        self.result.add(outcome)
        head = self.table.head()
        assert head is not None
        self._replace_rejected(write_batch.files or ())
        self._records = self._all_records(head.table_id, outcome.data_version)
        self.result.messages += outcome.evolution.messages()
        if outcome.evolution.add:
            self.result.messages.append("rows of files read before are NULL in the added columns")
        self.result.seconds = time.monotonic() - self._started

    def _replace_rejected(self, keys: Sequence[str]) -> None:
        """Replaces the rejected rows of the files with these keys. Most syncs have none, before or now: then nothing is written."""
        now = any(count.rejected for count in self._counts.values())
        before = self._plan.recheck or any(self._plan.known[key].rejected for key in keys if key in self._plan.known)
        table = self._rejected
        if not now and (table.head() is None or not (self._plan.whole or before)):
            return
        frame = self._rows.bad() if self._rows is not None else self._scope.spark.read.format("delta").load(table.url).where("false")
        replace_rejected(self._plan.container.label, table, frame, None if self._plan.whole else keys)

    # ------------------------------------------------------------------ records and metadata of each file
    def _all_records(self, table_id: str, version: int) -> list[FileRecord]:
        """Returns the manifest's records of this sync, as of one commit of the table. A file that waits has none."""
        blank = partial(self._blank, table_id=table_id, version=version)
        records: list[FileRecord] = []
        for key, state in self._states.items():
            if state is FileState.READ:
                records.append(self._record(blank(key), self._counts[key]))
            elif state is FileState.REFUSED:
                records.append(self._refused(blank(key)))
            elif state is FileState.GONE:
                records.append(replace(blank(key), dropped=True))
        for key, one in self._corrected.items():
            records.append(replace(blank(key), rows=one.rows, rejected=one.rejected, dropped=one == NO_ROWS))
        if not self._plan.whole:
            records += self._renewed_records({record.file for record in records})
        return records

    def _renewed_records(self, others: Set[str]) -> Iterator[FileRecord]:
        """Yields records with the identities of unchanged files: of those in doubt, and of all that an earlier version has recorded.

        ``others``: the keys of files that have another record of this sync.
        """
        renewed, stamps = frozenset(self._renewed), self._plan.listed.stamps
        for key, record in self._plan.known.items():
            stamp = stamps.get(key)
            if stamp is None or key in others or record.identity == stamp.identity:
                continue
            if key in renewed or (record.identity is None and record.stamp.same(stamp)):
                yield replace(record, identity=stamp.identity, at=_now())

    def _blank(self, key: str, table_id: str, version: int) -> FileRecord:
        """A record of a file without stamp and rows, written now."""
        return FileRecord(key, 0, 0, None, 0, 0, None, False, table_id, version, _now(), self._run_id, self._definition.how)

    def _record(self, blank: FileRecord, count: FileCount | StoredRows) -> FileRecord:
        stamp = self._plan.listed.stamps[blank.file]
        seen = replace(blank, modified=stamp.modified, size=stamp.size, etag=stamp.etag, identity=stamp.identity)
        return replace(seen, rows=count.rows, rejected=count.rejected, sha256=self._contents.get(blank.file))

    def _refused(self, blank: FileRecord) -> FileRecord:
        """The record of a file that could not be read: its rows are those of the version before, unless the table is replaced."""
        key, before = blank.file, self._plan.known.get(blank.file)
        kept = FileCount(before.rows, before.rejected) if before is not None else FileCount(0, 0)
        if self._plan.whole and self._counts:
            kept = FileCount(0, 0)
        elif self._recheck is not None:
            # The number of the file's rows was queried from the table itself.
            kept = self._recheck.of(key)
        return replace(self._record(blank, kept), refused=self._refusals[key])

    def metadata(self) -> dict[str, Any]:
        return {**super().metadata(), "dagster/column_schema": (FILE, MODIFIED, *self._columns)}

    def rows_of(self, keys: Sequence[str]) -> Mapping[str, int]:
        """The number of rows in the table, by key, of the given partitions and of all whose files were read or refused.

        Where partitions have several files, those that have lost some of them are among them.
        """
        if self._definition.folders is not None:
            rows = Counter[str]()
            for key, number in self._rows_by_file().items():
                rows[self._definition.partition_of(key)] += number
            gone = self._partitions_gone()
            files = (*(file for file, state in self._states.items() if state is not FileState.WAITING), *self._corrected)
            changed = (key for key in map(self._definition.partition_of, files) if key not in gone)
            return {key: rows[key] for key in dict.fromkeys((*keys, *changed))}
        rows = {key: self._plan.known[key].rows for key in keys if key in self._plan.known}
        rows |= {record.file: 0 if record.dropped else record.rows for record in self._records}
        return {key: rows.get(key, 0) for key in dict.fromkeys((*keys, *self._counts, *self._refusals))}

    def total_rows(self) -> int | None:
        """See ``ContainerSync``. It is the sum over the records of the files; after a recheck the rows are counted in the table itself."""
        if self._plan.recheck:
            return None
        return sum(self._rows_by_file().values())

    def _rows_by_file(self) -> Mapping[str, int]:
        """The number of rows in the table of each file that has a record, by key."""
        rows = {} if self._plan.whole else {key: record.rows for key, record in self._plan.known.items()}
        return rows | {record.file: 0 if record.dropped else record.rows for record in self._records}

    def _partitions_gone(self) -> Sequence[str]:
        """The keys of partitions whose files are all gone, with the rows that this sync has dropped."""
        of = self._definition.partition_of
        if self._definition.folders is None or not self._drop:
            return self._drop
        dropped = frozenset(self._drop)
        left = {of(key) for key in (*self._plan.listed.stamps, *(key for key in self._plan.known if key not in dropped))}
        return [key for key in dict.fromkeys(map(of, self._drop)) if key not in left]

    def partition_metadata(self, key: str) -> Mapping[str, Any]:
        if self._definition.folders is not None:
            return self._metadata_of_folders(key)
        stamp, count = self._plan.listed.stamps.get(key), self._counts.get(key)
        values: dict[str, Any] = {"file/path": shown_path(self._plan.listed.path(key))}
        if stamp is not None:
            values |= {"file/modified": format_value(CursorType.TIMESTAMP, stamp.modified), "file/size": stamp.size}
        if count is not None and count.rejected:
            values["file/rows_rejected"] = count.rejected
        if key in self._refusals:
            values |= {"file/refused": self._refusals[key], "sync/status": "warning"}
        return values

    def _metadata_of_folders(self, key: str) -> Mapping[str, Any]:
        """The metadata of a partition of several files. One of which no file could be read counts as refused."""
        of = self._definition.partition_of
        refused = [reason for file, reason in self._refusals.items() if of(file) == key]
        read = [count for file, count in self._counts.items() if of(file) == key and file not in self._refusals]
        values: dict[str, Any] = {"files/read": len(read)}
        if rejected := sum(count.rejected for count in read):
            values["file/rows_rejected"] = rejected
        if refused:
            values["sync/status"] = "warning"
            values["file/refused" if not read else "files/some_refused"] = "; ".join(refused[:SHOWN_FILES])
        return values


def _now() -> int:
    """This machine's clock, in microseconds since 1970 UTC."""
    return time.time_ns() // 1000
