"""Durations as the YAML has them: a number and a unit, such as ``90 minutes``, ``36 hours`` or ``2 days``.

Belongs here: reading such a text. Does not belong: what is as long (``core.rules.table``, ``core.deletes``).
"""

import re

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LONGEST = 1000 * 365 * 86_400


def in_units(seconds: int) -> str:
    """The duration in its largest unit of which it is a multiple, as ``seconds_of`` reads it."""
    unit, size = next((unit, size) for unit, size in reversed(_UNITS.items()) if seconds % size == 0)
    return f"{seconds // size} {unit}{'' if seconds == size else 's'}"


def seconds_of(what: str, text: str) -> int:
    """The duration in seconds. ``what``: the name of the attribute, for messages. Raises ValueError."""
    found = re.fullmatch(r"(\d+) *(second|minute|hour|day|week)s?", text.strip())
    if found is None:
        raise ValueError(f"{what} {text!r}: write a number and a unit, such as 90 minutes, 36 hours or 2 days")
    seconds = int(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST:
        raise ValueError(f"{what} {text!r} is longer than 1,000 years")
    return seconds
