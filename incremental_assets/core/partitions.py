"""Partitions: the mapping between partition keys and windows of identifier values.

Two rules ensure that every row belongs to a partition: the window of the first partition has no lower bound, and the window of the last one
has no upper bound.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from incremental_assets.core.cursor_type import MICROS_PER_DAY, CursorType, civil_from_days, days_from_civil, format_value, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.shown_text import counted
from incremental_assets.core.window import Window, merge

MICROS_PER_HOUR = MICROS_PER_DAY // 24
MOST_PARTITIONS = 1000
"""The largest number of partitions by day that ``default_granularity`` chooses."""
_INTEGER_KEY = re.compile(r"0|-?[1-9][0-9]*")


class Granularity(str, Enum):
    """The length of a time partition."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def expect_partition_by(label: str, partition_by: str | int | None, is_time: bool | None) -> None:
    """Raises ConfigurationError if the YAML's ``partition_by`` cannot cut the axis of an identifier; None is the default, which can.

    ``label``: the container's name, for messages. ``is_time``: whether the identifier is a time; None: that is not known.
    """
    words = [granularity.value for granularity in Granularity]
    if partition_by is None or (is_time is not False and partition_by in words):
        return
    # A bool is an int for Python.
    is_width = isinstance(partition_by, int) and not isinstance(partition_by, bool) and partition_by > 0
    if is_time is not True and (is_width or partition_by == "batch"):
        return
    of_time, of_integer = f"one of {', '.join(words)}", "a positive width or 'batch'"
    if is_time is None:
        wanted = f"is {of_time} for a time, and {of_integer} for an integer"
    else:
        wanted = f"of a time identifier is {of_time}" if is_time else f"of an integer identifier is {of_integer}"
    raise ConfigurationError(f"{label}: partition_by {wanted}, not {partition_by!r}.")


def floor_to(cursor_type: CursorType, granularity: Granularity, value: int) -> int:
    """The start of the hour, day, week or month in which ``value`` lies, in the same units. A week begins on Sunday, as in Dagster.

    The cursor type ``DATE`` has no hours: for it, an hour is the day.
    """
    if granularity is Granularity.HOUR:
        return value // MICROS_PER_HOUR * MICROS_PER_HOUR if cursor_type is not CursorType.DATE else value
    day = value // cursor_type.steps_per_day
    if granularity is Granularity.WEEK:
        day -= (day + 4) % 7  # 1970-01-01 was a Thursday, the fourth day after a Sunday
    elif granularity is Granularity.MONTH:
        year, month, _ = civil_from_days(day)
        day = days_from_civil(year, month, 1)
    return day * cursor_type.steps_per_day


def next_start(cursor_type: CursorType, granularity: Granularity, start: int) -> int:
    """The start of the partition after the one that begins at ``start``, which must itself be the start of one."""
    if granularity is Granularity.HOUR:
        return start + MICROS_PER_HOUR
    if granularity is Granularity.MONTH:
        year, month, _ = civil_from_days(start // cursor_type.steps_per_day)
        return days_from_civil(year + month // 12, month % 12 + 1, 1) * cursor_type.steps_per_day
    return start + (7 if granularity is Granularity.WEEK else 1) * cursor_type.steps_per_day


def default_granularity(cursor_type: CursorType, first: int, last: int) -> Granularity:
    """The granularity for identifiers from ``first`` to ``last``: days up to 1,000 days, weeks up to 250 weeks, else months.

    The limits keep the number of partitions small enough for people to find one in Dagster's UI.
    """
    days = (last - first) // cursor_type.steps_per_day + 1
    if days <= MOST_PARTITIONS:
        return Granularity.DAY
    return Granularity.WEEK if days <= 7 * MOST_PARTITIONS // 4 else Granularity.MONTH


@dataclass(frozen=True)
class TimePartitions:
    """Consecutive partitions by hour, day, week or month.

    ``first`` and ``last`` are the starts of the first and the last partition, in units of the cursor type. Keys are Dagster's:
    ``2025-01-31``, and ``2025-01-31-14:00`` for hours. A method that takes a key raises ConfigurationError if there is no such partition.
    """

    cursor_type: CursorType
    granularity: Granularity
    first: int
    last: int

    def key_of(self, value: int) -> str:
        """The key of the partition that the value belongs to. Values outside the calendar belong to the first or the last partition."""
        return self._key(self._start_of(value))

    def keys_of(self, values: Iterable[int]) -> set[str]:
        """The keys of the partitions that the values belong to. Many values are first reduced to the days, or hours, that they lie in."""
        is_hourly = self.granularity is Granularity.HOUR and self.cursor_type is not CursorType.DATE
        unit = MICROS_PER_HOUR if is_hourly else self.cursor_type.steps_per_day
        return {self.key_of(place * unit) for place in {value // unit for value in values}}

    def window_of(self, key: str) -> Window:
        """The window of one partition. That of the first has no lower bound, that of the last no upper bound."""
        start = self._start(key)
        upper = None if start >= self.last else next_start(self.cursor_type, self.granularity, start)
        return Window(None if start == self.first else start, upper)

    def windows_of(self, keys: Iterable[str]) -> tuple[Window, ...]:
        """The windows of several partitions, joined where they are adjacent, ascending."""
        return merge(self.window_of(key) for key in keys)

    def keys_between(self, lower: int | None, upper: int | None) -> list[str]:
        """The keys of the partitions that overlap ``[lower, upper]``, ascending. Both bounds are inclusive; None means no bound.

        There is always at least one key.
        """
        start = self.first if lower is None else self._start_of(lower)
        end = self.last if upper is None else min(max(upper, self.first), self.last)
        keys: list[str] = []
        while start <= end or not keys:
            keys.append(self._key(start))
            start = next_start(self.cursor_type, self.granularity, start)
        return keys

    def starts(self) -> list[int]:
        """The starts of all partitions but the first one, ascending: where the axis can be cut without cutting a partition."""
        found: list[int] = []
        start = self.first
        while start < self.last:
            start = next_start(self.cursor_type, self.granularity, start)
            found.append(start)
        return found

    def keys_before(self, key: str, count: int) -> list[str]:
        """The keys of up to ``count`` partitions immediately before this one, ascending."""
        start = self._start(key)
        keys: list[str] = []
        while len(keys) < count and start > self.first:
            start = floor_to(self.cursor_type, self.granularity, start - 1)
            keys.insert(0, self._key(start))
        return keys

    def from_value(self, value: int) -> Window:
        """The window from the start of the value's partition on, without an upper bound."""
        start = self._start_of(value)
        return Window(None if start == self.first else start, None)

    def _start_of(self, value: int) -> int:
        return min(max(floor_to(self.cursor_type, self.granularity, value), self.first), self.last)

    def _key(self, start: int) -> str:
        day = format_value(CursorType.DATE, start // self.cursor_type.steps_per_day)
        if self.granularity is not Granularity.HOUR:
            return day
        return f"{day}-{start % MICROS_PER_DAY // MICROS_PER_HOUR:02d}:00"

    def _start(self, key: str) -> int:
        span = f"by {self.granularity.value} from {self._key(self.first)} to {self._key(self.last)}"
        outside = f"there is no partition {key!r}; the partitions go {span}."
        try:
            if self.granularity is Granularity.HOUR:
                start = parse_value(CursorType.TIMESTAMP_NTZ, f"{key[:10]}T{key[11:]}")
            else:
                start = parse_value(CursorType.DATE, key) * self.cursor_type.steps_per_day
        except ConfigurationError as error:
            raise ConfigurationError(outside) from error
        if self._key(start) != key or floor_to(self.cursor_type, self.granularity, start) != start or not self.first <= start <= self.last:
            raise ConfigurationError(outside)
        return start


@dataclass(frozen=True)
class IntegerPartitions:
    """Partitions of ``width`` integers each; a key is the lower bound as text. With ``partition_by: batch`` the width is 1.

    ``known``: the lower bounds of the existing partitions, ascending. The first partition has no lower bound, the last one no upper bound.
    Between two neighbouring keys there may be ranges without a partition, as no row had a value there when the keys were added; a window
    over both partitions covers the range between them. A method that takes a key raises ConfigurationError if there is no such partition.
    """

    width: int
    known: tuple[int, ...] = ()

    def key_of(self, value: int) -> str:
        """The key of the partition that the value belongs to. It may not exist yet; values below all known keys belong to the first one."""
        start = value // self.width * self.width
        return str(max(start, self.known[0]) if self.known else start)

    def keys_of(self, values: Iterable[int]) -> set[str]:
        """The keys of the partitions that the values belong to, as ``key_of`` gives them."""
        return {self.key_of(place * self.width) for place in {value // self.width for value in values}}

    def window_of(self, key: str) -> Window:
        """The window of one partition. That of the first has no lower bound, that of the last no upper bound."""
        return self.windows_of([key])[0]

    def windows_of(self, keys: Iterable[str]) -> tuple[Window, ...]:
        """The windows of several partitions, joined where they are adjacent, ascending."""
        positions = {self._position(key) for key in keys}
        windows: list[Window] = []
        for position in sorted(positions):
            lower = self.known[position] if position else None
            last = position + 1 == len(self.known)
            # If the next known partition is requested too, the window ends where that one begins: rows that have appeared in between,
            # and whose partition has no key yet, are covered by the request.
            upper = None if last else self.known[position + 1] if position + 1 in positions else self.known[position] + self.width
            windows.append(Window(lower, upper))
        return merge(windows)

    def keys_between(self, lower: int | None, upper: int | None) -> list[str]:
        """The known keys of the partitions that overlap ``[lower, upper]``, ascending. Both bounds are inclusive; None means no bound."""
        if not self.known:
            return []
        low = self.known[0] if lower is None else int(self.key_of(lower))
        return [str(k) for k in self.known if k >= low and (upper is None or k <= upper or k == self.known[0])]

    def starts(self) -> Sequence[int]:
        """The starts of all known partitions but the first one, ascending: where the axis can be cut without cutting a partition."""
        return self.known[1:]

    def keys_before(self, key: str, count: int) -> list[str]:
        """The known keys of up to ``count`` partitions immediately before this one, ascending."""
        position = self._position(key)
        return [str(start) for start in self.known[max(0, position - count) : position]]

    def from_value(self, value: int) -> Window:
        """The window from the start of the value's range on, without an upper bound, whether that range has a partition yet or not."""
        start = value // self.width * self.width
        return Window(None if not self.known or start <= self.known[0] else start, None)

    def with_keys(self, keys: Iterable[str]) -> "IntegerPartitions":
        """The same partitions with further known keys."""
        return IntegerPartitions(self.width, tuple(sorted({*self.known, *map(int, keys)})))

    def _position(self, key: str) -> int:
        start = int(key) if _INTEGER_KEY.fullmatch(key) else None
        position = bisect_left(self.known, start) if start is not None else len(self.known)
        if position == len(self.known) or self.known[position] != start:
            ends = f"from {self.known[0]} to {self.known[-1]}" if self.known else "none yet"
            raise ConfigurationError(
                f"there is no partition {key!r}; the keys are lower bounds of {counted(self.width, 'value')} each, {ends}."
            )
        return position


Partitions = TimePartitions | IntegerPartitions


def contiguous_ranges(chosen: Sequence[str], ordered: Sequence[str]) -> list[tuple[str, str]]:
    """Groups the ``chosen`` keys into contiguous ranges of ``ordered``: the first and the last key of each range, in that order.

    Dagster runs several partitions in one run only if they are a contiguous range. Raises KeyError for a key that is not in ``ordered``.
    """
    positions = {key: index for index, key in enumerate(ordered)}
    runs: list[list[int]] = []
    for position in sorted(positions[key] for key in set(chosen)):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return [(ordered[run[0]], ordered[run[-1]]) for run in runs]
