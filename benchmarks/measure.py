"""Running a command and measuring it: seconds of the whole process, and the peak memory of it and its children.

Belongs here: the stop-watch. Does not belong: what is run.
"""

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil


@dataclass
class Measured:
    """``peak_mb``: resident memory of the command and its children together; ``lines``: its JSON lines."""

    seconds: float
    peak_mb: float
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def run(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Raises CalledProcessError with the end of its output where the command fails."""
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
    while True:
        try:
            top = psutil.Process(pid)
            family = [top, *top.children(recursive=True)]
            peak[0] = max(peak[0], sum(p.memory_info().rss for p in family) / 2**20)
        except psutil.Error:
            if not psutil.pid_exists(pid):
                return
        time.sleep(0.1)
