"""Measures a first load in windows of a commit each, beside one in a single commit: `python -m benchmarks.large_load [--times 10]`.

Belongs here: the seconds a million rows, the peaks of memory and scratch space of both, and a load that is killed and goes on. Does not
belong: the comparison with dlt (`python -m benchmarks`).

Seconds of the processor are printed beside those of the clock, as the machine may be busy with other things.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from benchmarks.ways import PeakOfWorkers, tree_seconds
from incremental_assets.delta.table import LakeTable, query
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load
from incremental_assets.spark.embedded import server
from incremental_assets.spark.session import ensure_server

DEFS = """\
type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: "{{ env.BENCH_URL }}"
  incremental: ["public.lineitem:l_shipdate:date", "public.large:l_shipdate:date"]
  containers: {lineitem: {partition_by: month}, large: {partition_by: month}}
  exclude: [orders, "part*", customer, supplier, nation, region, events, customer_profile, orders_by_nation]
"""
PREPARE = """
create table large (like lineitem);
insert into large select (l_orderkey + n * 100000000), l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax,
  l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment
  from generate_series(1, {times}) n, lineitem;
create index on large (l_shipdate); analyze large; analyze lineitem;
"""
"""Makes a table with so many times the rows of ``lineitem``, which are in no order of their dates."""
KILLED_IN = "window 2 of"
"""The load is killed when its log has this text, and ten seconds have passed."""


class PeakOfServer:
    """The highest resident memory of Spark's JVM, and the most scratch space that Spark has used, both in MiB, sampled during a block."""

    def __init__(self, supervisor: int) -> None:
        jvms = [p for p in psutil.Process(supervisor).children(recursive=True) if "SparkConnectServer" in " ".join(p.cmdline())]
        self._jvm, self._over = jvms[0], threading.Event()
        self._scratch = Path(self._jvm.environ()["SPARK_LOCAL_DIRS"])
        self.memory_mb = self.scratch_mb = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "PeakOfServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self.memory_mb = max(self.memory_mb, self._jvm.memory_info().rss / 2**20)
            used = 0
            for folder, _, files in os.walk(self._scratch):
                for name in files:
                    try:
                        used += os.path.getsize(os.path.join(folder, name))
                    except OSError:  # it is gone again
                        continue
            self.scratch_mb = max(self.scratch_mb, used / 2**20)


def measure(project: Project, supervisor: int, postgres: EmbeddedPostgres, name: str) -> Mapping[str, Any]:
    """Syncs one container, and returns the record of the sync with what it has cost."""

    def processor() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return tree_seconds(supervisor) + tree_seconds(postgres.pid) + used.ru_utime + used.ru_stime

    before = processor()
    with PeakOfWorkers(supervisor) as workers, PeakOfServer(supervisor) as jvm:
        measured = project.command("sync", f"shop/{name}", "--json")
    (line,) = measured.lines
    rows, spent = line["rows_read"], processor() - before
    peaks = f"driver {measured.peak_mb:.0f} MB, a worker {workers.mb:.0f} MB, JVM {jvm.memory_mb:.0f} MB, scratch {jvm.scratch_mb:.0f} MB"
    report(
        f"{name}: {rows:,} rows in {measured.seconds:.0f} s, {measured.seconds / rows * 1e6:.2f} s a million rows, "
        f"{spent / rows * 1e6:.2f} s of the processor; {peaks}",
        Figure(f"{name}, a million rows", measured.seconds / rows * 1e6, note=f"{rows:,} rows; {peaks}"),
        Figure(f"{name}, a million rows, of the processor", spent / rows * 1e6),
    )
    return line


def kill_in_the_middle(project: Project, name: str) -> str:
    """Starts a sync, kills it in its second window, and returns what it has logged."""
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.folder), "sync", f"shop/{name}"]
    process = subprocess.Popen(command, env=project.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said: list[str] = []
    for text in process.stderr:
        said.append(text)
        if KILLED_IN in text:
            time.sleep(10)
            process.send_signal(signal.SIGKILL)
            process.wait()
            break
    return "".join(said)


def expect_equal(url: str, project: Project, name: str) -> None:
    """Raises RuntimeError if the lake has another number of rows than the source, or another sum of their keys."""
    with psycopg.connect(url) as connection:
        source = connection.execute(f"select count(*), sum(l_orderkey)::text from {name}".encode()).fetchone()
    table = LakeTable(str(project.lake), "shop", name).opened()
    assert table is not None
    found = query(table, 'SELECT count(*) AS n, CAST(sum(l_orderkey) AS VARCHAR) AS s FROM "rows"').to_pylist()[0]
    if source != (found["n"], found["s"]):
        raise RuntimeError(f"{name}: the source has {source}, and the lake {found}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_load", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the small table (default: %(default)s, 6 million rows)")
    parser.add_argument("--times", type=int, default=10, help="how many times as many rows the large table has (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".bench/large"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    with EmbeddedPostgres(folder / "postgres", settings={"shared_buffers": "1GB", "max_wal_size": "8GB"}) as postgres:
        url = postgres.create_database("bench", drop=True)
        load(url, asked.scale)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(PREPARE.format(times=asked.times).encode())
        for killed in (False, True):
            place = folder / f"project-{'killed' if killed else 'whole'}"
            shutil.rmtree(place, ignore_errors=True)
            project = Project(place, url)
            project.define("shop", DEFS)
            ensure_server(project.home)
            supervisor = server.Home(project.home).supervisor()
            assert supervisor is not None
            try:
                if killed:
                    print(kill_in_the_middle(project, "large"))
                else:
                    measure(project, supervisor, postgres, "lineitem")
                line = measure(project, supervisor, postgres, "large")
                expect_equal(url, project, "large")
                if killed:
                    report(f"killed in its second window, the load read {line['rows_read']:,} more rows, and is equal to the source")
            finally:
                project.stop()


if __name__ == "__main__":
    main()
