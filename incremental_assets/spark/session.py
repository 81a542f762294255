"""Opens Spark Connect sessions; no other module of the project creates one.

Only the API of Spark Connect is used, so that the same code runs against the embedded server and, with SPARK_REMOTE, against the server of
a cluster.

    with open_session(state_dir, name="shop/orders") as spark:
        spark.sql("select 1").collect()
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path

# Functions such as pyspark.sql.functions.col decide by this variable, and not by a session, whether they are those of Spark Connect. It
# must be set before pyspark is imported below.
os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession

from incremental_assets.spark.embedded import server
from incremental_assets.spark.embedded.launch import SparkUnavailable
from incremental_assets.spark.progress import TaskProgress, TaskReports

__all__ = ["SparkSession", "SparkUnavailable", "ensure_server", "open_session", "stop_server"]

log = logging.getLogger(__name__)

# This warning comes together with an exception, which this module raises or logs.
warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
# These loggers write every error to stderr once more, with the stack trace of the JVM.
for _name in ("pyspark.sql.connect.logging", "SQLQueryContextLogger"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# Results depend on these settings, so they are set in every session: the server of a cluster may have others.
SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.ansi.enabled": "true",
    # With the default, Spark replaces ${env:NAME} and ${anything} in every SQL text, even within names, comments and constants.
    "spark.sql.variable.substitute": "false",
    # The default is INT96, which other readers convert to nanoseconds: times before 1678 and after 2262 then overflow to wrong ones.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# Numbers of retries. Spark's own policy retries for ten minutes. A server on the loopback interface that does not answer for 4 s
# (waits of 0.05 + 0.2 + 0.8 + 3.2 s) is dead; a server behind a network may be back after a minute (two further waits of 12.8 and 51.2 s).
OPENING_RETRIES, EMBEDDED_RETRIES, REMOTE_RETRIES, CLOSING_RETRIES = 2, 4, 6, 1


# A channel that is never used, and is open as long as the process. gRPC ends its own threads when the last channel is closed. It then waits
# for them and holds Python's global lock meanwhile, and so the process hangs for ever if one of them just then needs that lock
# (grpc/grpc#42247; seen once at the end of a run).
_kept_open = grpc.insecure_channel("localhost:1")


def ensure_server(state_dir: Path) -> str:
    """The sc:// URL of the embedded server, which is started if none runs. The URL is a secret, as it contains the server's token.

    Raises SparkUnavailable if the server cannot be started.
    """
    return server.ensure(state_dir).url


def stop_server(state_dir: Path) -> bool:
    """Stops the embedded server and all queries on it. Returns whether one was running."""
    return server.stop(state_dir)


def server_id(session: SparkSession) -> str | None:
    """The id of the session's server, which no other server has had; None if the server does not tell it."""
    return session.conf.get("spark.app.id", None)


def is_running(state_dir: Path) -> bool:
    """Whether a session can be opened without starting a server: SPARK_REMOTE names one, or the embedded one runs."""
    return bool(os.environ.get("SPARK_REMOTE")) or server.Home(state_dir).record() is not None


def running_servers(state_dir: Path, others: Path) -> Set[str]:
    """The ids of the servers that are running: that of SPARK_REMOTE, or the embedded one and those in the folders below ``others``.

    No server is started for this. Raises SparkUnavailable if that of SPARK_REMOTE does not answer.
    """
    if os.environ.get("SPARK_REMOTE"):
        folders = [state_dir]
    else:
        folders = [folder for folder in (state_dir, *others.glob("*")) if server.Home(folder).record() is not None]
    found: set[str] = set()
    for folder in folders:
        with open_session(folder, name="which server") as session:
            found.add(server_id(session) or "")
    return found


@contextmanager
def open_session(state_dir: Path, *, name: str, on_progress: Callable[[TaskProgress], None] | None = None) -> Iterator[SparkSession]:
    """Opens a new session on the server of SPARK_REMOTE, or else on the embedded server, which is started if none runs.

    ``name`` becomes part of the user agent that the server sees. ``on_progress`` is called about every 2 seconds while a query
    runs. If the block ends with an exception, the session's queries are cancelled; the session is closed in any case. Raises
    SparkUnavailable if there is no server, or if the embedded server ended during the block.
    """
    remote = os.environ.get("SPARK_REMOTE")
    with ExitStack() as stack:
        if remote:
            session = _connect_remote(remote, name)
        else:
            stack.enter_context(server.in_use(state_dir))
            session = _connect_embedded(state_dir, name)
        if on_progress is not None:
            session.registerProgressHandler(TaskReports(on_progress))  # pyright: ignore[reportArgumentType]
        try:
            yield session
        except BaseException as error:
            interrupted = _interrupt(session)
            if isinstance(error, SparkConnectException | grpc.RpcError) and not remote and not interrupted:
                _explain_if_gone(state_dir, error)
            raise
        finally:
            _close(session)


# ------------------------------------------------------------------------------------------------ connecting
class _Loopback(DefaultChannelBuilder):
    """The gRPC channel to the embedded server: to 127.0.0.1, whatever ``localhost`` resolves to on this machine, and through no proxy."""

    def __init__(self, record: server.Record) -> None:
        super().__init__(record.url, [("grpc.enable_http_proxy", 0)])
        self.set(self.PARAM_USER_ID, str(os.getuid()))
        self._target = f"127.0.0.1:{record.port}"

    @property
    def endpoint(self) -> str:
        return self._target


def _connect_embedded(state_dir: Path, name: str) -> SparkSession:
    """Opens a session on the embedded server. If the recorded server turns out to be dead, another one is started, up to twice."""
    for attempt in (1, 2, 3):
        record = server.ensure(state_dir)
        try:
            return _connect(_Loopback(record), name, EMBEDDED_RETRIES)
        except (SparkConnectException, grpc.RpcError) as error:
            if attempt == 3 or not server.wait_until_gone(state_dir, seconds=5):
                words = server.Home(state_dir).last_words()
                raise SparkUnavailable(
                    f"The embedded Spark server is running (process {record.pid}) but opens no session: {_brief(error)}\n{words}\n"
                    "End it with `python -m incremental_assets.spark.embedded.server stop`; the next command starts a new one."
                ) from error
            log.warning("the embedded Spark server was killed; starting another one")
    raise AssertionError("unreachable")


def _connect_remote(url: str, name: str) -> SparkSession:
    where = re.sub(r"/;.*", "", url)  # the parameters of the URL may contain a token
    try:
        return _connect(DefaultChannelBuilder(url), name, REMOTE_RETRIES)
    except (PySparkException, grpc.RpcError, ValueError) as error:
        raise SparkUnavailable(
            f"SPARK_REMOTE names {where}, which opens no session: {_brief(error)}\nIs a Spark Connect server of version 4.2 "
            "running there, and the URL as in sc://host:15002/;use_ssl=true;token=…? Without SPARK_REMOTE, one is started here."
        ) from error


def _connect(builder: DefaultChannelBuilder, name: str, retries: int) -> SparkSession:
    builder.set("user_agent", re.sub(r"[^\x21-\x7e]", "_", f"incremental-assets/{name}")[:200])
    session = SparkSession(connection=builder)
    try:
        session.client.set_retry_policies([DefaultPolicy(max_retries=OPENING_RETRIES)])
        for key, value in SESSION_SETTINGS.items():
            session.conf.set(key, value)
        session.client.set_retry_policies([DefaultPolicy(max_retries=retries)])
    except BaseException:
        _close(session)
        raise
    return session


def _explain_if_gone(state_dir: Path, error: BaseException) -> None:
    """Raises SparkUnavailable, with the end of the server's logs, if a query failed because the embedded server has ended."""
    if server.wait_until_gone(state_dir, seconds=2):
        raise SparkUnavailable(
            "The embedded Spark server ended while it was in use (killed, or out of memory: INCREMENTAL_ASSETS_SPARK_MEMORY "
            "gives it more). Run the command again: it starts a new one, and what was not committed is read again.\n"
            f"{server.Home(state_dir).last_words()}"
        ) from error


# ------------------------------------------------------------------------------------------------ closing
def _interrupt(session: SparkSession) -> bool:
    """Cancels all queries of a session. Returns False if that failed; it is only logged, as the original exception is being raised."""
    try:
        session.client.set_retry_policies([DefaultPolicy(max_retries=CLOSING_RETRIES)])
        cancelled = session.interruptAll()
    except Exception as error:  # noqa: BLE001 the original exception is being raised
        log.warning("could not cancel the session's queries: %s", _brief(error))
        return False
    if cancelled:
        log.info("cancelled %d running Spark operation(s)", len(cancelled))
    return True


def _close(session: SparkSession) -> None:
    """Closes the session. If the server is gone, pyspark logs that itself and raises nothing."""
    session.client.set_retry_policies([DefaultPolicy(max_retries=CLOSING_RETRIES)])
    session.stop()


def _brief(error: BaseException) -> str:
    """One line of text for an error; gRPC's own texts have many lines."""
    details = error.details() if isinstance(error, grpc.Call) else None
    found = re.search(r'details = "([^"]*)"', str(error))
    return details or (found.group(1) if found else str(error).strip().splitlines()[0] if str(error).strip() else repr(error))
