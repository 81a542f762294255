"""The snapshot of a source whose rows one connection reads: what is the same for MySQL and SQL Server."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.databases.source import WindowRead
from incremental_assets.databases.staged_files import FilesByOneReader, StagedFrames
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


class OneReaderSnapshot(ABC):
    """The part of a ``SourceSnapshot`` that needs no SQL. One reader reads all rows, into memory or into files.

    ``staged``: the files that Spark reads. ``schema``: the Arrow types of ``columns``, which are those of the lake.
    """

    def __init__(self, staged: StagedFrames, schema: pa.Schema, columns: Sequence[Column]) -> None:
        self._staged, self._schema, self._columns = staged, schema, tuple(columns)
        self._spilled: dict[tuple[tuple[Window, ...], bool], str] = {}
        """The folders of rows that were too many for memory, by windows and whether those without identifier are among them."""

    @abstractmethod
    def _batches(self, windows: Sequence[Window], include_nulls: bool) -> Iterator[pa.Table]:
        """Reads the rows of some windows and, if asked for, those without identifier."""

    @abstractmethod
    def _of_keys(self, keys: Sequence[Sequence[str]]) -> Iterator[pa.Table]:
        """Reads the rows with the given keys."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._columns

    def windows(self, spark: "SparkSession", read: WindowRead) -> "DataFrame":
        return self._frame(spark, read.windows, read.include_nulls)

    def local(self, read: WindowRead, most_bytes: int) -> pa.Table | None:
        tables, size, batches = [self._schema.empty_table()], 0, self._batches(read.windows, read.include_nulls)
        for batch in batches:
            tables.append(batch)
            size += batch.nbytes
            if size > most_bytes:
                # To stop the server would lose the snapshot, so that what is left goes into files at once.
                all_of_them = itertools.chain(tables, batches)
                self._spilled[tuple(read.windows), read.include_nulls] = self._staged.write(self._schema, all_of_them)
                return None
        return pa.concat_tables(tables)

    def in_files(self, read: WindowRead) -> FilesByOneReader:
        return FilesByOneReader(self._batches, read.windows, read.include_nulls)

    @property
    def why_no_ranges(self) -> str:
        return "one connection reads all rows"

    def key_ranges(self, rows: int, readers: int) -> Sequence[Any]:
        return ()

    def by_key_ranges(self, spark: "SparkSession", ranges: Sequence[Any]) -> Sequence[PersistedRows]:
        raise AssertionError("there are no ranges of keys")

    def by_key(self, spark: "SparkSession", keys: Sequence[Sequence[str]]) -> "DataFrame":
        return self._staged.frame(spark, self._schema, self._staged.write(self._schema, self._of_keys(keys)))

    def explained(self, error: Exception, windows: Sequence[Window], include_nulls: bool) -> Exception:
        return error

    def _frame(self, spark: "SparkSession", windows: Sequence[Window], include_nulls: bool) -> "DataFrame":
        folder = self._spilled.get((tuple(windows), include_nulls)) or self._staged.write(
            self._schema, self._batches(windows, include_nulls)
        )
        return self._staged.frame(spark, self._schema, folder)
