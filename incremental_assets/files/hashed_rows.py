"""The two sides of an audit of files: Spark hashes the rows that the readers find in files, and those that the lake has of them.

Both sides are queries of Spark, with the same text for each row. A rejected row is hashed by its line: the lake keeps it beside the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope
from incremental_assets.core.files import FILE, MODIFIED
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import type_text
from incremental_assets.delta.hashed_rows import canonical, checksums, hash_of, is_known
from incremental_assets.delta.sql import file_predicate

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.types import DataType

_FILE, _MODIFIED = quote(FILE.name), quote(MODIFIED.name)
_REJECTED = "'rejected'"
"""What the text of a rejected row begins with. No other row's text does: a time stands there."""


class FileHashedRows:
    """The ``HashedRows`` of files. ``rows``: a query whose columns are the key of the row's file, and ``hash``.

    Each scope that it is asked for names files. A row's key is that of its file and the hash, so that no row is stale.
    """

    def __init__(self, spark: "SparkSession", rows: str) -> None:
        self._spark, self._rows = spark, rows

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        return dict(checksums(self._spark, self._in(scope), _FILE))

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        return {int(bucket): found for bucket, found in checksums(self._spark, self._in(scope), f"hash % {int(buckets)}")}

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        chosen = ", ".join(str(int(bucket)) for bucket in buckets.chosen)
        bucket = f"hash % {int(buckets.number)}"
        query = f"SELECT {bucket} AS bucket, hash, {_FILE} FROM ({self._in(scope)}) WHERE {bucket} IN ({chosen}) ORDER BY 1"
        for number, hash_, file in self._spark.sql(query).toLocalIterator():
            yield HashedRow(number, (file, f"{hash_:015x}"), hash_)

    def _in(self, scope: RowScope) -> str:
        return f"SELECT {_FILE}, hash FROM ({self._rows}) WHERE {file_predicate(scope.files or ())}"


def hashed_rows(relation: str, columns: Sequence[Column], types: "Mapping[str, DataType]", rejected: str | None) -> str:
    """The query over the rows of a relation that has ``_file``, ``_file_modified`` and the columns, and over rejected ones.

    ``types``: of the columns, by name. ``rejected``: the relation of the rejected rows; None: there is none.
    """
    texts = [canonical(_MODIFIED, MODIFIED.type), *(text_of(quote(column.name), types[column.name]) for column in columns)]
    query = f"SELECT {_FILE}, {hash_of(texts)} AS hash FROM {relation}"
    if rejected is None:
        return query
    line = [_REJECTED, canonical(_MODIFIED, MODIFIED.type), canonical("line", "string")]
    return f"{query} UNION ALL SELECT {_FILE}, {hash_of(line)} AS hash FROM {rejected}"


def as_columns(relation: str, have: Sequence[Column], columns: Sequence[Column]) -> str:
    """The relation, whose columns are ``have``, with other columns: with their types, and NULL in those that it does not have."""
    names = {column.name.lower(): column.name for column in have}
    shown = [f"cast({quote(names[c.name.lower()]) if c.name.lower() in names else 'NULL'} AS {c.type}) AS {quote(c.name)}" for c in columns]
    return f"(SELECT {', '.join([_FILE, _MODIFIED, *shown])} FROM {relation})"


def text_of(value: str, type_: "DataType", depth: int = 0) -> str:
    """The canonical text of an expression of any type. It is empty for NULL, and for nothing else.

    ``depth``: how many arrays it lies within, as each needs a variable of its own.
    """
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

    match type_:
        case StructType():
            fields = [text_of(f"{value}.{quote(field.name)}", field.dataType, depth) for field in type_.fields]
            joined = ", ".join(["','", *fields])
            inner = f"concat('(', concat_ws({joined}), ')')"
        case ArrayType():
            element = f"e{depth}"
            texts = f"transform({value}, {element} -> {text_of(element, type_.elementType, depth + 1)})"
            inner = f"concat(size({value}), '[', concat_ws(',', {texts}), ']')"  # [NULL] and [] differ by their sizes
        case MapType():
            entry = StructType([StructField("key", type_.keyType), StructField("value", type_.valueType)])
            inner = text_of(f"map_entries({value})", ArrayType(entry), depth)
        case VariantType():
            return canonical(f"to_json({value})", "string")
        case _:
            name = type_text(type_.jsonValue())
            return canonical(value, name) if is_known(name) else canonical(f"cast({value} AS string)", "string")
    return f"CASE WHEN {value} IS NULL THEN '' ELSE {inner} END"
