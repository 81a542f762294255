"""Makes the plans of several containers in threads of this process, shortly before their turn comes.

A schedule's tick plans its containers otherwise, as it has a time limit and no turns (``side_by_side``).
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from incremental_assets.databases.postgres.kept_connections import connections_kept

T = TypeVar("T")
THREADS = 4
"""How many plans are made at a time. Each needs a connection to the source."""
AHEAD = 12
"""How many plans are made before their turn."""
FRESH_SECONDS = 10.0
"""A plan that is older when its turn comes is made anew: another container's run has taken long meanwhile."""


class PlansAhead(Generic[T]):
    """Calls each of ``plans`` once in a thread, and returns the results in the same order. A single one is called when it is taken.

    It is a context manager. When its block ends, no further plan is begun, and those that are being made are left to end by themselves.
    """

    def __init__(self, plans: Sequence[Callable[[], T]]) -> None:
        self._plans = list(plans)
        self._begun = self._taken = 0
        # By position: the result or the error, when the plan was finished, and how many seconds it took.
        self._made: dict[int, tuple[T | BaseException, float, float]] = {}
        self._changed = threading.Condition()
        self._over = False

    def __enter__(self) -> "PlansAhead[T]":
        for number in range(min(THREADS, len(self._plans)) if len(self._plans) > 1 else 0):
            threading.Thread(target=self._run, name=f"plan-{number}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def take(self) -> T:
        """The next plan. It is made again where it is too old. Raises what making it has raised."""
        if len(self._plans) == 1:
            return self._plans[0]()
        with self._changed:
            position = self._taken
            self._changed.wait_for(lambda: position in self._made)
            outcome, finished, seconds = self._made.pop(position)
            self._taken += 1
            self._changed.notify_all()
        # To plan a large container anew is as much work for its source as the first plan was, so a slow plan may be older.
        if time.monotonic() - finished > max(FRESH_SECONDS, 3 * seconds):
            return self._plans[position]()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self) -> None:
        position = self._next()
        while position is not None:
            # A connection is kept from one plan to the next, but not while this thread waits for its next turn.
            with connections_kept():
                while position is not None:
                    self._make(position)
                    position = self._next(wait=False)
            position = self._next()

    def _next(self, *, wait: bool = True) -> int | None:
        """The position of the next plan to be made; None if there is none, or if it would have to be waited for and ``wait`` is False."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._over or self._begun >= len(self._plans) or self._may_begin())
            if self._over or self._begun >= len(self._plans) or not self._may_begin():
                return None
            self._begun += 1
            return self._begun - 1

    def _may_begin(self) -> bool:
        return self._begun < self._taken + AHEAD

    def _make(self, position: int) -> None:
        began = time.monotonic()
        try:
            outcome: T | BaseException = self._plans[position]()
        except BaseException as error:  # noqa: BLE001 it is raised by take
            outcome = error
        finished = time.monotonic()
        with self._changed:
            self._made[position] = outcome, finished, finished - began
            self._changed.notify_all()
