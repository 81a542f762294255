"""Whole rows of a table, hashed in this process: the lake's side of an audit of a table that is not large, without Spark."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope
from incremental_assets.core.container import Container
from incremental_assets.core.schema import Column
from incremental_assets.core.window import EVERYTHING
from incremental_assets.delta.local_hashes import checksums_of, hashes_of, in_buckets, plain_texts
from incremental_assets.delta.local_query import is_expressible, readable_here, step_of, window_condition
from incremental_assets.delta.local_rows import arrow_schema
from incremental_assets.delta.replaced_rows import integers
from incremental_assets.delta.table import Head, LakeTable, double_quoted, query, query_within

log = logging.getLogger(__name__)

MOST_ROWS, MOST_BYTES = 300_000, 256 << 20
"""Up to so many rows, which take so much memory, are hashed here."""


@dataclass(frozen=True)
class LocalHashedRows:
    """The rows of one scope.

    ``hashes``: of whole rows. ``key_hashes``: of their keys, or of whole rows where there is no key. ``keys``: the columns of the key.
    ``places``: for each row, a value that lies in its partition; NULL for rows without identifier.
    """

    hashes: np.ndarray
    key_hashes: np.ndarray
    keys: Sequence[pa.ChunkedArray]
    places: pa.ChunkedArray

    def by_partition(self) -> Mapping[PartitionValue, Checksum]:
        """As ``HashedRows.by_partition``."""
        placed = pc.is_valid(self.places).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
        found: dict[PartitionValue, Checksum] = {**checksums_of(self.hashes[placed], self.places.drop_null().to_numpy())}
        nowhere = checksums_of(self.hashes[~placed], np.zeros(int((~placed).sum()), np.int64))
        return found | {None: nowhere[0]} if nowhere else found

    def by_bucket(self, buckets: int) -> Mapping[int, Checksum]:
        """As ``HashedRows.by_bucket``."""
        return checksums_of(self.hashes, self.key_hashes % buckets)

    def of_buckets(self, buckets: Buckets) -> Iterator[HashedRow]:
        """As ``HashedRows.of_buckets``."""
        number = self.key_hashes % buckets.number
        positions = in_buckets(number, buckets.chosen)
        texts = [plain_texts(column.take(pa.array(positions))).to_pylist() for column in self.keys]
        for place, position in enumerate(positions.tolist()):
            yield HashedRow(int(number[position]), tuple(column[place] for column in texts), int(self.hashes[position]))


def are_hashed_here(table: LakeTable, head: Head, container: Container, scope: RowScope) -> bool:
    """Whether the rows of a scope are hashed in this process, as far as that is known without reading all of their columns."""
    try:
        delta = None if arrow_schema(head.columns) is None else readable_here(table, head.version)
        if delta is None or delta.count() <= MOST_ROWS:
            return delta is not None
        where = _condition(delta, container, scope)
        few = f'SELECT 1 FROM "rows" WHERE {where} LIMIT {MOST_ROWS + 1}'
        return where is not None and query(delta, few).num_rows <= MOST_ROWS
    except DeltaError:
        return False  # the comparison says what is wrong


def read_rows_here(
    table: LakeTable,
    version: int,
    container: Container,
    columns: Sequence[Column],
    key: Sequence[Column],
    marks: str | None,
    scope: RowScope,
) -> LocalHashedRows | None:
    """Read and hash the rows of a scope, at this version of the table.

    ``columns``: those that are compared. ``marks``: the name of the column that marks deleted rows, which count as absent. Returns None if
    the rows are too many, or if this process cannot read, select or hash them as Spark would.
    """
    schema = arrow_schema(columns)
    try:
        delta = None if schema is None or not columns else readable_here(table, version)
        return None if delta is None or schema is None else _read(delta, schema, container, key, marks, scope)
    except (DeltaError, pa.ArrowException) as error:
        log.debug("%s: Spark hashes its rows: %s", table.url, error)
        return None


def _read(
    delta: DeltaTable, schema: pa.Schema, container: Container, key: Sequence[Column], marks: str | None, scope: RowScope
) -> LocalHashedRows | None:
    """As ``read_rows_here``, from the opened table. Raises DeltaError and pa.ArrowException."""
    identifier, partitioning = container.identifier, container.partitioning
    actual = {field.name.lower(): field.name for field in delta.schema().fields}
    axis = () if identifier is None or partitioning is None else tuple(identifier.columns)
    where = _condition(delta, container, scope)
    if where is None:
        return None
    unmarked = "" if marks is None else f" AND {double_quoted(marks)} IS NULL"
    shown = [f"{double_quoted(actual[name.lower()])} AS c{i}" for i, name in enumerate([*schema.names, *axis])]
    statement = f'SELECT {", ".join(shown)} FROM "rows" WHERE ({where}){unmarked} LIMIT {MOST_ROWS + 1}'
    found = query_within(delta, statement, MOST_BYTES)
    if found is None or found.num_rows > MOST_ROWS:
        return None
    values = [column.cast(field.type) for column, field in zip(found.columns, schema, strict=False)]
    places = [found.column(len(values) + i) for i in range(len(axis))]
    if any(not (pa.types.is_integer(p.type) or pa.types.is_date32(p.type) or pa.types.is_timestamp(p.type)) for p in places):
        return None
    start = pa.chunked_array([pa.nulls(found.num_rows, pa.int64())])
    if places and identifier is not None and partitioning is not None:
        value = reduce(pc.max_element_wise, map(integers, places))  # pyright: ignore[reportAttributeAccessIssue]
        step = step_of(identifier, partitioning)
        start = pa.chunked_array([_floored(value, step)])
    by_name = {name.lower(): column for name, column in zip(schema.names, values, strict=True)}
    keys = [by_name[column.name.lower()] for column in key]
    hashes = hashes_of(values)
    return LocalHashedRows(hashes, hashes_of(keys) if keys else hashes, keys, start)


def _condition(delta: DeltaTable, container: Container, scope: RowScope) -> str | None:
    """The condition for the rows of the scope; None if the engine cannot express it."""
    identifier = container.identifier
    if identifier is None or (EVERYTHING in scope.windows and scope.include_nulls):
        return "true"
    return window_condition(identifier, scope.windows, scope.include_nulls) if is_expressible(delta, identifier, scope.windows) else None


def _floored(values: pa.ChunkedArray, step: int) -> pa.Array:
    """The greatest multiple of ``step`` that is not above each value."""
    missing = pc.is_null(values).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    return pa.array(pc.fill_null(values, 0).to_numpy() // step * step, pa.int64(), mask=missing)  # pyright: ignore[reportAttributeAccessIssue]
