"""How rows that are deleted in a source leave the lake: the attribute ``deletes``, and when a sweep is due.

A sweep compares all primary keys of the lake with those of the source, and nothing else of the rows.
"""

from decimal import Decimal
from enum import Enum

from incremental_assets.core.schema import Column

MARK = Column("_deleted_at", "timestamp")
"""The column of a table with ``deletes: soft``: when a sync has found that the source no longer has the row; NULL if the source has it."""
EVERY_SECONDS = 86_400
"""How many seconds pass between two sweeps, if the YAML does not say it."""
MOST_SHARE = 0.05
"""Which share of a table's rows a sweep deletes at most, if the YAML does not say it."""


class Deletes(str, Enum):
    """What happens to rows that the source no longer has. ``SWEEP``: they are deleted. ``SOFT``: they stay, and are marked. ``KEEP``: as
    without any of these, which is no reason for a warning then."""

    SWEEP = "sweep"
    SOFT = "soft"
    KEEP = "keep"


def is_due(swept_at: int | None, every_seconds: int, now: int) -> bool:
    """Whether the keys have to be compared again. ``swept_at``: when they last were; None: never. Times are microseconds since 1970 UTC.

    A time that lies ahead, by the clock of another host, counts as if it lay as far behind: a clock that is set back does not stop sweeps.
    """
    return swept_at is None or abs(now - swept_at) >= every_seconds * 1_000_000


def most_deleted(share: float, rows: int) -> int:
    """How many of so many rows a sweep may delete without being refused."""
    return int(Decimal(str(share)) * rows)
