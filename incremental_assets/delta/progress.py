"""How far a run is, for people who wait: from time to time in its log, or all the time on a display."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from incremental_assets.core.shown_text import counted
from incremental_assets.spark.progress import TaskProgress

LOG_SECONDS = 5.0
"""The shortest time between two lines in the log, and how long something takes at least that is logged."""


class Phase(str, Enum):
    """What a sync is doing."""

    STARTS = "starts Spark"
    READS = "reads and writes"
    COUNTS = "counts rows and logs events"


@dataclass(frozen=True)
class Progress:
    """How far the sync of a container is.

    ``rows``: read so far, of ``expected``, both about: of a batch that Spark reads, it is the share of its tasks that are done.
    ``seconds``: from the beginning of the first batch to when this was known, without those in which Spark was started. ``waited``: since
    then.
    """

    container: str
    phase: Phase
    rows: int = 0
    expected: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def text(self) -> str:
        """One line for people, without the container."""
        words = [self.phase.value]
        if self.rows:
            words.append(f"{self.rows:,} of about {counted(max(self.expected, self.rows), 'row')}")
        elif self.expected:
            words.append(f"about {counted(self.expected, 'row')}")
        pace = self.rows / self.seconds if self.seconds >= 1 and self.phase is Phase.READS else 0.0
        if pace >= 1:
            words.append(f"{pace:,.0f} rows a second")
            if self.expected > self.rows:
                words.append(f"about {max((self.expected - self.rows) / pace - self.waited, 0):.0f} s left")
        else:
            words.append(f"{self.seconds + self.waited:.0f} s")
        return ", ".join(words)


class Display(Protocol):
    """What shows how far the syncs of this process are."""

    def show(self, container: str, progress: Progress | None) -> None:
        """Shows the progress of a container; None: its sync has ended."""
        ...


_displays: list[Display] = []
"""The display of this process, if it has one. The runs of Dagster, which report to it, get no objects of those who start them."""


@contextlib.contextmanager
def displayed_by(display: Display) -> Iterator[None]:
    """Within the block, the display shows how far syncs are, and it is not logged where people would read both."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)


def is_displayed() -> bool:
    """Whether this process has a display."""
    return bool(_displays)


def show(container: str, progress: Progress | None) -> None:
    """Shows the progress on the display of this process, if it has one."""
    for display in _displays:
        display.show(container, progress)


class RunProgress:
    """Reports how far a run is.

    ``log``: gets lines for people. ``log_unseen``: gets the lines while there is a display: it writes to a log that nobody reads meanwhile.
    """

    def __init__(self, log: Callable[[str], None], log_unseen: Callable[[str], None]) -> None:
        self._log, self._log_unseen = log, log_unseen
        self._logged_at = time.monotonic()
        self._now: Progress | None = None
        self._expected: int | None = None
        self._started = 0.0
        self._committed = self._batch = self._read = 0
        self._reading = threading.Lock()

    def begin(self, container: str, expected: int | None = None) -> None:
        """A sync begins to read. ``expected``: about how many rows, in all its batches; None: it is not known."""
        self._expected, self._started = expected, time.monotonic()
        self._committed = self._batch = self._read = 0
        self._now = Progress(container, Phase.READS, 0, expected or 0)
        show(container, self._now)

    @contextlib.contextmanager
    def starts_spark(self) -> Iterator[None]:
        """Within the block, a server is started, which takes seconds, and minutes where it is fetched first."""
        began = time.monotonic()
        if self._now is not None:
            show(self._now.container, Progress(self._now.container, Phase.STARTS))
        try:
            yield
        finally:
            self._started += time.monotonic() - began
            if self._now is not None:
                show(self._now.container, self._now)

    def reads(self, expected: int) -> None:
        """A batch of about so many rows is being read and written."""
        self._batch, self._read = expected, 0
        self._report(self._committed)

    def read(self, rows: int) -> None:
        """So many more rows of the batch were read by this process. Several threads may say so at once."""
        with self._reading:
            self._read += rows
            self._report(self._committed + self._read)
            if self._now is not None:
                self._write(f"{self._now.container}: {self._now.text()}")

    def committed(self, rows: int) -> None:
        """The batch is committed: it had so many rows."""
        self._committed += rows
        self._batch = 0
        self._report(self._committed)

    def counts(self) -> None:
        """All batches are committed."""
        if self._now is not None:
            self._now = replace(self._now, phase=Phase.COUNTS)
            self._report(self._committed)

    def end(self) -> None:
        """The sync has ended."""
        if self._now is not None:
            show(self._now.container, None)
            self._now = None

    def tasks(self, found: TaskProgress) -> None:
        """Spark reports on the query that it executes for this run."""
        if self._now is None or self._now.phase is not Phase.READS:
            self._write(found.text())
            return
        share = found.completed / found.tasks if found.tasks else 0.0
        self._report(self._committed + int(self._batch * share))
        self._write(f"{self._now.container}: {self._now.text()}")

    def _report(self, rows: int) -> None:
        """Of a batch that this process has read, Spark writes the files, and its tasks count from nothing again: what was said stays."""
        if self._now is None:
            return
        rows = max(rows, self._now.rows) if self._now.phase is Phase.READS else rows
        expected = self._expected if self._expected is not None else self._committed + self._batch
        self._now = replace(self._now, rows=rows, expected=expected, seconds=time.monotonic() - self._started)
        show(self._now.container, self._now)

    def _write(self, text: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            (self._log_unseen if _displays else self._log)(text)
