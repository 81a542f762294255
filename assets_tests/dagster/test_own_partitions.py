"""The windows of users' own partitioned assets, around the nights in which clocks are set.

Belongs here: keys to windows, without Spark. Does not belong: reading and writing by them (``test_io_manager``).
"""

from datetime import date, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from incremental_assets.core.cursor_type import CursorType, parse_value
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.own_partitions import own_windows

ZONES = {  # and a day in whose night clocks are set; in Havana at midnight
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "America/Havana": ("2026-03-08", "2026-11-01"),
    "Asia/Kathmandu": ("2026-03-01",),  # never, but 45 minutes off
}
NIGHTS = [(zone, night) for zone, nights in ZONES.items() for night in nights]


def around(zone: str, night: str) -> list[tuple[dg.TimeWindowPartitionsDefinition, bool]]:
    """Definitions whose partitions lie around the night; whether these are made of whole days."""
    begin, end = (date.fromisoformat(night) + timedelta(days=days) for days in (-2, 3))
    first, last = begin.isoformat(), end.isoformat()
    return [
        (dg.DailyPartitionsDefinition(start_date=first, end_date=last, timezone=zone), True),
        (dg.DailyPartitionsDefinition(start_date=first, end_date=last, timezone=zone, hour_offset=6), False),
        (dg.HourlyPartitionsDefinition(start_date=f"{first}-00:00", end_date=f"{last}-00:00", timezone=zone), False),
    ]


@pytest.mark.parametrize(("zone", "night"), NIGHTS)
def test_an_instant_lies_only_in_the_window_of_its_own_partition(zone: str, night: str) -> None:
    """By Dagster's own bounds: rows of another day are returned, and overwritten, where the zone is left out."""
    for definition, _ in around(zone, night):
        found = {key: definition.time_window_for_partition_key(key) for key in definition.get_partition_keys()}
        spans = {key: (one.start.astimezone(timezone.utc), one.end.astimezone(timezone.utc)) for key, one in found.items()}
        for cursor_type in (CursorType.TIMESTAMP, CursorType.TIMESTAMP_NTZ):
            claimed = 0
            for key, (start, end) in spans.items():
                try:
                    (window,) = own_windows("own", cursor_type, definition, [key])
                except ConfigurationError:
                    assert cursor_type is CursorType.TIMESTAMP_NTZ and "Hourly" in type(definition).__name__
                    continue
                for begin, until in spans.values():
                    for moment in (begin, begin + (until - begin) / 2):
                        zoned = moment.astimezone(timezone.utc if cursor_type is CursorType.TIMESTAMP else ZoneInfo(zone))
                        inside = window.contains(parse_value(cursor_type, zoned.strftime("%Y-%m-%d %H:%M:%S")))
                        assert inside == (start <= moment < end), (key, moment)
                        claimed += inside
            assert claimed >= 2 * (len(spans) - 4)


@pytest.mark.parametrize(("zone", "night"), NIGHTS)
def test_dates_belong_to_partitions_of_whole_days(zone: str, night: str) -> None:
    """A date does not tell hours apart: each partition of a day is that date, and others are refused instead of overwriting each other."""
    for definition, whole in around(zone, night):
        for key in definition.get_partition_keys():
            if whole:
                day = parse_value(CursorType.DATE, key)
                assert [(w.lower, w.upper) for w in own_windows("own", CursorType.DATE, definition, [key])] == [(day, day + 1)]
            else:
                with pytest.raises(ConfigurationError, match=r"whole days|twice"):
                    own_windows("own", CursorType.DATE, definition, [key])
        if not whole and "Hourly" in type(definition).__name__:
            assert len(own_windows("own", CursorType.DATE, definition, definition.get_partition_keys())) == 1  # all hours of whole days


def test_an_hour_that_clocks_show_twice_is_refused_by_itself_and_read_as_a_range() -> None:
    """In New York the hour from one o'clock of 2026-11-01 comes twice."""
    hours = dg.HourlyPartitionsDefinition(start_date="2026-10-31-00:00", end_date="2026-11-03-00:00", timezone="America/New_York")
    twice = [key for key in hours.get_partition_keys() if key.startswith("2026-11-01-01:00")]
    assert len(twice) == 2
    for key in twice:
        with pytest.raises(ConfigurationError, match="twice"):
            own_windows("own", CursorType.TIMESTAMP_NTZ, hours, [key])
        assert len(own_windows("own", CursorType.TIMESTAMP, hours, [key])) == 1
    (both,) = own_windows("own", CursorType.TIMESTAMP_NTZ, hours, twice)
    assert (both.lower, both.upper) == tuple(parse_value(CursorType.TIMESTAMP_NTZ, f"2026-11-01 {hour}") for hour in ("01:00", "02:00"))
    with pytest.raises(ConfigurationError, match="whole days"):
        own_windows("own", CursorType.DATE, hours, ["2026-10-31-05:00"])


def test_days_of_new_york_begin_at_five_in_utc() -> None:
    """The fault as it was met: rows of the evening before were returned, and those of the evening left out."""
    days = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="America/New_York")
    (window,) = own_windows("own", CursorType.TIMESTAMP, days, ["2026-01-10"])
    assert (window.lower, window.upper) == tuple(parse_value(CursorType.TIMESTAMP, f"2026-01-{day} 05:00Z") for day in (10, 11))
    assert len(own_windows("own", CursorType.TIMESTAMP, days, ["2026-01-10", "2026-01-11", "2026-01-13"])) == 2
