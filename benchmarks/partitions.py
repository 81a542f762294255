"""What many partitions cost: `python -m benchmarks.partitions [--rules N] [PARTITIONS …]`, with PostgreSQL, Spark and Dagster as they are.

Belongs here: whole commands over one table of ten rows for each partition, and over another one that has the same rows in one partition.
Does not belong: many rows (`python -m benchmarks`), many tables (`python -m benchmarks.tables`).

What the first load of the one takes longer than that of the other is what is done for each partition: its events and its counts. Two
further tables like the other one are loaded before both, so that neither waits for the start of Spark. It is the difference of two
measurements, and so inexact by a second or two on a busy machine.
"""

import argparse
import tempfile
from pathlib import Path

import dagster as dg
import psycopg
import yaml

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.demo.postgres import EmbeddedPostgres

ROWS_A_PARTITION = 10
ONE_PARTITION = 10**12
"""A width of partitions that all rows fit into."""
WARM_UPS = tuple(f"warm_up_{number}" for number in range(2))
"""Tables that are loaded first, into one partition each."""
TARGETS = {(1_000, 0): 5.0}
"""The seconds that events and counts may take, by the number of partitions and of rules."""


def defs(rules: int) -> str:
    """The `defs.yaml` of the tables. Those with the rows of `t` have so many rules."""
    checks = [{"rule": "between", "name": f"rule_{number}", "column": "id", "min": -number, "max": 10**12} for number in range(rules)]
    containers = {
        "t": {"partition_by": ROWS_A_PARTITION, "safety_lag": 0, "checks": checks},
        "whole": {"partition_by": ONE_PARTITION, "safety_lag": 0, "checks": checks},
        **{name: {"partition_by": ONE_PARTITION, "safety_lag": 0} for name in WARM_UPS},
    }
    named = [f"public.{name}:id:integer" for name in containers]
    attributes = {"name": "many", "url": "{{ env.BENCH_URL }}", "incremental": named, "containers": containers}
    return yaml.safe_dump({"type": "incremental_assets.PostgresDatastore", "attributes": attributes})


def fill(connection: psycopg.Connection, table: str, rows: int) -> None:
    """Makes the table anew, with so many rows."""
    connection.execute(f"drop table if exists {table}".encode())
    connection.execute(f"create table {table} (id bigint generated always as identity primary key, note text)".encode())
    connection.execute(f"insert into {table} (note) select 'row' from generate_series(1, {rows})".encode())


def measure(folder: Path, url: str, partitions: int, rules: int) -> None:
    """Prints the seconds and the memory of a first load, a sync of fifteen new rows, and a sync of none."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("t", "whole", *WARM_UPS):
            fill(connection, table, partitions * ROWS_A_PARTITION)
    project = Project(folder / str(partitions), url)
    project.define("many", defs(rules))
    about = f"{partitions:,} partitions, {rules} rules" if rules else f"{partitions:,} partitions"

    def sync(what: str, table: str = "t") -> float:
        measured = project.command("sync", f"many/{table}", "--json")
        line = measured.lines[0]
        report(
            f"{about}, {what}: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB, {line['status']}, {line['rows_read']} rows read",
            Figure(f"{about}, {what}", measured.seconds, note=f"the run: {line['seconds']:.1f} s"),
        )
        return measured.seconds

    try:
        for table in WARM_UPS:
            project.command("sync", f"many/{table}", "--json")
        rows = sync("the same rows in one partition", "whole")
        beside = sync("first load") - rows
        figure = Figure(f"{about}, events and counts of the first load", beside, target=TARGETS.get((partitions, rules)))
        report(f"{about}, events and counts: {beside:.1f} s, as the first load takes longer than that into one partition", figure)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("insert into t (note) select 'new' from generate_series(1, 15)")
        sync("fifteen new rows")
        sync("no new row")
    finally:
        project.stop()
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        found = len(instance.get_materialized_partitions(dg.AssetKey(["many", "t"])))
        events = sum(file.stat().st_size for file in (project.home / "history").rglob("*.db*")) / 2**20
        print(f"{about}, {found:,} of them materialized in Dagster, whose events take {events:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("partitions", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rules", type=int, default=0, metavar="N", help="rules of the table (default: none)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        for number in asked.partitions:
            measure(Path(work), server.create_database("bench", drop=True), number, asked.rules)


if __name__ == "__main__":
    main()
