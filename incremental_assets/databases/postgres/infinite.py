"""Finds values that no type of the lake can hold: infinity and NaN, which PostgreSQL has in dates, timestamps and numerics."""

from collections.abc import Sequence

from psycopg import sql

from incremental_assets.core.container import Container, Kind
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres.extract import carried_columns
from incremental_assets.databases.postgres.lists import UNLISTABLE
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.types import Carried

SAMPLED_PAGES = 1000
"""About so many pages of a table are a sample: 8 MB, or all of a smaller table."""
# Parts of the messages with which a read fails on such a value; 22008 is PostgreSQL's code for a date or time out of range.
_MARKS = ("infinit", "NaN", "22008", "bigint out of range", UNLISTABLE)


def infinite_columns(reader: PostgresReader, container: Container, windows: Sequence[Window], *, sampled: bool) -> tuple[str, ...]:
    """The columns that have such values, which are therefore carried as text. This is checked once, at the first load.

    ``sampled``: see ``SourceDatabase``. Only an ordinary table is sampled.
    """
    if sampled and container.kind is Kind.TABLE:
        share = min(1.0, SAMPLED_PAGES / max(1, reader.pages()))
        if not reader.any_true(_conditions(carried_columns(container)), windows, True, share):
            return ()
    return tuple(reader.any_true(_conditions(carried_columns(container)), windows, True))


def explained(
    error: Exception, reader: PostgresReader, container: Container, carried: Sequence[Carried], windows: Sequence[Window], nulls: bool
) -> Exception:
    """The error to raise for a failed read: a ConfigurationError with the settings that help, if such a value was the cause, else
    ``error``."""
    if not any(mark in str(error.__cause__ or error) for mark in _MARKS):
        return error
    found = reader.any_true(_conditions(carried), windows, nulls)
    if not found:
        return error
    return ConfigurationError(
        f"{container.label}: values such as {container.unheld} have arrived in {', '.join(found)}, and the lake's type has no such value; "
        f"nothing was written. Carry them as text: containers: {{{container.name}: {{text_columns: [{', '.join(found)}]}}}} and then: "
        f"incremental-assets sync {container.label} --reset-watermarks"
    )


def _conditions(carried: Sequence[Carried]) -> dict[str, sql.Composable]:
    return {c.column.name: c.may_be_infinite for c in carried if c.may_be_infinite is not None}
