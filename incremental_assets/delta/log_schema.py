"""The columns of a table as Delta's log has them, for tables whose columns this process declares without Spark.

Belongs here: which columns these may be, and their text. Does not belong: the commits (``create``, ``commit_files``, ``evolve``).
"""

import json
import re
from collections.abc import Sequence
from typing import Any

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
    """Whether these columns ask nothing of a table but what ``schema_string`` says: they need no column mapping, and have no parts."""
    names = {column.name.lower() for column in columns}
    return (
        len(names) == len(columns) > 0
        and all(_PLAIN_NAME.fullmatch(name) for name in names)
        and all(column.type in _TYPES or _DECIMAL.fullmatch(column.type) for column in columns)
    )


def schema_string(columns: Sequence[Column]) -> str:
    """The columns as the text ``schemaString`` of the action ``metaData``."""
    return json.dumps({"type": "struct", "fields": [declared(column) for column in columns]})


def declared(column: Column) -> dict[str, Any]:
    """One column in this text."""
    return {"name": column.name, "type": _TYPES.get(column.type, column.type), "nullable": True, "metadata": {}}
