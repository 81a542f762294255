"""Warns of the rows that a sync leaves out as no window holds their identifier: infinity, NaN, zero dates."""

from incremental_assets.core.container import Container
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import LeftOut
from incremental_assets.databases.source import SourceDatabase, Unplaced
from incremental_assets.delta.result import SyncResult

NONE: LeftOut = (0, "")
UNPLACED_ROWS = "sync/unplaced_rows"
"""The metadata key of the number of rows that are left out so. It is there if there are any."""


def note_unplaced(container: Container, source: SourceDatabase, result: SyncResult, before: LeftOut = NONE) -> LeftOut:
    """Counts the rows in the snapshot that is held, for the metadata of the sync, and warns of them, and of those that an earlier sync
    has left out (``before``) and that are not among them any more.
    """
    found = source.unplaced()
    if found is not None:
        result.more[UNPLACED_ROWS] = found.rows
        result.warnings.append(said_of(container, found))
    where = container.options.where or ""
    rows = found.rows if found is not None else 0
    if before[1] == where and rows < before[0]:  # by another condition, other rows are meant
        fewer = counted(before[0] - rows, "row fewer than before is", "rows fewer than before are")
        result.warnings.append(
            f"{fewer} left out for their {_columns(container)}. If they were given a value below the "
            f"watermark, no sync reads them, and they are missing in the lake: incremental-assets audit {container.label} --repair"
        )
    return rows, where


def said_of(container: Container, found: Unplaced) -> str:
    """What a sync and an audit say of such rows."""
    where = found.where.replace("'", "''")
    return (
        f"{counted(found.rows, 'row of the source is', 'rows of the source are')} left out, as no window holds their "
        f"{_columns(container)}: infinity, NaN, or a zero date. Correct them there (after that: "
        f"incremental-assets audit {container.label} --repair), or accept it: containers: {{{container.name}: {{where: '{where}'}}}}"
    )


def _columns(container: Container) -> str:
    return "/".join(column.name for column in container.placed_by)
