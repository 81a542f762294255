"""What a sync does to the lake: the most important behaviour, with a real PostgreSQL, Spark Connect server, Delta tables and Dagster runs.

Belongs here: first loads, incremental syncs, and the snapshot. Does not belong: options of containers (``test_containers``) and failures
(``test_failures``).
"""

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.core.plan import Mode
from incremental_assets.databases.postgres.reader import PostgresReader

MakeProject = Callable[..., Project]


@pytest.fixture
def orders(project: MakeProject) -> Project:
    """Orders by day, appended; customers by updated_at, upserted; a small table without identifier."""
    made = project(
        incremental=["public.orders:day:date", "public.customer:updated_at:timestamp!upsert"],
        containers={"orders": {"partition_by": "month"}, "customer": {"partition_by": "month"}},
    )
    made.source.execute(
        """create table orders (id bigserial primary key, day date, total numeric(12,2));
        create index on orders (day);
        insert into orders (day, total) select date '2026-01-01' + i % 90, i from generate_series(1, 900) i;
        create table customer (id int primary key, name text, updated_at timestamptz not null);
        create index on customer (updated_at);
        insert into customer select i, 'c' || i, timestamptz '2026-01-01' + i * interval '1 hour' from generate_series(1, 500) i;
        create table region (id int primary key, name text);
        insert into region values (1, 'north'), (2, 'south');"""
    )
    return made


def test_the_first_sync_loads_all_rows_and_the_second_is_skipped(orders: Project) -> None:
    """The first sync must bring all rows, and a sync without changes must not start a run."""
    first = orders.sync()
    assert {name: line["status"] for name, line in first.items()} == {"orders": "synced", "customer": "synced", "region": "synced"}
    assert first["orders"]["rows_read"] == first["orders"]["rows_inserted"] == 900
    assert first["orders"]["watermark"] == {"previous": None, "new": "2026-03-31", "held_back_by": None}
    assert first["orders"]["partitions"] == ["2026-01-01", "2026-02-01", "2026-03-01"]
    for name in ("orders", "customer", "region"):
        orders.assert_equal(name)
    second = orders.sync()
    assert {line["status"] for line in second.values()} == {"skipped"}
    assert second["orders"]["run_id"] is None and "nothing to do" in second["orders"]["message"]


def test_only_what_is_new_is_read(orders: Project) -> None:
    """An incremental sync must not read the whole table, nor count rows that did not change."""
    orders.sync()
    orders.source.execute("insert into orders (day, total) select date '2026-04-02', i from generate_series(1, 7) i")
    orders.source.execute(
        "update customer set name = 'new', updated_at = '2026-02-20' where id in (3, 4); delete from customer where id = 9"
    )
    orders.source.execute("insert into customer values (1000, 'x', '2026-02-21')")
    lines = orders.sync()
    assert lines["orders"]["rows_read"] == 10 + 7  # the ten rows of the watermark's day are read again
    assert (lines["orders"]["rows_inserted"], lines["orders"]["rows_deleted"]) == (7, 0)
    assert lines["customer"]["rows_read"] == 1 + 3  # the row at the watermark, two updated, one new
    assert (lines["customer"]["rows_inserted"], lines["customer"]["rows_updated"], lines["customer"]["rows_deleted"]) == (1, 2, 0)
    assert lines["region"]["status"] == "skipped"
    orders.assert_equal("orders")
    gone = orders.compare("customer")
    assert (
        len(orders.rows("customer", "id", "id = 9")) == 1 and not gone.equal
    )  # the deleted row lies below the watermark, so only a refresh removes it
    orders.one("customer", keys=("2026-01-01", "2026-01-01"))
    orders.assert_equal("customer")


def test_a_transaction_open_during_a_sync_is_not_lost(orders: Project) -> None:
    """The product's first promise: a row dated before the watermark was read and committed after it arrives all the same."""
    orders.sync()
    with psycopg.connect(orders.url) as late:
        late.execute("insert into orders (day, total) values ('2026-04-05', 1)")
        orders.source.execute("insert into orders (day, total) values ('2026-04-09', 2)")
        held = orders.one("orders")
        assert held["watermark"]["new"] == "2026-03-31" and held["watermark"]["held_back_by"][0]["pid"] == late.info.backend_pid
        assert orders.rows("orders", "total", "day = '2026-04-09'") != []  # new rows are not held back
    caught_up = orders.one("orders")
    assert caught_up["watermark"]["new"] == "2026-04-09"
    orders.assert_equal("orders")


def test_all_readers_see_the_same_snapshot_of_the_source(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader has a connection of its own. Without a shared snapshot, rows that change meanwhile may be read twice or never."""
    made = project(incremental=["public.big:id:integer"], containers={"whole": {"readers": 4}, "big": {"readers": 4, "partition_by": 1000}})
    for name in ("whole", "big"):
        made.execute(f"create table {name} (id int primary key, v int); insert into {name} select i, 1 from generate_series(1, 4000) i")
    frozen = PostgresReader.snapshot

    @contextlib.contextmanager
    def changed_right_after(reader: PostgresReader) -> Iterator[str]:
        with frozen(reader) as snapshot:
            made.execute(f"update {reader.container.name} set v = 2; delete from {reader.container.name} where id % 7 = 0")
            yield snapshot

    with monkeypatch.context() as patched:
        patched.setattr(PostgresReader, "snapshot", changed_right_after)
        made.sync()
    for name in ("whole", "big"):
        assert made.rows(name, "count(*) as n, count(distinct id) as ids, sum(v) as v") == [(4000, 4000, 4000)]
        made.one(name)
        made.one(name, mode=Mode.REFRESH)
        made.assert_equal(name)
