"""The lag window of an incremental sync: ``[watermark - lag, ∞)``, the range of identifier values that each sync reads again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.window import Window, covered_from
from incremental_assets.core.zones import set_back


@dataclass(frozen=True)
class LagWindow:
    """The lag window of one container, apart from its watermark.

    ``start``: the inclusive lower end of the domain, below which nothing is ever read (None: there is no such bound). ``lag``: the safety
    lag in units of the cursor type (``CursorType.lag_steps``). ``zone``: that of dates and local times. Where clocks there are set back,
    rows of the second time come below a watermark of the first: while it lies in the hour that is shown twice, the window covers that hour.
    """

    start: int | None
    lag: int
    cursor_type: CursorType = CursorType.INTEGER
    zone: str = "UTC"

    def window(self, watermark: int | None) -> Window:
        """The window ``[watermark - lag, ∞)``, cut to the domain. Without a watermark it is the whole domain."""
        return self._below(watermark, None)

    def pieces(self, whole: Window, edges: Sequence[int]) -> list[Window]:
        """Divides ``whole`` at the ascending ``edges``, which lie inside it.

        Each piece is a commit that moves the watermark to its upper end, so that the next piece begins the lag below that end: neighbouring
        pieces overlap by the lag.
        """
        if not edges:
            return [whole]
        later = zip(edges, [*edges[1:], whole.upper], strict=True)
        return [Window(whole.lower, edges[0]), *(self._below(edge, upper) for edge, upper in later)]

    def covered_to(self, windows: Iterable[Window], watermark: int | None) -> int | bool | None:
        """The end of the range that the windows cover without a gap from the lower end of the lag window on (see ``covered_from``).

        Coverage from the watermark itself is not enough: late rows within the lag would be left behind for good.
        """
        return covered_from(windows, self.window(watermark).lower)

    def _below(self, value: int | None, upper: int | None) -> Window:
        if value is None:
            return Window(self.start, upper)
        lower = value - max(self.lag, set_back(self.cursor_type, value, self.zone))
        return Window(lower if self.start is None else max(lower, self.start), upper)
