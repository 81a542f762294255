"""A project with the UI that `incremental-assets dev` starts, in a process.

Belongs here: starting and ending that process, and sending requests to it. Does not belong: what it must answer.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assets_tests.harness import Project


class Served:
    """A project whose UI answers at ``url``."""

    def __init__(self, project: Project, port: int) -> None:
        self.project, self.port, self.url = project, port, f"http://127.0.0.1:{port}"
        self.location = project.path.name

    def ask(self, query: str) -> dict[str, Any]:
        """Sends a GraphQL query and returns the first field of the answer's data. Fails where the answer has errors."""
        request = urllib.request.Request(f"{self.url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        return next(iter(answer["data"].values()))

    def until(self, what: Callable[[], Any], seconds: float = 90) -> Any:
        """Calls ``what`` until it returns something true, and returns that. Fails after so many seconds."""
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, f"{seconds} seconds were not enough"
            time.sleep(0.5)
        return found

    def assets(self) -> set[str]:
        """The keys of the assets that the UI shows, with slashes."""
        found = self.ask("{ assetsOrError { ... on AssetConnection { nodes { key { path } } } } }")
        return {"/".join(node["key"]["path"]) for node in found["nodes"]}


@contextlib.contextmanager
def serving(project: Project, folder: Path, *options: str) -> Iterator[Served]:
    """Starts the UI of a project, waits until it answers, and ends it. It has no Spark server. ``folder``: where its log is written."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "dev.log"
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), "dev", "--port", str(port), *options]
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=project.environment(spark=False), stdout=output, stderr=output, start_new_session=True)
    found = Served(project, port)

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return bool(found.ask("{ version }"))
        except OSError:
            return False

    try:
        found.until(answers, 240)
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):  # the process has ended, as it could not start
            os.killpg(server.pid, signal.SIGINT)
        code = server.wait(60)
    assert code == 0 and "interrupted" not in log.read_text(), log.read_text()  # this is how people end it
