"""What a sweep costs: `python -m benchmarks.sweeping [KEYS] [--deleted 100] [--rounds 3]`, on this machine.

Belongs here: a sweep that finds rows that were deleted all over a table, one that finds nothing, and the same with marks instead of
deletions. Does not belong: what a sweep finds (the tests).

Each case is measured as the whole process of `incremental-assets sync --sweep`, and by its own clock (`sweep/seconds` of the events): from
the first question about keys to the commit of the state. Nothing else has changed in the source. The keys are bigint, or texts of a UUID.
`INCREMENTAL_ASSETS_WRITE_BY=spark` lets Spark write, as it does where files of the lake are not local. The server of Spark is stopped
before a case begins that needs none.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import yaml

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.demo.postgres import EmbeddedPostgres

TARGET = 5.0
"""The seconds that a sweep of a million keys, of which a hundred are gone, may take."""
TABLES = {"ids": ("bigint", "sweep", "i"), "uuids": ("text", "sweep", "md5(i::text)::uuid::text"), "marked": ("bigint", "soft", "i")}
"""For each table: the type of its key, what happens to deleted rows, and the key of the row with the number ``i``."""
PADDING = "repeat('x', 60) || i"


def fill(url: str, keys: int) -> None:
    """Makes the tables of the source. Their identifier is the day of the last change, over a year."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name, (type_, _, key) in TABLES.items():
            columns = f"k {type_} primary key, n bigint, changed date not null, customer int, price numeric(12,2), note text"
            rows = f"select {key}, i, date '2025-01-01' + (i * 365 / {keys})::int, i % 9973, i % 99900 / 100.0, {PADDING}"
            for text in (
                f"create table {name} ({columns})",
                f"insert into {name} {rows} from generate_series(1::bigint, {keys}) i",
                f"create index on {name} (changed)",
                f"vacuum analyze {name}",
            ):
                connection.execute(text.encode())


def delete(url: str, name: str, keys: int, number: int, round_: int) -> None:
    """Deletes so many rows, evenly over the table, and others in each round."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(f"delete from {name} where n % {keys // number} = {round_ + 1}".encode())
        assert done.rowcount == number, done.rowcount


def project_of(work: Path, url: str) -> Project:
    project = Project(work / "project", url)
    containers = {name: {"deletes": deletes, "deletes_every": "52 weeks"} for name, (_, deletes, _) in TABLES.items()}
    incremental = [f"public.{name}:changed:date!upsert" for name in TABLES]
    attributes = {"name": "bench", "url": "{{ env.BENCH_URL }}", "safety_lag_seconds": 0, "incremental": incremental}
    entry = {"type": "incremental_assets.PostgresDatastore", "attributes": {**attributes, "containers": containers}}
    project.define("bench", yaml.safe_dump(entry))
    return project


def swept(project: Project, name: str, deleted: int) -> tuple[float, float, float]:
    """One sweep: the seconds of the process, those of the sweep, and the peak of memory in MiB."""
    measured = project.command("sync", f"bench/{name}", "--sweep", "--json")
    line: dict[str, Any] = measured.lines[0]
    assert line["rows_deleted"] == deleted, line
    return measured.seconds, line["sweep"]["seconds"], measured.peak_mb


def measure(keys: int, deleted: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as work, EmbeddedPostgres(Path(work) / "postgres") as server:
        url = server.create_database("bench")
        fill(url, keys)
        project = project_of(Path(work), url)
        try:
            loaded = project.command("sync", "bench", "--json")
            seconds = {line["container"]: line["seconds"] for line in loaded.lines}
            report(f"first load of {len(TABLES)} tables of {keys:,} rows: {seconds}")
            project.stop()
            for name, (type_, deletes, _) in TABLES.items():
                for number in (deleted, 0):
                    found: list[tuple[float, float, float]] = []
                    for round_ in range(rounds):
                        if number:
                            delete(url, name, keys, number, round_)
                        found.append(swept(project, name, number))
                    whole, own, memory = (statistics.median(values) for values in zip(*found, strict=True))
                    case = f"{deletes}, {type_} keys, {number:,} of {keys:,} gone"
                    target = TARGET if keys == 1_000_000 else None
                    report(
                        f"{case}: the sweep {own:.2f} s, the process {whole:.2f} s (medians of {rounds}), peak {memory:,.0f} MiB",
                        Figure(f"the sweep: {case}", own, target=target),
                        Figure(f"the process: {case}", whole, target=None),
                    )
        finally:
            project.stop()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("keys", nargs="?", type=int, default=1_000_000)
    arguments.add_argument("--deleted", type=int, default=100)
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    measure(chosen.keys, chosen.deleted, chosen.rounds)


if __name__ == "__main__":
    main()
