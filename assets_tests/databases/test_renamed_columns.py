"""Columns of the source that take each other's names between two syncs: a column is its number, and not its name.

Belongs here: renamed columns, and columns that were dropped and added again. Does not belong: added, widened and dropped columns
(``test_schema_changes``), and tables that were made anew (``test_source_trouble``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.plan import Mode
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import STATE_PROPERTY

MakeProject = Callable[..., Project]
ORDERS = """create table o (id int primary key, at date not null, net int, gross int, secret int);
    insert into o select i, date '2026-01-01' + i, 1, 2, 3 from generate_series(1, 100) i"""
NEWER = "insert into o values (101, '2026-06-01', 10, 20, 30)"
SWAP = "alter table o rename net to x; alter table o rename gross to net; alter table o rename x to gross"
ANEW = "alter table o drop gross; alter table o add gross int"


def loaded(project: MakeProject, table: str = ORDERS, incremental: str = "public.o:at:date", **attributes: Any) -> Project:
    shop = project(**{"incremental": [incremental], "containers": {"o": {"partition_by": "month"}}, **attributes})
    shop.execute(table)
    assert shop.one("o")["rows_read"] == 100
    return shop


def forget_numbers(shop: Project) -> None:
    """Lets the state of the table be that of an earlier version."""
    table, container = shop.table("o"), shop.definition("o").container
    head = table.head()
    state = head.state(container) if head is not None else None
    assert head is not None and state is not None and state.numbers is not None
    assert set_property_without_spark(table, head.version, STATE_PROPERTY, replace(state, numbers=None).to_json(container.cursor_type))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (SWAP, "net was renamed to gross, gross was renamed to net"),
        (ANEW, "gross was dropped and added anew"),
        *long(("alter table o rename gross to total", "gross was renamed to total")),
    ],
    ids=["swap", "anew", "other name"],
)
@pytest.mark.parametrize(
    ("incremental", "attributes"),
    [
        ("public.o:at:date", {}),
        *long(
            ("public.o:at:date!upsert", {}),
            ("public.o:id:integer!upsert", {"containers": {"o": {"deletes": "sweep", "deletes_every": "1 day"}}}),
            ("public.o:at:date", {"containers": {"o": {"safety_lag": 10}}}),
        ),
    ],
)
def test_a_column_that_takes_another_name_loads_anew(
    project: MakeProject, change: str, words: str, incremental: str, attributes: dict[str, Any]
) -> None:
    """Rows below the watermark would keep the other column's values, or those of a column that is gone."""
    shop = loaded(project, incremental=incremental, **attributes)
    version = shop.table("o").commits(1)[-1].version
    shop.execute(f"{change}; {NEWER}")
    line = shop.one("o")
    assert line["rows_read"] == 101 and "loads the whole container anew" in line["message"] and words in line["message"], line
    shop.assert_equal("o")
    written = shop.table("o").data_commits_since(version)
    assert len(written) == 1, "a reader would see rows of both"
    assert shop.one("o")["status"] == "skipped"


def test_a_column_that_comes_back_after_a_sync_is_another_one(project: MakeProject) -> None:
    """The sync in between has left the dropped column's values in the lake, which the new one never had."""
    shop = loaded(project)
    shop.execute(f"alter table o drop gross; {NEWER.replace(', 20', '')}")
    assert shop.one("o")["rows_read"] < 10, "a column that is gone is no reason to load anew"
    shop.execute("alter table o add gross int; insert into o (id, at) values (102, '2026-06-02')")
    line = shop.one("o")
    assert "gross was dropped and added anew" in line["message"] and line["rows_read"] == 102, line
    shop.assert_equal("o")


def test_columns_that_are_not_read_may_be_renamed(project: MakeProject) -> None:
    """A large table would be loaded anew because of a column that is not in the lake; and its values would come under a name that is."""
    shop = loaded(project, containers={"o": {"exclude_columns": ["secret"]}})
    shop.execute(f"alter table o rename secret to hidden; {NEWER}")
    shop.configure(containers={"o": {"exclude_columns": ["hidden"]}})
    line = shop.one("o")
    assert line["rows_read"] < 10 and "anew" not in line["message"], line
    shop.execute("alter table o rename hidden to x; alter table o rename net to hidden; alter table o rename x to net")
    line = shop.one("o")
    assert "net was dropped and added anew" in line["message"] and line["rows_read"] == 101
    assert {row[0] for row in shop.rows("o", "net")} == {3, 30}


@pytest.mark.long
def test_a_refresh_of_some_partitions_does_not_pass_for_one_of_all(project: MakeProject) -> None:
    """The other partitions still have the values of the other column."""
    shop = loaded(project)
    shop.execute(SWAP)
    shop.one("o", mode=Mode.REFRESH, keys=("2026-01-01", "2026-01-01"))
    assert len(set(shop.rows("o", "net, gross"))) == 2
    shop.one("o")
    shop.assert_equal("o")


def test_columns_that_are_renamed_after_the_plan_are_not_mixed(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of one sync would have the values of the other column, and no later sync would find them."""
    shop = loaded(project)
    shop.execute(NEWER)
    real = PostgresReader.snapshot

    def snapshot(self: PostgresReader) -> Any:
        monkeypatch.undo()
        shop.execute(SWAP)
        return real(self)

    monkeypatch.setattr(PostgresReader, "snapshot", snapshot)
    line = shop.one("o", ok=False)
    assert line["status"] == "failed" and "renamed" in line["message"] and "sync again" in line["message"], line
    assert len(shop.rows("o")) == 100
    assert shop.one("o")["rows_read"] == 101
    shop.assert_equal("o")


def test_a_lake_of_an_earlier_version_learns_the_numbers_and_says_so(project: MakeProject) -> None:
    """Nothing may be loaded anew without need after an upgrade, and who has renamed columns before must hear how to find it."""
    shop = loaded(project)
    forget_numbers(shop)
    shop.execute(NEWER)
    line = shop.one("o")
    assert line["status"] == "synced" and line["rows_read"] < 10 and "incremental-assets audit shop/o --repair" in line["message"], line
    shop.execute(f"{SWAP}; {NEWER.replace('101', '102')}")
    assert shop.one("o")["rows_read"] == 102
    shop.assert_equal("o")


@pytest.mark.parametrize("change", [SWAP, ANEW.replace("gross", "net")], ids=["swap", "anew"])
def test_a_lake_of_an_earlier_version_knows_the_order_of_its_columns(project: MakeProject, change: str) -> None:
    """An upgrade and a change of the columns may come at the same time."""
    shop = loaded(project)
    forget_numbers(shop)
    shop.execute(f"{change}; {NEWER}")
    assert shop.one("o")["rows_read"] == 101
    shop.assert_equal("o")


def test_a_sync_with_nothing_to_do_learns_the_numbers(project: MakeProject) -> None:
    """Columns that are renamed after an upgrade, and before the next new row, would not be noticed."""
    shop = loaded(project)
    forget_numbers(shop)
    assert shop.one("o")["status"] == "skipped"
    shop.execute("alter table o drop secret; alter table o add secret int")
    assert "secret was dropped and added anew" in shop.one("o")["message"]
    shop.assert_equal("o")
