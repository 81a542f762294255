"""Other sessions of the source during a sync: locked tables, transactions that stay open, and columns that are added.

Belongs here: what other sessions do, and wrong URLs. Does not belong: a source that cannot be reached (``test_bad_input``).
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.databases.postgres import connection, session
from incremental_assets.databases.postgres.connection import PostgresAddress
from incremental_assets.databases.postgres.reader import PostgresReader

MakeProject = Callable[..., Project]


def test_a_locked_table_leaves_the_others_alone(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ALTER that stays uncommitted must fail the sync of its own table only."""
    monkeypatch.setattr(connection, "SET_LOCK_TIMEOUT", "set local lock_timeout = '1s'")
    shop = project(incremental=["public.orders:day:date", "public.visits:day:date"])
    shop.execute(
        """create table orders (id int primary key, day date, at timestamptz default now()); insert into orders values (1, '2026-05-01');
        create table visits (id int primary key, day date); insert into visits values (1, '2026-05-01'); analyze"""
    )
    shop.sync()
    shop.execute("insert into orders values (2, '2026-05-02'); insert into visits values (2, '2026-05-02')")
    with psycopg.connect(shop.url) as other:
        other.execute("alter table orders add column note text")
        assert len(shop.catalog()) == 2, "the catalog does not wait for the lock"
        lines = shop.sync(stale=True)
        assert lines["visits"]["status"] == "synced", lines["visits"]
        assert lines["orders"]["status"] == "failed" and "the table is locked" in lines["orders"]["message"], lines["orders"]
        other.rollback()
    assert shop.one("orders")["rows_inserted"] == 1
    shop.assert_equal("visits")


def test_a_table_dropped_and_created_anew_is_refused(project: MakeProject) -> None:
    """Rows of the new table below the watermark would never be read, and rows of the old table would stay."""
    shop = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month"}})
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01'), (2, '2026-06-01')")
    shop.one("orders")
    shop.execute("drop table orders; create table orders (id int primary key, day date)")
    shop.execute("insert into orders values (7, '2026-05-02'), (8, '2026-06-02')")
    refused = shop.one("orders", ok=False)
    assert refused["status"] == "failed" and "dropped and created anew" in refused["message"], refused
    assert "--reset-watermarks" in refused["message"]
    shop.one("orders", reset=True)
    shop.assert_equal("orders")


@pytest.mark.long
def test_a_table_that_is_locked_after_the_plan_is_named(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message must name the lock, and not an error of the code that reports it."""
    shop = project(incremental=["public.orders:day:date"])
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01')")
    with psycopg.connect(shop.url) as other, monkeypatch.context() as patched:
        real = PostgresReader.snapshot

        def snapshot(self: PostgresReader) -> Any:
            patched.setattr(session, "LOCK_TIMEOUT", "1s")
            other.execute("lock table orders in access exclusive mode")
            return real(self)

        patched.setattr(PostgresReader, "snapshot", snapshot)
        failed = shop.one("orders", ok=False)
        other.rollback()
    assert failed["status"] == "failed" and "the table is locked" in failed["message"], failed
    shop.one("orders")
    shop.assert_equal("orders")


@pytest.mark.long
def test_a_load_in_windows_misses_no_row_of_an_open_transaction(project: MakeProject) -> None:
    """Rows of an open transaction may lie in any window, so the watermark must wait and the next sync must read them."""
    shop = project(incremental=["public.notes:id:integer"], containers={"notes": {"partition_by": 1000}}, load_rows=1000)
    shop.execute(
        """create table notes (id serial primary key, note text);
        insert into notes (note) select 'n' from generate_series(1, 4000); analyze notes"""
    )
    with psycopg.connect(shop.url, application_name="the slow one") as other:
        other.execute("update notes set note = 'late' where id = 10")
        other.execute("insert into notes (note) values ('late')")
        line = shop.one("notes")
        assert line["rows_read"] >= 4000 and line["watermark"]["new"] is None, line
        assert [h["application"] for h in line["watermark"]["held_back_by"]] == ["the slow one"]
        other.commit()
    shop.one("notes")
    shop.assert_equal("notes")
    assert shop.one("notes")["status"] == "skipped"


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["append", "upsert"])
def test_a_column_added_during_a_sync_arrives(project: MakeProject, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that was added between plan and snapshot must not be left out without a warning."""
    shop = project(incremental=[f"public.orders:day:date{'!upsert' if strategy == 'upsert' else ''}"])
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01')")
    shop.one("orders")
    shop.execute("insert into orders values (2, '2026-05-02')")
    real = PostgresReader.highest
    done: list[None] = []

    def highest(self: PostgresReader) -> Any:
        if not done:
            done.append(None)
            shop.execute("alter table orders add column note text; update orders set note = 'n' where id = 2")
        return real(self)

    monkeypatch.setattr(PostgresReader, "highest", highest)
    line = shop.one("orders")
    assert "column note (string) was added" in line["message"], line["message"]
    assert sorted(shop.rows("orders", "id, note")) == [(1, None), (2, "n")]


@pytest.mark.parametrize("url", ["postgresql://user:p@ss:w0rd@host:5432/db", "postgresql://user:p@ssw0rd@host:5432/db"])
def test_the_end_of_a_password_is_not_shown_as_a_host(url: str) -> None:
    """With an unescaped @, the rest of the password counts as the host, which messages and metadata show. Such a URL is refused."""
    with pytest.raises(ConfigurationError) as refused:
        PostgresAddress.parse("shop", url)
    assert "w0rd" not in str(refused.value) and "%XX" in str(refused.value)
