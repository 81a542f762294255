"""Half-open intervals on an identifier's axis.

Belongs here: one window, what sets of windows need, and saying them in words. Does not belong: which key a window has (``partitions``),
or SQL.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from incremental_assets.core.axis import Axis, format_value


@dataclass(frozen=True, order=False)
class Window:
    """``[lower, upper)``; ``None`` is without bound on that side."""

    lower: int | None = None
    upper: int | None = None

    def __post_init__(self) -> None:
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(f"window ends before it begins: [{self.lower}, {self.upper})")

    def contains(self, value: int) -> bool:
        return (self.lower is None or value >= self.lower) and (self.upper is None or value < self.upper)

    def intersect(self, other: "Window") -> "Window | None":
        """What both cover, or None."""
        lower = max((b for b in (self.lower, other.lower) if b is not None), default=None)
        upper = min((b for b in (self.upper, other.upper) if b is not None), default=None)
        return None if lower is not None and upper is not None and lower >= upper else Window(lower, upper)


EVERYTHING = Window()


def merge(windows: Iterable[Window]) -> tuple[Window, ...]:
    """The same ground in as few windows as possible, ascending."""
    merged: list[Window] = []
    for window in sorted(windows, key=lambda w: (w.lower is not None, w.lower or 0)):
        last = merged[-1] if merged else None
        if last is not None and (last.upper is None or window.lower is None or window.lower <= last.upper):
            upper = None if last.upper is None or window.upper is None else max(last.upper, window.upper)
            merged[-1] = Window(last.lower, upper)
        else:
            merged.append(window)
    return tuple(merged)


def covered_from(windows: Iterable[Window], start: int | None) -> int | bool | None:
    """How far the windows cover the axis without a gap from ``start`` (None: from the very beginning).

    True: to the end of the axis. An integer: up to it, exclusive. None: ``start`` itself is not covered.
    """
    for window in merge(windows):
        if window.lower is None or (start is not None and window.lower <= start):
            if window.upper is None:
                return True
            if start is None or window.upper > start:
                return window.upper
    return None


def in_words(axis: Axis | None, windows: Sequence[Window]) -> str:
    """The windows for a message; the whole container where there is no axis."""
    if axis is None or tuple(windows) == (EVERYTHING,):
        return "the whole container"
    shown = [
        f"[{'-∞' if w.lower is None else format_value(axis, w.lower)}, {'∞' if w.upper is None else format_value(axis, w.upper)})"
        for w in windows[:4]
    ]
    return ", ".join(shown) + (f" and {len(windows) - 4} more" if len(windows) > 4 else "")
