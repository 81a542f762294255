"""Time zones: whether a name is one, and the local times that clocks in a zone show twice because they are set back."""

import functools
import itertools
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from incremental_assets.core.cursor_type import MICROS_PER_DAY, CursorType
from incremental_assets.core.errors import ConfigurationError

_FIRST_DAY, _DAYS = datetime(2020, 1, 1, tzinfo=timezone.utc), 20 * 366
"""The days in which a zone's clocks must not be set back for it to have no fold. They begin before any table of this product was loaded:
what clocks did earlier does not matter, as no row is still to come that has a time of then by the clock."""


def expect_zone(where: str, name: str | None) -> None:
    """Raises ConfigurationError if there is no time zone of this name. ``where`` begins its message; None is no name, and is accepted."""
    if name is not None and _zone(name) is None:
        raise ConfigurationError(f"{where}: there is no time zone {name!r}; write one such as Europe/Berlin.")


def set_back(cursor_type: CursorType, value: int, zone: str) -> int:
    """How far back clocks in ``zone`` may still go after they have shown all local times below ``value``, in units of the cursor type.

    It is 0 unless ``value`` lies within the local times that they show twice. Within these nobody can tell which of the two was meant, so
    that later rows may have values from the begin of that hour on.
    """
    if cursor_type not in (CursorType.DATE, CursorType.TIMESTAMP_NTZ) or zone == "UTC":
        return 0
    try:
        epoch = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone))
        local = epoch + timedelta(microseconds=value * (MICROS_PER_DAY // cursor_type.steps_per_day) - 1)  # as its clocks show it
        shown = [local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    except OverflowError:
        return 0  # a year before 1 or after 9999, for which nobody knows what clocks do
    return cursor_type.lag_steps(max(0, -(-(shown[0] - shown[1]) // timedelta(seconds=1))))


@functools.cache
def has_folds(name: str) -> bool:
    """Whether clocks in this time zone are set back, so that they show some local times twice; True if there is no such zone."""
    zone = _zone(name)
    if zone is None:
        return True
    offsets = [(_FIRST_DAY + timedelta(days=day)).astimezone(zone).utcoffset() or timedelta() for day in range(_DAYS)]
    return any(later < earlier for earlier, later in itertools.pairwise(offsets))


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
