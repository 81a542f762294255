"""Spark types as text for Spark SQL, in one spelling.

The names of nested fields are quoted: otherwise a field of a file or table could have a name that ends a CAST and injects SQL.

Belongs here: the conversion of the JSON by which Spark and Delta's log describe a type to the text of ``Column.type``. This is the only
place that writes such texts. Does not belong: the choice of a column's type (``databases``, ``files``), or which type can be widened into
which (``core.schema``).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from incremental_assets.core.names import backticked

_SIMPLE_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_ATOMIC = re.compile(r"[a-z][a-z_]*( [a-z]+)*(\(\d+(, ?-?\d+)?\))?")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class UnknownType(Exception):
    """The type has no text in Spark SQL that is known here. The message is its name."""


def type_text(kind: Any) -> str:
    """The SQL text of a type in Spark's JSON, such as ``{"type": "struct", "fields": [{"name": "a b", "type": "long", …}]}``.

    The result is then ``struct<`a b`:bigint>``. Raises UnknownType.
    """
    if isinstance(kind, str):
        name = _SIMPLE_NAMES.get(kind, kind)
        if _ATOMIC.fullmatch(name) is None:
            raise UnknownType(name)
        return name
    described = cast(Mapping[str, Any], kind)
    match described.get("type"):
        case "array":
            return f"array<{type_text(described['elementType'])}>"
        case "map":
            return f"map<{type_text(described['keyType'])},{type_text(described['valueType'])}>"
        case "struct":
            fields = cast(Sequence[Mapping[str, Any]], described["fields"])
            return f"struct<{','.join(_field(field) for field in fields)}>"
        case other:
            raise UnknownType(str(other))


def _field(field: Mapping[str, Any]) -> str:
    return f"{backticked(field['name'])}:{type_text(field['type'])}"


def names_within(type_: str) -> list[str]:
    """The names of all nested fields in the text of a type, without quotes."""
    return [found.replace("``", "`") for found in _QUOTED.findall(type_)]


def without_quotes(type_: str) -> str:
    """The text of a type without blanks and quotes and in lower case, for the comparison with a type that a person wrote."""
    return re.sub(r"[\s`]", "", type_).lower()
