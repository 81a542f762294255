"""What `cluster: true` costs and gains: `python -m benchmarks.clustering [--scale 0.5] [--rounds 3]`, on this machine.

Belongs here: the same table with and without it: its first load, the maintenance that puts rows of neighbouring identifiers together, and
then a query of one week by Spark and the refresh of one month. Does not belong: the comparison with dlt (`python -m benchmarks`).

The rows lie in the order of their orders, and the identifier is their shipping date, so that each week is all over the table.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.delta.maintenance import maintain
from incremental_assets.delta.table import LakeTable
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.loading import load_datastores, select
from incremental_assets.spark.session import SparkSession, open_session

WAYS = {"plain": False, "clustered": True}
WEEK = "l_shipdate >= DATE '1995-06-05' AND l_shipdate < DATE '1995-06-12'"


def project_of(folder: Path, url: str) -> Project:
    project = Project(folder, url)
    for name, cluster in WAYS.items():
        containers = {"lineitem": {"partition_by": "month", "cluster": cluster}}
        attributes = {
            "name": name,
            "url": "{{ env.BENCH_URL }}",
            "incremental": ["public.lineitem:l_shipdate:date"],
            "containers": containers,
        }
        excluded = ["orders", "part*", "customer", "supplier", "nation", "region", "events", "customer_profile", "orders_by_nation"]
        entry = {"type": "incremental_assets.PostgresDatastore", "attributes": {**attributes, "exclude": excluded}}
        project.define(name, yaml.safe_dump(entry))
    return project


def queried(spark: SparkSession, table: LakeTable, rounds: int) -> float:
    """The seconds of a query of one week that reads all columns: the median after one query that does not count."""
    seconds: list[float] = []
    for _ in range(rounds + 1):
        started = time.monotonic()
        spark.sql(f"SELECT sum(hash(*)) FROM {table.sql_name} WHERE {WEEK}").collect()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds[1:])


def measure(scale: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        url = server.create_database("bench")
        load(url, scale)
        project = project_of(Path(work) / "project", url)
        os.environ.update(project.environment)
        enter_project(project.folder)
        try:
            for name in WAYS:
                loaded = project.command("sync", name, "--json").lines[0]["seconds"]
                _, definition = select(load_datastores(project.folder), [f"{name}/lineitem"], [])[0]
                table = LakeTable(str(project.lake), name, "lineitem")
                with open_session(project.home, name="clustering") as spark:
                    before = queried(spark, table, rounds)
                    started = time.monotonic()
                    kept = maintain(lambda spark=spark: spark, table, definition.container)
                    maintained, after = time.monotonic() - started, queried(spark, table, rounds)
                month = [project.command("sync", name, "--partition", "1995-06-01", "--json").lines[0]["seconds"] for _ in range(rounds)]
                report(
                    f"{name}: the load {loaded:.1f} s; a week by Spark {before:.2f} s, after maintenance {after:.2f} s; the maintenance "
                    f"{maintained:.1f} s ({kept}); then a month refreshed as it is {statistics.median(month):.2f} s",
                    Figure(f"{name}: first load", loaded),
                    Figure(f"{name}: a week by Spark, as loaded", before),
                    Figure(f"{name}: maintenance", maintained),
                    Figure(f"{name}: a week by Spark, after maintenance", after),
                    Figure(f"{name}: a month refreshed, after maintenance", statistics.median(month)),
                )
        finally:
            project.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    measure(arguments.scale, arguments.rounds)


if __name__ == "__main__":
    main()
