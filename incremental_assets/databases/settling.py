"""Waits for the transactions that were open when a sync began, in databases that list them."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from incremental_assets.core.watermark import Activity, OpenTransactions


@dataclass(frozen=True)
class Look:
    """What was open at one moment: ``activity``, as the rule compares it with earlier notes, and the names to be ``noted`` now."""

    activity: Activity
    noted: frozenset[str]


def settle(look: Callable[[], Look], clock: int, seconds: float, between: float) -> tuple[OpenTransactions, Activity]:
    """Waits up to ``seconds`` for the transactions to end that may still commit a value that was made by ``clock``.

    See ``databases.source.OpenTransactionsQuery``. It looks again after ``between`` seconds, or up to twice as many: syncs that wait at the
    same time do not all look at once.
    """
    deadline = time.monotonic() + seconds
    first = look()
    left, now = OpenTransactions(prepared=first.activity.prepared, sessions=first.noted, noted_at=clock), first.activity
    while left and time.monotonic() < deadline:
        time.sleep(min(random.uniform(between, 2 * between), max(0.0, deadline - time.monotonic())))
        now = look().activity
        left = left.still_open(now)
    return left, now
