"""Until when the work that is at hand has to be done, where somebody waits for it who goes away.

Belongs here: setting and asking the limit of this thread's work. Does not belong: what is done about it (a statement time-out).
"""

import contextlib
import time
from collections.abc import Generator
from contextvars import ContextVar

_until: ContextVar[float | None] = ContextVar("incremental_assets_until", default=None)


@contextlib.contextmanager
def done_by(moment: float) -> Generator[None]:
    """The block's work has to be done by a moment of ``time.monotonic()``. Threads that it starts know nothing of it."""
    token = _until.set(moment)
    try:
        yield
    finally:
        _until.reset(token)


def seconds_left() -> float | None:
    """None where there is no limit; never less than nothing."""
    until = _until.get()
    return None if until is None else max(0.0, until - time.monotonic())
