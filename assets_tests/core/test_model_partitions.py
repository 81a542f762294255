"""Partitions: each value has one key, each key has one window, and no two windows overlap.

Belongs here: keys and windows of partitions. Does not belong: which partitions a container gets (``test_model_container``).
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.cursor_type import MICROS_PER_DAY, CursorType, days_from_civil, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.partitions import (
    Granularity,
    IntegerPartitions,
    Partitions,
    TimePartitions,
    contiguous_ranges,
    default_granularity,
    floor_to,
    next_start,
)
from incremental_assets.core.window import EVERYTHING, merge

HOUR, DAY, WEEK, MONTH = Granularity.HOUR, Granularity.DAY, Granularity.WEEK, Granularity.MONTH
CUTS = [
    (cursor_type, granularity)
    for cursor_type in CursorType
    if cursor_type.is_time
    for granularity in Granularity
    if (cursor_type, granularity) != (CursorType.DATE, HOUR)
]
AROUND = st.integers(days_from_civil(1895, 1, 1), days_from_civil(2110, 1, 1))
"""Days around a calendar that begins in 1901, as the earliest one does."""


@st.composite
def time_partitions(draw: st.DrawFn, most: int = 60) -> TimePartitions:
    cursor_type, granularity = draw(st.sampled_from(CUTS))
    day = draw(st.integers(days_from_civil(1902, 1, 1), days_from_civil(2100, 1, 1)))
    first = floor_to(cursor_type, granularity, day * cursor_type.steps_per_day)
    last = first
    for _ in range(draw(st.integers(0, most))):
        last = next_start(cursor_type, granularity, last)
    return TimePartitions(cursor_type, granularity, first, last)


@st.composite
def integer_partitions(draw: st.DrawFn, least: int = 0) -> IntegerPartitions:
    width = draw(st.sampled_from([1, 7, 10, 100_000]))
    known = draw(st.sets(st.integers(-20, 20), min_size=least, max_size=10))
    return IntegerPartitions(width, tuple(sorted(number * width for number in known)))


def values_near(draw: Callable[..., Any], partitions: Partitions) -> int:
    """A value anywhere, most often at an edge of a partition."""
    if isinstance(partitions, IntegerPartitions):
        return draw(st.integers(-25, 25)) * partitions.width + draw(st.sampled_from([-1, 0, 1]))
    cursor_type, granularity = partitions.cursor_type, partitions.granularity
    edges = [partitions.first, partitions.last, next_start(cursor_type, granularity, partitions.last)]
    anywhere = draw(AROUND) * cursor_type.steps_per_day + draw(st.integers(0, cursor_type.steps_per_day - 1))
    edge = draw(st.sampled_from([*edges, floor_to(cursor_type, granularity, anywhere)]))
    far = days_from_civil(-4712, 1, 1) * cursor_type.steps_per_day
    return draw(st.sampled_from([anywhere, edge - 1, edge, edge + 1, far, 300_000 * 366 * cursor_type.steps_per_day]))


@st.composite
def with_value(draw: st.DrawFn) -> tuple[Partitions, int]:
    partitions: Partitions = draw(time_partitions() | integer_partitions())
    return partitions, values_near(draw, partitions)


def all_keys(partitions: Partitions) -> list[str]:
    return [str(k) for k in partitions.known] if isinstance(partitions, IntegerPartitions) else partitions.keys_between(None, None)


def with_key_of(partitions: Partitions, value: int) -> Partitions:
    """The partitions with one for this value, as a sync adds it for integers before it writes their rows."""
    return partitions.with_keys([partitions.key_of(value)]) if isinstance(partitions, IntegerPartitions) else partitions


@given(time_partitions(), st.lists(AROUND, max_size=5), st.integers(0, MICROS_PER_DAY - 1))
def test_many_values_lie_in_the_partitions_that_each_lies_in(partitions: TimePartitions, days: list[int], within: int) -> None:
    """A partition that is left out gets no event of the rows that have changed in it."""
    steps = partitions.cursor_type.steps_per_day
    values = [day * steps + within % steps for day in days]
    assert partitions.keys_of(values) == {partitions.key_of(value) for value in values}
    for integers in (IntegerPartitions(7), IntegerPartitions(1, (-3, 4, 9)), IntegerPartitions(1000, (-2000, 5000))):
        assert integers.keys_of(values) == {integers.key_of(value) for value in values}


@given(with_value())
def test_every_value_lies_in_the_window_of_its_key_and_in_no_other(drawn: tuple[Partitions, int]) -> None:
    """Otherwise a row belongs to no partition and no refresh ever reads it, or to two and is counted twice."""
    partitions, value = drawn
    partitions = with_key_of(partitions, value)
    assert [key for key in all_keys(partitions) if partitions.window_of(key).contains(value)] == [partitions.key_of(value)]


@given(time_partitions() | integer_partitions(least=1))
def test_windows_of_all_keys_cover_the_axis_without_overlap(partitions: Partitions) -> None:
    """Otherwise "materialize all" leaves rows out, and sets a watermark above rows that it did not read."""
    keys = all_keys(partitions)
    assert partitions.windows_of(keys) == (EVERYTHING,)
    assert partitions.windows_of(reversed(keys)) == (EVERYTHING,)
    windows = [partitions.window_of(key) for key in keys]
    assert windows[0].lower is None and windows[-1].upper is None
    for earlier, later in pairwise(windows):
        assert earlier.upper is not None and later.lower is not None and earlier.upper <= later.lower
        if isinstance(partitions, TimePartitions):
            assert earlier.upper == later.lower


@given(time_partitions() | integer_partitions(least=1), st.data())
def test_a_range_of_keys_is_one_window_without_gaps(partitions: Partitions, data: st.DataObject) -> None:
    """Otherwise a backfill of neighbouring partitions skips the values between them, where a late row has no key yet."""
    keys = all_keys(partitions)
    low = data.draw(st.integers(0, len(keys) - 1))
    high = data.draw(st.integers(low, len(keys) - 1))
    windows = partitions.windows_of(keys[low : high + 1])
    assert len(windows) == 1
    assert windows[0].lower == partitions.window_of(keys[low]).lower
    assert windows[0].upper == partitions.window_of(keys[high]).upper


@given(with_value(), st.data())
def test_keys_between_two_values_are_those_of_the_values_between(drawn: tuple[Partitions, int], data: st.DataObject) -> None:
    """Otherwise a run is started for partitions it does not touch, or its rows turn up under keys that it did not name."""
    partitions, one = drawn
    other = values_near(data.draw, partitions)
    lower, upper = sorted((one, other))
    keys = all_keys(partitions)
    wanted = [key for key in keys if any(partitions.key_of(v) == key for v in (lower, upper))]
    wanted += [key for key in keys if (start := _start(partitions, key)) is not None and lower <= start <= upper]
    if isinstance(partitions, IntegerPartitions) and not keys:
        assert partitions.keys_between(lower, upper) == []
        return
    assert partitions.keys_between(lower, upper) == [key for key in keys if key in wanted]
    unbounded = partitions.keys_between(lower, None)
    assert unbounded == keys[len(keys) - len(unbounded) :], "up to the last one"
    assert set(partitions.keys_between(lower, upper)) <= set(unbounded)
    assert partitions.keys_between(None, None) == keys


def _start(partitions: Partitions, key: str) -> int | None:
    """The least value that gives the partition its name, also for the first partition, whose window has no lower bound."""
    if isinstance(partitions, IntegerPartitions):
        return int(key)
    return partitions.first if key == partitions.keys_between(None, None)[0] else partitions.window_of(key).lower


@given(time_partitions(), st.integers(-(10**9), 10**9))
def test_the_floor_of_a_value_is_the_start_of_its_partition(partitions: TimePartitions, offset: int) -> None:
    """Otherwise rows of the first and the last day of a month get into another month's partition."""
    cursor_type, granularity = partitions.cursor_type, partitions.granularity
    value = partitions.first + offset * (1 if cursor_type is CursorType.DATE else 10**7)
    start = floor_to(cursor_type, granularity, value)
    assert start <= value < next_start(cursor_type, granularity, start)
    assert floor_to(cursor_type, granularity, start) == start
    assert floor_to(cursor_type, granularity, next_start(cursor_type, granularity, start)) == next_start(cursor_type, granularity, start)


@given(time_partitions(most=400), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland"]))
def test_keys_are_those_of_dagster(partitions: TimePartitions, zone: str) -> None:
    """Otherwise a backfill from the UI asks for partitions that the engine does not know, and writes to others."""
    cursor_type, granularity = partitions.cursor_type, partitions.granularity
    begin, end = (datetime(1970, 1, 1) + timedelta(days=v / cursor_type.steps_per_day) for v in (partitions.first, partitions.last))
    after = datetime(1970, 1, 1) + timedelta(days=next_start(cursor_type, granularity, partitions.last) / cursor_type.steps_per_day)
    kinds = {
        HOUR: dg.HourlyPartitionsDefinition,
        DAY: dg.DailyPartitionsDefinition,
        WEEK: dg.WeeklyPartitionsDefinition,
        MONTH: dg.MonthlyPartitionsDefinition,
    }
    if granularity is HOUR:
        zone = "UTC"  # local hours repeat when clocks are set back; the product's hours are UTC's
    definition = kinds[granularity](start_date=begin, end_date=after, timezone=zone)
    ours = partitions.keys_between(None, None)
    assert list(definition.get_partition_keys(current_time=datetime(2200, 1, 1, tzinfo=timezone.utc))) == ours
    assert definition.get_partition_key_for_timestamp(end.replace(tzinfo=ZoneInfo(zone)).timestamp()) == ours[-1]
    window = definition.time_window_for_partition_key(ours[-1])
    assert window.start.replace(tzinfo=None) == end and window.end.replace(tzinfo=None) == after


def test_keys_stay_the_same_after_an_upgrade() -> None:
    """Otherwise links, schedules and stored events of a partition name keys that no longer exist."""
    value = parse_value(CursorType.TIMESTAMP_NTZ, "2025-01-08T14:30:25.5")  # a Wednesday
    first, last = parse_value(CursorType.TIMESTAMP_NTZ, "2024-01-01T00:00"), parse_value(CursorType.TIMESTAMP_NTZ, "2026-01-01T00:00")
    keys = {
        g: TimePartitions(
            CursorType.TIMESTAMP_NTZ, g, floor_to(CursorType.TIMESTAMP_NTZ, g, first), floor_to(CursorType.TIMESTAMP_NTZ, g, last)
        ).key_of(value)
        for g in Granularity
    }
    assert keys == {HOUR: "2025-01-08-14:00", DAY: "2025-01-08", WEEK: "2025-01-05", MONTH: "2025-01-01"}
    assert IntegerPartitions(1000).key_of(123_456) == "123000"
    assert IntegerPartitions(1000).key_of(-1) == "-1000"
    assert IntegerPartitions(1).key_of(42) == "42"
    assert IntegerPartitions(1000, (5000, 9000)).key_of(17) == "5000", "what comes below the first partition belongs to it"


@pytest.mark.parametrize(
    ("granularity", "key"),
    [
        (DAY, "2023-12-31"),  # before the first
        (DAY, "2025-01-01"),  # after the last
        (DAY, "2024-02-30"),
        (DAY, "2024-2-3"),
        (DAY, " 2024-02-03"),
        (DAY, "2024-02-03-00:00"),
        (DAY, "today"),
        (DAY, ""),
        (WEEK, "2024-02-05"),  # a Monday; weeks begin on Sunday
        (MONTH, "2024-02-02"),
        (MONTH, "2024-02"),
        (HOUR, "2024-02-03"),
        (HOUR, "2024-02-03-14:30"),
        (HOUR, "2024-02-03T14:00"),
        (HOUR, "2024-02-03-24:00"),
        (HOUR, "2024-02-03-14:00Z"),
    ],
)
def test_an_unknown_key_is_refused_with_the_keys_that_exist(granularity: Granularity, key: str) -> None:
    """Otherwise ``--partition`` with a wrong key refreshes another partition, or ends in a stack trace."""
    first, last = (
        floor_to(CursorType.TIMESTAMP_NTZ, granularity, days_from_civil(*d) * MICROS_PER_DAY) for d in ((2024, 1, 1), (2024, 12, 31))
    )
    partitions = TimePartitions(CursorType.TIMESTAMP_NTZ, granularity, first, last)
    keys = partitions.keys_between(None, None)
    with pytest.raises(ConfigurationError) as caught:
        partitions.window_of(key)
    assert str(caught.value) == f"there is no partition {key!r}; the partitions go by {granularity.value} from {keys[0]} to {keys[-1]}."


@pytest.mark.parametrize("key", ["500", "3000", "x", "", "1_000", " 1000", "+1000", "01000", "٠", "-0"])
def test_an_unknown_integer_key_is_refused_with_the_keys_that_exist(key: str) -> None:
    """Otherwise a mistyped key refreshes another partition than the one that was meant."""
    with pytest.raises(ConfigurationError) as caught:
        IntegerPartitions(1000, (0, 1000, 2000)).window_of(key)
    assert str(caught.value) == f"there is no partition {key!r}; the keys are lower bounds of 1,000 values each, from 0 to 2000."
    with pytest.raises(ConfigurationError, match="none yet"):
        IntegerPartitions(1000).window_of(key)


def test_planning_many_batches_takes_no_more_for_each_than_planning_few() -> None:
    """Otherwise a backfill of a container by batch, with one partition for each value, does not begin to read for a long time."""

    def seconds_a_batch(batches: int) -> float:
        partitions = IntegerPartitions(1, tuple(range(0, 2 * batches, 2)))
        started = time.process_time()
        assert partitions.windows_of(map(str, partitions.known)) == (EVERYTHING,)
        return (time.process_time() - started) / batches

    # If each batch were compared with all others, a hundred thousand would take fifty times as long for each as two thousand.
    assert seconds_a_batch(100_000) < 10 * min(seconds_a_batch(2_000) for _ in range(3))


@given(AROUND, st.integers(0, 100 * 366), st.sampled_from([CursorType.DATE, CursorType.TIMESTAMP_NTZ, CursorType.TIMESTAMP]))
def test_a_calendar_of_days_or_weeks_has_at_most_about_a_thousand_keys(first: int, days: int, cursor_type: CursorType) -> None:
    """Otherwise the UI's bar of partitions cannot be read, and its pages take seconds."""
    granularity = default_granularity(cursor_type, first * cursor_type.steps_per_day, (first + days) * cursor_type.steps_per_day)
    width = {DAY: 1, WEEK: 7, MONTH: 28}[granularity]
    assert granularity is MONTH or days / width <= 1000
    assert granularity is DAY or days > 365, "a year or less is cut by day, whatever the thresholds are"


@given(st.sets(st.integers(0, 30)), st.integers(1, 31))
def test_chosen_keys_become_as_few_ranges_as_possible(chosen: set[int], count: int) -> None:
    """Otherwise a backfill that leaves out some partitions refreshes them as well, or starts a run for each key."""
    ordered = [f"k{number:02d}" for number in range(count)]
    wanted = [f"k{number:02d}" for number in chosen if number < count]
    runs = contiguous_ranges(wanted, ordered)
    ranges = [ordered[ordered.index(first) : ordered.index(last) + 1] for first, last in runs]
    assert [key for keys in ranges for key in keys] == sorted(wanted)
    for earlier, later in pairwise(ranges):
        assert ordered.index(later[0]) > ordered.index(earlier[-1]) + 1


@given(integer_partitions(), st.lists(st.integers(-30, 30)))
def test_new_integer_keys_are_added_in_order_and_once(partitions: IntegerPartitions, more: list[int]) -> None:
    """Otherwise windows of integer partitions overlap, as each ends where the next known one begins."""
    grown = partitions.with_keys(str(number * partitions.width) for number in more)
    assert list(grown.known) == sorted({*partitions.known, *(number * partitions.width for number in more)})
    assert merge(grown.windows_of(map(str, grown.known))) == ((EVERYTHING,) if grown.known else ())
