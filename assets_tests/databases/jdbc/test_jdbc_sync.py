"""Syncs of tables of H2 and Derby through JDBC: by each strategy, with audits and sweeps, and what is refused.

Belongs here: all that is the same for every database. Does not belong: values of types (``test_jdbc_types``).
"""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.databases.jdbc.project import DERBY, H2, POSTGRES, JdbcProject
from assets_tests.harness import long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode

ORDERS = 'create table "Orders" ("ID" int primary key, "NOTE" varchar(20), "MOMENT" timestamp)'
TEXTS = ["it''s", "back\\slash", "ü😀", "", "$${x}"]


@pytest.mark.parametrize(
    "server",
    [POSTGRES, *long(H2, DERBY)],
    ids=lambda kind: kind.name,
    indirect=True,
)
def test_only_what_is_new_is_read_and_an_audit_finds_both_sides_equal(shop: Callable[..., JdbcProject]) -> None:
    """Without it, each sync would read the whole table again, or rows would be missing or doubled."""
    project = shop(incremental=["Orders:ID:integer"], containers={"Orders": {"partition_by": 10}})
    project.execute(ORDERS, *(f'insert into "Orders" ("ID", "NOTE") values ({n}, \'{text}\')' for n, text in enumerate(TEXTS)))
    first = project.one("Orders")
    assert first["status"] == "synced" and first["rows_read"] == len(TEXTS)
    assert [row[1] for row in sorted(project.rows("Orders"))] == [text.replace("''", "'") for text in TEXTS]
    assert project.one("Orders")["status"] == "skipped"
    project.execute('insert into "Orders" ("ID", "NOTE") values (15, \'d\'), (16, \'e\')')
    assert project.one("Orders")["rows_read"] == 3  # the watermark is the highest row itself
    assert project.audit("Orders")["Orders"]["status"] == "equal"


@pytest.mark.long
def test_an_audit_finds_what_no_sync_sees_and_a_refresh_repairs_it(shop: Callable[..., JdbcProject]) -> None:
    project = shop(incremental=["Orders:ID:integer"], containers={"Orders": {"partition_by": 10}})
    project.execute(ORDERS, *(f"insert into \"Orders\" (id, note) values ({n}, 'a')" for n in range(14)))
    project.one("Orders")
    project.execute("update \"Orders\" set note = 'other' where id = 1", 'delete from "Orders" where id = 2')
    found = project.audit("Orders")["Orders"]
    assert found["status"] == "different" and "0" in str(found), found
    project.one("Orders", keys=("0", "0"))
    assert project.audit("Orders")["Orders"]["status"] == "equal"


@pytest.mark.long
def test_an_upsert_follows_times_and_a_row_within_the_lag_is_found(shop: Callable[..., JdbcProject]) -> None:
    """Nobody knows who is open: a row that is committed late, below the watermark, must be found by the lag."""
    project = shop(incremental=["Orders:MOMENT:timestamp!upsert"], containers={"Orders": {"safety_lag": 60, "primary_key": ["ID"]}})
    rows = [f"insert into \"Orders\" values ({n}, 'first', {{ts '2024-01-01 10:00:{n:02d}.000001'}})" for n in range(20)]
    project.execute(ORDERS, *rows)
    project.one("Orders")
    project.execute(
        "update \"Orders\" set note = 'second', moment = {ts '2024-01-01 10:00:30'} where id = 7",
        "insert into \"Orders\" values (99, 'late', {ts '2024-01-01 09:59:40'})",
    )
    project.one("Orders")
    found = {row[0]: row[1] for row in project.rows("Orders")}
    assert len(found) == 21 and found[7] == "second" and found[99] == "late"
    assert project.audit("Orders")["Orders"]["status"] == "equal"


@pytest.mark.long
def test_rows_without_identifier_are_read_each_time(shop: Callable[..., JdbcProject]) -> None:
    """They belong to no window, and would be lost for ever."""
    project = shop(incremental=["Orders:MOMENT:timestamp"])
    project.execute(ORDERS, "insert into \"Orders\" values (1, 'a', {ts '2024-01-01 10:00:00'}), (2, 'b', null)")
    project.one("Orders")
    project.execute("insert into \"Orders\" values (3, 'c', null)")
    project.one("Orders")
    assert sorted(row[0] for row in project.rows("Orders")) == [1, 2, 3]


@pytest.mark.long
def test_a_table_without_identifier_is_replaced_whole_and_skipped_if_nothing_changed(shop: Callable[..., JdbcProject]) -> None:
    """A snapshot that keeps deleted rows, or that is written again although nothing has changed, is of no use."""
    project = shop()
    project.execute(ORDERS, "insert into \"Orders\" (id, note) values (1, 'a'), (2, 'b')")
    project.one("Orders")
    assert project.one("Orders")["status"] == "skipped"
    project.execute('delete from "Orders" where id = 1', "update \"Orders\" set note = 'c'")
    project.one("Orders")
    assert project.rows("Orders", '"ID", "NOTE"') == [(2, "c")]


@pytest.mark.long
def test_a_refresh_of_an_upsert_finds_rows_that_have_moved(shop: Callable[..., JdbcProject]) -> None:
    """A row whose time has changed belongs to another partition; a refresh of the old one must not delete it."""
    containers = {"Orders": {"primary_key": ["ID"], "partition_by": "month"}}
    project = shop(incremental=["Orders:MOMENT:timestamp!upsert"], containers=containers)
    project.execute(ORDERS, *(f"insert into \"Orders\" values ({n}, 'a', {{ts '2024-01-0{n} 00:00:00'}})" for n in range(1, 6)))
    project.one("Orders")
    project.execute("update \"Orders\" set moment = {ts '2024-02-05 00:00:00'} where id = 2", 'delete from "Orders" where id = 3')
    project.one("Orders", keys=("2024-01-01", "2024-01-01"), mode=Mode.REFRESH)
    assert sorted(row[0] for row in project.rows("Orders")) == [1, 2, 4, 5]
    assert project.audit("Orders")["Orders"]["status"] == "equal"


@pytest.mark.long
def test_a_sweep_removes_what_the_source_has_deleted(shop: Callable[..., JdbcProject]) -> None:
    """A row that the source has deleted would stay in the lake for ever."""
    containers = {"Orders": {"primary_key": ["NOTE"], "deletes": "sweep", "max_deleted_share": 1}}
    project = shop(incremental=["Orders:MOMENT:timestamp!upsert"], containers=containers)
    project.execute(
        'create table "Orders" (id int, note varchar(20) not null primary key, moment timestamp)',
        *(f"insert into \"Orders\" values ({n}, '{text}', {{ts '2024-01-01 00:00:0{n}'}})" for n, text in enumerate(TEXTS)),
    )
    project.one("Orders")
    project.execute('delete from "Orders" where id in (1, 2)')
    project.one("Orders", sweep=True)
    assert sorted(row[0] for row in project.rows("Orders")) == [0, 3, 4]


@pytest.mark.long
def test_a_column_that_comes_is_added(shop: Callable[..., JdbcProject]) -> None:
    """An ALTER in the source must neither stop the syncs nor shift values into other columns."""
    project = shop(incremental=["Orders:ID:integer"])
    project.execute(ORDERS, "insert into \"Orders\" (id, note) values (1, 'a'), (2, 'b')")
    project.one("Orders")
    project.execute('alter table "Orders" add column more int default 5', "insert into \"Orders\" (id, note) values (3, 'c')")
    line = project.one("Orders", stale=True)
    assert "MORE" in line["message"], line["message"]
    project.one("Orders", mode=Mode.REFRESH)
    assert {row[0]: row[3] for row in project.rows("Orders")} == {1: 5, 2: 5, 3: 5}


@pytest.mark.long
def test_a_key_that_comes_twice_is_refused(shop: Callable[..., JdbcProject]) -> None:
    """JDBC does not say whether a key is one: merged by a wrong one, rows would replace each other."""
    project = shop(incremental=["Orders:ID:integer!upsert"], containers={"Orders": {"primary_key": ["NOTE"]}})
    project.execute(ORDERS, "insert into \"Orders\" (id, note) values (1, 'a'), (2, 'a')")
    line = project.one("Orders", ok=False)
    assert line["status"] == "failed" and "occurs twice" in line["message"], line["message"]


@pytest.mark.long
def test_a_missing_lag_is_refused(shop: Callable[..., JdbcProject]) -> None:
    """Rows that are committed late are found by the lag alone, and nobody but the user knows how late that may be."""
    project = shop(incremental=["Orders:ID:integer"], safety_lag_seconds="auto")
    project.execute(ORDERS)
    with pytest.raises(ConfigurationError, match=r"shop/Orders: safety_lag is missing.*containers: \{Orders: \{safety_lag: <values>"):
        project.catalog()


@pytest.mark.long
@pytest.mark.parametrize("options", [{"capture": "log"}, {"hold_back": "writers"}, {"readers": 4}], ids=lambda options: next(iter(options)))
def test_what_cannot_be_done_is_refused_at_load_time(options: dict[str, Any], shop: Callable[..., JdbcProject]) -> None:
    """Accepted and then not done, the user would rely on it."""
    project = shop(incremental=["Orders:ID:integer!upsert"], containers={"Orders": {"primary_key": ["ID"], **options}})
    project.execute(ORDERS)
    with pytest.raises(ConfigurationError):
        project.catalog()


@pytest.mark.long
def test_a_table_that_is_gone_is_named_and_a_wrong_password_is_not_shown(shop: Callable[..., JdbcProject]) -> None:
    """The message must say what to do, and logs are read by people who must not know the password."""
    project = shop(incremental=["Orders:ID:integer"])
    project.execute(ORDERS, "insert into \"Orders\" (id, note) values (1, 'a')")
    project.one("Orders")
    project.execute('drop table "Orders"')
    line = project.one("Orders", ok=False, stale=True)
    assert line["status"] == "failed" and "incremental-assets catalog" in line["message"], line["message"]
    project.password = "s3cr3t/word"
    if project.server.kind.name == "h2":  # Derby takes any password, unless it is configured otherwise
        with pytest.raises(Exception, match="Check url, user and password") as refused:
            project.catalog()
        assert "s3cr3t" not in str(refused.value)
    assert "s3cr3t" not in repr(project.component.settings())


@pytest.mark.long
def test_a_view_that_is_named_is_a_container(shop: Callable[..., JdbcProject]) -> None:
    """Spark's list of a schema has tables alone, so that a view has to be named."""
    project = shop(views=["SHOWN"])
    project.execute(ORDERS, 'create view shown as select id from "Orders"', "insert into \"Orders\" (id, note) values (1, 'a')")
    assert set(project.sync()) == {"Orders", "SHOWN"}
    assert project.rows("SHOWN") == [(1,)]
