"""What many small files cost in a first sync: `python -m benchmarks.many_files [--files 5000] [--formats json]`, whole processes.

Belongs here: one sync of each format that loads all files, with the files of each run and its time. Does not belong: large files, and other
programs (`python -m benchmarks.reading_files`).
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from deltalake import DeltaTable
from pyarrow import csv

from benchmarks.figures import Figure, report
from benchmarks.measure import Project
from benchmarks.reading_files import DATASTORE, FILES_A_FOLDER, rows_from

FORMATS = ("json", "csv", "parquet")


def write(path: Path, rows: pa.Table) -> None:
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()))
    elif path.suffix == ".csv":
        csv.write_csv(rows, path, csv.WriteOptions(quoting_style="none"))
    else:
        pq.write_table(rows, path)


def measure(folder: Path, formats: list[str], files: int, rows: int) -> bool:
    """Makes the files and measures the first sync of each format. Returns whether all tables have all rows."""
    shutil.rmtree(folder, ignore_errors=True)
    landing, project = folder / "landing", Project(folder / "project", str(folder / "landing"))
    for number in range(files):
        made = rows_from(number * rows, rows)
        for format in formats:
            path = landing / format / f"d{number // FILES_A_FOLDER:04d}" / f"orders_{number:07d}.{format}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, made)
    containers = {format: {"glob": f"{format}/**/*.{format}"} for format in formats}
    attributes = {"name": DATASTORE, "path": "{{ env.BENCH_URL }}", "settle_seconds": 0, "containers": containers}
    project.define(DATASTORE, yaml.safe_dump({"type": "incremental_assets.FileDatastore", "attributes": attributes}))
    equal = True
    try:
        for format in formats:
            measured = project.command("sync", f"{DATASTORE}/{format}", "--json")
            runs = ", ".join(f"{line['seconds']:.1f}" for line in measured.lines)
            count = DeltaTable(project.lake / DATASTORE / format).count()
            equal = equal and count == files * rows
            about = f"{files:,} {format} files of {rows:,} rows, first sync"
            report(
                f"{about}: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB; runs of {runs} s; {count:,} rows",
                Figure(about, measured.seconds, note=f"runs of {runs} s"),
            )
    finally:
        project.stop()
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_files", description=__doc__)
    parser.add_argument("--files", type=int, default=5000, help="number of files of each format (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=20, help="rows of each file (default: %(default)s)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--folder", type=Path, default=Path(".bench/many"))
    asked: Any = parser.parse_args()
    return 0 if measure(asked.folder.resolve(), asked.formats, asked.files, asked.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
