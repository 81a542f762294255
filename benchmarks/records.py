"""What the records of earlier scans cost a scan: `python -m benchmarks.records [SCANS …]`, without source and without Spark.

Belongs here: records as so many scans would have left them, and the time of each step in which a scan reads them or adds to them. Does not
belong: the scan itself.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.figures import Figure, report
from incremental_assets.core.anomalies import Anomaly, State
from incremental_assets.core.rules.rule import Severity, Status, Verdict
from incremental_assets.quality.records import _SCHEMAS, CHECK_METRICS, OPERATIONS, OperationResult, Records, ScanOperation  # pyright: ignore[reportPrivateUsage]

CONTAINER = "shop/orders"
PARTITIONS = 30
"""How many partitions the recorded scans are spread over."""
A_FILE = 10_000
"""How many scans one file of the records has."""
FIVE_MINUTES = 300_000_000
"""In microseconds."""


def fill(lake: str, scans: int) -> None:
    """Writes the records of one scan every five minutes until now, each with one rule and one partition."""
    records = Records(lake, "shop")
    now = time.time_ns() // 1000
    records.record(ScanOperation("first", CONTAINER, now, now, OperationResult.SUCCESS), [_verdict("p0")], [], [_anomaly("first", now)])
    places = {name: Path(lake) / "shop" / "_quality" / name for name in (OPERATIONS, CHECK_METRICS)}
    for at in range(0, scans, A_FILE):
        numbers = range(at, min(at + A_FILE, scans))
        rows: dict[str, list[dict[str, Any]]] = {OPERATIONS: [], CHECK_METRICS: []}
        for n in numbers:
            then = now - (scans - n) * FIVE_MINUTES
            origin = {"container": CONTAINER, "recording": f"{n:032x}", "operation_id": f"run-{n:032x}", "recorded_at": then}
            rows[OPERATIONS].append(
                {**origin, "type": "scan", "started": then, "ended": then, "result": "success", "message": "100 rows", "options": "{}",
                 "passes": 1, "rows": 100, "rules": 1, "failed_rules": 0, "watermark": str(n), "identifier": "at:timestamp:instant"}
            )  # fmt: skip
            rows[CHECK_METRICS].append(
                {**origin, "rule": "volume", "partition": f"p{n * PARTITIONS // scans}", "status": "passed", "severity": "error",
                 "blocking": False, "rows": 100, "value": 100.0, "message": "", "asks": "x"}
            )  # fmt: skip
        for name, found in rows.items():
            write_deltalake(places[name], pa.Table.from_pylist(found, schema=_SCHEMAS[name]), mode="append")


def measure(scans: int) -> dict[str, Any]:
    """The processor seconds of each step over the records of ``scans`` scans."""
    steps: dict[str, Any] = {"scans": scans}

    def timed(name: str, step: Callable[[], object]) -> None:
        started = time.process_time()
        step()
        steps[name] = round(time.process_time() - started, 3)

    with tempfile.TemporaryDirectory() as lake:
        fill(lake, scans)
        records = Records(lake, "shop")
        now = time.time_ns() // 1000
        timed("watermark_s", lambda: records.scan_watermark(CONTAINER))
        timed("anomalies_s", lambda: records.anomalies(CONTAINER))
        timed("baseline_s", lambda: records.metrics(CONTAINER, ["volume"], ["p28", "p29"]))
        operation = ScanOperation("another", CONTAINER, now, now, OperationResult.SUCCESS, watermark="9", identifier="at:timestamp:instant")
        timed("record_s", lambda: records.record(operation, [_verdict("p1")], [], []))
    return steps


def _verdict(partition: str) -> Verdict:
    return Verdict("volume", partition, Status.PASSED, Severity.ERROR, False, 100, 100, 0, 100.0, "")


def _anomaly(operation: str, now: int) -> Anomaly:
    return Anomaly(
        "0" * 16, CONTAINER, "volume", "p0", None, 1, "", Severity.ERROR, State.ACTIVE, now, now, f"scan {operation}", operation=operation
    )


if __name__ == "__main__":
    for count in [int(one) for one in sys.argv[1:]] or [1_000, 100_000]:
        steps = measure(count)
        seconds = {step.removesuffix("_s"): value for step, value in steps.items() if step.endswith("_s")}
        figures = [Figure(f"records of {count:,} scans, {step}", value, note="of the processor") for step, value in seconds.items()]
        report(json.dumps(steps), *figures)
