"""Opens the connection to SQL Server for one container's sync, and holds the snapshot from which its rows are read."""

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from incremental_assets.core.container import Container
from incremental_assets.databases.held_session import HeldSession
from incremental_assets.databases.source import Server
from incremental_assets.databases.sqlserver.connection import Row, SQLServerAddress, SQLServerConnection, driver_errors, source_errors
from incremental_assets.databases.sqlserver.queries import ROWVERSION, identifier_base, quoted, relation
from incremental_assets.databases.sqlserver.transactions import permission_query
from incremental_assets.databases.sqlserver.watch import SnapshotWatch

BEGIN, ROLLBACK = "begin transaction", "if @@trancount > 0 rollback transaction"


def server_query() -> str:
    """The database's own id, its name, whether it reads committed versions, whether it can be written, and the server's version."""
    return (
        "select convert(nchar(36), service_broker_guid), name, is_read_committed_snapshot_on,"
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


class SQLServerSession(HeldSession[SQLServerConnection]):
    """The ``HeldSession`` of one container in SQL Server."""

    def __init__(self, address: SQLServerAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        super().__init__(container, timezone=timezone, margin_seconds=margin_seconds)
        self.address = address
        self._server: Server | None = None
        self._sees_transactions = False

    def _connect(self) -> SQLServerConnection:
        return self.address.connect()

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
        return self.live.has_snapshots

    @property
    def server(self) -> Server:
        """Facts about the server, which are read at the first use."""
        if self._server is None:
            guid, database, is_versioned, updateability, version = self.rows(server_query())[0]
            self._sees_transactions = self.value(permission_query()) == 1
            self._server = Server(
                source=f"{str(guid).lower()}/{quote(database, safe='')}.{quote(self.container.schema, safe='')}",
                version=int(version or 0),
                started=0,  # sessions are distinguished in another way: see ``transactions``
                is_replica=updateability == "READ_ONLY",
                is_pooled=False,
                shows_activity=self.is_exact or self._sees_transactions,
                hides_transactions=True,
                weaker_promise="" if self.has_snapshots else weaker_promise(str(database), is_versioned=bool(is_versioned)),
                why_unwatched="SQL Server does not count them by table",
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
                connection.execute(BEGIN)
                connection.rows(first_read(container))
            try:
                with self._watched(SnapshotWatch(self.address, container, self.limits, connection, connection.id, self.interrupt)):
                    yield
            finally:
                if connection.is_open and has_snapshots:
                    # The Delta commit has succeeded or failed by now, so a lost connection does not matter any more.
                    with contextlib.suppress(*driver_errors()):
                        connection.execute(ROLLBACK)

    def rows(self, query: str) -> list[Row]:
        """The rows of one query. It is ended when the current time limit has passed."""
        with source_errors(self.container.label, self.address):
            return self.live.rows(query)

    def value(self, query: str) -> Any:
        """The first value of a query's only row."""
        return self.rows(query)[0][0]
