"""A connection to PostgreSQL for one container's sync, and one frozen state of the source that Spark's readers share.

Belongs here: how long a connection and a snapshot live, and whose they are. Does not belong: what is asked of the rows (``reader``), who
else is open (``transactions``), or Spark (``extract``).
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from incremental_assets.core.container import Container, Kind
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.postgres.connection import OWN_LOCK, PostgresAddress, ask, source_errors
from incremental_assets.databases.postgres.queries import relation
from incremental_assets.databases.postgres.watch import Limits, SnapshotWatch, settings_at

LOCK_TIMEOUT = "set local lock_timeout = '30s'"
_SESSION_TEXT = (
    "set local timezone = 'UTC'; set local datestyle = 'ISO, YMD'; set local intervalstyle = 'postgres'; set local bytea_output = 'hex'"
)


_Self = TypeVar("_Self", bound="PostgresSession")


def _nothing() -> None:
    """There is nothing to interrupt."""


@dataclass(frozen=True)
class Server:
    """Facts of the source's server: ``source`` is what a table remembers; ``started`` in microseconds. ``shows_activity``: this role may
    see what the sessions of other roles are doing."""

    source: str
    version: int
    started: int
    is_replica: bool
    is_pooled: bool
    shows_activity: bool = True


class PostgresSession:
    """A connection for one container. Raises SourceError for everything the source refuses.

    ``timezone``: of columns without one. ``margin_seconds``: how far below the source's clock a time's watermark stays.
    """

    def __init__(self, address: PostgresAddress, container: Container, *, timezone: str, margin_seconds: float = 0.0) -> None:
        self.address = address
        self.container = container
        self.timezone = timezone
        self.margin_seconds = margin_seconds
        self.limits = Limits()
        self.interrupt: Callable[[], None] = _nothing
        """Ends what is being written, where the snapshot that it is read from was ended."""
        self.snapshot_id: str | None = None
        self.snapshot_seconds = 0.0
        """How long snapshots were held so far."""
        self._watch: SnapshotWatch | None = None
        self._connection: psycopg.Connection | None = None
        self._server: Server | None = None

    def __enter__(self: _Self) -> _Self:
        self._connection = self.address.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self.snapshot_id = None

    @property
    def server(self) -> Server:
        if self._server is None:
            row = self._row(
                "select current_setting('server_version_num')::int, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint,"
                " pg_is_in_recovery(), pg_backend_pid(), (select oid::bigint from pg_database where datname = current_database()),"
                " pg_has_role('pg_read_all_stats', 'usage')"
            )
            assert self._connection is not None
            # A pooler answers the start-up packet itself, with a process id of its own making.
            pooled = self._connection.info.backend_pid != row[3]
            self._server = Server(f"{self._system_identifier()}/{row[4]}", row[0], row[1], row[2], pooled, row[5])
        return self._server

    def _system_identifier(self) -> str:
        allowed = self._row("select has_function_privilege('pg_control_system()', 'execute')")[0]
        return str(self._row("select system_identifier::text from pg_control_system()")[0]) if allowed else "hidden"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[str]:
        """Freezes one state of the source, exported for Spark's readers, until the block ends.

        The table is locked against ALTER and TRUNCATE *before* the first query fixes the snapshot: committed in between, they made
        readers see no rows without any error.
        """
        connection = self._live()
        with source_errors(self.container.label, self.address):
            given_up = True
            try:
                with self._watched(self._begin(connection)):
                    assert self.snapshot_id is not None
                    yield self.snapshot_id
                given_up = False
            finally:
                self.snapshot_id = None
                # The Delta commit is done or given up; a connection lost by now changes nothing.
                if not connection.closed and not connection.broken:
                    with contextlib.suppress(psycopg.Error):  # it was ended since it was last used, by a limit or somebody; why is told
                        connection.execute("rollback")
                        if given_up:
                            self._end_readers(connection)

    def renew_snapshot(self) -> None:
        """Lets the frozen state go and freezes that of now, for a read that goes part by part. Call inside ``snapshot()``."""
        connection = self._live()
        with source_errors(self.container.label, self.address):
            self._stop_watch()
            connection.execute("rollback")
            self._start_watch(self._begin(connection))

    def _begin(self, connection: psycopg.Connection) -> int:
        """Begins the transaction that holds a snapshot; the process id of who holds it."""
        version = self.server.version
        connection.execute("begin isolation level repeatable read read only")
        connection.execute(settings_at(version, self.limits.snapshot).encode())
        connection.execute(_SESSION_TEXT)
        connection.execute(LOCK_TIMEOUT)
        # A view's tables are locked with it; what stands behind a foreign table is out of reach.
        if self.container.kind in (Kind.TABLE, Kind.PARTITIONED, Kind.VIEW):
            connection.execute(sql.SQL("lock table {} in access share mode").format(relation(self.container)))
        self.snapshot_id, holder = self._row("select pg_export_snapshot(), pg_backend_pid()")
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
        """Ends the snapshot where a limit is passed; whatever fails by it fails with the reason."""
        self._start_watch(holder)
        try:
            yield
        except Exception as error:
            watch = self._watch
            if watch is None:  # between two snapshots
                raise
            watch.stop()
            reason = watch.explanation()
            # The driver's own cause, a read that timed out, does not come through Spark.
            if reason is None and watch.seconds >= self.limits.silence and "I/O error occurred" in f"{error} {error.__cause__}":
                reason = (
                    f"{self.container.label}: the source sent nothing to a reader for {self.limits.silence} s; nothing was written. Is the "
                    "network between Spark and the source whole? A query that takes so long to its first row needs a higher "
                    "max_silence_seconds."
                )
            if reason is not None:
                raise SourceError(reason) from error
            raise
        finally:
            self._stop_watch()

    @property
    def reader_mark(self) -> str:
        """A statement by which each of Spark's readers marks itself as one of this snapshot, for as long as it reads."""
        return f"SELECT pg_advisory_xact_lock_shared({OWN_LOCK}, {self._row('select pg_backend_pid()')[0]})"

    def _end_readers(self, connection: psycopg.Connection) -> None:
        """A cancelled Spark task waits for its query's first rows before it notices; the query would go on until then."""
        with contextlib.suppress(psycopg.Error):  # a pooler, or a right that the role lacks: the queries end by themselves
            connection.execute(
                "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objsubid = 2 and granted"
                " and database = (select oid from pg_database where datname = current_database())"
                " and classid = %s and objid = pg_backend_pid() and pid <> pg_backend_pid()",
                [OWN_LOCK],
            )

    def still_there(self) -> None:
        """The last look before a commit. Raises SourceError where the connection that holds the snapshot is gone, or a limit is passed."""
        if self._watch is not None:
            self._watch.check()
        self._row("select 1")

    @property
    def reader_settings(self) -> str:
        """The limits of a reader's transaction: it ends no later than the snapshot that it joins."""
        return settings_at(self.server.version, self._watch.seconds_left if self._watch is not None else self.limits.snapshot)

    @property
    def jdbc_options(self) -> dict[str, str]:
        """Of Spark's readers, which go where this connection has gone; none of them waits for ever."""
        return self.address.jdbc_options(self._live().info, socketTimeout=str(self.limits.silence))

    # ------------------------------------------------------------------ one query
    def _regclass(self) -> str:
        return sql.Identifier(self.container.schema, self.container.name).as_string(None)

    def _live(self) -> psycopg.Connection:
        if self._connection is None:
            raise SourceError(f"{self.container.label}: the connection to the source was closed; sync again.")
        return self._connection

    def rows(self, query: str | sql.Composable, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Runs one query; its failures name the container."""
        with source_errors(self.container.label, self.address):
            return ask(self._live(), query, parameters)

    def _row(self, query: str | sql.Composable, parameters: dict[str, Any] | None = None) -> tuple[Any, ...]:
        rows = self.rows(query, parameters)
        if not rows:
            raise SourceError(f"{self.container.label}: the source answered a query without a row.")
        return rows[0]
