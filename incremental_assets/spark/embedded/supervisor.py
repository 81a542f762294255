"""The process that owns the JVM of the embedded Spark server: ``python -m incremental_assets.spark.embedded.supervisor STATE_FOLDER``.

Commands start this process through ``server`` and do not import it. It imports few modules, because it stays in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil

from incremental_assets.spark.embedded import launch, server

ABANDONED_AFTER, ABANDONED_FOR = 30.0, 10.0
"""Seconds after the last use: Spark itself has ended the queries of killed clients by then (see ``launch``). Seconds of a measurement."""
ABANDONED_CORES = 0.3
"""An unused server that keeps more cores than this busy works on an abandoned query: compilers and garbage collectors are done by then."""
PORT_LINE = re.compile(r"Spark Connect server started at: \S*?:(\d+)")


def serve(state_dir: Path) -> int:
    """Runs the JVM until it ends, a signal arrives, or nobody has used it for the idle time. Returns the exit code."""
    home = server.Home(state_dir)
    home.prepare()
    with home.lock("alive.lock", fcntl.LOCK_EX | fcntl.LOCK_NB) as alive:
        if alive is None:
            sys.stderr.write("another supervisor is alive\n")
            return 1
        os.ftruncate(alive, 0)
        os.write(alive, str(os.getpid()).encode())
        wake = _signals()
        home.record_file.unlink(missing_ok=True)
        home.log.unlink(missing_ok=True)
        shutil.rmtree(home.scratch, ignore_errors=True)
        home.scratch.mkdir(mode=0o700)
        token = secrets.token_urlsafe(32)
        jvm = _launch_jvm(home, token)
        try:
            with _killed_with_us(jvm):
                _watch(home, jvm, token, wake)
        finally:
            home.record_file.unlink(missing_ok=True)
            _end(jvm)
            shutil.rmtree(home.scratch, ignore_errors=True)
    return 0


def _signals() -> int:
    """Returns a file descriptor that becomes readable on SIGTERM, SIGINT and SIGCHLD (the end of the JVM).

    So ``_watch`` can wait with ``select`` and reacts immediately, without polling often.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # Python writes to the wake-up descriptor only for signals that have a handler
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.set_wakeup_fd(write)
    return read


def _launch_jvm(home: server.Home, token: str) -> subprocess.Popen[bytes]:
    with_java = launch.java()
    properties, logging_file = home.folder / "launch.properties", home.folder / "log4j2.properties"
    settings = launch.settings(home.folder)
    only_here = {"SPARK_LOCAL_IP": "127.0.0.1"} if settings["spark.master"].startswith("local") else {}
    launch.write_properties(properties, settings)
    launch.write_logging(logging_file, home.log)
    flags = [
        "-Duser.timezone=UTC",
        "-XX:+ExitOnOutOfMemoryError",  # a server that goes on after losing a thread would leave its clients waiting
        f"-Djava.io.tmpdir={home.scratch}",
        f"-Dlog4j2.configurationFile={logging_file.as_uri()}",
    ]
    return subprocess.Popen(
        launch.command(with_java, properties, launch.SERVER_CLASS, flags),
        stdin=subprocess.DEVNULL,
        cwd=home.scratch,
        # The token is in the environment and not among the arguments, which every user of the machine can read.
        env=launch.environment(with_java, home.scratch) | only_here | {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token},
    )


@contextlib.contextmanager
def _killed_with_us(jvm: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ensures that the JVM does not outlive the supervisor, however that dies.

    A shell reads from a pipe whose other end only the supervisor holds open. If the supervisor is killed, the kernel closes that end, the
    read returns, and the shell kills the JVM.
    """
    ours, theirs = os.pipe()
    watcher = subprocess.Popen(["/bin/sh", "-c", 'read -r _; kill -9 "$0"', str(jvm.pid)], stdin=ours)
    os.close(ours)
    try:
        yield
    finally:
        watcher.kill()
        watcher.wait()
        os.close(theirs)


def _watch(home: server.Home, jvm: subprocess.Popen[bytes], token: str, wake: int) -> None:
    """Returns when the server has to end.

    That is when the JVM has ended, a signal has arrived, the record was removed, the idle time is over, or the server works for nobody.
    """
    patience, used, ready = server.idle_seconds(), time.time(), False
    work = _WorkForNobody(psutil.Process(jvm.pid))
    while jvm.poll() is None:
        select.select([wake], [], [], 1.0 if ready else 0.05)
        with contextlib.suppress(BlockingIOError):
            if set(os.read(wake, 64)) & {signal.SIGTERM, signal.SIGINT}:
                return
        if not ready:
            ready = _publish(home, jvm, token)
            used = time.time()
            continue
        if not home.record_file.exists():
            return
        with home.lock("in_use.lock", fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
            used = time.time() if alone is None else max(used, (home.folder / "in_use.lock").stat().st_mtime)
            unused = time.time() - used
            if work.seen(unused) or (patience and unused > patience):
                # The server ends while the lock is held. A client that wants a session now waits for the end, and then starts a new server.
                home.record_file.unlink(missing_ok=True)
                _end(jvm)
                return


class _WorkForNobody:
    """Whether the JVM of an unused server works on a query that has no client any more.

    Spark loses a query if its client interrupts it while a stage is prepared: a thread of its own does that (``ShuffleExchangeExec`` of
    Spark 4.2), which the interrupt does not reach, and which then runs the stage. Only the end of the server ends that query.
    """

    def __init__(self, jvm: psutil.Process) -> None:
        self._jvm = jvm
        self._mark: tuple[float, float] | None = None

    def seen(self, unused: float) -> bool:
        """Looks at the processor's time. ``unused``: the seconds since somebody used the server last."""
        if unused < ABANDONED_AFTER:
            self._mark = None
            return False
        times = self._jvm.cpu_times()
        spent = times.user + times.system
        began, before = self._mark = self._mark or (unused, spent)
        if unused - began < ABANDONED_FOR:
            return False
        self._mark = (unused, spent)
        return spent - before > ABANDONED_CORES * (unused - began)


def _publish(home: server.Home, jvm: subprocess.Popen[bytes], token: str) -> bool:
    """Writes the record as soon as the server has logged its port and accepts connections there. Returns whether it has."""
    found = PORT_LINE.search(home.log.read_text(errors="replace")) if home.log.exists() else None
    if found is None:
        return False
    port = int(found.group(1))
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return False
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    master = launch.settings(home.folder)["spark.master"]
    record = server.Record(os.getpid(), jvm.pid, port, token, started, master, str(launch.java()), launch.fingerprint())
    new = home.record_file.with_suffix(".new")
    launch.write_private(new, json.dumps(asdict(record), indent=1) + "\n")
    new.replace(home.record_file)  # atomic, so that no client reads half a record
    return True


def _end(jvm: subprocess.Popen[bytes]) -> None:
    if jvm.poll() is None:
        jvm.terminate()
        try:
            jvm.wait(server.STOP_SECONDS * 2 / 3)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])))
