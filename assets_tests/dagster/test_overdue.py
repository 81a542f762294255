"""Schedules and sensors that are overdue, and a daemon that is down, are problems that alerts report.

Belongs here: ticks and runs as the daemon records them, at times of the test's choice, and one real daemon. Does not belong: what else is a
problem, and sending it (``test_alerts``).
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage.tags import SCHEDULE_NAME_TAG, SENSOR_NAME_TAG
from dagster._core.test_utils import create_run_for_test

from assets_tests.dagster.recorded_ticks import record_tick, switch_off, switch_on
from assets_tests.harness import Project, wait_for
from incremental_assets.operations.alerts.ticks import Expected, daemon_problem, tick_problems
from incremental_assets.runs.records.run_tags import CONTAINER_TAG

MakeProject = Callable[..., Project]
HOUR, DAY = 3600, 86_400
NOW = 1_774_000_800.0  # 2026-03-20 10:00 UTC
EXPECTED = Expected({"nightly": ("0 2 * * *", "UTC")}, {"files": 30})


@pytest.fixture
def instance(project: MakeProject) -> Iterator[dg.DagsterInstance]:
    with project().instance() as made:
        yield made


def overdue(instance: dg.DagsterInstance, now: float = NOW, expected: Expected = EXPECTED) -> Mapping[str, str]:
    """The texts of the problems by their keys."""
    return {key: one.text for key, one in tick_problems(instance, expected, HOUR, now).problems.items()}


def test_a_schedule_whose_tick_was_not_evaluated_is_overdue_after_the_time_of_grace(instance: dg.DagsterInstance) -> None:
    """The night's sync has not run, nothing has failed, and everything looks green."""
    due = NOW - 8 * HOUR  # 02:00
    switch_on(instance, "nightly", due - 3 * DAY, cron="0 2 * * *")
    record_tick(instance, "nightly", due - DAY)
    assert overdue(instance, due + HOUR - 1) == {}
    found = overdue(instance, due + HOUR + 1)
    assert found == {
        "overdue nightly": "nightly: its tick of 2026-03-20 02:00:00 UTC was not evaluated; the last tick was 2026-03-19 02:00:00 UTC"
    }
    record_tick(instance, "nightly", due)
    assert overdue(instance) == {}
    switch_off(instance, "nightly")
    assert overdue(instance, NOW + 9 * DAY) == {}, "somebody has switched it off"


def test_a_schedule_that_was_switched_on_after_it_was_due_is_not_overdue(instance: dg.DagsterInstance) -> None:
    """Otherwise each new schedule, and each new time in the YAML, would begin with an alert."""
    switch_on(instance, "nightly", NOW - HOUR, cron="0 2 * * *")
    assert overdue(instance) == {}


def test_what_is_no_part_of_the_code_location_is_not_overdue(instance: dg.DagsterInstance) -> None:
    """Dagster keeps the state of a schedule that was deleted, and nobody evaluates it any more."""
    switch_on(instance, "deleted", NOW - 9 * DAY, cron="0 2 * * *")
    record_tick(instance, "deleted", NOW - 9 * DAY, TickStatus.FAILURE)
    assert overdue(instance) == {}


def test_a_sensor_that_is_not_evaluated_any_more_is_overdue(instance: dg.DagsterInstance) -> None:
    switch_on(instance, "files", NOW - DAY)
    record_tick(instance, "files", NOW - HOUR - 29, is_schedule=False)
    assert overdue(instance) == {}
    assert "the sensor is evaluated every 30 s, and is overdue by 2 h;" in overdue(instance, NOW + HOUR + 2)["overdue files"]


def test_a_tick_that_does_not_end_is_overdue(instance: dg.DagsterInstance) -> None:
    switch_on(instance, "nightly", NOW - 3 * DAY, cron="0 2 * * *")
    record_tick(instance, "nightly", NOW - 8 * HOUR, TickStatus.STARTED)
    assert overdue(instance)["overdue nightly"] == "nightly: its tick of 2026-03-20 02:00:00 UTC has not ended"


def test_a_run_that_does_not_begin_is_overdue(instance: dg.DagsterInstance) -> None:
    """The ticks are all well: each of them says that a run is about to sync it."""
    now = time.time()
    expected = Expected({}, {"files": 30})
    switch_on(instance, "files", now)
    run = create_run_for_test(instance, tags={SENSOR_NAME_TAG: "files"}, status=dg.DagsterRunStatus.NOT_STARTED)
    record_tick(instance, "files", now + 2 * HOUR, is_schedule=False)
    assert overdue(instance, now + HOUR / 2, expected) == {}
    found = overdue(instance, now + HOUR + 60, expected)["overdue files"]
    assert run.run_id in found and "has not begun" in found


def test_a_schedule_whose_runs_fail_is_overdue_when_the_next_one_should_have_succeeded(instance: dg.DagsterInstance) -> None:
    """A nightly maintenance, or a job of the project's own, that fails each night is otherwise no container's problem."""
    now = time.time()
    last = now // DAY * DAY  # the midnight before
    expected = Expected({"nightly": ("0 0 * * *", "UTC")}, {})
    switch_on(instance, "nightly", last - DAY, cron="0 0 * * *")
    record_tick(instance, "nightly", last)

    def ended(status: dg.DagsterRunStatus, **tags: str) -> dg.DagsterRun:
        return create_run_for_test(instance, tags={SCHEDULE_NAME_TAG: "nightly", **tags}, status=status)

    ended(dg.DagsterRunStatus.FAILURE, **{CONTAINER_TAG: "shop/orders"})
    assert overdue(instance, last + 2 * HOUR, expected) == {}, "a failed sync is its container's problem already"
    failed = ended(dg.DagsterRunStatus.FAILURE)
    problems = tick_problems(instance, expected, HOUR, last + 2 * HOUR).problems
    assert "none of the last 1 has succeeded" in problems["overdue nightly"].text and failed.run_id in problems["overdue nightly"].remedy
    ended(dg.DagsterRunStatus.STARTED)
    found = tick_problems(instance, expected, HOUR, last + 2 * HOUR)
    assert not found.problems and found.undecided == {"overdue nightly"}


def test_a_tick_that_is_at_work_does_not_end_the_problem_of_the_one_before(instance: dg.DagsterInstance) -> None:
    """A tick takes up to a minute: each look in it would say that the problem is over, and the next one that it has begun."""
    switch_on(instance, "files", NOW - DAY)
    record_tick(instance, "files", NOW - 60, TickStatus.FAILURE, is_schedule=False)
    problems = tick_problems(instance, EXPECTED, HOUR, NOW).problems
    assert problems["tick files"].text == "files: its last tick has failed: the source is gone"
    record_tick(instance, "files", NOW - 5, TickStatus.STARTED, is_schedule=False)
    found = tick_problems(instance, EXPECTED, HOUR, NOW)
    assert not found.problems and found.undecided == {"tick files"}


# ---------------------------------------------------------------------- the daemon
@pytest.mark.long
def test_that_the_daemon_has_never_run_is_seen_from_outside(project: MakeProject) -> None:
    """The alerts are sent by the daemon. Without it there is silence, as in a night without problems."""
    shop = project(schedule="0 2 * * *")
    shop.execute("create table orders (id int primary key)")
    shop.write()
    shop.cli("catalog", spark=False)
    _, [one], _ = shop.cli("alerts", "--json", check=1, spark=False)
    assert (one["problem"], one["severity"]) == ("daemon", "failure") and "has never run" in one["text"], one


@pytest.mark.long  # a daemon starts, and stops
def test_a_real_daemon_is_at_work_and_then_is_not(project: MakeProject) -> None:
    """The states and signs of life are those that Dagster's daemon writes, in its own formats."""
    shop = project(schedule="0 2 * * *")
    shop.execute("create table orders (id int primary key)")
    shop.write()
    shop.cli("catalog", spark=False)
    command = [sys.executable, "-m", "dagster._daemon", "run", "-m", "definitions", "-d", "."]
    own = {"DAGSTER_HOME": str(shop.home), "INCREMENTAL_ASSETS_PROJECT": str(shop.path), "INCREMENTAL_ASSETS_LAKE": str(shop.lake_root)}
    log = (shop.path / "daemon.log").open("w")
    daemon = subprocess.Popen(command, cwd=shop.path, env={**shop.environment(spark=False), **own}, stdout=log, stderr=log)
    try:
        with shop.instance() as instance:
            wait_for(lambda: "sync_shop_schedule" in {one.instigator_name for one in instance.all_instigator_state()}, "its state", 120)
        assert shop.cli("alerts", spark=False)[1] == []
    finally:
        daemon.terminate()
        daemon.wait(60)
        log.close()
    with shop.instance() as instance:
        assert daemon_problem(instance, 300, time.time()) is None
        later = time.time() + 2 * DAY
        problem = daemon_problem(instance, 300, later)
        found = overdue(instance, later, Expected({"sync_shop_schedule": ("0 2 * * *", "UTC")}, {}))
    assert problem is not None and "no sign of life for 2 days" in problem.text
    assert "was not evaluated" in found["overdue sync_shop_schedule"], found
