"""Opens the connection to MySQL for one container's sync, and holds the snapshot from which its rows are read."""

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from incremental_assets.core.container import Container, Kind
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.databases.held_session import HeldSession
from incremental_assets.databases.mysql.connection import MySQLAddress, MySQLConnection, Row, driver, source_errors
from incremental_assets.databases.mysql.privileges import COUNTERS, TRANSACTIONS, may_read
from incremental_assets.databases.mysql.queries import relation
from incremental_assets.databases.mysql.watch import SnapshotWatch
from incremental_assets.databases.source import Server

_FACTS = "'server_uid', 'server_uuid', 'read_only', 'wsrep_on', 'performance_schema'"
_ENGINE = "select engine from information_schema.tables where table_schema = %s and table_name = %s"


class MySQLSession(HeldSession[MySQLConnection]):
    """The ``HeldSession`` of one container in MySQL."""

    def __init__(self, address: MySQLAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        super().__init__(container, timezone=timezone, margin_seconds=margin_seconds)
        self.address = address
        self._server: Server | None = None
        self._is_limited = False
        """Whether the server ends the queries of this session after a time."""

    def _connect(self) -> MySQLConnection:
        return self.address.connect()

    @property
    def server(self) -> Server:
        """Facts about the server, which are read at the first use."""
        if self._server is None:
            connection = self.live
            identity = "server_uid" if connection.is_mariadb else "server_uuid"
            listed = self.rows(f"show global variables where variable_name in ({_FACTS})")
            found = {name: value for name, value in listed}
            # In a Galera cluster, too, transactions are open that this server does not show.
            is_replica = "ON" in (found.get("read_only"), found.get("wsrep_on"))
            system = quote(found.get(identity) or "hidden", safe="")
            self._server = Server(
                source=f"{system}/{quote(self.container.schema, safe='')}",
                version=connection.version,
                started=0,  # sessions are distinguished in another way: see ``transactions``
                is_replica=is_replica,
                is_pooled=False,
                shows_activity=may_read(connection, TRANSACTIONS),
                hides_transactions=True,
                why_unwatched=self._why_unwatched(is_replica, found.get("performance_schema") == "ON"),
            )
        return self._server

    def _why_unwatched(self, is_replica: bool, is_counted: bool) -> str:
        if not self.container.is_watched:
            return ""
        if is_replica:
            return "a replica, or a node of a cluster, does not count those of others"
        if not is_counted:
            return "the server counts them only with performance_schema = ON, which is set where it is started"
        return "" if may_read(self.live, COUNTERS) else f"this user may not read {COUNTERS}"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Holds a snapshot of the source until the block ends. Raises ConfigurationError if the table is of an engine that has none.

        An ALTER or TRUNCATE that is committed after the snapshot was taken and before the table is first read makes that read fail, and
        those that come later wait until the block ends.
        """
        connection, container = self.live, self.container
        with source_errors(container.label, self.address):
            if container.kind is Kind.TABLE:
                found = connection.rows(_ENGINE, [container.schema, container.name])
                if found and found[0][0] not in (None, "InnoDB"):
                    raise ConfigurationError(
                        f"{container.label}: its engine is {found[0][0]}, which has neither transactions nor snapshots: rows that change "
                        f"during a read would be lost. ALTER TABLE {container.name} ENGINE = InnoDB; or exclude it."
                    )
            connection.execute(f"set session wait_timeout = {int(self.limits.snapshot) + 600}")
            connection.execute("start transaction with consistent snapshot, read only")
            connection.rows(f"select 1 from {relation(container)} limit 1")
            try:
                with self._watched(SnapshotWatch(self.address, container, self.limits, connection.id, self.interrupt)):
                    yield
            finally:
                if connection.is_open:
                    # The Delta commit has succeeded or failed by now, so a lost connection does not matter any more.
                    with contextlib.suppress(driver().Error, OSError):
                        connection.execute("rollback")

    def rows(self, query: str, parameters: tuple[str, ...] = ()) -> list[Row]:
        """The rows of one query, as texts. It is ended when the current time limit has passed."""
        with source_errors(self.container.label, self.address):
            connection, left = self.live, seconds_left()
            if left is not None or self._is_limited:
                self._is_limited = left is not None
                left = left or 0.0
                limit = f"max_statement_time = {max(0.01, left) if self._is_limited else 0:.3f}"
                milliseconds = f"max_execution_time = {max(1, int(left * 1000)) if self._is_limited else 0}"
                connection.execute(f"set session {limit if connection.is_mariadb else milliseconds}")
            return connection.rows(query, parameters)

    def value(self, query: str, parameters: tuple[str, ...] = ()) -> Any:
        """The first value of a query's only row."""
        return self.rows(query, parameters)[0][0]
