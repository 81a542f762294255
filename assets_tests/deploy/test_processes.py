"""The processes of a cluster on this machine: what becomes of them when the one that has started them is killed.

Belongs here: starting and ending a process. Does not belong: the services (``test_cluster_faults``).
"""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from deploy.cluster.processes import ServiceProcess, end_abandoned

STARTER = """
import sys, time
from pathlib import Path
from deploy.cluster.processes import ServiceProcess
folder = Path(sys.argv[1])
service = ServiceProcess("sleeper", ["sleep", "600"], {}, folder, folder / "sleeper.log", lambda: True)
service.start()
print(service.pid, flush=True)
time.sleep(600)
"""


def test_services_of_a_starter_that_was_killed_are_ended_and_those_of_another_are_not(tmp_path: Path) -> None:
    """They would hold ports and memory for ever, and nobody would know of them."""
    mine = ServiceProcess("mine", ["sleep", "600"], {}, tmp_path, tmp_path / "mine.log", lambda: True)
    mine.start()
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert starter.stdout is not None
        orphan = psutil.Process(int(starter.stdout.readline()))
        end_abandoned(tmp_path)
        assert orphan.is_running() and mine.is_running, "their starters live"
        starter.kill()
        starter.wait(30)
        end_abandoned(tmp_path)
        deadline = time.monotonic() + 30
        while orphan.is_running() and orphan.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert mine.is_running
    finally:
        starter.kill()
        mine.kill()
