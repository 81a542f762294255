"""Connects to a PostgreSQL datastore, through psycopg and through Spark's JDBC driver, without ever showing a password."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import ConnectionInfo, conninfo, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from incremental_assets.core.container import RowSecurity
from incremental_assets.core.errors import ConfigurationError, SourceUnreachable
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.databases.address import DatabaseAddress
from incremental_assets.databases.postgres.options import jdbc_properties, resolved
from incremental_assets.databases.postgres.settings import SEARCH_PATH, of_session, of_transaction

APPLICATION_NAME = "incremental-assets"
"""The application name of all our connections, which administrators of the source see. Our own read-only transactions must not hold a
watermark back, but the name alone does not prove that a session is ours, as every client can set it: see ``OWN_LOCK``."""

OWN_LOCK = 1768841075
"""The first half of the key of the advisory locks by which our transactions are recognised. The second half is 0, and for Spark's readers
the id of the server process that holds their snapshot."""
OWN_MARK = f"select pg_advisory_xact_lock_shared({OWN_LOCK}, 0)"
"""The statement that takes this advisory lock in each of our transactions. The lock is shared, so nobody waits for it, and it is held until
the transaction ends."""

CONNECT_TIMEOUT_SECONDS = 15
PLAN_QUERY_LIMIT = "1h"
"""The statement time-out of a query outside of a snapshot, which has limits of its own."""
SET_LOCK_TIMEOUT = "set local lock_timeout = '5s'"
"""A query that waits for a lock, for example behind somebody's ALTER, fails after this time, so that the other containers get their turn.
Dagster limits a whole tick of a schedule to a minute."""


_DEFAULTS = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    # If the network drops packets, no error is reported: after a minute without an answer the server is taken for lost.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}
_KERBEROS = ("gssencmode", "krbsrvname", "gsslib", "gssdelegation")


@dataclass(frozen=True)
class PostgresAddress(DatabaseAddress):
    """The address of a database, and the user and password for it. ``repr`` does not show the password.

    ``options``: further connection options of libpq, as ``options.resolved`` returns them. ``ports``: the port or ports as the URL says
    them, as libpq accepts several hosts; ``port`` is the first of them.
    """

    ports: str = ""

    @classmethod
    def parse(cls, datastore: str, url: str | None) -> "PostgresAddress":
        """The address that a URL names. ``datastore`` is the name for messages.

        Raises ConfigurationError if the URL is not ``postgresql://user:password@host:port/database``, or has an option that cannot be used.
        """
        wanted = f"{datastore}: url is not postgresql://user:password@host:port/database"
        if not url:
            raise ConfigurationError(f"{datastore}: url is empty; is the environment variable set that it refers to?")
        if not url.startswith(("postgresql://", "postgres://")):
            raise ConfigurationError(f"{wanted}.")
        try:
            parts: dict[str, Any] = conninfo.conninfo_to_dict(url)
        except psycopg.Error:  # its message would repeat the password
            raise ConfigurationError(f"{wanted}; special characters in the password are written as %XX.") from None
        host = str(parts.pop("host", "") or "localhost")
        if "@" in host:  # it is the end of a password with an unescaped @, and must not be shown in a message
            raise ConfigurationError(f"{wanted}; special characters in the password are written as %XX (@ as %40).")
        if host.startswith("/"):
            raise ConfigurationError(f"{datastore}: url names a socket folder; Spark reads over TCP, so name a host and a port.")
        user, database = str(parts.pop("user", "") or ""), str(parts.pop("dbname", "") or "")
        if not user or not database:
            raise ConfigurationError(f"{wanted}: {'the user' if not user else 'the database'} is missing.")
        password, ports = str(parts.pop("password", "") or os.environ.get("PGPASSWORD", "")), str(parts.pop("port", 5432))
        port_text = ports.split(",")[0] or "5432"
        if not port_text.isdigit():  # it may be the end of a password, too
            raise ConfigurationError(f"{wanted}: the port is no number; special characters in the password are written as %XX (: as %3A).")
        port = int(port_text)
        options = resolved(datastore, {k: str(v) for k, v in parts.items()}, os.environ)
        return cls(host, port, database, user, password, options, ports)

    @property
    def display(self) -> str:
        """The address without the password, for messages and metadata."""
        return f"postgresql://{quote(self.user)}@{self.host}:{self.port}/{self.database}"

    def connect(self) -> psycopg.Connection:
        """The same connection as ``opened`` returns. Raises SourceUnreachable, with what to do, if the database cannot be reached."""
        try:
            return self.opened()
        except psycopg.Error as error:
            raise SourceUnreachable(f"{self.display}: cannot connect: {reason_of(error, self.password)} {_remedy(error)}") from None

    def opened(self) -> psycopg.Connection:
        """A new connection in autocommit mode, with our application name. Raises psycopg.Error, whose text may contain the password."""
        connection = psycopg.connect(
            autocommit=True,
            prepare_threshold=None,  # server-side statements do not survive a transaction pooler
            **self._parameters(self.host, self.ports or self.port, self.password),
        )
        try:
            connection.execute(of_session(connection.info.server_version, connection.info.backend_pid).encode())
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def jdbc_options(self, found: ConnectionInfo | None = None, **more: str) -> dict[str, str]:
        """The options of Spark's JDBC reader.

        ``found``: the data of an open connection, from which the host that answered and the password that was used are taken (libpq may
        know several hosts, and may read the password from a file). ``more``: further properties of the driver. The passwords are options of
        their own and no part of the URL, because Spark redacts options with such names when it shows a plan.
        """
        host, port, password = (found.host, found.port, found.password) if found else (self.host, self.port, self.password)
        host = f"[{host}]" if ":" in host else host
        fixed = {"ApplicationName": APPLICATION_NAME, "prepareThreshold": "0", "tcpKeepAlive": "true"}
        properties = {**fixed, "connectTimeout": str(CONNECT_TIMEOUT_SECONDS), **jdbc_properties(self.options), **more}
        secret = {name: properties.pop(name) for name in ("sslpassword",) if name in properties}
        listed = "&".join(f"{name}={quote(value, safe='')}" for name, value in properties.items())
        return {
            "url": f"jdbc:postgresql://{host}:{port}/{quote(self.database, safe='')}?{listed}",
            "driver": "org.postgresql.Driver",
            "user": self.user,
            "password": password,
            **secret,
        }

    def libpq_connection(self, found: ConnectionInfo) -> str:
        """The connection string of libpq for Spark's tasks, with the host that answered and the password that was used."""
        return conninfo.make_conninfo(**self._parameters(found.host, found.port, found.password))

    def _parameters(self, host: str, port: str | int, password: str) -> dict[str, Any]:
        """The parameters of a connection, by their names in libpq. The encoding would otherwise be that of the database, or of the role."""
        who = {"user": self.user, "password": password, "application_name": APPLICATION_NAME}
        return {"host": host, "port": port, "dbname": self.database, **who, **_DEFAULTS, **self.options, "client_encoding": "UTF8"}

    def reason_against_libpq(self) -> str | None:
        """Why Spark's tasks cannot connect with these options: the libpq in ADBC's driver knows no Kerberos. None if they can."""
        demanded = [name for name, value in self.options.items() if name in _KERBEROS and value not in ("disable", "prefer")]
        return f"the connection uses {', '.join(demanded)}" if demanded else None

    def redact(self, text: str) -> str:
        """The text with the password replaced by asterisks."""
        return text.replace(self.password, "****") if self.password else text


def ask(
    connection: psycopg.Connection,
    query: str | sql.Composable,
    parameters: Mapping[str, Any] | None = None,
    row_factory: Any = tuple_row,
    row_security: RowSecurity = RowSecurity.REFUSE,
) -> list[Any]:
    """The rows of one query, with our settings, and with limits for waiting for locks and for its duration. Raises psycopg.Error.

    The settings and the query are sent as one message. PostgreSQL runs it as one transaction, even in autocommit mode and through a pooler,
    so ``set local`` holds for the query, and there is only one round trip. A transaction that is open already has begun with the settings.
    """
    # A client cursor puts the parameters into the text: psycopg refuses several statements with server-side parameters.
    with psycopg.ClientCursor(connection, row_factory=row_factory) as cursor:
        text = query.as_string(connection) if isinstance(query, sql.Composable) else query
        begin = "" if connection.info.transaction_status is not TransactionStatus.IDLE else f"{_begin(connection, row_security)}; "
        # The query is given as text, because psycopg then encodes it as the connection needs it: not every database uses UTF-8.
        own = f"{begin}{SET_LOCK_TIMEOUT}{_set_statement_timeout()}"
        cursor.execute(f"{own};\n{OWN_MARK}, {SEARCH_PATH};\n{text}", parameters)  # pyright: ignore[reportArgumentType, reportCallIssue]
        # Each of the statements has a result of its own; that of the query is the last one.
        while cursor.nextset():
            pass
        return cursor.fetchall()


def _begin(connection: psycopg.Connection, row_security: RowSecurity) -> str:
    """The statements with which a transaction of one query begins."""
    limits = {"statement_timeout": PLAN_QUERY_LIMIT}
    if connection.info.server_version >= 170000:
        limits["transaction_timeout"] = "0"
    return f"set transaction isolation level read committed; {of_transaction(row_security, limits)}"


def _set_statement_timeout() -> str:
    """The statement that makes the server end the query when the current time limit has passed; empty if there is no time limit."""
    left = seconds_left()
    return "" if left is None else f"; set local statement_timeout = {max(1, int(left * 1000))}"


def reason_of(error: psycopg.Error, password: str) -> str:
    """The server's message in one line, without the password."""
    text = " ".join(str(error).split()) or type(error).__name__
    return (text.replace(password, "****") if password else text).rstrip(".?! ") + "."


def _remedy(error: psycopg.Error) -> str:
    text = str(error).lower()
    if "password authentication failed" in text or "no password supplied" in text:
        return "Check user and password in the datastore's url."
    if "certificate" in text:
        return "Check sslmode and sslrootcert in the datastore's url (or PGSSLMODE, PGSSLROOTCERT): is it this server's authority?"
    if "does not exist" in text:
        return "Check the name in the datastore's url."
    if "refused" in text or "timeout" in text or "resolve" in text or "no route" in text:
        return "Check host and port in the datastore's url, and that the server runs and accepts connections from this machine."
    return "Check the datastore's url."
