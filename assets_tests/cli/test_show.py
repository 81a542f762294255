"""``show``: what a user sees of a table, without Spark.

Belongs here: the command and its messages. Does not belong: what is in the table.
"""

from collections.abc import Callable

import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.delta.shown_rows import shown_rows

MakeProject = Callable[..., Project]


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(incremental=["public.orders:id:integer"])
    made.execute("""create table later (id int primary key);
        create table orders (id int primary key, note text, paid numeric(10,2), at timestamptz, odd bytea);
        insert into orders values (1, null, 1.50, '2026-03-01 10:00Z', '\\x00ff'), (4711, E'two\\nlines', 0.10, null, null)""")
    made.write()
    made.cli("catalog", "shop", spark=False)
    made.one("orders")
    return made


def test_rows_are_shown_without_spark(shop: Project) -> None:
    """Who has synced a first table could not look at it without writing a program."""
    _, lines, _ = shop.cli("show", "shop/orders", "--json", spark=False)
    assert sorted(lines, key=lambda line: line["id"]) == [
        {"id": 1, "note": None, "paid": "1.50", "at": "2026-03-01T10:00:00+00:00", "odd": "00ff"},
        {"id": 4711, "note": "two\nlines", "paid": "0.10", "at": None, "odd": None},
    ]
    query = "SELECT count(*) AS n, max(odd) AS odd FROM orders WHERE paid > 1"
    _, lines, said = shop.cli("show", "shop/orders", "--sql", query, "--json", spark=False)
    assert lines == [{"n": 1, "odd": "00ff"}] and "more rows" not in said
    shop.execute("insert into orders (id) values (4712)")
    shop.one("orders")
    _, lines, said = shop.cli("show", "shop/orders", "--limit", "2", "--json", spark=False)
    assert len(lines) == 2 and "more rows" in said
    _, lines, _ = shop.cli("show", "shop/orders", "--version", "1", "--json", spark=False)
    assert {line["id"] for line in lines} == {1, 4711}, "as it was"


def test_what_cannot_be_shown_is_said(shop: Project) -> None:
    """A stack trace of the engine would be the answer to a mistyped column."""
    table = shop.table("orders")
    for message, arguments in {
        "no version 99": (None, 20, 99),
        "nowhere": ("SELECT nowhere FROM orders", 20, None),
        "DELETE": ("DELETE FROM orders", 20, None),
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            shown_rows("shop/orders", table, "orders", *arguments)
    code, _, said = shop.cli("show", "shop/later", check=None, spark=False)
    assert code == 2 and "incremental-assets sync shop/later" in said, said
    assert len(shown_rows("shop/orders", table, "orders", None, 20, None).rows) == 2
