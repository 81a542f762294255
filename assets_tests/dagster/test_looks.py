"""How far the lake is behind a source: by the last look at the source that the lake has covered, whoever has looked.

Belongs here: which looks count, and what ``status`` and alerts make of them. Does not belong: how messages are sent (``test_alerts``), and
ticks that are overdue (``test_overdue``).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._daemon.types import DaemonHeartbeat
from hypothesis import given
from hypothesis import strategies as st

from assets_tests.dagster.recorded_ticks import record_tick, switch_off, switch_on
from assets_tests.harness import Folder, Project, Workspace
from incremental_assets.core.looks import Look, lag_seconds, latest
from incremental_assets.core.plan import Mode
from incremental_assets.dagster import sensors
from incremental_assets.databases import plan
from incremental_assets.files import container_listing
from incremental_assets.operations.alerts.current import QUIET_SECONDS, missing_daemon
from incremental_assets.operations.alerts.look import look
from incremental_assets.operations.alerts.problems import Limits
from incremental_assets.operations.alerts.ticks import Expected
from incremental_assets.operations.history import is_of_chosen_partitions
from incremental_assets.operations.status import status_lines
from incremental_assets.runs.records.looks import looked_at, remember

MakeProject = Callable[..., Project]
HOUR = 3600
OF_THE_DOCS = Limits(lag_seconds=7200)
"""``max_lag_seconds: 7200``, as in the example of docs/alerts.md."""
LOOKS = st.dictionaries(st.sampled_from("abc"), st.builds(Look, st.integers(0, 9), st.integers(0, 2)))


class Clock:
    """The clock by which plans and listings note when they look; the test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = float(int(time.time()))
        moved = SimpleNamespace(time=lambda: self.now, time_ns=time.time_ns, monotonic=time.monotonic)
        for module in (plan, container_listing):
            monkeypatch.setattr(module, "time", moved)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def shop(project: MakeProject) -> Project:
    made = project(incremental=["public.orders:day:date"], containers={"orders": {"partition_by": "month"}}, schedule="0 * * * *")
    made.execute(
        "create table orders (id int primary key, day date); insert into orders values (1, '2026-01-05'), (2, '2026-02-05');"
        "create table region (id int primary key); insert into region values (1)"
    )
    return made


def tick(shop: Project) -> Any:
    """Evaluates a tick of the datastore's schedule."""
    with shop.instance() as instance:
        repository = shop.dagster().get_repository_def()
        now = datetime.now(timezone.utc)
        with dg.build_schedule_context(instance=instance, repository_def=repository, scheduled_execution_time=now) as context:
            return repository.get_schedule_def("sync_shop_schedule").evaluate_tick(context)


def lags(workspace: Workspace, now: float) -> dict[str, int | None]:
    """The lag of each container, by its name."""
    with workspace.instance() as instance:
        lines = status_lines(instance, workspace.catalog(), datetime.fromtimestamp(now, timezone.utc))
    return {line["container"].partition("/")[2]: line["lag_seconds"] for line in lines}


def problems(workspace: Workspace, now: float) -> Mapping[str, str]:
    """What alerts report with the limit of the docs' example, by the problems' keys."""
    with workspace.instance() as instance:
        return {key: one.text for key, one in look(instance, workspace.catalog(), OF_THE_DOCS, Expected({}, {}), now).problems.items()}


# ---------------------------------------------------------------------- the rule
@pytest.mark.parametrize(("looked", "now", "lag"), [(None, 100, None), (100, 100, 0), (100, 7301.9, 7201), (100, 99, 0)])
def test_the_lag_counts_from_the_last_look(looked: float | None, now: float, lag: int | None) -> None:
    """A lag of nothing where nobody has ever looked, or one below zero where two clocks differ, would be taken for a lake that is whole."""
    assert lag_seconds(looked, now) == lag


@given(LOOKS, LOOKS)
def test_of_two_records_the_later_look_counts(one: dict[str, Look], other: dict[str, Look]) -> None:
    """A look that goes backwards is an alert of a container that is not late, or one of changes that were mended in the same second."""
    both = latest(one, other)
    assert both.keys() == {*one, *other}
    for name in one.keys() & other.keys():
        assert both[name] == (one[name] if one[name].at > other[name].at else other[name])


# ---------------------------------------------------------------------- who looks
def test_a_quiet_night_raises_no_alert_and_a_dead_schedule_raises_one(shop: Project, clock: Clock) -> None:
    """Nobody reads alerts of which each night brings one for each container. And a night without ticks must bring one."""
    shop.sync()
    with shop.instance() as instance:
        runs, events = len(instance.get_runs()), len(instance.fetch_observations(dg.AssetKey(["shop", "orders"]), limit=50).records)
    found: list[Mapping[str, str]] = []
    for _ in range(9):
        clock.now += HOUR
        assert not tick(shop).run_requests
        found.append(problems(shop, clock.now + HOUR - 1))
    assert found == [{}] * 9
    assert lags(shop, clock.now + 5) == {"orders": 5, "region": 5}
    with shop.instance() as instance:
        assert len(instance.get_runs()) == runs, "a look is no run"
        assert len(instance.fetch_observations(dg.AssetKey(["shop", "orders"]), limit=50).records) == events, "and no event"
    late = problems(shop, clock.now + 3 * HOUR)
    assert late.keys() == {"shop lag"} and late["shop lag"].startswith("shop: all of its 2 containers are behind: the lake is 3 h behind")


def test_the_sync_counts_from_the_moment_at_which_it_looked(shop: Project, clock: Clock) -> None:
    """Rows that are committed while a long sync reads are not in the lake when it ends."""
    clock.now -= HOUR
    shop.sync()
    assert lags(shop, clock.now + HOUR) == {"orders": HOUR, "region": HOUR}
    clock.now += HOUR
    assert shop.one("orders")["status"] == "skipped"
    assert lags(shop, clock.now) == {"orders": 0, "region": HOUR}, "one that has nothing to do has looked, too"


def test_a_look_that_found_something_does_not_count_until_it_is_in_the_lake(shop: Project, clock: Clock) -> None:
    """A schedule that ticks, and whose syncs all fail, is the very thing that the alert is for."""
    shop.sync()
    shop.execute("insert into orders values (3, '2026-02-06')")
    clock.now += 3 * HOUR
    assert [one.asset_selection[0].path[-1] for one in tick(shop).run_requests] == ["orders"]
    assert lags(shop, clock.now) == {"orders": 3 * HOUR, "region": 0}
    shop.execute("alter table orders rename to hidden")
    assert shop.one("orders", ok=False, stale=True)["status"] == "failed"
    shop.execute("alter table hidden rename to orders")
    assert lags(shop, clock.now)["orders"] == 3 * HOUR
    late = problems(shop, clock.now)
    assert late["shop/orders lag"].startswith("shop/orders: the lake is 3 h behind the source") and "shop lag" not in late
    assert shop.one("orders")["status"] == "synced" and lags(shop, clock.now)["orders"] == 0


def test_what_a_look_finds_changed_below_an_append_is_said_until_it_is_mended(project: MakeProject, clock: Clock) -> None:
    """Most changes of old rows are met by ticks that have nothing to do, whose reason nobody reads."""
    shop = project(incremental=["public.t:id:integer"], containers={"t": {"safety_lag": 0, "partition_by": 50}}, schedule="0 * * * *")
    shop.execute("create table t (id int primary key, v text); insert into t select i, 'old' from generate_series(1, 100) i")
    shop.sync()
    shop.execute("update t set v = 'new' where id = 7")
    said = "up to 1 row of the source was updated or deleted below what append reads again"
    with shop.instance() as instance:
        runs = len(instance.get_runs())
        assert not tick(shop).run_requests and len(instance.get_runs()) == runs
        [line] = status_lines(instance, shop.catalog(), datetime.now(timezone.utc))
    assert (line["result"], line["missed_changes"], line["message"].startswith(said)) == ("warning", 1, True)
    found = problems(shop, clock.now)
    assert found.keys() == {"shop/t sync"} and said in found["shop/t sync"]
    shop.execute("insert into t values (101, 'old')")
    shop.one("t")
    assert problems(shop, clock.now)["shop/t sync"].count("append reads again") == 1, "the sync has said it, and the look need not"
    shop.execute("delete from t where id = 8")
    shop.one("t")
    assert problems(shop, clock.now)["shop/t sync"].startswith("shop/t: the last sync warns: up to 2 rows"), "by a look after that sync"
    shop.execute("update t set v = 'old' where id = 7; insert into t values (8, 'old')")
    assert shop.audit("t")["t"]["status"] == "equal"
    assert problems(shop, clock.now) == {}


def test_a_backfill_of_one_partition_says_nothing_of_the_others(shop: Project, clock: Clock) -> None:
    """Otherwise a backfill of last year would hide that nobody has synced since yesterday."""
    shop.sync()
    clock.now += 3 * HOUR
    assert shop.one("orders", mode=Mode.REFRESH, keys=("2026-01-01", "2026-01-01"))["status"] == "synced"
    assert lags(shop, clock.now)["orders"] == 3 * HOUR
    assert shop.one("orders", mode=Mode.REFRESH)["status"] == "synced" and lags(shop, clock.now)["orders"] == 0


def test_a_tick_that_does_not_look_does_not_count(project: MakeProject, clock: Clock) -> None:
    """A view that is read every six hours is up to so long behind, and that is no problem; it is one when nobody reads it then, either."""
    shop = project(containers={"v": {"every": "6 hours"}}, schedule="0 * * * *")
    shop.execute("create view v as select 1 as id")
    shop.sync()
    clock.now += 5 * HOUR
    assert not tick(shop).run_requests
    assert lags(shop, clock.now) == {"v": 5 * HOUR} and problems(shop, clock.now) == {}
    assert problems(shop, clock.now + 4 * HOUR).keys() == {"shop/v lag"}


def test_the_sensor_of_files_looks_too(folder: Callable[..., Folder], clock: Clock) -> None:
    """A folder into which nothing comes at night would be late each morning."""
    made = folder(containers={"orders": {"glob": "orders/*.csv"}}, settle_seconds=60)
    made.put("orders/1.csv", "n\n1\n")
    made.one("orders")
    cursor: str | None = None
    with made.instance() as instance:

        def at() -> dict[str, int]:
            return {label: one.at for label, one in looked_at(instance, ["landing"]).items()}

        for _ in range(3):  # the first of them plans, and the others compare with what it has seen
            clock.now += HOUR
            result = sensors.tick(instance, made.definition("orders"), cursor)
            assert not result.run_requests
            cursor = result.cursor
            assert at() == {"landing/orders": clock.now}
        clock.now += HOUR
        made.put("orders/2.csv", "n\n2\n", at=time.time())
        assert not sensors.tick(instance, made.definition("orders"), cursor).run_requests, "it was written just now"
        assert at() == {"landing/orders": clock.now - 60}, "what came in the last minute is not in the lake"


# ---------------------------------------------------------------------- the record
@pytest.fixture
def instance(project: MakeProject) -> Iterator[dg.DagsterInstance]:
    with project().instance() as made:
        yield made


def test_a_look_neither_goes_backwards_nor_takes_away_those_of_others(instance: dg.DagsterInstance) -> None:
    """A long sync that ends after a tick, and another container's sync, would otherwise undo what these have recorded."""
    remember(instance, {"shop/orders": Look(200, 7), "shop/a/b": Look(100), "books/orders": Look(50)})
    remember(instance, {"shop/orders": Look(150), "shop/region": Look(150), "shop/lines": None})
    assert looked_at(instance, ["shop"]) == {"shop/orders": Look(200, 7), "shop/a/b": Look(100), "shop/region": Look(150)}
    assert looked_at(instance, ["books", "none"]) == {"books/orders": Look(50)}


def test_before_a_look_is_recorded_the_last_successful_sync_counts(shop: Project) -> None:
    """After an upgrade, all containers would be without a lag until the next night. A backfill of a partition is not such a sync."""
    shop.sync()
    shop.one("orders", mode=Mode.REFRESH, keys=("2026-01-01", "2026-01-01"))
    with shop.instance() as instance:
        instance.daemon_cursor_storage.set_cursor_values({"incremental_assets/looks/shop": "{}"})
        found = [one for one in instance.get_run_records() if one.dagster_run.tags["dagster/incremental_assets.container"] == "shop/orders"]
        ended = {is_of_chosen_partitions(one.dagster_run): one.end_time or 0.0 for one in found}
    assert ended.keys() == {True, False} and ended[False] < ended[True]
    assert lags(shop, ended[False] + 100)["orders"] == 100


# ---------------------------------------------------------------------- the daemon
def test_status_says_that_no_daemon_runs_where_something_waits_for_it(shop: Project) -> None:
    """A schedule in the YAML, and a next tick on the screen, look as if somebody evaluated it."""
    chosen, now = shop.catalog(), time.time()
    with shop.instance() as instance:
        missing = missing_daemon(instance, chosen, now)
        assert missing is not None and missing.startswith("Dagster's daemon has never run in this project: no schedule, ")
        instance.add_daemon_heartbeat(DaemonHeartbeat(now, "SCHEDULER", "id"))
        assert missing_daemon(instance, chosen, now + QUIET_SECONDS) is None
        assert "has given no sign of life for 5 min" in (missing_daemon(instance, chosen, now + QUIET_SECONDS + 1) or "")
        switch_on(instance, "sync_shop_schedule", now, cron="0 * * * *")
        record_tick(instance, "sync_shop_schedule", now)
        assert missing_daemon(instance, chosen, now + HOUR) is not None
        switch_off(instance, "sync_shop_schedule")
        assert missing_daemon(instance, chosen, now + HOUR) is None, "somebody has switched it off"


def test_a_sensor_of_files_waits_for_the_daemon_unless_a_schedule_takes_its_place(folder: Callable[..., Folder]) -> None:
    """The sensor is switched off in the code where there is a schedule, and a person may have switched it on all the same."""
    made = folder(containers={"orders": {"glob": "orders/*.csv"}})
    made.put("orders/1.csv", "n\n1\n")
    name = sensors.sensor_name(made.definition("orders"))
    with made.instance() as instance:
        assert missing_daemon(instance, made.catalog()) is not None
        switch_on(instance, name, time.time())
        switch_off(instance, name)
        assert missing_daemon(instance, made.catalog()) is None
        [state] = instance.all_instigator_state()
        instance.update_instigator_state(state.with_status(InstigatorStatus.RUNNING))
        assert missing_daemon(instance, made.catalog()) is not None


def test_the_command_says_it_on_stderr(shop: Project) -> None:
    """A script that reads stdout gets the records alone."""
    shop.write()
    shop.cli("catalog", "shop", spark=False)
    _, records, errors = shop.cli("status", "--json", spark=False)
    assert len(records) == 2 and "Dagster's daemon has never run in this project" in errors
    shop.attributes.pop("schedule")
    shop.write()
    _, records, errors = shop.cli("status", "--json", spark=False)
    assert len(records) == 2 and "daemon" not in errors
