"""Rows that the source has deleted below the watermark leave the lake, or are marked there, without a refresh.

Belongs here: what a sweep does to a container, from the YAML to the rows. Does not belong: histories with kills and others' writes
(``test_property``), and the texts of keys (``test_hashed_rows``).
"""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project

ORDERS = """
create table orders (id bigint primary key, updated_at timestamptz not null, note text);
insert into orders select g, '2026-01-01'::timestamptz + g * interval '1 hour', 'note ' || g from generate_series(1, 2000) g;
"""
ENTRY = "public.orders:updated_at:timestamp!upsert"


def made(project: Callable[..., Project], **container: Any) -> Project:
    """A project whose table ``orders`` has 2,000 rows, of four months, and has been synced."""
    shop = project(incremental=[ENTRY], containers={"orders": {"partition_by": "month", **container}})
    shop.execute(ORDERS)
    assert shop.one("orders")["rows_inserted"] == 2000
    return shop


def test_a_row_that_was_deleted_below_the_watermark_leaves_the_lake(project: Callable[..., Project]) -> None:
    shop = made(project, deletes="sweep")
    shop.execute("delete from orders where id in (7, 800, 1999)")
    line = shop.one("orders", sweep=True)
    assert (line["status"], line["rows_deleted"]) == ("synced", 3), line
    assert line["partitions"] == ["2026-01-01", "2026-02-01", "2026-03-01"], "the partitions that lost rows have an event"
    shop.assert_equal("orders")
