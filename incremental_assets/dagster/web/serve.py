"""``incremental-assets dev``: the Dagster UI and daemon of a project, with a Spark server that is started with them and
stopped with them.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.project.folders import HOME, RELOADS_VARIABLE, dagster_home
from incremental_assets.runs.ordinary_run import command_line_instance

SERVICES = "incremental_assets.dagster.web.dev_services"
"""The module that is run instead of ``dagster dev``."""
READ_ONLY_VARIABLE = "DAGSTER_WEBSERVER_READ_ONLY"
"""The environment variable for the option ``--read-only`` of Dagster's webserver. ``dagster dev`` does not pass that option on."""


def serve(project: Path, port: int, read_only: bool = False) -> int:
    """Serves the UI on 127.0.0.1 until it is interrupted. Returns 0 then, as nothing is left undone, and otherwise Dagster's exit code.

    ``read_only``: the UI changes nothing; schedules and sensors go on. Raises ConfigurationError where the port is not free.
    """
    from incremental_assets.spark.session import ensure_server, stop_server

    _expect_free(port)
    _start_demo_source(project)
    if not os.environ.get("SPARK_REMOTE"):
        ensure_server(dagster_home(project))
    home = dagster_home(project)
    # In the project's own home, the project's `dagster.yaml` describes the instance. Dagster reads it where DAGSTER_HOME is the project,
    # and warns otherwise that it ignores it.
    environment = dict(os.environ) | {RELOADS_VARIABLE: "1"} | ({"DAGSTER_HOME": str(project)} if home == project / HOME else {})
    if read_only:
        environment[READ_ONLY_VARIABLE] = "1"
    # Dagster recommends `dg dev` instead of `dagster dev`, but that would make a workspace of its own.
    quietly = ["-W", "ignore:Function `dev_command` is superseded"]
    workspace = str(project / "workspace.yaml")
    command = [sys.executable, *quietly, "-m", SERVICES, "-w", workspace, "-h", "127.0.0.1", "-p", str(port)]
    # This makes Dagster's databases where there are none. Two processes that make them at once both fail.
    command_line_instance().dispose()
    # The processes get a session of their own. Ctrl-C at the terminal then reaches them once, through this process. A second interrupt
    # would cut their clean-up short.
    process = subprocess.Popen(command, cwd=project, env=environment, start_new_session=True)
    # For the same reason, the signal of a terminal that is closed reaches only this process, which then stops the others.
    signal.signal(signal.SIGHUP, _stop)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        return 0
    finally:
        stop_server(home)


def _expect_free(port: int) -> None:
    """Dagster would start its daemon and end the UI, so that schedules run without anybody who sees it."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise ConfigurationError(
            f"the UI cannot listen on port {port}: {error.strerror or error}. Say --port with another one, or end what listens there."
        ) from error


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _start_demo_source(project: Path) -> None:
    """Starts the demo's PostgreSQL where ``make demo`` has made one. Otherwise the demo's schedules would have nothing to read."""
    if (project / ".demo").is_dir():
        subprocess.run([sys.executable, "-m", "incremental_assets.demo", "start", str(project)], check=True)
