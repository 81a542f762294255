"""What many partitions cost: `python -m benchmarks.partitions [PARTITIONS …]`; PostgreSQL, Spark and Dagster as they are.

Belongs here: whole commands over one table of ten rows a partition. Does not belong: many rows (`python -m benchmarks`), many tables.
"""

import os
import sys
import tempfile
from pathlib import Path

import dagster as dg
import psycopg

from benchmarks.measure import Measured, run
from incremental_assets.dagster.scaffold import write_project
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.spark.session import stop_server

ROWS_A_PARTITION = 10
DEFS = """\
type: incremental_assets.PostgresDatastore
attributes:
  name: many
  url: "{{ env.BENCH_URL }}"
  incremental: ["public.t:id:integer"]
  containers: {t: {partition_by: 10, safety_lag: 0}}
"""


def measure(folder: Path, url: str, partitions: int) -> None:
    """Prints the seconds of each command."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table if exists t; create table t (id bigint generated always as identity primary key, note text)")
        insert = f"insert into t (note) select 'row' from generate_series(1, {partitions * ROWS_A_PARTITION})"
        connection.execute(insert.encode())
    project = folder / str(partitions)
    write_project(project)
    (project / "defs" / "many").mkdir(parents=True)
    (project / "defs" / "many" / "defs.yaml").write_text(DEFS)
    home = project / ".dagster_home"
    environment = {
        **os.environ, "BENCH_URL": url, "DAGSTER_HOME": str(home), "INCREMENTAL_ASSETS_LAKE": str(project / "lake"),
    }  # fmt: skip

    def sync(*arguments: str) -> Measured:
        command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project), "sync", "many/t", *arguments, "--json"]
        return run(command, environment)

    def told(what: str, measured: Measured) -> None:
        line = measured.lines[0]
        print(f"{partitions:,} partitions, {what}: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB, {line['status']}, "
              f"{line['rows_read']} rows read {line['message'] if line['status'] == 'failed' else ''}", flush=True)  # fmt: skip

    try:
        told("first load", sync())
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("insert into t (note) select 'new' from generate_series(1, 15)")
        told("fifteen new rows", sync())
        told("no new row", sync())
    finally:
        stop_server(home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        found = len(instance.get_materialized_partitions(dg.AssetKey(["many", "t"])))
        print(f"{partitions:,} partitions, {found:,} of them materialized in Dagster", flush=True)


def main(numbers: list[int]) -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        server = EmbeddedPostgres(folder / "postgres").start()
        try:
            url = server.create_database("bench", drop=True)
            for number in numbers:
                measure(folder, url, number)
        finally:
            server.stop(immediate=True)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1_000, 10_000, 100_000])
