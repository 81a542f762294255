"""Syncs of MariaDB tables into the lake, by each strategy: what is read, what is skipped, and what is refreshed.

Belongs here: the ordinary way of a sync. Does not belong: values of types (``test_mysql_types``), and open transactions
(``test_mysql_late_commits``).
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode

ORDERS = "create table orders (id int primary key auto_increment, value varchar(20), at timestamp(6) not null default current_timestamp(6))"


def test_only_what_is_new_is_read(shop: Callable[..., MySQLProject]) -> None:
    """Without it, each sync would read the whole table again, or rows would be missing or doubled."""
    project = shop(incremental=["orders:id:integer"])
    project.execute(ORDERS, "insert into orders (value) values ('a'), ('b'), ('ü😀')")
    first = project.one("orders")
    assert first["status"] == "synced" and first["rows_read"] == 3
    project.assert_equal("orders")
    assert project.one("orders")["status"] == "skipped"
    project.execute("insert into orders (value) values ('d')")
    assert project.one("orders")["rows_read"] == 2  # the watermark is the highest row itself
    project.assert_equal("orders")


def test_an_upsert_follows_updates_by_time(shop: Callable[..., MySQLProject]) -> None:
    """An updated row must replace the old one, wherever in the table that is."""
    project = shop(incremental=["orders:at:timestamp!upsert"])
    project.execute(
        "create table orders (id int primary key, value varchar(20),"
        " at timestamp(6) not null default current_timestamp(6) on update current_timestamp(6), key (at))",
        *(f"insert into orders (id, value) values ({n}, 'first')" for n in range(20)),
    )
    project.one("orders")
    project.execute("update orders set value = 'second' where id % 7 = 0", "insert into orders (id, value) values (99, 'new')")
    line = project.one("orders")
    assert line["rows_read"] <= 5
    project.assert_equal("orders")


def test_a_key_in_another_case_is_another_key(shop: Callable[..., MySQLProject]) -> None:
    """By its collation MariaDB takes 'a' and 'A' for the same; in the lake they are two, and the old one must go."""
    project = shop(incremental=["names:at:timestamp!upsert"])
    project.execute(
        "create table names (name varchar(20) primary key, value int,"
        " at timestamp(6) not null default current_timestamp(6) on update current_timestamp(6))",
        "insert into names (name, value) values ('anna', 1), ('ben', 2)",
    )
    project.one("names")
    project.execute("update names set name = 'ANNA', value = 3 where name = 'anna'")
    project.one("names", mode=Mode.REFRESH)
    project.assert_equal("names", "name, value")


def test_a_table_without_identifier_is_replaced_whole_and_skipped_if_nothing_changed(shop: Callable[..., MySQLProject]) -> None:
    """A snapshot that keeps deleted rows, or that is read again although nothing has changed, is of no use."""
    project = shop()
    project.execute("create table lists (id int primary key, value text)", "insert into lists values (1, 'a'), (2, 'b')")
    project.one("lists")
    assert project.one("lists")["status"] == "skipped"
    project.execute("delete from lists where id = 1", "update lists set value = 'c'")
    project.one("lists")
    project.assert_equal("lists")
    project.execute("update lists set value = 'C'")
    assert project.one("lists")["status"] == "synced", "a change of case alone is a change"
    project.assert_equal("lists")


def test_a_refresh_of_a_partition_removes_deleted_rows_and_leaves_the_others(shop: Callable[..., MySQLProject]) -> None:
    """A refresh is how deleted and changed old rows are repaired; it must touch what was asked for alone."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)", *(f"insert into orders values ({n}, 0)" for n in range(40)))
    project.one("orders")
    project.execute("delete from orders where id in (3, 15)", "update orders set value = 1 where id in (4, 16)")
    project.one("orders", keys=("10", "10"))
    rows = dict(project.rows("orders"))
    assert 15 not in rows and rows[16] == 1 and rows[3] == rows[4] == 0
    project.one("orders", mode=Mode.REFRESH)
    project.assert_equal("orders")


def test_a_container_may_be_partitioned_by_another_column(shop: Callable[..., MySQLProject]) -> None:
    """A row that moves must be counted in both months, and a refresh of one must replace that month's rows, and no others."""
    by_month = {"column": "ordered", "every": "month"}
    entry = {"table": "orders", "column": "at", "type": "timestamp", "strategy": "upsert", "partition_by": by_month}
    project = shop(incremental=[entry])
    project.execute(
        "create table orders (id int primary key, ordered date, value int,"
        " at timestamp(6) not null default current_timestamp(6) on update current_timestamp(6), key (at))",
        *(f"insert into orders (id, ordered, value) values ({n}, '2026-0{n % 3 + 1}-05', 0)" for n in range(30)),
    )
    assert project.one("orders")["partitions"][:3] == ["2026-01-01", "2026-02-01", "2026-03-01"]
    project.execute("update orders set ordered = '2026-02-07' where id = 0", "insert into orders (id, value) values (99, 1)")
    assert project.one("orders")["partitions"] == ["2026-01-01", "2026-02-01"]
    project.assert_equal("orders", "id, ordered, value")
    project.execute("update orders set value = 7, at = at where id in (1, 2)", "delete from orders where id = 4")
    line = project.one("orders", keys=("2026-02-01", "2026-02-01"))
    assert (line["rows_updated"], line["rows_deleted"]) == (1, 1), line
    different = project.audit("orders")["orders"]["partitions_different"]
    assert different == ["2026-03-01"]
    assert project.audit("orders", repair=True)["orders"]["status"] == "repaired"
    project.assert_equal("orders", "id, ordered, value")


def test_rows_too_large_for_memory_are_written_all_the_same(shop: Callable[..., MySQLProject], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the estimate took for few go into files in the middle of the read, and none may be lost on the way."""
    monkeypatch.setattr("incremental_assets.databases.rows.MOST_LOCAL_BYTES", 100_000)
    monkeypatch.setattr("incremental_assets.databases.mysql.rows.BATCH_BYTES", 50_000)
    project = shop(incremental=["orders:id:integer!upsert"])
    project.execute("create table orders (id int primary key, value mediumtext)")
    project.execute(*(f"insert into orders values ({n}, repeat('{n % 10}', 10000))" for n in range(50)))
    project.one("orders")
    project.assert_equal("orders")
    project.execute(*(f"insert into orders values ({n}, repeat('x', 10000))" for n in range(50, 90)))
    project.one("orders")
    project.assert_equal("orders")


def test_columns_that_come_are_added_and_a_dropped_one_is_null(shop: Callable[..., MySQLProject]) -> None:
    """An ALTER in the source must neither stop the syncs nor shift values into other columns."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int, old int)", "insert into orders values (1, 10, 100), (2, 20, 200)")
    project.one("orders")
    project.execute("alter table orders drop old, add more varchar(5) first", "insert into orders values ('x', 3, 30)")
    project.one("orders", stale=True)
    assert sorted(project.rows("orders", "id, value, old, more")) == [(1, 10, 100, None), (2, 20, None, None), (3, 30, None, "x")]


def test_older_rows_of_a_new_column_are_listed(shop: Callable[..., MySQLProject]) -> None:
    """The source fills a new column with its default in rows that no sync reads again: they are NULL in the lake until a refresh."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int unsigned primary key, value int)")
    project.execute(*(f"insert into orders values ({n}, 0)" for n in range(30)))
    project.one("orders")
    project.execute("alter table orders add more int default 5", "update orders set more = null where id between 10 and 19")
    line = project.one("orders")
    assert "more" in line["message"] and "0" in line["message"], line["message"]
    for key in ("0", "20"):
        project.one("orders", keys=(key, key))
    project.assert_equal("orders", "id, value, more")


def test_a_table_that_was_renamed_or_truncated_is_named(shop: Callable[..., MySQLProject]) -> None:
    """Its rows in the lake must stay, and the message must say what to do."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("truncate table orders", "insert into orders values (1, 9)")
    line = project.one("orders", ok=False)
    assert line["status"] == "failed" and "fallen back" in line["message"] and "--reset-watermarks" in line["message"]
    project.execute("rename table orders to orders2")
    line = project.one("orders", ok=False, stale=True)
    assert line["status"] == "failed" and "incremental-assets catalog" in line["message"], line["message"]
    assert len(project.rows_as_known("orders")) == 2


def test_a_wrong_password_is_not_shown(shop: Callable[..., MySQLProject]) -> None:
    """The message must say what to do, and logs are read by people who must not know the password."""
    project = shop()
    project.execute("create table orders (id int primary key)")
    project.url = project.server.url(project.database, password="s3cr3t/word")
    with pytest.raises(Exception, match=r"Check user and password in the datastore's url") as refused:
        project.catalog()
    assert "s3cr3t" not in str(refused.value) and "s3cr3t" not in repr(project.component.settings())


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
    import threading

    from incremental_assets.core.errors import SourceError
    from incremental_assets.databases.mysql.source import MySQLSource

    project = shop()
    project.execute("create table orders (id int primary key)", "insert into orders values (1)")
    definition = project.definition("orders")
    with MySQLSource(definition.settings.address, definition.container, timezone="UTC") as source:
        source.limits = type(source.limits)(blocking=1)
        with pytest.raises(SourceError, match=r"waited for 1 s behind this sync's lock.*max_blocking_seconds"), source.snapshot():
            with contextlib.closing(project.session()) as other:
                altering = threading.Thread(target=lambda: other.cursor().execute("alter table orders add value int"))
                altering.start()
                time.sleep(3)
                altering.join(20)
                source.still_there()
    assert project.ask("show columns from orders like 'value'")


def test_the_catalog_proposes_what_mysql_says_of_itself(shop: Callable[..., MySQLProject]) -> None:
    """ON UPDATE CURRENT_TIMESTAMP and AUTO_INCREMENT are what tells new rows from old in MySQL."""
    project = shop()
    project.execute(
        "create table changes (id int primary key, at timestamp not null default current_timestamp on update current_timestamp)",
        "create table arrivals (id bigint unsigned primary key auto_increment, value int)",
        "create view shown as select id from changes",
    )
    found = {one.table.name: one.proposal for one in project.catalog()}
    assert (found["changes"].columns, found["changes"].strategy.value, found["changes"].trusted) == (("at",), "upsert", True)
    assert any("ON UPDATE CURRENT_TIMESTAMP sets it" in one for one in found["changes"].reasons)
    assert (found["arrivals"].columns, found["arrivals"].strategy.value) == (("id",), "append")
    assert found["shown"].columns == ()
