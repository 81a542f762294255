"""Watches a snapshot of the source while it is held, and ends it if it is held too long: what is the same for every database."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits

log = logging.getLogger(__name__)

MOST_BETWEEN_LOOKS = 5.0
"""The longest time between two checks, in seconds."""


class Closable(Protocol):
    """A connection that can be closed."""

    def close(self) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=Closable)


class WatchedSnapshot(ABC, Generic[ConnectionT]):
    """Watches one snapshot from a thread and over a connection of its own.

    ``label``: the container's, for messages. ``interrupt``: cancels the write that reads from the snapshot. ``reason``: why the snapshot
    was ended; None as long as it was not. ``_connection`` is opened by the implementation.
    """

    def __init__(self, label: str, limits: Limits, interrupt: Callable[[], None]) -> None:
        self._label, self._limits, self._interrupt = label, limits, interrupt
        self._since = time.monotonic()
        self._connection: ConnectionT | None = None
        self._over, self._at_work = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"snapshot-{label}", daemon=True)
        self.reason: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread. Nothing is ended after this."""
        self._over.set()
        with self._at_work:
            if self._connection is not None:
                self._connection.close()

    @property
    def seconds(self) -> float:
        """For how many seconds the snapshot has been held."""
        return time.monotonic() - self._since

    @property
    def seconds_left(self) -> float:
        """For how many seconds the snapshot may still be held."""
        return max(0.0, self._limits.snapshot - self.seconds)

    def check(self) -> None:
        """Checks once more, right before a commit. Raises SourceError if a limit is passed."""
        with self._at_work:
            if self.reason is None:
                self._look()
        if self.reason is not None:
            raise SourceError(self.reason)

    # ------------------------------------------------------------------ of the implementation
    @abstractmethod
    def _look_for_waiting(self) -> None:
        """Ends the snapshot by ``_end`` if somebody has waited for it for too long."""

    @abstractmethod
    def _end_sessions(self) -> None:
        """Ends the sessions that hold the snapshot, as far as they still exist. It raises no error."""

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        """Checks until ``stop`` is called or a limit is passed: often enough to see a session that waits, and once the time is over."""
        while not self._over.wait(min(MOST_BETWEEN_LOOKS, max(0.2, self._limits.blocking / 4), self.seconds_left + 0.01)):
            with self._at_work:
                if self._over.is_set():
                    return
                self._look()
                ended = self.reason is not None
            if ended:
                try:
                    self._interrupt()
                except Exception as error:  # noqa: BLE001 the snapshot is ended, so the write fails anyway
                    log.warning("%s: could not interrupt the write: %s", self._label, type(error).__name__)
                return

    def _look(self) -> None:
        if self.seconds >= self._limits.snapshot:
            self._end(self._out_of_time())
            return
        self._look_for_waiting()

    def _out_of_time(self) -> str:
        return (
            f"{self._label}: the snapshot of the source was held for {self._limits.snapshot} s, which is all that max_snapshot_seconds "
            "allows; nothing of it was written, and what was committed before stays. Let it be held for longer (max_snapshot_seconds), or "
            "read less at a time: a lower load_rows for a load that goes window by window, fewer partitions in one refresh."
        )

    def _end(self, reason: str) -> None:
        """Ends the snapshot. The write is cancelled separately, by ``_interrupt``."""
        self.reason = reason
        self._end_sessions()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
