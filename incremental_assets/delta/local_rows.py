"""Compares few rows of the source, which this process holds as an Arrow table, with the rows of the lake that they replace.

Belongs here: reading those rows of the lake in this process, and the comparison of both. Does not belong: writing (``overwrite``,
``merge``), or the same comparison by Spark, which stands beside each write and is used where this one is not possible.

Two values are equal here if all their bits are: PostgreSQL keeps 0.0 and -0.0 apart, too.
"""

import decimal
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from incremental_assets.core.schema import Column
from incremental_assets.delta.local_query import is_expressible, readable_here, window_condition
from incremental_assets.delta.table import Head, LakeTable, double_quoted, query_within
from incremental_assets.delta.write_batch import WriteBatch

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

log = logging.getLogger(__name__)

MOST_OLD_ROWS, MOST_OLD_BYTES = 200_000, 256 << 20
"""Up to so many rows of the lake, which take so much memory, are compared here."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES = {
    "boolean": pa.bool_(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "binary": pa.binary(), "string": pa.string(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
"""The Arrow type of each Delta type, but for decimals."""


def local_frame(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """The rows as a DataFrame. They travel to the Spark server with each query that uses it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # The schema is made here, because the session's setting would take times without time zone for such with one.
    frame = spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
    # Spark would cut them into a part, and so a file, for each core; and where it joins them with the table, it would shuffle the table.
    return frame.coalesce(1).hint("broadcast")


def rows_of_lake(table: LakeTable, head: Head, write_batch: WriteBatch) -> pa.Table | None:
    """The rows of the table in the windows of the batch, with the types of the batch's rows.

    None if this process cannot read them as Spark would, if the table has other columns than the batch, or if they are more than
    ``MOST_OLD_ROWS`` or ``MOST_OLD_BYTES``.
    """
    identifier = write_batch.container.identifier
    schema = _arrow_schema(head.columns)
    delta = readable_here(table)
    if identifier is None or schema is None or delta is None or delta.version() != head.version or write_batch.files is not None:
        return None
    if tuple(head.columns) != write_batch.columns or not is_expressible(delta, identifier, write_batch.windows):
        return None
    condition = window_condition(identifier, write_batch.windows, write_batch.include_nulls)
    columns = ", ".join(double_quoted(column.name) for column in head.columns)
    try:
        found = query_within(delta, f'SELECT {columns} FROM "rows" WHERE {condition} LIMIT {MOST_OLD_ROWS + 1}', MOST_OLD_BYTES)
    except DeltaError as error:
        log.debug("%s: Spark compares the rows: %s", table.url, error)
        return None
    return found.cast(schema) if found is not None and found.num_rows <= MOST_OLD_ROWS else None


def _arrow_schema(columns: Sequence[Column]) -> pa.Schema | None:
    """The Arrow schema of a table; None if it has a type that is not compared here."""
    fields: list[pa.Field] = []
    for column in columns:
        decimal = _DECIMAL.fullmatch(column.type)
        type_ = pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(column.type)
        if type_ is None:
            return None
        fields.append(pa.field(column.name, type_))
    return pa.schema(fields)


def counted_changes(old: pa.Table, new: pa.Table, key: Sequence[str]) -> tuple[int, int, int]:
    """The numbers of (inserted, updated, deleted) rows if the rows ``old`` are replaced by ``new``, which have the same columns.

    Each old row counts -1 and each new one +1. Equal rows cancel each other out, and what remains on both sides for one key is an update.
    Without a key, a changed row counts as one deletion and one insertion.
    """
    names = _plain_names(new)
    keys = [names[new.column_names.index(name)] for name in key] or names
    both = pa.concat_tables([_counted(old, names, -1), _counted(new, names, 1)])
    rows = both.group_by(names).aggregate([("n", "sum")])
    left = rows.column("n_sum")
    sides = rows.select(keys).append_column("come", _positive(left)).append_column("gone", _positive(pc.negate(left)))  # pyright: ignore[reportAttributeAccessIssue]
    by_key = sides.group_by(keys).aggregate([("come", "sum"), ("gone", "sum")])
    come, gone = by_key.column("come_sum"), by_key.column("gone_sum")
    updated = _sum(pc.min_element_wise(come, gone))  # pyright: ignore[reportAttributeAccessIssue]
    return _sum(come) - updated, updated, _sum(gone) - updated


@dataclass(frozen=True)
class LocalDifferences:
    """What distinguishes the rows read from those of the lake in the same windows.

    ``changed``: the rows read for which the lake has no equal row. ``missing``: the primary keys that the lake has, and that were not read.
    """

    changed: pa.Table
    missing: pa.Table


def differences(old: pa.Table, new: pa.Table, key: Sequence[str]) -> LocalDifferences:
    """Compares the rows of the lake (``old``) with those read (``new``), which have the same columns and no key twice."""
    return LocalDifferences(_only_in(new, old), _only_in(old.select(list(key)), new.select(list(key))))


def has_unique_keys(rows: pa.Table, key: Sequence[str]) -> bool:
    """Whether no two rows have the same key, and none has NULL in it.

    It is not known of floats: to PostgreSQL and Spark, 0.0 and -0.0 are the same key.
    """
    keys = rows.select(list(key))
    if any(column.null_count or pa.types.is_floating(column.type) for column in keys.columns):
        return False
    names = _plain_names(keys)
    return keys.rename_columns(names).group_by(names).aggregate([]).num_rows == rows.num_rows


def key_texts(keys: pa.Table) -> Sequence[tuple[str, ...]]:
    """The texts of keys, each of which the source reads as the same value again, as ``delta.sql.key_text`` makes them in Spark."""
    return list(zip(*(map(_text, _exact(column).to_pylist()) for column in keys.columns), strict=True))


def bounds_of(values: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """The lowest and the highest value of a key's column, as such texts; None if there are none, or if their type has no order here."""
    if pa.types.is_boolean(values.type) or pa.types.is_binary(values.type) or pa.types.is_floating(values.type):
        return None, None
    found = pc.min_max(_exact(values)).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(None if found[end] is None else _text(found[end]) for end in ("min", "max"))  # pyright: ignore[reportReturnType]


def _exact(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as Python has them exactly: days and microseconds as integers, since it knows only the years 1 to 9999."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return value.hex().upper() if isinstance(value, bytes) else str(value)


def _only_in(one: pa.Table, other: pa.Table) -> pa.Table:
    """The rows of the one table that the other does not have; each once."""
    names = _plain_names(one)
    both = pa.concat_tables([_counted(one, names, 1), _counted(other, names, 0)])
    rows = both.group_by(names).aggregate([("n", "min")])
    return rows.filter(pc.equal(rows.column("n_min"), 1)).select(names).rename_columns(one.column_names)  # pyright: ignore[reportAttributeAccessIssue]


def _plain_names(table: pa.Table) -> list[str]:
    """Names for the columns by which they are grouped: pyarrow takes a name such as ".a" for a path."""
    return [f"c{i}" for i in range(table.num_columns)]


def _counted(table: pa.Table, names: list[str], number: int) -> pa.Table:
    return table.rename_columns(names).append_column("n", pa.array([number] * table.num_rows, pa.int64()))


def _positive(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.max_element_wise(numbers, 0)  # pyright: ignore[reportAttributeAccessIssue]


def _sum(numbers: pa.ChunkedArray) -> int:
    return int(pc.sum(numbers).as_py() or 0)  # pyright: ignore[reportAttributeAccessIssue]
