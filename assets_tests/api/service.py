"""The service that `incremental-assets api` starts, in a process, and requests to it.

Belongs here: starting and ending that process, and sending requests. Does not belong: what it must answer.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assets_tests.harness import Project

READ, WRITE = "read-0123456789abcdef", "write-0123456789abcdef"
TOKENS = {"INCREMENTAL_ASSETS_API_READ_TOKEN": READ, "INCREMENTAL_ASSETS_API_WRITE_TOKEN": WRITE}
Answer = tuple[int, Any]


class Service:
    """A service that answers at ``port``. ``log``: what it has written until now."""

    def __init__(self, project: Project, port: int, file: Path) -> None:
        self.project, self.port, self._file = project, port, file

    @property
    def log(self) -> str:
        return self._file.read_text(encoding="utf-8")

    def send(self, method: str, path: str, body: Any = None, token: str | None = WRITE, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends a request. Returns the status, and the answer's JSON or text. ``body``: bytes are sent as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            sent = {**({} if token is None else {"Authorization": f"Bearer {token}"}), **(headers or {})}
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = "json" in (answer.getheader("Content-Type") or "")
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def get(self, path: str, **kwargs: Any) -> Any:
        """The JSON of a GET with the read token, which must succeed."""
        status, answer = self.send("GET", path, token=READ, **kwargs)
        assert status == 200, answer
        return answer

    def ended(self, id: str, seconds: float = 240) -> dict[str, Any]:
        """Asks for an operation until it has ended, as seed 000's client does."""
        deadline = time.monotonic() + seconds
        while (found := self.get(f"/api/operations/{id}"))["result"] not in ("success", "failure", "aborted"):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
        return found


@contextlib.contextmanager
def service(project: Project, folder: Path) -> Iterator[Service]:
    """Starts the service over a project, waits until it answers, and ends it. ``folder``: where its log is written."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "api.log"
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), "api", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=project.environment(spark=False) | TOKENS, stdout=output, stderr=output)
    found = Service(project, port, log)
    deadline = time.monotonic() + 120
    try:
        while True:
            assert process.poll() is None, found.log
            assert time.monotonic() < deadline, found.log
            try:
                found.send("GET", "/openapi.json", token=None)
                break
            except OSError:
                time.sleep(0.2)
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
