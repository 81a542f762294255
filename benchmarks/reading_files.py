"""What reading files costs: `python -m benchmarks.reading_files [--megabytes 1000] [--files 10000] [--only ours]`, whole processes.

Belongs here: the first load of one large CSV and that of many small ones into Delta, by this project, by dlt and by plain Spark, one after
the other in one run. Does not belong: what a sensor's tick costs over many files (`python -m benchmarks.files`).

dlt is set up as its own documentation does it for speed: its filesystem source, which takes new files only, `read_csv_duckdb` into Arrow,
and Delta tables. Plain Spark is given the schema, reads all files by one query, appends them, and keeps no record of files. It uses the
same embedded server as this project, which is warm: it has loaded some small files in both ways.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from deltalake import DeltaTable
from pyarrow import csv

from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, Project, run
from incremental_assets.spark.session import open_session

SCHEMA = """id BIGINT, day DATE, customer BIGINT, price DECIMAL(12,2), quantity BIGINT, email STRING, note STRING, status STRING,
  at TIMESTAMP_NTZ"""
"""The columns of the files, as plain Spark is told."""
BLOCK = 100_000
"""How many rows are written at a time into the large file, and how many dlt reads at a time."""
FILES_A_FOLDER = 1000
WARM_UPS = 2
"""How many containers of three small files are loaded before the first measurement."""
DATASTORE = "landing"
OURS, DLT, SPARK = "incremental-assets", "dlt", "plain Spark"


@dataclass(frozen=True)
class Shape:
    """The files of one container: what they are, the name of their folder and of their table, and how many rows they have in all."""

    about: str
    name: str
    rows: int


# ---------------------------------------------------------------------- the files
def rows_from(first: int, count: int) -> pa.Table:
    """Rows with the identifiers from ``first`` on. One takes some 100 bytes."""
    ids = np.arange(first, first + count)

    def text(numbers: Any, before: str, after: str = "") -> Any:
        return pc.binary_join_element_wise(pa.scalar(before), pa.array(numbers).cast(pa.string()), pa.scalar(after), "")

    cents = pc.utf8_lpad(pa.array(ids % 100).cast(pa.string()), 2, "0")
    return pa.table(
        {
            "id": ids, "day": pa.array((20_000 + ids // 5_000 % 1_000).astype("int32")).cast(pa.date32()),
            "customer": ids * 7919 % 1_000_003, "price": pc.binary_join_element_wise(text(1 + ids % 1_000, ""), cents, "."),
            "quantity": 1 + ids % 50, "email": text(ids % 1_000_003, "customer", "@shop.example"), "note": text(ids, "note of "),
            "status": pa.array(["open", "paid", "sent"]).take(pa.array(ids % 3)),
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000_000).cast(pa.timestamp("us")),
        }
    )  # fmt: skip


def write_large(path: Path, megabytes: float) -> int:
    """Writes one file of at least so many megabytes. Returns how many rows it has."""
    path.parent.mkdir(parents=True)
    rows = 0
    with path.open("wb") as file:
        while file.tell() < megabytes * 1e6:
            csv.write_csv(rows_from(rows, BLOCK), file, csv.WriteOptions(include_header=rows == 0, quoting_style="none"))
            rows += BLOCK
    return rows


def write_many(folder: Path, files: int, rows: int) -> int:
    """Writes so many files of so many rows each. Returns how many rows they have together."""
    for number in range(files):
        path = folder / f"d{number // FILES_A_FOLDER:04d}" / f"orders_{number:07d}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        csv.write_csv(rows_from(number * rows, rows), path, csv.WriteOptions(quoting_style="none"))
    return files * rows


def defs(names: list[str]) -> str:
    """The `defs.yaml` of the folder, with a container for each of its sub-folders. The types of the columns are found by themselves."""
    containers = {name: {"glob": f"{name}/**/*.csv"} for name in names}
    attributes = {"name": DATASTORE, "path": "{{ env.BENCH_URL }}", "settle_seconds": 0, "containers": containers}
    return yaml.safe_dump({"type": "incremental_assets.FileDatastore", "attributes": attributes})


# ---------------------------------------------------------------------- what the other processes do
def read_with_dlt(landing: str, name: str, root: str) -> None:
    """Loads the files of the folder ``name`` into a Delta table of that name."""
    import dlt  # pyright: ignore[reportMissingImports] - of the extra `bench`
    from dlt.sources.filesystem import filesystem, read_csv_duckdb  # pyright: ignore[reportMissingImports]

    pipeline = dlt.pipeline(
        f"files_{name}",
        destination=dlt.destinations.filesystem(bucket_url=(Path(root) / "lake").as_uri()),
        dataset_name=DATASTORE,
        pipelines_dir=str(Path(root) / "pipelines"),
    )
    files = filesystem(bucket_url=(Path(landing) / name).as_uri(), file_glob="**/*.csv")
    files.apply_hints(incremental=dlt.sources.incremental("modification_date"))
    rows = (files | read_csv_duckdb(chunk_size=BLOCK, use_pyarrow=True)).with_name(name)
    rows.apply_hints(table_format="delta", write_disposition="append")
    pipeline.run(rows)


def read_with_spark(landing: str, name: str, root: str, home: str) -> None:
    """Appends the files of the folder ``name`` to a Delta table of that name, by one query."""
    with open_session(Path(home), name="benchmark") as spark:
        frame = spark.read.csv(str(Path(landing) / name), schema=SCHEMA, header=True, recursiveFileLookup=True)
        frame.write.format("delta").mode("append").save(str(Path(root) / name))


PROCESSES: dict[str, Callable[..., None]] = {DLT: read_with_dlt, SPARK: read_with_spark}


# ---------------------------------------------------------------------- measuring them
class Bench:
    """A project over the folder ``landing``, with a container for each shape, and a folder for the tables of each of the others."""

    def __init__(self, folder: Path, ours_only: bool) -> None:
        self.folder, self.landing, self.ours_only = folder, folder / "landing", ours_only
        for name in ("landing", "project", "dlt", "spark"):
            shutil.rmtree(folder / name, ignore_errors=True)
        self.project = Project(folder / "project", str(self.landing))
        self.tables = {OURS: self.project.lake / DATASTORE, DLT: folder / "dlt" / "lake" / DATASTORE, SPARK: folder / "spark"}

    def load(self, side: str, name: str) -> Measured:
        """Measures the load of the files of the folder ``name`` by one of the three."""
        if side == OURS:
            return self.project.command("sync", f"{DATASTORE}/{name}", "--json")
        places = [str(self.folder / "dlt")] if side == DLT else [str(self.folder / "spark"), str(self.project.home)]
        command = [sys.executable, "-m", "benchmarks.reading_files", "--process", side, str(self.landing), name, *places]
        return run(command, self.project.environment)

    def measure(self, shape: Shape) -> bool:
        """Reports the seconds of each side, and whether all tables have the rows of the files. Returns that."""
        seconds: dict[str, float] = {}
        for side in (OURS,) if self.ours_only else (OURS, DLT, SPARK):
            measured = self.load(side, shape.name)
            seconds[side] = measured.seconds
            if side == OURS:
                line = measured.lines[0]
                figures = [Figure(shape.about, measured.seconds, note=f"the run: {line['seconds']:.1f} s")]
            else:
                ratio = seconds[OURS] / measured.seconds
                figures = [Figure(f"{shape.about}, of the time of {side}", ratio, "×", note=f"{side}: {measured.seconds:.1f} s")]
            compared = f"; {OURS} takes {seconds[OURS] / measured.seconds:.2f} × as long" if side != OURS else ""
            report(f"{shape.about}, {side}: {measured.seconds:.1f} s, {measured.peak_mb:.0f} MB in its process{compared}", *figures)
        found = {side: DeltaTable(self.tables[side] / shape.name).count() for side in seconds}
        counted = ", ".join(f"{side} {rows:,}" for side, rows in found.items())
        equal = set(found.values()) == {shape.rows}
        report(
            f"{shape.about}: {'all have' if equal else 'THE ROWS DIFFER: not all have'} the {shape.rows:,} rows of the files ({counted})"
        )
        return equal


def measure(folder: Path, megabytes: float, files: int, rows_a_file: int, ours_only: bool) -> bool:
    """Makes the files and measures all sides. Returns whether the tables of all sides have the rows of the files."""
    bench = Bench(folder, ours_only)
    warm_ups = [f"warm_up_{number}" for number in range(WARM_UPS)]
    for name in warm_ups:
        write_many(bench.landing / name, 3, rows_a_file)
    shapes = [
        Shape(f"one CSV of {megabytes:,g} MB", "large", write_large(bench.landing / "large" / "orders.csv", megabytes)),
        Shape(f"{files:,} CSV of {rows_a_file:,} rows", "many", write_many(bench.landing / "many", files, rows_a_file)),
    ]
    bench.project.define(DATASTORE, defs([*warm_ups, *(shape.name for shape in shapes)]))
    try:
        for name in warm_ups:
            for side in (OURS,) if ours_only else (OURS, SPARK):
                bench.load(side, name)
        return all([bench.measure(shape) for shape in shapes])
    finally:
        bench.project.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading_files", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000, help="size of the large file (default: %(default)s)")
    parser.add_argument("--files", type=int, default=10_000, help="number of small files (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=100, help="rows of each small file (default: %(default)s)")
    parser.add_argument("--only", choices=["ours"], default=None, help="leave dlt and plain Spark out")
    parser.add_argument("--folder", type=Path, default=Path(".bench/files"))
    parser.add_argument("--process", nargs="+", metavar=("SIDE", "OF"), help="do what one of the measured processes does")
    asked: Any = parser.parse_args()
    if asked.process:
        PROCESSES[asked.process[0]](*asked.process[1:])
        return 0
    if asked.only is None and subprocess.run([sys.executable, "-c", "import dlt, duckdb"], capture_output=True).returncode:
        sys.stderr.write(
            "dlt and duckdb are not installed: pip install -c constraints.txt -e '.[bench]', or leave them out with --only ours\n"
        )
        return 2
    return 0 if measure(asked.folder.resolve(), asked.megabytes, asked.files, asked.rows, asked.only == "ours") else 1


if __name__ == "__main__":
    sys.exit(main())
