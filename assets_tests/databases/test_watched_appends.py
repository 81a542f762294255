"""Whether append says that rows of its source were updated or deleted which it does not read again, whether upsert says that rows were
deleted, and when they stop saying so.

Belongs here: the counters of a real PostgreSQL from one sync to the next, and their arithmetic. Does not belong: on what proof append is
proposed (``catalog/test_written_once``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets_tests.harness import Project, statements_sent
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.plan import Mode
from incremental_assets.databases.sync import TableSync

MakeProject = Callable[..., Project]
MISSED = "up to 2 rows of the source were updated or deleted below what append reads again"


@pytest.fixture
def log(project: MakeProject) -> Project:
    """A table whose last ten rows are read again with each sync. It was synced."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"safety_lag": 10, "partition_by": 50}})
    made.execute("create table t (id int primary key, v text)")
    made.execute("insert into t select i, 'old' from generate_series(1, 100) i")
    assert made.one("t")["status"] == "synced" and made.one("t")["status"] == "skipped"
    return made


def test_changes_that_append_does_not_read_are_said_until_the_rows_are_mended(log: Project) -> None:
    """A renamed team would be *nothing to do* for ever, and its old name in the lake, without a word."""
    log.execute("update t set v = 'new' where id = 7")
    log.execute("delete from t where id = 8")
    for _ in range(2):
        line = log.one("t")
        assert (line["status"], MISSED in line["message"]) == ("warning", True), line
    log.execute("insert into t values (101, 'old')")
    line = log.one("t")
    assert (line["status"], line["rows_inserted"], MISSED in line["message"]) == ("warning", 1, True), line
    assert MISSED in log.one("t")["message"], "nor does a sync of other rows make it forgotten"
    repaired = log.audit("t", repair=True)["t"]
    assert repaired["status"] == "repaired" and log.audit("t")["t"]["status"] == "equal", repaired
    assert log.one("t")["status"] == "skipped"
    log.assert_equal("t")


def test_changes_that_a_sync_has_read_are_not_said(log: Project) -> None:
    """Whoever corrects the newest rows now and then would read the whole table for nothing, as the warning says."""
    log.execute("update t set v = 'new' where id > 95")
    line = log.one("t")
    assert (line["status"], line["rows_updated"], "append" in line["message"]) == ("synced", 5, False), line
    assert log.one("t")["status"] == "skipped"


def test_all_rows_read_anew_and_an_equal_audit_end_it(log: Project) -> None:
    """The two ways out that the message names have to be ways out."""
    for mend in (lambda: log.one("t", mode=Mode.REFRESH), lambda: log.audit("t", repair=True) and log.audit("t")):
        log.execute("update t set v = v || '+' where id = 7; update t set v = v || '+' where id = 7")
        assert log.one("t")["status"] == "warning", "a row that was changed twice counts twice"
        mend()
        assert log.one("t")["status"] == "skipped"


def test_a_load_in_windows_counts_from_its_beginning(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is changed in the rows of the first window, while others are read for hours, would count as read."""
    made = project(incremental=["public.t:id:integer"], load_rows=50, containers={"t": {"safety_lag": 10, "partition_by": 50}})
    made.execute("create table t (id int primary key, v text); insert into t select i, 'old' from generate_series(1, 200) i; analyze t")
    real = TableSync.committed

    def changed_after(self: TableSync, *arguments: Any) -> None:
        real(self, *arguments)
        made.execute("update t set v = 'new' where id = 7")

    monkeypatch.setattr(TableSync, "committed", changed_after)
    made.one("t")
    monkeypatch.undo()
    assert "rows of the source were updated or deleted" in made.one("t")["message"]


def test_counters_that_begin_anew_say_nothing_of_before(log: Project) -> None:
    """After a reset, or a crash of the server, what was counted before is not known. What comes after it is."""
    log.execute("update t set v = 'new' where id = 7")
    log.execute("select pg_stat_reset()")
    assert log.one("t")["status"] == "skipped"
    log.execute("update t set v = 'newer' where id = 7")
    assert "up to 1 row of" in log.one("t")["message"]


KEPT = "up to 2 rows of the source were deleted below what upsert reads again"


@pytest.fixture
def state(project: MakeProject) -> Project:
    """A table that is followed by the time of its last change, and was synced."""
    made = project(incremental=["public.t:at:timestamp!upsert"], containers={"t": {"partition_by": "month"}})
    made.execute("create table t (id int primary key, at timestamptz not null default clock_timestamp(), v text)")
    made.execute("insert into t select i, timestamptz '2026-01-01' + i * interval '1 day', 'old' from generate_series(1, 100) i")
    assert made.one("t")["status"] == "synced" and made.one("t")["status"] == "skipped"
    return made


def test_deletions_that_upsert_keeps_are_said_until_somebody_decides(state: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Customers who asked to be forgotten would stay in the lake, without a word."""
    state.execute("update t set v = 'new', at = clock_timestamp() where id < 20")
    line = state.one("t")
    assert (line["status"], line["rows_updated"]) == ("synced", 19), "an update is met, and counts as nothing missed"
    assert state.one("t")["status"] == "skipped"
    state.execute("update t set v = 'newer', at = clock_timestamp() where id < 20; delete from t where id in (30, 40)")
    line = state.one("t")
    assert (line["status"], line["rows_updated"], KEPT in line["message"]) == ("warning", 19, True), "updates hide no deletion"
    sent = statements_sent(monkeypatch)
    for _ in range(2):
        line = state.one("t", stale=True)
        assert (line["status"], KEPT in line["message"], "deletes: sweep" in line["message"]) == ("warning", True, True), line
    assert sum("pg_stat_get_tuples_deleted" in text for text in sent) == 2, "the counters are asked with what is asked anyway"
    state.execute("insert into t values (101, clock_timestamp(), 'new')")
    line = state.one("t")
    assert (line["status"], line["rows_inserted"], KEPT in line["message"]) == ("warning", 1, True), line
    state.configure(containers={"t": {"partition_by": "month", "deletes": "keep"}})
    assert state.one("t")["status"] == "skipped", "who has decided is not warned any more"
    state.configure(containers={"t": {"partition_by": "month", "deletes": "sweep"}})
    line = state.one("t")
    assert (line["status"], line["rows_deleted"]) == ("synced", 2), line
    state.assert_equal("t")


@pytest.mark.parametrize("way_out", ["repair", "refresh"])
def test_deleted_rows_that_were_removed_once_are_said_no_more(state: Project, way_out: str) -> None:
    """The warning would stay although lake and source are equal, and nobody would read the next one."""
    state.execute("delete from t where id in (30, 40)")
    assert KEPT in state.one("t")["message"]
    if way_out == "repair":
        repaired = state.audit("t", repair=True)["t"]
        assert repaired["status"] == "repaired", repaired
        assert state.audit("t")["t"]["status"] == "equal"
    else:
        assert state.one("t", mode=Mode.REFRESH)["rows_deleted"] == 2
    assert state.one("t")["status"] == "skipped"
    state.execute("delete from t where id = 50")
    assert "up to 1 row of" in state.one("t")["message"]


def test_deletions_that_a_sync_has_found_are_not_said(project: MakeProject) -> None:
    """Rows that are taken back soon after they come would be reported for ever, although the tail is compared with the source."""
    made = project(incremental=["public.t:id:integer!upsert"], containers={"t": {"safety_lag": 10}})
    made.execute("create table t (id int primary key, v text); insert into t select i, 'old' from generate_series(1, 100) i")
    made.one("t")
    made.execute("delete from t where id in (95, 96)")
    line = made.one("t")
    assert (line["status"], line["rows_deleted"]) == ("synced", 2), line
    assert made.one("t")["status"] == "skipped"


NOW = CountedChanges(0, "t", 100)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=8))
def test_nothing_hides_what_was_missed(steps: list[tuple[int, int, int, bool]]) -> None:
    """Differences that a sync finds may be older than the counters, and more than were counted: credit for them would hide others, of later
    syncs, too. A server that tells nothing for once, as a replica, would make all forgotten."""
    state, count, missed = NOW, 0, 0
    for met, below, others, is_silent in steps:
        count += met + below
        missed += below
        state = state.read_again(None if is_silent else replace(NOW, count=count)).met(met + others)
        assert state.missed_by(replace(NOW, count=count)) >= missed - sum(one[2] for one in steps)
    exact = NOW
    for count, (met, _, _, _) in enumerate(steps, start=1):
        exact = exact.read_again(replace(NOW, count=count * 10)).met(met)
        assert exact.missed == count * 10 - sum(one[0] for one in steps[:count])


@pytest.mark.parametrize(
    ("now", "missed"),
    [
        (replace(NOW, count=9), 2 + 4),
        (replace(NOW, count=9, since=200), 2 + 9),  # all that is counted since a reset
        (replace(NOW, count=3), 2),  # a partition is gone, with its counters
        (replace(NOW, count=3, is_one=True), 2 + 3),  # the counter of the whole table was reset
        (replace(NOW, count=9, is_one=True), 2 + 4),
        (replace(NOW, count=9, table="u"), 2),  # another table
        (None, 2),
    ],
)
def test_counters_are_compared_with_those_of_the_same_table_and_time(now: CountedChanges | None, missed: int) -> None:
    """Otherwise a warning is invented, or known changes are forgotten."""
    assert replace(NOW, count=5, missed=2).missed_by(now) == missed


def test_a_state_is_stored_exactly() -> None:
    """What was missed before is forgotten otherwise, as soon as another process syncs."""
    state = CountedChanges(7, "16384", 1_700_000_000, 2)
    data: Any = state.to_json()
    assert CountedChanges.from_json(data) == state and CountedChanges.from_json(None) is None
