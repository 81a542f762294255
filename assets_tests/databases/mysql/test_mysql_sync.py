"""What syncs of MariaDB do that those of other servers do not: refusals, and an ALTER that waits for a snapshot.

Belongs here: what MySQL and MariaDB alone have. Does not belong: what is the same for each server (``servers``), and values of types
(``test_mysql_types``).
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from incremental_assets.core.errors import ConfigurationError, SourceError
from incremental_assets.databases.mysql.source import MySQLSource


@pytest.mark.long
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "url is empty"),
        ("postgresql://u:p@h/d", "url is not mysql://"),
        ("mysql://u:p/w@h:3306/d", "special characters"),
        ("mysql://:p@h/d", "the user is missing"),
        ("mysql://u:p@h", "the database is missing"),
        ("mysql://u:p@h/d?compress=1", "compress"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, said: str, shop: Callable[..., MySQLProject]) -> None:
    """A typing error must be named before anything is tried."""
    project = shop()
    project.url = url
    with pytest.raises(ConfigurationError, match=said) as refused:
        project.component.settings()
    assert "p/w" not in str(refused.value)


@pytest.mark.parametrize("options", [{"capture": "log"}, {"hold_back": "writers"}, {"readers": 4}], ids=lambda options: next(iter(options)))
def test_what_mysql_cannot_do_is_refused_at_load_time(options: dict[str, Any], shop: Callable[..., MySQLProject]) -> None:
    """Accepted and then not done, the user would rely on it."""
    project = shop(incremental=["orders:id:integer!upsert"], containers={"orders": options})
    project.execute("create table orders (id int primary key)")
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        project.catalog()


def test_a_sync_that_holds_up_an_alter_for_too_long_is_ended(shop: Callable[..., MySQLProject]) -> None:
    """An ALTER waits behind a snapshot, and the application behind the ALTER: a sync must not stop a shop."""
    project = shop()
    project.execute("create table orders (id int primary key)", "insert into orders values (1)")
    definition = project.definition("orders")
    address = definition.settings.address
    with contextlib.closing(project.session()) as other, MySQLSource(address, definition.container, timezone="UTC") as source:
        source.limits = type(source.limits)(blocking=1)
        with pytest.raises(SourceError, match=r"waited for 1 s behind this sync's lock.*max_blocking_seconds"), source.snapshot():
            altering = threading.Thread(target=lambda: other.cursor().execute("alter table orders add value int"))
            altering.start()
            altering.join(20)
            got_through = not altering.is_alive()  # an assertion in this block would end in the error that is expected
            source.still_there()
        assert got_through
    assert project.ask("show columns from orders like 'value'")


@pytest.mark.long
def test_a_view_without_its_definer_waits_and_then_comes_by_itself(shop: Callable[..., MySQLProject]) -> None:
    """The user who made the view left. It cannot be read until somebody repairs it, and the other containers must be synced."""
    project = shop(incremental=["v:id:integer!upsert"], containers={"v": {"primary_key": ["id"]}})
    remade = ("create user gone@localhost", f"grant all on {project.database}.* to gone@localhost")
    project.execute("drop user if exists gone@localhost", *remade, "create table t (id int primary key)", "insert into t values (1)")
    project.execute(*(f"create definer = gone@localhost sql security definer view {name} as select * from t" for name in ("v", "w")))
    project.execute("drop user gone@localhost")
    lines = project.sync()
    assert lines["t"]["status"] == "synced"
    for name in ("v", "w"):
        assert lines[name]["status"] == "warning" and lines[name]["message"].startswith("it waits: The user specified as a definer"), lines
    project.execute(*remade)
    assert {line["status"] for name, line in project.sync().items() if name != "t"} == {"synced"}
    project.execute("drop user gone@localhost")
    assert {line["status"] for name, line in project.sync(stale=True).items() if name != "t"} == {"warning"}
    project.execute(*remade, "insert into t values (2)")
    assert {line["status"] for line in project.sync(stale=True).values()} == {"synced"}
    project.execute("drop user gone@localhost")


def test_tables_whose_names_differ_in_case_are_two_containers(shop: Callable[..., MySQLProject]) -> None:
    """Where the server tells such names apart, the second table would never be synced, and no line of any command would name it."""
    project = shop(incremental=["customer:id:integer!upsert"])
    project.execute(
        "create table customer (id int primary key, value int)",
        "create table Customer (id int primary key auto_increment, value int, other int, key (other))",
        "create view CUSTOMER as select * from Customer",
        "insert into customer values (1, 1)",
        "insert into Customer values (2, 2, 2), (3, 3, 3)",
    )
    assert {name: line["status"] for name, line in project.sync().items()} == dict.fromkeys(("customer", "Customer", "CUSTOMER"), "synced")
    assert project.rows("customer") == [(1, 1)] and sorted(project.rows("Customer")) == sorted(project.rows("CUSTOMER")) == [
        (2, 2, 2),
        (3, 3, 3),
    ]
    tables = {one.table.name: one.table for one in project.catalog()}
    assert tables["customer"].indexed == ("id",) and tables["Customer"].indexed == ("id", "other")
    project.execute("insert into Customer values (4, 4, 4)", "alter table Customer add more int")
    assert project.one("customer")["status"] == "skipped" and len(project.one("Customer")) and len(project.rows("Customer")) == 3


def test_comments_of_columns_arrive_and_follow_their_changes(shop: Callable[..., MySQLProject]) -> None:
    """Who reads the lake would not know what a column means, or would go by what it meant last year."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key comment 'it''s \"the\" key', v int)", "insert into orders values (1, 1)")
    found: list[list[str | None]] = []
    for change in ("insert into orders values (2, 2)", "alter table orders modify v int comment 'Stück'"):
        project.one("orders")
        head = project.table("orders").head()
        assert head is not None
        found.append([column.comment for column in head.columns])
        project.execute(change, f"insert into orders values ({len(found) + 5}, 2)")
    project.one("orders")
    head = project.table("orders").head()
    assert head is not None
    assert found == [['it\'s "the" key', None]] * 2
    assert [column.comment for column in head.columns] == ['it\'s "the" key', "Stück"]
