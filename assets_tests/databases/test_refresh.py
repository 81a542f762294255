"""Refreshes read partitions, or a whole container, and replace them; and syncs whose catalog is out of date.

Belongs here: which rows a refresh replaces, and what the next sync still finds after it. Does not belong: how Dagster starts a refresh
(``test_dagster``).
"""

from collections.abc import Callable

import pytest

from assets_tests.harness import Project, long
from incremental_assets.core.plan import Mode

MakeProject = Callable[..., Project]
DAY = 86_400


def test_late_rows_inside_the_lag_are_found_after_a_refresh(project: MakeProject) -> None:
    """*Materialize* on the newest partition must not move the watermark past late rows that only the next sync would have read."""
    shop = project(incremental=["public.visits:day:date"], containers={"visits": {"partition_by": "month", "safety_lag": 3 * DAY}})
    shop.execute(
        "create table visits (id serial, day date); insert into visits (day) select date '2026-03-25' + i from generate_series(0, 7) i"
    )
    shop.one("visits")
    shop.execute("insert into visits (day) values ('2026-03-30')")  # the watermark is 1 April, the lag reaches down to 29 March
    shop.execute("insert into visits (day) select date '2026-04-02' + i from generate_series(0, 8) i")
    assert shop.one("visits", keys=("2026-04-01", "2026-04-01"))["rows_read"] >= 9
    shop.execute("insert into visits (day) values ('2026-04-10')")
    shop.one("visits")
    shop.assert_equal("visits")


def test_a_refresh_of_everything_removes_all_rows_that_are_gone(project: MakeProject) -> None:
    """A refresh must also remove partitions whose rows are all gone in the source, and update rows without identifier."""
    shop = project(
        incremental=["public.batches:batch:integer", "public.days:day:date"],
        containers={"batches": {"partition_by": "batch"}, "days": {"partition_by": "month"}},
    )
    shop.execute(
        """create table batches (id serial, batch int, note text);
        insert into batches (batch, note) select i % 6, 'b' from generate_series(6, 29) i;
        create table days (id serial, day date, note text);
        insert into days (day, note) select date '2026-01-15' + 31 * i, 'd' from generate_series(0, 5) i;
        insert into days (day, note) values (null, 'n')"""
    )
    shop.sync()
    shop.execute("delete from batches where batch in (0, 2)")
    shop.execute("delete from days where day > '2026-04-01'; update days set note = 'changed'")
    for line in shop.sync(mode=Mode.REFRESH).values():
        assert line["status"] in ("synced", "warning"), line  # the newest days are gone, which is a warning
    shop.assert_equal("batches")
    shop.assert_equal("days")
    assert sorted(shop.rows("days", "note")) == [("changed",)] * 4


@pytest.mark.parametrize("strategy", ["append", *long("upsert")])
def test_a_partition_among_others_is_not_emptied_without_permission(project: MakeProject, strategy: str) -> None:
    """A month that was deleted from the source by mistake must not be removed from the lake by the refresh of a half-year without
    permission, and must not keep the other months from being refreshed either."""
    entry = "public.days:day:date" + ("!upsert" if strategy == "upsert" else "")
    shop = project(incremental=[entry], containers={"days": {"partition_by": "month"}})
    shop.execute(
        """create table days (id serial primary key, day date not null, note text);
        insert into days (day, note) select date '2026-01-15' + 31 * i, 'old' from generate_series(0, 5) i"""
    )
    before = shop.one("days")
    shop.execute("delete from days where day between '2026-03-01' and '2026-03-31'; update days set note = 'new'")
    shop.execute("delete from days where day > '2026-05-01' and day < '2026-06-01'")  # it is empty in the lake, too, when it is asked for
    shop.one("days", keys=("2026-05-01", "2026-05-01"), allow_empty=True)
    version, half = shop.table("days").head().version, ("2026-01-01", "2026-06-01")  # pyright: ignore[reportOptionalMemberAccess]
    refused = shop.one("days", ok=False, keys=half)
    assert refused["status"] == "failed" and "the partition 2026-03-01, " in refused["message"], refused
    assert "--allow-empty" in refused["message"]
    assert refused["rows_updated"] == 4 and refused["rows_deleted"] == 0 and refused["watermark"]["new"] == before["watermark"]["new"]
    assert refused["partitions"] == ["2026-01-01", "2026-02-01", "2026-04-01", "2026-05-01", "2026-06-01"]
    assert len(shop.table("days").data_commits_since(version)) == 1
    assert sorted(shop.rows("days", "note")) == [("new",)] * 4 + [("old",)]
    assert shop.one("days", keys=half, allow_empty=True)["rows_deleted"] == 1
    shop.assert_equal("days")
    assert shop.one("days", keys=half)["status"] == "synced"  # a partition that is empty in source and lake needs no permission


def test_a_refresh_follows_rows_that_moved_to_another_partition(project: MakeProject) -> None:
    """A partition is empty in the source where its rows moved to another one. Its refresh needs no permission, as no row is deleted."""
    shop = project(incremental=["public.notes:updated_at:timestamp!upsert"], containers={"notes": {"partition_by": "month"}})
    shop.execute(
        """create table notes (id int primary key, note text, updated_at timestamptz not null);
        insert into notes select i, 'old', timestamptz '2026-01-15' + i % 4 * interval '31 days' from generate_series(1, 8) i"""
    )
    shop.one("notes")
    shop.execute("update notes set note = 'new', updated_at = '2026-05-01' where id in (1, 5)")
    assert shop.one("notes", keys=("2026-01-01", "2026-03-01"))["rows_updated"] == 2
    shop.assert_equal("notes")
    shop.execute("delete from notes where id in (2, 6)")
    assert "--allow-empty" in shop.one("notes", ok=False, keys=("2026-01-01", "2026-03-01"))["message"]
    shop.one("notes", keys=("2026-01-01", "2026-03-01"), allow_empty=True)
    shop.assert_equal("notes")


@pytest.mark.long
def test_a_row_whose_key_is_written_differently_is_not_doubled(project: MakeProject) -> None:
    """For PostgreSQL, 1 and 1.0 are the same key with two texts. The row must not be in the lake twice, nor be missing."""
    shop = project(incremental=["public.prices:updated_at:timestamp!upsert"], containers={"prices": {"partition_by": "month"}})
    shop.execute(
        """create table prices (id numeric primary key, note text, updated_at timestamptz not null);
        insert into prices select i, 'old', '2026-05-01 12:00:00Z' from generate_series(1, 6) i"""
    )
    shop.one("prices")
    shop.execute("update prices set id = 1.0, note = 'in the tail' where id = 1")
    shop.execute("update prices set id = 2.00, note = 'moved back', updated_at = '2026-04-01' where id = 2")
    shop.execute("update prices set note = 'moved back, same key', updated_at = '2026-04-01' where id = 3; delete from prices where id = 4")
    shop.one("prices")
    shop.assert_equal("prices")
    assert sorted(shop.rows("prices", "id")) == [("1.0",), ("2.00",), ("3",), ("5",), ("6",)]


@pytest.mark.parametrize("strategy", ["upsert", *long("append")])
def test_a_schedule_goes_by_the_source_and_not_by_its_old_catalog(project: MakeProject, strategy: str) -> None:
    """A schedule's catalog does not know yet that the identifier may be NULL or that the key was dropped. No row may be lost or doubled."""
    entry = "public.notes:updated_at:timestamp" + ("!upsert" if strategy == "upsert" else "")
    shop = project(incremental=[entry], containers={"notes": {"partition_by": "month"}})
    shop.execute(
        """create table notes (id int primary key, note text, updated_at timestamptz not null);
        insert into notes select i, 'old', '2026-05-01 12:00:00Z' from generate_series(1, 6) i"""
    )
    shop.one("notes")
    shop.execute("alter table notes alter updated_at drop not null; insert into notes values (7, 'undated', null)")
    shop.sync("notes", stale=True)
    shop.assert_equal("notes")
    if strategy == "upsert":
        shop.execute("alter table notes drop constraint notes_pkey; insert into notes values (6, 'twice', '2026-05-02')")
        refused = shop.sync("notes", stale=True)["notes"]
        assert refused["status"] == "failed" and "primary_key" in refused["message"], refused["message"]
        shop.configure(containers={"notes": {"partition_by": "month", "primary_key": ["id"]}})
        assert len(shop.rows("notes")) == 7


@pytest.mark.long
def test_a_column_that_is_no_longer_excluded_asks_for_a_refresh(project: MakeProject) -> None:
    """The older rows have values in the source and NULL in the lake, so a warning must say that a refresh is needed."""
    shop = project(incremental=["public.notes:day:date"], containers={"notes": {"partition_by": "month", "exclude_columns": ["note"]}})
    shop.execute(
        "create table notes (id serial, day date, note text); insert into notes (day, note) values ('2026-05-01', 'a'), ('2026-05-02', 'b')"
    )
    shop.one("notes")
    shop.configure(containers={"notes": {"partition_by": "month"}})
    shop.execute("insert into notes (day, note) values ('2026-05-03', 'c')")
    line = shop.one("notes")
    assert line["status"] == "warning" and "refresh needed" in line["message"], line["message"]
    assert shop.one("notes", mode=Mode.REFRESH)["status"] == "synced"
    shop.assert_equal("notes")


def test_a_table_of_another_schema_is_refused(project: MakeProject) -> None:
    """New rows of one table must not be added to the rows of another one."""
    shop = project(incremental=["orders:day:date"])
    shop.execute(
        """create table orders (id int, day date); insert into orders values (1, '2026-05-01');
        create schema archive; create table archive.orders (id int, day date); insert into archive.orders values (2, '2026-05-02')"""
    )
    shop.one("orders")
    shop.configure(schema="archive")
    refused = shop.one("orders", ok=False)
    assert refused["status"] == "failed" and "schema public" in refused["message"] and "--reset-watermarks" in refused["message"]


@pytest.mark.long
def test_the_partitions_of_a_refresh_are_listed_in_order(project: MakeProject) -> None:
    """Dagster lists dynamic partitions in the order in which they were added, while scripts expect them in order of their values."""
    shop = project(incremental=["public.events:id:integer"], containers={"events": {"partition_by": 100}})
    shop.execute("create table events (id int); insert into events values (1), (901)")
    shop.one("events")
    shop.execute("insert into events select generate_series(301, 320)")
    shop.one("events", mode=Mode.REFRESH)
    line = shop.one("events", keys=("0", "900"))
    assert line["status"] == "synced" and line["partitions"] == sorted(line["partitions"], key=int), line
    shop.assert_equal("events")


def test_integer_partitions_are_listed_again_where_their_list_was_lost(project: MakeProject) -> None:
    """A new DAGSTER_HOME has no list of integer partitions. The next one must not become the partition of all values below it."""
    shop = project(incremental=["public.events:id:integer"], containers={"events": {"partition_by": 100}})
    shop.execute("create table events (id int); insert into events select generate_series(1, 950, 10)")
    shop.one("events")
    for file in shop.home.rglob("*.db"):
        file.unlink()
    shop.execute("insert into events values (960)")
    shop.one("events")
    assert shop.one("events", keys=("300", "300"))["rows_read"] == 10
    shop.assert_equal("events")
