"""Values of identifiers: conversion between their text and exact integers.

Belongs here: dates, times and integers as text and as numbers. Does not belong: windows and partitions of them (``test_model_window``,
``test_model_partitions``).
"""

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.core.cursor_type import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    CursorType,
    civil_from_days,
    days_from_civil,
    format_value,
    json_value,
    parse_value,
    value_from_json,
)
from incremental_assets.core.errors import ConfigurationError

EPOCH = date(1970, 1, 1)
# The range of PostgreSQL's types: dates from 4713 BC to the year 5,874,897, timestamps up to the year 294,276.
POSTGRES_DAYS = st.integers(days_from_civil(-4712, 1, 1), days_from_civil(5_874_897, 12, 31))
POSTGRES_MICROS = st.integers(days_from_civil(-4712, 1, 1) * MICROS_PER_DAY, days_from_civil(294_277, 1, 1) * MICROS_PER_DAY - 1)


def axis_values(cursor_type: CursorType) -> st.SearchStrategy[int]:
    if cursor_type is CursorType.INTEGER:
        return st.integers(-(10**40), 10**40)
    return (
        POSTGRES_DAYS
        if cursor_type is CursorType.DATE
        else POSTGRES_MICROS | POSTGRES_MICROS.map(lambda v: v // MICROS_PER_SECOND * MICROS_PER_SECOND)
    )


@given(st.dates())
def test_days_are_those_of_the_calendar(day: date) -> None:
    """Otherwise rows land in the wrong day's or month's partition."""
    days = (day - EPOCH).days
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)


@given(POSTGRES_DAYS)
def test_days_far_from_today_convert_back(days: int) -> None:
    """Otherwise a row dated BC or in the year 10000 gets another date in the lake."""
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    assert civil_from_days(days + 1) > (year, month, day), "the calendar is in order, so that windows are"
    # The calendar repeats every 400 years, so that far years can be compared with years that Python knows.
    assert civil_from_days((days + 719_162) % 146_097 - 719_162)[1:] == (month, day)


@pytest.mark.parametrize("cursor_type", list(CursorType))
def test_the_text_of_a_value_is_exact(cursor_type: CursorType) -> None:
    """Otherwise a watermark loses microseconds, centuries or digits between two syncs, and rows with them."""

    @given(axis_values(cursor_type))
    def law(value: int) -> None:
        assert parse_value(cursor_type, format_value(cursor_type, value)) == value
        assert value_from_json(cursor_type, json_value(cursor_type, value)) == value

    law()


@given(st.datetimes())
def test_times_read_as_python_writes_them(moment: datetime) -> None:
    """Otherwise a start value means another time than the one in the YAML."""
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    for text in (moment.isoformat(), moment.isoformat(" "), f" {moment.isoformat()} "):
        assert parse_value(CursorType.TIMESTAMP_NTZ, text) == micros
    assert parse_value(CursorType.TIMESTAMP, moment.isoformat()) == micros, "without a zone an instant is UTC"
    assert datetime.fromisoformat(format_value(CursorType.TIMESTAMP_NTZ, micros)) == moment


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-15 * 60, 15 * 60))
def test_an_offset_of_a_time_is_applied_in_the_right_direction(moment: datetime, minutes: int) -> None:
    """Otherwise an instant with an offset is shifted by twice that offset."""
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_value(CursorType.TIMESTAMP, zoned.isoformat()) == (zoned - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(
        microseconds=1
    )


@pytest.mark.parametrize(
    ("cursor_type", "text", "value"),
    [
        (CursorType.DATE, "0000-12-31", -719_163),  # 1 BC
        (CursorType.DATE, "-0043-03-15", days_from_civil(-43, 3, 15)),  # 44 BC
        (CursorType.DATE, "5874897-12-31", days_from_civil(5_874_897, 12, 31)),
        (CursorType.TIMESTAMP_NTZ, "10000-01-01", days_from_civil(10_000, 1, 1) * MICROS_PER_DAY),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08 14:30", 20_096 * MICROS_PER_DAY + 52_200 * MICROS_PER_SECOND),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08T14:30:25.5", 20_096 * MICROS_PER_DAY + 52_225_500_000),
        (CursorType.TIMESTAMP, "2025-01-08T14:30:25+0230", 20_096 * MICROS_PER_DAY + 43_225_000_000),
        (CursorType.TIMESTAMP, "2025-01-08T14:30:25-02", 20_096 * MICROS_PER_DAY + 59_425_000_000),
        (CursorType.INTEGER, " +7 ", 7),
        (CursorType.INTEGER, str(2**63), 2**63),
    ],
)
def test_valid_texts_of_values_are_accepted(cursor_type: CursorType, text: str, value: int) -> None:
    """Otherwise a start value as the documentation or PostgreSQL writes it is refused, or taken for another one."""
    assert parse_value(cursor_type, text) == value


@pytest.mark.parametrize(
    ("cursor_type", "text", "says"),
    [
        (CursorType.DATE, "2025-02-29", "there is no such day"),
        (CursorType.DATE, "2025-13-01", "there is no such day"),
        (CursorType.DATE, "2025-00-10", "there is no such day"),
        (CursorType.DATE, "2025-01-08 14:30", "not a date such as"),
        (CursorType.DATE, "08.01.2025", "not a date such as"),
        (CursorType.DATE, "", "not a date such as"),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08T24:00", "there is no such day or time"),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08T10:60", "there is no such day or time"),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08T10:00:60", "there is no such day or time"),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08T14:30Z", "not a time such as"),
        (CursorType.TIMESTAMP_NTZ, "2025-01-08T14:30:25.1234567", "not a time such as"),  # a seventh digit would be cut
        (CursorType.TIMESTAMP, "2025-01-08T14:30+16:00", "not an offset"),
        (CursorType.TIMESTAMP, "2025-01-08T14:30+02:75", "not an offset"),
        (CursorType.TIMESTAMP, "2025-01-08-05:00", "not a time such as"),  # it could be meant as a time of day or as an offset
        (CursorType.TIMESTAMP, "now", "not a time such as"),
        (CursorType.INTEGER, "1.5", "not an integer"),
        (CursorType.INTEGER, "2025-01-08", "not an integer"),
        (CursorType.INTEGER, "1_000", "not an integer"),
    ],
)
def test_invalid_texts_of_values_are_refused_with_the_reason(cursor_type: CursorType, text: str, says: str) -> None:
    """Otherwise a mistyped start value syncs from an arbitrary place instead of being pointed out."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        parse_value(cursor_type, text)
    assert repr(text) in str(caught.value) or says == "not an offset"


@pytest.mark.parametrize(
    ("cursor_type", "lag", "steps"),
    [
        (CursorType.DATE, 0, 0),
        (CursorType.DATE, 1, 1),
        (CursorType.DATE, 86_400, 1),
        (CursorType.DATE, 86_401, 2),
        (CursorType.TIMESTAMP_NTZ, 3600, 3_600_000_000),
        (CursorType.TIMESTAMP, 1, 1_000_000),
        (CursorType.INTEGER, 500, 500),
    ],
)
def test_a_lag_is_never_shortened(cursor_type: CursorType, lag: int, steps: int) -> None:
    """Otherwise an hour of lag on a date column is no lag at all, and late rows are lost."""
    assert cursor_type.lag_steps(lag) == steps


def test_no_watermark_stays_none() -> None:
    """Otherwise a missing watermark becomes a value, and all rows below that value are skipped."""
    assert json_value(CursorType.DATE, None) is None
    assert value_from_json(CursorType.DATE, None) is None
    assert json_value(CursorType.INTEGER, 0) == 0, "zero is a watermark like any other"
