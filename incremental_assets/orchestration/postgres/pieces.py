"""How a first load that is too large for one transaction is cut into windows, oldest first.

Belongs here: where to cut. Does not belong: how the pieces overlap by the lag (``model.tail``), or what is done with them (``sync``).
"""

from incremental_assets.model.partitions import Partitions, TimePartitions, floor_to
from incremental_assets.model.window import Window
from incremental_assets.orchestration.plan import Action
from incremental_assets.orchestration.postgres.planning import TablePlan
from incremental_assets.sources.postgres.reader import PostgresReader


def pieces_of_load(plan: TablePlan, reader: PostgresReader, partitions: Partitions | None, rows: int) -> list[Window]:
    """The windows of the plan's read, each expected to hold at most ``rows``; one window where that is enough or nothing can be cut."""
    container, whole = plan.container, list(plan.windows)
    if plan.whole or container.identifier is None or plan.action not in (Action.LOAD, Action.SYNC) or len(whole) != 1:
        return whole[:1]
    if reader.estimate(plan.windows, plan.include_nulls) <= rows:
        return whole
    cut = container.cut
    highest, lowest = reader.highest().value, whole[0].lower
    if lowest is None:
        lowest = cut.first if cut is not None and cut.first is not None else reader.lowest()
    if highest is None or lowest is None or lowest >= highest:
        return whole

    def halves(window: Window) -> list[Window]:
        """Halves of halves, at the start of a partition where time is cut."""
        assert window.lower is not None and window.upper is not None
        middle = (window.lower + window.upper) // 2
        if isinstance(partitions, TimePartitions):
            middle = floor_to(partitions.axis, partitions.granularity, middle)
        narrow = window.upper - window.lower <= 2 * container.tail.lag  # each piece reads the lag below it once more
        if narrow or not window.lower < middle < window.upper or reader.estimate((window,), False) <= rows:
            return [window]
        return halves(Window(window.lower, middle)) + halves(Window(middle, window.upper))

    inner = halves(Window(lowest, highest + 1))
    return container.tail.pieces(whole[0], [w.upper for w in inner[:-1] if w.upper is not None])
