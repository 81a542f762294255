"""The embedded PostgreSQL starts, stops, starts again after a kill, requires its password, and is shared.

Belongs here: the server itself. Does not belong: reading from it (``databases``).
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from incremental_assets.demo.postgres import DEFAULT_PORT, EmbeddedPostgres, EmbeddedPostgresError, demo_url


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach (pytest's own are closed to others), and no server left in it afterwards."""
    base = Path(tempfile.mkdtemp(prefix="embedded-postgres-"))
    base.chmod(0o755)
    yield base / "with space"
    EmbeddedPostgres(base / "with space").stop(immediate=True)
    shutil.rmtree(base)


def answer(url: str, query: str = "SELECT 1") -> object:
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


@pytest.mark.long
def test_a_server_keeps_its_port_after_a_restart(folder: Path) -> None:
    server = EmbeddedPostgres(folder, settings={"work_mem": "7MB"})
    assert not server.is_running
    assert server.start() is server
    assert server.is_running
    port, pid = server.port, server.pid
    server.start()
    assert (server.port, server.pid) == (port, pid), "start() is idempotent"
    assert server.url("postgres", user="a b", password="p/w@").startswith("postgresql://a%20b:p%2Fw%40@127.0.0.1:")
    assert answer(server.url(), "SHOW max_prepared_transactions") == "64"
    assert answer(server.url(), "SHOW fsync") == "off"
    assert answer(server.url(), "SHOW work_mem") == "7MB"
    server.stop()
    server.stop()
    assert not server.is_running
    server.start()
    assert server.port == port, "a URL that was noted stays good"
    assert answer(server.url()) == 1


def test_a_password_is_required_and_kept_private(folder: Path) -> None:
    server = EmbeddedPostgres(folder).start()
    mode = stat.S_IMODE((folder / "password").stat().st_mode)
    assert mode == 0o600
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        answer(server.url(user="postgres", password="wrong"))
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        answer(server.url(user="postgres"))
    assert answer(server.url(), "SELECT left(rolpassword, 5) FROM pg_authid WHERE rolname = 'postgres'") == "SCRAM"


def test_a_killed_server_is_started_again(folder: Path) -> None:
    server = EmbeddedPostgres(folder).start()
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while server.is_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not server.is_running
    assert (server.home.data / "postmaster.pid").exists(), "the stale file is the point of this test"
    server.start()
    assert server.pid != pid
    assert answer(server.url(), "SELECT answer FROM kept") == 42


@pytest.mark.long
def test_a_pid_file_that_names_another_process_is_ignored(folder: Path) -> None:
    server = EmbeddedPostgres(folder).start()
    server.stop()
    names_our_folder = [sys.executable, "-c", "import time; time.sleep(60)", str(server.home.data)]
    with subprocess.Popen(names_our_folder) as other:
        lines = [str(other.pid), str(server.home.data), "1", "5432", "", "127.0.0.1", "0 0", "ready"]
        (server.home.data / "postmaster.pid").write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert not server.is_running
        server.stop()
        assert other.poll() is None
        server.start()
        assert answer(server.url()) == 1
        other.kill()


def test_a_server_outlives_the_process_that_started_it_and_is_reused(folder: Path) -> None:
    code = "import sys; from pathlib import Path; from incremental_assets.demo.postgres import EmbeddedPostgres as E; "
    started = subprocess.run(
        [sys.executable, "-c", code + "s = E(Path(sys.argv[1])).start(); print(s.pid, s.port)", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    pid, port = (int(word) for word in started.stdout.split())
    second = EmbeddedPostgres(folder)
    assert (second.is_running, second.pid, second.port) == (True, pid, port)
    assert second.start().pid == pid
    assert answer(second.url()) == 1


@pytest.mark.long
def test_a_database_is_created_once_unless_it_is_dropped(folder: Path) -> None:
    server = EmbeddedPostgres(folder).start()
    url = server.create_database('sh"op')
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("PREPARE TRANSACTION 'left behind'")
    with pytest.raises(EmbeddedPostgresError, match="drop=True"):
        server.create_database('sh"op')
    assert answer(server.create_database('sh"op', drop=True), "SELECT count(*) FROM pg_class WHERE relname = 't'") == 0


@pytest.mark.long
def test_a_taken_port_is_an_error_that_names_it(folder: Path) -> None:
    first = EmbeddedPostgres(folder).start()
    other = folder.parent / "other"
    with pytest.raises(EmbeddedPostgresError, match=f"port {first.port}"):
        EmbeddedPostgres(other, port=first.port).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for the server")
def test_a_server_runs_for_a_project_folder_that_only_root_can_reach(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    private = folder.parent / "private"
    private.mkdir(mode=0o700)
    server = EmbeddedPostgres(private / "project" / ".demo" / "postgres")
    with caplog.at_level("INFO"):
        server.start()
    try:
        assert not server.home.data.is_relative_to(private)
        assert any("keeps its data in" in record.message for record in caplog.records)
        assert answer(server.url()) == 1
        assert EmbeddedPostgres(server.folder).pid == server.pid
        assert stat.S_IMODE(private.stat().st_mode) == 0o700, "nobody's permissions are changed"
    finally:
        server.stop(immediate=True)
        shutil.rmtree(server.home.data.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for the server")
@pytest.mark.long
def test_what_a_deleted_project_has_left_elsewhere_is_removed_by_the_next_server(folder: Path) -> None:
    """Whoever deletes a project does not know of its data in a temporary folder; fifty gigabytes of them once filled a disk."""
    private = folder.parent / "private"
    private.mkdir(mode=0o700)
    deleted, running, next_one = (EmbeddedPostgres(private / name / "postgres") for name in ("deleted", "running", "next"))
    homes: list[Path] = []
    try:
        for server in (deleted, running):
            homes.append(server.start().home.data.parent)
        deleted.stop(immediate=True)
        shutil.rmtree(private / "deleted")
        shutil.move(private / "running", private / "moved")
        homes.append(next_one.start().home.data.parent)
        assert [home.exists() for home in homes] == [False, True, True]
        assert answer(next_one.url()) == 1
    finally:
        shutil.move(private / "moved", private / "running")
        for server in (running, next_one):
            server.stop(immediate=True)
            server.remove()
    assert not any(home.exists() for home in homes), "no empty folder is left either"


def test_demo_url_before_and_after_the_first_start(folder: Path) -> None:
    assert f"@127.0.0.1:{DEFAULT_PORT}/shop" in demo_url(folder)
    assert not folder.exists(), "asking changes nothing"
    server = EmbeddedPostgres(folder / ".demo" / "postgres").start()
    try:
        assert demo_url(folder) == server.url("shop")
    finally:
        server.stop(immediate=True)
