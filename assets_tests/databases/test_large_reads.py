"""Reads that are too large for one snapshot of the source go in windows, or by ranges of the key, and go on where they were stopped.

Belongs here: loads anew, refreshes and containers without identifier that have more than ``load_rows``. Does not belong: first loads
(``test_containers``, ``test_source_trouble``), and the limits of a snapshot (``test_guest``).
"""

from collections.abc import Callable

import pytest
from psycopg import sql

from assets_tests.harness import Project, without_the_last_window
from incremental_assets.core.plan import Mode
from incremental_assets.core.window import Window
from incremental_assets.databases.postgres import cuts
from incremental_assets.databases.postgres.cuts import divided, reader_cuts
from incremental_assets.databases.postgres.queries import scope_predicate
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.source import WindowRead

MakeProject = Callable[..., Project]
NOTES = """create table notes (id int primary key, note text);
    insert into notes select i, 'n' || i from generate_series(1, 2000) i; analyze notes"""
MEANWHILE = "update notes set note = 'late' where id = 1; insert into notes values (-5, 'new'); delete from notes where id = 2"


def commits_of_rows(shop: Project, since: int) -> int:
    return len(shop.table("notes").data_commits_since(since))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["append", "upsert"])
def test_a_load_anew_in_windows_goes_on_where_it_was_stopped(project: MakeProject, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One snapshot for a very large table keeps the source from removing dead rows for hours, and a stop would lose all that was read."""
    shop = project(incremental=[f"public.notes:id:integer!{strategy}"], containers={"notes": {"partition_by": 500}}, load_rows=600)
    shop.execute(NOTES)
    shop.one("notes")
    shop.execute("update notes set note = 'changed' where id % 7 = 0; delete from notes where id % 11 = 0")
    before = shop.table("notes").opened().version()  # pyright: ignore[reportOptionalMemberAccess]
    with without_the_last_window(monkeypatch):
        assert "the network is gone" in shop.one("notes", ok=False, reset=True)["message"]
    written = commits_of_rows(shop, before)
    assert written >= 2, "the windows before the last one are committed"
    line = shop.one("notes")
    assert line["rows_read"] < 1500, "only rows that had not been read yet"
    shop.assert_equal("notes")
    assert shop.one("notes")["status"] == "skipped"


def test_a_large_refresh_goes_in_windows(project: MakeProject) -> None:
    """A backfill of all partitions must hold no snapshot for longer than a load does."""
    shop = project(incremental=["public.notes:id:integer"], containers={"notes": {"partition_by": 500}}, load_rows=600)
    shop.execute(NOTES)
    shop.one("notes")
    shop.execute("update notes set note = 'changed' where id % 7 = 0; delete from notes where id between 600 and 900")
    before = shop.table("notes").opened().version()  # pyright: ignore[reportOptionalMemberAccess]
    line = shop.one("notes", mode=Mode.REFRESH)
    assert commits_of_rows(shop, before) >= 3, line
    shop.assert_equal("notes")
    assert line["watermark"]["new"] == 2000
    assert shop.one("notes")["status"] == "skipped"


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["append", "upsert"])
def test_a_large_refresh_leaves_out_only_the_partitions_that_it_would_empty(project: MakeProject, strategy: str) -> None:
    """The partitions of the other windows must be written, and those that were left out must not be lost by any of the commits."""
    shop = project(incremental=[f"public.notes:id:integer!{strategy}"], containers={"notes": {"partition_by": 500}}, load_rows=600)
    shop.execute(NOTES)
    shop.one("notes")
    shop.execute("update notes set note = 'changed'; delete from notes where id between 500 and 999 or id = 3")
    line = shop.one("notes", ok=False, keys=("0", "2000"))
    assert line["status"] == "failed" and "the partition 500, " in line["message"] and "500" not in line["partitions"], line
    assert line["rows_deleted"] == 1 and sorted(map(int, line["partitions"])) == [0, 1000, 1500, 2000]
    kept = shop.rows("notes", "id, note", "note <> 'changed'")
    assert sorted(row[0] for row in kept) == list(range(500, 1000))
    shop.execute("delete from notes where id < 2000")
    assert "nothing was written" in shop.one("notes", ok=False, keys=("0", "1500"))["message"]
    assert len(shop.rows("notes", "id", "note <> 'changed'")) == 500 < len(shop.rows("notes", "id"))


def test_a_container_without_identifier_is_read_by_ranges_of_its_key(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a container has no windows. Changes between the reads of two ranges come with the next sync, as the message says."""
    shop = project(containers={"notes": {}}, load_rows=800)
    shop.execute(NOTES)
    real, renewed = PostgresReader.renew_snapshot, [0]

    def renew(self: PostgresReader) -> None:
        renewed[0] += 1
        if renewed[0] == 1:
            shop.execute(
                "update notes set note = 'late' where id = 1; insert into notes values (-5, 'new'); delete from notes where id = 2"
            )
        real(self)

    monkeypatch.setattr(PostgresReader, "renew_snapshot", renew)
    line = shop.one("notes")
    assert renewed[0] >= 2 and "ranges of id, each in a snapshot of its own" in line["message"], line
    assert commits_of_rows(shop, 0) == 1, "all ranges are one commit"
    assert dict(shop.rows("notes", "id, note"))[1] == "n1", "that range had been read"
    assert sorted(id_ for (id_,) in shop.rows("notes", "id")) == list(range(1, 2001))
    line = shop.one("notes")
    assert line["status"] == "synced", line
    shop.assert_equal("notes")
    assert shop.one("notes")["status"] == "skipped"


@pytest.mark.long
def test_a_key_without_statistics_is_read_in_one_snapshot_with_a_warning(project: MakeProject) -> None:
    """Where the ranges cannot be determined, no row may be lost."""
    shop = project(containers={"notes": {}}, load_rows=10)
    shop.execute("create table notes (id int primary key, note text) with (autovacuum_enabled = off)")
    shop.execute("insert into notes select i, 'n' || i from generate_series(1, 2000) i")
    line = shop.one("notes")
    assert "ANALYZE makes some" in line["message"], line
    shop.assert_equal("notes")


@pytest.mark.parametrize(
    ("order", "lower", "readers_use"),
    [("i", 10_000, "id"), ("i * 7919 % 100000", 10_000, "ctid"), ("i", None, "id")],
    ids=["in order of the identifier", "in no order", "the first window"],
)
def test_the_readers_of_a_window_share_its_pages(
    project: MakeProject, order: str, lower: int | None, readers_use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a window's rows lie all over the table, readers with a part of the window each would each read the whole table. A load in
    windows then reads it once for each window and reader. The first window of a load begins at no value, and would have one reader.
    Whatever divides the window, each of its rows is in exactly one part."""
    shop = project(incremental=["public.notes:id:integer"])
    monkeypatch.setattr(cuts, "ROWS_A_READER", 2000)
    shop.execute(f"""create table notes (id int, note text);
        insert into notes select i, repeat('n', 100) from generate_series(0, 99999) i order by {order}; create index on notes (id);
        insert into notes values (null, 'without'); analyze notes""")
    definition = shop.definition("notes")
    read = WindowRead((Window(lower, (lower or 0) + 9000),), True, 99_999, 3)
    with PostgresReader(definition.settings.address, definition.container, timezone="UTC") as reader:
        scope = scope_predicate(reader.container, read.windows, read.include_nulls)
        parts = [sql.SQL("from notes where {}").format(part) for part in divided(scope, reader_cuts(reader, read))]
        counts = [reader.rows(sql.SQL("select count(*) {}").format(part))[0][0] for part in parts]
    assert sum(counts) == 9001, counts
    assert len(parts) >= 3 and max(counts) < 4000, counts
    assert ("ctid" in parts[1].as_string(None)) == (readers_use == "ctid"), parts[1].as_string(None)
