"""Compares the two ways by which a first load is read, through JDBC and into files: `python -m benchmarks.ways [--scale 0.1] [--rounds 2]`.

Belongs here: the loads, one after the other in one run, and what each of them costs. Does not belong: the comparison with dlt
(`python -m benchmarks`).

Seconds of the processor are printed beside those of the clock, as the machine may be busy with other things: of the command, of the Spark
server with its Python workers, and of PostgreSQL.
"""

import argparse
import json
import os
import resource
import shutil
import threading
import time
from pathlib import Path

import psutil
import psycopg

from benchmarks.__main__ import DEFS, PREPARE
from benchmarks.measure import Project
from incremental_assets.delta.engine import READ_BY
from incremental_assets.demo.compare import compare
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load
from incremental_assets.spark.embedded import server
from incremental_assets.spark.session import ensure_server


def tree_seconds(pid: int | None) -> float:
    """The processor's seconds of a process and of all its children, those that have ended included."""
    found = 0.0
    top = psutil.Process(pid) if pid else None
    for process in [top, *top.children(recursive=True)] if top else []:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found += times.user + times.system + (times.children_user + times.children_system)
    return found


class PeakOfWorkers:
    """The highest resident memory of one Python worker of Spark, in MiB, sampled during a block."""

    def __init__(self, supervisor: int) -> None:
        self._top, self._over, self.mb = psutil.Process(supervisor), threading.Event(), 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "PeakOfWorkers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            for process in self._top.children(recursive=True):
                try:
                    # By the embedded server's own daemon, or by Spark's.
                    if {"pyspark.worker", "pyspark.daemon"} & set(process.cmdline()):
                        self.mb = max(self.mb, process.memory_info().rss / 2**20)
                except psutil.Error:
                    continue


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ways", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(".bench/ways"))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    shutil.rmtree(folder / "project", ignore_errors=True)
    with EmbeddedPostgres(folder / "postgres", settings={"shared_buffers": "512MB"}) as postgres:
        url = postgres.create_database("bench", drop=True)
        load(url, arguments.scale)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(PREPARE)
        project = Project(folder / "project", url)
        project.define("append", DEFS.format(name="append", spec="l_shipdate:date"))
        ensure_server(project.home)
        supervisor = server.Home(project.home).supervisor()
        assert supervisor is not None
        table = Path(project.lake) / "append" / "line_item"
        try:
            for round_ in range(arguments.rounds + 1):
                for way in ("arrow", "jdbc"):
                    shutil.rmtree(table, ignore_errors=True)
                    project.environment[READ_BY] = way
                    before = tree_seconds(supervisor), tree_seconds(postgres.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
                    with PeakOfWorkers(supervisor) as peak:
                        measured = project.command("sync", "append/line_item", "--reset-watermarks", "--json")
                    after = tree_seconds(supervisor), tree_seconds(postgres.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
                    command = sum(getattr(after[2], n) - getattr(before[2], n) for n in ("ru_utime", "ru_stime"))
                    files = list(table.glob("*.parquet"))
                    line = {
                        "round": round_ or "warm-up",
                        "way": way,
                        "rows": measured.lines[0]["rows_read"],
                        "whole_command_s": round(measured.seconds, 1),
                        "run_s": measured.lines[0]["seconds"],
                        "spark_cpu_s": round(after[0] - before[0], 1),
                        "postgres_cpu_s": round(after[1] - before[1], 1),
                        "command_cpu_s": round(command, 1),
                        "command_mb": round(measured.peak_mb),
                        "worker_mb": round(peak.mb),
                        "files": len(files),
                        "lake_mb": round(sum(file.stat().st_size for file in files) / 1e6, 1),
                        "load_average": round(os.getloadavg()[0], 1),
                    }
                    if round_ == 0:
                        line["equal"] = compare(url, "line_item", str(table)).equal
                    print(json.dumps(line), flush=True)
                    time.sleep(1)
        finally:
            project.stop()


if __name__ == "__main__":
    main()
