"""What an audit costs: `python -m benchmarks.audits [--scale 1] [--rounds 3]`: a month and all rows of `lineitem`.

Belongs here: audits of one table, and what each side needs alone for one pass over its rows. Does not belong: syncs (`benchmarks`).

The yardstick is `select count(*), sum(hash)` of each side by itself: with the hash that an audit needs, which both sides compute alike, and
with the fastest hash that each side has, of which no other side knows anything. The audit has both sides to ask, on the same processors.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from benchmarks.__main__ import DEFS, PREPARE
from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.core.comparison import Checksum, HashedRows, RowScope
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.postgres.source import PostgresSource
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.delta.table import LakeTable
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load
from incremental_assets.project.folders import enter_project
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.loading import load_datastores, select
from incremental_assets.spark.session import open_session

MONTH = "1995-06-01"
MONTH_SECONDS, TIMES = 5.0, 2.0
"""To reach: the seconds of the run that audits a month, and how many times as long as the slower side the audit of all rows may take."""


def median(work: Callable[[], object], rounds: int) -> float:
    """The median of the seconds that the work takes."""
    seconds: list[float] = []
    for _ in range(rounds):
        started = time.monotonic()
        work()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def all_rows(side: HashedRows) -> Checksum:
    """One pass over the rows of a side."""
    found = side.by_partition(RowScope()).values()
    return Checksum(sum(one.rows for one in found), sum(one.total for one in found))


def sides(project: Project, url: str, rounds: int) -> float:
    """Measures each side alone. Returns the seconds of the slower one, with the hash of an audit."""
    os.environ.update({name: project.environment[name] for name in ("BENCH_URL", "INCREMENTAL_ASSETS_LAKE", "DAGSTER_HOME")})
    enter_project(project.folder)
    _, definition = select(load_datastores(project.folder), ["append/line_item"], [])[0]
    assert isinstance(definition, TableDefinition) and adapter_of(definition).due
    container = definition.container
    table = LakeTable(str(project.lake), *container.key_path)
    head = table.head()
    assert head is not None
    with (
        open_session(project.home, name="benchmark") as spark,
        PostgresSource(definition.settings.address, container, timezone="UTC") as source,
        source.snapshot(),
    ):
        ours = source.snapshot_rows(container, ()).hashed_rows(head.columns)
        theirs = LakeHashedRows(lambda: spark, table, head.version, container, head.columns)
        assert all_rows(ours) == all_rows(theirs), "the sides are not equal, so their times mean nothing"
        of_source, of_lake = median(lambda: all_rows(ours), rounds), median(lambda: all_rows(theirs), rounds)
        plain = f"select count(*), sum(xxhash64(*)::decimal(38,0)) from {table.sql_name}"
        lake_plain = median(lambda: spark.sql(plain).collect(), rounds)
    with psycopg.connect(url) as connection:
        own = "select count(*), sum(hashtextextended(t::text, 0)) from line_item t"
        source_plain = median(lambda: connection.execute(own).fetchall(), rounds)
    for name, seconds in (
        ("the source alone, the audit's hash", of_source),
        ("the lake alone, the audit's hash", of_lake),
        ("the source alone, its own hash", source_plain),
        ("the lake alone, its own hash", lake_plain),
    ):
        report(f"{name}: {seconds:.1f} s", Figure(name, seconds))
    return max(of_source, of_lake)


def measure(folder: Path, url: str, scale: float, rounds: int) -> None:
    load(url, scale)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PREPARE)
        connection.execute("vacuum analyze line_item")
    project = Project(folder / "project", url)
    project.define("append", DEFS.format(name="append", spec="l_shipdate:date"))
    try:
        project.command("sync", "append/line_item", "--json")
        slower = sides(project, url, rounds)

        def audit(name: str, *arguments: str) -> float:
            # The first one is a warm-up of the server and of the source's cache.
            lines = [project.command("audit", "append/line_item", *arguments, "--json").lines[0] for _ in range(rounds + 1)][1:]
            assert all(line["status"] == "equal" for line in lines), lines
            seconds = statistics.median(line["seconds"] for line in lines)
            report(f"{name}: {lines[0]['rows']:,} rows in {seconds:.1f} s", Figure(name, seconds))
            return seconds

        month = audit("audit of a month", "--partition", MONTH)
        report(f"to reach: {MONTH_SECONDS} s", Figure("audit of a month, the run", month, target=MONTH_SECONDS))
        whole = audit("audit of all rows") / slower
        report(f"that is {whole:.2f} × the slower side alone", Figure("audit of all rows, of the slower side's time", whole, "×", TIMES))
    finally:
        project.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audits", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        settings = {"shared_buffers": "1GB", "max_wal_size": "8GB"}
        with EmbeddedPostgres(Path(work) / "postgres", settings=settings) as server:
            measure(Path(work), server.create_database("bench", drop=True), asked.scale, asked.rounds)


if __name__ == "__main__":
    main()
