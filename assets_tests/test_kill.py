"""A sync may die anywhere: the command line, its workers, the Spark server, or only the wish to go on. The next sync heals it.

Everything here is really killed: processes and the server's JVM by SIGKILL, syncs by SIGINT and SIGTERM. What a killed client has left
running on the server (a zombie) is made to commit after somebody else's sync. Belongs here: death from outside. Does not belong: syncs
that fail at given points of their own code (``test_property``).
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

from assets_tests.harness import Project
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.embedded import server
from incremental_assets.spark.session import stop_server

MakeProject = Callable[..., Project]
ROWS = 60_000
OURS = "application_name like 'incremental%' and datname = current_database() and pid <> pg_backend_pid()"


def do(connection: psycopg.Connection, statement: str, parameters: Any = None) -> psycopg.Cursor[Any]:
    return connection.execute(statement.encode(), parameters)


class Command:
    """A command line at work in a process of its own."""

    def __init__(self, project: Project, *arguments: str, environment: dict[str, str] | None = None) -> None:
        project.write()
        self._log = project.path / f"stderr-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), *arguments, "--json"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment or project.environment(), stdout=subprocess.PIPE, stderr=log, text=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, text: str, seconds: float = 240) -> bool:
        """Whether it came to say this while it was alive."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if text in self.said:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        raise AssertionError(f"it never said {text!r}:\n{self.said}")

    def kill(self) -> bool:
        """SIGKILL. False when it had ended before."""
        alive = self.process.poll() is None
        self.process.kill()
        self.process.communicate(timeout=30)
        return alive

    def end(self, seconds: float = 240) -> tuple[int, list[dict[str, Any]]]:
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, [json.loads(text) for text in out.splitlines() if text.startswith("{")]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def count(project: Project, query: str) -> int:
    row = do(project.source, query).fetchone()
    assert row is not None
    return int(row[0])


def quiet(project: Project) -> None:
    """Waits until nothing of ours reads the source, and what had read it has had time to commit."""
    wait_for(lambda: count(project, f"select count(*) from pg_stat_activity where {OURS}") == 0, "the source's last reader has gone")
    versions = [-1]
    while versions[-1] != (now := sum(1 for _ in project.lake_root.rglob("_delta_log/*.json"))):
        versions.append(now)
        time.sleep(1.5)


def tables(project: Project, names: list[str]) -> None:
    for name in names:
        do(
            project.source,
            f"""create table {name} (id int primary key, day date, note text, updated_at timestamptz not null default now());
            insert into {name} select i, date '2026-01-01' + i % 90, md5(i::text) || repeat('x', 60) from generate_series(1, {ROWS}) i;
            create index on {name} (updated_at); analyze {name}""",
        )


def change(project: Project, name: str, round_: int) -> None:
    """A sixth of the rows updated, some new: what an upsert has to bring over."""
    do(project.source, f"update {name} set note = 'round {round_}', updated_at = now() where id %% 6 = %s", (round_ % 6,))
    do(project.source, f"insert into {name} select {ROWS * 10 * round_} + i, '2026-05-01', 'new' from generate_series(1, 500) i")


def change_after(project: Project, name: str, round_: int) -> None:
    """What the source does after the kill: a zombie that commits later would bring these rows back."""
    do(project.source, f"delete from {name} where id > {ROWS * 10 * round_} and id %% 2 = %s", (0,))
    do(project.source, f"update {name} set note = 'later', updated_at = now() where id between 1 and 50")


FIRST = [("first sync", 0.0), ("first sync", 0.5), ("first sync", 1.2), ("first sync", 2.0), ("wrote", 0.0), ("rows so far", 0.0)]
LATER = [("is new since", 0.0), ("is new since", 0.5), ("is new since", 1.2), ("is new since", 2.0), ("wrote", 0.0), ("rows so far", 0.0)]


@pytest.mark.long
def test_kill_9_of_the_command_line_in_a_first_load(project: MakeProject) -> None:
    """Without it, a first sync that was killed leaves a table that counts as loaded, and its rows never come."""
    names = [f"t{i}" for i in range(len(FIRST))]
    shop = project(incremental=[f"public.{name}:day:date" for name in names])
    tables(shop, names)
    killed = 0
    for name, (words, seconds) in zip(names, FIRST, strict=True):
        command = Command(shop, "sync", f"shop/{name}")
        assert command.wait_until(words), command.said
        time.sleep(seconds)
        killed += command.kill()
        do(shop.source, f"delete from {name} where day = '2026-03-31' and id % 2 = 0")  # of the newest day, which each sync reads
        do(shop.source, f"insert into {name} select -i, '2026-04-15', 'later' from generate_series(1, 500) i")
        shop.one(name)
        shop.assert_equal(name)
    assert killed >= 4
    quiet(shop)
    for name in names:
        shop.assert_equal(name)  # what the killed ones had left running has changed nothing


def test_kill_9_of_the_command_line_in_an_upsert(project: MakeProject) -> None:
    """Without it, an upsert that was killed loses its changes, or a zombie brings back what was deleted since."""
    _kill_in_an_upsert(project, LATER[4:5])


@pytest.mark.long
def test_kill_9_of_the_command_line_anywhere_in_an_upsert(project: MakeProject) -> None:
    """The same at the other points."""
    _kill_in_an_upsert(project, LATER)


def _kill_in_an_upsert(project: MakeProject, points: list[tuple[str, float]]) -> None:
    shop = project(incremental=["public.t:updated_at:timestamp!upsert"], containers={"t": {"partition_by": "month"}})
    tables(shop, ["t"])
    shop.one("t")
    round_ = 0
    for words, seconds in points:
        killed, wait = False, seconds
        while not killed:  # one that was too quick for this machine is killed sooner the next time
            round_ += 1
            assert round_ <= 4 * len(points), f"it always ends within {wait} s of {words!r}"
            change(shop, "t", round_)
            command = Command(shop, "sync", "shop/t")
            assert command.wait_until(words), command.said
            time.sleep(wait)
            killed, wait = command.kill(), wait / 2
        change_after(shop, "t", round_)
        shop.one("t")
        quiet(shop)
        shop.assert_equal("t")


@pytest.fixture
def own_server(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeProject]:
    """Makes a project with a Spark server of its own, which the command line starts by itself."""
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


def die_with_server(project: Project, name: str, words: str, seconds: float) -> bool:
    """Syncs, and kills the server at the point. Whether the sync noticed."""
    command = Command(project, "sync", f"shop/{name}", environment=without_remote(project))
    assert command.wait_until(words), command.said
    wait_for(lambda: server.Home(project.home).record() is not None, "the server runs")
    time.sleep(seconds)
    kill_server(project)
    code, lines = command.end()
    assert "Traceback" not in command.said, command.said
    if code == 0:
        assert lines[0]["status"] == "synced"
        return False
    assert code == 1 and lines[0]["status"] == "failed", (code, lines, command.said)
    return True


SERVER_POINTS = [("about", 0.3), ("about", 1.2), ("about", 2.5), ("wrote", 0.0)]


@pytest.mark.long
@pytest.mark.timeout(1500)  # eight servers are started one after another
def test_kill_9_of_the_spark_server(own_server: MakeProject) -> None:
    """Without it, a server that ran out of memory leaves containers that no later sync can mend."""
    names = [f"t{i}" for i in range(len(SERVER_POINTS))]
    shop = own_server(incremental=[f"public.{name}:updated_at:timestamp!upsert" for name in names])
    tables(shop, names)
    noticed = 0
    for name, (words, seconds) in zip(names, SERVER_POINTS, strict=True):  # in its first load, and in an upsert after that
        noticed += die_with_server(shop, name, words, seconds)
        shop.one(name)
        shop.assert_equal(name)
        change(shop, name, 1)
        noticed += die_with_server(shop, name, words, seconds)
        change_after(shop, name, 1)
        shop.one(name)
        shop.assert_equal(name)
    assert noticed >= 4


# ------------------------------------------------------------------ zombies, and two hosts: a read that stands still until it is let go
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
def gated(project: MakeProject) -> Callable[[str], Project]:
    def make(strategy: str) -> Project:
        options = {"primary_key": ["id"], "partition_by": "month", "readers": 1}
        made = project(incremental=[ENTRIES[strategy]], containers={"gated": options}, exclude=["rows"])
        made.source.execute(GATED)
        return made

    return make


@contextlib.contextmanager
def closed_gate(project: Project) -> Iterator[Callable[[], None]]:
    """Reads of Spark stand still until the block is left or the gate opened; those begun after ``let_others_pass()`` do not."""
    name = project.source.info.dbname
    do(project.source, f"alter database {name} set gate.mode = 'closed'")
    with psycopg.connect(project.url, autocommit=True, application_name="gate") as keeper:
        do(keeper, "select pg_advisory_lock(7)")

        def let_others_pass() -> None:
            do(project.source, f"alter database {name} set gate.mode = 'open'")

        yield let_others_pass
        let_others_pass()


def stands_at_the_gate(project: Project) -> bool:
    return count(project, f"select count(*) from pg_stat_activity where {OURS} and wait_event = 'advisory'") > 0


class Heedless(Project):
    """A host that pays no attention to leases, as one does whose own has ended while it stood still."""

    def one(self, name: str, *, ok: bool = True, **kwargs: Any) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("INCREMENTAL_ASSETS_LEASE", "off")
            return super().one(name, ok=ok, **kwargs)


def other_host(project: Project) -> Project:
    """The same datastore and lake from another DAGSTER_HOME: no lock, no lease and no event is shared."""
    other = Heedless(project.path.parent / f"{project.path.name}-other", project.url, project.spark_home, **project.attributes)
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
    """A query of a killed run, or of a host that stood still, wakes up after somebody else's sync: it must not bring old rows back."""
    shop = gated(strategy)
    if when == "later":
        shop.one("gated")
    do(shop.source, "insert into rows select i, '2026-02-19', 'soon gone' from generate_series(2001, 2100) i")
    with closed_gate(shop) as let_others_pass:
        command = Command(shop, "sync")
        wait_for(lambda: stands_at_the_gate(shop), "its read stands at the gate")
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
        assert code == 0 and lines[0]["status"] == "synced", (code, lines, command.said)  # its second attempt
        assert "somebody else wrote" in command.said and "Traceback" not in command.said, command.said
    quiet(shop)
    found = other.compare("gated")
    assert found.equal, f"the late write has committed: {found}"
    assert who == "slow host" or found.delta_version == version, f"the late write has committed: {found}"
    shop.one("gated")
    shop.assert_equal("gated")
    other.source.close()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["append", "upsert"])
@pytest.mark.parametrize("last_look", [False, True], ids=["before the last look", "after the last look"])
def test_another_host_just_before_the_write(
    gated: Callable[[str], Project], strategy: str, last_look: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older rows are written over newer ones then. If the newer watermark counted all the same, the newer rows would never come back."""
    shop = gated(strategy)
    shop.one("gated")
    other = other_host(shop)
    owner, name = (LakeTable, "data_commits_since") if last_look else (PostgresReader, "still_there")
    real, met = getattr(owner, name), [0]

    def looks(*args: Any) -> Any:
        found = real(*args)
        met[0] += 1
        if met[0] == 1:
            do(shop.source, "insert into rows select i, '2026-02-19', 'between' from generate_series(3001, 3100) i")
            do(shop.source, "insert into rows values (4000, '2026-02-21', 'raises the watermark above them')")
            assert other.one("gated")["status"] == "synced"
        return found

    monkeypatch.setattr(owner, name, looks)
    do(shop.source, "insert into rows select i, '2026-02-19', 'before' from generate_series(2001, 2100) i")
    assert shop.one("gated")["status"] == "synced"
    assert met[0] >= 2, "it has not noticed the other"
    shop.assert_equal("gated")
    other.one("gated")
    shop.one("gated")
    shop.assert_equal("gated")
    other.source.close()


# ------------------------------------------------------------------ Ctrl-C
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("alone", [True, False], ids=["one container", "side by side"])
def test_an_interrupted_sync_leaves_nothing_behind(gated: Callable[[str], Project], number: int, alone: bool) -> None:
    """Without it, Ctrl-C leaves a run that counts as started for ever, or a query that holds the source's snapshot open."""
    shop = gated("upsert")
    if not alone:
        shop.configure(exclude=[])
    with closed_gate(shop):
        command = Command(shop, "sync", "--jobs", "2", *(["shop/gated"] if alone else []))
        wait_for(lambda: stands_at_the_gate(shop), "its read stands at the gate")
        children = psutil.Process(command.process.pid).children(recursive=True)
        began = time.monotonic()
        command.process.send_signal(number)
        code, _ = command.end()
        assert code == 130, command.said
        assert time.monotonic() - began < 60
        assert "Traceback" not in command.said, command.said
        assert psutil.wait_procs(children, timeout=10)[1] == []
        with shop.instance() as instance:
            states = {run.tags.get("incremental_assets/container"): run.status for run in instance.get_runs()}
        assert states.pop("shop/gated") is dg.DagsterRunStatus.CANCELED, states
        assert all(status.name in ("SUCCESS", "CANCELED") for status in states.values()), states
    quiet(shop)
    shop.sync()
    shop.assert_equal("gated")
