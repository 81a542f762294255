"""What many partitions cost: `python -m benchmarks.partitions [--rules N] [PARTITIONS …]`, with PostgreSQL, Spark and Dagster as they are.

Belongs here: whole commands over one table of ten rows for each partition. Does not belong: many rows (`python -m benchmarks`), many tables
(`python -m benchmarks.tables`).
"""

import argparse
import tempfile
from pathlib import Path

import dagster as dg
import psycopg
import yaml

from benchmarks.measure import Measured, Project
from incremental_assets.demo.postgres import EmbeddedPostgres

ROWS_A_PARTITION = 10


def defs(rules: int) -> str:
    """The `defs.yaml` of the table, with so many rules."""
    checks = [{"rule": "between", "name": f"rule_{number}", "column": "id", "min": -number, "max": 10**12} for number in range(rules)]
    container = {"partition_by": ROWS_A_PARTITION, "safety_lag": 0, "checks": checks}
    attributes = {"name": "many", "url": "{{ env.BENCH_URL }}", "incremental": ["public.t:id:integer"], "containers": {"t": container}}
    return yaml.safe_dump({"type": "incremental_assets.PostgresDatastore", "attributes": attributes})


def measure(folder: Path, url: str, partitions: int, rules: int) -> None:
    """Prints the seconds and the memory of a first load, a sync of fifteen new rows, and a sync of none."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table if exists t; create table t (id bigint generated always as identity primary key, note text)")
        insert = f"insert into t (note) select 'row' from generate_series(1, {partitions * ROWS_A_PARTITION})"
        connection.execute(insert.encode())
    project = Project(folder / str(partitions), url)
    project.define("many", defs(rules))
    about = f"{partitions:,} partitions, {rules} rules" if rules else f"{partitions:,} partitions"

    def sync(what: str) -> None:
        measured: Measured = project.command("sync", "many/t", "--json")
        line = measured.lines[0]
        print(
            f"{about}, {what}: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB, {line['status']}, {line['rows_read']} rows read",
            flush=True,
        )

    try:
        sync("first load")
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
