"""The source's side of a comparison with the lake: PostgreSQL hashes the rows of a snapshot itself.

The canonical text of a row joins those of its columns by commas. NULL is empty; strings begin with their length in bytes and a colon, and
bytes with an x, and arrays are the number of their elements and these in brackets, so that no two rows have the same text. A hash is the
first 60 bits of the text's MD5.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope, key_of
from incremental_assets.core.nested_types import element_of
from incremental_assets.core.schema import Column
from incremental_assets.databases.postgres.queries import partition_value, relation, scope_predicate
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# As Java's %a prints it. The bits of a double are a sign, 11 bits of exponent and 52 of fraction.
_FLOAT = """(select case
  when e = 2047 then case when f <> 0 then 'NaN' when b < 0 then '-Infinity' else 'Infinity' end
  else case when b < 0 then '-' else '' end || case when e = 0 then '0x0.' else '0x1.' end
    || coalesce(nullif(rtrim(lpad(to_hex(f), 13, '0'), '0'), ''), '0')
    || 'p' || case when e = 0 and f = 0 then 0 when e = 0 then -1022 else e - 1023 end end
  from (select b, (b >> 52) & 2047 as e, b & 4503599627370495 as f
    from (select ('x' || encode(float8send({}::float8), 'hex'))::bit(64)::bigint as b) bits) parts)"""
_MOST_ARGUMENTS = 90
"""How many texts one call joins; PostgreSQL's functions have 100 arguments at most."""
_GROUPED = "select {group}, count(*), coalesce(sum(hash), 0)::text from ({rows}) rows group by 1"


def plain_text(carried: Carried, type_: str) -> sql.Composable:
    """The text of a column's value, which is NULL if the value is. Dates are days, and times microseconds, since 1970.

    ``type_``: the column's type in the lake, which may be wider than the type in which it is carried.
    """
    value = sql.SQL("({})").format(carried.select)
    decimal = _DECIMAL.fullmatch(type_)
    if type_ == "binary":
        return sql.SQL("encode({}, 'hex')").format(value)
    if type_ in ("float", "double"):
        return sql.SQL("case when {} is not null then {} end").format(value, sql.SQL(_FLOAT).format(value))
    if decimal and carried.column.type != type_:
        return sql.SQL("{}::numeric({}, {})::text").format(value, sql.Literal(int(decimal[1])), sql.Literal(int(decimal[2])))
    if type_ == "timestamp_ntz" and carried.column.type == "date":
        value = sql.SQL("({}::bigint * 86400000000)").format(value)
    return sql.SQL("{}::text").format(value)


def canonical_text(carried: Carried, type_: str, *, is_utf8: bool) -> sql.Composable:
    """The part of a row's text that one column has. ``is_utf8``: whether that is the server's encoding, so that nothing is converted."""
    element = element_of(type_)
    if element is not None:
        return _list_text(carried.select, element, is_utf8=is_utf8)
    text = plain_text(carried, type_)
    if type_ == "string":
        bytes_ = text if is_utf8 else sql.SQL("convert_to({}, 'UTF8')").format(text)
        text = sql.SQL("octet_length({}) || ':' || {}").format(bytes_, text)
    elif type_ == "binary":
        text = sql.SQL("'x' || {}").format(text)
    return sql.SQL("coalesce({}, '')").format(text)


def _list_text(array: sql.Composable, element: str, *, is_utf8: bool) -> sql.Composable:
    """The same of an array: the number of its elements, and their texts in brackets."""
    each = Carried(Column("value", element), sql.SQL("elements.value"), element, "{}")
    return sql.SQL(
        "coalesce((select cardinality(list) || '[' || coalesce((select string_agg({each}, ',' order by n)"
        " from unnest(list) with ordinality as elements(value, n)), '') || ']' from (select {array} as list) lists), '')"
    ).format(each=canonical_text(each, element, is_utf8=is_utf8), array=array)


class PostgresHashedRows:
    """The ``HashedRows`` of a snapshot that is held. ``columns``: those of the lake, as far as they are compared."""

    def __init__(self, reader: PostgresReader, carried: Sequence[Carried], columns: Sequence[Column]) -> None:
        self._reader = reader
        self._is_utf8 = self._reader.rows(sql.SQL("select getdatabaseencoding()"))[0][0] == "UTF8"
        by_name = {one.column.name.lower(): one for one in carried}
        self._texts = [canonical_text(by_name[column.name.lower()], column.type, is_utf8=self._is_utf8) for column in columns]
        in_lake = {column.name.lower(): column.type for column in columns}
        key = [by_name[name.lower()] for name in key_of(reader.container, columns)]
        self._key = [canonical_text(one, in_lake[one.column.name.lower()], is_utf8=self._is_utf8) for one in key]
        self._key_values = [plain_text(one, in_lake[one.column.name.lower()]) for one in key]

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        rows = self._rows(scope, sql.SQL("{} as part").format(partition_value(self._reader.container)))
        return {None if part is None else int(part): Checksum(n, int(total)) for part, n, total in self._grouped("part", rows)}

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        rows = self._rows(scope, sql.SQL("{} as key").format(self._key_hash()))
        return {int(bucket): Checksum(n, int(total)) for bucket, n, total in self._grouped(f"key % {int(buckets)}", rows)}

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        values = [sql.SQL("{} as {}").format(value, sql.Identifier(f"k{i}")) for i, value in enumerate(self._key_values)]
        rows = self._rows(scope, sql.SQL(", ").join([sql.SQL("{} as key").format(self._key_hash()), *values]))
        shown = [sql.Identifier(f"k{i}") for i in range(len(values))]
        query = sql.SQL("select {} from ({}) rows where key % {} = any({}) order by 1").format(
            sql.SQL(", ").join([sql.SQL("key % {}").format(sql.Literal(buckets.number)), sql.SQL("hash"), *shown]),
            rows, sql.Literal(buckets.number), sql.Literal(list(buckets.chosen)),
        )  # fmt: skip
        for bucket, hash_, *key in self._reader.stream(query):
            yield HashedRow(int(bucket), tuple(key), int(hash_))

    # ------------------------------------------------------------------
    def _rows(self, scope: RowScope, more: sql.Composable) -> sql.Composable:
        container = self._reader.container
        synced = scope.synced(container)
        predicate = scope_predicate(container, synced.windows, synced.include_nulls)
        return sql.SQL("select {}, {} as hash from {} where {}").format(more, self._hash(self._texts), relation(container), predicate)

    def _grouped(self, group: str, rows: sql.Composable) -> Sequence[tuple[Any, int, str]]:
        query = sql.SQL(_GROUPED).format(group=sql.SQL(group), rows=rows)  # pyright: ignore[reportArgumentType]
        return self._reader.rows(query)

    def _key_hash(self) -> sql.Composable:
        return self._hash(self._key or self._texts)

    def _hash(self, texts: Sequence[sql.Composable]) -> sql.Composable:
        """The first 60 bits of the MD5 of the joined texts."""
        parts = [texts[at : at + _MOST_ARGUMENTS] for at in range(0, len(texts), _MOST_ARGUMENTS)]
        joined = sql.SQL(" || ',' || ").join(sql.SQL("concat_ws(',', {})").format(sql.SQL(", ").join(part)) for part in parts)
        text = joined if texts else sql.SQL("''")
        # PostgreSQL hashes the bytes of a text as they are stored.
        bytes_ = text if self._is_utf8 else sql.SQL("convert_to({}, 'UTF8')").format(text)
        return sql.SQL("('x' || substr(md5({}), 1, 15))::bit(60)::bigint").format(bytes_)
