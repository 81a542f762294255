"""How far the lake is behind a source: counted from the last look at the source after which the lake had all that the source had then.

The age of the newest row is something else: a source in which nothing happens at night has old rows, and a lake that has all of them.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Look(NamedTuple):
    """A look at a source that found it covered. ``at``: in whole seconds since 1970 UTC. ``missed``: how many of its rows were changed that
    append had not met then (``core.counted_changes``)."""

    at: int
    missed: int = 0


Looks = Mapping[str, Look]
"""By container, the last look at its source that found it covered."""


def latest(before: Looks, after: Looks) -> Looks:
    """What two records know together: of each container the later look, and of two in one second that of ``after``."""
    return {**before, **{name: one for name, one in after.items() if name not in before or one.at >= before[name].at}}


def lag_seconds(looked_at: float | None, now: float) -> int | None:
    """How far the lake is behind, at least 0; None if nobody has looked yet. ``looked_at``, ``now``: in seconds since 1970 UTC."""
    return None if looked_at is None else max(0, int(now - looked_at))
