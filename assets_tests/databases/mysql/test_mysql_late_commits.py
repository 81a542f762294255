"""Rows that are committed late, in the forms that MariaDB alone has: the watermark of a container stays below them.

Belongs here: XA, locks of tables, and InnoDB's list of transactions. Does not belong: open transactions as each server has them
(``servers.test_server_late_commits``), and the rule itself (``core/test_watermark_rule``).
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from assets_tests.harness import wait_for
from incremental_assets.databases.mysql.source import MySQLSource

ORDERS = "create table orders (id int primary key auto_increment, value varchar(20), at timestamp(6) not null default current_timestamp(6))"
BY = pytest.mark.parametrize(
    "by",
    [
        "orders:id:integer",
        pytest.param("orders:at:timestamp", marks=pytest.mark.long),
        pytest.param("orders:at:timestamp!upsert", marks=pytest.mark.long),
    ],
)


def definition(project: MySQLProject) -> Any:
    return project.definition("orders")


@pytest.mark.long
@BY
def test_a_prepared_transaction_whose_session_is_gone_holds_the_watermark(by: str, shop: Callable[..., MySQLProject]) -> None:
    """XA: after a crash of the application, its transaction belongs to no session, and may be committed days later."""
    project = shop(incremental=[by])
    project.execute(ORDERS)
    project.one("orders")
    name = f"'{project.database}-{by[-6:]}'"
    with contextlib.closing(project.session()) as session, session.cursor() as cursor:
        cursor.execute(f"xa start {name}")
        cursor.execute("insert into orders (value) values ('late')")
        project.execute("insert into orders (value) values ('early')")
        project.one("orders")
        cursor.execute(f"xa end {name}")
        cursor.execute(f"xa prepare {name}")
    try:
        assert "XA transaction" in str(project.one("orders", ok=False)) or project.one("orders")["status"] == "skipped"
    finally:
        project.execute(f"xa commit {name}")
    project.one("orders")
    project.assert_equal("orders")


def test_a_statement_that_waits_for_a_lock_holds_the_watermark(shop: Callable[..., MySQLProject]) -> None:
    """Its NOW() was taken when it arrived, but InnoDB has no transaction of it until it gets the lock."""
    project = shop(incremental=["orders:at:timestamp"])
    project.execute(ORDERS, "insert into orders (value) values ('before')")
    project.one("orders")
    with contextlib.closing(project.session()) as locker, contextlib.closing(project.session()) as late:
        locker.cursor().execute("lock tables orders read")
        late.cursor().execute("begin")
        waiting = threading.Thread(target=lambda: late.cursor().execute("insert into orders (value) values ('late')"))
        waiting.start()
        wait_for(lambda: project.ask("select 1 from information_schema.processlist where state like 'Waiting for table%'"), "it waits", 20)
        with MySQLSource(definition(project).settings.address, definition(project).container, timezone="UTC") as source:
            noted, _ = source.transactions.settle(0, 0)
            mine = {one for one in noted.sessions if one.startswith(f"{late.thread_id()}/")}
            assert mine == {f"{late.thread_id()}/statement"}
            locker.cursor().execute("unlock tables")
            waiting.join(20)
            left = noted.still_open(source.transactions.look().activity)
            assert mine <= left.sessions, "it is idle in the transaction that began after the clock, and may still commit"
            late.cursor().execute("commit")
            assert not mine & left.still_open(source.transactions.look().activity).sessions


@pytest.mark.long
def test_an_outdated_list_of_transactions_is_not_believed(shop: Callable[..., MySQLProject]) -> None:
    """InnoDB answers from a copy that may be older than the transaction in question, as long as somebody else reads it all the time."""
    project = shop(incremental=["orders:id:integer"])
    project.execute(ORDERS)
    over = threading.Event()

    def monitor() -> None:
        with contextlib.closing(project.session()) as session, session.cursor() as cursor:
            while not over.is_set():
                cursor.execute("select count(*) from information_schema.innodb_trx")

    thread = threading.Thread(target=monitor)
    thread.start()
    try:
        with project.opened() as late:
            late("insert into orders (value) values ('late')")
            project.execute("insert into orders (value) values ('early')")
            line = project.one("orders", ok=False)
            late("commit")
    finally:
        over.set()
        thread.join()
    assert line["status"] == "synced" or "outdated" in line["message"], line["message"]
    project.one("orders")
    project.assert_equal("orders")
