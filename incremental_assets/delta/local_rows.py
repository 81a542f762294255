"""Compares few rows of the source, which this process holds as an Arrow table, with the rows of the lake that they replace.

Two values are equal here if all their bits are: PostgreSQL keeps 0.0 and -0.0 apart, too.
"""

import contextlib
import decimal
import functools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from incremental_assets.core.container import Engine
from incremental_assets.core.deletes import MARK
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.nested_types import element_of
from incremental_assets.core.schema import Column
from incremental_assets.core.window import Window
from incremental_assets.delta.commit_files import RemovedFile
from incremental_assets.delta.engine import why_spark_reads
from incremental_assets.delta.local_files import IN_OTHER_FOLDERS, LocalFiles, size_of
from incremental_assets.delta.local_hashes import canonical_texts
from incremental_assets.delta.local_query import MOST_ROWS, described_here, is_expressible, readable_here, window_condition
from incremental_assets.delta.replaced_rows import ReplacedRows, RowsOfWindows, of_files
from incremental_assets.delta.store import READ_WHOLE, folder_at
from incremental_assets.delta.table import Head, LakeTable, double_quoted, query_within
from incremental_assets.delta.write_batch import BatchRows, InWindows, NotHere, OfFiles, RowsInFiles, StagedFiles, WithKeys, WriteBatch
from incremental_assets.spark.code_generation import FEW_ROWS

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame

log = logging.getLogger(__name__)

MOST_OLD_ROWS, MOST_OLD_BYTES = 3_000_000, 256 << 20
"""Up to so many rows of the lake, which take so much memory, are compared here."""
MOST_SENT_ROWS, MOST_SENT_BYTES = 300_000, 64 << 20
"""Up to so many rows are sent to Spark, with each query that uses them. It reads more by itself, in parts."""
FEW_BYTES = 16 << 20
"""Up to ``FEW_ROWS`` rows of this size are sent to Spark faster than it finds them by itself: it reads a table's log by queries."""
ONE_PART_ROWS = 10_000
"""Up to so many rows, dividing the work among cores takes longer than the work."""
_ONLY_SPARK = "the table has what only Spark reads rightly"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES = {
    "boolean": pa.bool_(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "binary": pa.binary(), "string": pa.string(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
"""The Arrow type of each Delta type, but for decimals."""


@dataclass(frozen=True)
class LocalDifferences:
    """What distinguishes the rows read from those of the lake in the same windows.

    ``changed``: the rows read for which the lake has no equal row. ``missing``: the primary keys that the lake has, and that were not read.
    """

    changed: pa.Table
    missing: pa.Table


@dataclass(frozen=True)
class LocalComparison:
    """The rows of a write batch (``new``), and those of the lake in the same windows (``old``), with the same columns.

    ``key``: the primary key. ``is_upsert``: whether the rows are written by key, wherever in the table the old ones are. ``counted_by``:
    see the function. ``deleted_at``: see ``WriteBatch``; old rows that are marked already are not missing.
    """

    old: pa.Table
    new: pa.Table
    key: Sequence[str]
    is_upsert: bool
    counted_by: Sequence[str] = ()
    deleted_at: int | None = None

    @functools.cached_property
    def differences(self) -> LocalDifferences:
        """What has changed, by primary key."""
        found = differences(self.old, self.new, self.key)
        if self.deleted_at is None or not found.missing.num_rows:
            return found
        return LocalDifferences(found.changed, differences(unmarked(self.old), self.new, self.key).missing)

    @functools.cached_property
    def counts(self) -> tuple[int, int, int] | None:
        """The numbers of (inserted, updated, deleted) rows; None of an upsert, whose old rows may be in other windows."""
        return None if self.is_upsert else counted_changes(self._differing, self.new.column_names, self.counted_by or self.key)

    @property
    def is_equal(self) -> bool:
        """Whether the lake has exactly the rows that were read."""
        if self.counts is not None:
            return not any(self.counts)
        return not self.differences.changed.num_rows and not self.differences.missing.num_rows

    def added(self) -> pa.Table:
        """The rows read without those that the lake has. A row that was read twice, and that the lake has once, is among them once."""
        return self._one_side(1) if self.old.num_rows else self.new

    def lost(self) -> pa.Table:
        """The rows of the lake without those that were read."""
        return self._one_side(-1)

    @functools.cached_property
    def _differing(self) -> pa.Table:
        return differing(self.old, self.new)

    def _one_side(self, sign: int) -> pa.Table:
        times = [sign * n for n in self._differing.column("n").to_pylist()]
        once = self._differing.drop_columns(["n"]).rename_columns(self.new.column_names)
        return once.take(pa.array([i for i, n in enumerate(times) for _ in range(n)], pa.int64()))


def in_columns_of(head: Head, write_batch: WriteBatch) -> WriteBatch:
    """The batch with the columns of the table, in its order: those that the source no longer has are NULL in the rows of this process.

    It is the batch itself if it replaces the table's columns, if it has others than the table or other types, or if a type is not known
    here. Spark brings its rows into this form by itself (``delta.sql.align``).
    """
    schema = arrow_schema(head.columns)
    if write_batch.whole or schema is None or not set(write_batch.columns) < set(head.columns):
        return write_batch
    replaces = write_batch.replaces
    if isinstance(replaces, WithKeys):
        replaces = replace(replaces, rows=_filled(replaces.rows, schema))
    return replace(write_batch, columns=tuple(head.columns), rows=_FilledRows(write_batch.rows, schema), replaces=replaces)


@dataclass(frozen=True)
class _FilledRows(BatchRows):
    """The rows of a batch with further columns, which are NULL in each of them."""

    rows: BatchRows
    schema: pa.Schema

    @property
    def staged(self) -> StagedFiles | None:
        return self.rows.staged

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return self.rows.frame(spark)

    def local(self) -> pa.Table:
        return _filled(self.rows.local(), self.schema)

    def in_files(self) -> RowsInFiles:
        return self.rows.in_files()

    def still_there(self) -> None:
        self.rows.still_there()

    def emptied(self) -> Sequence[Window]:
        return self.rows.emptied()


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(rows.column_names)
    columns = [rows.column(f.name) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def compare_here(table: LakeTable, head: Head, write_batch: WriteBatch) -> LocalComparison:
    """Compares the rows of a batch in this process. Raises NotHere if that is not possible."""
    key, engine = write_batch.container.lake_key, write_batch.container.engine
    is_upsert = write_batch.container.strategy is Strategy.UPSERT and head.version > 0
    if described_here(table, head.version) is None:
        raise NotHere(_ONLY_SPARK)
    may_be_read = write_batch.expected <= MOST_OLD_ROWS and why_spark_reads(engine) is None
    # The lake is read while the source sends its rows, unless these are so many that they are not read here at all.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rows of the lake") as thread:
        reading = thread.submit(rows_of_lake, table, head, write_batch) if may_be_read else None
        new = write_batch.rows.local()
        if is_upsert and not has_unique_keys(new, key):
            raise NotHere("a key is NULL, or came twice")
        old = rows_of_lake(table, head, write_batch) if reading is None else reading.result()
        if old is None:
            raise NotHere("the lake has many rows in their place")
    return LocalComparison(old, new, key, is_upsert, counted_by(write_batch), write_batch.deleted_at)


def counted_by(write_batch: WriteBatch) -> tuple[str, ...]:
    """The columns by which an old row and a new one are counted as one that was updated: the primary key.

    Without a key it is all columns but the identifier, so that a deleted row is one that is in the windows with no identifier any more.
    """
    apart = write_batch.identifier.columns if write_batch.identifier is not None else ()
    names = tuple(column.name for column in write_batch.columns)
    return write_batch.container.lake_key or tuple(name for name in names if name not in apart) or names


def unmarked(rows: pa.Table) -> pa.Table:
    """Those of the rows that are not marked as deleted."""
    return rows.filter(pc.is_null(rows.column(MARK.name)))  # pyright: ignore[reportAttributeAccessIssue]


def marked(rows: pa.Table, deleted_at: int) -> pa.Table:
    """The rows, marked as deleted at this time (microseconds since 1970 UTC)."""
    at = rows.schema.get_field_index(MARK.name)
    field = rows.schema.field(at)
    return rows.set_column(at, field, pa.array([deleted_at] * rows.num_rows, pa.int64()).cast(field.type))


def frame_of(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """The rows as a DataFrame. They travel to the Spark server with each query that uses it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # The schema is made here, because the session's setting would take times without time zone for such with one.
    return spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def sent_frame(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """The same rows, to be grouped and joined: where these take no time, in one part, so that Spark has nothing to shuffle."""
    frame = frame_of(spark, rows)
    return frame.coalesce(1) if rows.num_rows <= ONE_PART_ROWS else frame


def local_frame(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """The same rows, to be joined with the table."""
    # Spark would cut them into a part, and so a file, for each core; and where it joins them with the table, it would shuffle the table.
    return frame_of(spark, rows).coalesce(1).hint("broadcast")


def sent_or_read(spark: "SparkSession", rows: BatchRows) -> "tuple[DataFrame, bool]":
    """The rows of a batch for Spark, and whether this process sends them; otherwise Spark reads them with each query."""
    with contextlib.suppress(NotHere):
        local = rows.local()
        if may_be_sent(local):
            return local_frame(spark, local), True
    return rows.frame(spark), False


def may_be_sent(rows: pa.Table) -> bool:
    """Whether this process sends the rows to Spark."""
    return rows.num_rows <= MOST_SENT_ROWS and rows.nbytes <= MOST_SENT_BYTES


def few_rows(
    table: LakeTable, head: Head, condition: Callable[[DeltaTable], str | None], columns: Sequence[Column] | None = None
) -> pa.Table | None:
    """The rows of the table for which a condition of the engine holds, if they are few and this process reads them as Spark does.

    ``columns``: those that are read; None: all.
    """
    schema = arrow_schema(head.columns if columns is None else columns)
    try:
        delta = None if schema is None else readable_here(table, head.version)
        where = None if delta is None else condition(delta)
        if schema is None or delta is None or where is None:
            return None
        names = ", ".join(map(double_quoted, schema.names))
        found = query_within(delta, f'SELECT {names} FROM "rows" WHERE {where} LIMIT {FEW_ROWS + 1}', FEW_BYTES)
        return None if found is None or found.num_rows > FEW_ROWS else found.cast(schema)
    except (DeltaError, pa.ArrowException) as error:
        log.debug("%s: Spark reads the rows: %s", table.url, error)
        return None


def rows_of_lake(table: LakeTable, head: Head, write_batch: WriteBatch) -> pa.Table | None:
    """The rows of the table that the batch replaces, with the types of the batch's rows; None if they are more than are compared here.

    Raises NotHere if this process cannot read them as Spark would, or if the table has other columns than the batch.
    """
    replaced = write_batch.read
    schema = arrow_schema(head.columns)
    delta = None if schema is None else described_here(table, head.version)
    if schema is None or delta is None:
        raise NotHere(_ONLY_SPARK)
    if tuple(head.columns) != write_batch.columns:
        raise NotHere("the table has other columns than the source")
    try:
        if isinstance(replaced, OfFiles):
            found = _of_files(table, delta, schema, replaced, write_batch.container.engine)
        elif isinstance(replaced, InWindows):
            found = _in_windows(table, delta, schema, replaced, write_batch.container.engine)
        else:
            raise NotHere("the rows are written by their keys")
    except (DeltaError, pa.ArrowException, OSError, BaseError) as error:
        log.debug("%s: Spark compares the rows: %s", table.url, error)
        raise NotHere("the lake's rows could not be read") from error
    return None if found is None or found.num_rows > MOST_OLD_ROWS else found.cast(schema)


def _in_windows(table: LakeTable, delta: DeltaTable, schema: pa.Schema, replaced: InWindows, engine: Engine) -> pa.Table | None:
    """The rows, or at least one more than are compared here; None if they take too much memory. Raises DeltaError and NotHere."""
    condition = "true"
    if replaced.of is not None:
        if not is_expressible(delta, replaced.of, replaced.windows):
            raise NotHere("the identifier's values cannot be compared exactly")
        there = LocalFiles.of(delta, folder_at(table.address))
        meant = RowsOfWindows(replaced.of, replaced.windows, replaced.include_nulls)
        # The engine reads files with deletion vectors as a whole, and on an object store a small file by four requests.
        if there is not None and (there.live or delta.count() > MOST_ROWS):
            return read_few(there, there.searched(meant, engine), schema, meant)
        if there is not None and table.is_on_store and size_of(there.that_may_have(meant)) <= READ_WHOLE:
            with contextlib.suppress(pa.ArrowException):  # the engine reads more types of Parquet
                return read_few(there, there.searched(meant, engine), schema, meant)
        condition = window_condition(replaced.of, replaced.windows, replaced.include_nulls)
    readable = readable_here(table, delta.version())
    if readable is None:
        raise NotHere(_ONLY_SPARK)
    columns = ", ".join(map(double_quoted, schema.names))
    return query_within(readable, f'SELECT {columns} FROM "rows" WHERE {condition} LIMIT {MOST_OLD_ROWS + 1}', MOST_OLD_BYTES)


def _of_files(table: LakeTable, delta: DeltaTable, schema: pa.Schema, replaced: OfFiles, engine: Engine) -> pa.Table | None:
    """The same of the rows of files of the source."""
    there = LocalFiles.of(delta, folder_at(table.address))
    if there is None:
        raise NotHere(IN_OTHER_FOLDERS)
    meant = of_files(replaced.keys)
    return read_few(there, there.searched(meant, engine), schema, meant)


def read_few(there: LocalFiles, searched: Sequence[RemovedFile], schema: pa.Schema, meant: ReplacedRows) -> pa.Table | None:
    """These rows of the files themselves; None if they are more than are compared here.

    Raises pa.ArrowException, and what ``Folder`` raises.
    """
    hits = there.hits(searched, schema, meant)
    if sum(one.among.true_count for one in hits.values()) > MOST_OLD_ROWS:
        return None
    left, found = MOST_OLD_BYTES, [schema.empty_table()]
    for file, one in hits.items():
        found.append(there.rows(file, schema, one.among))
        left -= found[-1].nbytes
        if left < 0:
            return None
    return pa.concat_tables(found)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema | None:
    """The Arrow schema of columns of a table; None if it has a type that is not compared here."""
    fields: list[pa.Field] = []
    for column in columns:
        element = element_of(column.type)
        type_ = _arrow_type(element or column.type)
        if type_ is None:
            return None
        fields.append(pa.field(column.name, pa.list_(type_) if element else type_))
    return pa.schema(fields)


def _arrow_type(type_: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(type_)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(type_)


def _grouped(rows: pa.Table, names: Sequence[str], *aggregations: tuple[str, str]) -> pa.Table:
    """The rows grouped by columns with plain names. pyarrow does not group by lists: a number stands for each different one."""
    lists: dict[str, pa.ChunkedArray] = {}
    for at, name in enumerate(rows.column_names):
        values = rows.column(at)
        if pa.types.is_list(values.type):
            numbers = canonical_texts(values).combine_chunks().dictionary_encode().indices
            lists[name] = values.take(pa.array(np.unique(numbers.to_numpy(), return_index=True)[1]))
            rows = rows.set_column(at, name, numbers)
    found = rows.group_by(list(names)).aggregate(aggregations)
    for name, values in lists.items():
        found = found.set_column(found.schema.get_field_index(name), name, values.take(found.column(name)))
    return found


def differing(old: pa.Table, new: pa.Table) -> pa.Table:
    """The rows that are not as often in ``old`` as in ``new``, under plain names, and how many more the new ones are (``n``).

    Each old row counts -1 and each new one +1, so equal rows cancel each other out.
    """
    names = _plain_names(new)
    both = pa.concat_tables([_counted(old, names, -1), _counted(new, names, 1)])
    rows = _grouped(both, names, ("n", "sum"))
    rows = rows.filter(pc.not_equal(rows.column("n_sum"), 0))  # pyright: ignore[reportAttributeAccessIssue]
    return rows.select([*names, "n_sum"]).rename_columns([*names, "n"])


def counted_changes(differing: pa.Table, columns: Sequence[str], key: Sequence[str]) -> tuple[int, int, int]:
    """The numbers of (inserted, updated, deleted) rows if the old rows are replaced by the new ones. ``columns``: the names of all columns.

    What differs on both sides for one key is an update. Without a key, a changed row counts as one deletion and one insertion.
    """
    keys = [f"c{columns.index(name)}" for name in key] or [f"c{i}" for i in range(len(columns))]
    left = differing.column("n")
    sides = differing.select(keys).append_column("come", _positive(left)).append_column("gone", _positive(pc.negate(left)))  # pyright: ignore[reportAttributeAccessIssue]
    by_key = _grouped(sides, keys, ("come", "sum"), ("gone", "sum"))
    come, gone = by_key.column("come_sum"), by_key.column("gone_sum")
    updated = _sum(pc.min_element_wise(come, gone))  # pyright: ignore[reportAttributeAccessIssue]
    return _sum(come) - updated, updated, _sum(gone) - updated


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


def key_texts(keys: pa.Table) -> Iterator[tuple[str, ...]]:
    """Yields the texts of keys, each of which the source reads as the same value again, as ``delta.sql.key_text`` makes them in Spark."""
    for start in range(0, keys.num_rows, ONE_PART_ROWS):  # texts take many times the memory of the keys
        part = keys.slice(start, ONE_PART_ROWS)
        yield from zip(*(map(_text, _exact(column).to_pylist()) for column in part.columns), strict=True)


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
    rows = _grouped(both, names, ("n", "min"))
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
