"""Syncs, late commits, values and audits of SQL Server: the tests of MySQL again, where ``SQLSERVER_URL`` names a server.

Belongs here: all that needs a server. Does not belong: what can be seen without one (``test_sqlserver_values``). Nobody has run these tests
yet: a failure may be theirs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from assets_tests.databases.sqlserver.known import SENT, VALUES
from assets_tests.databases.sqlserver.project import SQLServerProject
from incremental_assets.core.comparison import RowScope, compare
from incremental_assets.core.errors import SourceError
from incremental_assets.core.plan import Mode
from incremental_assets.databases.sqlserver.source import SQLServerSource
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.spark.session import open_session

Shop = Callable[..., SQLServerProject]
ORDERS = (
    "create table orders (id int identity primary key, value nvarchar(20),"
    " at datetime2(6) not null default sysutcdatetime(), rv rowversion)"
)
BY = pytest.mark.parametrize("by", ["orders:id:integer", "orders:at:timestamp", "orders:at:timestamp!upsert", "orders:rv:integer!upsert"])


@contextlib.contextmanager
def opened(project: SQLServerProject) -> Iterator[Any]:
    """A session with an open transaction; it is rolled back at the end, unless it was committed."""
    with contextlib.closing(project.session()) as session, session.cursor() as cursor:
        cursor.execute("begin transaction")
        yield cursor
        cursor.execute("if @@trancount > 0 rollback transaction")


@BY
def test_only_what_is_new_is_read(by: str, shop: Shop) -> None:
    """Without it, each sync would read the whole table again, or rows would be missing or doubled."""
    project = shop(incremental=[by])
    project.execute(ORDERS, "insert into orders (value) values (N'a'), (N'b'), (N'ü😀')")
    first = project.one("orders")
    assert first["status"] == "synced" and first["rows_read"] == 3
    project.assert_equal("orders")
    assert project.one("orders")["status"] == "skipped"
    project.execute("insert into orders (value) values (N'd')")
    assert project.one("orders")["rows_read"] <= 4
    project.assert_equal("orders")


def test_an_upsert_by_rowversion_follows_updates(shop: Shop) -> None:
    """An updated row must replace the old one, wherever in the table that is."""
    project = shop(incremental=["orders:rv:integer!upsert"])
    project.execute(ORDERS, *(f"insert into orders (value) values (N'{n}')" for n in range(20)))
    project.one("orders")
    project.execute("update orders set value = N'new' where id % 7 = 0")
    assert project.one("orders")["rows_read"] <= 3
    project.assert_equal("orders")


@BY
def test_a_row_that_is_committed_late_is_not_lost(by: str, shop: Shop, has_snapshots: bool) -> None:
    """The heart of it: a watermark that moves to the highest row passes those of transactions that are still open, for ever."""
    if not has_snapshots:
        pytest.skip("without snapshots the read waits for the open transaction's locks")
    project = shop(incremental=[by])
    project.execute(ORDERS, "insert into orders (value) values (N'before')")
    project.one("orders")
    with opened(project) as late:
        late.execute("insert into orders (value) values (N'late')")
        project.execute("insert into orders (value) values (N'early')")
        project.one("orders")
        assert ("early",) in project.rows("orders", "value"), "fresh rows are not held back"
        late.execute("commit transaction")
    project.one("orders")
    project.assert_equal("orders")
    project.execute("insert into orders (value) values (N'after')")
    assert project.one("orders")["rows_read"] <= 2, "nobody is open any more, so that the watermark has moved"
    project.assert_equal("orders")


def test_without_snapshots_a_warning_says_so(shop: Shop, has_snapshots: bool) -> None:
    """The user would rely on rows of one moment."""
    project = shop(incremental=["orders:id:integer"])
    project.execute(ORDERS, "insert into orders (value) values (N'a')")
    assert ("ALLOW_SNAPSHOT_ISOLATION" in (project.one("orders")["message"] or "")) is not has_snapshots


def test_a_key_in_another_case_is_another_key(shop: Shop) -> None:
    """By its collation SQL Server takes 'a' and 'A' for the same; in the lake they are two, and the old one must go."""
    project = shop(incremental=["names:rv:integer!upsert"])
    project.execute(
        "create table names (name nvarchar(20) primary key, value int, rv rowversion)",
        "insert into names (name, value) values (N'anna', 1), (N'ben', 2)",
    )
    project.one("names")
    project.execute("update names set name = N'ANNA', value = 3 where name = N'anna'")
    project.one("names", mode=Mode.REFRESH)
    project.assert_equal("names", "name, value")


def test_a_table_without_identifier_is_replaced_whole_and_skipped_if_nothing_changed(shop: Shop) -> None:
    """A snapshot that keeps deleted rows, or that is read again although nothing has changed, is of no use."""
    project = shop()
    project.execute("create table lists (id int primary key, value nvarchar(max))", "insert into lists values (1, N'a'), (2, N'b')")
    project.one("lists")
    assert project.one("lists")["status"] == "skipped"
    project.execute("delete from lists where id = 1", "update lists set value = N'C'")
    project.one("lists")
    project.assert_equal("lists")


def test_a_refresh_of_a_partition_removes_deleted_rows_and_leaves_the_others(shop: Shop) -> None:
    """A refresh is how deleted and changed old rows are repaired; it must touch what was asked for alone."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)", *(f"insert into orders values ({n}, 0)" for n in range(40)))
    project.one("orders")
    project.execute("delete from orders where id in (3, 15)", "update orders set value = 1 where id in (4, 16)")
    project.one("orders", keys=("10", "10"))
    rows = dict(project.rows("orders"))
    assert 15 not in rows and rows[16] == 1 and rows[3] == rows[4] == 0


def test_a_table_that_was_made_anew_is_recognised(shop: Shop) -> None:
    """Its rows below the watermark are unknown, and would be missing."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("drop table orders", "create table orders (id int primary key, value int)", "insert into orders values (1, 9), (3, 3)")
    line = project.one("orders", ok=False)
    assert line["status"] == "failed" and "dropped and created anew" in line["message"]


def test_values_of_every_type_arrive_unchanged_and_are_hashed_equally(shop: Shop) -> None:
    """A value that is rounded or shifted would be wrong in the lake; an audit would report a difference where there is none."""
    project = shop()
    types = [type_ for type_, _ in VALUES.values()]
    project.execute(f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(types))})")
    filled = ", ".join(f"c{i}" for i, type_ in enumerate(types) if type_ != "rowversion")
    values = ", ".join(value for type_, value in VALUES.values() if type_ != "rowversion")
    project.execute(f"insert into things (id, {filled}) values (1, {values})", "insert into things (id) values (2)")
    project.one("things")
    rows = {row[0]: row[1:] for row in project.rows("things")}
    for kind, found in zip(VALUES, rows[1], strict=True):
        assert kind == "rowversion" or found == SENT[kind][1], kind
    definition, table = project.definition("things"), project.table("things")
    head = table.head()
    assert head is not None
    source = SQLServerSource(definition.settings.address, definition.container, timezone="UTC", cuts_times=True)
    with open_session(project.spark_home, name="hashed rows") as spark, source, source.snapshot():
        hashed = source.snapshot_rows(definition.container, ()).hashed_rows(head.columns)
        found = compare(hashed, LakeHashedRows(lambda: spark, table, head.version, definition.container, head.columns), None, RowScope())
    assert found.equal and found.rows == 2, found


def test_an_audit_finds_what_is_wrong_in_the_lake_and_repairs_it(shop: Shop) -> None:
    """A row that no sync reads again stays wrong for ever, unless an audit finds it."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)", *(f"insert into orders values ({n}, {n})" for n in range(30)))
    project.one("orders")
    assert project.audit("orders")["orders"]["status"] == "equal"
    project.execute("update orders set value = -1 where id = 15", "delete from orders where id = 3")
    line = project.audit("orders")["orders"]
    assert line["status"] == "different" and set(line["partitions_different"]) == {"0", "10"}, line
    project.audit("orders", repair=True)
    project.assert_equal("orders")


def test_a_sweep_removes_deleted_rows(shop: Shop) -> None:
    """Rows that the source has deleted stay in the lake otherwise, as no sync reads them again."""
    project = shop(incremental=["orders:rv:integer!upsert"], containers={"orders": {"deletes": "sweep", "max_deleted_share": 1.0}})
    project.execute(ORDERS, *(f"insert into orders (value) values (N'{n}')" for n in range(30)))
    project.one("orders")
    project.execute("delete from orders where id in (3, 17)")
    project.one("orders", sweep=True)
    project.assert_equal("orders")


def test_a_soft_sweep_marks_deleted_rows(shop: Shop) -> None:
    """The mark is a column that the source does not have."""
    project = shop(incremental=["orders:id:integer!upsert"], containers={"orders": {"deletes": "soft", "max_deleted_share": 1.0}})
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("delete from orders where id = 1")
    project.one("orders", sweep=True)
    marks = dict(project.rows("orders", "id, _deleted_at"))
    assert marks[1] is not None and marks[2] is None


def test_a_container_may_be_partitioned_by_another_column(shop: Shop) -> None:
    """A row that moves must be counted in both months, and a refresh of one must replace that month's rows, and no others."""
    by_month = {"column": "ordered", "every": "month"}
    entry = {"table": "orders", "column": "rv", "type": "integer", "strategy": "upsert", "partition_by": by_month}
    project = shop(incremental=[entry])
    project.execute(
        "create table orders (id int primary key, ordered date, value int, rv rowversion)",
        *(f"insert into orders (id, ordered, value) values ({n}, '2026-0{n % 3 + 1}-05', 0)" for n in range(30)),
    )
    assert project.one("orders")["partitions"][:3] == ["2026-01-01", "2026-02-01", "2026-03-01"]
    project.execute("update orders set ordered = '2026-02-07' where id = 0", "insert into orders (id, value) values (99, 1)")
    assert project.one("orders")["partitions"] == ["2026-01-01", "2026-02-01"]
    project.assert_equal("orders", "id, ordered, value")
    project.execute("delete from orders where id = 4")
    assert project.one("orders", keys=("2026-02-01", "2026-02-01"))["rows_deleted"] == 1
    assert project.audit("orders")["orders"]["status"] == "equal"


def test_rows_too_large_for_memory_are_written_all_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the estimate took for few go into files in the middle of the read, and none may be lost on the way."""
    monkeypatch.setattr("incremental_assets.databases.rows.MOST_LOCAL_BYTES", 100_000)
    project = shop(incremental=["orders:id:integer!upsert"])
    project.execute("create table orders (id int primary key, value nvarchar(max))")
    project.execute(*(f"insert into orders values ({n}, replicate(cast(N'{n % 10}' as nvarchar(max)), 10000))" for n in range(50)))
    project.one("orders")
    project.assert_equal("orders")
    project.execute(*(f"insert into orders values ({n}, replicate(cast(N'x' as nvarchar(max)), 10000))" for n in range(50, 90)))
    project.one("orders")
    project.assert_equal("orders")


def test_columns_that_come_are_added_and_a_dropped_one_is_null(shop: Shop) -> None:
    """An ALTER in the source must neither stop the syncs nor shift values into other columns."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int, old int)", "insert into orders values (1, 10, 100), (2, 20, 200)")
    project.one("orders")
    project.execute(
        "alter table orders drop column old", "alter table orders add more varchar(5)", "insert into orders values (3, 30, 'x')"
    )
    project.one("orders", stale=True)
    assert sorted(project.rows("orders", "id, value, old, more")) == [(1, 10, 100, None), (2, 20, None, None), (3, 30, None, "x")]


def test_older_rows_of_a_new_column_are_listed(shop: Shop) -> None:
    """The source fills a new column with its default in rows that no sync reads again: they are NULL in the lake until a refresh."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)")
    project.execute(*(f"insert into orders values ({n}, 0)" for n in range(30)))
    project.one("orders")
    project.execute("alter table orders add more int default 5 with values", "update orders set more = null where id between 10 and 19")
    line = project.one("orders")
    assert "more" in line["message"] and "0" in line["message"], line["message"]
    for key in ("0", "20"):
        project.one("orders", keys=(key, key))
    project.assert_equal("orders", "id, value, more")


def test_a_table_that_was_renamed_or_truncated_is_named(shop: Shop) -> None:
    """Its rows in the lake must stay, and the message must say what to do."""
    project = shop(incremental=["orders:id:integer"])
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("truncate table orders", "insert into orders values (1, 9)")
    line = project.one("orders", ok=False)
    assert line["status"] == "failed" and "fallen back" in line["message"] and "--reset-watermarks" in line["message"]
    project.execute("exec sp_rename 'orders', 'orders2'")
    line = project.one("orders", ok=False, stale=True)
    assert line["status"] == "failed" and "incremental-assets catalog" in line["message"], line["message"]


def test_a_wrong_password_is_not_shown(shop: Shop) -> None:
    """The message must say what to do, and logs are read by people who must not know the password."""
    project = shop()
    project.execute("create table orders (id int primary key)")
    user, host = quote(project.address.user, safe=""), f"{project.address.host}:{project.address.port}"
    project.url = f"sqlserver://{user}:s3cr3t%2Fword@{host}/{project.address.database}?{urlencode(dict(project.address.options))}"
    with pytest.raises(SourceError, match="password") as refused:
        project.catalog()
    assert "s3cr3t" not in str(refused.value) and "s3cr3t" not in repr(project.component.settings())


def test_the_catalog_proposes_what_sql_server_says_of_itself(shop: Shop) -> None:
    """A rowversion and an identity column are what tells new rows from old in SQL Server."""
    project = shop()
    project.execute(
        "create table changes (id int primary key, value int, rv rowversion)",
        "create table arrivals (id bigint identity primary key, value int)",
    )
    found = {one.table.name: one.proposal for one in project.catalog()}
    assert (found["changes"].columns, found["changes"].strategy.value, found["changes"].trusted) == (("rv",), "upsert", True)
    assert (found["arrivals"].columns, found["arrivals"].strategy.value) == (("id",), "append")
