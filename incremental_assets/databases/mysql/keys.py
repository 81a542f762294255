"""Looks up rows by their primary keys, which are given as texts (``delta.sql.key_text``).

By a collation, ``a`` and ``A`` may be the same key to MySQL; in the lake they are two. So texts are also compared by their bytes.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal

import numpy as np

from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.databases.mysql.queries import domain_predicate, literal, relation, text_literal
from incremental_assets.databases.mysql.reader import MySQLReader
from incremental_assets.databases.mysql.types import Carried, Wire

KEYS_A_QUERY = 1000
"""One query looks up so many keys; MySQL's optimizer still goes by the index for them."""
_AXES = {"date": CursorType.DATE, "timestamp_ntz": CursorType.TIMESTAMP_NTZ, "timestamp": CursorType.TIMESTAMP}

Key = tuple[object, ...]


def keys_predicates(container: Container, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> Iterator[str]:
    """Conditions that together hold for the rows with the given keys, and each for up to ``KEYS_A_QUERY`` of them."""
    columns = _key_columns(container, carried)
    listed = ", ".join(one.select if one.wire is Wire.FLOAT else one.name for one in columns)
    exact = ", ".join(f"cast(convert({one.name} using utf8mb4) as binary)" if one.wire is Wire.TEXT else one.name for one in columns)
    for at in range(0, len(keys), KEYS_A_QUERY):
        chunk = keys[at : at + KEYS_A_QUERY]
        values = ", ".join(f"({', '.join(_literal(one, text) for one, text in zip(columns, key, strict=True))})" for key in chunk)
        condition = f"({listed}) in ({values})"
        if any(one.wire is Wire.TEXT for one in columns):
            same = ", ".join(f"({', '.join(_exact_literal(one, text) for one, text in zip(columns, key, strict=True))})" for key in chunk)
            condition = f"{condition} and ({exact}) in ({same})"
        yield f"({condition})"


def positions_of(reader: MySQLReader, carried: Sequence[Carried], keys: Sequence[Sequence[str]]) -> list[int]:
    """The positions, in ``keys``, of those primary keys that the container has in the snapshot."""
    container = reader.container
    columns = _key_columns(container, carried)
    sent = ", ".join(f"hex({one.name})" if one.wire is Wire.BYTES else one.select for one in columns)
    there: set[Key] = set()
    for condition in keys_predicates(container, carried, keys):
        query = f"select {sent} from {relation(container)} where {condition} and {domain_predicate(container)}"
        for row in reader.rows(query):
            there.add(tuple(_of_source(one, text or "") for one, text in zip(columns, row, strict=True)))
    return [i for i, key in enumerate(keys) if tuple(_of_lake(one, text) for one, text in zip(columns, key, strict=True)) in there]


def _key_columns(container: Container, carried: Sequence[Carried]) -> list[Carried]:
    by_name = {one.column.name: one for one in carried}
    return [by_name[name] for name in container.primary_key]


def _literal(one: Carried, text: str) -> str:
    """The literal of a key's value."""
    if one.column.type in _AXES:
        return literal(_AXES[one.column.type], int(text)) or "null"
    if one.wire is Wire.NUMBER:
        return format(Decimal(text), "f") if "double" not in one.column.type else repr(float(text))
    if one.wire is Wire.FLOAT:
        return repr(float(np.float32(text)))
    if one.wire is Wire.BOOLEAN:
        return "1" if text == "true" else "0"
    return f"x'{bytes.fromhex(text).hex()}'" if one.wire is Wire.BYTES else text_literal(text)


def _exact_literal(one: Carried, text: str) -> str:
    return f"x'{text.encode().hex()}'" if one.wire is Wire.TEXT else _literal(one, text)


def _of_lake(one: Carried, text: str) -> object:
    """The value of a key's text, as it can be compared."""
    if one.column.type in _AXES:
        return int(text)
    if one.wire is Wire.FLOAT:
        return float(np.float32(text))
    if one.wire is Wire.NUMBER:
        return Decimal(text)
    return text


def _of_source(one: Carried, text: str) -> object:
    """The same of what the source has sent."""
    if one.column.type in _AXES:
        return parse_value(_AXES[one.column.type], text)
    if one.wire is Wire.BOOLEAN:
        return "true" if text == "1" else "false"
    return _of_lake(one, text)
