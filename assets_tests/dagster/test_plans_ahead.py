"""Plans that are made before their turn: in order, none twice without need, and none that is too old.

Belongs here: ``runs.plans_ahead`` by itself. Does not belong: the command line that uses it (``test_cli``).
"""

import threading
import time
from collections.abc import Callable

import pytest

from incremental_assets.dagster.runs import plans_ahead
from incremental_assets.dagster.runs.plans_ahead import PlansAhead


def made(calls: list[int], number: int, seconds: float = 0) -> Callable[[], int]:
    def make() -> int:
        time.sleep(seconds)
        calls.append(number)
        return number

    return make


def test_plans_come_in_their_order_and_are_made_once() -> None:
    """A container would be synced by the plan of another one."""
    calls: list[int] = []
    with PlansAhead([made(calls, n, 0.02 * (n % 3)) for n in range(40)]) as ahead:
        assert [ahead.take() for _ in range(40)] == list(range(40))
    assert sorted(calls) == list(range(40))


def test_an_error_is_that_of_its_own_plan() -> None:
    """One container that cannot be planned would end the sync of all, or wait for ever."""

    def fails() -> int:
        raise KeyboardInterrupt("this one")

    calls: list[int] = []
    with PlansAhead([made(calls, 0), fails, made(calls, 2)]) as ahead:
        assert ahead.take() == 0
        with pytest.raises(KeyboardInterrupt, match="this one"):
            ahead.take()
        assert ahead.take() == 2


def test_a_plan_that_became_old_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of which rows came while another one was loaded for an hour would be skipped."""
    monkeypatch.setattr(plans_ahead, "FRESH_SECONDS", 0.1)
    calls: list[int] = []
    with PlansAhead([made(calls, n) for n in range(3)]) as ahead:
        ahead.take()
        time.sleep(0.5)
        ahead.take()
    assert calls.count(1) == 2


def test_only_some_plans_are_made_ahead_and_none_after_the_end() -> None:
    """Ten thousand containers would be planned before the first is synced, and once more when their turn comes."""
    calls: list[int] = []
    with PlansAhead([made(calls, n) for n in range(100)]) as ahead:
        ahead.take()
        time.sleep(0.3)
        assert len(calls) <= 1 + plans_ahead.AHEAD
    time.sleep(0.1)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("plan-")]
