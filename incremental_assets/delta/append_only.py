"""Writes and reads small Delta tables to which rows are only appended, without Spark.

Appends never conflict with each other, so several processes and hosts can append without a lock. Every reader of Delta can query the table.

Opening a table means to read its log, which is a request to a store for each commit. To append rows, only the newest commit is read: where
it is one of this product's, it says with which columns (``_COLUMNS``). Otherwise the table is opened, and delta-rs appends.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from incremental_assets.core.errors import LakeError
from incremental_assets.delta.commit_files import add_action
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.log import actions_of, commit_info, newest_version, put_version
from incremental_assets.delta.maintenance import join_files
from incremental_assets.delta.parquet_files import FilesWriter
from incremental_assets.delta.seen import note, seen
from incremental_assets.delta.store import Folder, folder_at, last_put, version_file
from incremental_assets.delta.store_errors import reason
from incremental_assets.delta.table import LakeTable, among, double_quoted, opened_or_made, opened_while_made, read_rows
from incremental_assets.delta.write_batch import WrittenFile

_COLUMNS = "incremental_assets.columns"
"""The entry of a commit's information for the digest of the columns with which rows can be appended as they are: the table has these, and
nothing that asks more of a writer. A commit of another program has no such entry."""
COMPACT_AFTER = 20
"""The number of commits after which the files are compacted. Each commit adds a file, and the time to read grows with their number."""


class AppendOnly:
    """One such table, its schema, and the columns by which it is partitioned. All methods raise LakeError if its location cannot be read or
    written."""

    def __init__(self, table: LakeTable, schema: pa.Schema, partition_by: Sequence[str] = ("container",)) -> None:
        self.table, self._schema, self._partition_by = table, schema, partition_by

    def opened(self) -> DeltaTable | None:
        """The table as a delta-rs object, which nobody may change; None if there is no table yet."""
        return opened_while_made(self.table.opened)

    def opened_to_change(self) -> DeltaTable | None:
        """The same as an object of the caller's own."""
        return opened_while_made(self.table.opened_to_change)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Appends the rows in one commit, and creates the table if needed. Returns whether the caller should call ``compact`` now."""
        data = pa.Table.from_pylist(list(rows), schema=self._schema)
        with place_errors(self.table.url):
            before, after = self._append_as_known(data) or self._append_by_delta_rs(data)
        return before // COMPACT_AFTER != after // COMPACT_AFTER

    def _append_as_known(self, data: pa.Table) -> tuple[int, int] | None:
        """Appends the rows if the newest commit says with which columns. Returns the versions before and after; None if nothing was done.

        Raises as ``Folder`` does.
        """
        if self._partition_by:
            return None
        folder = folder_at(self.table.address)
        before = self._newest_as_known(folder)
        if before is None:
            return None
        writer = FilesWriter(folder.new_files(), self._schema, (), len(self._schema))
        writer.add(data)
        writer.close()
        after, now = before + 1, int(time.time() * 1000)
        info = commit_info("WRITE", {"mode": "Append"}, isBlindAppend=True, **{_COLUMNS: self._digest})
        adds = [add_action(WrittenFile(*file), now) for file in writer.files]
        while not put_version(folder, after, [info, *adds]):
            newest = self._newest_as_known(folder)  # another process was first
            if newest is None:
                writer.discard()
                return None
            after = newest + 1
        own = last_put(self.table.address, version_file(after))
        if own is not None:
            note(self.table.address, {"version": after, "file": own.file, "digest": self._digest})
        if before // COMPACT_AFTER != after // COMPACT_AFTER:
            self.table.tidy_log()
        return before, after

    def _newest_as_known(self, folder: Folder) -> int | None:
        """The number of the newest version; None if there is none, or if it does not say that rows of our columns can follow it.

        On an object store, one that was put with this DAGSTER_HOME is not read again.
        """
        known = seen(self.table.address) or {}
        number = known.get("version")
        if known.get("digest") == self._digest and isinstance(number, int) and folder.versions(number) == {number: known.get("file")}:
            return number
        try:
            version = newest_version(folder)
            actions = [] if version is None else actions_of(folder, version)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        info = next((found for action in actions if (found := action.get("commitInfo"))), {})
        return version if info.get(_COLUMNS) == self._digest else None

    @property
    def _digest(self) -> str:
        return hashlib.sha256(str(self._schema).encode()).hexdigest()[:16]

    def _fits(self, delta: DeltaTable) -> bool:
        """Whether files with rows of our columns can be added to the table as they are."""
        there, described = pa.schema(delta.schema().to_arrow()), delta.metadata()
        is_plain = delta.protocol().min_writer_version <= 2 and not described.partition_columns
        same = all(field.name in there.names and there.field(field.name).type == field.type for field in self._schema)
        return is_plain and same and not any("columnMapping" in name for name in described.configuration)

    def _append_by_delta_rs(self, data: pa.Table) -> tuple[int, int]:
        """Appends the rows, to a table that is made if there is none. Returns the versions before and after. Raises DeltaError."""
        for tries_left in (2, 1, 0):
            delta = self._made()
            before = delta.version()
            try:
                write_deltalake(
                    delta,
                    data,
                    mode="append",
                    schema_mode="merge",  # another version of this product may have written more columns, or fewer
                    # Appends of other processes are no conflict, but each of them makes delta-rs try the next version number.
                    commit_properties=CommitProperties(
                        max_commit_retries=100, custom_metadata={_COLUMNS: self._digest} if self._fits(delta) else None
                    ),
                )
                return before, delta.version()
            except CommitFailedError:  # nothing was written: another process has changed a property or added a column in the meantime
                if not tries_left:
                    raise
        raise AssertionError

    def compact(self) -> None:
        """Joins small files into larger ones. An error is ignored: the appended rows are in the table whether this succeeds or not."""
        with contextlib.suppress(LakeError):
            join_files(self.table)

    def forget(self, age: str, before: datetime, keep: Callable[[pa.Table], pa.Table] | None, *where: tuple[str, Sequence[str]]) -> int:
        """Deletes the rows whose time ``age`` is before the given one, except those that ``keep`` returns when it is given all rows;
        None: none of them is kept.

        ``where``: only rows for which each of these filters holds are deleted. Returns how many were deleted. Raises LakeError, whose cause
        is a CommitFailedError if another process has committed in the meantime; nothing has changed then.
        """
        delta = self.opened_to_change()
        if delta is None:
            return 0
        is_old = pc.field(age) < pa.scalar(before, pa.timestamp("us", tz="UTC"))
        for column, values in where:
            is_old &= pc.field(column).isin(list(values))
        # The rows have the columns of the table, of which another version of this product may have written more, or fewer.
        own = pa.schema(delta.schema().to_arrow())
        rows = self._rows(delta).cast(own)
        for field in self._schema:
            if field.name not in own.names:
                rows = rows.append_column(field, pa.nulls(len(rows), field.type))
        old = len(rows.filter(is_old))
        kept = rows.slice(0, 0) if keep is None else keep(rows).filter(is_old).select(own.names)
        if old == len(kept):
            return 0
        is_before = f"{double_quoted(age)} < arrow_cast('{before:%Y-%m-%dT%H:%M:%S.%f}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
        predicate = " AND ".join(filter(None, (among(*where), is_before)))
        # No retry: the kept rows were computed from this version, so delta-rs must not commit them on top of a newer one.
        once = CommitProperties(max_commit_retries=0)
        with place_errors(self.table.url):
            if len(kept):
                write_deltalake(delta, kept, mode="overwrite", predicate=predicate, commit_properties=once)
            else:
                delta.delete(predicate, commit_properties=once)
        return old - len(kept)

    def blank(self, column: str, *where: tuple[str, Sequence[str]]) -> None:
        """Sets the column to NULL in the rows for which each of these filters holds. Raises LakeError as ``forget`` does."""
        if not len(self.read(*where, columns=[column])[column].drop_null()):
            return
        delta = self.opened_to_change()
        assert delta is not None, "it has rows"
        with place_errors(self.table.url):
            delta.update(
                predicate=f"{among(*where)} AND {double_quoted(column)} IS NOT NULL",
                updates={column: "NULL"},
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def read(self, *where: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
        """Reads the rows for which each filter of ``where`` (a column and its allowed values) holds.

        ``columns`` names the columns to read; None reads all of the schema. Columns that the table does not have are NULL. If there is no
        table yet, the result is empty.
        """
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        delta = self.opened()
        if delta is None:
            return schema.empty_table()
        there = {field.name for field in delta.schema().fields}
        found = self._rows(delta, *where, columns=[name for name in schema.names if name in there])
        known = set(found.column_names)
        values = [found[f.name].cast(f.type) if f.name in known else pa.nulls(len(found), f.type) for f in schema]
        return pa.Table.from_arrays(values, schema=schema)

    def _rows(self, delta: DeltaTable, *where: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
        try:
            return read_rows(delta, *where, columns=columns)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise LakeError(f"{self.table.url}: the Delta table cannot be read: {reason(error)}") from error

    def _made(self) -> DeltaTable:
        delta = self.opened_to_change()
        if delta is not None:
            return delta
        # Deletion vectors would shut delta-rs out. A Spark server that switches them on by default does so for new tables only, so it is
        # enough to switch them off when the table is created.
        how = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": str(COMPACT_AFTER)}
        return opened_or_made(self.table, self._schema, how, partition_by=self._partition_by)
