"""Tables that come after the first catalog: announced, or taken in, as ``on_new_table`` says.

Belongs here: which of them become containers, and where people are told of the others. Elsewhere: other differences (``test_catalog``).
"""

from collections.abc import Callable
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.catalog import detect
from incremental_assets.catalog.operation import announced

MakeProject = Callable[..., Project]
TABLE = "create table {0} (id bigint generated always as identity primary key); insert into {0} select from generate_series(1, 3)"


def containers(project: Project) -> list[str]:
    """Those of the catalog that this takes."""
    return [one.table.name for one in project.catalog()]


@pytest.fixture
def shop(project: MakeProject) -> Project:
    """A datastore whose catalog was taken before ``invoices`` came."""
    made = project(on_new_table="announce")
    made.execute(TABLE.format("orders"))
    return made


def later(shop: Project, *names: str) -> None:
    assert "orders" in containers(shop)
    for name in names:
        shop.execute(TABLE.format(name))


def told(records: list[dict[str, Any]]) -> dict[str, str]:
    return {one["container"]: one["not_synced"] for one in records if one["not_synced"]}


def test_a_table_that_comes_later_is_told_everywhere_and_synced_once_it_is_named(shop: Project) -> None:
    """Nobody wants 40 GB of a table that a developer made this morning in the lake unasked, and nobody wants to learn in a month that a
    table was never synced."""
    shop.execute(TABLE.format("region"))
    shop.write()
    shop.cli("catalog", "shop", spark=False)
    shop.execute(TABLE.format("invoices"))
    _, records, _ = shop.cli("catalog", "shop", "--json", spark=False)
    [why] = told(records).values()
    assert list(told(records)) == ["shop/invoices"] and why.startswith("new since 20") and "not synced: on_new_table is announce" in why
    invoices = next(one for one in records if one["container"] == "shop/invoices")
    assert (invoices["status"], invoices["change"]) == ("announced", "announced")
    assert invoices["proposal"]["entry"] == '"public.invoices:id:integer"'
    _, status, said = shop.cli("status", "--json", spark=False)
    assert [one["container"] for one in status] == ["shop/orders", "shop/region"]
    assert said.count("1 new table is not synced: shop/invoices. To sync it, name it in the YAML: containers: {invoices: {}}") == 1
    _, problems, _ = shop.cli("alerts", "--json", spark=False, check=1)
    [problem] = [one for one in problems if "new tables" in one["problem"]]
    assert problem["severity"] == "warning" and problem["text"].startswith("shop: 1 new table is not synced: invoices, new since 20")
    _, planned, said = shop.cli("sync", "shop", "--dry-run", "--json", spark=False)
    assert [one["container"] for one in planned] == ["shop/orders", "shop/region"] and "reads the catalog" not in said
    shop.configure(containers={"invoices": {}})
    shop.write()
    _, status, said = shop.cli("status", "--json", spark=False)
    assert "shop/invoices" in [one["container"] for one in status] and "new table" not in said, "it is a container at the next load"
    _, records, _ = shop.cli("catalog", "shop", "--json", spark=False)
    assert [one["status"] for one in records] == ["present"] * 3 and records[0]["change"] == "new"


def test_a_named_table_is_synced_and_stays_so(shop: Project) -> None:
    """Its entry was made before anybody wanted it."""
    later(shop, "invoices")
    assert containers(shop) == ["orders"]
    shop.configure(incremental=["public.invoices:id:integer"])
    assert shop.one("invoices")["rows_inserted"] == 3
    assert containers(shop) == ["invoices", "orders"]


def test_a_named_table_is_no_new_one_before_the_next_catalog_either(shop: Project) -> None:
    """A schedule syncs it without a catalog: with an identifier that is chosen again, all would have to be loaded anew, and a table that is
    away for one look would be forgotten."""
    later(shop, "invoices")
    containers(shop)
    shop.configure(containers={"invoices": {}}, identifiers="auto")
    assert shop.one("invoices", stale=True)["rows_inserted"] == 3
    shop.execute("drop table invoices")
    gone = shop.definition("invoices")
    assert gone.missing_since is not None
    shop.execute(TABLE.format("invoices"))
    assert containers(shop) == ["invoices", "orders"] and shop.definition("invoices").missing_since is None


def test_the_tables_of_a_schema_that_was_empty_are_its_first_ones(project: MakeProject) -> None:
    """A project that is set up before the application's migrations have run would sync nothing, ever."""
    made = project(on_new_table="announce")
    assert containers(made) == []
    made.execute(TABLE.format("orders"))
    assert containers(made) == ["orders"]


def test_a_table_that_is_excluded_is_no_longer_told(shop: Project) -> None:
    """An alert about what was decided long ago is one that nobody reads. Who takes it out of `exclude` again wants it."""
    later(shop, "invoices", "scratch")
    shop.write()
    shop.cli("catalog", "shop", spark=False)
    assert containers(shop) == ["orders"]
    shop.configure(exclude=["scratch"], containers={"invoices": {}})
    assert containers(shop) == ["invoices", "orders"]
    shop.configure(exclude=[])
    assert containers(shop) == ["invoices", "orders", "scratch"]


def test_load_takes_in_what_is_small_and_announces_what_is_large(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup table of 20 rows needs nobody's decision, and 40 GB do."""
    shop.configure(on_new_table="load")
    later(shop, "invoices")
    assert containers(shop) == ["invoices", "orders"]
    monkeypatch.setattr(detect, "WHOLE_BYTES", 0)
    shop.execute(TABLE.format("events"))
    assert containers(shop) == ["invoices", "orders"]
    [(_, why)] = announced(shop._catalog, shop.component.declarations())
    assert "larger than" in why
    monkeypatch.undo()
    shop.execute("truncate events; insert into events select from generate_series(1, 3)")
    assert containers(shop) == ["events", "invoices", "orders"]


def test_a_table_that_is_back_is_not_new(shop: Project) -> None:
    """A nightly job that drops and creates its tables would end their syncs otherwise."""
    later(shop)
    shop.execute("drop table orders")
    containers(shop)
    shop.execute(TABLE.format("orders"))
    assert containers(shop) == ["orders"] and shop.definition("orders").missing_since is None


def test_an_announced_table_that_goes_leaves_nothing(shop: Project) -> None:
    """Nobody has decided about it, and nothing of it is in the lake."""
    later(shop, "scratch")
    containers(shop)
    shop.execute("drop table scratch")
    containers(shop)
    assert shop._catalog is not None and list(shop._catalog.by_name) == ["orders"]
