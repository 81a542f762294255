"""Plans that are made before their turn: in order, none twice without need, and none that is too old.

Belongs here: ``runs.plans_ahead`` by itself. Does not belong: the command line that uses it (``test_cli``).
"""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from assets_tests.harness import wait_for
from incremental_assets.runs import plans_ahead
from incremental_assets.runs.plans_ahead import PlansAhead


def made(calls: list[int], number: int) -> Callable[[], int]:
    def make() -> int:
        calls.append(number)
        return number

    return make


def test_plans_come_in_their_order_and_are_made_once() -> None:
    """A container would be synced by the plan of another one."""
    calls: list[int] = []
    ended = [threading.Event() for _ in range(40)]

    def after_the_next(number: int) -> Callable[[], int]:
        def make() -> int:
            if number % 2 == 0:
                assert ended[number + 1].wait(60)
            calls.append(number)
            ended[number].set()
            return number

        return make

    with PlansAhead([after_the_next(n) for n in range(40)]) as ahead:
        assert [ahead.take() for _ in range(40)] == list(range(40))
    assert calls != sorted(calls) == list(range(40))


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
    seconds = 0.0
    monkeypatch.setattr(plans_ahead, "time", SimpleNamespace(monotonic=lambda: seconds))
    calls: list[int] = []
    with PlansAhead([made(calls, n) for n in range(4)]) as ahead:
        ahead.take()
        wait_for(lambda: len(ahead._made) == 3, "the other plans are made")
        seconds = plans_ahead.FRESH_SECONDS
        assert ahead.take() == 1 and sorted(calls) == [0, 1, 2, 3]
        seconds += 0.1
        assert ahead.take() == 2 and sorted(calls) == [0, 1, 2, 2, 3]


def test_only_some_plans_are_made_ahead_and_none_after_the_end() -> None:
    """Ten thousand containers would be planned before the first is synced, and once more when their turn comes."""
    calls: list[int] = []
    with PlansAhead([made(calls, n) for n in range(100)]) as ahead:
        ahead.take()
        wait_for(lambda: len(calls) > plans_ahead.AHEAD, "so many plans are made ahead")
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("plan-")]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(threads) == plans_ahead.THREADS and len(calls) == 1 + plans_ahead.AHEAD
