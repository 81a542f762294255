"""Connects to a MySQL or MariaDB datastore through PyMySQL, without ever showing a password."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from incremental_assets.core.errors import ConfigurationError, OutOfTime, SourceError, SourceUnreachable, SourceWaits
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.databases.address import DatabaseAddress
from incremental_assets.databases.mysql.settings import of_session

APPLICATION_NAME = "incremental-assets"
"""The program name of our connections, which MySQL shows in ``performance_schema.session_connect_attrs``."""
CONNECT_TIMEOUT_SECONDS = 15
ANSWER_SECONDS = 3600
"""How long a query outside of a snapshot may take until its first row."""
_OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key")
_SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")

ACCESS_DENIED, UNKNOWN_DATABASE, UNKNOWN_TABLE, UNKNOWN_COLUMN = 1045, 1049, 1146, 1054
DENIED = (1044, 1142, 1143, 1227, 1370)
"""The numbers of errors about privileges: on a database, a table, a column, a global one, a routine."""
LOCK_TIMEOUT, TABLE_CHANGED, KILLED, TIMED_OUT = 1205, 1412, 1317, (1969, 3024)
HIDDEN_VIEW = 1345
"""EXPLAIN of a view needs privileges on the tables that it reads."""
UNREADABLE_VIEW = (1356, 1449)
"""The errors for a view whose tables or columns are gone or not granted to its definer, and for one whose definer is gone."""

Row = tuple[str | None, ...]


def driver() -> Any:
    """The module ``pymysql``. Raises ConfigurationError if it is not installed, as it comes with an extra."""
    try:
        import pymysql
    except ImportError:
        raise ConfigurationError("MySQL and MariaDB need the package pymysql: pip install 'incremental-assets[mysql]'") from None
    return pymysql


@dataclass(frozen=True)
class MySQLAddress(DatabaseAddress):
    """The address of a database, and the user and password for it. ``repr`` does not show the password.

    ``options``: those of ``ssl_mode``, ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` that the URL has.
    """

    @classmethod
    def parse(cls, datastore: str, url: str | None) -> "MySQLAddress":
        """The address that a URL names. ``datastore`` is the name for messages.

        Raises ConfigurationError if the URL is not ``mysql://user:password@host:port/database``, or has an option that is not known here.
        """
        address = cls.parsed(datastore, url, schemes=("mysql", "mariadb"), port=3306, known=_OPTIONS)
        if address.options.get("ssl_mode", "preferred").lower() not in _SSL_MODES:
            raise ConfigurationError(f"{datastore}: url has an unknown ssl_mode; it is one of {', '.join(_SSL_MODES)}.")
        return address

    @property
    def display(self) -> str:
        """The address without the password, for messages and metadata."""
        return f"mysql://{quote(self.user)}@{self.host}:{self.port}/{self.database}"

    def connect(self, silence: int = ANSWER_SECONDS) -> "MySQLConnection":
        """A new connection in autocommit mode with our settings. Raises SourceUnreachable, with what to do.

        ``silence``: how many seconds it waits for the next bytes of an answer.
        """
        pymysql = driver()
        try:
            found = pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password.encode(),  # as text, PyMySQL would encode it as Latin-1
                charset="utf8mb4",
                use_unicode=False,
                conv={},  # values arrive as the bytes of their text, which is exact
                autocommit=None,  # ``set_up`` sets it: PyMySQL cannot, without ``conv``
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                read_timeout=silence,
                write_timeout=silence,
                program_name=APPLICATION_NAME,
                **self._ssl(),
            )
        except (
            pymysql.Error,
            OSError,
            RuntimeError,
        ) as error:  # RuntimeError: a package for the server's way to prove passwords is missing
            raise SourceUnreachable(f"{self.display}: cannot connect: {reason(error, self.password)} {_remedy(error)}") from None
        connection = MySQLConnection(found, self)
        try:
            connection.set_up(silence)
            # The database is chosen last, so that a wrong name is distinguished from a wrong password.
            connection.select_database()
        except pymysql.Error as error:
            connection.close()
            raise SourceUnreachable(f"{self.display}: cannot connect: {reason(error, self.password)} {_remedy(error)}") from None
        return connection

    def _ssl(self) -> dict[str, Any]:
        mode = self.options.get("ssl_mode", "preferred").lower()
        files = {name: self.options[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in self.options}
        if mode == "disabled":
            return {"ssl_disabled": True}
        if mode == "preferred" and not files:
            return {}
        return {**files, "ssl_verify_cert": mode in ("verify_ca", "verify_identity"), "ssl_verify_identity": mode == "verify_identity"} | (
            {"ssl": {"check_hostname": False}} if mode == "required" and not files else {}
        )


class MySQLConnection:
    """One connection. Its methods raise PyMySQL's errors.

    ``is_mariadb``: the server is MariaDB and not MySQL. ``version``: a number that grows with the server's version, e.g. 110405.
    """

    def __init__(self, connection: Any, address: MySQLAddress) -> None:
        self._connection, self._address = connection, address
        text = str(connection.get_server_info())
        self.is_mariadb = "mariadb" in text.lower()
        # MariaDB before 11 begins its version with "5.5.5-", so that old replicas accept it.
        numbers = text.removeprefix("5.5.5-").split("-")[0].split(".") if self.is_mariadb else text.split("-")[0].split(".")
        self.version = sum(int(n) * 100 ** (2 - i) for i, n in enumerate(numbers[:3]) if n.isdigit())

    @property
    def id(self) -> int:
        """The id of its session in the server."""
        return int(self._connection.thread_id())

    def set_up(self, silence: int) -> None:
        """Makes the settings on which a read depends."""
        settings = of_session(self.is_mariadb, self.version, silence)
        self.execute("set session " + ", ".join(f"{name} = {value}" for name, value in settings.items()))
        self.execute("set session transaction isolation level repeatable read")

    def select_database(self) -> None:
        self._connection.select_db(self._address.database)

    def execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def rows(self, query: str, parameters: Sequence[str] = ()) -> list[Row]:
        """The rows of a query, each value as its text. ``parameters`` take the places of ``%s`` in the query."""
        with self._connection.cursor() as cursor:
            cursor.execute(query, tuple(parameters) or None)
            return [tuple(None if value is None else value.decode() for value in row) for row in cursor.fetchall()]

    def estimated_rows(self, query: str) -> int:
        """How many rows the optimizer expects of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"explain {query}")
            at = [column[0].lower() for column in cursor.description].index("rows")
            # A view is explained by several lines; those of one SELECT are joined, and none has more rows than their product.
            return max((int(row[at]) for row in cursor.fetchall() if row[at] is not None), default=0)

    @contextlib.contextmanager
    def streamed(self, query: str) -> Iterator[Any]:
        """A cursor whose rows arrive one by one. If the block ends before the last one, the connection is closed.

        The server cannot be known to stop sending otherwise: PyMySQL would read all that is left.
        """
        cursor = self._connection.cursor(driver().cursors.SSCursor)
        finished = False
        try:
            cursor.execute(query)
            yield cursor
            finished = True
        finally:
            if not finished:
                self.close()

    @property
    def is_open(self) -> bool:
        return bool(self._connection.open)

    def close(self) -> None:
        """Closes the connection; the server ends its transaction."""
        if self._connection.open:
            with contextlib.suppress(driver().Error, OSError):
                self._connection.close()


def reason(error: BaseException, password: str) -> str:
    """The message of an error in one line, without the password."""
    arguments = getattr(error, "args", ())
    text = str(arguments[1]) if len(arguments) > 1 else str(error)
    text = " ".join(text.split()) or type(error).__name__
    return (text.replace(password, "****") if password else text).rstrip(".?! ") + "."


def number_of(error: BaseException) -> int | None:
    """The number of an error of the server or of PyMySQL; None if it has none."""
    arguments = getattr(error, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


def _remedy(error: BaseException) -> str:
    number, text = number_of(error), str(error).lower()
    if number in (ACCESS_DENIED, 1698):
        return "Check user and password in the datastore's url, and from which hosts the user may connect."
    if number == UNKNOWN_DATABASE or number in DENIED:
        return "Check the database's name in the datastore's url, and that the user may use it (GRANT SELECT ON <database>.*)."
    if "cryptography" in text:
        return "Run: pip install 'incremental-assets[mysql]'"
    if "ssl" in text or "certificate" in text or "tls" in text:
        return "Check ssl_mode and ssl_ca in the datastore's url: is it this server's authority?"
    if number in (2002, 2003, 2005):
        return "Check host and port in the datastore's url, and that the server runs and accepts connections from this machine."
    return "Check the datastore's url."


@contextlib.contextmanager
def source_errors(label: str, address: MySQLAddress) -> Iterator[None]:
    """Raises an error of PyMySQL inside the block as SourceError, whose message names the container and says what to do.

    Raises OutOfTime, which is a SourceError, too, if a query was ended while a time limit was set.
    """
    pymysql = driver()
    try:
        yield
    except pymysql.Error as error:
        what, number = reason(error, address.password), number_of(error)
        if number in DENIED:
            message = f"{label}: {what} Grant it: GRANT SELECT ON <database>.<table> TO <this user>;"
        elif number == UNKNOWN_TABLE:
            message = f"{label}: {what} Dropped or renamed? Run: incremental-assets catalog"
        elif number == UNKNOWN_COLUMN:
            message = f"{label}: {what} Run: incremental-assets catalog"
        elif number == LOCK_TIMEOUT:
            message = f"{label}: the table is locked by an ALTER, TRUNCATE or LOCK TABLES of another session; sync again later."
        elif number == TABLE_CHANGED:
            message = f"{label}: the table was altered or truncated while its snapshot was taken; nothing was written. Sync again."
        elif number in UNREADABLE_VIEW:
            raise SourceWaits(f"{label}: it waits: {what} The first sync after the view was repaired reads it by itself.") from error
        elif number in TIMED_OUT and seconds_left() is not None:
            raise OutOfTime(f"{label}: a query took longer than there was time for it: {what}") from error
        elif number in TIMED_OUT or number == KILLED:
            message = f"{label}: a query was ended: {what} Nothing was written; sync again."
        elif isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
            message = f"{label}: the source was lost while reading: {what} Nothing half-read was written; sync again."
        else:
            message = f"{label}: the source refused a query: {what}"
        raise SourceError(message) from error
