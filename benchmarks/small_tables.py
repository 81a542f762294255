"""Measures up to which size a table is as well synced whole: `python -m benchmarks.small_tables [--sizes 1 4 16]`.

Belongs here: a table of each size, whole and as ``upsert``, with one changed row and with none. Does not belong: the limit that
follows from it (``catalog.detect.WHOLE_BYTES``).
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from incremental_assets.demo.postgres import EmbeddedPostgres

DEFS = """\
type: incremental_assets.PostgresDatastore
attributes:
  name: {name}
  url: "{{{{ env.BENCH_URL }}}}"
  incremental: [{entry}]
  containers: {{t: {{safety_lag: 0}}}}
"""
STORES = {"whole": "", "upsert": '"public.t:updated_at:timestamp!upsert"'}
PREPARE = """
drop table if exists t;
create table t (id bigint primary key, note text, amount numeric(12, 2), created_at timestamptz, updated_at timestamptz);
insert into t select i, md5(i::text) || md5((-i)::text), i % 1000, timestamptz '2025-01-01' + i * interval '1 second',
  timestamptz '2025-01-01' + i * interval '1 second' from generate_series(1, {rows}) i;
create index on t (updated_at); analyze t;
"""
BYTES_A_ROW = 175
"""About what a row of this table takes in PostgreSQL, with its indexes."""


def _measured(project: Project, url: str, megabytes: int) -> Iterator[Figure]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PREPARE.format(rows=megabytes * 2**20 // BYTES_A_ROW).encode())
        size = connection.execute("select pg_total_relation_size('t'), count(*) from t").fetchone()
        assert size is not None
        for name in STORES:
            project.command("sync", name, "--reset-watermarks", "--json")
        for what in ("one row changed", "nothing changed"):
            if what == "one row changed":
                connection.execute("update t set note = md5(random()::text), updated_at = now() where id = 7")
            for name in STORES:
                (line,) = project.command("sync", name, "--json").lines
                note = f"{size[1]:,} rows, {size[0] / 2**20:.1f} MB, {line['rows_read'] or 0:,} rows read"
                print(f"{name}, {what}: {line['seconds']:.2f} s; {note}", flush=True)
                yield Figure(f"{name}: {what}, {megabytes} MB", line["seconds"], note=note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_tables", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64], help="in MB (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".bench/small_tables"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    with EmbeddedPostgres(folder / "postgres") as postgres:
        url = postgres.create_database("bench", drop=True)
        shutil.rmtree(folder / "project", ignore_errors=True)
        project = Project(folder / "project", url)
        try:
            for name, entry in STORES.items():
                project.define(name, DEFS.format(name=name, entry=entry))
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(PREPARE.format(rows=1).encode())
            for name in STORES:
                project.command("catalog", name)
            report("small tables, the runs", *(figure for size in asked.sizes for figure in _measured(project, url, size)))
        finally:
            project.stop()


if __name__ == "__main__":
    main()
