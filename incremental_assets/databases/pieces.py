"""Divides a read that is too large for one snapshot into pieces: windows with a commit each, or ranges of the primary key."""

import itertools

from incremental_assets.core.container import Kind
from incremental_assets.core.partitions import Partitions, TimePartitions, floor_to
from incremental_assets.core.plan import Action
from incremental_assets.core.window import Window
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.source import SourceDatabase

Piece = tuple[Window, ...]
"""The windows that one commit reads and replaces."""


def pieces_of(plan: TablePlan, source: SourceDatabase, partitions: Partitions | None, rows: int) -> list[Piece]:
    """The pieces of a plan, one for each commit, so that each is expected to have at most ``rows`` rows.

    The result is one piece if that is enough, or if the read cannot be divided.
    """
    container = plan.reading
    if container.identifier is None or source.estimate(plan.windows, plan.include_nulls) <= rows:
        return [plan.windows]
    # A refresh replaces each of its windows independently of the others. The pieces of a load or a sync each move the watermark to their
    # end, so they go upwards one window at a time, and each reads the lag below its lower bound again.
    if plan.action is Action.REFRESH:
        return _packed([part for window in plan.windows for part in _halves(plan, source, partitions, rows, window)], source, rows)
    if len(plan.windows) != 1:
        return [plan.windows]
    (whole,) = plan.windows
    inner = _halves(plan, source, partitions, rows, whole)
    return [(window,) for window in container.lag_window.pieces(whole, [w.upper for w in inner[:-1] if w.upper is not None])]


def _halves(plan: TablePlan, source: SourceDatabase, partitions: Partitions | None, rows: int, window: Window) -> list[Window]:
    """Divides a window by repeated halving until each part is expected to have at most ``rows`` rows.

    The parts are in ascending order and together cover the window exactly. For partitions of time, the bounds are starts of partitions.
    The window is returned undivided if no row is known in it.
    """
    container, partitioning = plan.reading, plan.container.partitioning
    if container.partitioned_on is not None:  # the windows are of the identifier, which the partitions are not cut along
        partitioning = partitions = None
    lowest, highest = window.lower, source.highest().value
    if lowest is None:
        lowest = partitioning.first if partitioning is not None and partitioning.first is not None else source.lowest()
    if window.upper is not None:
        highest = window.upper - 1 if highest is None else min(highest, window.upper - 1)
    if highest is None or lowest is None or lowest >= highest:
        return [window]

    def edges(lower: int, upper: int) -> list[int]:
        middle = (lower + upper) // 2
        if isinstance(partitions, TimePartitions):
            middle = floor_to(partitions.cursor_type, partitions.granularity, middle)
        # Each piece of a load reads the lag below it once more, so pieces shorter than the lag would read most rows several times.
        narrow = upper - lower <= 2 * container.lag_window.lag
        if narrow or not lower < middle < upper or source.estimate((Window(lower, upper),), False) <= rows:
            return []
        return [*edges(lower, middle), middle, *edges(middle, upper)]

    inner = edges(lowest, highest + 1)
    bounds = [window.lower, *inner, window.upper]
    return [Window(lower, upper) for lower, upper in itertools.pairwise(bounds)]


def _packed(windows: list[Window], source: SourceDatabase, rows: int) -> list[Piece]:
    """Joins neighbouring windows into pieces of at most ``rows`` rows, because a commit for each of many small partitions would be slow."""
    packed: list[Piece] = []
    held = 0
    for window in windows:
        more = source.estimate((window,), False)
        if packed and held + more <= rows:
            packed[-1] = (*packed[-1], window)
            held += more
        else:
            packed.append((window,))
            held = more
    return packed


def is_read_by_key(plan: TablePlan, source: SourceDatabase, rows: int) -> bool:
    """Whether a container without identifier is read by ranges of its primary key, each in a snapshot of its own, in one commit.

    The lake then has no single state of the source: a row may be of an earlier moment than another one. A container without primary key is
    read in one snapshot, which is ended after ``max_snapshot_seconds``.
    """
    container = plan.container
    if container.identifier is not None or not container.primary_key or container.kind not in (Kind.TABLE, Kind.PARTITIONED):
        return False
    return source.estimate(plan.windows, plan.include_nulls) > rows
