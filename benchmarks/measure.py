"""Runs commands in a project of their own and measures them: seconds of the whole process, and peak memory of it and its children.

Belongs here: what every benchmark needs. Does not belong: the commands that are measured.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from incremental_assets.project.scaffold import write_project
from incremental_assets.spark.session import stop_server


@dataclass
class Measured:
    """The measurements of one command.

    ``seconds``: wall time. ``peak_mb``: resident memory of the command and its children together, in MiB. ``lines``: the JSON records that
    it printed.
    """

    seconds: float
    peak_mb: float
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def facts() -> dict[str, Any]:
    """When this is, on what machine, and how busy it is: what is stored beside measurements."""
    return {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


class Project:
    """A project in the new folder ``folder``, with its own home and lake.

    Its datastores find the address of the source in the environment variable ``BENCH_URL``.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.home, self.lake = folder, folder / ".dagster_home", folder / "lake"
        write_project(folder)
        self.environment = {
            **os.environ, "BENCH_URL": url, "DAGSTER_HOME": str(self.home), "INCREMENTAL_ASSETS_LAKE": str(self.lake),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
        }  # fmt: skip
        self.environment.pop("INCREMENTAL_ASSETS_PROJECT", None)
        # A user's packages are compiled once. Where this is set, each process would compile this project's modules anew.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def define(self, datastore: str, text: str) -> None:
        """Writes the datastore's `defs.yaml`."""
        path = self.folder / "defs" / datastore / "defs.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def command(self, *words: str) -> Measured:
        """Measures ``incremental-assets`` with these arguments.

        Raises RuntimeError where the command fails, or where one of its records says ``failed``.
        """
        measured = run([sys.executable, "-m", "incremental_assets.cli", "--project", str(self.folder), *words], self.environment)
        failed = [line["message"] for line in measured.lines if line.get("status") == "failed"]
        if failed:
            raise RuntimeError(failed[0])
        return measured

    def stop(self) -> None:
        """Stops the project's Spark server."""
        stop_server(self.home)


def run(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Runs and measures a command. Raises RuntimeError with the end of its output where it fails."""
    started = time.monotonic()
    process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process.pid, peak), daemon=True)
    watcher.start()
    out, err = process.communicate()
    seconds = time.monotonic() - started
    watcher.join(2)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} … ended with {process.returncode}:\n{err[-2000:]}\n{out[-500:]}")
    return Measured(seconds, peak[0], [json.loads(line) for line in out.splitlines() if line.startswith("{")])


def _watch(pid: int, peak: list[float]) -> None:
    """Keeps the peak memory of the process and its children in ``peak``, sampled three times a second, until the process has ended."""
    while True:
        try:
            top = psutil.Process(pid)
            family = [top, *top.children(recursive=True)]
            peak[0] = max(peak[0], sum(p.memory_info().rss for p in family) / 2**20)
        except psutil.Error:
            if not psutil.pid_exists(pid):
                return
        time.sleep(0.3)
