"""Reads the rows of an exported snapshot into files of a Delta table, by tasks of Spark that are connected to PostgreSQL themselves.

Belongs here: whether a container can be read so, and what each task is given. Does not belong: what a task does (``arrow_task``), the
commit (``delta.add_files``), and the read through JDBC (``extract``), whose SQL expressions are used here too.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import sql
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from incremental_assets.core.container import Kind
from incremental_assets.core.errors import SourceError
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres import arrow_task
from incremental_assets.databases.postgres.arrow_task import (
    END_OF_MESSAGE,
    RESULT,
    SOURCE_FAILED,
    WIRE_TYPES,
    ReadTask,
    WireColumn,
    run_task,
)
from incremental_assets.databases.postgres.cuts import divided, file_cuts
from incremental_assets.databases.postgres.extract import read_windows, reader_statements, select_of
from incremental_assets.databases.postgres.queries import scope_predicate
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried
from incremental_assets.databases.source import WindowRead
from incremental_assets.delta import parquet_files
from incremental_assets.delta.write_batch import FilesTarget, WrittenFile
from incremental_assets.spark.python_packages import missing_packages

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

PACKAGES = ("pyarrow.parquet", "adbc_driver_postgresql.dbapi")
"""What a task imports."""
_KINDS = (Kind.TABLE, Kind.PARTITIONED, Kind.MATERIALIZED_VIEW)
"""What is read so. A view may take minutes to its first row for each of its parts, and a foreign table's rows are on another server."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_SCALED = 18
"""Decimals of up to so many digits fit into a bigint, without their point."""
# The types of PostgreSQL as which times are sent in their own binary form. To compute integers of them, as for JDBC, takes PostgreSQL three
# times as long: ``extract`` returns a numeric.
_TIMES = {"timestamp": sql.SQL("{}::timestamptz"), "timestamp_ntz": sql.SQL("{}::timestamp")}

# The tasks run where this project need not be installed, so these two modules travel with them.
for _module in (arrow_task, parquet_files):
    cloudpickle.register_pickle_by_value(_module)


class PostgresFiles:
    """The ``RowsInFiles`` of some windows of a container in PostgreSQL. It is used inside ``reader.snapshot()``."""

    def __init__(self, reader: PostgresReader, carried: Sequence[Carried], read: WindowRead) -> None:
        self._reader, self._carried, self._read = reader, carried, read

    def reason_against(self, spark: "SparkSession") -> str | None:
        container = self._reader.container
        if container.kind not in _KINDS:
            return f"it is a {container.kind.value}"
        for column in self._carried:
            if sent_as(column) is None:
                return f"column {column.column.name} is {column.column.type}"
        return self._reader.reason_against_libpq() or missing_packages(spark, PACKAGES)

    def part(self, windows: Sequence[Window], include_nulls: bool) -> "PostgresFiles":
        return PostgresFiles(self._reader, self._carried, replace(self._read, windows=windows, include_nulls=include_nulls))

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return read_windows(spark, self._reader, self._carried, self._read)

    def write(self, spark: "SparkSession", target: FilesTarget) -> Sequence[WrittenFile]:
        task = self._task(target)
        with _source_errors(self._reader):
            found = spark.range(0, task.tasks, 1, task.tasks).mapInArrow(run_task(task), RESULT).collect()
        return files_of(found, len(task.queries), self._reader.container.label)

    def _task(self, target: FilesTarget) -> ReadTask:
        reader = self._reader
        sent = [sent_as(column) for column in self._carried]
        columns = [replace(column, name=name) for column, name in zip(filter(None, sent), target.names, strict=True)]
        selected = [replace(column, select=_select(column)) for column in self._carried]
        scope = scope_predicate(reader.container, self._read.windows, self._read.include_nulls)
        cuts, tasks = file_cuts(reader, self._read)
        return ReadTask(
            connection=reader.libpq_connection,
            password=reader.password,
            settings=tuple(part.strip() for part in reader_statements(reader).split(";") if part.strip()),
            queries=tuple(select_of(reader.container, selected, one).as_string(None) for one in divided(scope, cuts)),
            columns=tuple(columns),
            tasks=tasks,
            silence=reader.limits.silence,
            folder=target.folder,
            sort=target.sort,
            indexed=target.indexed,
        )


def files_of(found: Sequence[Any], ranges: int, label: str) -> Sequence[WrittenFile]:
    """The files that the tasks have returned. Raises SourceError unless each of the ranges has ended exactly once.

    Spark returns what one attempt of each task has returned. Were it ever otherwise, rows would be missing or twice in the lake.
    """
    ended = sorted(row.range for row in found if row.path is None)
    if ended != list(range(ranges)):
        raise SourceError(f"{label}: Spark's tasks returned the ranges {ended} of {ranges}; nothing was committed. Sync again.")
    return [WrittenFile(row.path, row.size, row.rows, row.stats) for row in found if row.path is not None]


def sent_as(column: Carried) -> WireColumn | None:
    """How a column's values travel in Arrow; None for a type of the lake that is not known here.

    The values are those that JDBC gets, but for times and decimals. Of decimals ADBC makes texts, so that those of up to 18 digits are sent
    as bigint, without their point, and only longer ones as text.
    """
    name, type_ = column.column.name, column.column.type
    decimal = _DECIMAL.fullmatch(type_)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        return WireColumn(name, pa.decimal128(precision, scale), "bigint" if precision <= _MOST_SCALED else "string")
    if type_ in _TIMES and column.wire == "bigint":
        return WireColumn(name, WIRE_TYPES[type_], type_)
    if type_ == "date" and column.wire == "int":
        return WireColumn(name, pa.date32(), "int")  # days since 1970, which have the same bits
    return WireColumn(name, WIRE_TYPES[type_], type_) if type_ in WIRE_TYPES and column.wire == type_ and column.decode == "{}" else None


def _select(column: Carried) -> sql.Composable:
    """What PostgreSQL evaluates for a column: as for JDBC, except for times and decimals."""
    if column.column.type in _TIMES:
        return _TIMES[column.column.type].format(sql.Identifier(column.column.name))
    decimal = _DECIMAL.fullmatch(column.column.type)
    if not decimal:
        return column.select
    if int(decimal[1]) > _MOST_SCALED:
        return sql.SQL("({})::text").format(column.select)
    return sql.SQL("(({}) * {})::bigint").format(column.select, sql.Literal(10 ** int(decimal[2])))


@contextmanager
def _source_errors(reader: PostgresReader) -> Iterator[None]:
    """Raises the error of a task that the source is to blame for as SourceError."""
    try:
        yield
    except PySparkException as error:
        text = str(error)
        if SOURCE_FAILED not in text:
            raise
        message = text.split(SOURCE_FAILED, 1)[1].split(END_OF_MESSAGE)[0]
        raise SourceError(f"{reader.container.label}: the source failed while Spark was reading: {message}. Sync again.") from error
