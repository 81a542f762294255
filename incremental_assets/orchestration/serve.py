"""`incremental-assets dev`: the Dagster UI with its daemon, over the project, with a warm Spark server that ends with it.

Belongs here: starting and ending those processes. Does not belong: what they serve.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.utils.project_paths import get_local_defs_state_dir
from dagster_graphql import DagsterGraphQLClient, ReloadRepositoryLocationStatus

from incremental_assets.orchestration.ordinary_run import command_line_instance
from incremental_assets.orchestration.project import HOME, RELOADS_VARIABLE, dagster_home, location_name

RELOAD_SECONDS = 2.0
log = logging.getLogger(__name__)


def serve(project: Path, port: int) -> int:
    """Runs until it is interrupted; the exit code is Dagster's."""
    from incremental_assets.spark import ensure_server, stop_server

    _start_demo_source(project)
    if not os.environ.get("SPARK_REMOTE"):
        ensure_server(dagster_home(project))
    home = dagster_home(project)
    # In the project's own home the instance is what the project's dagster.yaml says: named so, Dagster does not warn that it ignores it.
    environment = dict(os.environ) | {RELOADS_VARIABLE: "1"} | ({"DAGSTER_HOME": str(project)} if home == project / HOME else {})
    quietly = ["-W", "ignore:Function `dev_command` is superseded"]  # `dg dev` would make a workspace of its own
    workspace = str(project / "workspace.yaml")
    command = [sys.executable, *quietly, "-m", "dagster", "dev", "-w", workspace, "-h", "127.0.0.1", "-p", str(port)]
    instance = command_line_instance()  # which makes its databases: done by two processes at once, both fail
    # In a session of its own: Ctrl-C reaches it once, through us, and not twice, which cuts its own tidying short.
    process = subprocess.Popen(command, cwd=project, env=environment, start_new_session=True)
    threading.Thread(target=_reload_after_catalogs, args=(project, port, instance), daemon=True).start()
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


def _reload_after_catalogs(project: Path, port: int, instance: dg.DagsterInstance) -> None:
    """New containers show in the UI by themselves: whoever has renewed a catalog, the code location is loaded again."""
    states = get_local_defs_state_dir(project)

    def seen() -> tuple[Any, ...]:
        """What tells one set of catalogs from another: the times of the local ones, the versions of the others."""
        times = {path: path.stat().st_mtime_ns for path in states.glob("*/state")}
        return times, instance.defs_state_storage.get_latest_defs_state_info() if instance.defs_state_storage else None

    before: tuple[Any, ...] | None = None
    while True:
        time.sleep(RELOAD_SECONDS)
        try:
            now = seen()
            if before is None or now == before:
                before = now
                continue
            client = DagsterGraphQLClient("127.0.0.1", port_number=port)
            answer = client.reload_repository_location(location_name(project))
        except Exception as error:  # noqa: BLE001 the UI may not answer yet, the storage be busy: the next look may succeed
            log.debug("the code location is loaded again later: %s", error)
            continue
        before = now
        if answer.status is not ReloadRepositoryLocationStatus.SUCCESS:
            log.warning("the code location cannot be loaded with the new catalog: %s", answer.message)


def _start_demo_source(project: Path) -> None:
    """The demo's PostgreSQL, where `make demo` has made one: its schedules would have nothing to read otherwise."""
    if (project / ".demo").is_dir():
        subprocess.run([sys.executable, "-m", "incremental_assets.demo", "start", str(project)], check=True)
