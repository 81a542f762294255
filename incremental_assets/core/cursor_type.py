"""Cursor types: each value of an incremental identifier is represented as an exact integer (days, microseconds, or the integer itself).

Values are exchanged as text because text does not round: microseconds, and dates before the year 1, which Python's ``datetime`` cannot
represent, are converted without loss in both directions.
"""

import re
from datetime import datetime, timedelta, timezone
from enum import Enum
from zoneinfo import ZoneInfo

from incremental_assets.core.errors import ConfigurationError

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class IdentifierType(str, Enum):
    """The four identifier types of the grammar (``core.grammar``). ``datetime`` and ``timestamp`` accept the same columns."""

    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    INTEGER = "integer"


class CursorType(str, Enum):
    """The cursor type of an identifier: the unit and the origin of its integer values. The type of the source's column decides it.

    ``DATE``: days since 1970-01-01. ``TIMESTAMP_NTZ``: microseconds since 1970-01-01 00:00 in local time (a column without time zone).
    ``TIMESTAMP``: microseconds since 1970-01-01 00:00 UTC. ``INTEGER``: the value itself.
    """

    DATE = "day"
    TIMESTAMP_NTZ = "local"
    TIMESTAMP = "instant"
    INTEGER = "integer"

    @property
    def is_time(self) -> bool:
        return self is not CursorType.INTEGER

    @property
    def steps_per_day(self) -> int:
        """The number of units in a day: 1 for ``DATE``, else microseconds. It has no meaning for ``INTEGER``."""
        return 1 if self is CursorType.DATE else MICROS_PER_DAY

    def lag_steps(self, lag: int) -> int:
        """Converts a safety lag to units of this cursor type.

        ``lag`` is in seconds for times and dates, and a number of values for integers. For dates it is rounded up to whole days.
        """
        if self is CursorType.DATE:
            return -(-lag // 86_400)
        return lag if self is CursorType.INTEGER else lag * MICROS_PER_SECOND


def civil_from_days(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a number of days since 1970-01-01, in the proleptic Gregorian calendar; year 0 is 1 BC.

    The formula and its constants are Howard Hinnant's ``civil_from_days`` ("chrono-Compatible Low-Level Date Algorithms"). Python's
    ``datetime.date`` is not used because it has no years below 1 and above 9999, and PostgreSQL has both.
    """
    # Days are counted from 0000-03-01: with years that begin in March, the leap day is the last day of its year.
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted_month + 2) // 5 + 1


def days_from_civil(year: int, month: int, day: int) -> int:
    """The number of days since 1970-01-01; the inverse of ``civil_from_days``. ``month`` must be 1 to 12.

    A day beyond the end of the month is not refused: it counts into the next month.
    """
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _date_text(days: int) -> str:
    year, month, day = civil_from_days(days)
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def value_at(cursor_type: CursorType, instant: int, zone: str) -> int:
    """The value that a date or time has at an instant: what clocks in the time zone ``zone`` show then, where the type has no zone itself.

    ``instant``: microseconds since 1970 UTC, of the years 1 to 9999.
    """
    if cursor_type is CursorType.TIMESTAMP:
        return instant
    offset = (_EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    shown = instant + offset // timedelta(microseconds=1)
    return shown // MICROS_PER_DAY if cursor_type is CursorType.DATE else shown


def format_value(cursor_type: CursorType, value: int) -> str:
    """The exact ISO 8601 text of an identifier value, or the digits of an integer.

    Instants end in ``Z``. The fraction has six digits and is left out for whole seconds. Years before 1 BC are negative.
    """
    if cursor_type is CursorType.INTEGER:
        return str(value)
    if cursor_type is CursorType.DATE:
        return _date_text(value)
    days, micros = divmod(value, MICROS_PER_DAY)
    seconds, fraction = divmod(micros, MICROS_PER_SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}" + (f".{fraction:06d}" if fraction else "")
    return f"{_date_text(days)}T{clock}{'Z' if cursor_type is CursorType.TIMESTAMP else ''}"


_TIME = re.compile(
    r"(?P<year>[-+]?\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?)?"
    r"\s*(?P<zone>Z|[-+]\d\d(?::?\d\d)?)?"
)


def parse_value(cursor_type: CursorType, text: str) -> int:
    """Parses an ISO 8601 date or time (``2025-01-08``, ``2025-01-08 14:30:25.5``, ``…Z``, ``…+02:00``) or an integer.

    A time zone is accepted for ``TIMESTAMP`` only, where a text without one is UTC. A date without a time of day is midnight, except for
    ``DATE``, which accepts no time of day. Raises ConfigurationError for any other text.
    """
    text = text.strip()
    if cursor_type is CursorType.INTEGER:
        if re.fullmatch(r"[-+]?\d+", text):
            return int(text)
        raise ConfigurationError(f"{text!r} is not an integer.")
    match = _TIME.fullmatch(text)
    wanted = "a date such as 2025-01-08" if cursor_type is CursorType.DATE else "a time such as 2025-01-08 14:30:25"
    if (
        match is None
        or (cursor_type is CursorType.DATE and match["hour"])
        or (match["zone"] and (cursor_type is not CursorType.TIMESTAMP or not match["hour"]))
    ):
        raise ConfigurationError(f"{text!r} is not {wanted}.")
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    days = days_from_civil(year, month, day) if 1 <= month <= 12 else 0
    # The conversion back detects a day that the month does not have, such as 30 February.
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if not 1 <= month <= 12 or civil_from_days(days) != (year, month, day) or hour > 23 or minute > 59 or second > 59:
        raise ConfigurationError(f"{text!r} is not {wanted}: there is no such day or time.")
    if cursor_type is CursorType.DATE:
        return days
    micros = ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + int((match["fraction"] or "0").ljust(6, "0"))
    return days * MICROS_PER_DAY + micros - _offset_micros(match["zone"])


def _offset_micros(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    digits = zone[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 15 or int(digits[2:]) > 59:
        raise ConfigurationError(f"{zone!r} is not an offset from UTC such as +02:00.")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 60 + int(digits[2:])) * 60 * MICROS_PER_SECOND


def json_value(cursor_type: CursorType, value: int | None) -> int | str | None:
    """An identifier value for JSON: ISO 8601 text for times and dates, a number for integers.

    Watermarks have this form in Dagster events, in the output of ``--json``, and in the property of the Delta table.
    """
    return value if value is None or cursor_type is CursorType.INTEGER else format_value(cursor_type, value)


def value_from_json(cursor_type: CursorType, value: int | str | None) -> int | None:
    """The inverse of ``json_value``."""
    return None if value is None else parse_value(cursor_type, str(value))
