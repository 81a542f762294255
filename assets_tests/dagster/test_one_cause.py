"""One cause is one problem: what a source that is away, a table that is gone, or an open transaction does to many containers.

Belongs here: which problems are one, by records as ``status`` has them, and by a real source. Does not belong: which problems there are
(``test_alerts``), and what is overdue (``test_overdue``).
"""

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import ScheduleExecutionError
from dagster._core.scheduler.instigation import TickStatus
from dagster._utils.error import serializable_error_info_from_exc_info
from dagster_shared.error import SerializableErrorInfo

from assets_tests.dagster.recorded_ticks import queue_run, record_tick, switch_on
from assets_tests.dagster.test_alerts import HOLDER, LIMITS, RECORD
from assets_tests.harness import Project
from incremental_assets.core.looks import Look
from incremental_assets.operations.alerts.causes import one_for_each_cause
from incremental_assets.operations.alerts.look import look
from incremental_assets.operations.alerts.messages import from_cursor, news, to_cursor
from incremental_assets.operations.alerts.problems import Cause, Found, Kind, Limits, Problem, Severity, found_in
from incremental_assets.operations.alerts.ticks import Expected
from incremental_assets.runs.records.looks import remember

MakeProject = Callable[..., Project]
AWAY = {
    "result": "failure",
    "message": "postgresql://shop: cannot connect: connection refused.",
    "failing_since": "2026-03-01T10:00:00+00:00",
}
SCHEDULE = "sync_shop_schedule"


def one(found: Found) -> Found:
    return one_for_each_cause(found, lambda key: key.partition("/")[0] if "/" in key else "shop")


def of(*changes: Mapping[str, Any]) -> Found:
    """What is found of the containers ``t0``, ``t1`` and so on, each as its record is changed."""
    return one(found_in([{**RECORD, "container": f"shop/t{number}", **changed} for number, changed in enumerate(changes)], LIMITS))


def keys(found: Found) -> set[str]:
    """The keys of the problems, without the digest of the cause."""
    return {re.sub(r"( failing| held back) \S+$", r"\1", key) for key in found.problems}


def the(found: Found, key: str) -> Problem:
    """The problem whose key begins so."""
    [problem] = (one for name, one in found.problems.items() if name.startswith(key))
    return problem


# ---------------------------------------------------------------------- records
def test_syncs_that_fail_for_one_reason_are_one_problem() -> None:
    """While a source is away at night, forty messages hide the one that says something else."""
    found = of(*[AWAY] * 7, {}, {"result": "failure", "message": "shop/t8: the disk is full"})
    assert keys(found) == {"shop failing", "shop/t8 sync"}
    assert the(found, "shop failing").in_words == (
        "shop: shop/t0, shop/t1, shop/t2, shop/t3, shop/t4 and 2 more fail for one reason: "
        "postgresql://shop: cannot connect: connection refused, since 2026-03-01 10:00:00 UTC"
    )
    assert of(AWAY, {}).problems.keys() == {"shop/t0 sync"}, "there is nothing to join"
    named = [{"result": "failure", "message": f"shop/t{number}: the disk is full"} for number in range(2)]
    assert keys(of(*named)) == {"shop failing"}, "the messages differ only in the name of the container"


def test_what_is_late_because_it_fails_is_no_problem_of_its_own() -> None:
    """The lag of a container that cannot be synced grows by itself, and says nothing new."""
    late = {"lag_seconds": 5000}
    assert keys(of({**AWAY, **late}, {**AWAY, **late}, {})) == {"shop failing"}
    assert of({**AWAY, **late}, late, {}).problems.keys() == {"shop/t0 sync", "shop/t1 lag"}
    assert of({"result": "missing", **late}, {"result": "missing", **late}).problems.keys() == {"shop gone"}


def test_a_source_that_is_away_is_one_message_and_one_more_when_all_have_succeeded() -> None:
    """Its containers are retried one after the other. "over" with the first of them would be a false relief, and forty would be noise."""
    on, running = frozenset({Severity.FAILURE}), {"result": "running"}
    first, known = news(None, of({}, AWAY, {}), on)
    assert first is not None and first.body.startswith("failure: shop/t1: the last sync has failed")
    looks = [(AWAY, AWAY, {}), (AWAY, AWAY, AWAY), (AWAY, running, running), (running,) * 3, (running, {}, {}), (running, AWAY, AWAY)]
    for changes in looks:
        message, known = news(from_cursor(to_cursor({"x": known}))["x"], of(*changes), on)
        assert message is None and known.problems, changes
    last, known = news(known, of({}, {}, {}), on)
    assert last is not None and not known.problems
    over = [line.partition(" fail")[0] for line in last.body.splitlines()]
    assert over == ["over: shop: shop/t1, shop/t2"], "one message was sent, and one is over"


def test_another_cause_is_another_message() -> None:
    """Somebody waits for the source to come back, and nobody looks at the disk."""
    _, known = news(None, of(AWAY, AWAY, {}), frozenset({Severity.FAILURE}))
    message, _ = news(known, of(AWAY, AWAY, {"result": "failure", "message": "the disk is full"}), frozenset({Severity.FAILURE}))
    assert message is not None and message.body == "failure: shop/t2: the last sync has failed: the disk is full"


def test_a_cause_that_lasts_does_not_mute_another_one() -> None:
    """Two tables that are broken for weeks would keep quiet about each later outage of their source."""
    on, broken = frozenset({Severity.FAILURE}), {"result": "failure", "message": "there is no column x"}
    _, known = news(None, of(broken, broken, {}, {}), on)
    message, known = news(known, of(broken, broken, AWAY, AWAY), on)
    assert message is not None and "shop/t2, shop/t3 fail for one reason" in message.body
    over, known = news(known, of(broken, broken, {}, {}), on)
    assert over is not None and over.body.startswith("over: shop: shop/t2, shop/t3 fail"), "though others still fail"
    again, _ = news(known, of(broken, broken, AWAY, AWAY), on)
    assert again is not None and again.body.startswith("failure: "), "the second outage is as new as the first"


def test_an_outage_ends_though_some_container_is_always_at_work() -> None:
    """Otherwise nobody hears of the next one. Of a busy datastore, each look finds a run."""
    on = frozenset({Severity.FAILURE})
    _, known = news(None, of(*[AWAY] * 6), on)
    over, known = news(known, of({"result": "running"}, *[{}] * 5), on)
    assert over is not None and over.body.startswith("over: ")
    again, _ = news(known, of(*[AWAY] * 6), on)
    assert again is not None


def test_each_container_that_is_gone_is_told() -> None:
    """They are one problem, and a table that somebody has dropped by mistake is news all the same."""
    on, gone = frozenset({Severity.FAILURE}), {"result": "missing"}
    known = None
    for changes in ((gone, {}, {}), (gone, gone, {}), (gone, gone, gone)):
        message, known = news(known, of(*changes), on)
        assert message is not None and f"shop/t{sum(change == gone for change in changes) - 1}" in message.body
    assert known is not None


def test_retries_of_all_do_not_end_the_problem_of_all() -> None:
    """While all containers are tried again, nobody knows whether the source is back."""
    on, running = frozenset({Severity.FAILURE}), {"result": "running"}
    _, known = news(None, of(AWAY, AWAY), on)
    message, known = news(known, of(running, running), on)
    assert message is None and known.problems


def test_an_open_transaction_that_holds_back_many_watermarks_is_one_problem() -> None:
    held, other = {"held_back_seconds": 7500}, {**HOLDER, "pid": 8, "since": "2026-03-01T11:00:00+00:00"}
    found = of({**held, "held_back_by": [other, HOLDER]}, {**held, "held_back_by": [HOLDER]}, {**held, "held_back_by": [other]})
    assert keys(found) == {"shop held back", "shop/t2 held back"}
    assert the(found, "shop held back").text == (
        "shop: the watermarks of shop/t0, shop/t1 have been held back by an open transaction in the source: "
        "pid 7 (user app, application import, open since 2026-03-01T10:00:00+00:00)"
    )
    assert "for 2 h 5 min by open transactions" in found.problems["shop/t2 held back"].text


def test_two_datastores_with_the_same_trouble_are_two_problems() -> None:
    """Each has somebody else who looks after it."""
    failed = [Problem(Severity.FAILURE, "", cause=Cause(Kind.FAILING, name, "full")) for name in "abcd"]
    named = ("shop/a sync", "shop/b sync", "books/c sync", "books/d sync")
    assert keys(one(Found(dict(zip(named, failed, strict=True)), frozenset(), {}))) == {"shop failing", "books failing"}


# ---------------------------------------------------------------------- a real source
def test_a_source_that_is_away_is_one_problem_with_its_reason(project: MakeProject) -> None:
    """The schedule's tick fails, no run is started, and all containers become late. "Error occurred during the evaluation of schedule" is
    what Dagster says of it first, and not that the source cannot be reached."""
    shop = project(schedule="0 2 * * *")
    shop.execute("create table a (id int primary key); create table b (id int primary key)")
    shop.sync()
    known, now = shop.catalog_as_known(), time.time()
    shop.url += "_away"
    chosen = known()
    with shop.instance() as instance:
        switch_on(instance, SCHEDULE, now - 86_400, cron="0 2 * * *")
        record_tick(instance, SCHEDULE, now - 3600)
        error = failure_of_a_tick(instance, shop.dagster(chosen).get_repository_def())
        record_tick(instance, SCHEDULE, now, TickStatus.FAILURE, error=error)
        found = look(instance, chosen, Limits(lag_seconds=0), Expected({SCHEDULE: ("0 2 * * *", "UTC")}, {}), now + 60)
    assert found.problems.keys() == {f"tick {SCHEDULE}"}
    text = found.problems[f"tick {SCHEDULE}"].text
    assert text.startswith(f"{SCHEDULE}: its last tick has failed: postgresql://") and "cannot connect: " in text, text
    assert "dagster." not in text and "; the last one that was well was 20" in text, text


def test_a_run_that_waits_explains_the_lag_of_its_own_container_only(project: MakeProject) -> None:
    """One run in the queue would silence the lag of all tables of its schedule, for as long as it waits."""
    shop = project(schedule="0 2 * * *")
    shop.execute("create table a (id int primary key); create table b (id int primary key); create table c (id int primary key)")
    shop.sync()
    chosen, now, late = shop.catalog(), time.time(), Limits(lag_seconds=3600)
    expected = Expected({SCHEDULE: ("0 2 * * *", "UTC")}, {})
    with shop.instance() as instance:
        switch_on(instance, SCHEDULE, now - 86_400, cron="0 2 * * *")
        queue_run(instance, SCHEDULE, "shop/a")
        then = now + 86_400
        record_tick(instance, SCHEDULE, then)
        remember(instance, {"shop/c": Look(int(then))})
        waiting = look(instance, chosen, late, expected, then)
        assert waiting.problems.keys() == {f"overdue {SCHEDULE}", "shop/b lag"}
        assert "has not begun" in waiting.problems[f"overdue {SCHEDULE}"].text
        stopped = look(instance, chosen, late, expected, then + 2 * 86_400)
        assert stopped.problems.keys() == {f"overdue {SCHEDULE}"}, "now that it does not tick, it syncs none of them"
        assert "was not evaluated" in stopped.problems[f"overdue {SCHEDULE}"].text


def failure_of_a_tick(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition) -> SerializableErrorInfo:
    """Evaluates a tick that fails, and returns the error as Dagster's daemon stores it."""
    at = datetime.now(timezone.utc)
    with dg.build_schedule_context(instance=instance, repository_def=repository, scheduled_execution_time=at) as context:
        with pytest.raises(ScheduleExecutionError) as failed:
            repository.get_schedule_def(SCHEDULE).evaluate_tick(context)
    return serializable_error_info_from_exc_info((failed.type, failed.value, failed.tb))
