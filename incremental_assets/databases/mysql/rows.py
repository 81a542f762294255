"""Reads the rows of a snapshot of MySQL as Arrow tables, a bounded number at a time, through the connection that holds it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.databases.mysql.connection import source_errors
from incremental_assets.databases.mysql.queries import is_zero_date, relation
from incremental_assets.databases.mysql.reader import MySQLReader
from incremental_assets.databases.mysql.types import Carried, Wire
from incremental_assets.delta.local_rows import arrow_schema

BATCH_ROWS, BATCH_BYTES = 20_000, 16 << 20
"""A batch ends with this number of rows, or as soon as its texts and bytes are so large."""


def schema_of(carried: Sequence[Carried]) -> pa.Schema:
    """The columns with the Arrow types of the lake."""
    schema = arrow_schema([one.column for one in carried])
    assert schema is not None, "each type that is carried has an Arrow type"
    return schema


def select_of(container: Container, carried: Sequence[Carried], scope: str) -> str:
    """The query for the rows in ``scope``."""
    return f"select {', '.join(one.select for one in carried)} from {relation(container)} where {scope}"


def read_batches(reader: MySQLReader, carried: Sequence[Carried], scope: str, *, zero_dates_are_null: bool) -> Iterator[pa.Table]:
    """The rows in ``scope``, in batches. It must be called inside ``reader.snapshot()``, and not be interrupted by other queries.

    Raises SourceError if the source fails, and ConfigurationError for a value that the lake does not have.
    """
    container = reader.container
    schema = schema_of(carried)
    wide = [i for i, one in enumerate(carried) if one.wire in (Wire.TEXT, Wire.BYTES)]
    with source_errors(container.label, reader.address), reader.live.streamed(select_of(container, carried, scope)) as cursor:
        for rows in _batches(cursor, wide):
            columns = [
                _in_lake(container, carried, rows, i, field.type, zero_dates_are_null=zero_dates_are_null) for i, field in enumerate(schema)
            ]
            yield pa.table(columns, schema=schema)


def _batches(cursor: Any, wide: Sequence[int]) -> Iterator[list[Sequence[bytes | None]]]:
    """The rows in lists that are bounded by ``BATCH_ROWS`` and ``BATCH_BYTES``. ``wide``: the columns whose values may be long."""
    rows: list[Sequence[bytes | None]] = []
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


def _in_lake(
    container: Container,
    carried: Sequence[Carried],
    rows: list[Sequence[bytes | None]],
    at: int,
    type_: pa.DataType,
    *,
    zero_dates_are_null: bool,
) -> pa.Array:
    """The values of one column as the lake has them."""
    one = carried[at]
    texts = [row[at] for row in rows]
    if one.wire is Wire.TIME and zero_dates_are_null:
        texts = [None if text is not None and is_zero_date(text.decode()) else text for text in texts]
    try:
        sent = pa.array(texts, pa.binary())
        return sent if one.wire is Wire.BYTES else _converted(sent.cast(pa.string()), one.wire, type_)
    except pa.ArrowInvalid as error:
        raise _refusal(container, carried, rows, at, str(error)) from None


def _converted(texts: pa.Array, wire: Wire, type_: pa.DataType) -> pa.Array:
    if wire is Wire.TEXT:
        return texts
    if wire is Wire.BOOLEAN:
        return pc.equal(texts, "1")  # pyright: ignore[reportAttributeAccessIssue]
    if wire is Wire.FLOAT:
        return texts.cast(pa.float64()).cast(type_, safe=False)  # each is a float already
    if pa.types.is_timestamp(type_):
        return texts.cast(pa.timestamp("us")).view(pa.int64()).cast(type_)  # the session's time zone is UTC
    return texts.cast(type_)


def _refusal(container: Container, carried: Sequence[Carried], rows: list[Sequence[bytes | None]], at: int, why: str) -> Exception:
    """The error for a value that the lake does not have: with the first such value, and the key of its row."""
    one = carried[at]
    for row in rows:
        text = row[at]
        if text is None or (one.wire is not Wire.TIME):
            continue
        try:
            _converted(pa.array([text.decode()]), one.wire, pa.date32() if one.column.type == "date" else pa.timestamp("us"))
        except pa.ArrowInvalid:
            names = [each.column.name for each in carried]
            key = ", ".join(f"{name} = {_shown(row[names.index(name)])}" for name in container.primary_key if name in names)
            where = f" in the row with {key}" if key else ""
            kind = "a zero date" if is_zero_date(text.decode()) else "no day of the calendar"
            return ConfigurationError(
                f"{container.label}: column {one.column.name!r} has {text.decode()!r}{where}, which is {kind}; the lake has no such value, "
                f"and nothing was written. Correct it in the source; or carry the column as text: containers: {{{container.name}: "
                f"{{text_columns: [{one.column.name}]}}}}; or write zero_dates: 'null' for the datastore, and zero dates become NULL."
            )
    return SourceError(f"{container.label}: column {one.column.name!r} has a value that its type {one.column.type} does not have: {why}")


def _shown(value: bytes | None) -> str:
    return "NULL" if value is None else value.decode("utf-8", errors="replace")
