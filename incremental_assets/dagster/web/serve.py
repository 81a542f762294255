"""`incremental-assets dev`: the Dagster UI with its daemon, over the project, with a warm Spark server that ends with it.

Belongs here: starting and ending those processes. Does not belong: what they serve.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from incremental_assets.dagster.project import HOME, RELOADS_VARIABLE, dagster_home
from incremental_assets.dagster.runs.ordinary_run import command_line_instance

SERVICES = "incremental_assets.dagster.web.dev_services"
READ_ONLY_VARIABLE = "DAGSTER_WEBSERVER_READ_ONLY"
"""How Dagster's webserver takes its own option from the environment: `dagster dev` does not pass it on."""


def serve(project: Path, port: int, read_only: bool = False) -> int:
    """Runs until it is interrupted; the exit code is Dagster's. ``read_only``: the UI shows, and changes nothing; schedules go on."""
    from incremental_assets.spark.session import ensure_server, stop_server

    _start_demo_source(project)
    if not os.environ.get("SPARK_REMOTE"):
        ensure_server(dagster_home(project))
    home = dagster_home(project)
    # In the project's own home the instance is what the project's dagster.yaml says: named so, Dagster does not warn that it ignores it.
    environment = dict(os.environ) | {RELOADS_VARIABLE: "1"} | ({"DAGSTER_HOME": str(project)} if home == project / HOME else {})
    if read_only:
        environment[READ_ONLY_VARIABLE] = "1"
    quietly = ["-W", "ignore:Function `dev_command` is superseded"]  # `dg dev` would make a workspace of its own
    workspace = str(project / "workspace.yaml")
    command = [sys.executable, *quietly, "-m", SERVICES, "-w", workspace, "-h", "127.0.0.1", "-p", str(port)]
    command_line_instance().dispose()  # which makes its databases: done by two processes at once, both fail
    # In a session of its own: Ctrl-C reaches it once, through us, and not twice, which cuts its own tidying short.
    process = subprocess.Popen(command, cwd=project, env=environment, start_new_session=True)
    signal.signal(signal.SIGHUP, _stop)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        return 130
    finally:
        stop_server(home)


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _start_demo_source(project: Path) -> None:
    """The demo's PostgreSQL, where `make demo` has made one: its schedules would have nothing to read otherwise."""
    if (project / ".demo").is_dir():
        subprocess.run([sys.executable, "-m", "incremental_assets.demo", "start", str(project)], check=True)
