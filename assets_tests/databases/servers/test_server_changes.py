"""Changes of a server's table that a sync notices: columns that come and go, a table that was truncated or renamed.

Belongs here: what is the same for each server. Does not belong: an ALTER that waits for a sync (``test_mysql_sync``).
"""

import pytest

from assets_tests.databases.servers.parameters import Shop


@pytest.mark.long
def test_columns_that_come_are_added_and_a_dropped_one_is_null(shop: Shop) -> None:
    """An ALTER in the source must neither stop the syncs nor shift values into other columns."""
    project = shop(incremental=["orders:id:integer"])
    sql = project.sql
    project.execute("create table orders (id int primary key, value int, old int)", "insert into orders values (1, 10, 100), (2, 20, 200)")
    project.one("orders")
    project.execute(
        sql.without_column("orders", "old"),
        sql.with_column("orders", "more", sql.text),
        f"insert into orders (id, value, more) values (3, 30, {sql.literal('x')})",
    )
    project.one("orders", stale=True)
    assert sorted(project.rows("orders", "id, value, old, more")) == [(1, 10, 100, None), (2, 20, None, None), (3, 30, None, "x")]


@pytest.mark.long
def test_older_rows_of_a_new_column_are_listed(shop: Shop) -> None:
    """The source fills a new column with its default in rows that no sync reads again: they are NULL in the lake until a refresh."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute(f"create table orders (id {project.sql.counted} primary key, value int)")
    project.execute(*(f"insert into orders values ({n}, 0)" for n in range(30)))
    project.one("orders")
    project.execute(project.sql.with_default("orders", "more", "int", 5), "update orders set more = null where id between 10 and 19")
    line = project.one("orders")
    assert "more" in line["message"] and "0" in line["message"], line["message"]
    for key in ("0", "20"):
        project.one("orders", keys=(key, key))
    project.assert_equal("orders", "id, value, more")


@pytest.mark.long
def test_a_table_that_was_renamed_or_truncated_is_named(shop: Shop) -> None:
    """Its rows in the lake must stay, and the message must say what to do."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("truncate table orders", "insert into orders values (1, 9)")
    line = project.one("orders", ok=False)
    # MariaDB gives a table that is truncated another id, so that its rows are compared, and differ, before its identifiers are looked at.
    why = ("fallen back", "may be another one under its name, and 1 row below the watermark differs")
    assert line["status"] == "failed" and any(said in line["message"] for said in why), line["message"]
    assert "--reset-watermarks" in line["message"]
    project.execute(project.sql.renamed("orders", "orders2"))
    line = project.one("orders", ok=False, stale=True)
    assert line["status"] == "failed" and "incremental-assets catalog" in line["message"], line["message"]
    rows = project.rows_as_known("orders")
    assert len(rows) == 2


@pytest.mark.long
def test_a_row_whose_number_becomes_an_older_one_stays_in_the_lake(shop: Shop) -> None:
    """An append that follows another column than the key: a row that gets its number late, below the watermark, is read by no sync."""
    project = shop(incremental=["orders:value:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)")
    project.execute("insert into orders values (1, 5), (2, 25), (3, 35), (4, null), (5, null)")
    project.one("orders")
    project.execute("update orders set value = 7 where id in (3, 4)", "insert into orders values (6, 41)")
    project.one("orders")
    project.assert_equal("orders")
    project.execute("insert into orders values (7, 50)", "delete from orders where id = 5", "update orders set value = 8 where id = 6")
    project.one("orders")
    project.assert_equal("orders")
