"""The statements about one container's rows, as text: each is one short query of a plan or a sync."""

from collections.abc import Sequence

from incremental_assets.core.container import Container, Kind, SourceColumn
from incremental_assets.core.window import Window
from incremental_assets.databases.sqlserver.queries import (
    ROWVERSION,
    floored,
    identifier_base,
    identifier_expression,
    null_predicate,
    number_of_identifier,
    partition_value,
    quoted,
    relation,
    scope_predicate,
    text_literal,
    where_clause,
)
from incremental_assets.databases.sqlserver.types import Carried, Wire, identifier_text

LIMIT = "select cast(min_active_rowversion() as bigint) - 1, cast(@@dbts as bigint)"
"""The highest rowversion below which no transaction is open, and the last one that was given out."""
CLOCK = "select convert(varchar(26), cast(sysutcdatetime() as datetime2(6)), 121)"


def select_of(container: Container, carried: Sequence[Carried], scope: str) -> str:
    """The query for the rows in ``scope``."""
    return f"select {', '.join(one.select for one in carried)} from {relation(container)} where {scope}"


def highest_query(container: Container, column: SourceColumn) -> str:
    """The highest value of one column of the identifier."""
    text = identifier_text(column.base, column.type, f"max({quoted(column.name)})")
    return f"select {text} from {relation(container)} where {where_clause(container)}"


def lowest_query(container: Container) -> str:
    """The lowest identifier in the container's domain."""
    identifier = container.identifier
    assert identifier is not None
    column = next(one for one in container.columns if one.name in identifier.columns)
    text = identifier_text(column.base, column.type, f"min({identifier_expression(container, identifier)})")
    return f"select {text} from {relation(container)} where {scope_predicate(container, [identifier.domain], False)}"


def last_drawn_query(container: Container) -> str:
    """The last value of IDENTITY that was given out."""
    return f"select cast(ident_current({text_literal(relation(container))}) as bigint)"


def object_query(container: Container) -> str:
    """The id of the table, which another table of the same name does not have, with the names and the numbers of its columns."""
    return f"select object_id, name, column_id from sys.columns where object_id = object_id({text_literal(relation(container))}, N'U')"


def starts_query(container: Container, windows: Sequence[Window], width: int) -> str:
    """The lower bounds of the integer partitions that have rows in the windows."""
    identifier = container.identifier
    assert identifier is not None
    number = number_of_identifier(identifier_base(container), quoted(identifier.columns[0]))
    return f"select distinct {floored(number, width)} from {relation(container)} where {scope_predicate(container, windows, False)}"


def fingerprint_query(container: Container, carried: Sequence[Carried], windows: Sequence[Window], include_nulls: bool) -> str:
    """The number of rows, and a sum that changes with each of them.

    A table's rowversion is higher than all before it at each change, so that the sum of the rowversions of equally many rows only stays
    the same if no row has changed. Other rows are hashed, all their values.
    """
    marks = [one for one in carried if one.base == ROWVERSION]
    scope = scope_predicate(container, windows, include_nulls)
    if marks and container.kind is Kind.TABLE and not container.options.where:
        mark = f"cast(cast({marks[0].name} as bigint) as decimal(38,0))"
    else:
        texts = " + ".join(["N''", *map(_hashed, carried)])
        mark = f"cast({number_of_hash(texts)} as decimal(38,0))"
    return f"select count_big(*), coalesce(sum({mark}), 0) from {relation(container)} where {scope}"


def number_of_hash(sql: str) -> str:
    """The first 60 bits of the MD5 of a text as a number."""
    return f"cast(convert(binary(8), '0' + left(convert(varchar(32), hashbytes('MD5', {sql}), 2), 15), 2) as bigint)"


def _hashed(carried: Carried) -> str:
    """The part of a row's text that one column has, for a hash. No two rows have the same text."""
    sql = carried.select
    if carried.wire is Wire.TEXT:
        sql = f"convert(nvarchar(32), hashbytes('MD5', cast({sql} as nvarchar(max))), 2)"
    elif carried.wire is Wire.BYTES:
        sql = f"convert(nvarchar(32), hashbytes('MD5', cast({sql} as varbinary(max))), 2)"
    elif carried.wire is Wire.FLOAT:
        sql = f"convert(nvarchar(16), cast(cast({sql} as float) as binary(8)), 2)"
    return f"coalesce(cast({sql} as nvarchar(max)) + N',', N'-')"


def count_query(container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
    return f"select count_big(*) from {relation(container)} where {scope_predicate(container, windows, include_nulls)}"


def any_query(container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
    return f"select top (1) 1 from {relation(container)} where {scope_predicate(container, windows, include_nulls)}"


def estimated_query(container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
    """The query whose plan has the estimate."""
    return f"select 1 from {relation(container)} where {scope_predicate(container, windows, include_nulls)}"


def nulls_query(container: Container) -> str:
    """The number of rows without identifier."""
    identifier = container.identifier
    assert identifier is not None
    return f"select count_big(*) from {relation(container)} where {null_predicate(container, identifier)} and {where_clause(container)}"


def filled_query(container: Container, names: Sequence[str], windows: Sequence[Window]) -> str:
    """By partition, whether a row of it in the windows has a value in each of the columns."""
    flags = ", ".join(f"case when {quoted(name)} is null then 0 else 1 end as f{i}" for i, name in enumerate(names))
    most = ", ".join(f"max(found.f{i})" for i in range(len(names)))
    return (
        f"select found.part, {most} from (select {partition_value(container)} as part, {flags} from {relation(container)}"
        f" where {scope_predicate(container, windows, False)}) as found group by found.part"
    )


def duplicate_query(container: Container, carried: Sequence[Carried], windows: Sequence[Window], include_nulls: bool) -> str:
    """A primary key that is NULL or occurs more than once in the windows. Texts are compared by their bytes, as in the lake."""
    by_name = {one.column.name: one for one in carried}
    keys = [by_name[name] for name in container.primary_key]
    values = [f"cast(cast({one.select} as nvarchar(4000)) as varbinary(8000))" if one.wire is Wire.TEXT else one.name for one in keys]
    parts = ", ".join(f"{value} as k{i}" for i, value in enumerate(values))
    names = ", ".join(f"found.k{i}" for i in range(len(values)))
    shown = ", ".join(
        f"cast(found.k{i} as nvarchar(4000))" if one.wire is Wire.TEXT else f"convert(nvarchar(4000), found.k{i}, {_style(one)})"
        for i, one in enumerate(keys)
    )
    null = " or ".join(f"found.k{i} is null" for i in range(len(values)))
    return (
        f"select top (1) {shown} from (select {parts} from {relation(container)}"
        f" where {scope_predicate(container, windows, include_nulls)}) as found"
        f" group by {names} having count_big(*) > 1 or max(case when {null} then 1 else 0 end) = 1"
    )


def _style(one: Carried) -> int:
    """The style by which CONVERT shows a key: bytes as digits, money and floats with all of theirs, times as ISO 8601."""
    if one.wire is Wire.TIME:
        return 121
    return 3 if one.wire is Wire.FLOAT else 2 if one.wire is Wire.BYTES or one.base in ("money", "smallmoney") else 0
