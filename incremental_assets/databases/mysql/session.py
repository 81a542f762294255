"""Opens the connection to MySQL for one container's sync, and holds the snapshot from which its rows are read.

Belongs here: the lifetime of the connection and of the snapshot. Does not belong: queries about rows (``reader``), other transactions
(``transactions``), and the rows (``rows``).
"""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from incremental_assets.core.container import Container, Kind
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.mysql.connection import DENIED, MySQLAddress, MySQLConnection, Row, driver, number_of, source_errors
from incremental_assets.databases.mysql.queries import relation
from incremental_assets.databases.mysql.watch import SnapshotWatch
from incremental_assets.databases.source import Server

PRIVILEGE = "GRANT PROCESS ON *.* TO <this user>;"
_ENGINE = "select engine from information_schema.tables where table_schema = %s and table_name = %s"
_Self = TypeVar("_Self", bound="MySQLSession")


def _nothing() -> None:
    """The default for ``MySQLSession.interrupt``: no write is running that would have to be cancelled."""


class MySQLSession:
    """A connection to the source for one container, used as a context manager. All methods raise SourceError if a query fails.

    ``timezone``: the time zone of columns without one. ``margin_seconds``: how far the watermark of a time stays below the source's clock.
    """

    def __init__(self, address: MySQLAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        self.address, self.container = address, container
        self.timezone, self.margin_seconds = timezone, margin_seconds
        self.limits = Limits()
        self.interrupt: Callable[[], None] = _nothing
        """Cancels the write that reads from the snapshot. It is called if the snapshot had to be ended."""
        self.snapshot_seconds = 0.0
        """For how many seconds snapshots have been held so far."""
        self._watch: SnapshotWatch | None = None
        self._connection: MySQLConnection | None = None
        self._server: Server | None = None
        self._is_limited = False
        """Whether the server ends the queries of this session after a time."""

    def __enter__(self: _Self) -> _Self:
        self._connection = self.address.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, and with it a snapshot that is still held."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def live(self) -> MySQLConnection:
        """The connection. Raises SourceError if it is lost."""
        if self._connection is None or not self._connection.is_open:
            raise SourceError(f"{self.container.label}: the connection to the source is lost; nothing half-read was written; sync again.")
        return self._connection

    @property
    def server(self) -> Server:
        """Facts about the server, which are read at the first use."""
        if self._server is None:
            connection = self.live
            identity = "server_uid" if connection.is_mariadb else "server_uuid"
            listed = self.rows("show global variables where variable_name in ('server_uid', 'server_uuid', 'read_only', 'wsrep_on')")
            found = {name: value for name, value in listed}
            system = quote(found.get(identity) or "hidden", safe="")
            self._server = Server(
                source=f"{system}/{quote(self.container.schema, safe='')}",
                version=connection.version,
                started=0,  # sessions are distinguished in another way: see ``transactions``
                # In a Galera cluster, too, transactions are open that this server does not show.
                is_replica="ON" in (found.get("read_only"), found.get("wsrep_on")),
                is_pooled=False,
                shows_activity=self._sees_transactions(),
                privilege=PRIVILEGE,
                hides_transactions=True,
            )
        return self._server

    def _sees_transactions(self) -> bool:
        try:
            self.live.rows("select count(*) from information_schema.innodb_trx")
        except driver().Error as error:
            if number_of(error) in DENIED:
                return False
            raise
        return True

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
            self._watch = SnapshotWatch(self.address, container, self.limits, connection.id, self.interrupt)
            self._watch.start()
            try:
                yield
            except Exception as error:
                if self._watch.reason is not None:
                    raise SourceError(self._watch.reason) from error
                raise
            finally:
                self._watch.stop()
                self.snapshot_seconds += self._watch.seconds
                self._watch = None
                if connection.is_open:
                    # The Delta commit has succeeded or failed by now, so a lost connection does not matter any more.
                    with contextlib.suppress(driver().Error, OSError):
                        connection.execute("rollback")

    def still_there(self) -> None:
        """Raises SourceError if the connection that holds the snapshot is lost or a limit is passed. This is the last check before a
        commit."""
        if self._watch is not None:
            self._watch.check()
        self.rows("select 1")

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
