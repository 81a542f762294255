"""Which rows of a user's own table belong to partitions: conditions on the columns or expressions that the partitions go by."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.window import Window, merge


@dataclass(frozen=True)
class PartitionExpr:
    """What one dimension of the partitions goes by: the column of this name, or the user's expression in Spark SQL over the columns."""

    text: str
    is_column: bool = True


@dataclass(frozen=True)
class Condition:
    """The rows in which ``of`` lies in one of the windows or, if ``cursor_type`` is None, is one of the texts."""

    of: PartitionExpr
    cursor_type: CursorType | None
    windows: tuple[Window, ...] = ()
    texts: tuple[str, ...] = ()


Box = tuple[Condition, ...]
"""The rows for which all of the conditions hold: one condition for each dimension of the partitions."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a table's partitions.

    ``of``: what it goes by. ``windows``: the windows of each key; without a cursor type, it is empty, and the values are the keys
    themselves. ``together``: the windows of all keys, where they are more than those of the single keys.
    """

    of: PartitionExpr
    cursor_type: CursorType | None
    windows: Mapping[str, tuple[Window, ...]]
    together: tuple[Window, ...] | None = None

    def condition(self, keys: Sequence[str]) -> Condition:
        """The condition for the rows of these keys."""
        if self.cursor_type is None:
            return Condition(self.of, None, texts=tuple(dict.fromkeys(keys)))
        if self.together is not None:
            return Condition(self.of, self.cursor_type, self.together)
        return Condition(self.of, self.cursor_type, merge(window for key in keys for window in self.windows[key]))

    @cached_property
    def _starts(self) -> list[tuple[int, int, str]]:
        """The lower bound, the upper bound and the key of each window, in ascending order."""
        return sorted((w.lower or 0, w.upper or 0, key) for key, windows in self.windows.items() for w in windows)

    @cached_property
    def step(self) -> int:
        """A width into which the axis can be cut so that each piece that begins at a multiple of it lies in one window, or in none."""
        return reduce(math.gcd, (bound for lower, upper, _ in self._starts for bound in (lower, upper)), 0) or 1

    def key_of(self, value: int | str | None) -> str | None:
        """The key of the rows with this value; None if it lies in no window."""
        if self.cursor_type is None or value is None:
            return value if isinstance(value, str) else None
        at = bisect_right(self._starts, (int(value), math.inf, "")) - 1
        if at < 0:
            return None
        lower, upper, key = self._starts[at]
        return key if lower <= int(value) < upper else None


@dataclass(frozen=True)
class OwnRows:
    """The partitions of a run on the rows of its table. ``keys``: the key on each axis of every partition, and its own key."""

    axes: tuple[Axis, ...]
    keys: Mapping[tuple[str, ...], str]

    def boxes(self) -> list[Box]:
        """The rows of all partitions, as few boxes: partitions that differ only on the first axis share one."""
        first, *others = self.axes
        firsts: dict[tuple[str, ...], list[str]] = {}
        for key, *rest in self.keys:
            firsts.setdefault(tuple(rest), []).append(key)
        if not others:
            return [(first.condition(keys),) for keys in firsts.values()]
        # Those with the same keys on the first axis are joined on the second one. Dagster's partitions have at most two.
        seconds: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for rest, keys in firsts.items():
            seconds.setdefault(tuple(sorted(keys)), []).append(rest)
        if len(others) == 1:
            return [(first.condition(keys), others[0].condition([key for (key,) in rests])) for keys, rests in seconds.items()]
        return [
            (first.condition(keys), *(axis.condition([key]) for axis, key in zip(others, rest, strict=True)))
            for keys, rests in seconds.items()
            for rest in rests
        ]

    def partition_of(self, values: Sequence[int | str | None]) -> str | None:
        """The key of the partition of rows with these values; None if they are of none of the partitions."""
        found = [axis.key_of(value) for axis, value in zip(self.axes, values, strict=True)]
        return self.keys.get(tuple(key for key in found if key is not None))
