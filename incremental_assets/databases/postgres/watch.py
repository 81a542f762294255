"""Watches a snapshot of the source while it is held, and ends it if it is held too long or blocks somebody for too long."""

import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import psycopg

from incremental_assets.databases.limits import Limits
from incremental_assets.databases.postgres.connection import APPLICATION_NAME, OWN_LOCK, PostgresAddress, ask
from incremental_assets.databases.snapshot_watch import WatchedSnapshot

log = logging.getLogger(__name__)

LOST_SECONDS = 60.0
"""A source that has not answered for so many seconds is taken for lost."""
GRACE_SECONDS = 5.0
"""The server's own time-outs end a transaction so many seconds after this process does, because this process can say why."""

# The sessions that wait for a lock that the snapshot's holder or one of its readers has. Our lock is ACCESS SHARE, which conflicts with
# ACCESS EXCLUSIVE alone. Other sessions that queue behind such a request wait for us, too. pg_blocking_pids counts locks of a parallel
# worker as those of its leader.
_WAITING = """
select w.pid, a.usename, a.application_name, upper(substring(a.query from '^\\s*([[:alpha:]]+(\\s+[[:alpha:]]+)?)')),
       w.relation::regclass::text
from pg_locks w left join pg_stat_activity a using (pid)
where w.locktype = 'relation' and not w.granted and w.mode = 'AccessExclusiveLock'
  and w.database = (select oid from pg_database where datname = current_database())
  and pg_blocking_pids(w.pid) && array(select %(holder)s::int union select pid from pg_locks
    where locktype = 'advisory' and objsubid = 2 and granted and database = w.database and classid = %(mark)s and objid = %(holder)s)
"""
_END_READERS = """
select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' and objsubid = 2 and granted
  and database = (select oid from pg_database where datname = current_database())
  and classid = %(mark)s and objid = %(holder)s and pid <> %(holder)s and pid <> pg_backend_pid()
"""
_END_HOLDER = "select pg_terminate_backend(pid) from pg_stat_activity where pid = %(holder)s and application_name = %(ours)s"


def settings_at(server_version: int, seconds: float) -> str:
    """The SET LOCAL statements that make the server end a transaction after ``seconds``, even if this process can no longer do it.

    ``server_version`` is ``server_version_num``. The TCP settings let the server notice a dead client within a minute. Otherwise its
    snapshot would keep VACUUM from removing dead rows in the source for hours.
    """
    limit = math.ceil((seconds + GRACE_SECONDS) * 1000)
    limits = [("statement_timeout", limit), ("idle_in_transaction_session_timeout", limit)]
    if server_version >= 170000:  # a limit of the role that counts already goes on counting unless it is set to 0 first
        limits += [("transaction_timeout", 0), ("transaction_timeout", limit)]
    probes = {"tcp_keepalives_idle": 20, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
    if server_version >= 120000:
        probes["tcp_user_timeout"] = 50_000
    return "; ".join(f"set local {name} = {value}" for name, value in [*limits, *probes.items()])


class SnapshotWatch(WatchedSnapshot[psycopg.Connection]):
    """Watches one snapshot. ``holder``: the id of the server process that holds it."""

    def __init__(self, address: PostgresAddress, label: str, limits: Limits, holder: int, interrupt: Callable[[], None]) -> None:
        super().__init__(label, limits, interrupt)
        self._address, self._holder = address, holder
        self._answered = time.monotonic()
        self._first_seen: dict[tuple[Any, ...], float] = {}

    def start(self) -> None:
        """Checks once and starts the thread. The first check opens the connection, so that it is counted by ``free_connections``."""
        with self._at_work:
            self._look()
        super().start()

    def explanation(self) -> str | None:
        """The reason for a failure, if a limit of the snapshot was passed; else None.

        The time is compared here once more, because the server's own time-out may have ended the snapshot before the thread did.
        """
        return self.reason or (self._out_of_time() if self.seconds >= self._limits.snapshot else None)

    def _look_for_waiting(self) -> None:
        try:
            waiting = {(row[0], row[4]): row for row in self._ask(_WAITING)}
            self._answered = time.monotonic()
        except psycopg.Error as error:
            self._drop()
            if "FATAL" in str(error):  # the server has answered: it refuses the connection, e.g. as it has too many
                self._answered = time.monotonic()
            log.debug("%s: cannot see who waits: %s", self._label, type(error).__name__)
            if time.monotonic() - self._answered > LOST_SECONDS:
                self._end(
                    f"{self._label}: the source has not answered for {LOST_SECONDS:.0f} s; nothing half-read was written; sync again."
                )
            return
        now = time.monotonic()
        self._first_seen = {key: self._first_seen.get(key, now) for key in waiting}
        late = [waiting[key] for key, since in self._first_seen.items() if now - since >= self._limits.blocking]
        if late:
            who = ", ".join(
                f"pid {pid} (user {user or 'unknown'}, application {application or 'unnamed'}, {kind or 'a statement'} on {relation})"
                for pid, user, application, kind, relation in late
            )
            self._end(
                f"{self._label}: {who} waited for {self._limits.blocking} s behind this sync's lock, and later sessions behind that one, "
                "so the sync was ended; nothing was written. Sync again once that is done, or let others wait for longer: "
                "max_blocking_seconds."
            )

    def _end_sessions(self) -> None:
        """Ends the readers and the holder of the snapshot, which have the locks."""
        # This fails if the source is gone or the role may not end sessions. The server's own time-outs then end them.
        with contextlib.suppress(psycopg.Error):
            self._ask(_END_READERS)
            self._ask(_END_HOLDER)

    def _ask(self, query: str) -> list[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._address.opened()
        return ask(self._connection, query, {"holder": self._holder, "mark": OWN_LOCK, "ours": APPLICATION_NAME})
