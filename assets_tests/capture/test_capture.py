"""A container with ``capture: log`` follows the log of its source: no change is lost, deletes arrive, and nothing is read twice in vain.

Belongs here: syncs of captured containers, and what they do when something goes wrong. Does not belong: the messages of the log
(``test_pgoutput``), set-up (``test_setup``), and random histories (``test_histories``).
"""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project, long, wait_for
from incremental_assets.core.capture import parse_lsn
from incremental_assets.databases import capture_sync
from incremental_assets.databases.postgres.capture import change_log
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.delta import write
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.runs import commit as container_output

MakeProject = Callable[..., Project]
SLOT = "incremental_assets_shop"
TABLE = """create table orders (id int primary key, day date, note text, doc text);
  alter table orders alter doc set storage external;
  insert into orders select i, date '2026-01-01' + i % 90, 'n' || i, repeat('d', 9000) from generate_series(1, 900) i"""
PARTITIONED = ["public.orders:day:date"]


def set_up(project: Project, *tables: str) -> None:
    project.execute(f"create publication {SLOT} for table {', '.join(tables)}")
    project.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")


def slot_lsn(project: Project) -> int:
    row = project.source.execute("select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", [SLOT]).fetchone()
    assert row is not None
    return parse_lsn(row[0])


def table_lsn(project: Project, name: str = "orders") -> int:
    head = project.table(name).head()
    assert head is not None and head.captured_to is not None
    return head.captured_to[1]


def loaded_anew(line: dict[str, Any]) -> bool:
    return line["status"] != "failed" and "loads the whole container anew" in line["message"]


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(incremental=PARTITIONED, containers={"orders": {"partition_by": "month"}}, capture="log")
    made.execute(TABLE)
    set_up(made, "orders")
    return made


@pytest.fixture
def loaded(shop: Project) -> Project:
    assert shop.one("orders")["rows_read"] == 900
    return shop


# ---------------------------------------------------------------------- changes
@pytest.mark.parametrize("incremental", [PARTITIONED, pytest.param([], marks=pytest.mark.long)], ids=["with partitions", "without"])
@pytest.mark.parametrize("write_by", ["", *long("spark")], ids=["written here", "written by Spark"])
def test_inserts_updates_and_deletes_arrive(
    project: MakeProject, incremental: list[str], write_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would be missing, stale, or still there."""
    monkeypatch.setenv(WRITE_BY, write_by)
    shop = project(incremental=incremental, capture="log")
    shop.execute(TABLE)
    set_up(shop, "orders")
    shop.one("orders")
    shop.execute("insert into orders values (1001, '2026-02-01', 'new'); update orders set note = 'changed' where id in (5, 6)")
    shop.execute(
        "delete from orders where id = 7; update orders set id = 2000 where id = 8; insert into orders values (1002, null, 'no day')"
    )
    line = shop.one("orders")
    assert (line["status"], line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == ("synced", 3, 2, 2), line
    shop.assert_equal("orders")
    skipped = shop.one("orders")
    assert skipped["status"] == "skipped" and "nothing to do" in skipped["message"], skipped


def test_a_value_that_the_log_does_not_have_stays(loaded: Project) -> None:
    """A long text that was not changed is not in the log (TOAST), and would be lost by an update of another column, or of the key."""
    loaded.execute("update orders set note = 'changed' where id = 1; update orders set id = 3000 where id = 2")
    loaded.one("orders")
    loaded.assert_equal("orders")
    assert loaded.rows("orders", "length(doc) as n", "id in (1, 3000)") == [(9000,), (9000,)]


@pytest.mark.long
def test_only_the_last_state_of_a_row_is_written(loaded: Project) -> None:
    loaded.execute("insert into orders values (5000, '2026-01-01', 'a'); update orders set note = 'b' where id = 5000")
    loaded.execute(
        "delete from orders where id = 5000; delete from orders where id = 9; insert into orders values (9, '2026-01-01', 'back')"
    )
    line = loaded.one("orders")
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (0, 1, 0), line
    loaded.assert_equal("orders")


@pytest.mark.long
def test_what_was_rolled_back_does_not_arrive_and_what_was_prepared_arrives_with_its_commit(loaded: Project) -> None:
    with psycopg.connect(loaded.url) as other:
        other.execute("update orders set note = 'never'")
        other.rollback()
        other.execute("update orders set note = 'prepared' where id = 3")
        other.execute("prepare transaction 'p1'")
        other.commit()
    assert loaded.one("orders")["status"] == "skipped"
    loaded.execute("commit prepared 'p1'")
    assert loaded.one("orders")["rows_updated"] == 1
    loaded.assert_equal("orders")


def test_a_transaction_that_commits_late_is_not_lost(loaded: Project) -> None:
    """Its changes are in the log before those of transactions that a sync has already applied."""
    with psycopg.connect(loaded.url) as late:
        late.execute("update orders set note = 'late' where id = 1")
        loaded.execute("update orders set note = 'early' where id = 2")
        assert loaded.one("orders")["rows_updated"] == 1
        late.commit()
    assert loaded.one("orders")["rows_updated"] == 1
    loaded.assert_equal("orders")


def test_a_commit_that_is_in_the_log_and_not_visible_yet_is_not_lost(loaded: Project) -> None:
    """PostgreSQL writes a commit into the log first and shows its rows later: here it waits for a replica in between.

    A sync in between finds the key in the log and the old row in its snapshot. If its position passed the commit, the change would be lost.
    """
    loaded.execute("alter database {} set synchronous_commit = local".format(loaded.url.rsplit("/", 1)[1]))
    loaded.execute("alter system set synchronous_standby_names = 'nobody'")
    loaded.execute("select pg_reload_conf()")
    waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()"

    def commits() -> None:
        with psycopg.connect(loaded.url, autocommit=True) as writer:
            writer.execute("set synchronous_commit = on")
            writer.execute("update orders set note = 'waits for a replica' where id = 1")

    thread = threading.Thread(target=commits)
    try:
        thread.start()
        wait_for(lambda: (loaded.source.execute(waiting).fetchone() or [0])[0], "the commit waits for a replica")
        with psycopg.connect(loaded.url, autocommit=True) as other:
            other.execute("update orders set note = 'visible' where id = 2")
        loaded.one("orders")
        assert loaded.rows("orders", "note", "id in (1, 2) order by id") == [("n1",), ("visible",)]
    finally:
        loaded.execute("alter system reset synchronous_standby_names")
        loaded.execute("select pg_reload_conf()")
        thread.join()
    assert loaded.one("orders")["status"] == "synced"
    loaded.assert_equal("orders")


def test_partitions_that_lost_or_got_rows_have_an_event(loaded: Project) -> None:
    """A check of a partition would go by rows that are no longer there."""
    loaded.execute("delete from orders where day >= '2026-03-01'; update orders set day = '2026-06-15' where id = 45")
    line = loaded.one("orders")
    assert line["partitions"] == ["2026-02-01", "2026-03-01", "2026-06-01"], line
    loaded.assert_equal("orders")


@pytest.mark.long
def test_many_changes_are_several_commits_of_bounded_size(loaded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge transaction would fill the memory."""
    monkeypatch.setattr(capture_sync, "KEYS_A_COMMIT", 200)
    monkeypatch.setattr(capture_sync, "MOST_LOCAL_BYTES", 1_000_000)
    loaded.execute("update orders set note = 'all'; delete from orders where id % 3 = 0")
    before = slot_lsn(loaded)
    line = loaded.one("orders")
    assert (line["rows_updated"], line["rows_deleted"]) == (600, 300), line
    loaded.assert_equal("orders")
    assert table_lsn(loaded) > before and slot_lsn(loaded) == table_lsn(loaded)


@pytest.mark.long
def test_a_refresh_and_a_settings_change_fit_beside_the_log(loaded: Project) -> None:
    loaded.execute("update orders set note = 'changed' where id = 1")
    from incremental_assets.core.plan import Mode

    loaded.one("orders", mode=Mode.REFRESH, keys=("2026-01-01", "2026-01-01"))
    loaded.assert_equal("orders")
    loaded.one("orders")
    loaded.assert_equal("orders")
    loaded.configure(containers={"orders": {"partition_by": "month", "where": "id <= 500"}})
    assert loaded_anew(loaded.one("orders"))
    loaded.execute("update orders set id = 10000 where id = 3")
    assert loaded.one("orders")["rows_deleted"] == 1
    loaded.assert_equal("orders", where="id <= 500")


@pytest.mark.long
def test_an_audit_judges_a_captured_container_while_others_write(loaded: Project) -> None:
    loaded.execute("update orders set note = 'changed' where id < 50; delete from orders where id = 60")
    found = loaded.audit("orders")["orders"]
    assert (found["status"], found["rows"]) == ("equal", 899), found
    assert loaded.audit("orders")["orders"]["status"] == "equal"


# ---------------------------------------------------------------------- what is not in the log
@pytest.mark.long
def test_a_truncated_table_is_emptied_only_if_somebody_says_so(loaded: Project) -> None:
    loaded.execute("truncate orders")
    refused = loaded.one("orders", ok=False)
    assert refused["status"] == "failed" and "--allow-empty" in refused["message"], refused
    assert len(loaded.rows("orders", "id")) == 900
    assert loaded.one("orders", allow_empty=True)["status"] == "synced"
    assert loaded.rows("orders", "id") == []
    loaded.execute("insert into orders values (1, '2026-01-01', 'again')")
    assert loaded.one("orders")["rows_inserted"] == 1
    loaded.assert_equal("orders")


def test_a_table_that_was_truncated_and_filled_is_loaded_anew(loaded: Project) -> None:
    loaded.execute("truncate orders; insert into orders values (1, '2026-01-01', 'again')")
    assert loaded_anew(loaded.one("orders"))
    loaded.assert_equal("orders")


CHANGES_OF_THE_TABLE = {
    "alter table orders add column extra int": False,
    "alter table orders add column extra int default 7": True,
    "alter table orders add column extra timestamptz default clock_timestamp()": True,
    "alter table orders add column extra text generated always as (note || '!') stored": True,
    "alter table orders alter note type varchar(40)": True,
    "alter table orders alter id type bigint": True,
    "alter table orders alter note type text using upper(note)": True,
    "alter table orders rename note to remark": True,
    "alter table orders drop note, add note text": True,
    "alter table orders alter note set default 'x'": False,
    "vacuum full orders": False,
    "analyze orders": False,
}


AT_ONCE = "alter table orders add column extra int default 7"


@pytest.mark.parametrize("statement", [AT_ONCE, *long(*(one for one in CHANGES_OF_THE_TABLE if one != AT_ONCE))])
def test_a_change_of_the_table_that_sends_no_rows_is_noticed(loaded: Project, statement: str) -> None:
    """Old rows would keep values that they no longer have in the source."""
    loaded.execute(statement)
    loaded.execute("update orders set day = day + 1 where id = 1")
    line = loaded.one("orders")
    assert loaded_anew(line) is CHANGES_OF_THE_TABLE[statement], line
    if "rename" not in statement:
        loaded.assert_equal("orders")
    loaded.execute("update orders set day = day + 1 where id = 2")
    assert not loaded_anew(loaded.one("orders"))


@pytest.mark.long
def test_a_column_that_comes_back_after_a_sync_is_another_one(loaded: Project) -> None:
    """The sync in between has left the dropped column's values in the lake, and the log tells nothing of rows that had none since."""
    loaded.execute("alter table orders drop note; update orders set day = day + 1 where id = 1")
    assert not loaded_anew(loaded.one("orders"))
    loaded.execute("alter table orders add note text; update orders set day = day + 1 where id = 2")
    assert loaded_anew(loaded.one("orders"))
    loaded.assert_equal("orders")


def test_a_delete_without_its_key_loads_the_container_anew(project: MakeProject) -> None:
    """The log has what identified the row at that time: the row with the container's key would stay for ever."""
    shop = project(containers={"t": {"capture": "log", "primary_key": ["code"]}})
    shop.execute("create table t (id int primary key, code text not null unique); insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    shop.execute("alter table t replica identity using index t_code_key")
    set_up(shop, "t")
    shop.one("t")
    shop.execute("alter table t replica identity default; delete from t where id = 2")
    shop.execute("alter table t replica identity using index t_code_key; update t set id = 4 where code = 'c'")
    assert loaded_anew(shop.one("t"))
    shop.assert_equal("t")


def test_partitions_may_come_and_go(project: MakeProject) -> None:
    """What is attached, detached, or truncated alone sends no rows."""
    shop = project(capture="log")
    shop.execute("""create table p (id int, region text, note text, primary key (id, region)) partition by list (region);
        create table p_a partition of p for values in ('a'); create table p_b partition of p for values in ('b');
        insert into p select i, case when i % 2 = 0 then 'a' else 'b' end, 'n' from generate_series(1, 100) i""")
    set_up(shop, "p")
    shop.configure(exclude=["p_*"])
    shop.one("p")
    shop.assert_equal("p")
    shop.execute("update p set note = 'x' where id = 1; update p set region = 'b' where id = 2; delete from p where id = 3")
    line = shop.one("p")
    assert (line["rows_inserted"], line["rows_updated"], line["rows_deleted"]) == (1, 1, 2), line
    shop.assert_equal("p")
    shop.execute("create table p_c partition of p for values in ('c'); insert into p values (500, 'c', 'new')")
    assert shop.one("p")["rows_inserted"] == 1
    shop.execute("create table p_d (like p including all); insert into p_d values (600, 'd', 'attached')")
    shop.execute("alter table p attach partition p_d for values in ('d')")
    assert shop.one("p")["rows_inserted"] == 1
    shop.assert_equal("p")
    shop.execute("alter table p detach partition p_b")
    assert loaded_anew(shop.one("p"))
    shop.assert_equal("p")
    shop.execute("truncate p_a")
    assert loaded_anew(shop.one("p"))
    shop.assert_equal("p")


# ---------------------------------------------------------------------- gaps
@pytest.mark.long
def test_a_slot_that_was_made_anew_is_a_gap(loaded: Project) -> None:
    """The changes between the two slots are in neither."""
    loaded.execute(f"select pg_drop_replication_slot('{SLOT}')")
    loaded.execute("delete from orders where id = 5")
    failed = loaded.one("orders", ok=False)
    assert failed["status"] == "failed" and "capture setup shop" in failed["message"], failed
    loaded.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    assert loaded_anew(loaded.one("orders"))
    loaded.assert_equal("orders")


def test_a_slot_that_somebody_has_advanced_is_a_gap(loaded: Project) -> None:
    loaded.execute("delete from orders where id = 5")
    loaded.execute(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    assert loaded_anew(loaded.one("orders"))
    loaded.assert_equal("orders")


@pytest.mark.long
def test_a_table_that_was_out_of_the_publication_for_a_time_is_loaded_anew(loaded: Project) -> None:
    loaded.execute(f"create table other (id int primary key); alter publication {SLOT} set table other")
    loaded.execute("delete from orders where id = 5")
    assert "capture setup" in loaded.one("orders", ok=False)["message"]
    loaded.execute(f"alter publication {SLOT} add table orders")
    assert loaded_anew(loaded.one("orders"))
    loaded.assert_equal("orders")


@pytest.mark.long
def test_a_container_that_comes_later_loads_nobody_else_anew(loaded: Project) -> None:
    loaded.execute(f"create table other (id int primary key); alter publication {SLOT} add table other; insert into other values (1)")
    loaded.execute("update orders set note = 'x' where id = 1")
    lines = loaded.sync()
    assert not loaded_anew(lines["orders"]), lines["orders"]
    loaded.assert_equal("orders")
    loaded.assert_equal("other")


@pytest.mark.long
def test_a_restored_table_is_loaded_anew(loaded: Project) -> None:
    loaded.execute("delete from orders where id = 5")
    loaded.one("orders")
    delta = loaded.table("orders").opened()
    assert delta is not None
    delta.restore(2)
    loaded.execute("update orders set note = 'x' where id = 1")
    assert loaded_anew(loaded.one("orders"))
    loaded.assert_equal("orders")


# ---------------------------------------------------------------------- containers that share a slot
def test_a_slot_waits_for_the_container_that_lags(project: MakeProject) -> None:
    """The server would forget changes that one of the containers has not got yet."""
    shop = project(capture="log")
    for name in ("one", "two"):
        shop.execute(f"create table {name} (id int primary key, n int); insert into {name} select i, i from generate_series(1, 50) i")
    set_up(shop, "one", "two")
    shop.sync()
    for number in range(3):
        shop.execute(f"update one set n = {number}; update two set n = {number} where id <= 10; delete from two where id = {20 + number}")
        shop.one("one")
    assert slot_lsn(shop) == table_lsn(shop, "two") < table_lsn(shop, "one")
    assert shop.one("two")["rows_deleted"] == 3
    for name in ("one", "two"):
        shop.assert_equal(name)
    assert slot_lsn(shop) == table_lsn(shop, "one") <= table_lsn(shop, "two")


def test_an_idle_container_lets_the_server_forget_its_log(loaded: Project) -> None:
    loaded.execute("create table noise (id int, text text)")
    before = slot_lsn(loaded)
    loaded.execute("insert into noise select i, repeat(md5(i::text), 30) from generate_series(1, 25000) i")
    assert loaded.one("orders")["status"] == "skipped"
    assert slot_lsn(loaded) == table_lsn(loaded) > before
    version = loaded.table("orders").head()
    assert loaded.one("orders")["status"] == "skipped"
    assert loaded.table("orders").head() == version, "a sync with nothing to do commits nothing"


# ---------------------------------------------------------------------- syncs that end early
class Killed(Exception):
    """Raised where a sync is to end as if it were killed there."""


STAGES: dict[str, tuple[Any, str]] = {
    "after the log was read": (change_log.PostgresChangeLog, "rows"),
    "before the rows are committed": (PostgresReader, "still_there"),
    "between rows and position": (write, "set_property"),
    "after the position, before the event": (container_output, "commit"),
    "before the slot is advanced": (change_log.PostgresChangeLog, "advance"),
}
FIRST_STAGES = ("between rows and position", "before the slot is advanced")


@pytest.mark.parametrize("first", [pytest.param(True, marks=pytest.mark.long), False], ids=["first load", "changes"])
@pytest.mark.parametrize("stage", [one if one in FIRST_STAGES else pytest.param(one, marks=pytest.mark.long) for one in STAGES])
def test_a_sync_that_ends_at_any_stage_is_repeated_with_the_same_result(
    shop: Project, monkeypatch: pytest.MonkeyPatch, stage: str, first: bool
) -> None:
    if not first:
        shop.one("orders")
    shop.execute(
        "update orders set note = 'one' where id < 10; delete from orders where id = 11; update orders set id = 4000 where id = 12"
    )
    owner, name = STAGES[stage]
    real, died = getattr(owner, name), list[str]()

    def dies(*arguments: Any, **named: Any) -> Any:
        if stage.startswith("after the position"):
            real(*arguments, **named)
        died.append(stage)
        raise Killed(stage)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dies)
        shop.one("orders", ok=False)
    assert died or (first and stage == "after the log was read")
    shop.execute(
        "update orders set note = 'two' where id < 5; delete from orders where id = 4000;"
        " insert into orders values (12, '2026-02-02', 'again')"
    )
    shop.one("orders")
    shop.assert_equal("orders")
    assert shop.one("orders")["status"] == "skipped"
    assert slot_lsn(shop) == table_lsn(shop)


def test_a_sync_that_ends_between_two_commits_is_repeated(loaded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position of the table may pass a change only when the rows of all keys are written."""
    monkeypatch.setattr(capture_sync, "KEYS_A_COMMIT", 10)
    loaded.execute("update orders set note = 'changed' where id <= 25; delete from orders where id between 26 and 30")
    real, commits = container_output.commit, list[int]()

    def dies(*arguments: Any, **named: Any) -> Any:
        commits.append(1)
        if len(commits) == 2:
            raise Killed
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(container_output, "commit", dies)
        assert loaded.one("orders", ok=False)["status"] == "failed"
    loaded.one("orders")
    loaded.assert_equal("orders")


# ---------------------------------------------------------------------- first loads
def test_a_load_waits_for_those_who_have_written_to_the_table_before(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they wrote before the table was published is in no log."""
    monkeypatch.setattr(capture_sync, "SETTLE_SECONDS", 0.5)
    with psycopg.connect(shop.url, application_name="a long import") as writer:
        writer.execute("update orders set note = 'late' where id = 1")
        failed = shop.one("orders", ok=False)
        assert failed["status"] == "failed" and f"pid {writer.info.backend_pid}" in failed["message"], failed
    shop.one("orders")
    shop.assert_equal("orders")


@pytest.mark.long
def test_changes_during_a_load_by_windows_arrive(project: MakeProject) -> None:
    """A row that moves between two windows would be missing in both."""
    shop = project(incremental=PARTITIONED, containers={"orders": {"partition_by": "month"}}, capture="log", load_rows=300)
    shop.execute(TABLE + "; analyze orders")
    set_up(shop, "orders")
    real = PostgresReader.snapshot
    moved: list[int] = []

    def snapshot(self: PostgresReader) -> Any:
        if len(moved) < 3:
            moved.append(len(moved))
            shop.execute(f"update orders set day = '2026-03-25' where id = {1 + len(moved)}")
            shop.execute(
                f"update orders set day = '2026-01-01' where id = {80 + len(moved)}; delete from orders where id = {10 + len(moved)}"
            )
        return real(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PostgresReader, "snapshot", snapshot)
        line = shop.one("orders")
    assert len(moved) == 3 and line["status"] != "failed"
    shop.assert_equal("orders")


def test_changes_of_rows_that_policies_hide_are_refused(shop: Project) -> None:
    """The log has the keys of all rows. A look-up that finds some of them only would delete the others from the lake."""
    shop.one("orders")
    if shop.source.execute("select 1 from pg_roles where rolname = 'narrow'").rowcount == 0:
        shop.execute("create role narrow login password 'x' replication")
    shop.execute("""alter role narrow nobypassrls; grant select on orders to narrow; alter table orders enable row level security;
        create policy half on orders using (id % 2 = 0); update orders set note = 'changed' where id < 11""")
    shop.url = shop.url.replace(shop.url.split("//")[1].split("@")[0], "narrow:x")
    line = shop.one("orders", ok=False)
    assert line["status"] == "failed" and "policies half" in line["message"] and "ALTER ROLE narrow BYPASSRLS" in line["message"], line
    assert len(shop.rows("orders")) == 900
    shop.execute("alter role narrow bypassrls")
    assert shop.one("orders")["rows_read"] == 10
    shop.assert_equal("orders")
