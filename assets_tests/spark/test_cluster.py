"""A Spark cluster of two workers on this machine, whose driver is the embedded server.

Belongs here: what only executors in processes of their own show, such as tasks that read into files on more than one of them, and one that
dies. Does not belong: the same ways of reading on one machine (``databases/test_arrow_path``).
"""

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from assets_tests.harness import Project, wait_for
from incremental_assets.databases.postgres.arrow_files import PostgresFiles
from incremental_assets.delta.engine import READ_BY
from incremental_assets.delta.write_batch import FilesTarget, WrittenFile
from incremental_assets.spark.embedded import launch
from incremental_assets.spark.session import stop_server

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
WORKERS = 2


class Cluster:
    """A master and two workers with one core each, as processes on the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        log = self._start("master", "master.Master", "--port", "0", "--webui-port", "0")
        wait_for(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), "the master listens", 60)
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        assert found
        self.url = found[1]
        for name in (f"worker{i}" for i in range(WORKERS)):
            options = ("--cores", "1", "--memory", "2g", "--port", "0", "--webui-port", "0", "--work-dir", str(folder / name))
            self._start(name, "worker.Worker", *options, self.url)
        wait_for(lambda: log.read_text().count("Registering worker") == WORKERS, "the workers are registered", 60)

    def _start(self, name: str, what: str, *options: str) -> Path:
        java, log = launch.java(), self.folder / f"{name}.log"
        command = [str(java.executable), "-Xmx256m", "-cp", f"{launch.spark_home()}/jars/*", f"org.apache.spark.deploy.{what}"]
        environment = launch.environment(java, self.folder / f"scratch-{name}")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", *options], stdout=out, stderr=out, env=environment, cwd=self.folder
            )
        self.processes.append(process)
        return log

    def executors(self) -> list[psutil.Process]:
        workers = [psutil.Process(process.pid) for process in self.processes[1:]]
        return [child for worker in workers for child in worker.children() if EXECUTOR in child.cmdline()]

    def tasks(self) -> list[int]:
        """How many tasks each worker's executors have finished."""
        logs = [list((self.folder / f"worker{i}").rglob("stderr")) for i in range(WORKERS)]
        return [sum(log.read_text(errors="replace").count("Finished task ") for log in of_worker) for of_worker in logs]

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster")
    settings = {"spark.master": made.url, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g", "spark.cores.max": str(WORKERS)}
    monkeypatch.setenv(launch.CONF, ";".join(f"{key}={value}" for key, value in settings.items()))
    monkeypatch.setenv("INCREMENTAL_ASSETS_SPARK_MEMORY", "1g")
    yield made
    stop_server(tmp_path / "p" / ".dagster_home")
    made.stop()


@pytest.fixture
def shop(cluster: Cluster, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project whose table of 200,000 rows is read by tasks of the cluster, which wait as long as somebody holds the lock 7."""
    monkeypatch.setenv(READ_BY, "arrow")
    path, options = tmp_path / "p", {"where": "gate(id)", "readers": 2 * WORKERS}
    made = Project(path, database, path / ".dagster_home", incremental=["public.t:id:integer"], containers={"t": options})
    made.execute("create table t (id int primary key, note text, price numeric(12, 2))")
    made.execute("insert into t select i, repeat('n', i % 50), i * 0.01 from generate_series(1, 200000) i")
    made.execute(
        "create function gate(id int) returns boolean language plpgsql stable as $$ begin if id % 1000 = 1 then "
        "perform pg_advisory_lock_shared(7); perform pg_advisory_unlock_shared(7); end if; return true; end $$"
    )
    yield made
    made.source.close()


def files_of(project: Project) -> Sequence[str]:
    table = project.table("t").opened()
    assert table is not None
    return table.file_uris()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_load_on_a_cluster_survives_the_end_of_an_executor(cluster: Cluster, shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a task that was lost would be missing, or those that it had written would be there twice."""
    real, reading = PostgresFiles.write, [0]
    busy = "select count(*) from pg_locks where locktype = 'advisory' and not granted"

    def write(self: PostgresFiles, spark: Any, target: FilesTarget, report: Callable[[int], None]) -> Sequence[WrittenFile]:
        with psycopg.connect(shop.url, autocommit=True) as keeper, psycopg.connect(shop.url, autocommit=True) as watching:
            keeper.execute("select pg_advisory_lock(7)")

            def kill_one() -> None:
                def waiting() -> int:
                    found = watching.execute(busy).fetchone()
                    return found[0] if found else 0

                wait_for(lambda: waiting() == WORKERS, "a task on each worker reads", 120)
                executors = cluster.executors()
                reading[0] = len(executors)
                executors[0].send_signal(signal.SIGKILL)
                executors[0].wait(30)
                keeper.execute("select pg_advisory_unlock(7)")

            killer = threading.Thread(target=kill_one)
            killer.start()
            found = real(self, spark, target, report)
            killer.join()
            return found

    with monkeypatch.context() as patch:
        patch.setattr(PostgresFiles, "write", write)
        shop.one("t")
    assert reading[0] == WORKERS, "the tasks ran on one executor only"
    assert files_of(shop), "Spark has written the rows"
    shop.assert_equal("t")
    shop.execute("insert into t select i, 'later', 1 from generate_series(200001, 400000) i")
    shop.one("t")
    shop.assert_equal("t")
    assert all(cluster.tasks()), cluster.tasks()  # how many each has got, depends on how soon the new one is there
