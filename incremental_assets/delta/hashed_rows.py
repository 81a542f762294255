"""The lake's side of a comparison with the source: Spark hashes the rows of one version of a table, unless they are few."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope, key_of
from incremental_assets.core.container import Container
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.nested_types import element_of
from incremental_assets.core.schema import Column
from incremental_assets.core.window import EVERYTHING
from incremental_assets.delta.local_hashed_rows import read_rows_here
from incremental_assets.delta.sql import partition_start, scope_predicate
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_HALF = 30
"""A sum of hashes is computed in two halves of so many bits, each of which fits into a bigint for eight billion rows."""
_KNOWN = re.compile(r"boolean|tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|float|double|string|binary|date|timestamp|timestamp_ntz")


def is_known(type_: str) -> bool:
    """Whether a type is atomic and has a canonical text."""
    return _KNOWN.fullmatch(type_) is not None


def plain_text(column: Column) -> str:
    """The text of a column's value, which is NULL if the value is. Dates are days, and times microseconds, since 1970."""
    return _plain(quote(column.name), column.type)


def canonical_text(column: Column) -> str:
    """The part of a row's text that one column has."""
    return canonical(quote(column.name), column.type)


def canonical(value: str, type_: str) -> str:
    """The canonical text of an expression of an atomic type, or of an array of one. It is empty for NULL, and for nothing else."""
    element = element_of(type_)
    if element is not None:
        text = f"concat_ws(',', transform({value}, e -> {canonical('e', element)}))"
        return f"CASE WHEN {value} IS NULL THEN '' ELSE concat(size({value}), '[', {text}, ']') END"
    text = _plain(value, type_)
    if type_ == "string":
        text = f"concat(octet_length({text}), ':', {text})"
    elif type_ == "binary":
        text = f"concat('x', {text})"
    return f"coalesce({text}, '')"


def _plain(value: str, type_: str) -> str:
    if not is_known(type_):
        raise ValueError(f"columns of type {type_} are not compared")
    if type_ == "date":
        return f"cast(unix_date({value}) AS string)"
    if type_ in ("timestamp", "timestamp_ntz"):  # the session's time zone is UTC, so the cast changes no digit
        return f"cast(unix_micros(cast({value} AS timestamp)) AS string)"
    if type_ == "binary":
        return f"lower(hex({value}))"
    # A double's exact digits: its shortest text depends on the version of Java.
    return (
        f"CASE WHEN {value} IS NOT NULL THEN format_string('%a', cast({value} AS double)) END"
        if type_ in ("float", "double")
        else (f"cast({value} AS string)")
    )


def hash_of(texts: Sequence[str]) -> str:
    """The first 60 bits of the MD5 of the joined texts."""
    joined = f"concat_ws(',', {', '.join(texts)})" if texts else "''"
    return f"cast(conv(substr(md5({joined}), 1, 15), 16, 10) AS bigint)"


def checksums(spark: "SparkSession", rows: str, group: str) -> list[tuple[Any, Checksum]]:
    """The checksums of the groups of a query that has a column ``hash``. ``group``: an expression over its columns."""
    mask = (1 << _HALF) - 1
    statement = (
        f"SELECT {group} AS g, count(*) AS n, sum(shiftright(hash, {_HALF})) AS high, sum(hash & {mask}L) AS low FROM ({rows}) GROUP BY 1"
    )
    found = spark.sql(statement).collect()
    return [(row["g"], Checksum(int(row["n"]), (int(row["high"]) << _HALF) + int(row["low"]))) for row in found]


class SparkHashedRows:
    """The ``HashedRows`` of rows that Spark can select: of a table, or of a view. ``columns``: those that are compared.

    ``spark`` returns the session, and is called at the first question. ``relation``: the rows in Spark's SQL. ``marks``: the name of the
    column that marks deleted rows, which count as absent; None if there is none.
    """

    def __init__(
        self, spark: Callable[[], "SparkSession"], relation: str, container: Container, columns: Sequence[Column], marks: str | None = None
    ) -> None:
        self._unmarked = "true" if marks is None else f"{quote(marks)} IS NULL"
        self._spark, self._container = spark, container
        self._table = relation
        self._texts = [canonical_text(column) for column in columns]
        by_name = {column.name.lower(): column for column in columns}
        self._key_columns = [by_name[name.lower()] for name in key_of(container, columns)]
        self._key = [canonical_text(column) for column in self._key_columns]
        self._key_values = [plain_text(column) for column in self._key_columns]

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        identifier, partitioning = self._container.identifier, self._container.partitioning
        part = "NULL" if identifier is None or partitioning is None else partition_start(identifier, partitioning)
        rows = checksums(self._spark(), self._rows(f"{part} AS part", scope), "part")
        return {None if value is None else int(value): checksum for value, checksum in rows}

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        rows = checksums(self._spark(), self._rows(f"{hash_of(self._key or self._texts)} AS key", scope), f"key % {int(buckets)}")
        return {int(bucket): checksum for bucket, checksum in rows}

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        values = [f"{value} AS k{i}" for i, value in enumerate(self._key_values)]
        rows = self._rows(", ".join([f"{hash_of(self._key or self._texts)} AS key", *values]), scope)
        shown = ", ".join([f"key % {int(buckets.number)} AS bucket", "hash", *(f"k{i}" for i in range(len(values)))])
        chosen = ", ".join(str(int(bucket)) for bucket in buckets.chosen)
        frame = self._spark().sql(f"SELECT {shown} FROM ({rows}) WHERE key % {int(buckets.number)} IN ({chosen}) ORDER BY bucket")
        for bucket, hash_, *key in frame.toLocalIterator():
            yield HashedRow(bucket, tuple(key), hash_)

    # ------------------------------------------------------------------
    def _rows(self, more: str, scope: RowScope) -> str:
        identifier = self._container.identifier
        everything = identifier is None or (EVERYTHING in scope.windows and scope.include_nulls)
        where = "true" if everything or identifier is None else scope_predicate(identifier, scope.windows, scope.include_nulls)
        return f"SELECT {more}, {hash_of(self._texts)} AS hash FROM {self._table} WHERE ({where}) AND {self._unmarked}"


class LakeHashedRows(SparkHashedRows):
    """The ``HashedRows`` of one version of a container's table. Where the rows of a scope are few, this process hashes them."""

    def __init__(
        self,
        spark: Callable[[], "SparkSession"],
        table: LakeTable,
        version: int,
        container: Container,
        columns: Sequence[Column],
        marks: str | None = None,
    ) -> None:
        super().__init__(spark, f"{table.sql_name} VERSION AS OF {int(version)}", container, columns, marks)
        self._here = lru_cache(maxsize=1)(partial(read_rows_here, table, version, container, columns, self._key_columns, marks))

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        here = self._here(scope)
        return super().by_partition(scope) if here is None else here.by_partition()

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        here = self._here(scope)
        return super().by_bucket(scope, buckets) if here is None else here.by_bucket(buckets)

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        here = self._here(scope)
        return super().of_buckets(scope, buckets) if here is None else here.of_buckets(buckets)
