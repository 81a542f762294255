"""Rows that are committed late, below the highest identifier: the watermark of a container stays below them.

Belongs here: open transactions, which each server has. Does not belong: what one server alone has (``test_mysql_late_commits``), and the
rule itself (``core/test_watermark_rule``).
"""

import pytest

from assets_tests.databases.servers.parameters import BY, Shop
from assets_tests.databases.servers.project import ServerProject
from assets_tests.databases.servers.sql import PLAIN_USER, By, followed

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
    """Such a user sees no open transaction. A warning must say so, and its lag must be what finds late rows."""
    project = made(shop, By.NUMBER)
    project.execute(*project.sql.plain_user(project.database, PASSWORD), insert(project, "before"))
    project.url = project.url_of(PLAIN_USER, PASSWORD)
    project.configure(containers={"orders": {"safety_lag": 10}})
    first = project.one("orders")
    assert project.missing_privilege in first["message"] and "now 10" in first["message"], first["message"]
    with project.opened() as late:
        late(insert(project, "late"))
        project.execute(insert(project, "early"))
        project.one("orders")
        late(project.sql.commit)
    project.one("orders")
    project.assert_equal("orders")
