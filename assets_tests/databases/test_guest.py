"""A good guest of the source: how long a snapshot is held, who may wait behind its lock, and what becomes of a client that is gone.

Belongs here: the limits, each reached for real. Elsewhere: what other sessions do to a sync (``test_source_trouble``), TLS
(``test_libpq_options``).
"""

import contextlib
import os
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
from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.dagster.jobs import job_name
from incremental_assets.dagster.loggers import LOGGERS
from incremental_assets.dagster.runs.ordinary_run import run_here
from incremental_assets.databases.postgres import connection
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.watch import Limits
from incremental_assets.demo.postgres import EmbeddedPostgres

MakeProject = Callable[..., Project]
HOLDING = "select count(*) from pg_stat_activity where application_name = 'incremental-assets' and state like 'idle in transaction%'"

# A reader of Spark's, whose columns travel as c0, c1; the catalog's queries name the view too.
READING = """select count(*) from pg_stat_activity where state = 'active' and query like '%"c0"%"slow"%' and pid <> pg_backend_pid()"""
SLOW = """create table orders (id int primary key, day date); insert into orders select n, '2026-05-01' from generate_series(1, 300) n;
create view slow as select id, pg_sleep(1)::text as slept from orders"""


@pytest.fixture
def reader(project: MakeProject) -> Iterator[PostgresReader]:
    """Of a small table."""
    shop = project(incremental=["public.orders:day:date"])
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01')")
    definition = shop.definition("orders")
    with PostgresReader(definition.settings.address, definition.container, timezone="UTC") as reader:
        yield reader


def wait_for(happened: Callable[[], Any], what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def altered(url: str, table: str = "orders") -> threading.Thread:
    """Somebody who alters the table, and waits as long as it takes."""

    def alter() -> None:
        with psycopg.connect(url, application_name="migration", autocommit=True) as other:
            other.execute(f"alter table {table} add column note text".encode())

    thread = threading.Thread(target=alter, daemon=True)
    thread.start()
    return thread


def test_whoever_waits_behind_the_lock_is_let_through_and_named(reader: PostgresReader, database: str) -> None:
    """An ALTER that waits for us keeps the whole application waiting behind itself, for as long as a load takes."""
    reader.limits = Limits(blocking=1)
    interrupted = threading.Event()
    reader.interrupt = interrupted.set
    with pytest.raises(SourceError) as ended, reader.snapshot():
        other = altered(database)
        other.join(60)
        assert not other.is_alive(), "it got through while the block was still at work"
        assert interrupted.wait(10)
        reader.still_there()
    for word in ("migration", "user postgres", "ALTER TABLE on orders", "max_blocking_seconds", "nothing was written"):
        assert word in str(ended.value)


def test_a_short_wait_is_nobodys_business(reader: PostgresReader, database: str) -> None:
    """Who waits for less than the limit, or for somebody else, ends nothing."""
    reader.limits = Limits(blocking=20)
    with reader.snapshot():
        other = altered(database)
        time.sleep(2)
        reader.still_there()
        assert other.is_alive()
    other.join(60)
    reader.limits = Limits(blocking=1)
    with psycopg.connect(database) as holder:
        holder.execute("create table elsewhere (id int)")
        holder.commit()
        holder.execute("lock table elsewhere in access share mode")
        with reader.snapshot():
            other = altered(database, "elsewhere")
            time.sleep(3)
            assert other.is_alive()
            reader.still_there()
        holder.rollback()
    other.join(60)


def test_a_snapshot_is_held_for_a_limited_time(reader: PostgresReader, database: str) -> None:
    """Held for a day, it keeps the source from removing a single dead row."""
    reader.limits = Limits(snapshot=2)
    with pytest.raises(SourceError, match="max_snapshot_seconds"), reader.snapshot():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.2)
            reader.still_there()
    with psycopg.connect(database) as watching:
        wait_for(lambda: watching.execute(HOLDING).fetchone() == (0,), "the snapshot is given back", 30)
    assert 2 <= reader.snapshot_seconds < 60


def test_the_server_keeps_the_limits_too(reader: PostgresReader) -> None:
    """A process that is stopped looks at no clock, and one that died sends no farewell."""
    reader.limits = Limits(snapshot=77)
    with reader.snapshot():
        assert reader.free_connections(8) == 6, "one holds the snapshot, one sees who waits"
        names = ["statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout", "tcp_keepalives_idle"]
        names += ["tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"]
        shown = {name: reader.rows(f"show {name}")[0][0] for name in names}
        held = reader.reader_settings
    assert all(77 <= int(shown[n].removesuffix("s")) < 100 for n in names[:3]), shown
    idle, interval, count, unanswered = (int(shown[n]) for n in names[3:])
    assert 0 < idle + interval * count < 60 and 0 < unanswered < 60_000, shown
    assert "transaction_timeout" in held and " = 0" not in held


def test_a_query_of_a_plan_is_limited(reader: PostgresReader, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that waits for ever stops its datastore's schedule. A stricter limit of the source is not lifted."""
    monkeypatch.setattr(connection, "PLAN_QUERY_LIMIT", "1s")
    begun = time.monotonic()
    with pytest.raises(SourceError, match="statement timeout"):
        reader.rows("select pg_sleep(100)")
    assert time.monotonic() - begun < 60
    assert reader.rows("select 1") == [(1,)]
    reader.rows("select set_config('statement_timeout', '300ms', false)")
    assert reader.rows("select current_setting('statement_timeout')") == [("300ms",)]


def test_a_load_goes_by_windows_that_fit_into_a_snapshot(project: MakeProject) -> None:
    """A window of twenty million rows cannot be read while a snapshot is held for a minute."""
    assert project(max_snapshot_seconds=60).component.settings().rows_a_window == 600_000
    assert project().component.settings().rows_a_window == 20_000_000


def test_limits_of_the_yaml(project: MakeProject) -> None:
    shop = project(max_snapshot_seconds=100, max_blocking_seconds=7, max_silence_seconds=33)
    assert shop.component.settings().limits == Limits(100, 7, 33)
    for name in ("max_snapshot_seconds", "max_blocking_seconds", "max_silence_seconds"):
        with pytest.raises(ConfigurationError, match=name):
            project(**{name: 0}).component.settings()


def test_spark_is_there_first_and_an_alter_gets_through(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM takes seconds to start and its JARs minutes, in which nothing is read. Then an ALTER waits behind the readers themselves."""
    shop = project(max_blocking_seconds=2)
    shop.execute(SLOW)
    real = incremental_assets.spark.session.open_session
    held: list[Any] = []

    def open_session(*args: Any, **kwargs: Any) -> Any:
        held.append(shop.source.execute(HOLDING).fetchone())
        return real(*args, **kwargs)

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
def test_a_stopped_process_does_not_hold_up_an_alter_for_ever(project: MakeProject) -> None:
    """A process that is stopped (a paused container, a suspended laptop) keeps its connections, and looks at no clock. The server does."""
    shop = project(max_snapshot_seconds=40, max_blocking_seconds=600)
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
        said, trouble = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 1 and "max_snapshot_seconds" in said, said + trouble
    head = shop.table("slow").head()
    assert head is None or head.version == 0, "nothing was written"


@pytest.fixture
def far_away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Callable[[bool], None], Callable[[str], str]]]:
    """(the URL of a database in a network namespace, a function that plugs its cable in or out, a query beyond the cable)"""
    name = f"ia{secrets.token_hex(3)}"

    def run(*command: str, check: bool = True) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine gives no network namespace: that takes root and CAP_NET_ADMIN")
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
            asked = f"import psycopg; print(psycopg.connect({url!r}, autocommit=True).execute({query!r}).fetchone()[0])"
            return run(*inside, sys.executable, "-c", asked).strip()

        yield url.replace("127.0.0.1", f"{net}.2"), plug, ask
    finally:
        with contextlib.suppress(Exception):
            server.stop(immediate=True)
        run("ip", "netns", "del", name, check=False)


@pytest.mark.long
def test_packets_that_are_dropped_in_mid_read(
    far_away: tuple[str, Callable[[bool], None], Callable[[str], str]], tmp_path: Path, spark_home: Path
) -> None:
    """Nobody says goodbye: the client would wait for the next row for ever, and the server keep the snapshot of a client that is gone."""
    url, plug, ask = far_away
    shop = Project(tmp_path, url, spark_home, max_silence_seconds=30)
    shop.execute(SLOW)
    freed: list[float] = []

    def partitioning() -> None:
        wait_for(lambda: shop.source.execute(READING).fetchone() != (0,), "a reader reads")
        plug(False)
        begun = time.monotonic()
        wait_for(lambda: ask(HOLDING) == "0", "the server gives the snapshot up")
        freed.append(time.monotonic() - begun)

    cutting = threading.Thread(target=partitioning, daemon=True)
    begun = time.monotonic()
    cutting.start()
    failed = shop.one("slow", ok=False)
    seconds = time.monotonic() - begun
    cutting.join(150)
    plug(True)
    assert failed["status"] == "failed" and ("max_silence_seconds" in failed["message"] or "not answered" in failed["message"]), failed
    assert freed and freed[0] < 75, freed  # a minute, and what it takes to ask
    assert seconds < 400, seconds  # JVM and all
    head = shop.table("slow").head()
    assert head is None or head.version == 0, "nothing was written"


def test_a_run_in_this_process_ends_at_its_limit(project: MakeProject) -> None:
    """The daemon ends its own runs only; one from the command line would wait for as long as what it waits for."""
    shop = project(max_runtime_seconds=600, containers={"orders": {"max_runtime_seconds": 1}})
    shop.execute("create table orders (id int primary key); create table visits (id int primary key)")
    tags = {d.table.name: shop.dagster().resolve_job_def(job_name(d)).tags["dagster/max_runtime"] for d in shop.catalog()}
    assert tags == {"orders": "1", "visits": "600"}

    @dg.op
    def wait() -> None:
        time.sleep(300)

    @dg.job(tags={"dagster/max_runtime": tags["orders"]}, executor_def=dg.in_process_executor, logger_defs=LOGGERS)
    def waits() -> None:
        wait()

    with shop.instance() as instance:
        ended = run_here(waits, instance, {}, {})
        assert "max_runtime_seconds" in ended.failure and ended.seconds < 120
        run = instance.get_run_by_id(ended.run_id)
        assert run is not None and run.is_finished and not run.is_success
    with pytest.raises(ConfigurationError, match="max_runtime_seconds"):
        project(max_runtime_seconds=0).component.settings()
