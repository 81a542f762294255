"""Rows of Arrow as the texts by which failed rows are kept: their keys, exactly as Spark writes them, and the rows as JSON objects."""

import base64
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from incremental_assets.core.schema import Column

_ESCAPED = {**{code: f"\\u{code:04X}" for code in range(32)}, 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
"""How characters are written in texts of JSON by Jackson, which Spark uses. All others are written as they are."""


def _text(value: str) -> str:
    return f'"{value.translate(_ESCAPED)}"'


def _double(value: float) -> str:
    found = json.dumps(value)
    return found if found[-1].isdigit() else _text(found)  # NaN and Infinity are no numbers of JSON


def _time(value: datetime.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(timespec="microseconds")


_VALUES: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "decimal"), str),
    "boolean": lambda value: str(value).lower(),
    "double": _double,
    "string": _text,
    "binary": lambda value: _text(base64.b64encode(value).decode()),
    "date": lambda value: _text(value.isoformat()),
    "timestamp": lambda value: _text(f"{_time(value)}Z"),  # Spark's sessions and Arrow's values are in UTC
    "timestamp_ntz": lambda value: _text(_time(value)),
}
"""How a value of each type is written in a row."""
_KEYS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "string"), lambda value: _text(str(value))),
    "boolean": lambda value: _text(str(value).lower()),
    "binary": lambda value: _text(value.hex().upper()),
    "date": lambda value: _text(value.isoformat()),
}
"""How a value of each type is written in a key, always as a text."""


def row_texts(rows: pa.Table, columns: Sequence[Column]) -> list[str] | None:
    """Each row as a JSON object of the columns; None if Spark has to write one of the types, or one of the values.

    The columns of ``rows`` have their names in lower case.
    """
    return _objects(rows, columns, _VALUES)


def key_texts(rows: pa.Table, columns: Sequence[Column]) -> list[str] | None:
    """The key of each row as a JSON object, as for ``row_texts``."""
    return _objects(rows, columns, _KEYS)


def _objects(rows: pa.Table, columns: Sequence[Column], values: Mapping[str, Callable[[Any], str]]) -> list[str] | None:
    parts: list[list[str]] = []
    for column in columns:
        written = values.get(column.type.partition("(")[0])
        if written is None:
            return None
        try:
            found = rows.column(column.name.lower()).to_pylist()
        except (ValueError, OverflowError):
            return None  # Python has no dates before the year 1 and after 9999
        name = _text(column.name)
        parts.append([f"{name}:{'null' if value is None else written(value)}" for value in found])
    return [f"{{{','.join(fields)}}}" for fields in zip(*parts, strict=True)]
