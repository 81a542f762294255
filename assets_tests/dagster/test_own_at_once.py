"""Two runs that write one own asset at the same time: both partitions are there, with the lock and without it.

Belongs here: writes at once, by threads that are real runs. Does not belong: waiting for a lock (``test_io_manager``).
"""

import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets_tests.own_lake import OwnLake, own
from incremental_assets.dagster.locks import table_lock

DAYS = dg.DailyPartitionsDefinition(start_date="2026-03-01")
KEYS = ("2026-03-01", "2026-03-02")


@pytest.mark.parametrize("write", ["overwrite", pytest.param("append", marks=pytest.mark.long), "merge"])
@pytest.mark.parametrize("locked", [pytest.param(True, marks=pytest.mark.long), False], ids=["of one host", "of two hosts"])
def test_two_runs_at_once_write_both_partitions(tmp_path: Path, spark_home: Path, monkeypatch: Any, write: str, locked: bool) -> None:
    """On one host the second waits for the lock. Hosts do not share it: there, Delta refuses one commit, and the step is tried again."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    own_lake = OwnLake(tmp_path, spark_home, table_lock if locked else None)
    metadata = {"write": write, "partition_expr": "day", **({"merge_keys": ["day", "id"]} if write == "merge" else {})}
    together, has_table = threading.Barrier(2, timeout=60), threading.Event()

    def query(context: dg.AssetExecutionContext) -> str:
        if has_table.is_set() and context.retry_number == 0:
            together.wait()
        return f"select date'{context.partition_key}' as day, id from range(50000)"

    made = own("made", query, metadata, partitions_def=DAYS)
    with own_lake.instance() as instance:

        def materialize(key: str) -> None:
            dg.materialize([made], instance=instance, resources=dict(own_lake.resources()), partition_key=key)

        materialize(KEYS[0])
        has_table.set()
        failed: list[BaseException] = []

        def thread(key: str) -> None:
            try:
                materialize(key)
            except BaseException as error:  # noqa: BLE001 it is raised in the thread of the test
                failed.append(error)

        threads = [threading.Thread(target=thread, args=(key,)) for key in KEYS]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert failed == []
    rows = own_lake.rows("made", "cast(day as varchar) as day, count(*) as n, count(distinct id) as ids from t group by day --")
    assert rows == [(KEYS[0], 100000 if write == "append" else 50000, 50000), (KEYS[1], 50000, 50000)]
