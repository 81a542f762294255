"""The audit finds every difference between source and lake, invents none, and repairs what it finds.

Belongs here: the command and its runs. Does not belong: the hashes of values (``databases/test_hashed_rows``), and the search for keys
(``core/test_comparison``).
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import psycopg
import pytest
from dagster._core.event_api import PartitionKeyFilter

from assets_tests.cli.test_json import documented, fields
from assets_tests.harness import Project
from incremental_assets.dagster.components.audit import AuditEntry
from incremental_assets.databases.postgres.session import PostgresSession
from incremental_assets.delta import local_hashed_rows
from incremental_assets.delta.folders import QUALITY_FOLDER
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
NOTES = """create table notes (id int primary key, day date, note text);
  insert into notes select i, date '2026-01-01' + i % 90, 'n' || i from generate_series(1, 900) i"""


@contextlib.contextmanager
def changing(project: Project) -> Iterator[list[int]]:
    """A source whose rows change all the time, while the block goes on. Yields a list of the number of changes."""
    project.execute("create table orders (id int primary key, day date, n int, updated_at timestamptz not null default clock_timestamp())")
    project.execute(
        "insert into orders select i, date '2026-01-01' + i % 60, 0, timestamptz '2026-01-01' + i * interval '1 hour' "
        "from generate_series(1, 3000) i; analyze orders"
    )
    project.one("orders")
    done, changed = threading.Event(), [0]

    def writes() -> None:
        with psycopg.connect(project.url, autocommit=True) as connection:
            while not done.wait(0.02):
                number = changed[0] = changed[0] + 1
                statement = "update orders set n = n + 1, updated_at = clock_timestamp() where id = %s"
                connection.execute(statement, [number % 3000 + 1])
                connection.execute("insert into orders (id, day, n) values (%s, '2026-02-01', 1)", [10_000 + number])

    thread = threading.Thread(target=writes)
    thread.start()
    try:
        yield changed
    finally:
        done.set()
        thread.join()


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(incremental=["public.notes:day:date"], containers={"notes": {"partition_by": "month"}})
    made.execute(NOTES)
    return made


def test_what_no_sync_sees_is_found_and_repaired(shop: Project) -> None:
    """Rows that were changed, deleted or added below the watermark would stay wrong for ever."""
    first = shop.audit("notes")["notes"]
    assert (first["status"], first["rows"], first["partitions_checked"]) == ("equal", 900, 3), first
    shop.execute("update notes set note = 'changed' where id = 1; delete from notes where id = 2")
    shop.execute("insert into notes values (1001, '2026-01-05', 'late')")
    found = shop.audit("notes")["notes"]
    assert (found["status"], found["missing"], found["stale"], found["surplus"]) == ("different", 1, 1, 1), found
    assert found["partitions_different"] == ["2026-01-01"]
    assert found["examples"] == {"missing": [["1001"]], "stale": [["1"]], "surplus": [["2"]]}
    assert documented("audit") == {*fields(found)}
    repaired = shop.audit("notes", repair=True)["notes"]
    assert repaired["status"] == "repaired", repaired
    shop.assert_equal("notes")
    assert shop.audit("notes")["notes"]["status"] == "equal"


def test_an_audit_of_few_rows_needs_no_spark(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an audit of small tables waits for a Spark server to start, half a minute for nothing."""
    shop.one("notes")

    def spark(self: LakeScope) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(LakeScope, "spark", property(spark))
    monkeypatch.setattr(LakeScope, "start_spark", spark)
    assert shop.audit("notes")["notes"]["status"] == "equal"
    shop.execute("insert into notes values (1001, '2026-03-31', 'new'); delete from notes where id = 3")
    found = shop.audit("notes")["notes"]
    assert (found["status"], found["rows"], found["surplus"]) == ("different", 900, 1), found


@pytest.mark.long
def test_spark_is_started_before_the_snapshot_that_it_compares_with(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the source keeps a snapshot open while a Java machine starts. Of a few partitions of a large table, none is started."""
    shop.one("notes")
    done: list[str] = []
    start, snapshot = LakeScope.start_spark, PostgresSession.snapshot

    def started(scope: LakeScope) -> None:
        done.append("Spark")
        start(scope)

    def taken(session: PostgresSession) -> Any:
        done.append("snapshot")
        return snapshot(session)

    monkeypatch.setattr(LakeScope, "start_spark", started)
    monkeypatch.setattr(PostgresSession, "snapshot", taken)
    monkeypatch.setattr(local_hashed_rows, "MOST_ROWS", 400)
    assert shop.audit("notes")["notes"]["status"] == "equal"
    assert done == ["Spark", "snapshot"], "900 rows"
    done.clear()
    assert shop.audit("notes", keys=("2026-01-01", "2026-01-01"))["notes"]["status"] == "equal"
    assert done == ["snapshot"], "the 310 rows of a month"
    done.clear()
    shop.execute("insert into notes values (1001, '2026-03-31', 'new')")
    assert shop.audit("notes")["notes"]["status"] == "equal"
    assert done == ["Spark", "snapshot"], "a sync has written before the audit"


@pytest.mark.parametrize("load_rows", [20_000_000, pytest.param(1000, marks=pytest.mark.long)], ids=["one snapshot", "several snapshots"])
def test_a_source_that_changes_all_the_time_is_compared_exactly(project: MakeProject, load_rows: int) -> None:
    """Rows that were changed after the sync would be reported, or hide those that were lost."""
    made = project(
        incremental=["public.orders:updated_at:timestamp!upsert"], containers={"orders": {"partition_by": "month"}}, load_rows=load_rows
    )
    with changing(made) as changed:
        lines = [made.audit("orders")["orders"] for _ in range(3)]
    assert [line["status"] for line in lines] == ["equal"] * 3, lines
    assert lines[0]["rows"] < lines[2]["rows"] and changed[0] > 10, "nothing was written meanwhile"
    assert all(("compared in" in line["message"]) == (load_rows == 1000) for line in lines), lines[0]["message"]


@pytest.mark.long
def test_columns_that_were_widened_dropped_added_and_carried_as_text(project: MakeProject) -> None:
    """A table whose columns have changed would never be equal again."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"safety_lag": 1000}})
    made.execute("create table t (id int primary key, a int, b real, c numeric(6,2), d date, gone text, far timestamptz)")
    made.execute("insert into t select i, i, i / 3.0, i * 0.01, date '2026-01-01' + i, 'x', 'infinity' from generate_series(1, 20) i")
    assert made.audit("t")["t"]["status"] == "equal"
    made.execute("alter table t alter a type bigint, alter b type double precision, alter c type numeric(12,4), alter d type timestamp")
    made.execute("alter table t drop column gone, add column late text default 'new'")
    made.execute("insert into t (id, a, b, c, d, far) select i, i, i / 3.0, i * 0.0001, '2026-02-01', now() from generate_series(21, 40) i")
    line = made.audit("t")["t"]
    assert (line["status"], line["rows"]) == ("equal", 40), line["message"]


@pytest.mark.long
def test_a_changed_key_of_an_upsert_is_found_and_repaired(project: MakeProject) -> None:
    """The lake would keep the row under its old key beside the one under its new key."""
    made = project(incremental=["public.t:at:timestamp!upsert"])
    made.execute("create table t (id int primary key, at timestamptz not null default now(), note text)")
    made.execute("insert into t select i, now() - interval '100 days' + i * interval '1 day', 'n' from generate_series(1, 50) i")
    made.one("t")
    made.execute("update t set id = 1001, at = now() where id = 7")
    found = made.audit("t")["t"]
    assert (found["status"], found["examples"]["surplus"]) == ("different", [["7"]]), found
    refused = made.audit("t", repair=True)["t"]
    assert refused["status"] == "failed" and "--allow-empty" in refused["message"], refused["message"]
    repaired = made.audit("t", repair=True, allow_empty=True)["t"]
    assert repaired["status"] == "repaired", repaired["message"]
    made.assert_equal("t")


@pytest.mark.long
def test_rows_without_identifier_are_audited_too(project: MakeProject) -> None:
    """They are in no partition, and would be forgotten."""
    made = project(incremental=["public.t:day:date"], containers={"t": {"partition_by": "month"}})
    made.execute("create table t (id int primary key, day date, note text)")
    made.execute("insert into t select i, case when i % 10 > 0 then date '2026-01-01' + i end, 'n' from generate_series(1, 60) i")
    made.one("t")
    with open_session(made.spark_home, name="somebody") as spark:
        spark.sql(f"update {made.table('t').sql_name} set note = 'wrong' where id = 10").collect()
        spark.sql(f"delete from {made.table('t').sql_name} where id = 11").collect()
    found = made.audit("t")["t"]
    # Each sync that writes reads the rows without identifier anew, and so has repaired that one.
    assert (found["partitions_different"], found["missing"], found["stale"]) == (["2026-01-01"], 1, 0), found
    assert (found["rows"], found["partitions_checked"]) == (60, 4)
    repaired = made.audit("t", repair=True)["t"]
    assert repaired["status"] == "repaired", repaired["message"]
    made.assert_equal("t")


@pytest.mark.long
def test_chosen_partitions_are_compared_alone(shop: Project) -> None:
    """To look at one month, all years would be read."""
    shop.one("notes")
    shop.execute("delete from notes where day in ('2026-01-05', '2026-03-05')")
    february = shop.audit("notes", keys=("2026-02-01", "2026-02-01"))["notes"]
    assert (february["status"], february["partitions_checked"], february["rows"]) == ("equal", 1, 280), february
    march = shop.audit("notes", keys=("2026-02-01", "2026-03-01"))["notes"]
    assert (march["status"], march["partitions_different"], march["surplus"]) == ("different", ["2026-03-01"], 10), march


@pytest.mark.long
def test_a_table_too_large_for_one_snapshot_is_compared_in_several(shop: Project) -> None:
    """The audit of a large table would end with max_snapshot_seconds, or report what has changed while it took place."""
    shop.configure(load_rows=400)
    shop.execute("insert into notes values (0, null, 'without day'); analyze notes")
    first = shop.audit("notes")["notes"]
    assert (first["status"], first["rows"], first["partitions_checked"]) == ("equal", 901, 4), first
    assert "compared in 3 runs" in first["message"], first["message"]
    shop.execute("update notes set note = 'x' where id in (1, 50); delete from notes where id = 80")
    with open_session(shop.spark_home, name="somebody") as spark:
        spark.sql(f"delete from {shop.table('notes').sql_name} where day = date'2026-02-02'").collect()
    found = shop.audit("notes")["notes"]
    assert found["partitions_different"] == ["2026-01-01", "2026-02-01", "2026-03-01"], found
    assert (found["missing"], found["stale"], found["surplus"]) == (10, 2, 1), found
    some = shop.audit("notes", keys=("2026-02-01", "2026-03-01"))["notes"]
    assert (some["partitions_checked"], some["partitions_different"]) == (2, ["2026-02-01", "2026-03-01"]), some
    assert shop.audit("notes", repair=True)["notes"]["status"] == "repaired"
    shop.assert_equal("notes")


@pytest.mark.long
def test_the_check_shows_what_the_last_audit_has_found(shop: Project) -> None:
    """The UI would show a partition as complete that is not, or forget what was found with the next sync."""
    shop.configure(containers={"notes": {"partition_by": "month", "audit": AuditEntry()}})
    check = dg.AssetCheckKey(dg.AssetKey(["shop", "notes"]), "complete")

    def states() -> dict[str | None, str]:
        with shop.instance() as instance:
            found: dict[str | None, str] = {}
            for key in ("2026-01-01", "2026-02-01", "2026-03-01", None):
                newest = instance.event_log_storage.get_asset_check_execution_history(
                    check, limit=1, partition_filter=PartitionKeyFilter(key=key)
                )
                found[key] = newest[0].status.value if newest else "none"
            return found

    shop.audit("notes")
    assert list(states().values())[:3] == ["SUCCEEDED"] * 3
    shop.execute("delete from notes where id = 31")
    shop.audit("notes")
    assert list(states().values()) == ["SUCCEEDED", "FAILED", "SUCCEEDED", "FAILED"]
    shop.execute("insert into notes values (2001, '2026-03-31', 'new')")
    shop.one("notes")
    assert list(states().values())[:3] == ["SUCCEEDED", "FAILED", "SUCCEEDED"], "a sync has changed what the audit has found"
    shop.audit("notes", repair=True)
    assert list(states().values())[:3] == ["SUCCEEDED"] * 3


@pytest.mark.long
def test_audits_are_recorded(shop: Project) -> None:
    """Nobody could prove later that the lake was complete."""
    shop.audit("notes")
    shop.execute("delete from notes where id = 31")
    shop.audit("notes", repair=True)
    rows = LakeTable(shop.lake, "shop", QUALITY_FOLDER, "audits").opened()
    assert rows is not None
    found = sorted(rows.to_pyarrow_table().to_pylist(), key=lambda row: row["recorded_at"])
    assert [(row["surplus"], row["partitions_different"]) for row in found] == [(0, []), (1, ["2026-02-01"]), (0, [])]
    assert all(row["operation_id"] and row["rows"] and row["triggered_by"] == "command line" for row in found)


@pytest.mark.long
def test_the_command_line_audits_and_repairs(shop: Project) -> None:
    """A script could not tell by the exit code that rows are missing."""
    shop.write()
    _, lines, _ = shop.cli("audit", "shop", "--json")
    assert [(line["container"], line["status"]) for line in lines] == [("shop/notes", "equal")]
    shop.execute("update notes set note = 'changed' where id = 5")
    code, _, said = shop.cli("audit", "shop/notes", check=1)
    assert code == 1 and "1 stale" in said
    _, lines, _ = shop.cli("audit", "shop/notes", "--partition", "2026-01-01", "--repair", "--json")
    assert lines[0]["status"] == "repaired" and lines[0]["stale"] == 1
    code, _, said = shop.cli("audit", "shop/notes", "--partition", "1999-01-01", check=2)
    assert code == 2 and "1999-01-01" in said
