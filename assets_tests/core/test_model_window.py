"""Windows: half-open intervals, and the values that sets of them cover.

Belongs here: arithmetic of windows. Does not belong: the partitions that they come from (``test_model_partitions``).
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.window import EVERYTHING, Window, covered_from, merge, without

VALUES = range(-2, 23)
"""All values that the bounds drawn below can separate, and one beyond each end."""

bounds = st.none() | st.integers(0, 20)


@st.composite
def windows_of(draw: st.DrawFn) -> Window:
    lower, upper = draw(bounds), draw(bounds)
    if lower is not None and upper is not None and lower > upper:
        lower, upper = upper, lower
    return Window(lower, upper)


sets = st.lists(windows_of(), max_size=6)


def covered(windows: list[Window] | tuple[Window, ...]) -> set[int]:
    return {value for value in VALUES if any(window.contains(value) for window in windows)}


def test_a_window_is_half_open() -> None:
    """Otherwise rows at a boundary belong to no window, or to two."""
    window = Window(3, 5)
    assert [value for value in VALUES if window.contains(value)] == [3, 4]
    assert all(EVERYTHING.contains(value) for value in VALUES)
    assert not Window(3, 3).contains(3)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    """Otherwise a refresh of it would silently read and replace nothing."""
    with pytest.raises(ValueError, match="ends before it begins"):
        Window(5, 3)


@given(windows_of(), windows_of())
def test_an_intersection_covers_what_both_windows_cover(one: Window, other: Window) -> None:
    """Otherwise a refresh next to ``@start`` reads rows that are never to be synced, or leaves some out."""
    both = one.intersect(other)
    assert covered([both] if both else []) == covered([one]) & covered([other])
    assert both is None or both.lower is None or both.upper is None or both.lower < both.upper


@given(sets, sets)
def test_what_is_left_of_windows_covers_what_was_not_taken_out(windows: list[Window], removed: list[Window]) -> None:
    """Otherwise rows that lack values are no longer listed although no refresh has read them."""
    rest = without(windows, removed)
    assert covered(rest) == covered(windows) - covered(removed)
    assert rest == merge(rest) and not any(window.is_empty for window in rest)


@given(sets)
def test_merged_windows_cover_the_same_values_and_do_not_touch(windows: list[Window]) -> None:
    """Otherwise a refresh replaces rows that it did not read, or reads some twice and doubles them."""
    merged = merge(windows)
    assert covered(merged) == covered(windows)
    assert merge(merged) == merged
    assert merge(reversed(windows)) == merged, "the order in which partitions were asked for does not count"
    for earlier, later in pairwise(merged):
        assert earlier.upper is not None and later.lower is not None and earlier.upper < later.lower


@given(sets, bounds)
def test_coverage_ends_at_the_first_gap(windows: list[Window], start: int | None) -> None:
    """Otherwise the watermark passes values that no sync has read, and their rows are never loaded."""
    domain = covered(windows)
    value = start if start is not None else VALUES[0]
    end = value
    while end in domain:
        end += 1
    reached = covered_from(windows, start)
    if end == value:
        assert reached is None
    elif end > VALUES[-1]:
        assert reached is True
    else:
        assert reached == end and reached is not True
