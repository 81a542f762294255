"""Opens the connection to PostgreSQL for one container's sync, and the exported snapshot that Spark's readers share."""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from incremental_assets.core.container import Container, Kind
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.postgres.column_grants import NOT_GRANTED, begin_with_columns, column_errors, expect_granted
from incremental_assets.databases.postgres.connection import OWN_LOCK, PostgresAddress, ask
from incremental_assets.databases.postgres.failures import source_errors
from incremental_assets.databases.postgres.kept_connections import give_back, taken
from incremental_assets.databases.postgres.not_utf8 import not_utf8
from incremental_assets.databases.postgres.queries import relation
from incremental_assets.databases.postgres.row_security import refused_read
from incremental_assets.databases.postgres.settings import NOT_SET, of_transaction
from incremental_assets.databases.postgres.watch import SnapshotWatch, settings_at
from incremental_assets.databases.source import Server

LOCK_TIMEOUT = "30s"
"""How long a sync waits for its ACCESS SHARE lock on the table, behind an ALTER or TRUNCATE of somebody else."""
ROWS_AT_A_TIME = 10_000
"""How many rows of a streamed query are fetched at a time."""
_Self = TypeVar("_Self", bound="PostgresSession")


def _nothing() -> None:
    """The default for ``PostgresSession.interrupt``: no write is running that would have to be cancelled."""


class PostgresSession:
    """A connection to the source for one container, used as a context manager. All methods raise SourceError if a query fails.

    ``timezone``: the time zone of columns without one. ``margin_seconds``: how far the watermark of a time stays below the source's clock.
    """

    def __init__(self, address: PostgresAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        self.address = address
        self.container = container
        self.timezone = timezone
        self.margin_seconds = margin_seconds
        self.limits = Limits()
        self.interrupt: Callable[[], None] = _nothing
        """Cancels the write that reads from the snapshot. It is called if the snapshot had to be ended."""
        self.snapshot_id: str | None = None
        """The name of the exported snapshot; None while there is none."""
        self.snapshot_seconds = 0.0
        """For how many seconds snapshots have been held so far."""
        self._watch: SnapshotWatch | None = None
        self._connection: psycopg.Connection | None = None
        self._server: Server | None = None
        self._tells_point, self._tells_changes = True, True
        self.has_whole_table = True
        """Whether our role may select all of the table, with what PostgreSQL itself knows of each row. It may also be granted columns."""

    def __enter__(self: _Self) -> _Self:
        self._connection = taken(self.address)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connection back. If a snapshot is still held, the connection is closed, and PostgreSQL then ends the snapshot."""
        if self._connection is not None:
            give_back(self.address, self._connection)
            self._connection = None
            self.snapshot_id = None

    @property
    def server(self) -> Server:
        """Facts about the server, which are read at the first use."""
        if self._server is None:
            row = self._row(
                "select current_setting('server_version_num')::int, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint,"
                " pg_is_in_recovery(), pg_backend_pid(), (select oid::bigint from pg_database where datname = current_database()),"
                f" pg_has_role('pg_read_all_stats', 'usage'), array(select name from pg_settings where {NOT_SET} order by 1)"
            )
            assert self._connection is not None
            # A pooler answers the start-up packet itself, and invents the process id in its answer.
            pooled = self._connection.info.backend_pid != row[3]
            source, not_set = f"{self._system_identifier()}/{row[4]}", tuple(row[6])
            why = "a replica does not count them" if row[2] else ""
            self._server = Server(source, row[0], row[1], row[2], pooled, row[5], not_set=not_set, why_unwatched=why)
        return self._server

    def _system_identifier(self) -> str:
        allowed = self._row("select has_function_privilege('pg_control_system()', 'execute')")[0]
        return str(self._row("select system_identifier::text from pg_control_system()")[0]) if allowed else "hidden"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[str]:
        """Holds a snapshot of the source, exported for Spark's readers, until the block ends. Yields the name of the snapshot.

        The table is locked against ALTER and TRUNCATE *before* the first query fixes the snapshot. When such a statement was committed in
        between, readers saw no rows, without any error.
        """
        connection = self._live()
        with self._errors():
            given_up = True
            try:
                with self._watched(self._begin(connection)):
                    assert self.snapshot_id is not None
                    yield self.snapshot_id
                given_up = False
            finally:
                self.snapshot_id = None
                # The Delta commit has succeeded or failed by now, so a lost connection does not matter any more.
                if not connection.closed and not connection.broken:
                    # The connection may have been ended since its last use, by a limit or by an administrator. That was reported already.
                    with contextlib.suppress(psycopg.Error):
                        connection.execute("rollback")
                        if given_up:
                            self._end_readers(connection)

    def renew_snapshot(self) -> None:
        """Replaces the snapshot by a new one, for a read that goes range by range. It must be called inside ``snapshot()``."""
        connection = self._live()
        with self._errors():
            self._stop_watch()
            connection.execute("rollback")
            self._start_watch(self._begin(connection))

    def _begin(self, connection: psycopg.Connection) -> int:
        """Begins the transaction that holds the snapshot. Returns the id of the server process that holds it."""
        version = self.server.version
        # One message, so that a time-out of the role does not count in between.
        settings = (
            f"{settings_at(version, self.limits.snapshot)}; {of_transaction(self.container.row_security, {'lock_timeout': LOCK_TIMEOUT})}"
        )
        begin = f"begin isolation level repeatable read read only; {settings}"
        # LOCK TABLE on a view also locks the tables that it reads. A table behind a foreign table is on another server and cannot be
        # locked.
        if self.container.kind in (Kind.TABLE, Kind.PARTITIONED, Kind.VIEW):
            if self.has_whole_table:
                connection.execute(begin.encode())
                try:
                    connection.execute(sql.SQL("lock table {} in access share mode").format(relation(self.container)))
                except psycopg.errors.InsufficientPrivilege:
                    connection.execute("rollback")
                    self.has_whole_table = False
            if not self.has_whole_table:
                begin_with_columns(self.address, connection, self.container, begin, settings)
        else:
            connection.execute(begin.encode())
        self.snapshot_id, holder, whole = self._row(
            "select pg_export_snapshot(), pg_backend_pid(), has_table_privilege(%(r)s::regclass, 'select')", {"r": self._regclass()}
        )
        self.has_whole_table = self.has_whole_table and whole
        if not self.has_whole_table:
            expect_granted(self.address, self.container, {name for (name,) in self.rows(NOT_GRANTED, {"r": self._regclass()})})
        return holder

    def _start_watch(self, holder: int) -> None:
        self._watch = SnapshotWatch(self.address, self.container.label, self.limits, holder, self.interrupt)
        self._watch.start()

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self.snapshot_seconds += self._watch.seconds
            self._watch = None

    @contextlib.contextmanager
    def _watched(self, holder: int) -> Iterator[None]:
        """Watches the limits of the snapshot during the block. If a limit was passed, the block's error is raised as SourceError with the
        reason."""
        self._start_watch(holder)
        try:
            yield
        except Exception as error:
            watch = self._watch
            if watch is None:  # ``renew_snapshot`` failed between two snapshots
                raise
            watch.stop()
            reason = watch.explanation()
            # Spark's error has the driver's "I/O error" but not its cause, a socket that timed out. So it is recognised by the time.
            if reason is None and watch.seconds >= self.limits.silence and "I/O error occurred" in f"{error} {error.__cause__}":
                reason = (
                    f"{self.container.label}: the source sent nothing to a reader for {self.limits.silence} s; nothing was written. Check "
                    "the network between Spark and the source. If a query takes so long to its first row, set a higher max_silence_seconds."
                )
            if reason is not None:
                raise SourceError(reason) from error
            raise
        finally:
            self._stop_watch()

    @property
    def reader_mark(self) -> str:
        """The statement by which each of Spark's readers marks itself as a reader of this snapshot, until its transaction ends.

        The mark is an advisory lock whose second half is the process id of the snapshot's holder, so that the readers can be found.
        """
        return f"SELECT pg_advisory_xact_lock_shared({OWN_LOCK}, {self._row('select pg_backend_pid()')[0]})"

    def _end_readers(self, connection: psycopg.Connection) -> None:
        """Ends the queries of Spark's readers of this snapshot.

        A cancelled Spark task notices the cancellation only when it gets the first rows of its query; the query would run until then.
        """
        # This fails through a pooler, or if the role lacks the privilege. The queries then end by themselves.
        with contextlib.suppress(psycopg.Error):
            connection.execute(
                "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objsubid = 2 and granted"
                " and database = (select oid from pg_database where datname = current_database())"
                " and classid = %s and objid = pg_backend_pid() and pid <> pg_backend_pid()",
                [OWN_LOCK],
            )

    def still_there(self) -> None:
        """Raises SourceError if the connection that holds the snapshot is lost or a limit is passed. This is the last check before a
        commit."""
        if self._watch is not None:
            self._watch.check()
        self._row("select 1")

    @property
    def reader_settings(self) -> str:
        """The settings of the transaction of a reader: it ends no later than the snapshot that it joins, and waits for locks until then."""
        limits = settings_at(self.server.version, self._watch.seconds_left if self._watch is not None else self.limits.snapshot)
        return f"{limits}; {of_transaction(self.container.row_security, {'lock_timeout': '0'})}"

    @property
    def jdbc_options(self) -> dict[str, str]:
        """The options of Spark's JDBC readers. They connect to the host that answered this connection, and have a time-out."""
        return self.address.jdbc_options(self._live().info, socketTimeout=str(self.limits.silence))

    @property
    def libpq_connection(self) -> str:
        """The connection string, with the password, of those tasks of Spark that read through libpq as this connection does."""
        return self.address.libpq_connection(self._live().info)

    @property
    def password(self) -> str:
        """The password of the connection, which no message may contain."""
        return self._live().info.password

    def reason_against_libpq(self) -> str | None:
        """Why tasks of Spark cannot read through libpq as this connection does; None if they can."""
        # As it begins a session, ADBC asks for the names of functions, by which it knows types. What is set later does not count.
        if self._row("select reset_val = 'on' from pg_settings where name = 'quote_all_identifiers'")[0]:
            return "the role sets quote_all_identifiers, with which ADBC knows no types"
        return self.address.reason_against_libpq()

    # ------------------------------------------------------------------ one query
    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        with source_errors(self.container.label, self.address, self._regclass()), column_errors(self.address, self.container):
            yield

    def read_failure(self, said: str, what: str) -> SourceError:
        """The error for a read over another connection. ``said``: the server's message. ``what``: what has failed."""
        return self.refused_read(said) or SourceError(f"{self.container.label}: {what}: {said}. Sync again.")

    def refused_read(self, said: str) -> SourceError | None:
        """The error for a read over another connection that failed because policies would hide rows, or a text is none; else None."""
        return refused_read(self.container.label, self.address, self._regclass(), said) or not_utf8(self, said)

    def _regclass(self) -> str:
        return sql.Identifier(self.container.schema, self.container.name).as_string(None)

    @property
    def live(self) -> psycopg.Connection:
        """The open connection. Raises SourceError if it was closed."""
        return self._live()

    def _live(self) -> psycopg.Connection:
        if self._connection is None:
            raise SourceError(f"{self.container.label}: the connection to the source was closed; sync again.")
        return self._connection

    def rows(self, query: str | sql.Composable, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of one query. Raises SourceError, which names the container."""
        with self._errors():
            return ask(self._live(), query, parameters, row_security=self.container.row_security)

    def stream(self, query: sql.Composable) -> Iterator[tuple[Any, ...]]:
        """The rows of one query, of which only some are held in memory at a time. It must be called inside ``snapshot()``."""
        connection = self._live()
        with self._errors(), connection.cursor(name="incremental_assets_stream") as cursor:
            cursor.itersize = ROWS_AT_A_TIME
            cursor.execute(query.as_string(connection).encode(connection.info.encoding))
            yield from cursor

    def _row(self, query: str | sql.Composable, parameters: dict[str, Any] | None = None) -> tuple[Any, ...]:
        rows = self.rows(query, parameters)
        if not rows:
            raise SourceError(f"{self.container.label}: the source answered a query without a row.")
        return rows[0]
