"""Implements the protocols of a source (``databases.source``) for SQL Server."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from incremental_assets.core.comparison import HashedRows
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.change_log import ChangeLog
from incremental_assets.databases.one_reader import OneReaderSnapshot
from incremental_assets.databases.sqlserver.connection import SQLServerAddress
from incremental_assets.databases.sqlserver.hashed_rows import SQLServerHashedRows
from incremental_assets.databases.sqlserver.keys import keys_predicates, positions_of
from incremental_assets.databases.sqlserver.queries import domain_predicate, scope_predicate
from incremental_assets.databases.sqlserver.reader import SQLServerReader
from incremental_assets.databases.sqlserver.rows import read_batches, schema_of
from incremental_assets.databases.sqlserver.types import carried_columns
from incremental_assets.databases.staged_files import StagedFrames

if TYPE_CHECKING:
    pass


class SQLServerSource(SQLServerReader):
    """The ``SourceDatabase`` of one container in SQL Server. ``cuts_times``: see ``rows.read_batches``."""

    def __init__(
        self, address: SQLServerAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0, cuts_times: bool = False
    ) -> None:
        super().__init__(address, container, timezone=timezone, margin_seconds=margin_seconds)
        self.cuts_times = cuts_times
        self.staged = StagedFrames()

    def close(self) -> None:
        super().close()
        self.staged.close()

    def infinite_columns(self, container: Container, windows: Sequence[Window], *, sampled: bool = False) -> tuple[str, ...]:
        """None: SQL Server has no infinity and no NaN."""
        return ()

    def change_log(self, slot: str) -> ChangeLog:
        raise ConfigurationError(f"{self.container.label}: the log of SQL Server cannot be followed.")

    @property
    def reads_into_files(self) -> bool:
        return True

    def snapshot_rows(self, container: Container, text_columns: Sequence[str]) -> "SQLServerSnapshot":
        return SQLServerSnapshot(self, container, text_columns)


class SQLServerSnapshot(OneReaderSnapshot):
    """The ``SourceSnapshot`` of one container in SQL Server."""

    def __init__(self, source: SQLServerSource, container: Container, text_columns: Sequence[str]) -> None:
        self._source, self._container = source, container
        self._carried = carried_columns(container, text_columns)
        super().__init__(source.staged, schema_of(self._carried), [one.column for one in self._carried])

    def existing(self, keys: Sequence[Sequence[str]]) -> list[int]:
        return positions_of(self._source, self._carried, keys)

    def hashed_rows(self, columns: Sequence[Column]) -> HashedRows:
        return SQLServerHashedRows(self._source, self._carried, columns)

    def _of_keys(self, keys: Sequence[Sequence[str]]) -> Iterator[pa.Table]:
        for condition in keys_predicates(self._container, self._carried, keys):
            yield from self._read(f"{condition} and {domain_predicate(self._container)}")

    def _batches(self, windows: Sequence[Window], include_nulls: bool) -> Iterator[pa.Table]:
        return self._read(scope_predicate(self._container, windows, include_nulls))

    def _read(self, scope: str) -> Iterator[pa.Table]:
        return read_batches(self._source, self._carried, scope, cuts_times=self._source.cuts_times)
