"""Defines how each type of SQL Server is carried into the lake: which SQL is evaluated, and what the driver makes of it.

Integers, ``bit``, ``float``, ``real`` and bytes are sent as they are, of which python-tds loses nothing. All other values are sent as
text: a Python ``datetime`` has no tenth of a microsecond, and a text of a code page is decoded by the server itself.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from incremental_assets.core.container import Container, SourceColumn
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.schema import Column
from incremental_assets.databases.sqlserver.queries import MOST_NVARCHAR, ROWVERSION, as_datetime2, quoted

_SIZE = re.compile(r"\((\d+|max)(?:,\s*(\d+))?\)")
_INTEGERS = {"tinyint": "smallint", "smallint": "smallint", "int": "int", "bigint": "bigint"}
_MONEY = {"money": "decimal(19,4)", "smallmoney": "decimal(10,4)"}
_TIMES = {"datetime2": "timestamp_ntz", "datetime": "timestamp_ntz", "smalldatetime": "timestamp_ntz", "datetimeoffset": "timestamp"}
_UNICODE = ("nchar", "nvarchar", "sysname")
_CODE_PAGE = ("char", "varchar")
_LONG_TEXTS = ("text", "ntext", "xml", "json")
_BYTES = ("binary", "varbinary")
_AS_TEXT = {
    "uniqueidentifier": "convert(nchar(36), {0})",
    "time": "convert(varchar(16), {0}, 121)",
    "hierarchyid": "cast({0} as nvarchar(4000))",
}
NO_KEY = ("float", "real", "image", "text", "ntext", "xml")
"""Types by which rows cannot be found: they cannot be compared, or their literals are not exact."""
REFUSED = {
    "geography": "a view can have its STAsText() or STAsBinary()",
    "geometry": "a view can have its STAsText() or STAsBinary()",
    "sql_variant": "it has another type in each row, which its text would not show; a view can cast it",
}
"""The types that cannot be carried, with a way out."""


class Wire(Enum):
    """What arrives for a value, and so how the lake's value is made of it."""

    INTEGER = "a Python int"
    BOOLEAN = "a Python bool"
    FLOAT = "a Python float"
    NUMBER = "the text of a decimal"
    TIME = "the text of a date, or of a date and time"
    TEXT = "a Python str"
    BYTES = "Python bytes"


@dataclass(frozen=True)
class Carried:
    """How one column is carried.

    ``column``: its name and type in the lake. ``select``: the SQL expression that SQL Server evaluates; ``wire``: what arrives of it.
    ``name``: the column's quoted name; ``base``: its type in the source without length and precision; ``sql_type``: with them.
    """

    column: Column
    select: str
    wire: Wire
    name: str
    base: str
    sql_type: str


MARKED = Carried(MARK, "null", Wire.TIME, "null", "datetime2", "datetime2(6)")
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
        return Carried(Column(column.name, type_), select or name, wire, name, base, column.type)

    if column.name in text_columns:
        return carried("string", Wire.TEXT, text_of(base, column.type, name))
    if base in _INTEGERS:
        return carried(_INTEGERS[base], Wire.INTEGER)
    if base == ROWVERSION:
        return carried("bigint", Wire.INTEGER, f"cast({name} as bigint)")
    if base == "bit":
        return carried("boolean", Wire.BOOLEAN)
    if base in ("float", "real"):
        return carried("double" if base == "float" else "float", Wire.FLOAT)
    if base in ("decimal", "numeric"):
        return carried(decimal_type(column.type), Wire.NUMBER, text_of(base, column.type, name))
    if base in _MONEY:
        return carried(_MONEY[base], Wire.NUMBER, text_of(base, column.type, name))
    if base == "date":
        return carried("date", Wire.TIME, text_of(base, column.type, name))
    if base in _TIMES:
        return carried(_TIMES[base], Wire.TIME, time_text(base, name))
    if base in _BYTES:
        return carried("binary", Wire.BYTES)
    if base == "image":
        return carried("binary", Wire.BYTES, f"cast({name} as varbinary(max))")
    return carried("string", Wire.TEXT, text_of(base, column.type, name))


def is_known(column: SourceColumn) -> bool:
    """Whether columns of this type can be carried. Those for places, ``sql_variant`` and types of a user's own assembly cannot."""
    return column.base in (
        *_INTEGERS, *_MONEY, *_TIMES, *_UNICODE, *_CODE_PAGE, *_LONG_TEXTS, *_BYTES, *_AS_TEXT,
        ROWVERSION, "bit", "float", "real", "decimal", "numeric", "date", "image",
    )  # fmt: skip


def decimal_type(type_: str) -> str:
    """The lake's type of a ``decimal(p,s)``; SQL Server has no more than the 38 digits that the lake has."""
    found = _SIZE.search(type_)
    return f"decimal({int(found[1])},{int(found[2] or 0)})" if found else "decimal(18,0)"


def time_text(base: str, sql: str) -> str:
    """SQL for the text of a time with seven digits of the second: of an instant in UTC."""
    return f"convert(varchar(27), {as_datetime2(base, sql)}, 121)"


def text_of(base: str, type_: str, sql: str) -> str:
    """SQL for the exact text of a value."""
    found = _SIZE.search(type_)
    size = found[1] if found else "max"
    if base in _UNICODE:
        return sql
    if base in _CODE_PAGE:
        return f"cast({sql} as nvarchar({size if size != 'max' and int(size) <= MOST_NVARCHAR else 'max'}))"
    if base in _LONG_TEXTS:
        # A varchar(max) comes between, as text has no direct way to nvarchar(max) in every version; it keeps its code page.
        return f"cast(cast({sql} as varchar(max)) as nvarchar(max))" if base == "text" else f"cast({sql} as nvarchar(max))"
    if base in _AS_TEXT:
        return _AS_TEXT[base].format(sql)
    if base in _MONEY:
        return f"convert(varchar(30), {sql}, 2)"
    if base == "date":
        return f"convert(varchar(10), {sql}, 23)"
    if base == "datetimeoffset":
        return f"convert(varchar(34), {sql}, 121)"
    if base in _TIMES:
        return time_text(base, sql)
    if base in ("float", "real"):
        return f"convert(varchar(40), {sql}, 3)"
    if base in (*_BYTES, "image"):
        return f"convert(varchar(max), cast({sql} as varbinary(max)), 2)"
    return f"cast(cast({sql} as bigint) as varchar(20))" if base == ROWVERSION else f"cast({sql} as varchar(41))"


def identifier_text(base: str, type_: str, sql: str) -> str:
    """SQL for the text of an identifier's value, as ``core.cursor_type.parse_value`` reads it: with six digits of the second."""
    return f"left({time_text(base, sql)}, 26)" if base in _TIMES else text_of(base, type_, sql)
