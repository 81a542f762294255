"""Dagster's SQLite files, which this product keeps open and copies for each run.

Belongs here: that nothing is lost or different by it. What of Dagster's own it relies on is seen here, too: a run's database of Dagster's.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from incremental_assets.runs.dagster_internals import sqlite_files
from incremental_assets.runs.ordinary_run import command_line_instance


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return tmp_path


@dg.op
def says() -> None: ...


@dg.job
def small() -> None:
    says()


def runs_of(instance: dg.DagsterInstance, number: int) -> list[str]:
    """The ids of so many runs, which have ended."""
    return [small.execute_in_process(instance=instance).run_id for _ in range(number)]


def engine_of(path: Path) -> Engine:
    return create_engine(f"sqlite:///{path}", poolclass=NullPool)


def made(path: Path) -> tuple[list[object], ...]:
    """What makes a database, without its events."""
    connection = sqlite3.connect(path)
    try:
        parts = ("select type, name, sql from sqlite_master order by 1, 2", "select * from alembic_version", "pragma journal_mode")
        return tuple(connection.execute(part).fetchall() for part in parts)
    finally:
        connection.close()


def test_the_database_of_a_later_run_is_like_the_one_that_dagster_makes(home: Path, tmp_path: Path) -> None:
    """Where Dagster makes its databases otherwise, its UI and its migrations would meet one that they do not know."""
    with command_line_instance() as instance:
        ids = runs_of(instance, 2)
        assert sqlite_files._first_made, "the second run has no copy"
        counts = [len(instance.all_logs(run)) for run in ids]
    assert counts[0] == counts[1] > 5
    by_dagster = SqliteEventLogStorage(str(tmp_path / "own"))
    path = Path(by_dagster.path_for_shard("own"))
    sqlite_files._dagsters_own(by_dagster, engine_of(path))
    found = [made(home / "history" / "runs" / f"{run}.db") for run in ids]
    assert found[0] == found[1] == made(path)
    assert "event_logs" in str(found[0][0]) and found[0][2] == [("wal",)]
    assert not list((home / "history" / "runs").glob(".*"))


def test_a_run_takes_little_space(home: Path) -> None:
    """A sync a minute is half a million runs a year. A database with pages of Dagster's size has 110 kB before anything is in it."""
    with command_line_instance() as instance:
        ids = runs_of(instance, 3)
    sizes = [(home / "history" / "runs" / f"{run}.db").stat().st_size for run in ids]
    assert max(sizes) < 60_000, sizes


def test_engines_are_kept_and_the_migrations_are_read_once(home: Path) -> None:
    """Where Dagster no longer asks for them in this way, each command becomes slower by a fifth of a second, and each run, too."""
    for _ in range(3):
        with command_line_instance() as instance:
            runs_of(instance, 1)
    kept = sqlite_files._engine_of.cache_info()
    assert kept.hits > 10 * kept.misses > 0, kept
    assert len(sqlite_files._Migrations.read) == 1


def test_where_nothing_can_be_copied_dagster_makes_the_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync must not fail, or lose its events, on a file system without links."""

    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    with command_line_instance() as instance:
        ids = runs_of(instance, 3)
        assert {len(instance.all_logs(run)) for run in ids} == {len(instance.all_logs(ids[0]))}
        assert instance.all_logs(ids[2])
    assert not list((home / "history" / "runs").glob(".*"))


def process_with_runs(then: str) -> subprocess.CompletedProcess[str]:
    """A process that makes three runs, prints their ids, and ends so."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from assets_tests.dagster.test_sqlite_files import runs_of
from incremental_assets.runs.ordinary_run import command_line_instance
instance = command_line_instance()
print(*runs_of(instance, 3), flush=True)
{then}
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ}, timeout=120)


def test_a_process_that_ends_leaves_no_log_behind(home: Path) -> None:
    """Otherwise each run leaves half a megabyte: a sync a minute fills 80 GB before runs are removed."""
    ended = process_with_runs("sys.exit(3)")
    assert ended.returncode == 3 and len(ended.stdout.split()) == 3, ended.stderr
    left = sorted((home / "history").rglob("*.db*"))
    assert len(left) == 5 and {path.suffix for path in left} == {".db"}, left


def test_the_events_of_a_killed_process_are_there(home: Path) -> None:
    """A connection that stays open keeps what was committed in the log: another process must read it there after a kill."""
    killed = process_with_runs("os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (home / "history" / "runs.db-wal").exists(), "the log was written back, so that this test shows nothing"
    with command_line_instance() as instance:
        for run_id in killed.stdout.split():
            run = instance.get_run_by_id(run_id)
            assert run is not None and run.is_success
            assert [one.dagster_event_type for one in instance.all_logs(run_id)][-1] is dg.DagsterEventType.RUN_SUCCESS


def test_files_do_not_stay_open_without_end(home: Path) -> None:
    """A process may have 1,024 files open: a sync of a thousand containers has a thousand runs."""
    with command_line_instance() as instance:
        runs_of(instance, 12)
    opened = [os.readlink(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")]
    of_home = {one for one in opened if one.startswith(str(home.resolve())) and one.endswith(".db")}
    assert str(home.resolve() / "history" / "runs.db") in of_home
    assert 3 <= len(of_home) <= sqlite_files.KEPT


def test_files_elsewhere_are_left_alone(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A user's own asset may work with a SQLite file, and delete or replace it."""
    path = tmp_path_factory.mktemp("elsewhere") / "own.db"
    command_line_instance().dispose()
    for _ in range(3):
        with engine_of(path).connect() as connection:
            connection.exec_driver_sql("pragma journal_mode = wal")
    assert not Path(f"{path}-wal").exists()
