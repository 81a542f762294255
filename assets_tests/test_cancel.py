"""A sync that is given up takes its queries in the source along: whoever terminates a run in the UI expects its load to end.

Belongs here: *Terminate*, as the UI does it: an interrupt in the run's process. Does not belong: processes that are killed (``test_kill``).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from assets_tests.harness import Project

SLOW = "select count(*) from pg_stat_activity where state = 'active' and query like '%slow_view%' and pid <> pg_backend_pid()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sync_ends_its_queries_in_the_source(project: Callable[..., Project], number: signal.Signals) -> None:
    """A cancelled Spark task waits for its query's first rows before it notices, so a slow query would load the source on and on."""
    shop = project()
    shop.source.execute("create view slow_view as select i, pg_sleep(1)::text as slept from generate_series(1, 600) i")
    shop.write()
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "sync", "shop", "--json"]
    with subprocess.Popen(command, env=shop.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _until(lambda: shop.source.execute(SLOW).fetchall()[0][0] == 1, 120)
            os.kill(process.pid, number)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    _until(lambda: shop.source.execute(SLOW).fetchall()[0][0] == 0, 10)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
