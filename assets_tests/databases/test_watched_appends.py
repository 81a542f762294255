"""Whether append says that rows of its source were updated or deleted which it does not read again, and when it stops saying so.

Belongs here: the counters of a real PostgreSQL from one sync to the next, and their arithmetic. Does not belong: on what proof append is
proposed (``catalog/test_written_once``).
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets_tests.harness import Project
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.plan import Mode

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
    assert repaired["status"] == "repaired", repaired
    line = log.one("t")
    assert line["status"] == "skipped", line
    log.assert_equal("t")


def test_changes_that_a_sync_has_read_are_not_said(log: Project) -> None:
    """Whoever corrects the newest rows now and then would be told to read the whole table for nothing."""
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


def test_counters_that_begin_anew_say_nothing(log: Project) -> None:
    """After a reset, or a crash of the server, what was counted before is not known."""
    log.execute("update t set v = 'new' where id = 7")
    log.execute("select pg_stat_reset()")
    assert log.one("t")["status"] == "skipped"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=8))
def test_changes_that_are_counted_late_are_told_from_missed_ones(steps: list[tuple[int, int, bool]]) -> None:
    """A server counts some seconds late. Changes that a sync has met before they were counted would be said to be missed by the next one,
    and credit for them must not hide others for ever."""
    state, count, late, missed = CountedChanges(0, "now"), 0, 0, 0
    for met, below, is_late in steps:
        count += late + below + (0 if is_late else met)
        late = met if is_late else 0
        missed += below
        after = state.read_again(CountedChanges(count, "now"))
        assert after is not None
        state = after.met(met)
        assert state.missed + late == missed, "exact, once all is counted"
    assert state.missed_by(CountedChanges(count + late, "now")) == missed


def test_a_state_is_stored_exactly() -> None:
    """What was missed before is forgotten otherwise, as soon as another process syncs."""
    state = CountedChanges(7, "2026-01-01", -2)
    data: Any = state.to_json()
    assert CountedChanges.from_json(data) == state and CountedChanges.from_json(None) is None
