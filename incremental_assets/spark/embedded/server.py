"""The client's side of the embedded Spark Connect server: one server for each state folder, which all commands share.

A small supervisor process owns the JVM, and ends if nobody uses the server. Locks show which processes are alive, because the kernel
releases a lock however its process dies. Process ids do not show it, because they are used again.

- ``alive.lock`` is held by the supervisor as long as it lives. The content of the file is the supervisor's process id.
- ``start.lock`` is held by the command that starts a server, until the server is ready.
- ``in_use.lock`` is held as a shared lock by every open session. The supervisor ends if it could have locked it exclusively during the
  whole idle time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from incremental_assets.spark.embedded import launch
from incremental_assets.spark.embedded.launch import SparkUnavailable

log = logging.getLogger(__name__)

START_SECONDS = 180
STOP_SECONDS = 15
WRITTEN_SECONDS = 3.0
"""The time within which a supervisor has written its process id after taking its lock."""
SUPERVISOR = "incremental_assets.spark.embedded.supervisor"
IDLE = "INCREMENTAL_ASSETS_SPARK_IDLE_SECONDS"
DEFAULT_IDLE_SECONDS = 15 * 60


@dataclass(frozen=True)
class Record:
    """What a client needs to know about a running server. It is stored as JSON in a file that only this user can read.

    ``pid``: the process id of the supervisor. ``started``: the time in ISO 8601, UTC. ``java``: the Java as text for messages.
    ``fingerprint``: see ``launch.fingerprint``.
    """

    pid: int
    jvm_pid: int
    port: int
    token: str
    started: str
    master: str
    java: str
    fingerprint: str

    @property
    def url(self) -> str:
        """The URL for any Spark Connect client on this machine. It is a secret, as it contains the token."""
        return f"sc://localhost:{self.port}/;token={self.token}"


class Home:
    """The folder ``spark`` of the server within a state folder, with its files and locks."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = Path(state_dir).expanduser().absolute() / "spark"
        self.record_file = self.folder / "server.json"
        self.log = self.folder / "server.log"
        self.output = self.folder / "server.out"
        self.scratch = self.folder / "scratch"

    def prepare(self) -> None:
        """Creates the folder, which only this user can read. Raises SparkUnavailable if that is not possible."""
        try:
            # The parent may be DAGSTER_HOME and belong to others too, so the mode of an existing one is not changed.
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise SparkUnavailable(f"Cannot write {self.folder}: {error}. DAGSTER_HOME names another folder.") from error

    @contextlib.contextmanager
    def lock(self, name: str, how: int) -> Iterator[int | None]:
        """Holds one of the locks during the block. ``how``: the operation for ``flock``.

        Yields the file descriptor; None if ``how`` has LOCK_NB and another process holds the lock.
        """
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, how)
            except BlockingIOError:
                yield None
            else:
                yield descriptor
        finally:
            os.close(descriptor)  # this releases the lock

    def supervisor(self) -> int | None:
        """The process id of the living supervisor; None if there is none, or if it has not written its process id yet."""
        if not (self.folder / "alive.lock").exists():
            return None
        with self.lock("alive.lock", fcntl.LOCK_SH | fcntl.LOCK_NB) as free:
            if free is not None:
                return None
        text = (self.folder / "alive.lock").read_text().strip()
        return int(text) if text.isdigit() else None

    def process(self) -> psutil.Process | None:
        """The process of the living supervisor, for sending it a signal; None if the stored process id is not that of a supervisor here.

        The lock shows that a supervisor lives, but its process id may mean another process here: the supervisor may run in another
        (operating system) container or on another host that shares the folder, and one that has just started has not written its process id
        yet.
        """
        try:
            process = psutil.Process(int((self.folder / "alive.lock").read_text()))
            command = process.cmdline()
            return process if SUPERVISOR in command and Path(command[-1]).samefile(self.folder.parent) else None
        except (psutil.Error, OSError, ValueError):
            return None

    def record(self) -> Record | None:
        """The record of the running server if it is ready; None if there is none, or if the stored record is that of a dead server."""
        pid = self.supervisor()
        if pid is None:
            return None
        try:
            record = Record(**json.loads(self.record_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None  # the server is not ready yet, or another version of this project has written the record
        return record if record.pid == pid else None

    def used_now(self) -> None:
        """Restarts the idle time, for clients that hold no session of ``in_use``."""
        (self.folder / "in_use.lock").touch(mode=0o600)

    def last_words(self) -> str:
        """The last lines of the server's logs, without stack traces, as text for an error message."""
        words: list[str] = []
        for file in (self.output, self.log):
            try:
                lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip() and line[0] != "\t"]
            except OSError:
                continue  # the server failed before it wrote this file
            if lines:
                words += [f"{file} ends with:", *("  " + line for line in lines[-12:])]
        return "\n".join(words) or f"It left no log in {self.folder}."


# ------------------------------------------------------------------------------------------------ the client's side
@contextlib.contextmanager
def in_use(state_dir: Path) -> Iterator[Home]:
    """Prevents the server from ending because of idleness during the block.

    The kernel releases the lock if this process is killed, so that a dead client does not keep the server alive.
    """
    home = Home(state_dir)
    home.prepare()
    with home.lock("in_use.lock", fcntl.LOCK_SH):  # waits only if a server is ending right now
        home.used_now()
        yield home
        home.used_now()


_started: list[subprocess.Popen[bytes]] = []
"""The supervisors that this process has started. They are polled, so that an ended one does not stay as a zombie process."""


def ensure(state_dir: Path) -> Record:
    """Returns the record of the running server, and starts a server if there is none. Concurrent callers get the same one.

    Raises SparkUnavailable if the server cannot be started.
    """
    home = Home(state_dir)
    home.prepare()
    _started[:] = [process for process in _started if process.poll() is None]
    record = home.record()
    if record is None or _lacks_connector(record):
        with home.lock("start.lock", fcntl.LOCK_EX):
            record = home.record()
            if record is not None and _lacks_connector(record):
                log.warning(
                    "The embedded Spark server (since %s) lacks a connector for %s; one that has it takes its place.",
                    record.started, " or ".join(launch.stores()),
                )  # fmt: skip
                stop(state_dir)
                record = None
            record = record or _start(home)
    if record.fingerprint != launch.fingerprint():
        log.warning(
            "The embedded Spark server (since %s) was started with other settings, or by an earlier version; "
            "`python -m incremental_assets.spark.embedded.server stop` ends it, and the next command starts one with those of now.",
            record.started,
        )
    home.used_now()
    return record


def _lacks_connector(record: Record) -> bool:
    return not {*launch.stores()} <= {*record.fingerprint.split("+")[1:]}


def _start(home: Home) -> Record:
    if (store := launch.untried_store()) is not None:
        log.warning("A lake on %s was not tried with this version. What is known of it is in docs/object-stores.md.", store)
    # These calls find Java, fetch the JARs and read the user's settings. The supervisor does the same, but here the user sees the errors.
    launch.settings(home.folder)
    launch.java()
    began = time.monotonic()
    log.info("starting the embedded Spark server (ends after %g s without use) …", idle_seconds())
    process = None
    while time.monotonic() - began < START_SECONDS:
        record = home.record()
        if record is not None:
            log.info("the embedded Spark server is ready after %.1f s", time.monotonic() - began)
            return record
        if process is None and home.supervisor() is None:  # also after one that was just ending
            process = _start_supervisor(home)
        elif process is not None and process.poll() is not None:
            raise SparkUnavailable(f"The embedded Spark server could not start.\n{home.last_words()}")
        time.sleep(0.05)
    stop(home.folder.parent)
    raise SparkUnavailable(f"The embedded Spark server was not ready after {START_SECONDS} s and was ended.\n{home.last_words()}")


def _start_supervisor(home: Home) -> subprocess.Popen[bytes]:
    output = os.open(home.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR, str(home.folder.parent)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")]))},
            start_new_session=True,  # so that it outlives this command, and does not get the command's Ctrl-C
        )
    finally:
        os.close(output)
    _started.append(process)
    return process


def _root() -> str:
    """The folder from which this package is imported. The supervisor, whose working directory is ``/``, must find the package too."""
    return str(Path(__file__).resolve().parents[3])


def wait_until_gone(state_dir: Path, seconds: float) -> bool:
    """Waits for the end of the server for at most ``seconds``; returns whether it has ended.

    The supervisor notices the end of the JVM immediately, but needs a moment to end itself.
    """
    home = Home(state_dir)
    deadline = time.monotonic() + seconds
    while home.supervisor() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def stop(state_dir: Path) -> bool:
    """Stops the server and all queries on it. Returns False if there was none.

    Raises SparkUnavailable if the server does not end, or if its supervisor runs in another container or on another host.
    """
    home = Home(state_dir)
    if home.supervisor() is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = _found(home)
        if process is None and home.supervisor() is not None:
            raise SparkUnavailable(
                f"The embedded Spark server of {home.folder} is alive, but its supervisor is no process that is seen here: it runs in "
                f"another container or on another host that shares this folder. Stop it there."
            )
        with contextlib.suppress(psutil.NoSuchProcess):
            if process is not None:
                process.send_signal(number)  # psutil checks first that the process id still belongs to the same process
        if wait_until_gone(state_dir, STOP_SECONDS):
            for process in _started:
                process.poll()
            return True
    raise SparkUnavailable(f"The embedded Spark server (process {home.supervisor()}) does not end. It has to be killed by hand.")


def _found(home: Home) -> psutil.Process | None:
    """The process of the supervisor; waits if the supervisor has just taken its lock and not yet written its process id."""
    deadline = time.monotonic() + WRITTEN_SECONDS
    while (process := home.process()) is None and home.supervisor() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def idle_seconds() -> float:
    """The seconds after which a server without clients ends; 0 means never."""
    text = os.environ.get(IDLE, str(DEFAULT_IDLE_SECONDS))
    try:
        return max(0.0, float(text))
    except ValueError as error:
        raise SparkUnavailable(f"{IDLE}={text!r} is no number of seconds.") from error


def main(arguments: list[str]) -> int:
    """The command line: ``start`` and ``stop``, and ``fetch`` for an installation. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    verb = arguments[0] if arguments else ""
    state = Path(arguments[1] if len(arguments) > 1 else os.environ.get("DAGSTER_HOME") or ".dagster_home")
    try:
        if verb == "fetch":
            fetched = launch.jars()
            launch.built_jar(fetched)
            log.info("Spark's %d JARs are in %s", len(fetched), launch.jar_folder())
        elif verb == "start":
            record = ensure(state)
            log.info("listening on 127.0.0.1:%d, since %s, %s, %s", record.port, record.started, record.master, record.java)
        elif verb == "stop":
            log.info("stopped" if stop(state) else "no Spark server was running")
        else:
            sys.stderr.write("usage: python -m incremental_assets.spark.embedded.server start|stop|fetch [STATE_FOLDER]\n")
            return 2
    except SparkUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
