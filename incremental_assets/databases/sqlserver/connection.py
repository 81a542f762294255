"""Connects to a SQL Server datastore through python-tds, without ever showing a password."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from incremental_assets.core.errors import ConfigurationError, OutOfTime, SourceError, SourceUnreachable
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.databases.address import DatabaseAddress
from incremental_assets.databases.sqlserver.host_check import is_for_host

APPLICATION_NAME = "incremental-assets"
"""The program name of our connections, by which ``transactions`` leaves them out."""
CONNECT_TIMEOUT_SECONDS = 15
LOCK_WAIT_SECONDS = 30
"""How long a statement waits for somebody's lock."""
ANSWER_SECONDS = 3600
"""How long a query may take until its next bytes arrive."""
SETTINGS = (
    "set textsize 2147483647",
    "set ansi_nulls on",
    "set ansi_padding on",
    "set ansi_warnings on",
    "set arithabort on",
    "set concat_null_yields_null on",
    "set quoted_identifier on",
    "set numeric_roundabort off",
    "set nocount on",
    "set xact_abort on",
    "set language us_english",
    "set dateformat ymd",
    f"set lock_timeout {LOCK_WAIT_SECONDS * 1000}",
)
"""What values and their texts depend on, whatever the settings of the server and the login are."""
SNAPSHOT_STATE = "select snapshot_isolation_state from sys.databases where database_id = db_id()"
"""1 if the database allows snapshots."""
SNAPSHOT_ISOLATION = "set transaction isolation level snapshot"
"""From then on no query waits for the locks of open transactions: each reads the rows as they were committed when it began."""
_OPTIONS = ("encrypt", "ca", "check_host")

LOGIN_FAILED, NO_DATABASE, UNKNOWN_TABLE, UNKNOWN_COLUMN = 18456, (4060, 911), 208, 207
DENIED = (229, 230, 262, 297, 300, 371, 916)
"""The numbers of errors about permissions: on an object, a column, in a database, on the server."""
LOCK_TIMEOUT, DEADLOCK, KILLED = 1222, 1205, 596
SNAPSHOT_FAILED = (3960, 3961, 3963, 3952, 3958)
"""The table was altered, or the database stopped keeping row versions, while a snapshot was held."""

Row = tuple[Any, ...]


def driver() -> Any:
    """The module ``pytds``. Raises ConfigurationError if it is not installed, as it comes with an extra."""
    try:
        import OpenSSL.SSL  # noqa: F401 python-tds goes without TLS where it is missing
        import pytds
        import pytds.tds_session
        import pytds.tls
        import pytds.utils
    except ImportError:
        raise ConfigurationError(
            "SQL Server needs the packages python-tds and pyopenssl: pip install 'incremental-assets[sqlserver]'"
        ) from None
    pytds.tls.validate_host = is_for_host
    # It would try again until the time is over, and then say no more than that: also for a database that does not exist.
    pytds.utils.exponential_backoff = _once
    pytds.tds_session._TdsSession.raise_db_exception = _raise_with_all_messages
    return pytds


def _once(work: Callable[[float], Any], ex_handler: object, max_time_sec: float, first_attempt_time_sec: float) -> Any:
    """Connects, without a second attempt."""
    return work(max_time_sec)


def _raise_with_all_messages(self: Any) -> None:
    """Raises the driver's error with all errors that the server has sent: by itself, the driver goes by the last one.

    For a database that does not exist that would be *Login failed*, and for a table that does not, *Statement(s) could not be prepared*.
    """
    pytds = driver()
    said = [message for message in self.messages if message["priv_msg_type"]]
    if not said:
        raise pytds.Error("Request failed, server didn't send error message")
    error = pytds.tds_base._create_exception_by_message(said[-1])
    error.text, error.numbers = " ".join(message["message"] for message in said), {message["msgno"] for message in said}
    raise error


def driver_errors() -> tuple[type[BaseException], ...]:
    """What python-tds raises: its own errors, those of TLS and of the socket, and those of a text that is not UTF-16."""
    own = driver().Error
    import OpenSSL.SSL

    return own, OpenSSL.SSL.Error, OSError, UnicodeError


@dataclass(frozen=True)
class SQLServerAddress(DatabaseAddress):
    """The address of a database, and the user and password for it. ``repr`` does not show the password.

    ``options``: those of ``encrypt``, ``ca`` and ``check_host`` that the URL has.
    """

    @classmethod
    def parse(cls, datastore: str, url: str | None) -> "SQLServerAddress":
        """The address that a URL names. ``datastore`` is the name for messages.

        Raises ConfigurationError if the URL is not ``sqlserver://user:password@host:port/database``, or has an option that is not known.
        """
        address = cls.parsed(datastore, url, schemes=("sqlserver", "mssql"), port=1433, known=_OPTIONS)
        for name in ("encrypt", "check_host"):
            if address.options.get(name, "yes") not in ("yes", "no"):
                raise ConfigurationError(f"{datastore}: url has an unknown {name}; it is yes or no.")
        return address

    @property
    def display(self) -> str:
        """The address without the password, for messages and metadata."""
        return f"sqlserver://{quote(self.user)}@{self.host}:{self.port}/{quote(self.database)}"

    def connect(self, silence: int = ANSWER_SECONDS) -> "SQLServerConnection":
        """A new connection in autocommit mode with our settings. Raises SourceUnreachable, with what to do.

        ``silence``: how many seconds it waits for the next bytes of an answer.
        """
        pytds = driver()
        line: socket.socket | None = None
        try:
            line = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_SECONDS)
            found = pytds.connect(
                dsn=self.host,
                port=self.port,
                database=self.database,
                user=self.user,
                password=self.password,
                appname=APPLICATION_NAME,
                autocommit=True,
                login_timeout=CONNECT_TIMEOUT_SECONDS,
                timeout=silence,
                disable_connect_retry=True,
                sock=line,
                **self.encryption(),
            )
            connection = SQLServerConnection(found, line, silence)
            for setting in SETTINGS:
                connection.execute(setting)
            connection.read_versions()
        except driver_errors() as error:
            if line is not None:
                line.close()
            raise SourceUnreachable(f"{self.display}: cannot connect: {reason(error, self.password)} {_remedy(error)}") from None
        return connection

    def encryption(self) -> dict[str, Any]:
        """The driver's settings for TLS. The server must prove its name by a certificate, unless the URL says ``encrypt=no``.

        Raises ConfigurationError if this machine has no file of authorities and the URL names none.
        """
        if self.options.get("encrypt", "yes") == "no":
            return {}
        authorities = self.options.get("ca") or ssl.get_default_verify_paths().cafile
        if not authorities:
            raise ConfigurationError(f"{self.display}: no file of authorities was found for TLS. Name one in the url: ?ca=/path/ca.pem")
        return {"cafile": authorities, "validate_host": self.options.get("check_host", "yes") == "yes"}


class SQLServerConnection:
    """One connection. Its methods raise the errors of ``driver_errors``. ``line``: its socket, which another thread may shut down."""

    def __init__(self, connection: Any, line: socket.socket, silence: int) -> None:
        self._connection, self._line, self._silence = connection, line, silence
        self.is_open = True
        self.has_snapshots = False
        """Whether the database allows snapshots, and ``read_versions`` was called."""

    @property
    def id(self) -> int:
        """The id of its session in the server."""
        return int(self.rows("select @@spid")[0][0])

    def read_versions(self) -> None:
        """Lets all queries read past the locks of open transactions, if the database allows it.

        Otherwise the plan of a sync would wait for each transaction that has inserted or changed a row and is still open.
        """
        if self.rows(SNAPSHOT_STATE)[0][0] == 1:
            self.execute(SNAPSHOT_ISOLATION)
            self.has_snapshots = True

    def execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def rows(self, query: str) -> list[Row]:
        """The rows of a query. It is ended when the current time limit has passed, and the connection with it."""
        left = seconds_left()
        try:
            self._line.settimeout(self._silence if left is None else max(0.01, left))
            with self._connection.cursor() as cursor:
                cursor.execute(query)
                return [tuple(row) for row in cursor.fetchall()]
        except OSError:  # half an answer may still be under way, so that the connection is of no use any more
            self.close()
            raise
        finally:
            if self.is_open:
                self._line.settimeout(self._silence)

    @contextlib.contextmanager
    def streamed(self, query: str) -> Iterator[Any]:
        """A cursor whose rows arrive one by one. If the block ends before the last one, the connection is closed."""
        cursor = self._connection.cursor()
        finished = False
        try:
            cursor.execute(query)
            yield cursor
            finished = True
        finally:
            if not finished:
                self.close()

    def abort(self) -> None:
        """Shuts the socket down, from any thread: whoever waits for an answer gets an error, and the server ends the transaction."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; the server ends its transaction."""
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(*driver_errors()):
                self._connection.close()


def reason(error: BaseException, password: str) -> str:
    """The message of an error in one line, without the password."""
    text = str(getattr(error, "text", None) or error)
    text = " ".join(text.split()) or ("the time is over" if isinstance(error, TimeoutError) else type(error).__name__)
    return (text.replace(password, "****") if password else text).rstrip(".?! ") + "."


def numbers_of(error: BaseException) -> Set[int]:
    """The numbers of all errors that the server has sent with this one; empty if it is none of the server."""
    return getattr(error, "numbers", frozenset())


def _remedy(error: BaseException) -> str:
    numbers, text = numbers_of(error), str(error).lower()
    if numbers & {*NO_DATABASE, *DENIED}:
        return "Check the database's name in the datastore's url, and that the login has a user in it (CREATE USER … FOR LOGIN …)."
    if LOGIN_FAILED in numbers:
        return "Check user and password in the datastore's url; the server must allow SQL Server authentication."
    if "does not match host name" in text:
        return (
            "Name the server in the datastore's url as its certificate does. ?check_host=no accepts any name that the authority has signed."
        )
    if "ssl" in text or "certificate" in text or "tls" in text or "encrypt" in text:
        return "Check ca in the datastore's url: is it this server's authority? A server of your own network may do without: ?encrypt=no"
    if isinstance(error, OSError):
        return "Check host and port in the datastore's url, and that the server runs and accepts TCP connections from this machine."
    return "Check the datastore's url."


@contextlib.contextmanager
def source_errors(label: str, address: SQLServerAddress) -> Iterator[None]:
    """Raises an error of the driver inside the block as SourceError, whose message names the container and says what to do.

    Raises OutOfTime, which is a SourceError, too, if a query was ended while a time limit was set.
    """
    try:
        yield
    except driver_errors() as error:
        raise explained(label, error, address) from error


def explained(label: str, error: BaseException, address: SQLServerAddress) -> SourceError:
    """The SourceError for an error of the driver."""
    what, numbers = reason(error, address.password), numbers_of(error)
    if numbers & {*DENIED}:
        return SourceError(f"{label}: {what} Grant it: GRANT SELECT ON SCHEMA::<schema> TO <this user>;")
    if numbers & {UNKNOWN_TABLE, UNKNOWN_COLUMN}:
        return SourceError(f"{label}: {what} Dropped or renamed? Run: incremental-assets catalog")
    if LOCK_TIMEOUT in numbers:
        return SourceError(f"{label}: another session has locked the table or some of its rows; nothing was written. Sync again later.")
    if numbers & {*SNAPSHOT_FAILED}:
        return SourceError(f"{label}: the table was altered, or row versions ended, while its snapshot was held: {what} Sync again.")
    if isinstance(error, TimeoutError) and seconds_left() is not None:
        return OutOfTime(f"{label}: a query took longer than there was time for it: {what}")
    if numbers & {DEADLOCK, KILLED}:
        return SourceError(f"{label}: a query was ended: {what} Nothing was written; sync again.")
    if isinstance(error, UnicodeError):
        return SourceError(
            f"{label}: a text is not valid UTF-16: {what} Correct it in the source, or leave its column out: exclude_columns."
        )
    if isinstance(error, OSError) or not numbers:
        return SourceError(f"{label}: the source was lost while reading: {what} Nothing half-read was written; sync again.")
    return SourceError(f"{label}: the source refused a query: {what}")
