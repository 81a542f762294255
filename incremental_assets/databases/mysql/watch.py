"""Watches a snapshot of MySQL while it is held, and ends it if it is held too long or blocks somebody for too long."""

import contextlib
import logging
from collections.abc import Callable

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.mysql.connection import MySQLAddress, MySQLConnection, driver
from incremental_assets.databases.snapshot_watch import WatchedSnapshot

log = logging.getLogger(__name__)

# A transaction keeps a metadata lock on each table that it has read, for which ALTER, TRUNCATE and the like wait, and others behind those.
# Which table a session waits for is not in this list, so that its statement must name ours.
_WAITING = """
select id, user, substring_index(trim(info), ' ', 2) from information_schema.processlist
where state like 'Waiting for table metadata lock%%' and time >= %s and locate(%s, info) > 0
"""


class SnapshotWatch(WatchedSnapshot[MySQLConnection]):
    """Watches one snapshot. ``holder``: the id of the session that holds it."""

    def __init__(self, address: MySQLAddress, container: Container, limits: Limits, holder: int, interrupt: Callable[[], None]) -> None:
        super().__init__(container.label, limits, interrupt)
        self._address, self._table, self._holder = address, container.name, holder

    def _look_for_waiting(self) -> None:
        try:
            waiting = self._ask([str(self._limits.blocking), self._table])
        except (driver().Error, SourceError, OSError) as error:
            self._drop()
            log.debug("%s: cannot see who waits: %s", self._label, type(error).__name__)
            return
        if waiting:
            who = ", ".join(f"session {one} (user {user}, {statement})" for one, user, statement in waiting)
            self._end(
                f"{self._label}: {who} waited for {self._limits.blocking} s behind this sync's lock on the table, and later sessions "
                "behind that one, so the sync was ended; nothing was written. Sync again once that is done, or let others wait for longer: "
                "max_blocking_seconds."
            )

    def _end_sessions(self) -> None:
        with contextlib.suppress(driver().Error, SourceError, OSError):  # the holder may have ended already
            self._opened().execute(f"kill {int(self._holder)}")

    def _ask(self, parameters: list[str]) -> list[tuple[str | None, ...]]:
        return self._opened().rows(_WAITING, parameters)

    def _opened(self) -> MySQLConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._address.connect()
        return self._connection
