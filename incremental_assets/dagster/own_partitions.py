"""Partitions of assets that are no containers: which rows of a user's own table a partition key means.

Belongs here: from Dagster's partition keys and the column that they go by to windows. Does not belong: containers' partitions, which reach
beyond their first and last key (``partitioning``), or predicates (``sql``).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from incremental_assets.core.axis import MICROS_PER_DAY, Axis, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.window import Window, merge

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def own_windows(label: str, axis: Axis, definition: dg.PartitionsDefinition, keys: Sequence[str]) -> tuple[Window, ...]:
    """The windows of the keys: Dagster's own for time, one value a key otherwise.

    A partition of time begins and ends where the definition's time zone says. An instant (Spark's ``timestamp``) is compared as such; a
    column without time zone is taken to show the clock of that zone. Raises ConfigurationError where the column cannot tell a partition's
    rows from its neighbours'.
    """
    if not axis.is_time or not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return merge(Window(value, value + 1) for value in (parse_value(axis, key) for key in keys))
    spans = (definition.time_window_for_partition_key(key) for key in keys)
    instants = merge(Window(_micros(span.start), _micros(span.end)) for span in spans)
    if axis is Axis.INSTANT:
        return instants
    zone = ZoneInfo(definition.timezone)
    return merge(_on_the_clock(label, axis, zone, window) for window in instants)


def _on_the_clock(label: str, axis: Axis, zone: ZoneInfo, window: Window) -> Window:
    """An interval of instants as what clocks in the zone show meanwhile."""
    assert window.lower is not None and window.upper is not None
    lower, upper = (_EPOCH + timedelta(microseconds=bound) for bound in (window.lower, window.upper))
    first, last = lower.astimezone(zone), (upper - _MICROSECOND).astimezone(zone)
    before = (lower - _MICROSECOND).astimezone(zone)
    # When clocks are set back they show an hour twice: an interval with only one of the two has no window on such a column.
    if _micros(first.replace(fold=0)) != window.lower or _micros(last.replace(fold=1)) != window.upper - 1:
        raise ConfigurationError(
            f"{label}: clocks in {zone.key} show the hour of {first:%Y-%m-%d %H:%M} twice, and a column without time zone does not tell "
            f"which of the two a row is of. Let partition_expr name a timestamp with time zone, cut the partitions by UTC or by day, or "
            f"run both hours as one range."
        )
    # Where they are set forward at the beginning, what they skip belongs to it: a day may begin at one o'clock.
    begin = min(_on_clock(first), _on_clock(before) + 1) if before.fold == first.fold else _on_clock(first)
    wall = (begin, _on_clock(last) + 1)
    if axis is not Axis.DAY:
        return Window(*wall)
    if any(bound % MICROS_PER_DAY for bound in wall):
        raise ConfigurationError(
            f"{label}: the partition that begins at {first:%Y-%m-%d %H:%M} is not made of whole days, and partition_expr names a date, "
            f"which does not tell the hours of a day apart. Name a timestamp, or cut the partitions by whole days."
        )
    return Window(wall[0] // MICROS_PER_DAY, wall[1] // MICROS_PER_DAY)


def _on_clock(moment: datetime) -> int:
    return _micros(moment.replace(tzinfo=timezone.utc))


def _micros(moment: datetime) -> int:
    return (moment.astimezone(timezone.utc) - _EPOCH) // _MICROSECOND
