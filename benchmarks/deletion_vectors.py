"""Measures up to which size a table loses nothing without deletion vectors: `python -m benchmarks.deletion_vectors [--sizes 16 64]`.

Belongs here: a table of each size as ``upsert``, with and without them, with ten changed rows that lie in one place and in all its
files. Does not belong: the limit that follows from it (``core.container.SMALL_BYTES``).
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from benchmarks.small_tables import BYTES_A_ROW, DEFS, PREPARE
from incremental_assets.demo.postgres import EmbeddedPostgres

ENTRY = '"public.t:updated_at:timestamp!upsert"'
STORES = {"marked": "true", "anew": "false"}
CHANGED = {
    "ten of the newest rows": "id > (select max(id) - 10 from t)",
    "ten rows all over the table": "id in (select (i * max) / 11 from generate_series(1, 10) i, (select max(id) from t) m)",
}


def _measured(project: Project, url: str, megabytes: int) -> Iterator[Figure]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PREPARE.format(rows=megabytes * 2**20 // BYTES_A_ROW).encode())
        size = connection.execute("select pg_total_relation_size('t'), count(*) from t").fetchone()
        assert size is not None
        for name in STORES:
            project.command("catalog", name)
            project.command("sync", name, "--reset-watermarks", "--json")
        for what, rows in CHANGED.items():
            for _ in range(3):
                connection.execute(f"update t set note = md5(random()::text), updated_at = now() where {rows}".encode())
                for name in STORES:
                    (line,) = project.command("sync", name, "--json").lines
                    note = f"{size[1]:,} rows, {size[0] / 2**20:.1f} MB, {line['rows_read'] or 0:,} rows read"
                    print(f"{name}, {what}: {line['seconds']:.2f} s; {note}", flush=True)
                    yield Figure(f"{name}: {what}, {megabytes} MB", line["seconds"], note=note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deletion_vectors", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 128, 256], help="in MB (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".bench/deletion_vectors"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    with EmbeddedPostgres(folder / "postgres") as postgres:
        url = postgres.create_database("bench", drop=True)
        shutil.rmtree(folder / "project", ignore_errors=True)
        project = Project(folder / "project", url)
        try:
            for name, vectors in STORES.items():
                entry = DEFS.format(name=name, entry=ENTRY).replace("safety_lag: 0", f"safety_lag: 0, deletion_vectors: {vectors}")
                project.define(name, entry)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(PREPARE.format(rows=1).encode())
            report("deletion vectors, the runs", *(figure for size in asked.sizes for figure in _measured(project, url, size)))
        finally:
            project.stop()


if __name__ == "__main__":
    main()
