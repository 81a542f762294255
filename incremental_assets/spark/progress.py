"""How far a query of Spark's is, as Spark Connect reports it about every two seconds."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskProgress:
    """The tasks of a query that runs.

    ``read``: bytes of files; a query that reads something else has none. ``seconds``: since the query began. Spark may find out later that
    there are more tasks.
    """

    completed: int
    tasks: int
    running: int
    read: int
    seconds: float

    def text(self) -> str:
        """One line for people. The time that is left is that of as many tasks as are left, at the pace so far."""
        words = [f"Spark: {self.completed:,} of {self.tasks:,} tasks done, {self.running:,} running"]
        if self.read:
            words.append(f"{_bytes(self.read)} read")
        words.append(f"{self.seconds:.0f} s")
        if self.completed and self.tasks > self.completed:
            words.append(f"about {self.seconds * (self.tasks - self.completed) / self.completed:.0f} s left")
        return ", ".join(words)


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


class TaskReports:
    """A progress handler of Spark Connect that passes on what it is given as ``TaskProgress``."""

    def __init__(self, report: Callable[[TaskProgress], None]) -> None:
        self._report = report
        self._since: dict[str | None, float] = {}

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        now = time.monotonic()
        if done:
            self._since.pop(operation_id, None)
            return
        since = self._since.setdefault(operation_id, now)
        found = list(stages or ())
        if not found:
            return
        tasks, completed = sum(s.num_tasks for s in found), sum(s.num_completed_tasks for s in found)
        self._report(TaskProgress(completed, tasks, inflight_tasks, sum(s.num_bytes_read for s in found), now - since))
