"""Partitions: how an axis is cut, and which window each key is.

Belongs here: key ↔ window, for time and for integers, with the two rules that no row may escape: the first window reaches down to −∞ and
the last one up to ∞. Does not belong: Dagster's definitions made from this (orchestration), or predicates.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from incremental_assets.core.axis import MICROS_PER_DAY, Axis, civil_from_days, days_from_civil, format_value, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.window import Window, merge

MICROS_PER_HOUR = MICROS_PER_DAY // 24
MOST_PARTITIONS = 1000
_INTEGER_KEY = re.compile(r"0|-?[1-9][0-9]*")


class Granularity(str, Enum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def floor_to(axis: Axis, granularity: Granularity, value: int) -> int:
    """The start of the hour, day, week (Sunday, as Dagster's) or month that ``value`` lies in, on the same axis."""
    if granularity is Granularity.HOUR:
        return value // MICROS_PER_HOUR * MICROS_PER_HOUR if axis is not Axis.DAY else value
    day = value // axis.steps_per_day
    if granularity is Granularity.WEEK:
        day -= (day + 4) % 7  # 1970-01-01 was a Thursday, the fourth day after a Sunday
    elif granularity is Granularity.MONTH:
        year, month, _ = civil_from_days(day)
        day = days_from_civil(year, month, 1)
    return day * axis.steps_per_day


def next_start(axis: Axis, granularity: Granularity, start: int) -> int:
    """The start of the following hour, day, week or month."""
    if granularity is Granularity.HOUR:
        return start + MICROS_PER_HOUR
    if granularity is Granularity.MONTH:
        year, month, _ = civil_from_days(start // axis.steps_per_day)
        return days_from_civil(year + month // 12, month % 12 + 1, 1) * axis.steps_per_day
    return start + (7 if granularity is Granularity.WEEK else 1) * axis.steps_per_day


def default_granularity(axis: Axis, first: int, last: int) -> Granularity:
    """Days up to 1,000 of them, weeks up to 250, else months: a calendar that people can still find their way in."""
    days = (last - first) // axis.steps_per_day + 1
    if days <= MOST_PARTITIONS:
        return Granularity.DAY
    return Granularity.WEEK if days <= 7 * MOST_PARTITIONS // 4 else Granularity.MONTH


@dataclass(frozen=True)
class TimePartitions:
    """Consecutive hours, days, weeks or months; ``first`` and ``last`` are the starts of the first and the last one."""

    axis: Axis
    granularity: Granularity
    first: int
    last: int

    def key_of(self, value: int) -> str:
        """The key of the partition that the value belongs to, however early or late it is."""
        return self._key(self._start_of(value))

    def window_of(self, key: str) -> Window:
        start = self._start(key)
        upper = None if start >= self.last else next_start(self.axis, self.granularity, start)
        return Window(None if start == self.first else start, upper)

    def windows_of(self, keys: Iterable[str]) -> tuple[Window, ...]:
        return merge(self.window_of(key) for key in keys)

    def keys_between(self, lower: int | None, upper: int | None) -> list[str]:
        """Keys of the partitions that ``[lower, upper]`` touches (upper inclusive), ascending."""
        start = self.first if lower is None else self._start_of(lower)
        end = self.last if upper is None else min(max(upper, self.first), self.last)
        keys: list[str] = []
        while start <= end or not keys:
            keys.append(self._key(start))
            start = next_start(self.axis, self.granularity, start)
        return keys

    def keys_before(self, key: str, count: int) -> list[str]:
        """Keys of up to so many partitions before this one, ascending."""
        start = self._start(key)
        keys: list[str] = []
        while len(keys) < count and start > self.first:
            start = floor_to(self.axis, self.granularity, start - 1)
            keys.insert(0, self._key(start))
        return keys

    def from_value(self, value: int) -> Window:
        """From the beginning of the partition that the value belongs to, on."""
        start = self._start_of(value)
        return Window(None if start == self.first else start, None)

    def _start_of(self, value: int) -> int:
        return min(max(floor_to(self.axis, self.granularity, value), self.first), self.last)

    def _key(self, start: int) -> str:
        day = format_value(Axis.DAY, start // self.axis.steps_per_day)
        if self.granularity is not Granularity.HOUR:
            return day
        return f"{day}-{start % MICROS_PER_DAY // MICROS_PER_HOUR:02d}:00"

    def _start(self, key: str) -> int:
        span = f"by {self.granularity.value} from {self._key(self.first)} to {self._key(self.last)}"
        outside = f"there is no partition {key!r}; the partitions go {span}."
        try:
            if self.granularity is Granularity.HOUR:
                start = parse_value(Axis.LOCAL, f"{key[:10]}T{key[11:]}")
            else:
                start = parse_value(Axis.DAY, key) * self.axis.steps_per_day
        except ConfigurationError as error:
            raise ConfigurationError(outside) from error
        if self._key(start) != key or floor_to(self.axis, self.granularity, start) != start or not self.first <= start <= self.last:
            raise ConfigurationError(outside)
        return start


@dataclass(frozen=True)
class IntegerPartitions:
    """Ranges of ``width`` integers, named by their lower bound; ``batch`` (width 1): one partition a value.

    ``known`` are the lower bounds of the partitions there are, ascending. The first reaches down to −∞, the last up to ∞; between two known
    ones there may be ground without rows, which a range over both covers.
    """

    width: int
    known: tuple[int, ...] = ()

    def key_of(self, value: int) -> str:
        start = value // self.width * self.width
        return str(max(start, self.known[0]) if self.known else start)

    def window_of(self, key: str) -> Window:
        return self.windows_of([key])[0]

    def windows_of(self, keys: Iterable[str]) -> tuple[Window, ...]:
        positions = {self._position(key) for key in keys}
        windows: list[Window] = []
        for position in sorted(positions):
            lower = self.known[position] if position else None
            last = position + 1 == len(self.known)
            # Two neighbours in one request leave no gap between them: what has no key yet lies there.
            upper = None if last else self.known[position + 1] if position + 1 in positions else self.known[position] + self.width
            windows.append(Window(lower, upper))
        return merge(windows)

    def keys_between(self, lower: int | None, upper: int | None) -> list[str]:
        """Known keys of the partitions that ``[lower, upper]`` touches (upper inclusive), ascending."""
        if not self.known:
            return []
        low = self.known[0] if lower is None else int(self.key_of(lower))
        return [str(k) for k in self.known if k >= low and (upper is None or k <= upper or k == self.known[0])]

    def keys_before(self, key: str, count: int) -> list[str]:
        """Known keys of up to so many partitions before this one, ascending."""
        position = self._position(key)
        return [str(start) for start in self.known[max(0, position - count) : position]]

    def from_value(self, value: int) -> Window:
        """From the beginning of the range that the value lies in, on, whether there is a partition yet or not."""
        start = value // self.width * self.width
        return Window(None if not self.known or start <= self.known[0] else start, None)

    def with_keys(self, keys: Iterable[str]) -> "IntegerPartitions":
        return IntegerPartitions(self.width, tuple(sorted({*self.known, *map(int, keys)})))

    def _position(self, key: str) -> int:
        start = int(key) if _INTEGER_KEY.fullmatch(key) else None
        position = bisect_left(self.known, start) if start is not None else len(self.known)
        if position == len(self.known) or self.known[position] != start:
            ends = f"from {self.known[0]} to {self.known[-1]}" if self.known else "none yet"
            raise ConfigurationError(f"there is no partition {key!r}; the keys are lower bounds of {self.width} values, {ends}.")
        return position


Partitions = TimePartitions | IntegerPartitions


def stretches(chosen: Sequence[str], ordered: Sequence[str]) -> list[tuple[str, str]]:
    """The (first, last) of each run of ``chosen`` keys that are neighbours in ``ordered``: one Dagster range run each."""
    positions = {key: index for index, key in enumerate(ordered)}
    runs: list[list[int]] = []
    for position in sorted(positions[key] for key in set(chosen)):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return [(ordered[run[0]], ordered[run[-1]]) for run in runs]
