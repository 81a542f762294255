"""Partitions of assets that are not containers: which rows of a user's own table a partition key means."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from incremental_assets.core.cursor_type import MICROS_PER_DAY, CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.own_rows import Axis, OwnRows, PartitionExpr
from incremental_assets.core.window import Window, merge

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_CURSOR_TYPES = {"date": CursorType.DATE, "timestamp_ntz": CursorType.TIMESTAMP_NTZ, "timestamp": CursorType.TIMESTAMP}
_INTEGERS, _TEXTS = re.compile(r"bigint|int|smallint|tinyint|decimal\(.*\)"), re.compile(r"string|(char|varchar)\(\d+\)")


def dimensions_of(definition: dg.PartitionsDefinition) -> tuple[str, ...]:
    """The names of the dimensions, in the order of ``own_rows``: dimensions of time first. Empty if the partitions have only one."""
    return tuple(name for name, _ in _dimensions(definition)) if isinstance(definition, dg.MultiPartitionsDefinition) else ()


def own_rows(label: str, definition: dg.PartitionsDefinition, exprs: Mapping[PartitionExpr, str], keys: Sequence[str]) -> OwnRows:
    """The rows of the partition keys. ``exprs``: what each dimension goes by, with its Spark type, in the order of ``dimensions_of``.

    Raises ConfigurationError where a key is no value of this type, or where the values cannot tell two partitions apart.
    """
    split = {key: _split(definition, key) for key in keys}
    dimensions = _dimensions(definition)
    axes = [
        _axis(label, dimension, expr, list(dict.fromkeys(parts[at] for parts in split.values())), len(dimensions) == 1)
        for at, ((_, dimension), expr) in enumerate(zip(dimensions, exprs.items(), strict=True))
    ]
    return OwnRows(tuple(axes), {parts: key for key, parts in split.items()})


def _dimensions(definition: dg.PartitionsDefinition) -> list[tuple[str, dg.PartitionsDefinition]]:
    """The dimensions of the partitions with their names, those of time first, so that their windows can be joined."""
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return [("", definition)]
    named = [(one.name, one.partitions_def) for one in definition.partitions_defs]
    return sorted(named, key=lambda one: not isinstance(one[1], dg.TimeWindowPartitionsDefinition))


def _split(definition: dg.PartitionsDefinition, key: str) -> tuple[str, ...]:
    """The key of each dimension."""
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return (key,)
    parts = definition.get_partition_key_from_str(key).keys_by_dimension
    return tuple(parts[name] for name, _ in _dimensions(definition))


def _axis(label: str, definition: dg.PartitionsDefinition, expr: tuple[PartitionExpr, str], keys: Sequence[str], is_alone: bool) -> Axis:
    """One dimension. ``is_alone``: whether the partitions have no other one."""
    of, type_ = expr
    if _TEXTS.fullmatch(type_):
        return Axis(of, None, {})
    cursor_type = _CURSOR_TYPES.get(type_, CursorType.INTEGER)
    if cursor_type is CursorType.INTEGER and not _INTEGERS.fullmatch(type_):
        raise ConfigurationError(
            f"{label}: partition_expr is {of.text!r}, which is {type_}; a date, timestamp, integer or string is needed."
        )
    windows: dict[str, tuple[Window, ...]] = {}
    apart: ConfigurationError | None = None
    for key in keys:
        try:
            windows[key] = own_windows(label, cursor_type, definition, [key])
        except ConfigurationError as error:
            apart = error
    if apart is None:
        return Axis(of, cursor_type, windows)
    if not is_alone:
        raise apart
    # Some column tells the rows of a whole range from others, and not those of each key: hours of whole days by a date.
    return Axis(of, cursor_type, windows, own_windows(label, cursor_type, definition, keys))


def own_windows(label: str, cursor_type: CursorType, definition: dg.PartitionsDefinition, keys: Sequence[str]) -> tuple[Window, ...]:
    """The windows of the partition keys: Dagster's own time windows for time, one value for each key otherwise.

    A time partition begins and ends in the time zone of its definition. A column of instants (Spark's ``timestamp``) is compared with those
    instants. A column without time zone is taken to show the local time of that zone. Windows are in microseconds since 1970 UTC, or in
    days for a date. Raises ConfigurationError where the column cannot tell the rows of a partition from those of the one before or after
    it.
    """
    if not cursor_type.is_time or not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return merge(Window(value, value + 1) for value in (_value(label, cursor_type, key) for key in keys))
    spans = (definition.time_window_for_partition_key(key) for key in keys)
    instants = merge(Window(_micros(span.start), _micros(span.end)) for span in spans)
    if cursor_type is CursorType.TIMESTAMP:
        return instants
    zone = ZoneInfo(definition.timezone)
    return merge(_on_the_clock(label, cursor_type, zone, window) for window in instants)


def _value(label: str, cursor_type: CursorType, key: str) -> int:
    try:
        return parse_value(cursor_type, key)
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: a partition key is no value of what partition_expr says: {error}") from error


def _on_the_clock(label: str, cursor_type: CursorType, zone: ZoneInfo, window: Window) -> Window:
    """Converts an interval of instants to the interval of local times that clocks in the zone show meanwhile."""
    assert window.lower is not None and window.upper is not None
    lower, upper = (_EPOCH + timedelta(microseconds=bound) for bound in (window.lower, window.upper))
    first, last = lower.astimezone(zone), (upper - _MICROSECOND).astimezone(zone)
    before = (lower - _MICROSECOND).astimezone(zone)
    # When clocks are set back, they show one hour twice (`fold` tells the two apart). An interval that has only one of these two hours has
    # no window on a zone-less column.
    if _micros(first.replace(fold=0)) != window.lower or _micros(last.replace(fold=1)) != window.upper - 1:
        raise ConfigurationError(
            f"{label}: clocks in {zone.key} show the hour of {first:%Y-%m-%d %H:%M} twice, and a column without time zone does not tell "
            f"which of the two a row is of. Let partition_expr name a timestamp with time zone, cut the partitions by UTC or by day, or "
            f"run both hours as one range."
        )
    # When clocks are set forward exactly where the interval begins, the skipped local times belong to it: no clock shows them, but rows may
    # have them. Such a day begins at one o'clock, and its window at midnight.
    begin = min(_on_clock(first), _on_clock(before) + 1) if before.fold == first.fold else _on_clock(first)
    wall = (begin, _on_clock(last) + 1)
    if cursor_type is not CursorType.DATE:
        return Window(*wall)
    # A date has no time of day. So it can only tell partitions apart that begin and end at midnight.
    if any(bound % MICROS_PER_DAY for bound in wall):
        raise ConfigurationError(
            f"{label}: the partition that begins at {first:%Y-%m-%d %H:%M} is not made of whole days, and partition_expr names a date, "
            f"which does not tell the hours of a day apart. Name a timestamp, or cut the partitions by whole days."
        )
    return Window(wall[0] // MICROS_PER_DAY, wall[1] // MICROS_PER_DAY)


def _on_clock(moment: datetime) -> int:
    """The local time of the moment, in microseconds since 1970-01-01 00:00 of the same zone-less clock."""
    return _micros(moment.replace(tzinfo=timezone.utc))


def _micros(moment: datetime) -> int:
    """The instant in microseconds since 1970 UTC."""
    return (moment.astimezone(timezone.utc) - _EPOCH) // _MICROSECOND
