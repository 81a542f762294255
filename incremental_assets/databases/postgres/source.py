"""Implements the protocols of a source (``databases.source``) for PostgreSQL."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from psycopg import sql

from incremental_assets.core.container import Container
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres.arrow_files import KINDS, PostgresFiles
from incremental_assets.databases.postgres.arrow_rows import read_rows
from incremental_assets.databases.postgres.capture.change_log import PostgresChangeLog
from incremental_assets.databases.postgres.extract import (
    carried_columns,
    existing_keys,
    key_ranges,
    read_key_ranges,
    read_keys,
    read_windows,
)
from incremental_assets.databases.postgres.hashed_rows import PostgresHashedRows
from incremental_assets.databases.postgres.infinite import explained, infinite_columns
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.source import WindowRead
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


class PostgresSource(PostgresReader):
    """The ``SourceDatabase`` of one container in PostgreSQL."""

    def infinite_columns(self, container: Container, windows: Sequence[Window], *, sampled: bool = False) -> tuple[str, ...]:
        return infinite_columns(self, container, windows, sampled=sampled)

    def change_log(self, slot: str) -> PostgresChangeLog:
        return PostgresChangeLog(self, slot)

    @property
    def reads_into_files(self) -> bool:
        return self.container.kind in KINDS

    def snapshot_rows(self, container: Container, text_columns: Sequence[str]) -> "PostgresSnapshot":
        return PostgresSnapshot(self, container, text_columns)


class PostgresSnapshot:
    """The ``SourceSnapshot`` of one container in PostgreSQL. Few rows are read here, others by Spark: through JDBC, or
    by its tasks into files."""

    def __init__(self, reader: PostgresReader, container: Container, text_columns: Sequence[str]) -> None:
        self._reader, self._container = reader, container
        self._carried = carried_columns(container, text_columns, reader.server.version)

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(c.column.name, c.column.type) for c in self._carried)

    def windows(self, spark: "SparkSession", read: WindowRead) -> "DataFrame":
        return read_windows(spark, self._reader, self._carried, read)

    def local(self, read: WindowRead, most_bytes: int) -> pa.Table | None:
        return read_rows(self._reader, self._carried, read, most_bytes)

    def in_files(self, read: WindowRead) -> PostgresFiles:
        return PostgresFiles(self._reader, self._carried, read)

    @property
    def why_no_ranges(self) -> str:
        return "there are no statistics to cut the key by; ANALYZE makes some"

    def key_ranges(self, rows: int, readers: int) -> "Sequence[Sequence[sql.Composable]]":
        return key_ranges(self._reader, rows, readers)

    def by_key_ranges(self, spark: "SparkSession", ranges: "Sequence[Sequence[sql.Composable]]") -> list[PersistedRows]:
        return read_key_ranges(spark, self._reader, self._carried, ranges)

    def by_key(self, spark: "SparkSession", keys: Sequence[Sequence[str]]) -> "DataFrame":
        return read_keys(spark, self._reader, self._carried, keys)

    def existing(self, keys: Sequence[Sequence[str]]) -> list[int]:
        return existing_keys(self._reader, self._carried, keys)

    def hashed_rows(self, columns: Sequence[Column]) -> PostgresHashedRows:
        return PostgresHashedRows(self._reader, self._carried, columns)

    def explained(self, error: Exception, windows: Sequence[Window], include_nulls: bool) -> Exception:
        refused = self._reader.refused_read(f"{error} {error.__cause__}")
        return refused or explained(error, self._reader, self._container, self._carried, windows, include_nulls)
