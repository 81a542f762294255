"""Reads the rows of a snapshot of SQL Server as Arrow tables, a bounded number at a time, through the connection that holds it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.databases.sqlserver.connection import Row, source_errors
from incremental_assets.databases.sqlserver.reader import SQLServerReader
from incremental_assets.databases.sqlserver.statements import select_of
from incremental_assets.databases.sqlserver.types import Carried, Wire
from incremental_assets.delta.local_rows import arrow_schema

BATCH_ROWS, BATCH_BYTES = 20_000, 16 << 20
"""A batch ends with this number of rows, or as soon as its texts and bytes are so large."""
_MICROSECOND = 26
"""The length of the text of a date and time with six digits of the second; the seventh follows."""


def schema_of(carried: Sequence[Carried]) -> pa.Schema:
    """The columns with the Arrow types of the lake."""
    schema = arrow_schema([one.column for one in carried])
    assert schema is not None, "each type that is carried has an Arrow type"
    return schema


def read_batches(reader: SQLServerReader, carried: Sequence[Carried], scope: str, *, cuts_times: bool) -> Iterator[pa.Table]:
    """The rows in ``scope``, in batches. It must be called inside ``reader.snapshot()``, and not be interrupted by other queries.

    ``cuts_times``: the seventh digit of a second is cut, and not refused. Raises SourceError if the source fails, and ConfigurationError
    for a value that the lake does not have.
    """
    container = reader.container
    wide = [i for i, one in enumerate(carried) if one.wire in (Wire.TEXT, Wire.BYTES)]
    with source_errors(container.label, reader.address), reader.live.streamed(select_of(container, carried, scope)) as cursor:
        for rows in _batches(cursor, wide):
            yield table_of(container, carried, rows, cuts_times=cuts_times)


def table_of(container: Container, carried: Sequence[Carried], rows: Sequence[Row], *, cuts_times: bool) -> pa.Table:
    """Rows as the driver gives them, as the lake has them. Raises ConfigurationError for a value that the lake does not have."""
    schema = schema_of(carried)
    columns: list[pa.Array] = []
    for i, field in enumerate(schema):
        values = [row[i] for row in rows]
        if carried[i].wire is Wire.TIME and not pa.types.is_date(field.type):
            if not cuts_times:
                _refuse_finer_times(container, carried, rows, i)
            values = [None if value is None else value[:_MICROSECOND] for value in values]
        try:
            columns.append(_converted(values, carried[i].wire, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            one = carried[i]
            raise SourceError(
                f"{container.label}: column {one.column.name!r} has a value that its type {one.sql_type} does not have: {error}"
            ) from None
    return pa.table(columns, schema=schema)


def _batches(cursor: Any, wide: Sequence[int]) -> Iterator[list[Row]]:
    """The rows in lists that are bounded by ``BATCH_ROWS`` and ``BATCH_BYTES``. ``wide``: the columns whose values may be long."""
    rows: list[Row] = []
    size = 0
    while (row := cursor.fetchone()) is not None:
        rows.append(row)
        for i in wide:
            size += len(row[i] or b"")
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _converted(values: Sequence[Any], wire: Wire, type_: pa.DataType) -> pa.Array:
    if wire is Wire.BYTES:
        return pa.array(values, pa.binary())
    if wire is Wire.BOOLEAN:
        return pa.array(values, pa.bool_())
    if wire is Wire.INTEGER:
        return pa.array(values, pa.int64()).cast(type_)
    if wire is Wire.FLOAT:
        return pa.array(values, pa.float64()).cast(type_, safe=False)  # each real is a float already
    texts = pa.array(values, pa.string())
    if wire is Wire.TEXT:
        return texts
    if pa.types.is_timestamp(type_):
        return texts.cast(pa.timestamp("us")).view(pa.int64()).cast(type_)  # instants are sent in UTC
    return pc.cast(texts, type_)


def _refuse_finer_times(container: Container, carried: Sequence[Carried], rows: Sequence[Row], at: int) -> None:
    """Raises ConfigurationError for the first time that is finer than a microsecond, with the key of its row."""
    one = carried[at]
    row = next((row for row in rows if row[at] is not None and row[at][_MICROSECOND:] not in ("", "0")), None)
    if row is None:
        return
    names = [each.column.name for each in carried]
    key = ", ".join(f"{name} = {row[names.index(name)]}" for name in container.primary_key if name in names)
    where = f" in the row with {key}" if key else ""
    raise ConfigurationError(
        f"{container.label}: column {one.column.name!r} has {row[at]!r}{where}, which is finer than a microsecond; the lake has no such "
        f"value, and nothing was written. Write finer_times: cut for the datastore, and the seventh digit is left out; or carry the column "
        f"as text: containers: {{{container.name}: {{text_columns: [{one.column.name}]}}}}"
    )
