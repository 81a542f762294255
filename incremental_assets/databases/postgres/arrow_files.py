"""Reads the rows of an exported snapshot into files of a Delta table, by tasks of Spark that are connected to PostgreSQL themselves.

Belongs here: whether a container can be read so, and what each task is given. Does not belong: what a task does (``arrow_task``), how
columns are read as Arrow (``arrow_columns``), the commit (``delta.add_files``), and the read through JDBC (``extract``).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from incremental_assets.core.container import Kind
from incremental_assets.core.errors import SourceError
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres import arrow_task
from incremental_assets.databases.postgres.arrow_columns import reason_against_arrow, snapshot_read
from incremental_assets.databases.postgres.arrow_task import (
    RESULT,
    SOURCE_FAILED,
    ReadTask,
    run_task,
    source_message,
)
from incremental_assets.databases.postgres.cuts import file_cuts
from incremental_assets.databases.postgres.extract import read_windows
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried
from incremental_assets.databases.source import WindowRead
from incremental_assets.delta import parquet_files, store
from incremental_assets.delta.store import folder_at, packages_of
from incremental_assets.delta.write_batch import FilesTarget, WrittenFile
from incremental_assets.spark.exceptions import spark_exception
from incremental_assets.spark.python_packages import missing_packages

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

PACKAGES = ("pyarrow.parquet", "adbc_driver_postgresql")
"""What a task imports."""
TRAVELLING = (arrow_task, parquet_files, store)
"""The modules that travel with the tasks, which run where this project need not be installed."""
_KINDS = (Kind.TABLE, Kind.PARTITIONED, Kind.MATERIALIZED_VIEW)
"""What is read so. A view may take minutes to its first row for each of its parts, and a foreign table's rows are on another server."""


class PostgresFiles:
    """The ``RowsInFiles`` of some windows of a container in PostgreSQL. It is used inside ``reader.snapshot()``."""

    def __init__(self, reader: PostgresReader, carried: Sequence[Carried], read: WindowRead) -> None:
        self._reader, self._carried, self._read = reader, carried, read

    def reason_against(self, spark: "SparkSession", folder: str) -> str | None:
        container = self._reader.container
        if container.kind not in _KINDS:
            return f"it is a {container.kind.value}"
        return reason_against_arrow(self._reader, self._carried) or missing_packages(spark, (*PACKAGES, *packages_of(folder)))

    def part(self, windows: Sequence[Window], include_nulls: bool) -> "PostgresFiles":
        return PostgresFiles(self._reader, self._carried, replace(self._read, windows=windows, include_nulls=include_nulls))

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return read_windows(spark, self._reader, self._carried, self._read)

    def write(self, spark: "SparkSession", target: FilesTarget) -> Sequence[WrittenFile]:
        from pyspark import cloudpickle

        for module in TRAVELLING:
            cloudpickle.register_pickle_by_value(module)
        task = self._task(target)
        with _source_errors(self._reader):
            found = spark.range(0, task.tasks, 1, task.tasks).mapInArrow(run_task(task), RESULT).collect()
        return files_of(found, len(task.read.queries), self._reader.container.label)

    def _task(self, target: FilesTarget) -> ReadTask:
        cuts, tasks = file_cuts(self._reader, self._read)
        read = snapshot_read(self._reader, self._carried, self._read, cuts)
        columns = tuple(replace(column, name=name) for column, name in zip(read.columns, target.names, strict=True))
        return ReadTask(replace(read, columns=columns), tasks, folder_at(target.folder).new_files(), target.sort, target.indexed)


def files_of(found: Sequence[Any], ranges: int, label: str) -> Sequence[WrittenFile]:
    """The files that the tasks have returned. Raises SourceError unless each of the ranges has ended exactly once.

    Spark returns what one attempt of each task has returned. Were it ever otherwise, rows would be missing or twice in the lake.
    """
    ended = sorted(row.range for row in found if row.path is None)
    if ended != list(range(ranges)):
        raise SourceError(f"{label}: Spark's tasks returned the ranges {ended} of {ranges}; nothing was committed. Sync again.")
    return [WrittenFile(row.path, row.size, row.rows, row.stats) for row in found if row.path is not None]


@contextmanager
def _source_errors(reader: PostgresReader) -> Iterator[None]:
    """Raises the error of a task that the source is to blame for as SourceError."""
    try:
        yield
    except spark_exception() as error:
        if SOURCE_FAILED not in str(error):
            raise
        raise reader.read_failure(source_message(error), "the source failed while Spark was reading") from error
