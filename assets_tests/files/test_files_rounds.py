"""Ranges of files whose ends are gone, and syncs of many files with several commits.

Belongs here: which files a command reads, with a real folder, Spark, Delta and Dagster runs. Does not belong: plans without Spark
(``test_files_planning``).
"""

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from deltalake import DeltaTable

from assets_tests.harness import Folder
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.runs.partitions import RANGE_END, RANGE_START, between

Make = Callable[..., Folder]


def daily(make: Make, days: int, **attributes: object) -> Folder:
    """A container ``sales`` with a file of one row for each day."""
    project = make(containers={"sales": {"glob": "day_*.csv"}}, **attributes)
    for day in range(1, days + 1):
        project.put(f"day_{day:02}.csv", f"id,amount\n{day},10\n")
    return project


def test_a_range_whose_end_is_gone_goes_by_the_names_of_files() -> None:
    known = ["b", "d", "a", "c"]
    assert between(known, "b", "a") == ["b", "d", "a"]
    assert between(known, "a", "b") == []
    assert between(known, "aa", "c") == ["b", "c"]
    assert between(known, "b", "cc") == ["b", "c"]


@pytest.mark.long
def test_a_range_of_files_whose_end_is_gone_is_refreshed_all_the_same(folder: Make) -> None:
    project = daily(folder, 5, prune_files=True)
    project.one("sales")
    (project.root / "day_03.csv").unlink()
    project.put("day_02.csv", "id,amount\n2,20\n")
    refreshed = project.one("sales", keys=("day_01.csv", "day_03.csv"))
    assert refreshed["status"] == "synced", refreshed
    assert sorted(refreshed["partitions"]) == ["day_01.csv", "day_02.csv", "day_03.csv"]
    assert sorted(project.rows("sales", "id, amount")) == [(1, 10), (2, 20), (4, 10), (5, 10)]
    assert project.one("sales")["status"] == "skipped"
    with project.instance() as instance:
        assert "day_03.csv" not in instance.get_dynamic_partitions("landing/sales")
        # A backfill of the UI waits in the queue, while the files at both ends of its range are removed and a sync runs.
        job = project.dagster().resolve_job_def("sync_landing__sales")
        run = instance.create_run_for_job(job, tags={RANGE_START: "day_02.csv", RANGE_END: "day_05.csv"})
        for day in (2, 5):
            (project.root / f"day_{day:02}.csv").unlink()
            instance.delete_dynamic_partition("landing/sales", f"day_{day:02}.csv")
        project.put("day_04.csv", "id,amount\n4,40\n")
        done = execute_run(InMemoryJob(job), run, instance, raise_on_error=False)
        assert done.success, [event.message for event in done.all_events if event.is_failure]
    assert sorted(project.rows("sales", "id, amount")) == [(1, 10), (4, 40)]
    assert project.one("sales")["status"] == "skipped"
    with project.instance() as instance:
        assert set(instance.get_dynamic_partitions("landing/sales")) == {"day_01.csv", "day_04.csv"}
    # The same on the command line, where the ends have no partitions any more.
    project.put("day_04.csv", "id,amount\n4,41\n")
    again = project.one("sales", keys=("day_03.csv", "day_05.csv"))
    assert again["status"] == "synced" and again["partitions"] == ["day_04.csv"], again
    with pytest.raises(ConfigurationError, match=r"there is no partition 'day_99\.csv'"):
        project.one("sales", keys=("day_01.csv", "day_99.csv"))


def rows_of(table: DeltaTable) -> int:
    return sum(pa.table(table.get_add_actions(flatten=True)).column("num_records").to_pylist())


@pytest.mark.long
def test_the_command_line_commits_a_limited_number_of_files_at_a_time(folder: Make) -> None:
    """Otherwise a first sync needs as much memory as there are files, and one that is stopped begins anew."""
    project = daily(folder, 5, max_files_per_run=2)
    for name in ("day_00.csv.gz", "day_09.csv.gz"):
        project.put(name, b"this is no gzip")
    project.configure(containers={"sales": {"glob": "day_*", "format": "csv"}})
    line = project.one("sales")
    assert line["status"] == "warning" and line["rows_read"] == 5 and len(line["partitions"]) == 5, line
    table = project.table("sales").opened()
    assert table is not None
    commits = sorted(one["version"] for one in table.history() if one["operation"] == "WRITE")
    rows = [rows_of(DeltaTable(table.table_uri, version=version)) for version in commits]
    assert [later - earlier for earlier, later in itertools.pairwise([0, *rows])] == [2, 2, 1], rows
    again = project.one("sales")  # a sync by hand tries files that could not be read once more
    assert again["status"] == "warning" and again["rows_read"] == 0 and "day_09.csv.gz" in again["message"], again
    for day in range(1, 6):
        project.put(f"day_{day:02}.csv", f"id,amount\n{day},20\n")
    (project.root / "day_00.csv.gz").unlink(), (project.root / "day_09.csv.gz").unlink()
    assert project.one("sales", mode=Mode.REFRESH)["rows_read"] == 5
    assert sorted(project.rows("sales", "id, amount")) == [(day, 20) for day in range(1, 6)]
    assert project.one("sales", reset=True)["rows_read"] == 5
    assert sorted(project.rows("sales", "id, amount")) == [(day, 20) for day in range(1, 6)]
    assert project.one("sales")["status"] == "skipped"
