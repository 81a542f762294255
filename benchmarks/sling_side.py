"""The full load done by sling, where the package `sling-linux-amd64` is installed beside this one.

Belongs here: how sling is called. Does not belong: the measurement.

sling writes Parquet and Delta tables through the program `duckdb`, which it downloads when it first needs it. So that the comparison needs
nothing from elsewhere, it writes a CSV file here, which is less work.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import Measured, run

PACKAGE, PROGRAM = "sling_linux_amd64", "bin/sling-linux-amd64"


def load(url: str, folder: Path, environment: Mapping[str, str]) -> Measured | None:
    """Measures how long sling takes to write ``line_item`` to a file below ``folder``; None where it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).parent / PROGRAM
    program.chmod(program.stat().st_mode | 0o100)
    target = folder / "sling"
    settings = {**environment, "BENCH": f"{url}{'&' if '?' in url else '?'}sslmode=disable", "SLING_HOME_DIR": str(target / "home")}
    command = ["run", "--src-conn", "BENCH", "--src-stream", "public.line_item", "--tgt-object", f"file://{target / 'line_item.csv'}"]
    (target / "home").mkdir(parents=True, exist_ok=True)
    try:
        return run([os.fspath(program), *command], settings)
    finally:
        shutil.rmtree(target)
