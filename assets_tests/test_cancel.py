"""A sync that is interrupted or terminated ends its queries in the source.

Belongs here: SIGINT and SIGTERM, and *Terminate* in the UI. Does not belong: processes that are killed (``test_kill``).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import dagster as dg
import pytest

from assets_tests.harness import Project
from incremental_assets.delta.engine import READ_BY

SLOW = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and query like '%slow_view%'"
READ_SLOWLY = "case when current_query() like 'COPY%' then pg_sleep(1)::text is not null else true end"
"""A condition that takes a second a row where rows are read into files; the queries of a plan take no time."""


@pytest.mark.parametrize(
    ("number", "read_by"), [(signal.SIGINT, "Spark"), (signal.SIGTERM, "Spark"), (signal.SIGINT, "threads"), (signal.SIGTERM, "threads")]
)
def test_an_interrupted_sync_ends_its_queries_in_the_source(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, read_by: str
) -> None:
    """A cancelled Spark task notices it only once its query returns rows, so a slow query would go on using the source after Ctrl-C."""
    if read_by == "threads":  # a table, whose rows are read into files
        monkeypatch.setenv(READ_BY, "arrow")
        shop = project(containers={"slow_view": {"where": READ_SLOWLY}})
        shop.source.execute("create table slow_view as select i from generate_series(1, 600) i")
    else:
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


@pytest.mark.long
def test_terminate_in_the_ui_reaches_a_run_of_the_command_line(project: Callable[..., Project]) -> None:
    """The UI does not know the process of such a run and only marks it as being cancelled. The run must notice that and end its queries."""
    shop = project()
    shop.source.execute("create view slow_view as select i, pg_sleep(1)::text as slept from generate_series(1, 600) i")
    shop.source.execute("create table quick as select 1 as id")
    shop.write()
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "sync", "shop", "--json"]
    with subprocess.Popen(command, env=shop.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _until(lambda: shop.source.execute(SLOW).fetchall()[0][0] == 1, 120)
            with shop.instance() as instance:
                (run,) = [r for r in instance.get_runs() if r.tags.get("dagster/incremental_assets.container") == "shop/slow_view"]
                instance.report_run_canceling(run)  # the UI's button does no more than this for a run whose process it does not know
                out, stderr = process.communicate(timeout=60)
                found = instance.get_run_by_id(run.run_id)
        finally:
            process.kill()
    lines = {line["container"]: line for line in map(json.loads, out.splitlines())}
    assert process.returncode == 1 and lines["shop/quick"]["status"] == "synced", stderr
    assert lines["shop/slow_view"]["status"] == "failed" and "terminated in the UI" in lines["shop/slow_view"]["message"], lines
    assert found is not None and found.status is dg.DagsterRunStatus.CANCELED
    _until(lambda: shop.source.execute(SLOW).fetchall()[0][0] == 0, 10)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
