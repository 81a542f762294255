"""What the tables ``_operations`` cost the end of a run: `python -m benchmarks.operation_tables [SYNCS]`, without source and without Spark.

Belongs here: the time of appending the rows of one sync, and those of a command of many. Does not belong: the sync itself.
"""

import statistics
import sys
import tempfile
import time

from benchmarks.figures import Figure, report
from incremental_assets.delta.operation_tables import EndedAs, Operation, OperationKind, OperationTables, Rows, WrittenWatermark

TARGET_MS = 50
"""How long the rows of one sync may take, on average."""


def rows_of(sync: int, containers: int = 1) -> Rows:
    """The rows of so many containers that were synced."""
    labels = [f"shop/orders{number}" for number in range(containers)]
    common = {"datastore": "shop", "run_id": f"{sync:036}"}
    done = [
        Operation(
            container=label, kind=OperationKind.SYNC, result=EndedAs.SUCCESS, started=sync, ended=sync + 1, rows=100, partitions=1,
            table_version=sync, message="changed since the last sync", triggered_by="schedule", code_version="1", **common,
        )
        for label in labels
    ]  # fmt: skip
    marks = [
        WrittenWatermark(
            container=label, watermark=str(sync), identifier="day", strategy="append", table_version=sync, updated_at=sync, **common
        )
        for label in labels
    ]
    return Rows(done, marks)


def measure(syncs: int) -> None:
    """Appends the rows of one sync after the other, and then those of a command."""
    with tempfile.TemporaryDirectory() as lake:
        times: list[float] = []
        for sync in range(syncs):
            started = time.perf_counter()
            OperationTables(lake).append(rows_of(sync))
            times.append(1000 * (time.perf_counter() - started))
        mean, median = statistics.mean(times), statistics.median(times)
        started = time.perf_counter()
        OperationTables(lake).append(rows_of(syncs, 1000))
        together = 1000 * (time.perf_counter() - started)
    report(
        f"{syncs} syncs: {mean:.1f} ms each on average (median {median:.1f}, the first {times[0]:.0f}, the slowest {max(times):.0f}); "
        f"1,000 containers of one command: {together:.0f} ms",
        Figure("rows of a sync in _operations", mean, "ms", TARGET_MS, "with the joining of files"),
        Figure("rows of 1,000 containers in _operations", together, "ms"),
    )


if __name__ == "__main__":
    measure(int(sys.argv[1]) if sys.argv[1:] else 400)
