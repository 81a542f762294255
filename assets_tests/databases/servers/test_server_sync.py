"""Syncs of a server's tables into the lake, by each strategy: what is read, what is skipped, and what is refreshed.

Belongs here: the ordinary way of a sync, which is the same for each server. Does not belong: open transactions
(``test_server_late_commits``), audits and sweeps (``test_server_audit``), changes of a table (``test_server_changes``), and what one server
alone has (``mysql``, ``sqlserver``).
"""

import pytest

from assets_tests.databases.servers.parameters import BY, Shop
from assets_tests.databases.servers.sql import By, followed
from incremental_assets.catalog import detect
from incremental_assets.core.plan import Mode


@BY
def test_only_what_is_new_is_read(by: By, shop: Shop) -> None:
    """Without it, each sync would read the whole table again, or rows would be missing or doubled."""
    project = shop()
    text = project.sql.literal
    project.configure(incremental=[project.entry("orders", by)])
    project.execute(
        followed(project.sql, "orders"), *(f"insert into orders (value) values ({text(one)})" for one in ("a", "b", "c", "d", "ü😀"))
    )
    first = project.one("orders")
    assert first["status"] == "synced" and first["rows_read"] == 5
    project.assert_equal("orders")
    assert project.one("orders")["status"] == "skipped"
    project.execute(f"insert into orders (value) values ({text('f')})")
    assert project.one("orders")["rows_read"] <= 2  # the watermark is the highest row itself
    project.assert_equal("orders")


@pytest.mark.long
def test_an_upsert_follows_updates(shop: Shop) -> None:
    """An updated row must replace the old one, wherever in the table that is."""
    project = shop()
    sql = project.sql
    project.configure(incremental=[project.entry("orders", By.CHANGED)])
    project.execute(
        f"create table orders (id int primary key, value {sql.text}, changed {sql.changed})",
        "create index orders_changed on orders (changed)",
        *(f"insert into orders (id, value) values ({n}, {sql.literal('first')})" for n in range(20)),
    )
    project.one("orders")
    project.execute(
        f"update orders set value = {sql.literal('second')} where id % 7 = 0",
        f"insert into orders (id, value) values (99, {sql.literal('new')})",
    )
    line = project.one("orders")
    assert line["rows_read"] <= 5
    project.assert_equal("orders")


def test_a_key_in_another_case_is_another_key(shop: Shop) -> None:
    """By its collation the server takes 'a' and 'A' for the same; in the lake they are two, and the old one must go. The load says so."""
    project = shop()
    sql = project.sql
    project.configure(incremental=[project.entry("names", By.CHANGED)])
    project.execute(
        f"create table names (name {sql.text} primary key, value int, changed {sql.changed})",
        f"insert into names (name, value) values ({sql.literal('anna')}, 1), ({sql.literal('ben')}, 2)",
    )
    assert "key (name) for equal" in project.one("names")["message"]
    project.execute(f"update names set name = {sql.literal('ANNA')}, value = 3 where name = {sql.literal('anna')}")
    project.one("names", mode=Mode.REFRESH)
    project.assert_equal("names", "name, value")


@pytest.mark.long
def test_a_table_without_identifier_is_replaced_whole_and_skipped_if_nothing_changed(shop: Shop) -> None:
    """A snapshot that keeps deleted rows, or that is read again although nothing has changed, is of no use."""
    project = shop()
    text = project.sql.literal
    project.execute(
        f"create table lists (id int primary key, value {project.sql.long_text})",
        f"insert into lists values (1, {text('a')}), (2, {text('b')})",
    )
    project.one("lists")
    assert project.one("lists")["status"] == "skipped"
    project.execute("delete from lists where id = 1", f"update lists set value = {text('c')}")
    project.one("lists")
    project.assert_equal("lists")
    project.execute(f"update lists set value = {text('C')}")
    assert project.one("lists")["status"] == "synced", "a change of case alone is a change"
    project.assert_equal("lists")


@pytest.mark.long
def test_a_refresh_of_a_partition_removes_deleted_rows_and_leaves_the_others(shop: Shop) -> None:
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


@pytest.mark.long
@pytest.mark.parametrize("by", [By.CREATED_UPSERT, pytest.param(By.CHANGED, marks=pytest.mark.long)], ids=lambda by: by.value)
def test_a_container_may_be_partitioned_by_another_column(by: By, shop: Shop) -> None:
    """A row that moves must be counted in both months, and a refresh of one must replace that month's rows, and no others."""
    project = shop()
    sql = project.sql
    _, column, type_ = project.entry("orders", by).removesuffix("!upsert").split(":")
    by_month = {"column": "ordered", "every": "month"}
    project.configure(incremental=[{"table": "orders", "column": column, "type": type_, "strategy": "upsert", "partition_by": by_month}])
    project.execute(
        f"create table orders (id int primary key, ordered date, value int, created {sql.created}, changed {sql.changed})",
        f"create index orders_by on orders ({column})",
        *(f"insert into orders (id, ordered, value) values ({n}, '2026-0{n % 3 + 1}-05', 0)" for n in range(30)),
    )
    assert project.one("orders")["partitions"][:3] == ["2026-01-01", "2026-02-01", "2026-03-01"]
    project.execute(
        f"update orders set ordered = '2026-02-07', created = {sql.now} where id = 0", "insert into orders (id, value) values (99, 1)"
    )
    assert project.one("orders")["partitions"] == ["2026-01-01", "2026-02-01"]
    project.assert_equal("orders", "id, ordered, value")
    project.execute("delete from orders where id = 4")
    line = project.one("orders", keys=("2026-02-01", "2026-02-01"))
    assert (line["rows_updated"], line["rows_deleted"]) == (0, 1), line
    assert project.audit("orders")["orders"]["status"] == "equal"


@pytest.mark.long
def test_a_partition_of_another_column_is_audited_and_repaired(shop: Shop) -> None:
    """Rows that changed behind the identifier's back are found in the month that they belong to, and a refresh repairs no other month."""
    by_month = {"column": "ordered", "every": "month"}
    entry = {"table": "orders", "column": "created", "type": "timestamp", "strategy": "upsert", "partition_by": by_month}
    project = shop(incremental=[entry])
    project.execute(
        f"create table orders (id int primary key, ordered date, value int, created {project.sql.created})",
        *(f"insert into orders (id, ordered, value) values ({n}, '2026-0{n % 3 + 1}-05', 0)" for n in range(30)),
    )
    project.one("orders")
    project.execute("update orders set value = 7 where id in (1, 2)", "delete from orders where id = 4")
    line = project.one("orders", keys=("2026-02-01", "2026-02-01"))
    assert (line["rows_updated"], line["rows_deleted"]) == (1, 1), line
    different = project.audit("orders")["orders"]["partitions_different"]
    assert different == ["2026-03-01"]
    repaired = project.audit("orders", repair=True)["orders"]["status"]
    assert repaired == "repaired"
    project.assert_equal("orders", "id, ordered, value")


@pytest.mark.long
def test_rows_too_large_for_memory_are_written_all_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the estimate took for few go into files in the middle of the read, and none may be lost on the way."""
    project = shop(incremental=["orders:id:integer!upsert"])
    for limit in ("MOST_LOCAL_BYTES", "MOST_COMPARED_BYTES"):
        monkeypatch.setattr(f"incremental_assets.databases.rows.{limit}", 100_000)
    monkeypatch.setattr(project.rows_module, "BATCH_BYTES", 50_000)
    repeated = project.sql.repeated
    project.execute(f"create table orders (id int primary key, value {project.sql.long_text})")
    project.execute(*(f"insert into orders values ({n}, {repeated(str(n % 10), 10000)})" for n in range(50)))
    project.one("orders")
    project.assert_equal("orders")
    project.execute(*(f"insert into orders values ({n}, {repeated('x', 10000)})" for n in range(50, 90)))
    project.one("orders")
    project.assert_equal("orders")


def test_a_wrong_password_is_not_shown(shop: Shop) -> None:
    """The message must say what to do, and logs are read by people who must not know the password."""
    project = shop()
    project.execute("create table orders (id int primary key)")
    project.url = project.url_of(None, "s3cr3t/word")
    refusal = project.refusal()
    assert "Check user and password in the datastore's url" in refusal
    assert "s3cr3t" not in refusal and "s3cr3t" not in repr(project.component.settings())


def test_the_catalog_proposes_what_the_server_says_of_itself(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that the server sets at each change, and a key that it numbers, are what tells new rows from old."""
    project = shop()
    monkeypatch.setattr(detect, "WHOLE_BYTES", -1)  # these are small, and would be synced whole
    project.execute(
        f"create table changes (id int primary key, value int, mark {project.sql.changed})",
        f"create table arrivals (id {project.sql.numbered_wide}, value int)",
        "create view shown as select id from changes",
    )
    found = {one.table.name: one.proposal for one in project.catalog()}
    assert (found["changes"].columns, found["changes"].strategy.value, found["changes"].trusted) == (("mark",), "upsert", True)
    assert any("sets it at each change" in one for one in found["changes"].reasons)
    assert (found["arrivals"].columns, found["arrivals"].strategy.value) == (("id",), "append")
    assert found["shown"].columns == ()
