"""Compares a container of files with its table in the lake: file by file, by reading the files once more.

The files are read by the very reader of a sync, and what it rejects counts as rejected. The container's lock is held, so the lake stays as
it is. The folder does not: files that have changed since the sync, or change while they are compared, are left to the next sync.
"""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from incremental_assets.core.comparison import (
    MOST_EXAMPLES,
    Checksum,
    Comparison,
    Difference,
    HashedRows,
    Key,
    PartitionDifference,
    RowScope,
    compare,
)
from incremental_assets.core.files import FILE, MODIFIED, FileState
from incremental_assets.core.plan import AuditRequest
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.local_rows import arrow_schema
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.files.attempt import Attempt
from incremental_assets.files.attempts import Attempts
from incremental_assets.files.container_listing import FileListing, list_files
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.hashed_rows import FileHashedRows, as_columns, hashed_rows
from incremental_assets.files.local_hashed_rows import LocalFileHashedRows, read_files_here
from incremental_assets.files.local_read import RowsReadHere, read_here
from incremental_assets.files.manifest import FileRecord, Manifest
from incremental_assets.files.readers.local_files import REJECTED_ROWS
from incremental_assets.files.readers.read import FileRows
from incremental_assets.files.readers.reading import ReadFile, Reading
from incremental_assets.files.recheck import NO_ROWS, StoredRows, stored_rows
from incremental_assets.files.rejected import rejected_table

NAMED = 3
"""How many files that cannot be read are named with their reasons."""


@dataclass
class _Found:
    """What has been found so far. ``different``: by key of the file."""

    rows: int = 0
    rejected: int = 0
    keys: list[str | None] = field(default_factory=list[str | None])
    different: dict[str | None, PartitionDifference] = field(default_factory=dict[str | None, PartitionDifference])
    counts: dict[Difference, int] = field(default_factory=lambda: dict.fromkeys(Difference, 0))
    examples: dict[Difference, list[Key]] = field(default_factory=lambda: {kind: [] for kind in Difference})
    waiting: int = 0
    refused: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, found: Comparison) -> None:
        """Adds what the comparison of some files has found. Their rows are counted by the reader, which tells good ones from rejected."""
        for one in found.different:
            self.different[one.key] = one
        for kind in Difference:
            self.counts[kind] += found.counts[kind]
            self.examples[kind] = [*self.examples[kind], *found.examples.get(kind, ())][:MOST_EXAMPLES]

    def differs(self, key: str | None, source: int, lake: int) -> None:
        """Adds a file that is not read: by how many rows of the lake are too many or missing."""
        self.different[key] = PartitionDifference(key, Checksum(source), Checksum(lake))
        kind = Difference.MISSING if lake < source else Difference.SURPLUS
        self.counts[kind] += abs(source - lake)
        if len(self.examples[kind]) < MOST_EXAMPLES:
            self.examples[kind].append((key,))


def audit(definition: FileDefinition, scope: LakeScope, request: AuditRequest, log: Callable[[str], None]) -> Comparison:
    """Compares the newest version of the table with the files. The container's lock must be held, after a sync.

    Raises what reading the folder or the files raises, and LakeError.
    """
    return _Audit(definition, scope, request, log).compared()


class _Audit:
    """One audit of a container."""

    def __init__(self, definition: FileDefinition, scope: LakeScope, request: AuditRequest, log: Callable[[str], None]) -> None:
        self._definition, self._scope, self._log = definition, scope, log
        self._asked = None if request.keys is None else frozenset(request.keys)
        container = definition.container
        self._table, self._rejected = scope.table(*container.key_path), rejected_table(scope.lake, container.key_path)
        self._head: Head | None = self._table.head()
        state = self._head.state(container) if self._head is not None else None
        manifest = Manifest(scope.lake, container.key_path)
        remembered = manifest.remembered(self._head.table_id if self._head else None, state.data_version if state else None)
        self._known: Mapping[str, FileRecord] = remembered.files
        self._listed: FileListing = list_files(definition)
        self._found = _Found()

    def compared(self) -> Comparison:
        started = time.monotonic()
        found, container = self._found, self._definition.container
        held: Mapping[str, StoredRows] = {}
        of_no_file = 0
        with lake_errors(container.label, self._table.url):
            if self._head is not None:
                held, of_no_file = stored_rows(lambda: self._scope.spark, self._table, self._rejected)
            due = self._sorted_out(held)
            most = self._definition.settings.max_files_per_run
            for at in range(0, len(due), most):
                self._compare_files(due[at : at + most], held)
            gone = self._of_files_gone(held)
            self._of_no_file(of_no_file)
        order = {key: number for number, key in enumerate(found.keys)}
        different = sorted(found.different.values(), key=lambda one: order.get(one.key, len(order)))
        return Comparison(
            keys=tuple(dict.fromkeys(map(self._partition_of, found.keys))),
            rows=found.rows,
            different=self._by_partition(different),
            counts=found.counts,
            examples=found.examples,
            version=self._head.version if self._head is not None else 0,
            seconds=time.monotonic() - started,
            notes=tuple(self._notes(gone)),
            rejected=found.rejected,
        )

    # ------------------------------------------------------------------ which files are compared
    def _is_asked(self, key: str) -> bool:
        return self._asked is None or self._partition_of(key) in self._asked

    def _partition_of(self, key: str | None) -> str | None:
        return None if key is None else self._definition.partition_of(key)

    def _by_partition(self, different: Sequence[PartitionDifference]) -> tuple[PartitionDifference, ...]:
        """The partitions that differ. One of several files names some of those that differ, whose rows are counted."""
        if self._definition.folders is None:
            return tuple(different)
        found: dict[str | None, list[PartitionDifference]] = {}
        for one in different:
            found.setdefault(self._partition_of(one.key), []).append(one)
        return tuple(_together(key, ones) for key, ones in found.items())

    def _sorted_out(self, held: Mapping[str, StoredRows]) -> list[ReadFile]:
        """Returns the files of the folder that the lake should have, in the order of their keys. All others wait, or could not be read."""
        due: list[ReadFile] = []
        for key in sorted(filter(self._is_asked, self._listed.stamps)):
            record = self._known.get(key)
            if record is None or not record.stamp.same(self._listed.stamps[key]):
                self._found.waiting += 1
                continue
            if record.state is FileState.READ:
                due.append(self._listed.file(key))
            else:
                self._unreadable(key, record.refused or "", held.get(key, NO_ROWS))
        return due

    def _unreadable(self, key: str, reason: str, held: StoredRows) -> None:
        """Notes a file that cannot be read: it is not known whether the lake has its rows."""
        found = self._found
        found.keys.append(key)
        found.refused[key] = reason
        found.different[key] = PartitionDifference(key, Checksum(), Checksum(held.rows + held.rejected), reason)

    # ------------------------------------------------------------------ files that are read
    def _compare_files(self, files: Sequence[ReadFile], held: Mapping[str, StoredRows]) -> None:
        """Reads some files and compares them, in parts where the Spark server ends meanwhile (``files.attempt``)."""
        left = tuple(files)
        while left:
            attempt = Attempt(self._scope, Attempts(self._scope.lake, self._definition.container.key_path), self._log)
            rows = self._read_here(attempt, left)
            chosen, rows = (left, rows) if rows is not None else attempt.read(left, self._read)
            for key, reason in attempt.refused.items():
                self._unreadable(key, reason, held.get(key, NO_ROWS))
            if rows is not None:
                try:
                    self._compare_rows(chosen, rows, held)
                finally:
                    rows.close()
            attempt.done()
            waiting = {file.key for file in attempt.waiting}
            if len(waiting) == len(left):  # none could be read, and the server that is asked has ended
                self._found.waiting += len(left)
                return
            left = attempt.waiting

    def _read_here(self, attempt: Attempt, files: Sequence[ReadFile]) -> RowsReadHere | None:
        address, columns = self._definition.settings.address, self._columns_of_lake()
        return read_here(self._scope, attempt, address, self._reading, files, columns, 0, self._staging())

    def _read(self, files: Sequence[ReadFile]) -> FileRows:
        address, columns = self._definition.settings.address, self._columns_of_lake()
        return FileRows(self._scope.spark, address, self._reading, files, columns, self._staging(), self._log)

    @property
    def _reading(self) -> Reading:
        return replace(self._definition.reading, valueless=self._head.valueless if self._head is not None else ())

    def _staging(self) -> Path:
        return Path(self._scope.stack.enter_context(tempfile.TemporaryDirectory(prefix="incremental-assets-")))

    def _columns_of_lake(self) -> tuple[Column, ...]:
        columns = self._head.columns if self._head is not None else ()
        return tuple(column for column in columns if column.name not in (FILE.name, MODIFIED.name))

    def _compare_rows(self, files: Sequence[ReadFile], rows: FileRows | RowsReadHere, held: Mapping[str, StoredRows]) -> None:
        found = self._found
        for key, reason in rows.refused.items():
            self._unreadable(key, reason, held.get(key, NO_ROWS))
        keys = tuple(file.key for file in files if file.key in rows.counts)
        with self._both_sides(keys, rows) as (source, lake):
            compared = compare(source, lake, None, RowScope((), False, keys))
            changed = self._changed_since(keys) if compared.different else frozenset[str]()
            if changed:
                keys = tuple(key for key in keys if key not in changed)
                compared = compare(source, lake, None, RowScope((), False, keys))
        found.add(compared)
        found.waiting += len(changed)
        found.keys += keys
        for key in keys:
            count, record, here = rows.counts[key], self._known[key], held.get(key, NO_ROWS)
            found.rows += count.rows
            found.rejected += count.rejected
            recorded, there = (record.rows, record.rejected), (here.rows, here.rejected)
            if key not in found.different and recorded != there:
                has = f"{counted(recorded[0], 'row')} and {recorded[1]:,} rejected ones"
                reason = f"the manifest has {has} of it, the lake {there[0]:,} and {there[1]:,}"
                found.different[key] = PartitionDifference(key, Checksum(sum(recorded)), Checksum(sum(there)), reason)

    @contextlib.contextmanager
    def _both_sides(self, keys: Sequence[str], rows: FileRows | RowsReadHere) -> Iterator[tuple[HashedRows, HashedRows]]:
        """The rows that were read from the files with these keys, and those of the lake, which get the same columns and types."""
        here = self._both_sides_here(keys, rows) if isinstance(rows, RowsReadHere) else None
        if here is not None:
            yield here
            return
        spark, columns = self._scope.spark, rows.columns
        good, views = rows.good(), (f"__incremental_assets_{uuid.uuid4().hex}", f"__incremental_assets_{uuid.uuid4().hex}")
        types = {one.name: one.dataType for one in good.schema.fields}
        good.createTempView(views[0])
        rows.bad().createTempView(views[1])
        assert self._head is not None
        lake = as_columns(_at(self._table, self._head), self._columns_of_lake(), columns)
        beside = self._rejected.head()
        try:
            yield (
                FileHashedRows(spark, hashed_rows(views[0], columns, types, views[1])),
                FileHashedRows(spark, hashed_rows(lake, columns, types, None if beside is None else _at(self._rejected, beside))),
            )
        finally:
            for view in views:
                spark.catalog.dropTempView(view)

    def _both_sides_here(self, keys: Sequence[str], rows: RowsReadHere) -> tuple[HashedRows, HashedRows] | None:
        """The same in this process; None if it cannot hold one of the sides, or has no texts for a column's type."""
        assert self._head is not None
        source = rows.local() if rows.are_few and arrow_schema(rows.columns) is not None else None
        beside = self._rejected.head()
        lake = read_files_here(self._table, self._head.version, keys, source.schema) if source is not None else None
        kept = REJECTED_ROWS.empty_table() if beside is None else read_files_here(self._rejected, beside.version, keys, REJECTED_ROWS)
        if source is None or lake is None or kept is None:
            return None
        return LocalFileHashedRows.of(source, rows.local_bad()), LocalFileHashedRows.of(lake, kept)

    def _changed_since(self, keys: Sequence[str]) -> frozenset[str]:
        """Those of the files that have changed since the folder was listed, or are gone. They were read as they are now."""
        now = list_files(self._definition)
        before = self._listed.stamps
        return frozenset(key for key in keys if key not in now.stamps or not now.stamps[key].same(before[key]))

    # ------------------------------------------------------------------ files that are gone
    def _of_files_gone(self, held: Mapping[str, StoredRows]) -> int:
        """Compares the rows of files that are gone with the manifest, or with the rule that they go. Returns the number of those kept."""
        found, kept = self._found, 0
        for key in sorted({*held, *self._known} - set(self._listed.stamps)):
            here, record = held.get(key, NO_ROWS), self._known.get(key)
            if not self._is_asked(key) or (record is None and here == NO_ROWS):
                continue
            goes = key in self._listed.others or (self._definition.options.prune and not self._listed.may_hide(key))
            expected = 0 if record is None or goes else record.rows + record.rejected
            there = here.rows + here.rejected
            if not expected and not there:
                continue
            found.keys.append(key)
            found.rows += 0 if goes or record is None else record.rows
            if expected != there:
                found.differs(key, expected, there)
            kept += bool(expected)
        return kept

    def _of_no_file(self, rows: int) -> None:
        """Notes the number of rows that no sync has written, as they have no ``_file``."""
        if rows and self._asked is None:
            self._found.keys.append(None)
            self._found.differs(None, 0, rows)

    # ------------------------------------------------------------------ in words
    def _notes(self, gone: int) -> Iterator[str]:
        found = self._found
        if found.refused:
            shown = "; ".join(list(found.refused.values())[:NAMED])
            more = f" … and {len(found.refused) - NAMED:,} more" if len(found.refused) > NAMED else ""
            yield f"{len(found.refused):,} {_files(len(found.refused))} cannot be read: {shown}{more}"
        if None in found.different:
            yield "rows without _file are of no file; sync with --reset-watermarks removes them"
        if found.rejected:
            yield f"rejected rows, which were compared with those that are kept beside the table: {found.rejected:,}"
        if gone:
            yield f"of {gone:,} {_files(gone)} that {'is' if gone == 1 else 'are'} gone, the number of rows was compared with the manifest"
        if found.waiting:
            yield f"{found.waiting:,} {_files(found.waiting)} {'waits' if found.waiting == 1 else 'wait'} for the next sync: not compared"


def _together(key: str | None, files: Sequence[PartitionDifference]) -> PartitionDifference:
    """The difference of a partition, of those of its files."""
    source, lake = (
        Checksum(sum(one.rows for one in side), sum(one.total for one in side))
        for side in ([one.source for one in files], [one.lake for one in files])
    )
    said = [
        f"{one.key}: {one.reason or counted(one.source.rows, 'row') + f' in the source, {one.lake.rows:,} in the lake'}"
        for one in files[:NAMED]
    ]
    more = f" … and {len(files) - NAMED:,} more" if len(files) > NAMED else ""
    return PartitionDifference(key, source, lake, None if key is None else f"source and lake differ: {'; '.join(said)}{more}")


def _at(table: LakeTable, head: Head) -> str:
    return f"{table.sql_name} VERSION AS OF {int(head.version)}"


def _files(count: int) -> str:
    return "file" if count == 1 else "files"
