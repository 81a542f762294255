"""The process of one service: started with its log in a file, waited for until it answers, and ended.

Belongs here: what holds for each process, whichever program it is. Does not belong: the programs and their order (``local``).
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HOST = "127.0.0.1"
READY_SECONDS = 120.0
STOP_SECONDS = 30.0


class ClusterError(Exception):
    """A service does not start, does not answer, or has ended. The message says which one, and where its log is."""


@dataclass
class ServiceProcess:
    """The process of a service. ``ready``: whether the service answers; it is asked until it does."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    ready: Callable[[], bool]
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """The process id. Raises ClusterError if the service does not run."""
        if not self.is_running or self._process is None:
            raise ClusterError(f"{self.name} does not run; see {self.log}.")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process and waits until the service answers. Raises ClusterError if it ends before, or does not answer in time."""
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C in a terminal is for the program that ends the services in order.
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(self.environment), cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        _record(self.log, self._process.pid)
        deadline = time.monotonic() + READY_SECONDS
        while not self.ready():
            if self._process.poll() is not None:
                raise ClusterError(f"{self.name} ended with exit code {self._process.returncode}. {self._last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ClusterError(f"{self.name} did not answer within {READY_SECONDS:.0f} s. {self._last_words()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Ends the process in good order, and kills what is left of it and its children after some time."""
        if not self.is_running or self._process is None:
            return
        family = self.family()
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        _kill(family)
        self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Kills the process and its children at once, as the loss of their machine would."""
        if self._process is None:
            return
        _kill(self.family())
        self._process.wait(STOP_SECONDS)

    def family(self) -> list[psutil.Process]:
        """The process and all that it has started, directly or not."""
        if not self.is_running or self._process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def _last_words(self) -> str:
        end = self.log.read_text(errors="replace").splitlines()[-15:]
        return f"Its log {self.log} ends with:\n" + "\n".join(end)


def _record(log: Path, pid: int) -> None:
    """Writes beside the log which process the service is, and which one has started it; each with the time of its start."""
    try:
        both = [(process.pid, process.create_time()) for process in (psutil.Process(pid), psutil.Process())]
    except psutil.NoSuchProcess:
        return  # the service has ended already, which ``start`` says
    log.with_suffix(".json").write_text(json.dumps(both), encoding="utf-8")


def end_abandoned(logs: Path) -> None:
    """Kills services whose starter was killed before it could end them. ``logs``: the folder of the logs of all services."""
    for record in logs.glob("*.json"):
        service, starter = (_running(pid, since) for pid, since in json.loads(record.read_text(encoding="utf-8")))
        if service is not None and starter is None:
            _kill([service, *service.children(recursive=True)])
            service.wait(STOP_SECONDS)


def _running(pid: int, since: float) -> psutil.Process | None:
    """The process that has this number since that time; None if it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process if process.create_time() == since else None
    return None


def _kill(family: Sequence[psutil.Process]) -> None:
    """Kills these processes. psutil compares when each was started, so that none that got its number later is meant."""
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def listens(port: int) -> bool:
    """Whether something accepts connections at this port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def answers(url: str) -> bool:
    """Whether an HTTP server answers this URL."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def free_ports(number: int) -> list[int]:
    """So many ports that are free at this moment. All are open at once, so that no two of them are equal."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
