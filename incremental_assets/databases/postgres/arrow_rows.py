"""Reads few rows of an exported snapshot into this process, as an Arrow table."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from incremental_assets.databases.postgres.arrow_columns import reason_against_arrow, snapshot_read
from incremental_assets.databases.postgres.arrow_task import (
    SnapshotRead,
    SnapshotReader,
    SourceFailed,
    UnexpectedValue,
    connected,
    in_lake,
    schema_of,
    source_message,
)
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried
from incremental_assets.databases.source import WindowRead


def read_rows(reader: PostgresReader, carried: Sequence[Carried], read: WindowRead, most_bytes: int) -> pa.Table | None:
    """The rows of a read by windows, with the columns and types of the lake. It must be called inside ``reader.snapshot()``.

    None if the rows cannot be read as Arrow, or if they are more than ``most_bytes`` in memory. Raises SourceError.
    """
    if reason_against_arrow(reader, carried) is not None:
        return None
    try:
        return read_query(reader, snapshot_read(reader, carried, read, ()), most_bytes)
    except UnexpectedValue:  # such as an infinite time, which the read through JDBC names in its message
        return None


def read_query(reader: PostgresReader, one: SnapshotRead, most_bytes: int) -> pa.Table | None:
    """The rows of the first query of ``one``; None if they are more than ``most_bytes``. Raises SourceError and UnexpectedValue."""
    try:
        return _read(one, most_bytes)
    except SourceFailed as error:
        raise reader.read_failure(source_message(error), "the source failed while it was read") from error


def _read(one: SnapshotRead, most_bytes: int) -> pa.Table | None:
    schema = schema_of(one.columns)

    def rows(reader: SnapshotReader) -> pa.Table | None:
        tables = [schema.empty_table()]
        for batch in reader.batches(one.queries[0]):
            tables.append(in_lake(batch, one.columns, schema))
            if sum(table.nbytes for table in tables) > most_bytes:
                return None
        return pa.concat_tables(tables)

    # ADBC's functions return only when the source has answered, and no signal is handled until then. So another thread waits for them: this
    # one can be interrupted, and then ends the query.
    with connected(one) as reader, ThreadPoolExecutor(1, "read") as threads:
        reading = threads.submit(rows, reader)
        try:
            return reading.result()
        except BaseException:
            if not reading.done():
                reader.cancel()
            raise
