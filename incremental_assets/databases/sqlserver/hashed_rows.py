"""The source's side of a comparison with the lake: SQL Server hashes the rows of a snapshot itself.

The lake hashes the bytes of UTF-8. SQL Server has collations whose text is UTF-8 since 2019; older versions cannot make these bytes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from incremental_assets.core.comparison import Buckets, Checksum, HashedRow, PartitionValue, RowScope, key_of
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.schema import Column
from incremental_assets.databases.sqlserver.queries import as_datetime2, days_of, micros_of, partition_value, relation, scope_predicate
from incremental_assets.databases.sqlserver.reader import SQLServerReader
from incremental_assets.databases.sqlserver.statements import number_of_hash
from incremental_assets.databases.sqlserver.types import Carried, Wire

FIRST_WITH_UTF8 = 15
"""The version of SQL Server 2019. Azure's databases have a lower number, and UTF-8 all the same."""
UTF8_QUERY = "select count(*) from sys.fn_helpcollations() where name = 'Latin1_General_100_BIN2_UTF8'"
_UTF8 = "collate Latin1_General_100_BIN2_UTF8"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_BUCKETS_A_QUERY = 4000
"""One query has the rows of so many buckets, which this process holds at once. The snapshot's connection serves one query at a time."""


def as_text(sql: str) -> str:
    """A value as text in UTF-8, in one collation for all columns."""
    return f"cast(cast({sql} as nvarchar(max)) {_UTF8} as varchar(max))"


def double_text(sql: str) -> str:
    """The digits of a double as Java's ``%a`` prints them, from its bits."""
    bits = f"cast({sql} as binary(8))"
    exponent = f"((cast(substring({bits}, 1, 2) as int) & 32752) / 16)"
    digits = f"right(lower(convert(char(16), {bits}, 2)), 13)"
    plain = f"coalesce(nullif(replace(rtrim(replace({digits}, '0', ' ')), ' ', '0'), ''), '0')"
    sign = f"case when cast(substring({bits}, 1, 1) as int) >= 128 then '-' else '' end"
    lead = f"case when {exponent} = 0 then '0' else '1' end"
    power = f"cast(case when {exponent} = 0 then -1022 else {exponent} - 1023 end as varchar(5))"
    return f"case when {sql} = 0 then {sign} + '0x0.0p0' else {sign} + '0x' + {lead} + '.' + {plain} + 'p' + {power} end"


def plain_text(carried: Carried, type_: str) -> str:
    """The text of a column's value, which is NULL if the value is. Dates are days, and times microseconds, since 1970.

    ``type_``: the column's type in the lake, which may be wider than the type in which it is carried.
    """
    decimal = _DECIMAL.fullmatch(type_)
    if carried.wire is Wire.TIME:
        if carried.column.type == "date":
            return as_text(days_of(carried.name) if type_ == "date" else micros_of(f"cast({carried.name} as datetime2(7))"))
        return as_text(micros_of(as_datetime2(carried.base, carried.name)))
    if carried.wire is Wire.BYTES:
        return as_text(f"lower(convert(varchar(max), cast({carried.name} as varbinary(max)), 2))")
    if carried.wire is Wire.BOOLEAN:
        return as_text(f"case {carried.name} when 1 then 'true' when 0 then 'false' end")
    if type_ in ("float", "double"):
        return f"case when {carried.name} is not null then {as_text(double_text(f'cast({carried.name} as float)'))} end"
    if decimal and carried.wire in (Wire.NUMBER, Wire.INTEGER):
        return as_text(f"convert(varchar(41), cast({carried.name} as decimal({int(decimal[1])},{int(decimal[2])})))")
    return as_text(f"cast({carried.select} as varchar(20))" if carried.wire is Wire.INTEGER else carried.select)


def canonical_text(carried: Carried, type_: str) -> str:
    """The part of a row's text that one column has."""
    text = plain_text(carried, type_)
    if type_ == "string":
        text = f"{as_text(f'cast(datalength({text}) as varchar(20))')} + ':' + {text}"
    elif type_ == "binary":
        text = f"'x' + {text}"
    return f"coalesce({text}, '')"


def hash_of(texts: Sequence[str]) -> str:
    """The first 60 bits of the MD5 of the joined texts."""
    empty = f"cast('' {_UTF8} as varchar(max))"
    return number_of_hash(" + ',' + ".join([f"{empty} + {texts[0]}", *texts[1:]]) if texts else empty)


class SQLServerHashedRows:
    """The ``HashedRows`` of a snapshot that is held. ``columns``: those of the lake, as far as they are compared.

    Raises ConfigurationError if the server has no texts in UTF-8.
    """

    def __init__(self, reader: SQLServerReader, carried: Sequence[Carried], columns: Sequence[Column]) -> None:
        self._reader = reader
        if reader.server.version < FIRST_WITH_UTF8 and not reader.value(UTF8_QUERY):
            raise ConfigurationError(
                f"{reader.container.label}: audits need SQL Server 2019 or newer: older versions cannot make the UTF-8 of a text, whose "
                "hash is compared. Switch its audit off, or refresh its partitions instead."
            )
        self._statements = HashStatements(reader.container, carried, columns)

    def by_partition(self, scope: RowScope) -> Mapping[PartitionValue, Checksum]:
        rows = self._reader.rows(self._statements.by_partition(scope))
        return {None if part is None else int(part): Checksum(int(count), int(total or 0)) for part, count, total in rows}

    def by_bucket(self, scope: RowScope, buckets: int) -> Mapping[int, Checksum]:
        rows = self._reader.rows(self._statements.by_bucket(scope, buckets))
        return {int(bucket): Checksum(int(count), int(total or 0)) for bucket, count, total in rows}

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[HashedRow]:
        for statement in self._statements.of_buckets(scope, buckets):
            for place, hash_, *key in self._reader.rows(statement):
                yield HashedRow(int(place), tuple(key), int(hash_))


class HashStatements:
    """The statements of ``SQLServerHashedRows``."""

    def __init__(self, container: Container, carried: Sequence[Carried], columns: Sequence[Column]) -> None:
        self._container = container
        by_name = {one.column.name.lower(): one for one in carried}
        in_lake = {column.name.lower(): column.type for column in columns}
        texts = [canonical_text(by_name[column.name.lower()], column.type) for column in columns]
        key = [by_name[name.lower()] for name in key_of(container, columns)]
        self._hash = hash_of(texts)
        self._key_hash = hash_of([canonical_text(one, in_lake[one.column.name.lower()]) for one in key] or texts)
        self._key_values = [plain_text(one, in_lake[one.column.name.lower()]) for one in key]

    def by_partition(self, scope: RowScope) -> str:
        return self._grouped(partition_value(self._container), scope)

    def by_bucket(self, scope: RowScope, buckets: int) -> str:
        return self._grouped(f"({self._key_hash} % {int(buckets)})", scope)

    def of_buckets(self, scope: RowScope, buckets: Buckets) -> Iterator[str]:
        number, chosen = int(buckets.number), sorted(int(bucket) for bucket in buckets.chosen)
        values = "".join(f", {one} as k{i}" for i, one in enumerate(self._key_values))
        shown = "".join(f", found.k{i}" for i in range(len(self._key_values)))
        for at in range(0, len(chosen), _BUCKETS_A_QUERY):
            listed = ", ".join(map(str, chosen[at : at + _BUCKETS_A_QUERY]))
            yield (
                f"select found.bucket, found.digest{shown}"
                f" from (select ({self._key_hash} % {number}) as bucket, {self._hash} as digest{values}"
                f" from {relation(self._container)} where {self._where(scope)}) as found"
                f" where found.bucket in ({listed}) order by found.bucket"
            )

    # ------------------------------------------------------------------
    def _grouped(self, group: str, scope: RowScope) -> str:
        return (
            f"select found.part, count_big(*), sum(cast(found.digest as decimal(38,0)))"
            f" from (select {group} as part, {self._hash} as digest"
            f" from {relation(self._container)} where {self._where(scope)}) as found group by found.part"
        )

    def _where(self, scope: RowScope) -> str:
        container = self._container
        synced = scope.synced(container)
        return scope_predicate(container, synced.windows, synced.include_nulls)
