"""What many small containers cost: `python -m benchmarks.containers [--containers 100] [--changed 5] [--rows 1000]`.

Belongs here: whole `sync` commands over many tables of few rows, of which few or none have changed. Does not belong: loading a project with
thousands of tables (`python -m benchmarks.tables`), many partitions of one table (`python -m benchmarks.partitions`).
"""

import argparse
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import psycopg
import yaml

from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, Project
from incremental_assets.demo.postgres import EmbeddedPostgres

CHANGED_TARGET, UNCHANGED_TARGET = 2.0, 20.0
"""The seconds of a changed container, and the milliseconds of an unchanged one, that are to be reached."""


def defs(containers: int) -> str:
    """The `defs.yaml` of so many tables, every other one an upsert."""
    named = [f"public.t{n:04d}:at:timestamp{'!upsert' if n % 2 else ''}" for n in range(containers)]
    attributes = {"name": "many", "url": "{{ env.BENCH_URL }}", "incremental": named}
    return yaml.safe_dump({"type": "incremental_assets.PostgresDatastore", "attributes": attributes})


def measure(folder: Path, url: str, containers: int, changed: int, rows: int, rounds: int) -> None:
    """Prints the seconds of a first load, and then, in each round, of syncs with no and with some changed containers."""
    project = Project(folder / "project", url)
    project.define("many", defs(containers))
    with psycopg.connect(url, autocommit=True) as source:
        for n in range(containers):
            source.execute(f"create table t{n:04d} (id int primary key, at timestamptz not null default now(), note text)".encode())
            at = "now() - interval '1 day' + i * interval '1 second'"
            source.execute(f"insert into t{n:04d} select i, {at}, 'row' from generate_series(1, {rows}) i".encode())
            source.execute(f"create index on t{n:04d} (at)".encode())
            source.execute(f"analyze t{n:04d}".encode())

        def sync(what: str) -> Measured:
            measured = project.command("sync", "--json")
            found = Counter(line["status"] for line in measured.lines)
            synced = [line["seconds"] for line in measured.lines if line["status"] == "synced"]
            of_runs = f", a changed one {statistics.median(synced):.2f} s in its run" if synced else ""
            print(
                f"{containers} containers, {what}: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB, {dict(found)}{of_runs}", flush=True
            )
            return measured

        try:
            sync("first load")
            idle: list[Measured] = []
            busy: list[Measured] = []
            for number in range(rounds):
                idle.append(sync("none changed"))
                first = rows + 1 + number * 10
                for n in range(changed):
                    added = f"insert into t{n:04d} select i, now(), 'new' from generate_series({first}, {first + 9}) i"
                    source.execute(added.encode())
                busy.append(sync(f"{changed} changed"))
        finally:
            project.stop()
    none, some = (statistics.median(one.seconds for one in found) for found in (idle, busy))
    changed_s, each = (some - none) / changed, none / containers * 1000
    # One container is decided on after another, so that these seconds add up to what is not the start of the process.
    decided = statistics.median(sum(line["seconds"] for line in one.lines) for one in idle) / containers * 1000
    report(
        f"a changed container {changed_s:.2f} s, an unchanged one {each:.0f} ms, the start of the process included; "
        f"{decided:.0f} ms without it",
        Figure("a changed container", changed_s, target=CHANGED_TARGET),
        Figure("an unchanged container, without the start of the process", decided, "ms", UNCHANGED_TARGET),
        Figure(f"a sync of {containers:,} unchanged containers", none, note=f"{each:.0f} ms each"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.containers", description=__doc__)
    parser.add_argument("--containers", type=int, default=100)
    parser.add_argument("--changed", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000, help="rows of each container (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        measure(Path(work), server.create_database("bench", drop=True), asked.containers, asked.changed, asked.rows, asked.rounds)


if __name__ == "__main__":
    main()
