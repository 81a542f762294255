"""Warns of the rows that a sync leaves out as no window holds their identifier: infinity, NaN, zero dates.

Belongs here: the words, and where they are counted. Does not belong: which values these are (``queries`` of each database).
"""

from incremental_assets.core.container import Container
from incremental_assets.databases.source import SourceDatabase, Unplaced
from incremental_assets.delta.result import SyncResult

UNPLACED_ROWS = "sync/unplaced_rows"
"""The metadata key of the number of rows that are left out so. It is there if there are any."""


def note_unplaced(container: Container, source: SourceDatabase, result: SyncResult) -> None:
    """Counts the rows in the snapshot that is held, for the metadata of the sync, and warns of them."""
    found = source.unplaced()
    if found is not None:
        result.more[UNPLACED_ROWS] = found.rows
        result.warnings.append(said_of(container, found))


def said_of(container: Container, found: Unplaced) -> str:
    """What a sync and an audit say of such rows."""
    columns = "/".join(column.name for column in container.placed_by)
    where = found.where.replace("'", "''")
    return (
        f"{found.rows:,} rows of the source are left out, as no window holds their {columns}: infinity, NaN, or a zero date. Correct them "
        f"there, or accept it: containers: {{{container.name}: {{where: '{where}'}}}}"
    )
