"""A source that is a read replica: a real hot standby of the embedded PostgreSQL, made with its own ``pg_basebackup``.

Belongs here: syncs from a replica, and the warning about what it does not show. Does not belong: poolers (``test_pooler``).
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.demo.postgres import EmbeddedPostgres

MakeProject = Callable[..., Project]


@pytest.fixture
def standby(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A hot standby of the session's server."""
    copy = EmbeddedPostgres(tmp_path_factory.mktemp("standby"))
    copy.folder.chmod(0o711)
    home = copy.home
    backup = [
        str(home.binaries / "pg_basebackup"),
        "-D",
        str(home.data),
        "-d",
        postgres.url(),
        "-R",
        "-X",
        "stream",
        "-c",
        "fast",
        "--no-sync",
    ]
    done = home.account.run(backup, timeout=120)
    assert done.returncode == 0, done.stdout
    (home.data / "postmaster.pid").unlink(missing_ok=True)
    shutil.copy(postgres.folder / "password", copy.folder / "password")
    copy.start()
    yield copy
    copy.stop(immediate=True)


def replayed(primary: psycopg.Connection, standby: str) -> None:
    """Waits until the standby has all that the primary has committed."""
    row = primary.execute("select pg_current_wal_lsn()").fetchone()
    assert row is not None
    with psycopg.connect(standby, autocommit=True) as connection:
        deadline = time.monotonic() + 60
        while connection.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone() != (True,):
            assert time.monotonic() < deadline, "the standby does not follow"
            time.sleep(0.05)


@pytest.mark.long
def test_a_read_replica_is_synced_with_a_warning_and_a_lag_finds_late_rows(project: MakeProject, standby: EmbeddedPostgres) -> None:
    """A replica does not show the primary's transactions, so rows that commit late are lost without the safety lag of the warning."""
    made = project(incremental=["public.t:id:integer", "public.u:at:timestamp!upsert"],
                   containers={"t": {"safety_lag": 10}, "u": {"partition_by": "month", "safety_lag": 3600}})  # fmt: skip
    primary = made.url
    made.execute("""create table t (id bigserial primary key, note text); insert into t select from generate_series(1, 50);
        create table u (id int primary key, at timestamptz); insert into u select i, '2024-11-01' from generate_series(1, 50) i""")
    made.url = standby.url(Path(primary).name)
    replayed(made.source, made.url)
    lines = made.sync()
    for name in ("t", "u"):
        assert lines[name]["status"] == "synced" and lines[name]["rows_inserted"] == 50, lines[name]
        assert lines[name]["message"].count("the source is a read replica") == 1 and "safety_lag" in lines[name]["message"]
        made.assert_equal(name)
    with psycopg.connect(primary) as late:
        late.execute("insert into t (note) values ('late')")
        made.execute("insert into t (note) values ('overtakes'); update u set at = '2024-11-02' where id = 7")
        replayed(made.source, made.url)
        assert made.sync()["t"]["watermark"] == {
            "previous": 50,
            "new": 52,
            "held_back_by": None,
        }  # the replica does not show who is at work on the primary
    replayed(made.source, made.url)
    assert made.one("t")["rows_inserted"] == 1  # the late row lies within the safety lag
    for name in ("t", "u"):
        made.assert_equal(name)
    assert {line["status"] for line in made.sync().values()} == {"skipped"}
    made.url = primary  # it is the same database, so the table is not refused
    assert {line["status"] for line in made.sync().values()} <= {"skipped", "synced"}
