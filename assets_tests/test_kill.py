"""A sync that is killed or interrupted loses and doubles no row: the next sync makes the lake equal to its source.

Everything here is really killed: processes and the server's JVM by SIGKILL, syncs by SIGINT and SIGTERM. A query that a killed client has
left running on the Spark server is made to commit after another host's sync. Belongs here: processes that are ended from outside. Does not
belong: syncs that fail at given points of their own code (``test_stages``, ``test_property``).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import psycopg
import pytest

from assets_tests.harness import Project, wait_for
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta.engine import READ_BY, WRITE_BY
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.embedded import server
from incremental_assets.spark.session import stop_server

MakeProject = Callable[..., Project]
ROWS = 60_000
OURS = "application_name like 'incremental%' and datname = current_database() and pid <> pg_backend_pid()"


def do(connection: psycopg.Connection, statement: str, parameters: Any = None) -> psycopg.Cursor[Any]:
    return connection.execute(statement.encode(), parameters)


class Command:
    """A call of the command line in a process of its own, while it runs."""

    def __init__(self, project: Project, *arguments: str, environment: dict[str, str] | None = None) -> None:
        project.write()
        self._log = project.path / f"stderr-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), *arguments, "--json"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment or project.environment(), stdout=subprocess.PIPE, stderr=log, text=True
            )

    @property
    def stderr(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, text: str, seconds: float = 240) -> bool:
        """Waits until the text is in its stderr. False where it ended before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if text in self.stderr:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        raise AssertionError(f"{text!r} did not occur in its stderr:\n{self.stderr}")

    def kill(self) -> bool:
        """Sends SIGKILL. False where the process had ended before."""
        alive = self.process.poll() is None
        self.process.kill()
        self.process.communicate(timeout=30)
        return alive

    def end(self, seconds: float = 240) -> tuple[int, list[dict[str, Any]]]:
        """Waits until the process ends. Returns its exit code and the JSON lines that it printed."""
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, [json.loads(text) for text in out.splitlines() if text.startswith("{")]


def count(project: Project, query: str) -> int:
    row = do(project.source, query).fetchone()
    assert row is not None
    return int(row[0])


def wait_for_the_last_commit(project: Project) -> None:
    """Waits until no query of the product reads the source any more, and until what it had read has been committed."""
    wait_for(lambda: count(project, f"select count(*) from pg_stat_activity where {OURS}") == 0, "the last reader of the source has ended")
    versions = [-1]
    while versions[-1] != (now := sum(1 for _ in project.lake_root.rglob("_delta_log/*.json"))):
        versions.append(now)
        time.sleep(1.5)  # what Spark has read already is written and committed within that time, and nobody could tell when it begins


def tables(project: Project, names: list[str]) -> None:
    for name in names:
        do(
            project.source,
            f"""create table {name} (id int primary key, day date, note text, updated_at timestamptz not null default now());
            insert into {name} select i, date '2026-01-01' + i % 90, md5(i::text) || repeat('x', 60) from generate_series(1, {ROWS}) i;
            create index on {name} (updated_at); analyze {name}""",
        )


def change(project: Project, name: str, round_: int) -> None:
    """Updates a sixth of the rows and inserts some, which the next upsert has to bring to the lake."""
    do(project.source, f"update {name} set note = 'round {round_}', updated_at = now() where id %% 6 = %s", (round_ % 6,))
    do(project.source, f"insert into {name} select {ROWS * 10 * round_} + i, '2026-05-01', 'new' from generate_series(1, 500) i")


def change_after(project: Project, name: str, round_: int) -> None:
    """Deletes and updates rows after the kill. A query of the killed sync that commits later would bring the older rows back."""
    do(project.source, f"delete from {name} where id > {ROWS * 10 * round_} and id %% 2 = %s", (0,))
    do(project.source, f"update {name} set note = 'later', updated_at = now() where id between 1 and 50")


# The words after which a sync is killed, and how many seconds after them: it is killed anywhere in its work, and not where it stands ready.
FIRST = [("first sync", 0.0), ("first sync", 0.5), ("first sync", 1.2), ("first sync", 2.0), ("wrote", 0.0), ("rows so far", 0.0)]
LATER = [("is new since", 0.0), ("is new since", 0.5), ("is new since", 1.2), ("is new since", 2.0), ("wrote", 0.0), ("rows so far", 0.0)]


@pytest.mark.long
@pytest.mark.parametrize("read_by", ["", "arrow", "jdbc"], ids=["read here", "read by Spark's tasks", "read through JDBC"])
def test_a_first_load_that_is_killed_is_completed_by_the_next_sync(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str
) -> None:
    """A first sync that was killed must not leave a table that counts as loaded although rows are missing."""
    monkeypatch.setenv(READ_BY, read_by)
    names = [f"t{i}" for i in range(len(FIRST))]
    shop = project(incremental=[f"public.{name}:day:date" for name in names])
    tables(shop, names)
    killed = 0
    for name, (words, seconds) in zip(names, FIRST, strict=True):
        command = Command(shop, "sync", f"shop/{name}")
        assert command.wait_until(words), command.stderr
        time.sleep(seconds)  # see FIRST
        killed += command.kill()
        do(shop.source, f"delete from {name} where day = '2026-03-31' and id % 2 = 0")  # each sync reads the newest day again
        do(shop.source, f"insert into {name} select -i, '2026-04-15', 'later' from generate_series(1, 500) i")
        shop.one(name)
        shop.assert_equal(name)
    assert killed >= 4
    wait_for_the_last_commit(shop)
    for name in names:
        shop.assert_equal(name)  # the queries that the killed syncs had left running have changed nothing


def test_an_upsert_that_is_killed_is_completed_by_the_next_sync(project: MakeProject) -> None:
    """An upsert that was killed must lose no changes, and its queries that go on must not bring back rows that were deleted since."""
    _kill_in_an_upsert(project, LATER[4:5])


@pytest.mark.long
def test_an_upsert_that_is_killed_at_any_point_is_completed_by_the_next_sync(project: MakeProject) -> None:
    """The same where the upsert is killed earlier or later."""
    _kill_in_an_upsert(project, LATER)


def _kill_in_an_upsert(project: MakeProject, points: list[tuple[str, float]]) -> None:
    shop = project(incremental=["public.t:updated_at:timestamp!upsert"], containers={"t": {"partition_by": "month"}})
    tables(shop, ["t"])
    shop.one("t")
    round_ = 0
    for words, seconds in points:
        killed, wait = False, seconds
        while not killed:  # if the sync has ended before it was killed, the next one is killed sooner
            round_ += 1
            assert round_ <= 4 * len(points), f"each sync ended within {wait} s after {words!r}"
            change(shop, "t", round_)
            command = Command(shop, "sync", "shop/t")
            assert command.wait_until(words), command.stderr
            time.sleep(wait)  # see FIRST
            killed, wait = command.kill(), wait / 2
        change_after(shop, "t", round_)
        shop.one("t")
        wait_for_the_last_commit(shop)
        shop.assert_equal("t")


@pytest.fixture
def own_server(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeProject]:
    """Makes a project with a Spark server of its own, which the command line starts."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INCREMENTAL_ASSETS_SPARK_MEMORY", "1g")
    path = tmp_path / "p"
    made: list[Project] = []

    def make(**attributes: Any) -> Project:
        made.append(Project(path, database, path / ".dagster_home", **attributes))
        return made[-1]

    yield make
    stop_server(path / ".dagster_home")
    for one in made:
        one.source.close()


def kill_server(project: Project) -> None:
    record = server.Home(project.home).record()
    assert record is not None, "no server is running"
    os.kill(record.jvm_pid, signal.SIGKILL)


def without_remote(project: Project) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE")} | {"SHOP_URL": project.url}


def sync_and_kill_server(project: Project, name: str, words: str, seconds: float) -> bool:
    """Syncs, and kills the Spark server so many seconds after the words are in stderr. Returns whether the sync failed."""
    command = Command(project, "sync", f"shop/{name}", environment=without_remote(project))
    assert command.wait_until(words), command.stderr
    wait_for(lambda: server.Home(project.home).record() is not None, "the server runs")
    time.sleep(seconds)  # the server, too, is killed anywhere in its work
    kill_server(project)
    code, lines = command.end()
    assert "Traceback" not in command.stderr, command.stderr
    if code == 0:
        assert lines[0]["status"] == "synced"
        return False
    assert code == 1 and lines[0]["status"] == "failed", (code, lines, command.stderr)
    return True


SERVER_POINTS = [("about", 0.3), ("about", 1.2), ("about", 2.5), ("wrote", 0.0)]


@pytest.mark.long
@pytest.mark.timeout(1500)  # eight servers are started one after another
@pytest.mark.parametrize("read_by", ["jdbc", "arrow"])
def test_syncs_whose_spark_server_is_killed_are_completed_by_the_next(
    own_server: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str
) -> None:
    """A Spark server that ends during a sync must not leave containers that cannot be synced any more."""
    monkeypatch.setenv(READ_BY, read_by)  # few rows would be read and written without the server
    monkeypatch.setenv(WRITE_BY, "spark")
    names = [f"t{i}" for i in range(len(SERVER_POINTS))]
    shop = own_server(incremental=[f"public.{name}:updated_at:timestamp!upsert" for name in names])
    tables(shop, names)
    noticed = 0
    for name, (words, seconds) in zip(names, SERVER_POINTS, strict=True):  # in its first load, and in an upsert after that
        noticed += sync_and_kill_server(shop, name, words, seconds)
        shop.one(name)
        shop.assert_equal(name)
        change(shop, name, 1)
        noticed += sync_and_kill_server(shop, name, words, seconds)
        change_after(shop, name, 1)
        shop.one(name)
        shop.assert_equal(name)
    assert noticed, "no server was killed while a sync was at work"  # how many are, the machine decides


def python_workers(project: Project) -> list[psutil.Process]:
    """The processes in which the Spark server runs tasks of Python."""
    record = server.Home(project.home).record()
    assert record is not None, "no server is running"
    daemons = [one for one in psutil.Process(record.jvm_pid).children() if {"pyspark.daemon", "pyspark.worker"} & set(one.cmdline())]
    return [worker for daemon in daemons for worker in daemon.children()]


@pytest.mark.long
def test_a_load_whose_task_is_killed_is_completed_by_the_next(own_server: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is killed, as where memory is short, leaves files: no row of them may be in the table, or be there twice."""
    monkeypatch.setenv(READ_BY, "arrow")
    shop = own_server(incremental=["public.t:id:integer"])
    do(shop.source, "create table t (id int primary key, note text)")
    do(shop.source, "alter table t alter note set storage external")  # so that reading the rows takes a while
    do(shop.source, "insert into t select i, repeat(md5(i::text), 150) from generate_series(1, 60000) i")
    do(shop.source, "analyze t")
    command = Command(shop, "sync", "shop/t")  # SPARK_REMOTE names the server: on one machine alone no task reads
    wait_for(
        lambda: count(shop, f"select count(*) from pg_stat_activity where {OURS} and query ilike 'copy%' and state = 'active'"), "reads"
    )
    workers = python_workers(shop)
    assert workers, "no task of Python runs"
    for worker in workers:
        worker.kill()
    code, lines = command.end()
    assert "Traceback" not in command.stderr, command.stderr
    assert lines[0]["status"] == ("failed" if code else "synced"), lines
    if code:
        assert "has ended, as memory was short" in lines[0]["message"], lines
        assert shop.rows("t", "count(*)") == [(0,)]
    shop.one("t")
    shop.assert_equal("t")


# ------------------------------------------------------------------ queries that commit late, and two hosts: a read that waits for a lock
GATED = """
create table rows (id int primary key, day date, note text, updated_at timestamptz not null default now());
insert into rows select i, date '2026-01-01' + i % 50, 'old' from generate_series(1, 1000) i;
create function gate(id int) returns text language plpgsql stable as $$
begin
  if current_setting('gate.mode', true) = 'closed' then perform pg_advisory_lock_shared(7); perform pg_advisory_unlock_shared(7); end if;
  return id::text;
end $$;
create view gated as select id, day, note, updated_at, gate(id) as passed from rows;
"""
ENTRIES = {"append": "public.gated:day:date", "upsert": "public.gated:updated_at:timestamp!upsert"}


@pytest.fixture
def gated(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Project]:
    """Makes projects whose rows Spark reads, as it does where there are many: a query of Spark's can outlive the run that has sent it."""
    monkeypatch.setenv(READ_BY, "jdbc")

    def make(strategy: str) -> Project:
        options = {"primary_key": ["id"], "partition_by": "month", "readers": 1}
        made = project(incremental=[ENTRIES[strategy]], containers={"gated": options}, exclude=["rows"])
        made.source.execute(GATED)
        return made

    return make


@contextlib.contextmanager
def closed_gate(project: Project) -> Iterator[Callable[[], None]]:
    """Spark's reads of the view wait until the block is left. Reads that begin after a call of ``let_others_pass()`` do not wait."""
    name = project.source.info.dbname
    do(project.source, f"alter database {name} set gate.mode = 'closed'")
    with psycopg.connect(project.url, autocommit=True, application_name="gate") as keeper:
        do(keeper, "select pg_advisory_lock(7)")

        def let_others_pass() -> None:
            do(project.source, f"alter database {name} set gate.mode = 'open'")

        yield let_others_pass
        let_others_pass()


def waits_at_the_gate(project: Project) -> bool:
    """Whether a read of the product waits for the gate's lock."""
    return count(project, f"select count(*) from pg_stat_activity where {OURS} and wait_event = 'advisory'") > 0


class HostWithoutLeases(Project):
    """A host that ignores leases, as a host does whose own lease has ended while its process was stopped."""

    def one(self, name: str, *, ok: bool = True, **kwargs: Any) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("INCREMENTAL_ASSETS_LEASE", "off")
            return super().one(name, ok=ok, **kwargs)


def other_host(project: Project) -> Project:
    """The same datastore and lake from another DAGSTER_HOME. The two share no lock, no lease and no event."""
    other = HostWithoutLeases(project.path.parent / f"{project.path.name}-other", project.url, project.spark_home, **project.attributes)
    other.lake = project.lake
    return other


LATE = [
    ("append", "first load", "killed"),
    ("upsert", "later", "killed"),
    ("upsert", "first load", "slow host"),
    ("append", "later", "slow host"),
    ("upsert", "later", "slow host"),
]


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "when", "who"), LATE)
def test_a_write_that_commits_late_changes_nothing(gated: Callable[[str], Project], strategy: str, when: str, who: str) -> None:
    """A query of a killed run, or of a host that was stopped, may go on after another host's sync. It must not bring old rows back."""
    shop = gated(strategy)
    if when == "later":
        shop.one("gated")
    do(shop.source, "insert into rows select i, '2026-02-19', 'soon gone' from generate_series(2001, 2100) i")
    with closed_gate(shop) as let_others_pass:
        command = Command(shop, "sync")
        wait_for(lambda: waits_at_the_gate(shop), "its read stands at the gate")
        if who == "killed":
            assert command.kill()
        let_others_pass()
        do(shop.source, "delete from rows where id between 2001 and 2050")
        do(shop.source, "update rows set note = 'newest', updated_at = now() where id between 2051 and 2060")
        do(shop.source, "insert into rows select i, '2026-02-20', 'new' from generate_series(3001, 3100) i")
        other = other_host(shop)
        other.one("gated")
        other.assert_equal("gated")
        version = other.compare("gated").delta_version
    if who == "slow host":
        code, lines = command.end()
        assert code == 0 and lines[0]["status"] == "synced", (code, lines, command.stderr)  # the second attempt succeeded
        assert "another writer committed to" in command.stderr and "Traceback" not in command.stderr, command.stderr
    wait_for_the_last_commit(shop)
    found = other.compare("gated")
    assert found.equal, f"the late write has committed: {found}"
    assert who == "slow host" or found.delta_version == version, f"the late write has committed: {found}"
    shop.one("gated")
    shop.assert_equal("gated")
    other.source.close()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["append", "upsert"])
@pytest.mark.parametrize("last_look", [False, True], ids=["before the last look", "after the last look"])
def test_rows_of_two_hosts_that_write_at_once_all_arrive(
    gated: Callable[[str], Project], strategy: str, last_look: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the slower host replaces newer rows by older ones. The newer watermark must not count then, so that those rows come
    back."""
    shop = gated(strategy)
    shop.one("gated")
    other = other_host(shop)
    owner, name = (LakeTable, "data_commits_since") if last_look else (PostgresReader, "still_there")
    real, calls = getattr(owner, name), [0]

    def after_the_other_host(*args: Any) -> Any:
        found = real(*args)
        calls[0] += 1
        if calls[0] == 1:
            do(shop.source, "insert into rows select i, '2026-02-19', 'between' from generate_series(3001, 3100) i")
            do(shop.source, "insert into rows values (4000, '2026-02-21', 'raises the watermark above them')")
            assert other.one("gated")["status"] == "synced"
        return found

    monkeypatch.setattr(owner, name, after_the_other_host)
    do(shop.source, "insert into rows select i, '2026-02-19', 'before' from generate_series(2001, 2100) i")
    assert shop.one("gated")["status"] == "synced"
    assert calls[0] >= 2, "the sync has not noticed the other host"
    shop.assert_equal("gated")
    other.one("gated")
    shop.one("gated")
    shop.assert_equal("gated")
    other.source.close()


# ------------------------------------------------------------------ Ctrl-C
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("alone", [True, False], ids=["one container", "side by side"])
@pytest.mark.parametrize("read_by", ["", "jdbc"], ids=["read here", "read by Spark"])
def test_an_interrupted_sync_leaves_nothing_behind(
    gated: Callable[[str], Project], monkeypatch: pytest.MonkeyPatch, number: int, alone: bool, read_by: str
) -> None:
    """Ctrl-C must not leave a run that stays started, a process, or a query that holds the source's snapshot open."""
    shop = gated("upsert")
    monkeypatch.setenv(READ_BY, read_by)
    if not alone:
        shop.configure(exclude=[])
    with closed_gate(shop):
        command = Command(shop, "sync", "--jobs", "2", *(["shop/gated"] if alone else []))
        wait_for(lambda: waits_at_the_gate(shop), "its read stands at the gate")
        children = psutil.Process(command.process.pid).children(recursive=True)
        command.process.send_signal(number)
        code, _ = command.end(60)  # its read would stand at the gate for ever
        assert code == 130, command.stderr
        assert "Traceback" not in command.stderr, command.stderr
        assert psutil.wait_procs(children, timeout=10)[1] == []
        with shop.instance() as instance:
            states = {run.tags.get("dagster/incremental_assets.container"): run.status for run in instance.get_runs()}
        assert states.pop("shop/gated") is dg.DagsterRunStatus.CANCELED, states
        assert all(status.name in ("SUCCESS", "CANCELED") for status in states.values()), states
    wait_for_the_last_commit(shop)
    shop.sync()
    shop.assert_equal("gated")
