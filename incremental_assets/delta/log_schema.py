"""The columns of a table as Delta's log has them, for tables whose columns this process declares without Spark."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from incremental_assets.core.nested_types import element_of
from incremental_assets.core.schema import Column

NTZ = "timestamp_ntz"
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_TYPES = {
    "boolean": "boolean", "smallint": "short", "int": "integer", "bigint": "long", "float": "float", "double": "double", "binary": "binary",
    "string": "string", "date": "date", "timestamp": "timestamp", NTZ: NTZ,
}  # fmt: skip
"""The name that each type has in Delta's log, but for decimals, whose names are the same."""


def are_plain(columns: Sequence[Column]) -> bool:
    """Whether these columns ask nothing of a table but what ``schema_string`` says: they need no column mapping, and have no parts but the
    elements of arrays."""
    names = {column.name.lower() for column in columns}
    return (
        len(names) == len(columns) > 0
        and all(_PLAIN_NAME.fullmatch(name) for name in names)
        and all(_is_atomic(element_of(column.type) or column.type) for column in columns)
    )


def _is_atomic(type_: str) -> bool:
    return type_ in _TYPES or _DECIMAL.fullmatch(type_) is not None


def schema_string(columns: Sequence[Column]) -> str:
    """The columns as the text ``schemaString`` of the action ``metaData``."""
    # delta-rs misreads how JSON escapes characters from U+20000 on.
    return json.dumps({"type": "struct", "fields": [declared(column) for column in columns]}, ensure_ascii=False)


def declared(column: Column) -> dict[str, Any]:
    """One column in this text."""
    element = element_of(column.type)
    type_ = _TYPES.get(column.type, column.type)
    if element is not None:
        type_ = {"type": "array", "elementType": _TYPES.get(element, element), "containsNull": True}
    return {"name": column.name, "type": type_, "nullable": True, "metadata": _metadata(column)}


def _metadata(column: Column) -> dict[str, str]:
    return {"comment": column.comment} if column.comment else {}


def commented(schema: str, comments: Mapping[str, str]) -> str:
    """The same text with these comments (``Container.comments``). A column that is not named there keeps its own."""
    known = json.loads(schema)
    for one in known["fields"]:
        comment = comments.get(one["name"].lower())
        if comment:
            one["metadata"]["comment"] = comment
        elif comment is not None:
            one["metadata"].pop("comment", None)
    return json.dumps(known, ensure_ascii=False)
