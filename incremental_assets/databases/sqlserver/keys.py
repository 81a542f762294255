"""Looks up rows by their primary keys, which are given as texts (``delta.sql.key_text``).

By a collation, ``a`` and ``A`` may be the same key to SQL Server, and so are ``a`` and ``a`` with a space behind it; in the lake they are
two. So texts are also compared by their bytes.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.databases.sqlserver.queries import bytes_literal, domain_predicate, literal, relation, text_literal
from incremental_assets.databases.sqlserver.reader import SQLServerReader
from incremental_assets.databases.sqlserver.types import Carried, Wire

KEYS_A_QUERY = 500
"""One query looks up so many keys."""
_AXES = {"date": CursorType.DATE, "timestamp_ntz": CursorType.TIMESTAMP_NTZ, "timestamp": CursorType.TIMESTAMP}
_OF_TEXT = {"uniqueidentifier": "uniqueidentifier", "time": "time(7)", "hierarchyid": "hierarchyid"}
"""Types that are carried as text, and that must be compared as what they are."""

Key = tuple[object, ...]


def keys_predicates(container: Container, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> Iterator[str]:
    """Conditions that together hold for the rows with the given keys, and each for up to ``KEYS_A_QUERY`` of them."""
    columns = _key_columns(container, carried)
    wanted = ", ".join(f"[__incremental_assets_k{i}]" for i in range(len(columns)))
    same: list[str] = []
    for i, one in enumerate(columns):
        value = f"[__incremental_assets_keys].[__incremental_assets_k{i}]"
        same.append(f"{one.name} = {value}")
        if is_compared_by_bytes(one):
            same.append(f"{_bytes_of(one.select)} = {_bytes_of(value)}")
    for at in range(0, len(keys), KEYS_A_QUERY):
        chunk = keys[at : at + KEYS_A_QUERY]
        values = ", ".join(f"({', '.join(key_literal(one, text) for one, text in zip(columns, key, strict=True))})" for key in chunk)
        yield f"exists (select 1 from (values {values}) as [__incremental_assets_keys] ({wanted}) where {' and '.join(same)})"


def existing_query(container: Container, carried: Sequence[Carried], condition: str) -> str:
    """The query for those keys of ``condition`` that the container has."""
    sent = ", ".join(one.select for one in _key_columns(container, carried))
    return f"select {sent} from {relation(container)} where {condition} and {domain_predicate(container)}"


def positions_of(reader: SQLServerReader, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> list[int]:
    """The positions, in ``keys``, of those primary keys that the container has in the snapshot."""
    container = reader.container
    columns = _key_columns(container, carried)
    there: set[Key] = set()
    for condition in keys_predicates(container, carried, keys):
        for row in reader.rows(existing_query(container, carried, condition)):
            there.add(tuple(of_source(one, value) for one, value in zip(columns, row, strict=True)))
    return [i for i, key in enumerate(keys) if tuple(of_lake(one, text) for one, text in zip(columns, key, strict=True)) in there]


def _key_columns(container: Container, carried: Sequence[Carried]) -> list[Carried]:
    by_name = {one.column.name: one for one in carried}
    return [by_name[name] for name in container.primary_key]


def _bytes_of(sql: str) -> str:
    return f"cast(cast({sql} as nvarchar(max)) as varbinary(max))"


def is_compared_by_bytes(one: Carried) -> bool:
    """Whether the column has a collation."""
    return one.wire is Wire.TEXT and one.base in ("char", "varchar", "nchar", "nvarchar")


def key_literal(one: Carried, text: str) -> str:
    """The literal of a key's value."""
    if one.column.type in _AXES:
        return literal(one.base, _AXES[one.column.type], int(text)) or "null"
    if one.wire is Wire.INTEGER:
        return str(int(text))
    if one.wire is Wire.NUMBER:
        return f"cast({format(Decimal(text), 'f')} as {one.column.type})"
    if one.wire is Wire.BOOLEAN:
        return f"cast({1 if text == 'true' else 0} as bit)"
    if one.wire is Wire.BYTES:
        return bytes_literal(bytes.fromhex(text))
    return f"cast({text_literal(text)} as {_OF_TEXT[one.base]})" if one.base in _OF_TEXT else text_literal(text)


def of_lake(one: Carried, text: str) -> object:
    """The value of a key's text, as it can be compared."""
    if one.column.type in _AXES or one.wire is Wire.INTEGER:
        return int(text)
    return Decimal(text) if one.wire is Wire.NUMBER else text


def of_source(one: Carried, value: object) -> object:
    """The same of what the source has sent."""
    if one.column.type in _AXES:
        return parse_value(_AXES[one.column.type], str(value)[:26])
    if one.wire is Wire.BOOLEAN:
        return "true" if value else "false"
    if one.wire is Wire.BYTES:
        return value.hex() if isinstance(value, bytes) else str(value)
    return of_lake(one, str(value))
