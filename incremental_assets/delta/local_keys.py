"""The primary keys of a table, hashed in this process: the lake's side of a comparison of keys, without Spark."""

import decimal
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, Key, PartitionValue, RowScope
from incremental_assets.core.container import Identifier
from incremental_assets.core.schema import Column
from incremental_assets.delta.local_hashes import checksums_of, hashes_of, in_buckets, plain_texts
from incremental_assets.delta.local_query import readable_here
from incremental_assets.delta.local_rows import arrow_schema
from incremental_assets.delta.replaced_rows import RowsOfKeys, integers
from incremental_assets.delta.table import Head, LakeTable, double_quoted, query_within

log = logging.getLogger(__name__)

MOST_KEYS, MOST_BYTES = 2_000_000, 512 << 20
"""Up to so many keys, which take so much memory, are hashed here."""


def are_read_here(table: LakeTable, head: Head, key: Sequence[Column]) -> bool:
    """Whether the keys of the table are hashed in this process, as far as that can be told without reading them."""
    return _readable(table, head, key) is not None


def _readable(table: LakeTable, head: Head, key: Sequence[Column]) -> DeltaTable | None:
    delta = readable_here(table)
    is_readable = delta is not None and delta.version() == head.version and delta.count() <= MOST_KEYS and arrow_schema(key) is not None
    return delta if is_readable else None


def read_keys(table: LakeTable, head: Head, key: Sequence[Column], axis: Identifier, marks: str | None) -> "LocalKeys | None":
    """The keys of the table, at the version ``head``. None if this process cannot read them as Spark would, or if they are too many.

    ``axis``: what the partitions are windows of. ``marks``: the name of the column that marks deleted rows, which count as absent; None if
    all rows count.
    """
    delta, schema = _readable(table, head, key), arrow_schema(key)
    by_name = {column.name: column for column in head.columns}
    identifiers = arrow_schema([by_name[name] for name in axis.columns if name in by_name])
    if delta is None or schema is None or identifiers is None:
        return None
    if any(pa.types.is_decimal(field.type) for field in identifiers):
        return None
    # A column of the axis may be one of the key, too.
    wanted = [*(f.with_name(f"k{i}") for i, f in enumerate(schema)), *(f.with_name(f"i{i}") for i, f in enumerate(identifiers))]
    columns = [f"{double_quoted(name)} AS k{i}" for i, name in enumerate(schema.names)]
    columns += [f"{double_quoted(name)} AS i{i}" for i, name in enumerate(identifiers.names)]
    columns.append("false AS marked" if marks is None else f"{double_quoted(marks)} IS NOT NULL AS marked")
    try:
        found = query_within(delta, f'SELECT {", ".join(columns)} FROM "rows"', MOST_BYTES)
    except DeltaError as error:
        log.debug("%s: Spark hashes the keys: %s", table.url, error)
        return None
    if found is None:
        return None
    # The engine returns views of texts, which pyarrow does not filter.
    every, marked = found.drop_columns(["marked"]).cast(pa.schema(wanted)), found.column("marked")
    live = every.filter(pc.invert(marked))  # pyright: ignore[reportAttributeAccessIssue]
    keys, gone = (rows.select(range(len(schema))).rename_columns(schema.names) for rows in (live, every.filter(marked)))
    values = [integers(column) for column in live.columns[len(schema) :]]
    return LocalKeys(key, keys, functools.reduce(pc.max_element_wise, values), gone)  # pyright: ignore[reportAttributeAccessIssue]


class LocalKeys:
    """The ``HashedRows`` of the keys of one version of a table. All of them are compared, whatever the scope says.

    ``keys``: those of the rows that are not marked as deleted, and ``values`` where these lie on the axis, as integers of the cursor type.
    ``marked``: the keys of the other rows.
    """

    def __init__(self, columns: Sequence[Column], keys: pa.Table, values: pa.ChunkedArray, marked: pa.Table) -> None:
        self._columns, self.keys, self.values, self.marked = columns, keys, values, marked

    @functools.cached_property
    def _hashes(self) -> np.ndarray:
        return hashes_of([self.keys.column(column.name) for column in self._columns])

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        every = checksums_of(self._hashes, np.zeros(len(self._hashes), np.int64))
        return {None: every[0]} if every else {}

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        return checksums_of(self._hashes, self._hashes % buckets)

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        number = self._hashes % buckets.number
        positions = in_buckets(number, buckets.chosen)
        rows = self.keys.take(pa.array(positions))
        texts = zip(*(plain_texts(rows.column(column.name)).to_pylist() for column in self._columns), strict=True)
        for position, key in zip(positions.tolist(), texts, strict=True):
            yield HashedRow(int(number[position]), key, int(self._hashes[position]))

    def values_of(self, keys: pa.Table) -> frozenset[int]:
        """Where the rows with these keys lie on the axis; rows with NULL there have no value."""
        found = self.values.filter(RowsOfKeys(keys).among(self.keys)).drop_null().unique()
        return frozenset(found.to_pylist())

    def marked_among(self, keys: pa.Table) -> pa.Table:
        """Those of the keys that rows have which are marked as deleted."""
        return keys.filter(RowsOfKeys(self.marked).among(keys))


def keys_of(texts: Sequence[Key], columns: Sequence[Column]) -> pa.Table:
    """The keys with these texts (``HashedRow.key``), in the types of the lake. The types must be known to ``arrow_schema``."""
    schema = arrow_schema(columns)
    assert schema is not None
    by_column = zip(*texts, strict=True) if texts else ([] for _ in columns)
    arrays = [_from_texts(list(values), field.type) for values, field in zip(by_column, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _from_texts(texts: list[str | None], type_: pa.DataType) -> pa.Array:
    def made(make: Callable[[str], Any], as_type: pa.DataType = type_) -> pa.Array:
        return pa.array([None if text is None else make(text) for text in texts], as_type)

    if pa.types.is_boolean(type_):
        return made(lambda text: text == "true")
    if pa.types.is_decimal(type_):
        return made(decimal.Decimal)
    if pa.types.is_binary(type_):
        return made(bytes.fromhex)
    if pa.types.is_floating(type_):
        return made(float.fromhex)
    if pa.types.is_date32(type_):
        return made(int, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return made(int, pa.int64()).cast(type_)
    return made(int) if pa.types.is_integer(type_) else made(str)
