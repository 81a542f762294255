"""Values that no type of the lake holds: infinity and NaN, which PostgreSQL keeps in dates, timestamps and numerics.

Belongs here: finding the columns that have them, and saying what to do. Does not belong: the conditions (``databases.postgres.types``).
"""

from collections.abc import Sequence

from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres.extract import carried_columns
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried

_MARKS = ("infinit", "NaN", "22008", "bigint out of range")


def infinite_columns(reader: PostgresReader, container: Container, windows: Sequence[Window]) -> tuple[str, ...]:
    """Columns with such values: they arrive as text. Asked once, at the first load. Raises ConfigurationError for the identifier."""
    return tuple(_found(reader, container, carried_columns(container), windows, True))


def explained(
    error: Exception, reader: PostgresReader, container: Container, carried: Sequence[Carried], windows: Sequence[Window], nulls: bool
) -> Exception:
    """A read that failed on such a value, said in words of the YAML; any other error as it is."""
    if not any(mark in str(error.__cause__ or error) for mark in _MARKS):
        return error
    try:
        found = _found(reader, container, carried, windows, nulls)
    except ConfigurationError as refused:
        return refused
    if not found:
        return error
    return ConfigurationError(
        f"{container.label}: values such as infinity or NaN have arrived in {', '.join(found)}, and the lake's type has no such value; "
        f"nothing was written. Carry them as text: containers: {{{container.name}: {{text_columns: [{', '.join(found)}]}}}} and then: "
        f"incremental-assets sync {container.label} --reset-watermarks"
    )


def _found(reader: PostgresReader, container: Container, carried: Sequence[Carried], windows: Sequence[Window], nulls: bool) -> list[str]:
    conditions = {c.column.name: c.may_be_infinite for c in carried if c.may_be_infinite is not None}
    found = reader.any_true(conditions, windows, nulls)
    identifier = container.identifier
    for name in found:
        if identifier is not None and name in identifier.columns:
            quoted = '"' + name.replace('"', '""') + '"'
            finite = f"isfinite({quoted})" if identifier.axis.is_time else f"{quoted} <> 'NaN'"
            raise ConfigurationError(
                f"{container.label}: the identifier {name!r} has infinite values, which no window holds; nothing was written. Leave "
                f"those rows out: containers: {{{container.name}: {{where: '{finite.replace(chr(39), chr(39) * 2)}'}}}}"
            )
    return found
