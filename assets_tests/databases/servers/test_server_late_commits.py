"""Rows that are committed late, below the highest identifier: the watermark of a container stays below them.

Belongs here: open transactions, which each server has. Does not belong: what one server alone has (``test_mysql_late_commits``), and the
rule itself (``core/test_watermark_rule``).
"""

import pytest

from assets_tests.databases.servers.parameters import BY, Shop
from assets_tests.databases.servers.project import ServerProject
from assets_tests.databases.servers.sql import PLAIN_USER, By, followed
from assets_tests.harness import long

PASSWORD = "secret"


def made(shop: Shop, by: By) -> ServerProject:
    """A project with an empty table ``orders``. Skips the test where a sync waits for open transactions instead of reading past them."""
    project = shop()
    if not project.reads_past_locks:
        pytest.skip("without snapshots the read waits for the open transaction's locks")
    project.configure(incremental=[project.entry("orders", by)])
    project.execute(followed(project.sql, "orders"))
    return project


def insert(project: ServerProject, value: str) -> str:
    return f"insert into orders (value) values ({project.sql.literal(value)})"


@BY
def test_a_row_that_is_committed_late_is_not_lost(by: By, shop: Shop) -> None:
    """The heart of it: a watermark that moves to the highest row passes those of transactions that are still open, for ever."""
    project = made(shop, by)
    project.execute(insert(project, "before"))
    project.one("orders")
    with project.opened() as late:
        late(insert(project, "late"))
        project.execute(insert(project, "early"))
        line = project.one("orders")
        assert line["status"] == "synced" and ("early",) in project.rows("orders", "value"), "fresh rows are not held back"
        if not project.is_exact(by):
            assert line["watermark"]["held_back_by"], "the one who holds the watermark back is named"
        assert project.one("orders")["status"] == "skipped"
        late(project.sql.commit)
    project.one("orders")
    project.assert_equal("orders")
    project.execute(insert(project, "after"))
    line = project.one("orders")
    assert line["rows_read"] <= 2, "nobody is open any more, so that the watermark has moved"
    project.assert_equal("orders")


def test_a_busy_pool_releases_the_watermark(shop: Shop) -> None:
    """A session that is always in some transaction would hold it back for ever, if sessions and not transactions were noted."""
    project = made(shop, By.NUMBER)
    with project.opened() as busy:
        busy(insert(project, "first"))
        noted = project.noted("orders")
        assert noted.sessions
        busy(project.sql.commit)
        busy(project.sql.pause)  # a server may show the second in which a transaction has begun
        busy(project.sql.begin)
        busy(insert(project, "second"))
        left = project.still_open("orders", noted)
        assert not left


def test_a_user_who_sees_no_transactions_is_warned_and_a_lag_finds_late_rows(shop: Shop) -> None:
    """Such a user sees no open transaction. The first load must say so, and no further sync, and its lag must be what finds late rows."""
    project = made(shop, By.NUMBER)
    project.execute(*project.sql.plain_user(project.database, PASSWORD), insert(project, "before"))
    project.url = project.url_of(PLAIN_USER, PASSWORD)
    project.configure(containers={"orders": {"safety_lag": 10}})
    first, warning = project.one("orders"), "this user cannot see which transactions are open"
    assert warning in first["message"] and "(now 10)" in first["message"], first["message"]
    with project.opened() as late:
        late(insert(project, "late"))
        project.execute(insert(project, "early"))
        assert warning not in project.one("orders")["message"]
        late(project.sql.commit)
    project.one("orders")
    project.assert_equal("orders")


@pytest.mark.parametrize(("attributes", "lag"), [({"timezone": "Europe/Berlin"}, 300), *long(({}, 3900))])
def test_rows_of_the_hour_that_comes_twice_arrive(shop: Shop, attributes: dict[str, str], lag: int) -> None:
    """A row of the second 02:05 lies below the watermark that one of the first 02:59:50 has set. It must arrive, also by default."""
    project = shop(incremental=["t:at:datetime"], safety_lag_seconds="auto", containers={"t": {"partition_by": "month", **attributes}})
    first, second = (project.sql.literal(f"2025-10-26 {time}") for time in ("02:59:50", "02:05:00"))
    project.execute(f"create table t (id int primary key, at {project.sql.created_coarse})", f"insert into t values (1, {first})")
    project.one("t")
    assert project.definition("t").container.lag == lag
    project.execute(f"insert into t values (2, {second})")
    project.one("t")
    assert sorted(project.rows("t", "id")) == [(1,), (2,)]
