"""Spark types as text for Spark SQL, in one spelling.

The names of nested fields are quoted: otherwise a field of a file or table could have a name that ends a CAST and injects SQL.

This is the only place that writes such texts.
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


ATOMIC_TYPES = {
    **{name: name for name in ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean")},
    **{name: name for name in ("date", "timestamp", "timestamp_ntz", "variant", "char", "varchar")},
    **{"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float", "dec": "decimal", "numeric": "decimal"},
    **{"timestamp_ltz": "timestamp"},
}  # fmt: skip
"""Spark's name of each atomic type, by that name and by its synonyms."""
_NESTED = {name: name for name in ("array", "map", "struct")}


def as_a_table_names_it(type_: str) -> str | None:
    """The text of a type as a Spark table has it: without blanks, in lower case, ``int`` instead of ``integer``.

    Returns None if Spark has no type of this name. What follows the name (parameters, element types) is not checked.
    """
    text = type_.strip().lower()
    written = (re.match(r"[a-z_ ]*", text) or [""])[0]
    name = (ATOMIC_TYPES | _NESTED).get(written.strip())
    if name is None:
        return None
    full = f"{name}{text.removeprefix(written)}".replace(" ", "")
    return "decimal(10,0)" if full == "decimal" else full  # Spark's default precision and scale
