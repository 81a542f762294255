"""Measures what many rows of one table take: `python -m benchmarks.many_rows [--scale 1] [--only here]`.

Belongs here: a first load in two windows, few and many changed rows, rows of the safety lag that are read again, and a large partition that
is refreshed; each by this process and by Spark (``engine: spark``), in one run. Does not belong: the comparison with dlt
(`python -m benchmarks`), and few rows (`benchmarks.ways`).
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.delta.table import LakeTable, query
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.demo.source import load

DEFS = """\
type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: "{{{{ env.BENCH_URL }}}}"
  engine: {engine}
  load_rows: {load_rows}
  incremental: ["public.changed:updated_at:timestamp!upsert", "public.appended:updated_at:timestamp"]
  containers: {{changed: {{partition_by: month, safety_lag: 60}}, appended: {{partition_by: month, safety_lag: 60}}}}
  exclude: [lineitem, orders, "part*", customer, supplier, nation, region, events, customer_profile, orders_by_nation]
"""
PREPARE = """
create table {name} as select l.*, timestamptz '2025-01-01' + (l_orderkey * 7919 % 7776000) * interval '1 second'
  + l_linenumber * interval '1 microsecond' as updated_at from lineitem l;
alter table {name} add primary key (l_orderkey, l_linenumber); create index on {name} (updated_at); analyze {name};
"""
"""A table of three months."""
CHANGE = "update changed set l_quantity = l_quantity + 1, updated_at = now() + l_orderkey %% 1000 * interval '1 microsecond' where {where}"
STEPS = {
    "some ten rows changed": "l_orderkey < 4",
    "half of the rows changed": "l_orderkey %% 2 = 0",
    "a third of these changed at once": "l_orderkey %% 6 = 0",
}
"""The rows that are changed before each sync. The last ones lie among those that the safety lag reads again."""


def _changed(url: str, where: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        changed = connection.execute(CHANGE.format(where=where).encode(), ()).rowcount
        connection.execute("analyze changed")
    return changed


def _measure(project: Project, engine: str, what: str, *words: str) -> Figure:
    begun = time.perf_counter()
    measured = project.command("sync", *words, "--json")
    seconds, (line,) = time.perf_counter() - begun, measured.lines
    note = f"the run {line['seconds']:.1f} s, {line['rows_read']:,} rows read, {measured.peak_mb:.0f} MB"
    print(f"{engine}: {what}: {seconds:.1f} s; {note}", flush=True)
    return Figure(f"{engine}: {what}", seconds, note=note)


def _expect_equal(url: str, project: Project, name: str) -> None:
    """Raises RuntimeError if the lake has other rows than the source, by their number, keys, and what has changed in them."""
    with psycopg.connect(url) as connection:
        source = connection.execute(f"select count(*), sum(l_orderkey)::text, sum(l_quantity)::text from {name}".encode()).fetchone()
    table = LakeTable(str(project.lake), "shop", name).opened()
    assert table is not None
    sums = "CAST(sum(l_orderkey) AS VARCHAR) AS k, CAST(sum(l_quantity) AS VARCHAR) AS q"
    found = query(table, f'SELECT count(*) AS n, {sums} FROM "rows"').to_pylist()[0]
    if source != tuple(found.values()):
        raise RuntimeError(f"{name}: the source has {source}, and the lake {found}")


def measured_by(engine: str, url: str, folder: Path) -> Sequence[Figure]:
    """Measures all steps of one engine in a project of its own."""
    place = folder / f"project-{engine}"
    shutil.rmtree(place, ignore_errors=True)
    project = Project(place, url)
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("changed", "appended"):
            connection.execute(f"drop table if exists {name}".encode())
            connection.execute(PREPARE.format(name=name).encode())
        rows = connection.execute("select count(*) from changed").fetchone()
    assert rows is not None
    try:
        project.define("shop", DEFS.format(engine=engine, load_rows=rows[0] * 2 // 3))
        figures = [_measure(project, engine, "first load in windows", "shop/changed")]
        for what, where in STEPS.items():
            _changed(url, where)
            figures.append(_measure(project, engine, what, "shop/changed"))
        _expect_equal(url, project, "changed")
        project.define("shop", DEFS.format(engine=engine, load_rows=rows[0] * 2))
        figures.append(_measure(project, engine, "first load", "shop/appended"))
        figures.append(_measure(project, engine, "a month refreshed", "shop/appended", "--partition", "2025-02-01"))
        _expect_equal(url, project, "appended")
        return figures
    finally:
        project.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_rows", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the tables (default: %(default)s, 6 million rows)")
    parser.add_argument("--only", choices=["here", "spark"], help="measure one of the two")
    parser.add_argument("--folder", type=Path, default=Path(".bench/many_rows"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    engines = [engine for engine, name in (("auto", "here"), ("spark", "spark")) if asked.only in (None, name)]
    with EmbeddedPostgres(folder / "postgres", settings={"shared_buffers": "1GB", "max_wal_size": "8GB"}) as postgres:
        url = postgres.create_database("bench", drop=True)
        load(url, asked.scale)
        figures = [figure for engine in engines for figure in measured_by(engine, url, folder)]
        report(f"many rows at scale {asked.scale}", *figures)


if __name__ == "__main__":
    main()
