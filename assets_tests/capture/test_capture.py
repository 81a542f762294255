"""A container with ``capture: log`` follows the log of its source: no change is lost, deletes arrive, and nothing is read twice in vain."""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project

MakeProject = Callable[..., Project]
TABLE = """create table orders (id int primary key, day date not null, note text, doc text);
  insert into orders select i, date '2026-01-01' + i % 90, 'n' || i from generate_series(1, 900) i"""


def set_up(project: Project, *tables: str) -> None:
    project.execute(f"create publication incremental_assets_shop for table {', '.join(tables)}")
    project.execute("select pg_create_logical_replication_slot('incremental_assets_shop', 'pgoutput')")


@pytest.fixture(params=["with partitions", "without"])
def shop(request: Any, project: MakeProject) -> Project:
    made = project(incremental=["public.orders:day:date"] if request.param == "with partitions" else [], capture="log")
    made.execute(TABLE)
    set_up(made, "orders")
    return made


def test_inserts_updates_and_deletes_arrive(shop: Project) -> None:
    """Rows would be missing, stale, or still there."""
    first = shop.one("orders")
    assert (first["status"], first["rows_read"]) == ("synced", 900), first
    shop.assert_equal("orders")
    shop.execute("insert into orders values (1001, '2026-02-01', 'new'); update orders set note = 'changed' where id in (5, 6)")
    shop.execute("delete from orders where id = 7; update orders set id = 2000 where id = 8")
    line = shop.one("orders")
    assert line["status"] == "synced", line
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (2, 2, 2), line
    shop.assert_equal("orders")
    assert shop.one("orders")["status"] == "skipped"
