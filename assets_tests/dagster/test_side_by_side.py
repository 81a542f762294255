"""A slow, a broken and a hanging container beside others in one tick: who is planned, who is late, who is next.

Belongs here: the threads and their limit, without a source. Does not belong: what a schedule makes of it (``test_dagster``).
"""

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from incremental_assets.core.errors import OutOfTime, SourceError, SourceUnreachable
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.runs.side_by_side import ParallelPlanning, PlannedContainers


def containers(*names: str) -> Any:
    return [SimpleNamespace(container=SimpleNamespace(label=name)) for name in names]


def names(found: Sequence[Any]) -> list[str]:
    return sorted((one[0] if isinstance(one, tuple) else one).container.label for one in found)


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """Threads that wait for it go on when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_slow_and_failing_containers_are_named_and_the_others_are_planned(hang: threading.Event) -> None:
    """One container whose plan takes for ever kept all others of its datastore from being scheduled, tick after tick."""

    def work(definition: Any) -> str:
        label = definition.container.label
        if label == "hangs":
            hang.wait()
        if label == "slow":
            raise OutOfTime("slow: a query took longer than there was time for it")
        if label == "broken":
            raise SourceError("broken: no such column")
        if label == "strange":
            raise ZeroDivisionError
        return label

    look = ParallelPlanning(threads=2)
    seen: PlannedContainers[str] = look.plan(containers("hangs", "slow", "broken", "strange", "a", "b"), work, 2)
    assert [label for _, label in seen.done] == ["a", "b"] and seen.left == []
    assert names(seen.late) == ["hangs", "slow"] and names(seen.failed) == ["broken", "strange"]
    again: PlannedContainers[str] = look.plan(
        containers("hangs", "a"), work, 600
    )  # does not wait for it: its thread of before is still at it
    assert names(again.late) == ["hangs"] and names(again.done) == ["a"]


def test_containers_without_a_plan_are_left_in_their_order(hang: threading.Event) -> None:
    """The next tick begins with the first of them."""

    def work(definition: Any) -> None:
        hang.wait()

    seen: PlannedContainers[None] = ParallelPlanning(threads=2).plan(containers("a", "b", "c", "d"), work, 0.2)
    assert names(seen.late) == ["a", "b"] and [one.container.label for one in seen.left] == ["c", "d"]
    assert seen.done == []


def test_an_unreachable_source_is_not_tried_for_each_container() -> None:
    """Each attempt takes until its connection gives up: 300 containers would take the tick's whole time, and the log."""
    asked: list[str] = []

    def work(definition: Any) -> None:
        asked.append(definition.container.label)
        raise SourceUnreachable("away")

    seen: PlannedContainers[None] = ParallelPlanning(threads=1).plan(containers("a", "b", "c"), work, 60)
    assert asked == ["a"] and names(seen.unreachable) == ["a"] and names(seen.left) == ["b", "c"]

    def some(definition: Any) -> None:
        if definition.container.label == "b":
            raise SourceUnreachable("too many connections")

    seen = ParallelPlanning(threads=1).plan(containers("a", "b", "c"), some, 60)
    assert names(seen.done) == ["a", "c"] and names(seen.unreachable) == ["b"]


def test_a_plan_knows_how_much_time_is_left() -> None:
    """From it follows the time-out of its queries: a source must not go on with what nobody waits for."""
    seen: PlannedContainers[float | None] = ParallelPlanning().plan(containers("a"), lambda _: seconds_left(), 60)
    ((_, left),) = seen.done
    assert left is not None and 0 < left <= 60 and seconds_left() is None
