"""The partition keys with which a run is launched that carries out a plan."""

from collections.abc import Sequence

from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.plan import Action
from incremental_assets.core.window import Window
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.source import SourceDatabase, along_axis

MOST_GENERATED_KEYS = 2000
"""Up to this number of integer partitions, the keys are generated from the lowest to the highest identifier. Above it the source is asked
which partitions have rows, because most may have none."""


def run_keys(plan: TablePlan, source: SourceDatabase, partitions: Partitions | None) -> list[str]:
    """The partition keys with which a run of the plan is launched: the requested ones, or those of the rows to be read.

    Keys of integer partitions may not exist in Dagster yet.
    """
    if partitions is None or plan.container.partitioning is None or plan.applies:
        return []
    if plan.request.keys is not None:
        return list(plan.request.keys)
    if plan.container.partitioned_on is not None:
        # What is new may lie in any partition. The sync reports those in which it has written.
        if plan.action is Action.SYNC:
            return []
        with along_axis(source):
            return run_keys(plan.decided_along_axis(), source, partitions)
    lower = plan.windows[0].lower if plan.windows else None
    if not isinstance(partitions, IntegerPartitions):
        # The keys end at the newest row and not today: a table that has had no new rows for years has no partitions for these years.
        newest = max((v for v in (lower, source.highest().seen) if v is not None), default=None)
        return partitions.keys_between(lower, newest)
    keys = integer_keys(source, partitions.width, plan.container.partitioning.batch, lower, plan.windows)
    # Rows below the first known partition belong to that partition. A load may find lower rows, which get partitions of their own.
    if partitions.known and plan.action is not Action.LOAD:
        keys = [str(max(int(key), partitions.known[0])) for key in keys]
    return list(dict.fromkeys(keys))


def integer_keys(source: SourceDatabase, width: int, batch: bool, lower: int | None, windows: Sequence[Window]) -> list[str]:
    """Keys of the integer partitions from ``lower`` on (None: from the lowest row on) that may have rows in the windows, ascending.

    ``width`` is the number of integers in a partition. ``batch``: each value is a partition, so only values that exist get a key.
    """
    highest = source.highest().seen
    if highest is None:
        return []
    if lower is None:
        lower = source.lowest()
    first = (lower if lower is not None else highest) // width * width
    if not batch and (highest - first) // width <= MOST_GENERATED_KEYS:
        return [str(start) for start in range(first, highest + 1, width)]
    return [str(start) for start in source.distinct_starts(windows, width)]
