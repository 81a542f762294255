"""What an incremental sync reads: the axis from the safety lag below the watermark on.

Belongs here: that ground, its pieces where it is too large for one transaction, and how far a read of given windows lets the watermark
follow. Does not belong: who holds it back (``watermark``), how many rows lie where (sources).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from incremental_assets.core.window import Window, covered_from


@dataclass(frozen=True)
class Tail:
    """``start``: inclusive, nothing below is ever synced (None: no such bound). ``lag``: in steps of the axis."""

    start: int | None
    lag: int

    def window(self, watermark: int | None) -> Window:
        """``[watermark - lag, ∞)``; all there is where there is no watermark."""
        return self._below(watermark, None)

    def pieces(self, whole: Window, edges: Sequence[int]) -> list[Window]:
        """``whole`` cut at the ascending ``edges``. Each piece moves the watermark to its end, so the next one reads the lag below it."""
        if not edges:
            return [whole]
        later = zip(edges, [*edges[1:], whole.upper], strict=True)
        return [Window(whole.lower, edges[0]), *(self._below(edge, upper) for edge, upper in later)]

    def covered_to(self, windows: Iterable[Window], watermark: int | None) -> int | bool | None:
        """How far the windows cover, without a gap, what a sync from ``watermark`` would read (as ``covered_from``).

        Coverage from the watermark itself is not enough: late rows inside the lag would be left behind for good.
        """
        return covered_from(windows, self.window(watermark).lower)

    def _below(self, value: int | None, upper: int | None) -> Window:
        if value is None:
            return Window(self.start, upper)
        lower = value - self.lag
        return Window(lower if self.start is None else max(lower, self.start), upper)
