"""Windows: half-open intervals of identifier values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from incremental_assets.core.cursor_type import CursorType, format_value


@dataclass(frozen=True, order=False)
class Window:
    """The half-open interval ``[lower, upper)`` of identifier values, in units of the cursor type (``core.cursor_type``).

    None means that the window has no bound on that side. ``lower == upper`` is an empty window. Raises ValueError if ``lower > upper``.
    """

    lower: int | None = None
    upper: int | None = None

    def __post_init__(self) -> None:
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(f"window ends before it begins: [{self.lower}, {self.upper})")

    @property
    def is_empty(self) -> bool:
        return self.lower is not None and self.lower == self.upper

    def contains(self, value: int) -> bool:
        return (self.lower is None or value >= self.lower) and (self.upper is None or value < self.upper)

    def intersect(self, other: "Window") -> "Window | None":
        """The window that both windows cover; None if they have no value in common."""
        lower = max((b for b in (self.lower, other.lower) if b is not None), default=None)
        upper = min((b for b in (self.upper, other.upper) if b is not None), default=None)
        return None if lower is not None and upper is not None and lower >= upper else Window(lower, upper)


EVERYTHING = Window()


def merge(windows: Iterable[Window]) -> tuple[Window, ...]:
    """The union of the windows, as the smallest possible number of disjoint windows in ascending order. Adjacent windows are joined."""
    merged: list[Window] = []
    # Windows without a lower bound sort first (False < True); among those that have one, the lower bound decides.
    for window in sorted(windows, key=lambda w: (w.lower is not None, w.lower or 0)):
        last = merged[-1] if merged else None
        if last is not None and (last.upper is None or window.lower is None or window.lower <= last.upper):
            upper = None if last.upper is None or window.upper is None else max(last.upper, window.upper)
            merged[-1] = Window(last.lower, upper)
        else:
            merged.append(window)
    return tuple(merged)


def without(windows: Iterable[Window], removed: Iterable[Window]) -> tuple[Window, ...]:
    """What is left of the windows once all values of the removed ones are taken out, as disjoint windows in ascending order."""
    rest = [window for window in merge(windows) if not window.is_empty]
    for gone in merge(removed):
        if gone.is_empty:
            continue
        parts: list[Window] = []
        for window in rest:
            below = window if gone.lower is None else window.intersect(Window(None, gone.lower))
            above = window if gone.upper is None else window.intersect(Window(gone.upper, None))
            parts += [part for part, is_left in ((below, gone.lower is not None), (above, gone.upper is not None)) if part and is_left]
        rest = parts
    return tuple(rest)


def covered_from(windows: Iterable[Window], start: int | None) -> int | bool | None:
    """The end of the range that the windows cover without a gap, beginning at ``start`` (None: at −∞).

    Returns True if the range has no upper end, an integer for its exclusive upper end, and None if ``start`` itself is not covered. The
    result is never False: compare it with ``is True``, as 1 is a valid upper end.
    """
    for window in merge(windows):
        if window.lower is None or (start is not None and window.lower <= start):
            if window.upper is None:
                return True
            if start is None or window.upper > start:
                return window.upper
    return None


def in_words(cursor_type: CursorType | None, windows: Sequence[Window]) -> str:
    """The windows as text for a message: up to four of them, then the number of the others.

    Without a cursor type (a container without identifier), and for the one window without bounds, the text is "the whole container".
    """
    if cursor_type is None or tuple(windows) == (EVERYTHING,):
        return "the whole container"

    def shown_end(value: int | None, infinite: str) -> str:
        return infinite if value is None else format_value(cursor_type, value)

    shown = [f"[{shown_end(w.lower, '-∞')}, {shown_end(w.upper, '∞')})" for w in windows[:4]]
    return ", ".join(shown) + (f" and {len(windows) - 4} more" if len(windows) > 4 else "")
