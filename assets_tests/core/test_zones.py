"""The local times that clocks show twice: the lag window covers every time that may still come, and no more.

Belongs here: arithmetic of time zones. Does not belong: rows (``databases/test_safety_lag``).
"""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.cursor_type import MICROS_PER_DAY, MICROS_PER_SECOND, CursorType, parse_value, value_at
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.lag_window import LagWindow
from incremental_assets.core.zones import expect_zone, has_folds, set_back

HOUR = 3600 * MICROS_PER_SECOND
SET_BACK: dict[str, str] = {
    "Europe/Berlin": "2025-10-26 01:00",
    "America/New_York": "2026-11-01 06:00",
    "Australia/Lord_Howe": "2026-04-04 15:00",  # by half an hour
    "Antarctica/Troll": "2025-10-26 01:00",  # by two hours
    "Asia/Beirut": "2026-10-24 21:00",  # to the day before, at midnight
    "America/Havana": "2026-11-01 05:00",  # to midnight
    "Africa/Casablanca": "2026-02-15 02:00",  # for the month of Ramadan
    "UTC": "2026-03-29 01:00",
}
"""Zones, and an instant at which their clocks are set back, in UTC."""


def at(zone: str) -> int:
    return parse_value(CursorType.TIMESTAMP, SET_BACK[zone])


@pytest.mark.parametrize("zone", SET_BACK)
def test_the_instants_of_these_tests_are_those_at_which_clocks_are_set_back(zone: str) -> None:
    """Otherwise the tests below would try usual hours only."""
    clocks = [datetime.fromtimestamp(at(zone) / 1e6 + second, timezone.utc).astimezone(ZoneInfo(zone)) for second in (-1, 0)]
    assert (clocks[1].replace(tzinfo=None) < clocks[0].replace(tzinfo=None)) is (zone != "UTC")
    assert has_folds(zone) is (zone != "UTC")


@given(
    st.sampled_from(sorted(SET_BACK)),
    st.sampled_from([CursorType.TIMESTAMP_NTZ, CursorType.DATE]),
    st.integers(-5 * HOUR, 5 * HOUR) | st.sampled_from([-HOUR, -1, 0, 1, HOUR - 1, HOUR, HOUR + 1]),
    st.sampled_from([0, 1, 300, 3600, 3900, 10_000]),
    st.integers(0, 30 * HOUR) | st.sampled_from([0, 1, HOUR]),
)
def test_no_row_comes_below_the_lag_window(zone: str, cursor_type: CursorType, read: int, lag: int, later: int) -> None:
    """A row has the time of a clock that is at most the lag behind the one by which the watermark was set."""
    watermark = value_at(cursor_type, at(zone) + read, zone)
    row = value_at(cursor_type, at(zone) + read - lag * MICROS_PER_SECOND + later, zone)
    lower = LagWindow(None, cursor_type.lag_steps(lag), cursor_type, zone).window(watermark).lower
    assert lower is not None and row >= lower


@given(st.sampled_from(sorted(SET_BACK)), st.integers(-400, 400), st.integers(0, MICROS_PER_DAY))
def test_the_lag_window_is_longer_only_while_the_watermark_lies_in_what_is_shown_twice(zone: str, days: int, time: int) -> None:
    """A day, or all of winter, in which each sync reads an hour more would cost without need."""
    watermark = value_at(CursorType.TIMESTAMP_NTZ, at(zone), zone) // MICROS_PER_DAY * MICROS_PER_DAY + days * MICROS_PER_DAY + time
    local = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(microseconds=watermark - 1)
    back = (local.utcoffset() or timedelta()) - (local.replace(fold=1).utcoffset() or timedelta())
    expected = max(back // timedelta(microseconds=1), 0)
    assert set_back(CursorType.TIMESTAMP_NTZ, watermark, zone) == expected
    window = LagWindow(None, 300 * MICROS_PER_SECOND, CursorType.TIMESTAMP_NTZ, zone).window(watermark)
    assert window.lower == watermark - max(300 * MICROS_PER_SECOND, expected)


@pytest.mark.parametrize(
    ("watermark", "back"), [("02:00:00", 0), ("02:00:00.000001", HOUR), ("02:59:50", HOUR), ("03:00:00", HOUR), ("03:00:00.000001", 0)]
)
def test_everything_below_the_watermark_has_been_shown(watermark: str, back: int) -> None:
    """At its own value more may still come: at 02:00 no clock has shown any of the hour, and at 03:00 all of it, once or twice."""
    assert set_back(CursorType.TIMESTAMP_NTZ, parse_value(CursorType.TIMESTAMP_NTZ, f"2025-10-26 {watermark}"), "Europe/Berlin") == back


@pytest.mark.parametrize("value", ["0001-01-01", "9999-12-31 23:59:59", "-4712-01-01", "294276-12-31"])
def test_a_time_that_no_calendar_knows_is_not_set_back(value: str) -> None:
    """One row from the year -4712 must not end each sync of its container."""
    watermark = parse_value(CursorType.TIMESTAMP_NTZ, value)
    assert set_back(CursorType.TIMESTAMP_NTZ, watermark, "Europe/Berlin") == 0
    assert set_back(CursorType.DATE, watermark // MICROS_PER_DAY, "Europe/Berlin") == 0


def test_instants_and_integers_are_never_shown_twice() -> None:
    """A watermark of them would be read further back than the lag once a year, whatever its number means."""
    watermark = parse_value(CursorType.TIMESTAMP_NTZ, "2025-10-26 02:30")
    assert set_back(CursorType.TIMESTAMP_NTZ, watermark, "Europe/Berlin") == HOUR
    assert {set_back(kind, watermark, "Europe/Berlin") for kind in (CursorType.TIMESTAMP, CursorType.INTEGER)} == {0}


@pytest.mark.parametrize(
    ("zone", "folds"),
    [("Asia/Tokyo", False), ("America/Phoenix", False), ("Etc/GMT+5", False), ("Europe/Dublin", True), ("CET", True), ("Berlin", True)],
)
def test_a_zone_whose_clocks_were_set_back_long_ago_has_no_folds_and_an_unknown_one_has(zone: str, folds: bool) -> None:
    """A trigger that goes by such a zone is trusted or not."""
    assert has_folds(zone) is folds


@pytest.mark.parametrize("name", ["Berlin", "", "../UTC", "Europe", "UTC+3"])
def test_a_name_that_is_no_time_zone_is_refused(name: str) -> None:
    """Otherwise the first sync would end with a message of Python's."""
    with pytest.raises(ConfigurationError, match=r"shop/orders: there is no time zone '.*'; write one such as Europe/Berlin"):
        expect_zone("shop/orders", name)
