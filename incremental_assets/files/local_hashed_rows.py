"""The two sides of an audit of few files, hashed in this process: the rows of the files, and those that the lake has of them."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope
from incremental_assets.core.files import FILE
from incremental_assets.delta.local_hashed_rows import MOST_BYTES, MOST_ROWS
from incremental_assets.delta.local_hashes import checksums_of, hashes_of, in_buckets
from incremental_assets.delta.local_query import readable_here
from incremental_assets.delta.table import LakeTable, among, double_quoted, query_within

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalFileHashedRows:
    """The ``HashedRows`` of files. ``files``: the key of each row's file. ``hashes``: of the rows, in the same order."""

    files: pa.ChunkedArray
    hashes: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table, rejected: pa.Table) -> "LocalFileHashedRows":
        """``rows``: their file, its time, and the columns. ``rejected``: rows as ``REJECTED_ROWS``, hashed by their line."""
        mark = pa.chunked_array([pa.array(["rejected"] * rejected.num_rows, pa.string())])
        hashes = np.concatenate([hashes_of(rows.columns[1:]), hashes_of([mark, *rejected.columns[1:]])])
        return cls(pa.chunked_array([*rows.column(0).chunks, *rejected.column(0).chunks], pa.string()), hashes)

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        """As ``HashedRows.by_partition``."""
        files, hashes = self._in(scope)
        encoded = files.combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return {names[number]: found for number, found in checksums_of(hashes, encoded.indices.to_numpy()).items()}

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        """As ``HashedRows.by_bucket``."""
        _, hashes = self._in(scope)
        return checksums_of(hashes, hashes % buckets)

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        """As ``HashedRows.of_buckets``."""
        files, hashes = self._in(scope)
        numbers = hashes % buckets.number
        positions = in_buckets(numbers, buckets.chosen)
        for position, file in zip(positions.tolist(), files.take(pa.array(positions, pa.int64())).to_pylist(), strict=True):
            yield HashedRow(int(numbers[position]), (file, f"{hashes[position]:015x}"), int(hashes[position]))

    def _in(self, scope: RowScope) -> tuple[pa.ChunkedArray, np.ndarray]:
        chosen = pc.is_in(self.files, pa.array(scope.files or (), pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
        return self.files.filter(chosen), self.hashes[chosen.to_numpy()]


def read_files_here(table: LakeTable, version: int, keys: Sequence[str], schema: pa.Schema) -> pa.Table | None:
    """The rows that a version of the table has of the files with these keys, as ``schema``, which begins with ``_file``.

    Columns that the table does not have are NULL. Returns None if the rows are too many, or if this process cannot read them as Spark
    would, or not in these types.
    """
    try:
        delta = readable_here(table, version)
        if delta is None:
            return None
        have = {field.name.lower(): field.name for field in delta.schema().fields}
        shown = [
            f"{double_quoted(have[name.lower()]) if name.lower() in have else 'NULL'} AS c{number}"
            for number, name in enumerate(schema.names)
        ]
        statement = f'SELECT {", ".join(shown)} FROM "rows" WHERE {among((have[FILE.name], keys))} LIMIT {MOST_ROWS + 1}'
        found = query_within(delta, statement, MOST_BYTES)
        if found is None or found.num_rows > MOST_ROWS:
            return None
        return pa.table([_as(column, field.type) for column, field in zip(found.columns, schema, strict=True)], schema=schema)
    except (DeltaError, pa.ArrowException) as error:
        log.debug("%s: Spark reads its rows: %s", table.url, error)
        return None


def _as(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """The values in the type that a file has brought. Raises ArrowInvalid for other kinds of types, whose values have other texts."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal, pa.types.is_boolean)
    if not pa.types.is_null(values.type) and any(kind(_element(values.type)) != kind(_element(type_)) for kind in kinds):
        raise pa.ArrowInvalid(f"{values.type} is not compared as {type_}")
    return values.cast(type_)


def _element(type_: pa.DataType) -> pa.DataType:
    """The type of the elements of a list, or the type itself."""
    return type_.value_type if pa.types.is_list(type_) else type_
