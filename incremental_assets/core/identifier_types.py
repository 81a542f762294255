"""Which types of the source's columns can be identifiers, and the cursor type of each."""

from incremental_assets.core.container import SourceColumn
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConfigurationError

_AXES: dict[str, tuple[CursorType, str]] = {
    "date": (CursorType.DATE, "date"),
    "timestamp without time zone": (CursorType.TIMESTAMP_NTZ, "timestamp"),
    "timestamp with time zone": (CursorType.TIMESTAMP, "timestamp"),
    "smallint": (CursorType.INTEGER, "integer"),
    "integer": (CursorType.INTEGER, "integer"),
    "bigint": (CursorType.INTEGER, "integer"),
    "numeric": (CursorType.INTEGER, "integer"),
    # MySQL's own names
    "datetime": (CursorType.TIMESTAMP_NTZ, "timestamp"),
    "timestamp": (CursorType.TIMESTAMP, "timestamp"),
    **{name: (CursorType.INTEGER, "integer") for name in ("tinyint", "mediumint", "int", "decimal")},
    **{f"{name} unsigned": (CursorType.INTEGER, "integer") for name in ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")},
    # SQL Server's own names
    **{name: (CursorType.TIMESTAMP_NTZ, "timestamp") for name in ("datetime2", "smalldatetime")},
    "datetimeoffset": (CursorType.TIMESTAMP, "timestamp"),
    "rowversion": (CursorType.INTEGER, "integer"),
}
_WITH_FRACTIONS = ("numeric", "decimal", "decimal unsigned")
"""Types that may have fractions, unless their scale is 0."""


def cursor_type_of(column: SourceColumn) -> CursorType | None:
    """The cursor type of a column's values; None if the column cannot be an incremental identifier."""
    if column.base not in _AXES or (column.base in _WITH_FRACTIONS and ",0)" not in column.type.replace(" ", "")):
        return None  # a value with a fraction has no exact integer; a numeric without a declared scale may have fractions
    return _AXES[column.base][0]


def identifier_cursor_type(where: str, column: SourceColumn, type_: IdentifierType) -> CursorType:
    """The cursor type of a column that the YAML declares as an identifier of type ``type_``.

    ``where`` begins the message of the ConfigurationError, which is raised if the declared type does not fit the column's type.
    """
    found = _AXES.get(column.base)
    fits = found is not None and (
        found[1] == type_.value or (found[1] == "timestamp" and type_ in (IdentifierType.DATETIME, IdentifierType.TIMESTAMP))
    )
    if found is None or not fits or cursor_type_of(column) is None:
        suggestion = (
            f" Write {found[1]!r}." if found and column.base not in _WITH_FRACTIONS else " Choose a date, timestamp or integer column."
        )
        raise ConfigurationError(
            f"{where}: identifier {column.name!r} is declared {type_.value} but the column is {column.type}.{suggestion}"
        )
    return found[0]
