"""What syncs of SQL Server do that those of other servers do not, where ``SQLSERVER_URL`` names a server.

Belongs here: what needs a server and is SQL Server's own. Does not belong: what is the same for each server (``servers``), and what can be
seen without a server (``test_sqlserver_values``). Nobody has run these tests yet: a failure may be theirs.
"""

from collections.abc import Callable

from assets_tests.databases.servers.sql import By, followed
from assets_tests.databases.sqlserver.known import SENT, VALUES
from assets_tests.databases.sqlserver.project import SQLServerProject

Shop = Callable[..., SQLServerProject]


def test_without_snapshots_a_warning_says_so(shop: Shop) -> None:
    """The user would rely on rows of one moment."""
    project = shop()
    project.configure(incremental=[project.entry("orders", By.NUMBER)])
    project.execute(followed(project.sql, "orders"), "insert into orders (value) values (N'a')")
    line = project.one("orders")
    assert ("ALLOW_SNAPSHOT_ISOLATION" in (line["message"] or "")) is not project.has_snapshots


def test_a_table_that_was_made_anew_is_recognised(shop: Shop) -> None:
    """Its rows below the watermark are unknown, and would be missing."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("drop table orders", "create table orders (id int primary key, value int)", "insert into orders values (1, 9), (3, 3)")
    line = project.one("orders", ok=False)
    assert line["status"] == "failed" and "dropped and created anew" in line["message"]


def test_values_of_every_type_arrive_unchanged(shop: Shop) -> None:
    """A value that is rounded or shifted would be wrong in the lake."""
    project = shop()
    types = [type_ for type_, _ in VALUES.values()]
    project.execute(f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(types))})")
    filled = ", ".join(f"c{i}" for i, type_ in enumerate(types) if type_ != "rowversion")
    values = ", ".join(value for type_, value in VALUES.values() if type_ != "rowversion")
    project.execute(f"insert into things (id, {filled}) values (1, {values})", "insert into things (id) values (2)")
    project.one("things")
    rows = {row[0]: dict(zip(VALUES, row[1:], strict=True)) for row in project.rows("things")}
    expected = {kind: SENT[kind][1] for kind in VALUES if kind != "rowversion"}
    assert {kind: value for kind, value in rows[1].items() if kind != "rowversion"} == expected
    assert {value for kind, value in rows[2].items() if kind != "rowversion"} == {None}
