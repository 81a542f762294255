"""Records as a table that fits a terminal: which columns fit, and what of them may be cut."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table

LEAST_CUT, LEAST_SENTENCE = 20, 40
"""How many characters of a text that is cut are left at least, and how wide the column of a sentence is at least."""
USUAL_WIDTH = 100
"""How wide a terminal has to be so that sentences have all of that; on narrower ones, they have as much as what is cut."""
SENTENCES = frozenset({"message", "why", "fields", "trouble", "safety_lag_reason"})
"""Columns whose texts are sentences. In all others a line break is part of a name."""


@dataclass(frozen=True)
class Records:
    """Records that are printed as a table with a line for each, in as many columns as the terminal is wide enough for.

    A name that is broken or cut cannot be copied: only sentences go on in the next line, and only the column ``cut`` ends in an ellipsis.
    ``rows``: the cells of each record, as texts.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    cut: str | None = None
    whole: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            yield Segment(f"{self.title}: there is nothing to show.\n")
            return
        yield Segment(f"{self.title}\n", Style(italic=True))
        shown = self._fitting(options.max_width)
        if shown is None:
            # Segments are printed as they are: the terminal breaks a long line, and it is copied as one.
            for row in self.rows:
                yield Segment(f"{row[0]}\n")
                yield from (Segment(f"  {column}: {cell}\n") for column, cell in zip(self.columns[1:], row[1:], strict=True) if cell)
            return
        yield self._table(shown, options.max_width)
        left_out = [column for column in self.columns if column not in shown and any(self._cells(column))]
        if left_out:
            yield Segment(f"not shown, as the terminal is narrow: {', '.join(left_out)}\n")

    def _cells(self, column: str) -> list[str]:
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def _width(self, column: str) -> int:
        """How wide the column is if nothing of it is cut or broken."""
        return max(map(cell_len, (column, *self._cells(column))))

    def _least_width(self, column: str, width: int) -> int:
        """How wide the column has to be on a terminal of this width."""
        if column == self.cut:
            return min(LEAST_CUT, self._width(column))
        if column in SENTENCES:
            return min(LEAST_SENTENCE if width >= USUAL_WIDTH else LEAST_CUT, self._width(column))
        return self._width(column)

    def _fitting(self, width: int) -> tuple[str, ...] | None:
        """The columns that are shown, sentences last; None: not even two of them fit. Those without a value are the least important."""

        def fits(columns: Sequence[str]) -> bool:
            # What is less important than the column that is cut takes no width from it.
            widths = [self._width(one) if one == self.cut != columns[-1] else self._least_width(one, width) for one in columns]
            return sum(widths) + len(widths) - 1 <= width

        shown = self.columns if self.whole else self.columns[:2]
        for column in () if self.whole else sorted(self.columns[2:], key=lambda one: not any(self._cells(one))):
            if fits((*shown, column)):
                shown = (*shown, column)
        if not fits(shown):
            return None
        return tuple(sorted(shown, key=lambda one: (one in SENTENCES or one == self.cut, self.columns.index(one))))

    def _table(self, shown: Sequence[str], width: int) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for column in shown:
            if column == self.cut:
                others = sum(self._width(one) + 1 for one in shown if one != column)
                table.add_column(column, overflow="ellipsis", no_wrap=True, max_width=width - others)
            else:
                table.add_column(column, overflow="fold", no_wrap=column not in SENTENCES)
        for row in zip(*map(self._cells, shown), strict=True):
            table.add_row(*row)
        return table
