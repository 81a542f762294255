"""Types of Spark as text for its SQL, in one spelling, with the names of nested fields quoted: no file's or table's name can end a cast.

Belongs here: from the JSON in which Spark and Delta's log describe a type to the text that ``Column.type`` holds. This is the only place
that writes such texts. Does not belong: which type a column gets (sources), or what widens into what (``schema``).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from incremental_assets.core.names import backticked

_SIMPLE_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_ATOMIC = re.compile(r"[a-z][a-z_]*( [a-z]+)*(\(\d+(, ?-?\d+)?\))?")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class UnknownType(Exception):
    """A type that has no text in Spark SQL; the message names it."""


def type_text(kind: Any) -> str:
    """``{"type": "struct", "fields": [{"name": "a b", "type": "long", …}]}`` → ``struct<`a b`:bigint>``. Raises UnknownType."""
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
    """Names of the nested fields of a type's text."""
    return [found.replace("``", "`") for found in _QUOTED.findall(type_)]


def without_quotes(type_: str) -> str:
    """A type's text for comparing with one that a person wrote: without blanks and quotes, in lower case."""
    return re.sub(r"[\s`]", "", type_).lower()
