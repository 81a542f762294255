"""A small Delta table that is only appended to, written and read through delta-rs: no Spark is needed, and appends never conflict.

Belongs here: making it, appending, joining its files, reading. Does not belong: what its rows mean (``quality.records``).

It is partitioned by ``container``, and any reader of Delta may query it.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from incremental_assets.core.errors import LakeError
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.table import LakeTable, opened_or_made, opened_while_made, read_rows, reason

COMPACT_AFTER = 20
"""Commits: each adds a file, and reading takes as long as there are files."""


class AppendOnly:
    """All methods raise LakeError where the place cannot be read or written."""

    def __init__(self, table: LakeTable, schema: pa.Schema) -> None:
        self.table, self._schema = table, schema

    def opened(self) -> DeltaTable | None:
        """None where there is no table yet."""
        return opened_while_made(self.table)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """In one commit. Returns whether its files are to be joined now."""
        data = pa.Table.from_pylist(list(rows), schema=self._schema)
        with place_errors(self.table.url):
            for tries_left in (2, 1, 0):
                delta = self._made()
                before = delta.version()
                try:
                    write_deltalake(
                        delta,
                        data,
                        mode="append",
                        schema_mode="merge",  # another version of ours may have more columns, or fewer
                        commit_properties=CommitProperties(max_commit_retries=100),  # another append may always be quicker: no conflict
                    )
                    break
                except CommitFailedError:  # nothing was written: somebody else has just changed a property or added a column
                    if not tries_left:
                        raise
        return before // COMPACT_AFTER != delta.version() // COMPACT_AFTER

    def compact(self) -> None:
        """What was appended is there, whether this succeeds or not."""
        with contextlib.suppress(LakeError), place_errors(self.table.url):
            delta = self.opened()
            if delta is not None:
                delta.optimize.compact()

    def read(self, *where: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows whose columns have one of the values; columns that the table has not are NULL. ``columns``: only these are read."""
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        delta = self.opened()
        if delta is None:
            return schema.empty_table()
        there = {field.name for field in delta.schema().fields}
        try:
            found = read_rows(delta, *where, columns=[name for name in schema.names if name in there])
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise LakeError(f"{self.table.url}: the Delta table cannot be read: {reason(error)}") from error
        known = set(found.column_names)
        values = [found[f.name].cast(f.type) if f.name in known else pa.nulls(len(found), f.type) for f in schema]
        return pa.Table.from_arrays(values, schema=schema)

    def _made(self) -> DeltaTable:
        delta = self.opened()
        if delta is not None:
            return delta
        # Deletion vectors would shut delta-rs out; Spark with them on by default does not add them to a table that is there.
        how = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": str(COMPACT_AFTER)}
        return opened_or_made(self.table, self._schema, how, partition_by=["container"])
