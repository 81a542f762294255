"""Transactions of a real PostgreSQL that commit rows below the highest identifier: what the simulation of the watermark rule assumes.

Belongs here: what PostgreSQL shows of its sessions, and what a sync concludes from it. Does not belong: the rule itself and its random
histories (``test_watermark_rule``), and histories with real syncs (``test_property``).
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from assets_tests.harness import Project, wait_for
from incremental_assets.core.lag import AUTO_LAG_SECONDS
from incremental_assets.core.watermark import Pending, advance
from incremental_assets.databases.postgres.connection import APPLICATION_NAME
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.runs.records.watermarks import newest_watermark

Make = Callable[..., Project]
TABLE = "create table event (id int primary key, at timestamptz not null default now()); create index on event (at);"
EVENTS: dict[str, Any] = {"incremental": ["public.event:at:timestamp"], "safety_lag_seconds": 0}


@contextlib.contextmanager
def gates(url: str, *numbers: int) -> Iterator[psycopg.Connection]:
    """Holds advisory locks that the statements under test wait for, each until it is unlocked."""
    with psycopg.connect(url, autocommit=True) as holder:
        for number in numbers:
            holder.execute("select pg_advisory_lock(%s)", [number])
        yield holder


def waits_at(holder: psycopg.Connection, number: int) -> None:
    """Returns once somebody waits for the lock."""
    query = "select exists (select from pg_locks where locktype = 'advisory' and objid = %s and not granted)"
    wait_for(lambda: holder.execute(query, [number]).fetchone() == (True,), f"a session waits for lock {number}", 60)


def in_background(url: str, *messages: str) -> threading.Thread:
    """Sends each message in turn, as one message of the simple protocol."""

    def send() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for message in messages:
                connection.execute(message.encode())

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def reader_of(project: Project, name: str = "event", url: str | None = None, margin: float = 0.0) -> PostgresReader:
    definition = project.definition(name)
    address = definition.settings.address if url is None else type(definition.settings.address).parse("shop", url)
    return PostgresReader(address, definition.container, timezone="UTC", margin_seconds=margin)


class Plans:
    """The planning half of syncs, one after another: it moves the watermark without Spark and without a table."""

    def __init__(self, reader: PostgresReader) -> None:
        self.reader = reader
        self.watermark: int | None = None
        self.pending: tuple[Pending, ...] = ()

    def sync(self, settle: float = 0.0) -> bool:
        """Plans one sync. Returns whether a transaction held the watermark back."""
        highest = self.reader.highest()
        held_by, now = self.reader.transactions.settle(highest.clock, settle)
        moved = advance(self.watermark, self.pending, highest.value, held_by, now, True, highest.withheld)
        self.watermark, self.pending = moved.watermark, moved.pending
        return moved.held_back


TWO_IN_ONE = """
begin; insert into event values (1); select pg_advisory_xact_lock(1); commit;
begin; insert into event values (2); select pg_advisory_xact_lock(2); commit"""


def test_the_second_transaction_of_one_message_is_not_lost(project: Make) -> None:
    """Its ``now()`` is that of the first transaction, and it has no virtual id while the first one runs. Its row must not be lost."""
    shop = project(**EVENTS)
    shop.execute(TABLE)
    with gates(shop.url, 1, 2) as holder:
        thread = in_background(shop.url, TWO_IN_ONE)
        waits_at(holder, 1)
        shop.execute("insert into event values (3)")
        assert shop.one("event")["watermark"]["held_back_by"]
        holder.execute("select pg_advisory_unlock(1)")
        waits_at(holder, 2)
        shop.execute("insert into event values (4)")
        shop.one("event")
        holder.execute("select pg_advisory_unlock(2)")
        thread.join()
    shop.one("event")
    shop.assert_equal("event")


def test_a_chained_transaction_is_not_lost(project: Make) -> None:
    """COMMIT AND CHAIN gives the next transaction the time at which it arrived, however long the commit took."""
    shop = project(**EVENTS)
    shop.execute(TABLE)
    shop.execute(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(1); return null; end $$;"
        "create constraint trigger slow after insert on event initially deferred for each row when (new.id = 1) execute function slow()"
    )
    with gates(shop.url, 1, 2) as holder:
        thread = in_background(
            shop.url,
            "begin",
            "insert into event values (1)",
            "commit and chain",
            "insert into event values (2); select pg_advisory_xact_lock(2)",
            "commit",
        )
        waits_at(holder, 1)
        shop.execute("insert into event values (3)")
        plans = Plans(reader_of(shop))
        with plans.reader:
            assert plans.sync() and plans.watermark is None
            holder.execute("select pg_advisory_unlock(1)")
            waits_at(holder, 2)
            shop.execute("insert into event values (4)")
            assert plans.sync()
            late = shop.source.execute("select (extract(epoch from min(at)) * 1000000)::bigint from event where id = 1").fetchone()
            assert late is not None and (plans.watermark is None or plans.watermark <= late[0] + 60_000_000)
            holder.execute("select pg_advisory_unlock(2)")
            thread.join()
            chained = shop.source.execute("select (extract(epoch from at) * 1000000)::bigint from event where id = 2").fetchone()
            assert chained is not None and (plans.watermark is None or plans.watermark <= chained[0]), "the chained row would never be read"
            assert not plans.sync() and plans.watermark is not None


def test_a_replication_connection_that_writes_counts_as_open(project: Make) -> None:
    """Such a connection (``replication=database``) may run SQL, too, and rows that it commits late are lost otherwise."""
    shop = project(incremental=["public.event:at:timestamp"])
    shop.execute(TABLE)
    with psycopg.connect(shop.url, replication="database") as walsender:
        walsender.execute("insert into event values (1)")
        shop.execute("insert into event values (2)")
        assert shop.one("event")["watermark"]["held_back_by"][0]["pid"] == walsender.info.backend_pid
        walsender.commit()
    shop.one("event")
    shop.assert_equal("event")


@pytest.mark.long
def test_a_replication_connection_that_streams_does_not_hold_the_watermark(tmp_path: Path, spark_home: Path) -> None:
    """It is in one message for as long as a subscriber is there: the watermark would never move again."""
    with EmbeddedPostgres(tmp_path / "logical", settings={"wal_level": "logical"}) as server:
        there = server.create_database("subscriber")
        shop = Project(tmp_path / "p", server.create_database("publisher"), spark_home, **EVENTS)
        for statement in (TABLE, "create publication p for all tables", "select pg_create_logical_replication_slot('s', 'pgoutput')"):
            shop.execute(statement)
        with psycopg.connect(there, autocommit=True) as own:
            own.execute(TABLE.encode())
            link = sql.SQL("create subscription s connection {} publication p with (create_slot = false, slot_name = 's')")
            own.execute(link.format(shop.url))
            streams = "select exists (select from pg_stat_replication where state = 'streaming')"
            wait_for(lambda: shop.source.execute(streams.encode()).fetchone() == (True,), "the subscriber follows", 60)
            with reader_of(shop) as reader, psycopg.connect(shop.url, replication="database", autocommit=True) as idle:
                shop.execute("insert into event values (1)")
                plans = Plans(reader)
                assert not plans.sync(settle=10) and plans.watermark is not None
                idle.execute("begin")
                shop.execute("insert into event values (2)")
                assert plans.sync(), "this one may write"
                idle.execute("rollback")
                assert not plans.sync(settle=10)
            own.execute("alter subscription s disable; alter subscription s set (slot_name = none); drop subscription s")
        shop.source.close()


def test_a_session_with_our_application_name_counts_as_open(project: Make) -> None:
    """Otherwise rows of an application that sets the product's application_name are lost."""
    shop = project(**EVENTS)
    shop.execute(TABLE)
    with psycopg.connect(shop.url, application_name=APPLICATION_NAME) as impostor, reader_of(shop) as reader:
        impostor.execute("insert into event values (1)")
        shop.execute("insert into event values (2)")
        plans = Plans(reader)
        assert plans.sync() and plans.watermark is None
        impostor.commit()
        assert not plans.sync()


def test_a_session_that_does_not_report_its_activity_counts_by_its_virtual_id(project: Make) -> None:
    """With track_activities off, PostgreSQL shows an open transaction like an idle session; its rows must not be lost."""
    shop = project(**EVENTS)
    shop.execute(TABLE)
    with psycopg.connect(shop.url, options="-c track_activities=off") as hidden, reader_of(shop) as reader:
        hidden.execute("insert into event values (1)")
        shop.execute("insert into event values (2)")
        plans = Plans(reader)
        assert plans.sync() and plans.watermark is None
        hidden.commit()
        assert not plans.sync() and plans.watermark is not None


def test_our_own_reads_hold_nothing_back(project: Make) -> None:
    """Otherwise two syncs at the same time hold back each other's watermark."""
    shop = project(**EVENTS)
    shop.execute(TABLE + "insert into event values (1)")
    with reader_of(shop) as beside, reader_of(shop) as reader, beside.snapshot():
        plans = Plans(reader)
        assert not plans.sync()
        assert plans.watermark is not None


def pass_by(source: psycopg.Connection, margin: float) -> None:
    """Waits until the margin has passed by the source's clock, and all transactions have ended that were open in this moment."""
    begun = source.execute(b"select clock_timestamp()").fetchall()[0][0]
    is_over = """select clock_timestamp() > %(begun)s + %(margin)s * interval '1 second' and not exists (select from pg_stat_activity
        where xact_start <= %(begun)s and backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid())"""
    values = {"begun": begun, "margin": margin}
    wait_for(lambda: source.execute(is_over.encode(), values).fetchone() == (True,), "what was open has ended")


def plain_role(shop: Project) -> str:
    """The URL of a role that may read the table and nothing else."""
    if shop.source.execute("select 1 from pg_roles where rolname = 'plain'").rowcount == 0:  # a role belongs to all databases of a server
        shop.execute("create role plain login password 'x'")
    shop.execute("grant select on all tables in schema public to plain")
    return shop.url.replace(shop.url.split("//")[1].split("@")[0], "plain:x")


@pytest.mark.parametrize("role", ["plain", "one that sees activity"])
def test_the_watermark_moves_beside_a_pool_that_is_always_busy(project: Make, role: str) -> None:
    """Otherwise, beside an application with twenty busy connections, each sync reads all rows since the first one again."""
    shop = project(**EVENTS)
    shop.execute(TABLE + "insert into event values (0); create sequence ids")
    url = plain_role(shop) if role == "plain" else None
    done = threading.Event()

    def work() -> None:
        with psycopg.connect(shop.url, autocommit=True) as connection:
            while not done.is_set():
                connection.execute(b"begin; insert into event values (nextval('ids')); select pg_sleep(0.05); commit")

    threads = [threading.Thread(target=work) for _ in range(20)]
    try:
        for thread in threads:
            thread.start()
        with reader_of(shop, url=url, margin=0.2) as reader:
            plans = Plans(reader)
            wait_for(lambda: shop.source.execute("select 1 from event limit 21").rowcount > 20, "the pool is at work")
            wait_for(lambda: reader.highest().value is not None, "a row is older than the margin")
            first = reader.highest().value
            plans.sync()  # beside some of twenty transactions
            pass_by(shop.source, 0.2)
            plans.sync()
            assert plans.watermark is not None and first is not None and plans.watermark >= first, "within two syncs"
            before = plans.watermark
            pass_by(shop.source, 0.2)
            plans.sync()
            assert plans.watermark > before
    finally:
        done.set()
        for thread in threads:
            thread.join()
    seen = shop.source.execute("select count(*) from event").fetchone()
    assert seen is not None and seen[0] > 20


def test_a_role_that_sees_no_activity_gets_a_warning(project: Make) -> None:
    """Otherwise nobody knows that rows may be missed with such a role, and which privilege would help."""
    shop = project(**EVENTS)
    shop.execute(TABLE + "insert into event values (1)")
    plain = project(**EVENTS)
    plain.url = plain_role(shop)
    seen = plain.definition("event")
    from incremental_assets.core.plan import Mode, Request
    from incremental_assets.runs.adapters.choose import adapter_of

    def warnings_of(one: Project, definition: Any) -> str:
        with one.instance() as instance:
            plan, _ = adapter_of(definition).plan(instance, Request(Mode.INCREMENTAL), one.lake)
        return " ".join(plan.warnings)

    assert "pg_read_all_stats" in warnings_of(plain, seen)
    plain.configure(safety_lag_seconds="auto")
    shop.execute(
        "create function stamp() returns trigger language plpgsql as $$ begin new.at := now(); return new; end $$;"
        "create trigger stamp before insert on event for each row execute function stamp()"
    )
    trusted = plain.definition("event")
    assert (trusted.container.lag, trusted.container.lag_is_auto) == (0, True)
    with plain.instance() as instance:
        plan, _ = adapter_of(trusted).plan(instance, Request(Mode.INCREMENTAL), plain.lake)
    assert plan.container.lag == AUTO_LAG_SECONDS and "pg_read_all_stats" in plan.container.lag_reason
    assert "pg_read_all_stats" not in warnings_of(shop, shop.definition("event"))


# ---------------------------------------------------------------------- a sync with nothing to read
def test_a_sync_without_changes_moves_the_watermark_to_a_pending_value(project: Make) -> None:
    """Otherwise, after a first load beside an open session, each tick computes the fingerprint of the whole table."""
    shop = project(**EVENTS)
    shop.execute(TABLE + "insert into event select n, now() - interval '1 day' + n * interval '1 second' from generate_series(1, 100) n")
    with psycopg.connect(shop.url) as session:
        session.execute("select 1")
        first = shop.one("event")
        assert first["watermark"]["new"] is None and first["watermark"]["held_back_by"]
        still = shop.one("event")
        assert still["status"] == "skipped" and still["watermark"]["new"] is None
    version = shop.table("event").head()
    taken = shop.one("event")
    assert (taken["status"], taken["run_id"]) == ("skipped", None)
    assert taken["watermark"]["new"] is not None and "moves to" in taken["message"]
    head, container = shop.table("event").head(), shop.definition("event").container
    assert head is not None and version is not None and head.version == version.version + 1
    state = head.state(container)
    assert state is not None and state.watermark is not None and not state.pending
    assert (state.fingerprint or "").startswith("1."), "the fingerprint is only of the tail from the new watermark on"
    with shop.instance() as instance:
        assert newest_watermark(instance, container) == state.watermark, "the event has the same watermark, as the lower of the two counts"
    again = shop.one("event")
    assert again["status"] == "skipped" and "moves" not in again["message"]
    assert shop.table("event").head() == head
    shop.execute("insert into event values (101)")
    assert shop.one("event")["rows_read"] == 2
    shop.assert_equal("event")


@pytest.mark.long
def test_rows_within_the_margin_are_read_again_until_it_has_passed(project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise rows are lost whose message had arrived and was not visible yet, or a table without new rows is never skipped."""
    shop = project(**EVENTS, watermark_margin_seconds=1)
    shop.execute(TABLE + "insert into event values (1, now() - interval '1 hour')")
    highest, snapshot = PostgresReader.highest, PostgresReader.snapshot
    insert = "insert into event select max(id) + 1, {} from event"

    def below_a_new_row(reader: PostgresReader) -> Any:
        shop.execute(insert.format("clock_timestamp()"))
        return highest(reader)

    @contextlib.contextmanager
    def before_an_older_row(reader: PostgresReader) -> Iterator[str]:
        with snapshot(reader) as name:
            shop.execute(insert.format("max(at) - interval '0.1 seconds'"))
            yield name

    with monkeypatch.context() as patched:
        patched.setattr(PostgresReader, "highest", below_a_new_row)
        patched.setattr(PostgresReader, "snapshot", before_an_older_row)
        first = shop.one("event")
    assert first["watermark"]["held_back_by"] is None and first["status"] == "synced"
    pass_by(shop.source, 1)
    assert shop.one("event")["rows_read"] >= 1
    shop.assert_equal("event")
    pass_by(shop.source, 1)
    shop.one("event")
    assert shop.one("event")["status"] == "skipped"
    head = shop.table("event").head()
    kept = head.state(shop.definition("event").container) if head else None
    assert kept is not None and not kept.pending


def test_a_commit_while_a_sync_looks_for_changes_is_not_lost(project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a sync that finds no change moves the watermark past rows that were committed while it looked."""
    shop = project(**EVENTS)
    shop.execute(TABLE + "insert into event values (1)")
    with psycopg.connect(shop.url) as session:
        session.execute("select 1")
        shop.one("event")
    snapshot = PostgresReader.snapshot

    def with_a_commit(reader: PostgresReader) -> Any:
        shop.execute("insert into event select coalesce(max(id), 0) + 1, now() - interval '1 hour' from event")
        return snapshot(reader)

    monkeypatch.setattr(PostgresReader, "snapshot", with_a_commit)
    shop.one("event")
    monkeypatch.undo()
    shop.one("event")
    shop.assert_equal("event")
