"""The limits of what a sync may cost its source: how long it holds a snapshot, and how long other sessions wait behind its lock.

Belongs here: these limits, each reached with real sessions. Does not belong: what other sessions do to a sync (``test_source_trouble``),
and TLS (``test_libpq_options``).
"""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

import incremental_assets.spark.session
from assets_tests.harness import Project, wait_for
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.postgres import connection
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta.engine import READ_BY
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.runs.loggers import LOGGERS
from incremental_assets.runs.ordinary_run import run_here
from incremental_assets.runs.records.run_tags import CONTAINER_TAG

MakeProject = Callable[..., Project]
HOLDING = "select count(*) from pg_stat_activity where application_name = 'incremental-assets' and state like 'idle in transaction%'"

# Queries of Spark's readers, which call the columns c0, c1, …; the catalog's queries name the view as well.
READING = """select count(*) from pg_stat_activity where state = 'active' and query like '%"c0"%"slow"%' and pid <> pg_backend_pid()"""
SLOW = """create table orders (id int primary key, day date); insert into orders select n, '2026-05-01' from generate_series(1, 300) n;
create view slow as select id, pg_sleep(1)::text as slept from orders"""


@pytest.fixture
def reader(project: MakeProject) -> Iterator[PostgresReader]:
    """A reader of a small table."""
    shop = project(incremental=["public.orders:day:date"])
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01')")
    definition = shop.definition("orders")
    with PostgresReader(definition.settings.address, definition.container, timezone="UTC") as reader:
        yield reader


def waited(connection: psycopg.Connection) -> float:
    """For how many seconds the session of ``altered`` has waited for its lock, by the server's clock; 0 where it does not wait."""
    query = """select extract(epoch from clock_timestamp() - query_start)::float from pg_stat_activity
        where application_name = 'migration' and wait_event_type = 'Lock' and datname = current_database()"""
    found = connection.execute(query).fetchone()
    return float(found[0]) if found is not None else 0.0


def altered(url: str, table: str = "orders") -> threading.Thread:
    """Starts a session that alters the table and waits for it without a limit."""

    def alter() -> None:
        with psycopg.connect(url, application_name="migration", autocommit=True) as other:
            other.execute(f"alter table {table} add column note text".encode())

    thread = threading.Thread(target=alter, daemon=True)
    thread.start()
    return thread


def test_a_session_that_waits_behind_our_lock_is_let_through_and_named(reader: PostgresReader, database: str) -> None:
    """An ALTER that waits behind a load's lock makes the whole application wait behind itself, so the load must end."""
    reader.limits = Limits(blocking=1)
    interrupted = threading.Event()
    reader.interrupt = interrupted.set
    with pytest.raises(SourceError) as ended, reader.snapshot():
        other = altered(database)
        other.join(60)
        got_through = not other.is_alive()  # an assertion in this block would end in the error that is expected
        was_interrupted = interrupted.wait(10)
        reader.still_there()
    assert got_through and was_interrupted, "while the block was still at work"
    for word in ("migration", "user postgres", "ALTER TABLE on orders", "max_blocking_seconds", "nothing was written"):
        assert word in str(ended.value)


@pytest.mark.long
def test_a_wait_below_the_limit_or_for_another_session_ends_nothing(reader: PostgresReader, database: str) -> None:
    """A load must not end where a session waits for less than the limit, or for another session."""
    reader.limits = Limits(blocking=60)
    with psycopg.connect(database, autocommit=True) as watching, reader.snapshot():
        other = altered(database)
        wait_for(lambda: waited(watching) > 0, "it waits behind our lock")
        reader.still_there()
        assert other.is_alive()
    other.join(60)
    reader.limits = Limits(blocking=1)
    with psycopg.connect(database) as holder, psycopg.connect(database, autocommit=True) as watching:
        holder.execute("create table elsewhere (id int)")
        holder.commit()
        holder.execute("lock table elsewhere in access share mode")
        with reader.snapshot():
            other = altered(database, "elsewhere")
            wait_for(lambda: waited(watching) > 1.5, "it has waited for longer than the limit")
            reader.still_there()
            assert other.is_alive()
        holder.rollback()
    other.join(60)


def test_a_snapshot_is_held_for_a_limited_time(reader: PostgresReader, database: str) -> None:
    """A snapshot that is held for a day keeps the source from removing dead rows, so a read ends at its limit."""
    reader.limits = Limits(snapshot=1)
    with pytest.raises(SourceError, match="max_snapshot_seconds"), reader.snapshot():
        wait_for(reader.still_there, "its limit ends it", 60)
    with psycopg.connect(database) as watching:
        wait_for(lambda: watching.execute(HOLDING).fetchone() == (0,), "the snapshot is given back", 30)
    assert 1 <= reader.snapshot_seconds < 60


def test_the_limits_of_a_snapshot_are_set_in_the_server_too(reader: PostgresReader) -> None:
    """A process that was stopped or has died cannot keep its own limits, so the server has to."""
    reader.limits = Limits(snapshot=77)
    with reader.snapshot():
        assert reader.free_connections(8) == 6, "one connection holds the snapshot, and one watches who waits"
        names = ["statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout", "tcp_keepalives_idle"]
        names += ["tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"]
        shown = {name: reader.rows(f"show {name}")[0][0] for name in names}
        held = reader.reader_settings
    assert all(77 <= int(shown[n].removesuffix("s")) < 100 for n in names[:3]), shown
    idle, interval, count, unanswered = (int(shown[n]) for n in names[3:])
    assert 0 < idle + interval * count < 60 and 0 < unanswered < 60_000, shown
    assert re.findall(r"transaction_timeout = (\d+)", held)[-1] != "0", held


def test_a_query_of_a_plan_is_limited(reader: PostgresReader, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that waits for ever would stop its datastore's schedule. What the role sets does not count, which may be too short."""
    monkeypatch.setattr(connection, "PLAN_QUERY_LIMIT", "1s")
    begun = time.monotonic()
    with pytest.raises(SourceError, match="statement timeout"):
        reader.rows("select pg_sleep(6000)")
    assert time.monotonic() - begun < 60, "the query would take a hundred minutes"
    assert reader.rows("select 1") == [(1,)]
    reader.rows("select set_config('statement_timeout', '300ms', false)")
    assert reader.rows("select current_setting('statement_timeout')") == [("1s",)]


def test_a_load_goes_by_windows_that_fit_into_a_snapshot(project: MakeProject) -> None:
    """Where a snapshot may be held for a minute only, the windows must be smaller than by default."""
    assert project(max_snapshot_seconds=60).component.settings().rows_a_window == 600_000
    assert project().component.settings().rows_a_window == 20_000_000


def test_the_limits_of_the_yaml_count(project: MakeProject) -> None:
    shop = project(max_snapshot_seconds=100, max_blocking_seconds=7, max_silence_seconds=33)
    assert shop.component.settings().limits == Limits(100, 7, 33)
    for name in ("max_snapshot_seconds", "max_blocking_seconds", "max_silence_seconds"):
        with pytest.raises(ConfigurationError, match=name):
            project(**{name: 0}).component.settings()


@pytest.mark.long
def test_the_snapshot_is_taken_once_spark_has_started_and_an_alter_gets_through(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting Spark may take minutes, in which no snapshot may be held. Later, an ALTER that waits behind the readers is let through."""
    shop = project(max_blocking_seconds=2)
    shop.execute(SLOW)
    real = incremental_assets.spark.session.open_session
    held: list[Any] = []

    def open_session(*args: Any, **kwargs: Any) -> Any:
        held.append(shop.source.execute(HOLDING).fetchone())
        return real(*args, **kwargs)

    monkeypatch.setenv(READ_BY, "jdbc")  # so few rows need no Spark otherwise
    monkeypatch.setattr(incremental_assets.spark.session, "open_session", open_session)
    others: list[threading.Thread] = []

    def alter_then() -> None:
        with psycopg.connect(shop.url, autocommit=True) as watching:
            wait_for(lambda: watching.execute(READING).fetchone() != (0,), "a reader reads")
        others.append(altered(shop.url))

    begun = threading.Thread(target=alter_then, daemon=True)
    begun.start()
    failed = shop.one("slow", ok=False)
    begun.join(120)
    others[0].join(60)
    assert held == [(0,)], "the snapshot was open before Spark was there"
    assert not others[0].is_alive(), "the ALTER still waits"
    assert failed["status"] == "failed" and "migration" in failed["message"] and "ALTER TABLE" in failed["message"], failed
    head = shop.table("slow").head()
    assert head is None or head.version == 0, "nothing was written"
    shop.execute("create or replace view slow as select id, 'x' as slept from orders")
    line = shop.one("slow")
    assert line["rows_read"] == 300


@pytest.mark.long
def test_a_stopped_process_lets_an_alter_through_within_its_limit(project: MakeProject) -> None:
    """A stopped process, such as one of a suspended laptop, keeps its connections, so the server must end them at their limit."""
    shop = project(max_snapshot_seconds=10, max_blocking_seconds=600)
    shop.execute(SLOW)
    shop.write()
    shop.cli("catalog")
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path), "sync", "shop/slow", "--json"]
    process = subprocess.Popen(command, env=shop.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: shop.source.execute(READING).fetchone() != (0,), "a reader reads")
        process.send_signal(signal.SIGSTOP)
        other = altered(shop.url)
        other.join(120)
        assert not other.is_alive(), "the ALTER waits for a process that does nothing"
        process.send_signal(signal.SIGCONT)
        stdout, stderr = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 1 and "max_snapshot_seconds" in stdout, stdout + stderr
    head = shop.table("slow").head()
    assert head is None or head.version == 0, "nothing was written"


@pytest.fixture
def far_away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Callable[[bool], None], Callable[[str], str]]]:
    """The URL of a database in a network namespace of its own, a function that connects it or cuts it off, and a function that asks it a
    query from within its namespace."""
    name = f"ia{secrets.token_hex(3)}"

    def run(*command: str, check: bool = True) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        pytest.skip("a network namespace can only be made by root with CAP_NET_ADMIN")
    inside = ("ip", "netns", "exec", name)
    net = f"10.213.{secrets.randbelow(250)}"
    server = EmbeddedPostgres(tmp_path_factory.mktemp("far"))
    try:
        run("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        run("ip", "addr", "add", f"{net}.1/24", "dev", f"{name}a")
        run("ip", "link", "set", f"{name}a", "up")
        run(*inside, "ip", "addr", "add", f"{net}.2/24", "dev", f"{name}b")
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "link", "set", f"{name}b", "up")
        url = server.start().create_database("far")
        with psycopg.connect(url, autocommit=True) as source:
            source.execute("alter system set listen_addresses = '*'")
        with (server.home.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {net}.0/24 scram-sha-256\n")
        server.stop()
        start = "import sys, pathlib, incremental_assets.demo.postgres as p; p.EmbeddedPostgres(pathlib.Path(sys.argv[1])).start()"
        run(*inside, sys.executable, "-c", start, str(server.folder))
        url = server.url("far")

        def plug(in_: bool) -> None:
            run(*inside, "ip", "link", "set", f"{name}b", "up" if in_ else "down")

        def ask(query: str) -> str:
            program = f"import psycopg; print(psycopg.connect({url!r}, autocommit=True).execute({query!r}).fetchone()[0])"
            return run(*inside, sys.executable, "-c", program).strip()

        outside = url.replace("127.0.0.1", f"{net}.2")
        wait_for(lambda: answers(outside), "the network is there")
        yield outside, plug, ask
    finally:
        with contextlib.suppress(Exception):
            server.stop(immediate=True)
        run("ip", "netns", "del", name, check=False)


def answers(url: str) -> bool:
    """Whether a connection can be made. In the first moment of a network that is back, one may still be closed."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.long
def test_a_lost_network_during_a_read_fails_the_sync_and_frees_the_snapshot(
    far_away: tuple[str, Callable[[bool], None], Callable[[str], str]], tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where packets are dropped, the client must not wait for the next row for ever, and the server must not keep the client's snapshot.

    Spark's tasks read, as they do where a read is long enough to meet such a loss. In this process, adbc-driver-postgresql 1.8 would end it
    (docs/decisions/dependencies.md).
    """
    monkeypatch.setenv(READ_BY, "arrow")
    url, plug, ask = far_away
    shop = Project(tmp_path, url, spark_home, max_silence_seconds=30)
    shop.execute(SLOW)
    freed: list[float] = []

    def cut_off() -> None:
        wait_for(lambda: shop.source.execute(READING).fetchone() != (0,), "a reader reads")
        plug(False)
        begun = time.monotonic()
        wait_for(lambda: ask(HOLDING) == "0", "the server gives the snapshot up")
        freed.append(time.monotonic() - begun)

    cutting = threading.Thread(target=cut_off, daemon=True)
    begun = time.monotonic()
    cutting.start()
    failed = shop.one("slow", ok=False)
    seconds = time.monotonic() - begun
    cutting.join(150)
    plug(True)
    wait_for(lambda: answers(url), "the network is back")
    assert failed["status"] == "failed" and any(
        said in failed["message"] for said in ("not answered", "connection to the source was lost")
    ), failed
    assert freed and freed[0] < 75, f"{freed}: a minute, and the time of the queries that ask; without probes it would be two hours"
    assert seconds < 400, f"{seconds}: with the start of Spark; without a limit it would wait for ever"
    head = shop.table("slow").head()
    assert head is None or head.version == 0, "nothing was written"


def test_a_run_in_this_process_ends_at_its_limit(project: MakeProject) -> None:
    """Dagster's daemon ends only the runs that it has started, so a run of the command line must end itself at its limit."""
    shop = project(max_runtime_seconds=600, containers={"orders": {"max_runtime_seconds": 5}})
    shop.execute("create table orders (id int primary key); create table visits (id int primary key)")
    shop.sync()
    with shop.instance() as instance:
        tags = {run.tags[CONTAINER_TAG]: run.tags["dagster/max_runtime"] for run in instance.get_runs() if CONTAINER_TAG in run.tags}
    assert tags == {"shop/orders": "5", "shop/visits": "600"}

    @dg.op
    def wait() -> None:
        time.sleep(36_000)  # the work that is ended

    @dg.job(tags={"dagster/max_runtime": tags["shop/orders"]}, executor_def=dg.in_process_executor, logger_defs=LOGGERS)
    def waits() -> None:
        wait()

    with shop.instance() as instance:
        ended = run_here(waits, instance, {}, {})
        assert "max_runtime_seconds" in ended.failure and ended.seconds < 120, "its op takes ten hours"
        run = instance.get_run_by_id(ended.run_id)
        assert run is not None and run.is_finished and not run.is_success
    with pytest.raises(ConfigurationError, match="max_runtime_seconds"):
        project(max_runtime_seconds=0).component.settings()
