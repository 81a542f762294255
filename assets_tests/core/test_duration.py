"""Durations in messages."""

import pytest

from incremental_assets.core.duration import for_people


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"), (0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (101, "1 min 41 s"), (3600, "1 h"), (3605, "1 h"), (7500, "2 h 5 min"),
        (86_399, "23 h 59 min"), (86_400, "1 day"), (93_600, "1 day 2 h"), (3 * 86_400 + 7200, "3 days"), (9e7, "1,041 days"),
    ],
)  # fmt: skip
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    """Nobody who is woken at night divides 7,500 seconds by 3,600."""
    assert for_people(seconds) == text
