"""Reads the rows of an exported snapshot into files of a Delta table: by tasks of Spark or by threads, each with a
connection of its own.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from incremental_assets.core.container import Kind
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.postgres import arrow_task
from incremental_assets.databases.postgres.arrow_columns import reason_against_arrow, snapshot_read
from incremental_assets.databases.postgres.arrow_task import (
    RESULT,
    SOURCE_FAILED,
    ReadTask,
    SourceFailed,
    run_task,
    source_message,
)
from incremental_assets.databases.postgres.arrow_threads import read_by_threads
from incremental_assets.databases.postgres.cuts import file_cuts
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

PACKAGES = ("pyarrow.parquet", "adbc_driver_postgresql")
"""What a task imports."""
TRAVELLING = (arrow_task, parquet_files, store)
"""The modules that travel with the tasks, which run where this project need not be installed."""
KINDS = (Kind.TABLE, Kind.PARTITIONED, Kind.MATERIALIZED_VIEW)
"""What is read so. A view may take minutes to its first row for each of its parts, and a foreign table's rows are on another server."""


class PostgresFiles:
    """The ``RowsInFiles`` of some windows of a container in PostgreSQL. It is used inside ``reader.snapshot()``."""

    def __init__(self, reader: PostgresReader, carried: Sequence[Carried], read: WindowRead) -> None:
        self._reader, self._carried, self._read = reader, carried, read

    def reason_against(self, spark: "SparkSession | None", folder: str) -> str | None:
        container = self._reader.container
        if container.kind not in KINDS:
            return f"it is a {container.kind.value}"
        reason = reason_against_arrow(self._reader, self._carried)
        return missing_packages(spark, (*PACKAGES, *packages_of(folder))) if reason is None and spark is not None else reason

    def write(self, spark: "SparkSession | None", target: FilesTarget, report: Callable[[int], None]) -> Sequence[WrittenFile]:
        task = self._task(target)
        return self._by_threads(task, report) if spark is None else self._by_tasks(spark, task)

    def _by_tasks(self, spark: "SparkSession", task: ReadTask) -> Sequence[WrittenFile]:
        from pyspark import cloudpickle

        for module in TRAVELLING:
            cloudpickle.register_pickle_by_value(module)
        try:
            found = spark.range(0, task.tasks, 1, task.tasks).mapInArrow(run_task(task), RESULT).collect()
        except spark_exception() as error:
            if SOURCE_FAILED not in str(error):
                raise
            raise self._failure(error) from error
        return files_of(found, len(task.read.queries), self._reader.container.label)

    def _by_threads(self, task: ReadTask, report: Callable[[int], None]) -> Sequence[WrittenFile]:
        try:
            return [WrittenFile(*file) for file in read_by_threads(task, os.cpu_count() or 1, report)]
        except SourceFailed as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> SourceError:
        return self._reader.read_failure(source_message(error), "the source failed while it was read")

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
