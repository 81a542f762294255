"""How a read that is too large for one snapshot is cut: into windows, each with a commit of its own, or by ranges of the key.

Belongs here: where to cut. Does not belong: how the pieces overlap by the lag (``core.tail``), or what is done with them (``sync``).
"""

import itertools

from incremental_assets.core.container import Kind
from incremental_assets.core.partitions import Partitions, TimePartitions, floor_to
from incremental_assets.core.plan import Action
from incremental_assets.core.window import Window
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.postgres.reader import PostgresReader

Piece = tuple[Window, ...]


def pieces_of(plan: TablePlan, reader: PostgresReader, partitions: Partitions | None, rows: int) -> list[Piece]:
    """What each commit of the plan reads, expected to hold at most ``rows`` rows; one piece where that is enough or nothing can be cut."""
    container = plan.container
    if container.identifier is None or reader.estimate(plan.windows, plan.include_nulls) <= rows:
        return [plan.windows]
    if plan.action is Action.REFRESH:
        return _packed([part for window in plan.windows for part in _halves(plan, reader, partitions, rows, window)], reader, rows)
    if len(plan.windows) != 1:
        return [plan.windows]
    (whole,) = plan.windows
    inner = _halves(plan, reader, partitions, rows, whole)
    return [(window,) for window in container.tail.pieces(whole, [w.upper for w in inner[:-1] if w.upper is not None])]


def _halves(plan: TablePlan, reader: PostgresReader, partitions: Partitions | None, rows: int, window: Window) -> list[Window]:
    """The window cut into halves of halves, at the start of a partition where time is cut; ascending, and together the window itself."""
    container, cut = plan.container, plan.container.cut
    lowest, highest = window.lower, reader.highest().value
    if lowest is None:
        lowest = cut.first if cut is not None and cut.first is not None else reader.lowest()
    if window.upper is not None:
        highest = window.upper - 1 if highest is None else min(highest, window.upper - 1)
    if highest is None or lowest is None or lowest >= highest:
        return [window]

    def edges(lower: int, upper: int) -> list[int]:
        middle = (lower + upper) // 2
        if isinstance(partitions, TimePartitions):
            middle = floor_to(partitions.axis, partitions.granularity, middle)
        narrow = upper - lower <= 2 * container.tail.lag  # each piece of a load reads the lag below it once more
        if narrow or not lower < middle < upper or reader.estimate((Window(lower, upper),), False) <= rows:
            return []
        return [*edges(lower, middle), middle, *edges(middle, upper)]

    inner = edges(lowest, highest + 1)
    bounds = [window.lower, *inner, window.upper]
    return [Window(lower, upper) for lower, upper in itertools.pairwise(bounds)]


def _packed(windows: list[Window], reader: PostgresReader, rows: int) -> list[Piece]:
    """Neighbours together as long as they hold at most so many rows: a commit for each of a hundred small partitions would be slow."""
    packed: list[Piece] = []
    held = 0
    for window in windows:
        more = reader.estimate((window,), False)
        if packed and held + more <= rows:
            packed[-1] = (*packed[-1], window)
            held += more
        else:
            packed.append((window,))
            held = more
    return packed


def is_read_by_key(plan: TablePlan, reader: PostgresReader, rows: int) -> bool:
    """Whether a container without identifier is read by ranges of its primary key, each in a snapshot of its own, and committed at once.

    The lake then holds no one state of the source: a row may be of an earlier moment than another. Without a key it is read in one
    snapshot, which ``max_snapshot_seconds`` ends.
    """
    container = plan.container
    if container.identifier is not None or not container.primary_key or container.kind not in (Kind.TABLE, Kind.PARTITIONED):
        return False
    return reader.estimate(plan.windows, plan.include_nulls) > rows
