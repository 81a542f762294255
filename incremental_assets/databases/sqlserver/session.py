"""Opens the connection to SQL Server for one container's sync, and holds the snapshot from which its rows are read.

Belongs here: the lifetime of the connection and of the snapshot. Does not belong: queries about rows (``reader``), other transactions
(``transactions``), and the rows (``rows``).
"""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.source import Server
from incremental_assets.databases.sqlserver.connection import Row, SQLServerAddress, SQLServerConnection, driver_errors, source_errors
from incremental_assets.databases.sqlserver.queries import ROWVERSION, identifier_base, quoted, relation
from incremental_assets.databases.sqlserver.transactions import permission_query
from incremental_assets.databases.sqlserver.watch import SnapshotWatch

PRIVILEGE = "GRANT VIEW SERVER STATE TO <this login>; (from SQL Server 2022 on VIEW SERVER PERFORMANCE STATE is enough)"
SNAPSHOT_ISOLATION = "set transaction isolation level snapshot"
READ_COMMITTED = "set transaction isolation level read committed"
BEGIN, ROLLBACK = "begin transaction", "if @@trancount > 0 rollback transaction"
_Self = TypeVar("_Self", bound="SQLServerSession")


def server_query() -> str:
    """The database's own id, its name, whether it allows snapshots, whether it reads committed versions, whether it can be written, and
    the server's version."""
    return (
        "select convert(nchar(36), service_broker_guid), name, snapshot_isolation_state, is_read_committed_snapshot_on,"
        " convert(nvarchar(20), databasepropertyex(name, 'Updateability')), convert(int, serverproperty('ProductMajorVersion'))"
        " from sys.databases where database_id = db_id()"
    )


def first_read(container: Container) -> str:
    """The query that fixes the state which a snapshot shows: that is the first one that reads a row."""
    return f"select top (1) 1 from {relation(container)}"


def weaker_promise(database: str, *, is_versioned: bool) -> str:
    """The warning for a database without snapshots. ``is_versioned``: each statement reads one committed state."""
    each = (
        "each of its statements reads one committed state" if is_versioned else "a row that moves during a read may be missed or read twice"
    )
    return (
        f"the database does not allow snapshots, so that the rows of this sync are not of one moment: {each}. "
        f"ALTER DATABASE {quoted(database)} SET ALLOW_SNAPSHOT_ISOLATION ON;"
    )


def _nothing() -> None:
    """The default for ``SQLServerSession.interrupt``: no write is running that would have to be cancelled."""


class SQLServerSession:
    """A connection to the source for one container, used as a context manager. All methods raise SourceError if a query fails.

    ``timezone``: the time zone of columns without one. ``margin_seconds``: how far the watermark of a time stays below the source's clock.
    """

    def __init__(self, address: SQLServerAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        self.address, self.container = address, container
        self.timezone, self.margin_seconds = timezone, margin_seconds
        self.limits = Limits()
        self.interrupt: Callable[[], None] = _nothing
        """Cancels the write that reads from the snapshot. It is called if the snapshot had to be ended."""
        self.snapshot_seconds = 0.0
        """For how many seconds snapshots have been held so far."""
        self._watch: SnapshotWatch | None = None
        self._connection: SQLServerConnection | None = None
        self._server: Server | None = None
        self._sees_transactions = False
        self._has_snapshots = False

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
    def live(self) -> SQLServerConnection:
        """The connection. Raises SourceError if it is lost."""
        if self._connection is None or not self._connection.is_open:
            raise SourceError(f"{self.container.label}: the connection to the source is lost; nothing half-read was written; sync again.")
        return self._connection

    @property
    def is_exact(self) -> bool:
        """Whether the identifier is a rowversion, of which the server itself says below which value nobody is open."""
        return identifier_base(self.container) == ROWVERSION

    @property
    def sees_transactions(self) -> bool:
        """Whether this user may see all open transactions."""
        return self.server is not None and self._sees_transactions

    @property
    def has_snapshots(self) -> bool:
        """Whether the database allows snapshots."""
        return self.server is not None and self._has_snapshots

    @property
    def server(self) -> Server:
        """Facts about the server, which are read at the first use."""
        if self._server is None:
            guid, database, state, is_versioned, updateability, version = self.rows(server_query())[0]
            self._sees_transactions = self.value(permission_query()) == 1
            self._has_snapshots = state == 1
            self._server = Server(
                source=f"{str(guid).lower()}/{quote(database, safe='')}.{quote(self.container.schema, safe='')}",
                version=int(version or 0),
                started=0,  # sessions are distinguished in another way: see ``transactions``
                is_replica=updateability == "READ_ONLY",
                is_pooled=False,
                shows_activity=self.is_exact or self._sees_transactions,
                privilege=PRIVILEGE,
                hides_transactions=True,
                weaker_promise="" if self._has_snapshots else weaker_promise(str(database), is_versioned=bool(is_versioned)),
            )
        return self._server

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Holds a snapshot of the source until the block ends; nothing is held where the database allows none, which is warned of.

        An ALTER that is committed while a snapshot is held makes the next read fail.
        """
        container, has_snapshots = self.container, self.has_snapshots
        with source_errors(container.label, self.address):
            connection = self.live
            if has_snapshots:
                connection.execute(SNAPSHOT_ISOLATION)
                connection.execute(BEGIN)
                connection.rows(first_read(container))
            self._watch = SnapshotWatch(self.address, container, self.limits, connection, connection.id, self.interrupt)
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
                if connection.is_open and has_snapshots:
                    # The Delta commit has succeeded or failed by now, so a lost connection does not matter any more.
                    with contextlib.suppress(*driver_errors()):
                        connection.execute(ROLLBACK)
                        connection.execute(READ_COMMITTED)

    def still_there(self) -> None:
        """Raises SourceError if the connection that holds the snapshot is lost or a limit is passed. This is the last check before a
        commit."""
        if self._watch is not None:
            self._watch.check()
        self.rows("select 1")

    def rows(self, query: str) -> list[Row]:
        """The rows of one query. It is ended when the current time limit has passed."""
        with source_errors(self.container.label, self.address):
            return self.live.rows(query)

    def value(self, query: str) -> Any:
        """The first value of a query's only row."""
        return self.rows(query)[0][0]
