"""Watches a snapshot of MySQL while it is held, and ends it if it is held too long or blocks somebody for too long.

Belongs here: the checks over a second connection, and ending the snapshot. Does not belong: the limits (``databases.limits``), opening a
snapshot (``session``), and the write that reads from it (``delta``).
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.mysql.connection import MySQLAddress, MySQLConnection, driver

log = logging.getLogger(__name__)

MOST_BETWEEN_LOOKS = 5.0
"""The longest time between two checks, in seconds."""
# A transaction keeps a metadata lock on each table that it has read, for which ALTER, TRUNCATE and the like wait, and others behind those.
# Which table a session waits for is not in this list, so that its statement must name ours.
_WAITING = """
select id, user, substring_index(trim(info), ' ', 2) from information_schema.processlist
where state like 'Waiting for table metadata lock%%' and time >= %s and locate(%s, info) > 0
"""


class SnapshotWatch:
    """Watches one snapshot from a thread and over a connection of its own.

    ``holder``: the id of the session that holds the snapshot. ``interrupt``: cancels the write that reads from the snapshot. ``reason``:
    why the snapshot was ended; None as long as it was not.
    """

    def __init__(self, address: MySQLAddress, container: Container, limits: Limits, holder: int, interrupt: Callable[[], None]) -> None:
        self._address, self._container, self._limits = address, container, limits
        self._holder, self._interrupt = holder, interrupt
        self._since = time.monotonic()
        self._connection: MySQLConnection | None = None
        self._over, self._at_work = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"snapshot-{container.label}", daemon=True)
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

    def check(self) -> None:
        """Checks once more, right before a commit. Raises SourceError if a limit is passed."""
        with self._at_work:
            if self.reason is None:
                self._look()
        if self.reason is not None:
            raise SourceError(self.reason)

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        pause = min(MOST_BETWEEN_LOOKS, max(0.2, self._limits.blocking / 4))
        while not self._over.wait(max(0.0, min(pause, self._limits.snapshot - self.seconds + 0.01))):
            with self._at_work:
                if self._over.is_set():
                    return
                self._look()
                ended = self.reason is not None
            if ended:
                try:
                    self._interrupt()
                except Exception as error:  # noqa: BLE001 the snapshot is ended, so the write fails anyway
                    log.warning("%s: could not interrupt the write: %s", self._container.label, type(error).__name__)
                return

    def _look(self) -> None:
        label = self._container.label
        if self.seconds >= self._limits.snapshot:
            self._end(
                f"{label}: the snapshot of the source was held for {self._limits.snapshot} s, which is all that max_snapshot_seconds "
                "allows; nothing of it was written, and what was committed before stays. Let it be held for longer (max_snapshot_seconds), "
                "or read less at a time: a lower load_rows for a load that goes window by window, fewer partitions in one refresh."
            )
            return
        try:
            waiting = self._ask([str(self._limits.blocking), self._container.name])
        except (driver().Error, SourceError, OSError) as error:
            self._drop()
            log.debug("%s: cannot see who waits: %s", label, type(error).__name__)
            return
        if waiting:
            who = ", ".join(f"session {one} (user {user}, {statement})" for one, user, statement in waiting)
            self._end(
                f"{label}: {who} waited for {self._limits.blocking} s behind this sync's lock on the table, and later sessions behind that "
                "one, so the sync was ended; nothing was written. Sync again once that is done, or let others wait for longer: "
                "max_blocking_seconds."
            )

    def _end(self, reason: str) -> None:
        """Ends the session that holds the snapshot. The write is cancelled separately, by ``_interrupt``."""
        self.reason = reason
        with contextlib.suppress(driver().Error, SourceError, OSError):  # the holder may have ended already
            self._opened().execute(f"kill {int(self._holder)}")

    def _ask(self, parameters: list[str]) -> list[tuple[str | None, ...]]:
        return self._opened().rows(_WAITING, parameters)

    def _opened(self) -> MySQLConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._address.connect()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
