"""Durations as the YAML has them, such as ``90 minutes``, ``36 hours`` or ``2 days``, and as messages have them, such as ``2 h 5 min``."""

import re

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LONGEST = 1000 * 365 * 86_400
_SHORT = (("h", 3600), ("min", 60), ("s", 1))


def in_units(seconds: int) -> str:
    """The duration in its largest unit of which it is a multiple, as ``seconds_of`` reads it."""
    unit, size = next((unit, size) for unit, size in reversed(_UNITS.items()) if seconds % size == 0)
    return f"{seconds // size} {unit}{'' if seconds == size else 's'}"


def for_people(seconds: float) -> str:
    """The duration as messages have it: ``45 s``, ``1 min 41 s``, ``2 h 5 min``, ``3 days``. It has at most two units."""
    left = max(0, int(seconds))
    if left >= 86_400:
        days, hours = divmod(left // 3600, 24)
        # Of several days nobody asks for the hours.
        return f"{days:,} days" if days > 1 else f"1 day {hours} h" if hours else "1 day"
    parts = [(left % (60 * size) // size, unit) for unit, size in _SHORT]
    first = next((at for at, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for at, (number, unit) in enumerate(parts[first : first + 2]) if number or not at)


def seconds_of(what: str, text: str) -> int:
    """The duration in seconds. ``what``: the name of the attribute, for messages. Raises ValueError."""
    found = re.fullmatch(r"(\d+) *(second|minute|hour|day|week)s?", text.strip())
    if found is None:
        raise ValueError(f"{what} {text!r}: write a number and a unit, such as 90 minutes, 36 hours or 2 days")
    seconds = int(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST:
        raise ValueError(f"{what} {text!r} is longer than 1,000 years")
    return seconds
