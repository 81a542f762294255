"""Publications by schema, for all tables, and of single partitions: what happens to a table there changes what the log has, silently.

Belongs here: those publications, and what becomes of a table meanwhile. Does not belong: ``capture setup`` (``test_setup``), and
publications that name the table alone (``test_capture``).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from assets_tests.capture.test_capture import SLOT, TABLE, loaded_anew
from assets_tests.harness import Project, long
from incremental_assets.core.capture import Shape

MakeProject = Callable[..., Project]
ALL = f"create publication {SLOT} for all tables"
SCHEMA = f"create publication {SLOT} for tables in schema public"
PARTED = """create table orders (id int primary key, note text) partition by range (id);
    create table low partition of orders for values from (0) to (100); create table high partition of orders for values from (100) to (200);
    insert into orders select n, 'n' from generate_series(1, 150) n"""
ROOT = f"create publication {SLOT} for table orders"
PARTS = f"create publication {SLOT} for table low, high"


def shop_of(project: MakeProject, publication: str, table: str = TABLE) -> Project:
    shop = project(containers={"orders": {"capture": "log"}})
    shop.execute(table)
    shop.execute(publication)
    shop.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    shop.one("orders")
    return shop


MEANWHILE = {
    "unlogged": (ALL, TABLE, "alter table orders set unlogged; {write}; alter table orders set logged"),
    "another schema": (
        SCHEMA, TABLE, "create schema away; alter table orders set schema away; {away}; alter table away.orders set schema public"),
    "out of a publication by schema": (
        SCHEMA,
        TABLE,
        f"alter publication {SLOT} drop tables in schema public; {{write}}; alter publication {SLOT} add tables in schema public",
    ),
    "a partition unlogged": (ROOT, PARTED, "alter table low set unlogged; {write}; alter table low set logged"),
    "a partition out": (
        PARTS, PARTED, f"alter publication {SLOT} drop table low; {{write}}; alter publication {SLOT} add table low"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("which", MEANWHILE)
def test_a_table_whose_changes_were_in_no_log_for_a_time_is_loaded_anew(project: MakeProject, which: str) -> None:
    """Its changes of that time would be lost, and each sync would say that the log has no change."""
    publication, table, meanwhile = MEANWHILE[which]
    shop = shop_of(project, publication, table)
    shop.execute("update orders set note = 'before' where id = 1")
    assert not loaded_anew(shop.one("orders"))
    write = "update orders set note = 'lost' where id in (2, 3)"
    for statement in meanwhile.format(write=write, away=write.replace("orders", "away.orders")).split(";"):
        shop.execute(statement)
    assert loaded_anew(shop.one("orders"))
    shop.assert_equal("orders")
    shop.execute("update orders set note = 'after' where id = 4")
    assert not loaded_anew(shop.one("orders"))
    shop.assert_equal("orders")


@pytest.mark.long
@pytest.mark.parametrize("publication", [ALL, *long(SCHEMA, ROOT, PARTS)])
def test_what_changes_nothing_loads_nothing_anew(project: MakeProject, publication: str) -> None:
    """VACUUM, ANALYZE and indexes come every night, and partitions every month."""
    shop = shop_of(project, publication, PARTED)
    for statement in ("vacuum low", "analyze low", "create index on low (note)", "update orders set note = 'x' where id in (1, 120)"):
        shop.execute(statement)
    assert not loaded_anew(shop.one("orders"))
    shop.execute("create table more partition of orders for values from (200) to (300)")
    if publication is PARTS:
        shop.execute(f"alter publication {SLOT} add table more")
    shop.execute("insert into orders values (250, 'new')")
    assert not loaded_anew(shop.one("orders"))
    shop.assert_equal("orders")


def test_a_partition_that_is_published_in_part_is_refused(project: MakeProject) -> None:
    """The rows that it leaves out would never arrive."""
    shop = shop_of(project, PARTS, PARTED)
    shop.execute(f"alter publication {SLOT} set table low where (id > 50), high")
    line = shop.one("orders", ok=False)
    assert line["status"] == "failed" and "leaves out rows or columns" in line["message"], line


def test_another_expression_of_a_virtual_column_loads_anew(project: MakeProject) -> None:
    """All rows have other values, and none of them is in the log or in the table's file."""
    made = (
        "create table orders (id int primary key, n int, twice int generated always as (n * 2) virtual); insert into orders values (1, 1)"
    )
    shop = shop_of(project, ALL, f"{made}, (2, 2)")
    shop.execute("alter table orders alter column twice set expression as (n * 3)")
    assert loaded_anew(shop.one("orders"))
    shop.assert_equal("orders")


def test_a_position_of_an_earlier_version_loads_nothing_anew() -> None:
    """It does not say how the table was published, which is no sign that anything has changed."""
    older = Shape.from_json({"columns": [[1, "id", "23:-1", "700", False]], "parts": [[5, 6, ""]]})
    now = Shape.from_json({"columns": [[1, "id", "23:-1", "700", False, "x"]], "parts": [[5, 6, "", "r1:2"]]})
    assert older.unlogged_change(now) is None and Shape.from_json(now.to_json()) == now
    assert now.unlogged_change(replace(now, parts={5: replace(now.parts[5], published="r1:3")})) is not None
