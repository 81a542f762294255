"""`incremental-assets dev`: the Dagster UI with its daemon, over the project, with a warm Spark server that ends with it.

Belongs here: starting and ending those processes. Does not belong: what they serve.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from incremental_assets.orchestration.project import dagster_home


def serve(project: Path, port: int) -> int:
    """Runs until it is interrupted; the exit code is Dagster's."""
    from incremental_assets.spark import ensure_server, stop_server

    _start_demo_source(project)
    if not os.environ.get("SPARK_REMOTE"):
        ensure_server(dagster_home(project))
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(project / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, cwd=project)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
        return 130
    finally:
        stop_server(dagster_home(project))


def _start_demo_source(project: Path) -> None:
    """The demo's PostgreSQL, where `make demo` has made one: its schedules would have nothing to read otherwise."""
    if (project / ".demo").is_dir():
        subprocess.run([sys.executable, "-m", "incremental_assets.demo", "start", str(project)], check=True)
