"""Rows of a container with the strategy append whose identifier is given a value below the watermark, or loses its own.

Belongs here: what becomes of such rows in a sync and in a refresh. Does not belong: the same of an upsert (``test_refresh``,
``test_sync``).
"""

from collections.abc import Callable

import pytest

from assets_tests.harness import Project, long

MakeProject = Callable[..., Project]
PARCELS = """create table parcels (id int, shipped_at timestamptz, note text);
insert into parcels select i, timestamptz '2026-01-01 12:00Z' + i * interval '1 day', 'n' from generate_series(1, 60) i;
insert into parcels select i, null, 'waits' from generate_series(61, 64) i;"""
KEY = "alter table parcels add primary key (id)"
# What happens to the rows, and which of them are then below the watermark.
CHANGES = {
    "filled": "update parcels set shipped_at = '2026-01-05 08:00Z' where id = 61",
    "filled as others come": "update parcels set shipped_at = '2026-01-05 08:00Z' where id in (61, 62);"
    "insert into parcels values (70, null, 'new'), (71, '2026-03-20Z', 'new')",
    "of the tail": "update parcels set shipped_at = '2026-01-05 08:00Z', note = 'earlier' where id = 60",
    "deleted too": "update parcels set shipped_at = '2026-01-05 08:00Z' where id = 61; delete from parcels where id in (60, 62)",
    "filled above": "update parcels set shipped_at = '2026-03-20 08:00Z' where id = 61",
    "of another month": "update parcels set shipped_at = '2026-02-03 08:00Z' where id = 63; update parcels set shipped_at = null "
    "where id = 60",
}


def _shop(project: MakeProject, more: str = "") -> Project:
    shop = project(incremental=["public.parcels:shipped_at:timestamp"], containers={"parcels": {"partition_by": "month"}})
    shop.execute(PARCELS + more)
    shop.one("parcels")
    return shop


@pytest.mark.long
@pytest.mark.parametrize("change", ["filled", *long(*(name for name in CHANGES if name != "filled"))])
def test_a_row_whose_identifier_becomes_an_old_value_stays_in_the_lake(project: MakeProject, change: str) -> None:
    """`shipped_at` is filled in for a day below the watermark. The row has left what syncs read, and would be in the lake no more."""
    shop = _shop(project, KEY)
    shop.execute(CHANGES[change])
    shop.one("parcels")
    shop.assert_equal("parcels")
    assert shop.one("parcels")["status"] in ("skipped", "synced")
    shop.assert_equal("parcels")


@pytest.mark.long
def test_the_key_of_a_row_that_has_moved_may_be_any_column(project: MakeProject) -> None:
    """Spark's join puts the key first: the rows that are replaced would have values in wrong columns, and each sync would fail at them."""
    shop = project(incremental=["public.parcels:shipped_at:timestamp"], containers={"parcels": {"partition_by": "month"}})
    shop.execute(PARCELS.replace("id int, shipped_at timestamptz, note text", "shipped_at timestamptz, note text, id text primary key")
        .replace("into parcels select", "into parcels (id, shipped_at, note) select"))  # fmt: skip
    shop.one("parcels")
    shop.execute("update parcels set shipped_at = '2026-01-05 08:00Z' where id = '61'")
    line = shop.one("parcels")
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (0, 1, 0), line
    shop.assert_equal("parcels")


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_the_same_rows_stay_where_spark_reads_and_compares_them(project: MakeProject, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows are read and compared by Spark, which has to look up the same keys."""
    shop = _shop(project, KEY)
    shop.execute(CHANGES[change])
    monkeypatch.setenv("INCREMENTAL_ASSETS_READ_BY", "jdbc")
    shop.one("parcels")
    shop.assert_equal("parcels")


@pytest.mark.long
def test_a_refresh_writes_a_row_once_that_is_in_the_lake_twice(project: MakeProject) -> None:
    """A row of January that was dated to March is in the lake in both months, as no sync reads January again. The refresh of January must
    not add it once more, and the partitions that it reports must be right."""
    shop = _shop(project, KEY)
    shop.execute("update parcels set shipped_at = '2026-03-20Z' where id = 5; update parcels set shipped_at = '2026-02-20Z' where id = 6")
    shop.one("parcels")
    line = shop.one("parcels", keys=("2026-01-01", "2026-01-01"))
    assert line["partitions"] == ["2026-01-01", "2026-02-01", "2026-03-01"], line
    shop.assert_equal("parcels")


@pytest.mark.long
def test_a_month_whose_rows_have_all_moved_is_not_refused_as_emptied(project: MakeProject) -> None:
    """All rows of a month were dated to another one. None of them is lost, so its refresh needs no permission."""
    shop = _shop(project, KEY)
    shop.execute("update parcels set shipped_at = shipped_at + interval '31 days' where shipped_at < '2026-02-01'")
    shop.one("parcels", keys=("2026-01-01", "2026-01-01"))
    shop.assert_equal("parcels")
    shop.execute("delete from parcels where shipped_at < '2026-03-01'")
    refused = shop.one("parcels", keys=("2026-02-01", "2026-02-01"), ok=False)
    assert refused["status"] == "failed" and "--allow-empty" in refused["message"], refused


def test_a_row_without_key_that_leaves_the_tail_is_warned_of(project: MakeProject) -> None:
    """Without a primary key the row cannot be looked up: it is in the lake no more, and nobody would know."""
    shop = _shop(project)
    shop.execute(CHANGES["filled as others come"])
    line = shop.one("parcels")
    assert line["status"] == "warning" and "no longer there, and removed: 2 rows at or above the watermark" in line["message"], line
    assert "audit shop/parcels --repair" in line["message"] and "primary_key" in line["message"]
    assert shop.compare("parcels").only_in_source == 2
    shop.execute("update parcels set shipped_at = '2026-03-21 08:00Z' where id = 63; insert into parcels values (80, null, 'new')")
    assert shop.one("parcels")["status"] == "synced"  # it has moved to where syncs read it
    shop.audit("parcels", repair=True)
    shop.assert_equal("parcels")
