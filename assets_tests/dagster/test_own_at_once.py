"""Two runs that write one own asset at the same time: both partitions are there, with the lock and without it.

Belongs here: writes at once, by processes that are real runs. Does not belong: waiting for a lock (``test_io_manager``).
"""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets_tests.harness import long, wait_for
from assets_tests.own_lake import OwnLake, own
from incremental_assets.runs.locks import table_lock
from incremental_assets.spark.session import ensure_server

DAYS = dg.DailyPartitionsDefinition(start_date="2026-03-01")
KEYS = ("2026-03-01", "2026-03-02")


def materialize(path: Path, write: str, locked: bool, key: str) -> None:
    """Materializes one partition. Once the table is there, the rows are computed when both runs have come so far."""
    own_lake = OwnLake(path, path, table_lock if locked else None)
    metadata = {"write": write, "partition_expr": "day", **({"merge_keys": ["day", "id"]} if write == "merge" else {})}

    def query(context: dg.AssetExecutionContext) -> str:
        if (path / "together").exists():
            (path / f"{context.partition_key} {context.retry_number}").touch()
            if context.retry_number == 0:
                wait_for(lambda: all((path / f"{key} 0").exists() for key in KEYS), "the other run", 120)
        return f"select date'{context.partition_key}' as day, id from range(500)"

    assert own_lake.run(own("made", query, metadata, partitions_def=DAYS), key=key).success


@pytest.mark.parametrize("write", ["overwrite", *long("append", "merge")])
@pytest.mark.parametrize("locked", [pytest.param(True, marks=pytest.mark.long), False], ids=["of one host", "of two hosts"])
def test_two_runs_at_once_write_both_partitions(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, write: str, locked: bool
) -> None:
    """On one host the second waits for the lock. Hosts do not share it: there, Delta refuses one commit, and the step is tried again."""
    monkeypatch.setenv("SPARK_REMOTE", ensure_server(spark_home))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    for key in KEYS:
        materialize(tmp_path, write, locked, key)
    (tmp_path / "together").touch()
    call = f"materialize(Path(sys.argv[1]), {write!r}, {locked}, sys.argv[2])"
    code = f"import sys; from pathlib import Path; from {__name__} import materialize; {call}"
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), key], env=os.environ, stderr=subprocess.PIPE) for key in KEYS]
    ended = [(process.communicate(timeout=300)[1].decode(), process.returncode) for process in started]
    assert [code for _, code in ended] == [0, 0], [text[-2000:] for text, code in ended if code]
    counted = "cast(day as varchar) as day, count(*) as n, count(distinct id) as ids from t group by day --"
    rows = OwnLake(tmp_path, tmp_path).rows("made", counted)
    assert rows == [(key, 1000 if write == "append" else 500, 500) for key in KEYS]
    if not locked and write == "overwrite":
        assert list(tmp_path.glob("2026-* 1")), "one of them is tried again, or this test shows nothing"
