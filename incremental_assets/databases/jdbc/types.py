"""Defines how each type is carried into the lake, going by the type that Spark's JDBC source gives a column.

Dates and times are read as the driver's own text. Java's classes for them, which Spark would use, shift days before 1582 and hours that a
time zone leaves out, and drop what is finer than a microsecond; a text has all digits. One that the lake does not have fails the read.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from incremental_assets.core.container import Container, SourceColumn
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.names import backticked
from incremental_assets.core.names import literal as text
from incremental_assets.core.schema import Column

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_DIGITS = 38
_SAME = {"boolean": "boolean", "tinyint": "smallint", "smallint": "smallint", "int": "int", "bigint": "bigint", "float": "float",
         "double": "double", "string": "string", "binary": "binary"}  # fmt: skip
_DAY, _CLOCK = r"\d{4}-\d{2}-\d{2}", r"\d{2}:\d{2}(:\d{2}([.]\d{1,6}0*)?)?"
_PATTERNS = {
    "date": _DAY,
    "timestamp_ntz": f"{_DAY}[ T]{_CLOCK}",
    "timestamp": f"{_DAY}[ T]{_CLOCK} ?([+-]\\d{{2}}(:?\\d{{2}})?|Z)",
}
"""The texts of times that are exactly a value of the lake: up to six digits of a second, and an offset where the type has one."""
UNEXACT = "has a value that the lake cannot have exactly"
"""Is part of each message about such a value."""


@dataclass(frozen=True)
class Carried:
    """How one column is carried.

    ``column``: its name and type in the lake. ``as_text``: Spark asks the driver for the value's text. ``marks``: it is the mark of deleted
    rows, which the source does not have.
    """

    column: Column
    as_text: bool = False
    marks: bool = False

    def in_lake(self, label: str, read: str) -> str:
        """The lake's value in Spark's SQL. ``label``: the container's; ``read``: the name of the column that was read."""
        type_, value = self.column.type, backticked(read)
        if self.marks:
            return f"cast(NULL AS {type_})"
        if type_ not in _PATTERNS:
            return f"cast({value} AS {type_})"
        said = f"{label}: column {self.column.name!r} {UNEXACT}: "
        refused = f"raise_error(concat({text(said)}, {value}))"
        is_exact = f"{value} RLIKE {text(f'^({_PATTERNS[type_]})$')}"
        return f"CASE WHEN {value} IS NULL THEN NULL WHEN {is_exact} THEN cast({value} AS {type_}) ELSE {refused} END"


def carried_columns(container: Container, text_columns: Iterable[str] = ()) -> list[Carried]:
    """How each column of the container is carried. ``text_columns`` are carried as text, in addition to those that the YAML names."""
    as_text = {*container.options.text_columns, *text_columns}
    carried = [carry(column, as_text) for column in container.columns]
    return [*carried, Carried(MARK, marks=True)] if container.options.deletes is Deletes.SOFT else carried


def carry(column: SourceColumn, text_columns: Collection[str] = ()) -> Carried:
    """How ``column`` is carried; as text if it is one of ``text_columns``. Its type must be one that is carried (``reason_against``)."""
    if column.name in text_columns:
        return Carried(Column(column.name, "string"), as_text=True)
    type_ = column.type
    if type_ in _PATTERNS:
        return Carried(Column(column.name, type_), as_text=True)
    if type_.startswith("time"):
        return Carried(Column(column.name, "string"), as_text=True)
    return Carried(Column(column.name, _SAME.get(type_, type_)))


def reason_against(column: SourceColumn) -> str | None:
    """Why a column cannot be carried as it is; None if it can."""
    type_, decimal = column.type, _DECIMAL.fullmatch(column.type)
    if decimal:
        if int(decimal[1]) < _MOST_DIGITS:
            return None
        return f"a decimal of {_MOST_DIGITS} or more digits, of which the lake might not have all"
    if type_ in _SAME or type_ in _PATTERNS or type_.startswith("time"):
        return None
    return f"{type_}, which cannot be carried"


def can_be_text(column: SourceColumn) -> bool:
    """Whether Spark reads the driver's text of the column."""
    return not column.type.startswith((UNKNOWN, "array", "map", "struct"))


UNKNOWN = "unknown"
"""Begins the type of a column whose type Spark's JDBC source does not know at all."""


def spark_type(name: str) -> str:
    """The type of a column as it is kept in the catalog, from what Spark says of it."""
    if name.startswith(("char(", "varchar(")):
        return "string"
    return name


def base_of(type_: str) -> str:
    """The name under which the rules for identifiers know a type."""
    return {
        "timestamp_ntz": "timestamp without time zone",
        "timestamp": "timestamp with time zone",
    }.get(type_, type_.split("(")[0])
