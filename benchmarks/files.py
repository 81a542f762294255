"""What a sensor's tick costs over many files: `python -m benchmarks.files [FILES]`, with local files and without Spark.

Belongs here: the time and the memory of a tick of the product's own code. Does not belong: reading files
(`python -m benchmarks.reading_files`).
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import dagster as dg

from benchmarks.figures import Figure, report
from incremental_assets.dagster.components.files import FileDatastore, FilesEntry
from incremental_assets.dagster.sensors import Cursor, tick

FILES_A_FOLDER = 1000
"""How many files each folder of the benchmark has."""


def main(count: int) -> None:
    """Makes ``count`` files and prints the processor seconds of a tick that sees them first, and of one that finds them unchanged."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "landing"
        for number in range(count):
            folder = root / f"d{number // FILES_A_FOLDER:04d}"
            if number % FILES_A_FOLDER == 0:
                folder.mkdir(parents=True)
            path = folder / f"orders_{number:07d}.csv"
            path.write_text("id\n1\n")
            os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
        home = Path(work) / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        os.environ |= {"DAGSTER_HOME": str(home), "INCREMENTAL_ASSETS_LAKE": str(Path(work) / "lake")}
        component = FileDatastore(name="landing", path=str(root), containers={"sales": FilesEntry(glob="**/orders_*.csv")})
        definition = component.definitions(component.take_catalog(None).catalog)[0]
        with dg.DagsterInstance.get() as instance:
            started, before = time.process_time(), _memory()
            asked = tick(instance, definition, None)
            seconds = time.process_time() - started
            report(
                f"{count:,} new files: a tick that asks for 1,000 takes {seconds:.2f} s of the processor, {_memory() - before:,} KiB",
                Figure(f"a tick over {count:,} new files", seconds, note="of the processor"),
            )
            assert asked.run_requests and asked.cursor
            seen = Cursor.from_json(asked.cursor)
            assert seen is not None
            settled, started = Cursor(seen.sight, True).to_json(), time.process_time()
            assert "as it was" in str(tick(instance, definition, settled).skip_reason)
            seconds = time.process_time() - started
            report(
                f"{count:,} files, none changed: a tick takes {seconds:.2f} s of the processor",
                Figure(f"a tick over {count:,} unchanged files", seconds, note="of the processor"),
            )


def _memory() -> int:
    """The largest resident memory of this process so far, in KiB (on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
