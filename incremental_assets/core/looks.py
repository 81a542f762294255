"""How far the lake is behind a source: counted from the last look at the source after which the lake had all that the source had then.

Belongs here: the rule. Does not belong: which plans cover a source (``core.plan``), where the looks are recorded (``dagster.looks``), or
the safety lag, which says how far below the watermark each sync reads again (``core.lag``).

The age of the newest row is something else: a source in which nothing happens at night has old rows, and a lake that has all of them.
"""

from collections.abc import Mapping

Looks = Mapping[str, int]
"""By container, when its source was last looked at and found covered, in whole seconds since 1970 UTC."""


def latest(one: Looks, other: Looks) -> Looks:
    """What two records know together: of each container the later look."""
    return {name: max(found[name] for found in (one, other) if name in found) for name in {**one, **other}}


def lag_seconds(looked_at: float | None, now: float) -> int | None:
    """How far the lake is behind, at least 0; None if nobody has looked yet. ``looked_at``, ``now``: in seconds since 1970 UTC."""
    return None if looked_at is None else max(0, int(now - looked_at))
