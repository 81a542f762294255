"""The source's side of a comparison with the lake: MySQL hashes the rows of a snapshot itself."""

import re
from collections.abc import Iterator, Mapping, Sequence

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope, key_of
from incremental_assets.core.schema import Column
from incremental_assets.databases.mysql.queries import days_of, micros_of, partition_value, relation, scope_predicate
from incremental_assets.databases.mysql.reader import MySQLReader
from incremental_assets.databases.mysql.types import Carried, Wire

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_BUCKETS_A_QUERY = 4000
"""One query has the rows of so many buckets, which this process holds at once. The snapshot's connection serves one query at a time."""
_UNKNOWN = -1
"""The hash of a row whose text MySQL cannot make, as it is longer than max_allowed_packet. It equals no other one."""


def as_text(sql: str) -> str:
    """A value as text in UTF-8, in one collation for all columns."""
    return f"convert({sql} using utf8mb4) collate utf8mb4_bin"


def double_text(sql: str) -> str:
    """The digits of a double as Java's ``%a`` prints them, from arithmetic that is exact: MySQL does not show the bits of a number.

    The exponent is that of the logarithm, which may be one off next to a power of two. The numbers nearest to 0 have none of their own.
    """
    size = f"abs({sql})"
    near = f"greatest(-1022, least(1023, cast(floor(log2({size})) as signed)))"
    # Divided in two steps, as 2 to the power of 1023 times 2 would be no number.
    part = f"({size} / pow(2, {near}))"
    exponent = f"({near} + if({part} >= 2, 1, if({part} < 1 and {near} > -1022, -1, 0)))"
    mantissa = f"({size} / pow(2, {exponent}))"
    lead = f"if({mantissa} >= 1, 1, 0)"
    digits = f"lpad(lower(hex(cast(({mantissa} - {lead}) * pow(2, 52) as unsigned))), 13, '0')"
    plain = f"coalesce(nullif(trim(trailing '0' from {digits}), ''), '0')"
    sign = f"if(left({as_text(sql)}, 1) = '-', '-', '')"
    return f"if({sql} = 0, concat({sign}, '0x0.0p0'), concat({sign}, '0x', {lead}, '.', {plain}, 'p', {exponent}))"


def plain_text(carried: Carried, type_: str) -> str:
    """The text of a column's value, which is NULL if the value is. Dates are days, and times microseconds, since 1970.

    ``type_``: the column's type in the lake, which may be wider than the type in which it is carried.
    """
    sql, decimal = carried.select, _DECIMAL.fullmatch(type_)
    if carried.wire is Wire.TIME:
        known = f"if(month({sql}) = 0 or day({sql}) = 0, null, {sql})"  # where zero dates are carried, they are NULL
        in_days = carried.column.type == "date" and type_ == "date"
        return as_text(days_of(known) if in_days else micros_of(known))
    if carried.wire is Wire.BYTES:
        return as_text(f"lower(hex({sql}))")
    if carried.wire is Wire.BOOLEAN:
        return f"if({sql} is null, null, if({sql} = 1, 'true', 'false'))"
    if type_ in ("float", "double"):
        return f"if({sql} is null, null, {double_text(f'({sql} * 1E0)')})"
    if decimal and carried.wire is Wire.NUMBER:
        return as_text(f"cast({sql} as decimal({int(decimal[1])},{int(decimal[2])}))")
    return as_text(f"({sql} + 0)" if carried.wire is Wire.NUMBER else sql)  # ZEROFILL would show zeros


def canonical_text(carried: Carried, type_: str) -> str:
    """The part of a row's text that one column has."""
    text = plain_text(carried, type_)
    if type_ == "string":
        text = f"concat(length({text}), ':', {text})"
    elif type_ == "binary":
        text = f"concat('x', {text})"
    return f"coalesce({text}, '')"


def hash_of(texts: Sequence[str]) -> str:
    """The first 60 bits of the MD5 of the joined texts."""
    joined = f"concat_ws(',', {', '.join(texts)})" if texts else "''"
    return f"coalesce(cast(conv(substr(md5({joined}), 1, 15), 16, 10) as signed), {_UNKNOWN})"


class MySQLHashedRows:
    """The ``HashedRows`` of a snapshot that is held. ``columns``: those of the lake, as far as they are compared."""

    def __init__(self, reader: MySQLReader, carried: Sequence[Carried], columns: Sequence[Column]) -> None:
        self._reader = reader
        by_name = {one.column.name.lower(): one for one in carried}
        in_lake = {column.name.lower(): column.type for column in columns}
        texts = [canonical_text(by_name[column.name.lower()], column.type) for column in columns]
        key = [by_name[name.lower()] for name in key_of(reader.container, columns)]
        self._hash = hash_of(texts)
        self._key_hash = hash_of([canonical_text(one, in_lake[one.column.name.lower()]) for one in key] or texts)
        self._key_values = [plain_text(one, in_lake[one.column.name.lower()]) for one in key]

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        return {
            None if part is None else int(part): checksum
            for part, checksum in self._grouped(partition_value(self._reader.container), scope)
        }

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        return {int(bucket or 0): checksum for bucket, checksum in self._grouped(f"mod({self._key_hash}, {int(buckets)})", scope)}

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        number, chosen = int(buckets.number), sorted(int(bucket) for bucket in buckets.chosen)
        for at in range(0, len(chosen), _BUCKETS_A_QUERY):
            listed = ", ".join(map(str, chosen[at : at + _BUCKETS_A_QUERY]))
            values = "".join(f", {one}" for one in self._key_values)
            bucket = f"mod({self._key_hash}, {number})"
            rows = self._reader.rows(
                f"select {bucket} as bucket, {self._hash}{values} from {relation(self._reader.container)}"
                f" where {self._where(scope)} having bucket in ({listed}) order by bucket"
            )
            for place, hash_, *key in rows:
                yield HashedRow(int(place or 0), tuple(key), int(hash_ or 0))

    # ------------------------------------------------------------------
    def _grouped(self, group: str, scope: RowScope) -> list[tuple[str | None, Checksum]]:
        rows = self._reader.rows(
            f"select {group} as part, count(*), sum(cast({self._hash} as decimal(38,0)))"
            f" from {relation(self._reader.container)} where {self._where(scope)} group by part"
        )
        return [(part, Checksum(int(count or 0), int(total or 0))) for part, count, total in rows]

    def _where(self, scope: RowScope) -> str:
        container = self._reader.container
        synced = scope.synced(container)
        return scope_predicate(container, synced.windows, synced.include_nulls)
