"""Watches a snapshot of SQL Server while it is held, and ends it if it is held too long or blocks somebody for too long."""

import logging
from collections.abc import Callable

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.snapshot_watch import WatchedSnapshot
from incremental_assets.databases.sqlserver.connection import Row, SQLServerAddress, SQLServerConnection, driver_errors

log = logging.getLogger(__name__)


def waiting_query(holder: int, seconds: int) -> str:
    """The sessions that have waited for so long for the session ``holder``."""
    return (
        "select r.session_id, s.original_login_name, r.command"
        " from sys.dm_exec_requests as r join sys.dm_exec_sessions as s on s.session_id = r.session_id"
        f" where r.blocking_session_id = {int(holder)} and r.wait_time >= {int(seconds) * 1000}"
    )


class SnapshotWatch(WatchedSnapshot[SQLServerConnection]):
    """Watches one snapshot. ``holder``: the connection that holds it, and ``session`` its id in the server."""

    def __init__(
        self,
        address: SQLServerAddress,
        container: Container,
        limits: Limits,
        holder: SQLServerConnection,
        session: int,
        interrupt: Callable[[], None],
    ) -> None:
        super().__init__(container.label, limits, interrupt)
        self._address, self._holder, self._session = address, holder, session

    def _look_for_waiting(self) -> None:
        try:
            waiting = self._ask()
        except (*driver_errors(), SourceError) as error:
            self._drop()
            log.debug("%s: cannot see who waits: %s", self._label, type(error).__name__)
            return
        if waiting:
            who = ", ".join(f"session {one} (login {login}, {command})" for one, login, command in waiting)
            self._end(
                f"{self._label}: {who} waited for {self._limits.blocking} s behind this sync's lock on the table, so the sync was ended; "
                "nothing was written. Sync again once that is done, or let others wait for longer: max_blocking_seconds."
            )

    def _end_sessions(self) -> None:
        self._holder.abort()  # KILL would need a permission of its own

    def _ask(self) -> list[Row]:
        return self._opened().rows(waiting_query(self._session, self._limits.blocking))

    def _opened(self) -> SQLServerConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._address.connect()
        return self._connection
