"""Defines how each MySQL type is carried into the lake: which SQL is evaluated, and what becomes of the text that the server sends.

All values are sent as text, which is exact for each type but ``float``: MySQL prints 6 digits of it, so it is sent as a double.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from incremental_assets.core.container import Container, SourceColumn
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.schema import Column
from incremental_assets.databases.mysql.queries import quoted

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_BIT = re.compile(r"bit\((\d+)\)")
_INTEGERS = {
    "tinyint": "smallint",
    "tinyint unsigned": "smallint",
    "smallint": "smallint",
    "smallint unsigned": "int",
    "mediumint": "int",
    "mediumint unsigned": "int",
    "int": "int",
    "int unsigned": "bigint",
    "bigint": "bigint",
    "bigint unsigned": "decimal(20,0)",
    "year": "smallint",
}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json", "time", "uuid", "inet4", "inet6")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_MOST_DIGITS = 38
"""The lake has decimals of up to so many digits; MySQL has 65. Longer ones are carried as text."""


class Wire(Enum):
    """What the text of a value is, and so how the lake's value is made of it."""

    NUMBER = "digits"
    BOOLEAN = "0 or 1"
    FLOAT = "a double that is a float"
    TIME = "a date, or date and time"
    TEXT = "itself"
    BYTES = "bytes"


@dataclass(frozen=True)
class Carried:
    """How one column is carried.

    ``column``: its name and type in the lake. ``select``: the SQL expression that MySQL evaluates; ``wire``: what its text is.
    ``name``: the column's quoted name.
    """

    column: Column
    select: str
    wire: Wire
    name: str


MARKED = Carried(MARK, "null", Wire.TIME, "null")
"""The mark of deleted rows in a container with ``deletes: soft``: all rows that the source has are read without it."""


def carried_columns(container: Container, text_columns: Iterable[str] = ()) -> list[Carried]:
    """How each column of the container is carried. ``text_columns`` are carried as text, in addition to those that the YAML names.

    With ``deletes: soft`` the last one is that of the marks, which the source does not have.
    """
    as_text = {*container.options.text_columns, *text_columns}
    carried = [carry(column, as_text) for column in container.columns]
    return [*carried, MARKED] if container.options.deletes is Deletes.SOFT else carried


def carry(column: SourceColumn, text_columns: Collection[str] = ()) -> Carried:
    """How ``column`` is carried; as text if it is one of ``text_columns``. Its type must be one that ``is_known``."""
    name, base = quoted(column.name), column.base

    def carried(type_: str, wire: Wire, select: str | None = None) -> Carried:
        return Carried(Column(column.name, type_), select or name, wire, name)

    bit, decimal = _BIT.match(column.type), _DECIMAL.match(column.type)
    if column.name in text_columns:
        return carried("string", Wire.TEXT, f"hex({name})" if bit or base in _BYTES else None)
    if base in _INTEGERS:
        return carried(_INTEGERS[base], Wire.NUMBER)
    if bit:
        if int(bit[1]) == 1:
            return carried("boolean", Wire.BOOLEAN, f"({name} + 0)")
        return carried("decimal(20,0)" if int(bit[1]) == 64 else "bigint", Wire.NUMBER, f"({name} + 0)")
    if decimal:
        digits, scale = int(decimal[1]), int(decimal[2])
        plain = f"cast({name} as decimal({digits},{scale}))" if "zerofill" in column.type else None
        return carried(f"decimal({digits},{scale})", Wire.NUMBER, plain) if digits <= _MOST_DIGITS else carried("string", Wire.TEXT, plain)
    if base.startswith("float"):
        return carried("float", Wire.FLOAT, f"({name} * 1E0)")
    if base.startswith("double"):
        return carried("double", Wire.NUMBER, f"({name} * 1E0)")
    if base == "date":
        return carried("date", Wire.TIME)
    if base == "datetime":
        return carried("timestamp_ntz", Wire.TIME)
    if base == "timestamp":
        return carried("timestamp", Wire.TIME)
    return carried("binary", Wire.BYTES) if base in _BYTES else carried("string", Wire.TEXT)


def is_known(column: SourceColumn) -> bool:
    """Whether columns of this type can be carried. Those for places (``geometry``, ``point``) and vectors cannot."""
    base = column.base
    return base in (*_INTEGERS, *_TEXTS, *_BYTES, "bit", "date", "datetime", "timestamp") or base.removesuffix(" unsigned") in (
        "float",
        "double",
        "decimal",
    )
