"""Reads ranges of an exported snapshot over ADBC and writes them as files of a Delta table: what one Spark task of the Arrow path does.

This module is executed by Spark's Python workers, on machines where this project need not be installed: it is sent there as it is (pickled
by value), so it imports only the standard library, pyarrow and, in its functions, ADBC's driver.
"""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.delta.parquet_files import FilesWriter, NewFiles

RESULT = "range int, path string, size bigint, rows bigint, stats string"
"""The columns of what a task returns: a row for each file, and one without ``path`` at the end of each range."""
SOURCE_FAILED = "incremental_assets: the source failed: "
"""With this the message of an error begins that the source is to blame for; it ends with ``END_OF_MESSAGE``."""
END_OF_MESSAGE = " :incremental_assets"

WIRE_TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "numeric": pa.opaque(pa.string(), "numeric", "PostgreSQL"),
}
"""The Arrow types in which ADBC returns values of the types that are sent, by the name of their Spark type; ``numeric`` is PostgreSQL's, of
which ADBC makes texts with all digits."""
WIRE_TYPES.update({f"array<{name}>": pa.list_(type_) for name, type_ in WIRE_TYPES.items()})


FIRST_TIME = -210_866_803_200_000_000
"""The first time that PostgreSQL knows, 4714-11-24 BC, in microseconds since 1970. ADBC moves the beginning of the count from 2000 to 1970
by an addition, in which infinity, minus infinity and times after January 294247 become earlier numbers."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of options in glibc's malloc.h."""


@dataclass(frozen=True)
class WireColumn:
    """A column: its name and Arrow type in the lake, and the type in which its values are sent (a key of ``WIRE_TYPES``)."""

    name: str
    type: pa.DataType
    wire: str


@dataclass(frozen=True)
class SnapshotRead:
    """How rows of a snapshot are read. It is logged and stored nowhere, as ``connection`` has the password.

    ``connection``: the connection string of libpq. ``password``: what must not appear in a message. ``settings``: the statements with which
    a transaction joins the snapshot. ``queries``: the query of each range. ``columns``: what the queries return, in their order.
    ``silence``: how many seconds a reader waits for the next rows.
    """

    connection: str = field(repr=False)
    password: str = field(repr=False)
    settings: tuple[str, ...] = field(repr=False)
    queries: tuple[str, ...] = field(repr=False)
    columns: tuple[WireColumn, ...]
    silence: int


@dataclass(frozen=True)
class ReadTask:
    """What all tasks of one read have in common. Only a pickled function carries it.

    ``tasks``: how many tasks share the ranges. ``into``, ``sort``, ``indexed``: see ``FilesWriter``.
    """

    read: SnapshotRead
    tasks: int
    into: NewFiles
    sort: tuple[str, ...]
    indexed: int


class SourceFailed(Exception):
    """The source could not be read. The message is between ``SOURCE_FAILED`` and ``END_OF_MESSAGE``."""


def source_message(error: Exception) -> str:
    """The message of a ``SourceFailed``, or of an error of Spark that has one in its text."""
    return str(error).split(SOURCE_FAILED, 1)[1].split(END_OF_MESSAGE)[0]


def run_task(task: ReadTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``. Its input is the number of a task; it reads each ``tasks``-th range, beginning with this number."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_freed_memory()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_ranges(task, range(number, len(task.read.queries), task.tasks))

    return run


def keep_freed_memory() -> None:
    """Lets this process keep what it frees, up to a gigabyte, for what it allocates next.

    A reader allocates and frees some hundred megabytes again and again. The C library and Arrow's own allocator return these to the system
    each time, which then has to clear them again: a tenth of the processor's time, or more. Only glibc has this setting; elsewhere
    nothing changes.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return
    for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        set_option(option, 1 << 30)
    pa.set_memory_pool(pa.system_memory_pool())


def read_ranges(task: ReadTask, ranges: range) -> Iterator[pa.RecordBatch]:
    """Reads ranges one after another over one connection. Raises SourceFailed."""
    with connected(task.read) as reader:
        for number in ranges:
            yield _result(number, read_range(task, reader, number))


def read_range(
    task: ReadTask, reader: "SnapshotReader", number: int, report: Callable[[int], None] | None = None
) -> "list[tuple[str, int, int, str]]":
    """Reads one range into files (``FilesWriter.files``). ``report`` gets the number of rows of each batch.

    Raises what ``SnapshotReader`` does, and SourceFailed.
    """
    columns = task.read.columns
    schema = schema_of(columns)
    writer = FilesWriter(task.into, schema, task.sort, task.indexed)
    try:
        for batch in reader.batches(task.read.queries[number]):
            writer.add(in_lake(batch, columns, schema))
            if report is not None:
                report(batch.num_rows)
        writer.close()
    except UnexpectedValue as error:
        writer.discard()
        raise SourceFailed(f"{SOURCE_FAILED}{error}; engine: spark reads it otherwise{END_OF_MESSAGE}") from None
    except BaseException:
        writer.discard()
        raise
    return writer.files


class SnapshotReader:
    """A connection that has joined the snapshot."""

    def __init__(self, statement: Any, silence: "Silence") -> None:
        self._statement, self._silence = statement, silence

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query. Raises BrokenRead for errors that come after the first rows: to ADBC they are errors of the stream."""
        with self._silence.listening():
            self._statement.set_sql_query(query)
            batches = pa.RecordBatchReader.from_stream(self._statement.execute_query()[0])
        while True:
            try:
                with self._silence.listening():
                    batch = next(batches, None)
            except (OSError, pa.ArrowException) as error:
                raise BrokenRead(str(error)) from None
            if batch is None:
                return
            yield batch

    def cancel(self) -> None:
        """Ends a query that another thread is waiting for."""
        self._statement.cancel()


@contextlib.contextmanager
def connected(read: SnapshotRead) -> Iterator[SnapshotReader]:
    """Joins the snapshot over a connection of its own.

    Raises SourceFailed for each error of the source, also of one that comes while the rows are read.
    """
    # The driver's DB-API module would import pandas, which takes longer than a small read.
    import adbc_driver_manager as adbc
    import adbc_driver_postgresql

    silence = Silence(read.silence)
    try:
        with contextlib.ExitStack() as stack:
            database = stack.enter_context(adbc_driver_postgresql.connect(read.connection))
            connection = stack.enter_context(adbc.AdbcConnection(database))
            connection.set_autocommit(False)
            statement = stack.enter_context(adbc.AdbcStatement(connection))
            stack.enter_context(silence.watched(statement.cancel))
            for setting in read.settings:
                statement.set_sql_query(setting)
                statement.execute_update()
            yield SnapshotReader(statement, silence)
    except (adbc.Error, BrokenRead) as error:
        if silence.passed:
            what = f"it sent nothing to a reader for {read.silence} s; a query that takes so long to its first row needs a higher"
            raise SourceFailed(f"{SOURCE_FAILED}{what} max_silence_seconds{END_OF_MESSAGE}") from None
        raise SourceFailed(_message(error, read.password)) from None


class UnexpectedValue(Exception):
    """A value has arrived in another form than it was asked for."""


class BrokenRead(Exception):
    """The source has ended a query after the first rows."""


class Silence:
    """Cancels a query if the source sends nothing for ``seconds``. ``passed``: it has done so.

    The time that a task takes to write what it got does not count.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._seconds, self._over = seconds, threading.Event()
        self._since: float | None = None

    @contextlib.contextmanager
    def watched(self, cancel: Callable[[], None]) -> Iterator[None]:
        def run() -> None:
            while not self._over.wait(min(1.0, self._seconds / 4)):
                since = self._since
                if since is not None and time.monotonic() - since > self._seconds:
                    self.passed = True
                    cancel()
                    return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None


def schema_of(columns: tuple[WireColumn, ...]) -> pa.Schema:
    """The columns as they are in the lake."""
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def in_lake(batch: pa.RecordBatch, columns: tuple[WireColumn, ...], schema: pa.Schema) -> pa.Table:
    """The rows with the types of the lake. Raises UnexpectedValue."""
    try:
        return pa.table([_in_lake(batch.column(i), column) for i, column in enumerate(columns)], schema=schema)
    except pa.ArrowInvalid as error:  # digits that a decimal's type does not have, or bytes that are no text
        raise UnexpectedValue(str(error)) from None


def _in_lake(values: pa.Array, column: WireColumn) -> pa.Array:
    if values.type != WIRE_TYPES[column.wire]:
        # ADBC gives some types as something else than they are (money as an integer of cents, nested arrays as flat ones).
        raise UnexpectedValue(f"column {column.name!r} was to arrive as {WIRE_TYPES[column.wire]} and is {values.type}")
    if pa.types.is_list(values.type):
        values.validate(full=True)
        return values.cast(column.type)
    if isinstance(values, pa.ExtensionArray):
        return values.storage.cast(column.type)  # it refuses digits that the type does not have, and NaN
    if pa.types.is_string(values.type):
        values.validate(full=True)  # a database in SQL_ASCII sends whatever bytes it has
    if pa.types.is_timestamp(values.type):
        lowest = pc.min(values.view(pa.int64())).as_py()  # pyright: ignore[reportAttributeAccessIssue]
        if lowest is not None and lowest < FIRST_TIME:
            raise UnexpectedValue(f"column {column.name!r} has infinity, or a time after January 294247")
    if values.type == column.type:
        return values
    return values.view(column.type)  # days since 1970


def _result(number: int, files: list[tuple[str, int, int, str]]) -> pa.RecordBatch:
    rows = [*files, (None, None, None, None)]
    names = ("path", "size", "rows", "stats")
    types = (pa.string(), pa.int64(), pa.int64(), pa.string())
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(types)]
    return pa.RecordBatch.from_arrays([pa.array([number] * len(rows), pa.int32()), *columns], ["range", *names])


def _message(error: Exception, password: str) -> str:
    """The source's own message in one line, without the query, which has the texts of the YAML's ``where:``, and without the password."""
    text = str(error).split("Query was:")[0].split("\nLINE ")[0]
    text = " ".join(text.split())
    for mark in ("ERROR: ", "FATAL: ", "[libpq] "):
        if mark in text:
            text = text.split(mark, 1)[1].strip()
            break
    state = getattr(error, "sqlstate", None)
    text = f"{text.split('. SQLSTATE:')[0]}{f' ({state})' if state else ''}"
    return SOURCE_FAILED + (text.replace(password, "****") if password else text) + END_OF_MESSAGE
