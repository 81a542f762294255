"""What a change of the YAML leaves behind is said: another ``partition_by``, another name of a datastore.

Belongs here: the warning, and what a refresh that it names does. Does not belong: ``adopt`` (``test_adopt``), and changes in the source
(``test_recreated``).
"""

from collections.abc import Callable

import dagster as dg

from assets_tests.harness import Project
from incremental_assets.core.plan import Mode

MakeProject = Callable[..., Project]
DAYS = """create table o (id int primary key, d date);
    insert into o select i, date '2026-01-01' + i from generate_series(0, 39) i"""


def shown(shop: Project) -> int:
    """Of how many days with rows Dagster has an event. First days are left out, as their keys are those of months, too."""
    with shop.instance() as instance:
        keys = instance.get_materialized_partitions(dg.AssetKey(["shop", "o"]))
    return sum(key <= "2026-02-09" and not key.endswith("-01") for key in keys)


def test_other_partitions_are_said_until_all_rows_are_shown_in_them(project: MakeProject) -> None:
    """Otherwise the UI shows a few days of many, as if the others were missing."""
    shop = project(incremental=["public.o:d:date"], containers={"o": {"partition_by": "month"}})
    shop.execute(DAYS)
    assert shop.one("o")["status"] == "synced"
    shop.configure(containers={"o": {"partition_by": "day"}})
    shop.execute("insert into o values (100, '2026-02-09')")
    line = shop.one("o")
    assert "partitions were those by month of d and are those by day of d now" in line["message"], line
    assert "incremental-assets sync shop/o --mode refresh" in line["message"], line
    before = shown(shop)
    assert "sync shop/o --mode refresh" in shop.one("o")["message"]  # also where there is nothing to do
    refreshed = shop.one("o", mode=Mode.REFRESH)
    assert "partitions were" not in refreshed["message"], refreshed
    assert (before, shown(shop)) == (1, 38)
    assert "partitions were" not in shop.one("o")["message"]
    shop.assert_equal("o")


def test_a_datastore_that_was_renamed_is_said_to_be_loaded_beside_its_old_tables(project: MakeProject) -> None:
    """Otherwise all is loaded once more, unnoticed, and the old tables stay as they were."""
    shop = project(incremental=["public.o:d:date"])
    shop.execute(DAYS)
    assert "already" not in shop.one("o")["message"]
    shop.configure(name="store")
    with_old = shop.one("o")
    assert "as shop/o already" in with_old["message"] and "incremental-assets adopt store --from shop" in with_old["message"], with_old
    assert "already" not in shop.one("o")["message"]
