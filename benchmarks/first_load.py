"""`python -m benchmarks.first_load`: the first load of `line_item`, without and with a Spark server running, beside DuckDB, in one run.

Belongs here: DuckDB's side (its extension for PostgreSQL writes one Parquet file), its environment, and the figures side by side. Does not
belong: the table (`python -m benchmarks`). `python -m benchmarks.first_load --scale 1 [--rounds 3] [--folder DIR]`.

Both sides are whole processes. DuckDB's has no state, no lock and no commit: it shows what reading and writing take at least.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.__main__ import Bench
from benchmarks.figures import Figure, report
from benchmarks.measure import Measured, run

PACKAGES = ("duckdb==1.4.4", "duckdb-ext-postgres==1.4.4.20260205")
MOST_WITH_SERVER, MOST_WITHOUT = 1.4, 2.0
"""How many times as long as DuckDB's copy the first load may take."""
COPY = """
import pathlib, sys, duckdb, duckdb_ext
folder = pathlib.Path(next(iter(duckdb_ext.__path__)))
connection = duckdb.connect()
connection.load_extension(str(next(folder.rglob("postgres_scanner.duckdb_extension"))))
connection.execute(f"attach '{sys.argv[1]}' as source (type postgres, read_only)")
connection.execute(f"copy (from source.public.line_item) to '{sys.argv[2]}' (format parquet, compression zstd)")
"""


def duckdb_environment(folder: Path) -> Path:
    """The Python of an environment with DuckDB alone, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_load", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = duckdb_environment(folder / "duckdb")
    bench = Bench(folder, arguments.scale, ours_only=True, rounds=2 * arguments.rounds)
    url = bench.prepare()
    theirs: list[Measured] = []
    without: list[Measured] = []
    with_server: list[Measured] = []
    try:
        for number in range(arguments.rounds):
            for made in (folder / "duckdb.parquet", bench.project.lake):
                shutil.rmtree(made, ignore_errors=True) if made.is_dir() else made.unlink(missing_ok=True)
            os.sync()  # what the one has written is on the disk before the other begins
            theirs.append(run([str(python), "-c", COPY, url, str(folder / "duckdb.parquet")], bench.project.environment))
            os.sync()
            bench.project.stop()
            without.append(bench.ours(f"load_{2 * number}/line_item"))
            os.sync()
            server = [sys.executable, "-m", "incremental_assets.spark.embedded.server", "start", str(bench.project.home)]
            subprocess.run(server, env=bench.project.environment, check=True, capture_output=True)
            with_server.append(bench.ours(f"load_{2 * number + 1}/line_item"))
    finally:
        bench.project.stop()
        bench.server.stop()
    least = statistics.median(one.seconds for one in theirs)
    report(f"DuckDB: {[round(one.seconds, 1) for one in theirs]} s", Figure("DuckDB to one Parquet file", least))
    for name, found, most in (("with a server", with_server, MOST_WITH_SERVER), ("without a server", without, MOST_WITHOUT)):
        seconds = statistics.median(one.seconds for one in found)
        report(
            f"first load {name}: {[round(one.seconds, 1) for one in found]} s; the run {[one.lines[0]['seconds'] for one in found]} s; "
            f"{max(one.peak_mb for one in found):.0f} MB",
            Figure(f"first load {name}", seconds),
            Figure(f"first load {name}, of DuckDB's time", seconds / least, "×", most),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
