"""The embedded Spark Connect server: one a state folder, shared by every command, ending by itself when nobody uses it.

Here belongs a client's view: starting it without two commands racing, finding it again, noticing that it is dead, ending it.
What owns the JVM is `supervisor`; what the JVM is told is in `launch`; sessions are in `spark`.

A small supervisor process owns the JVM. Who lives is told by locks, which the kernel releases however a process dies, and never
by process numbers, which are used again:

- `alive.lock` is held by the supervisor as long as it lives (its text is the supervisor's process number);
- `start.lock` is held by the command that starts a server, until that is ready;
- `in_use.lock` is shared by all open sessions; the supervisor ends when it could have had it alone for the idle time.
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
"""In which a supervisor that holds its lock has written its number."""
SUPERVISOR = "incremental_assets.spark.embedded.supervisor"
IDLE = "INCREMENTAL_ASSETS_SPARK_IDLE_SECONDS"
DEFAULT_IDLE_SECONDS = 15 * 60


@dataclass(frozen=True)
class Record:
    """What a client has to know of a running server; kept in a file that only this user can read."""

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
        """Works as it is with any Spark Connect client on this machine. A secret: it holds the token."""
        return f"sc://localhost:{self.port}/;token={self.token}"


class Home:
    """The server's files within a state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = Path(state_dir).expanduser().absolute() / "spark"
        self.record_file = self.folder / "server.json"
        self.log = self.folder / "server.log"
        self.output = self.folder / "server.out"
        self.scratch = self.folder / "scratch"

    def prepare(self) -> None:
        try:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be Dagster's home
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            raise SparkUnavailable(f"Cannot write {self.folder}: {error}. DAGSTER_HOME names another folder.") from error

    @contextlib.contextmanager
    def lock(self, name: str, how: int) -> Iterator[int | None]:
        """Holds one of the locks; yields its descriptor, or None when it was asked for without waiting and is taken."""
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, how)
            except BlockingIOError:
                yield None
            else:
                yield descriptor
        finally:
            os.close(descriptor)  # releases it

    def supervisor(self) -> int | None:
        """The process number of the living supervisor."""
        if not (self.folder / "alive.lock").exists():
            return None
        with self.lock("alive.lock", fcntl.LOCK_SH | fcntl.LOCK_NB) as free:
            if free is not None:
                return None
        text = (self.folder / "alive.lock").read_text().strip()
        return int(text) if text.isdigit() else None

    def process(self) -> psutil.Process | None:
        """The living supervisor, to be signalled; None where the number that is written down is not its own here.

        The lock tells that it lives, not that its number means the same process here: whoever holds it may be in another container, or on
        another host, and one that has just begun has not written its number yet.
        """
        try:
            process = psutil.Process(int((self.folder / "alive.lock").read_text()))
            command = process.cmdline()
            return process if SUPERVISOR in command and Path(command[-1]).samefile(self.folder.parent) else None
        except (psutil.Error, OSError, ValueError):
            return None

    def record(self) -> Record | None:
        """The server that is there and ready; None when there is none, or what is written down is of a dead one."""
        pid = self.supervisor()
        if pid is None:
            return None
        try:
            record = Record(**json.loads(self.record_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None  # not ready yet, or written by another version
        return record if record.pid == pid else None

    def used_now(self) -> None:
        """Starts the idle time anew, for users that hold no session of ours."""
        (self.folder / "in_use.lock").touch(mode=0o600)

    def last_words(self) -> str:
        """The end of the server's logs without stack traces, for an error message."""
        words: list[str] = []
        for file in (self.output, self.log):
            try:
                lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip() and line[0] != "\t"]
            except OSError:
                continue  # it did not come that far
            if lines:
                words += [f"{file} ends with:", *("  " + line for line in lines[-12:])]
        return "\n".join(words) or f"It left no log in {self.folder}."


# ------------------------------------------------------------------------------------------------ the client's side
@contextlib.contextmanager
def in_use(state_dir: Path) -> Iterator[Home]:
    """Keeps the server from ending for idleness while the block runs, and if this process is killed, not a moment longer."""
    home = Home(state_dir)
    home.prepare()
    with home.lock("in_use.lock", fcntl.LOCK_SH):  # waits only for a server that is just ending
        home.used_now()
        yield home
        home.used_now()


_started: list[subprocess.Popen[bytes]] = []
"""Supervisors that this process started, so that an ended one is waited for and does not stay as a zombie."""


def ensure(state_dir: Path) -> Record:
    """The running server, started when there is none. Many may call it at once: they get the same one."""
    home = Home(state_dir)
    home.prepare()
    _started[:] = [process for process in _started if process.poll() is None]
    record = home.record()
    if record is None:
        with home.lock("start.lock", fcntl.LOCK_EX):
            record = home.record() or _start(home)
    if record.fingerprint != launch.fingerprint():
        log.warning(
            "The embedded Spark server (since %s) was started with other settings; "
            "`python -m incremental_assets.spark.embedded.server stop` ends it, and the next command starts one with those of now.",
            record.started,
        )
    home.used_now()
    return record


def _start(home: Home) -> Record:
    launch.settings(home.folder)  # finds Java, fetches JARs, reads what the user wants: fails here, where it is seen
    launch.java()
    began = time.monotonic()
    log.info("starting the embedded Spark server (ends after %g s without use) …", idle_seconds())
    process = None
    if home.supervisor() is None:
        output = os.open(home.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", SUPERVISOR, str(home.folder.parent)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")]))},
                start_new_session=True,  # outlives this command, and a Ctrl-C meant for it
            )
            _started.append(process)
        finally:
            os.close(output)
    while time.monotonic() - began < START_SECONDS:
        record = home.record()
        if record is not None:
            log.info("the embedded Spark server is ready after %.1f s", time.monotonic() - began)
            return record
        ended = process.poll() is not None if process else home.supervisor() is None
        if ended:
            raise SparkUnavailable(f"The embedded Spark server could not start.\n{home.last_words()}")
        time.sleep(0.05)
    stop(home.folder.parent)
    raise SparkUnavailable(f"The embedded Spark server was not ready after {START_SECONDS} s and was ended.\n{home.last_words()}")


def _root() -> str:
    """The folder that this package is imported from: a supervisor started elsewhere must find it too."""
    return str(Path(__file__).resolve().parents[3])


def wait_until_gone(state_dir: Path, seconds: float) -> bool:
    """Whether the server has ended, which its supervisor notices at once but not in no time."""
    home = Home(state_dir)
    deadline = time.monotonic() + seconds
    while home.supervisor() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def stop(state_dir: Path) -> bool:
    """Ends the server, with all that runs on it. False when there was none."""
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
                process.send_signal(number)  # which looks once more whether it is the same process
        if wait_until_gone(state_dir, STOP_SECONDS):
            for process in _started:
                process.poll()
            return True
    raise SparkUnavailable(f"The embedded Spark server (process {home.supervisor()}) does not end. It has to be killed by hand.")


def _found(home: Home) -> psutil.Process | None:
    """One that has just taken the lock writes its number in a moment."""
    deadline = time.monotonic() + WRITTEN_SECONDS
    while (process := home.process()) is None and home.supervisor() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def idle_seconds() -> float:
    """How long a server stays without a client; 0 means for ever."""
    text = os.environ.get(IDLE, str(DEFAULT_IDLE_SECONDS))
    try:
        return max(0.0, float(text))
    except ValueError as error:
        raise SparkUnavailable(f"{IDLE}={text!r} is no number of seconds.") from error


def main(arguments: list[str]) -> int:
    """`start` and `stop` for people, `fetch` for installing."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    verb = arguments[0] if arguments else ""
    state = Path(arguments[1] if len(arguments) > 1 else os.environ.get("DAGSTER_HOME") or ".dagster_home")
    try:
        if verb == "fetch":
            log.info("Spark's %d JARs are in %s", len(launch.jars()), launch.jar_folder())
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
