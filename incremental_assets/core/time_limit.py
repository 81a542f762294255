"""A deadline for the current work, for callers that stop waiting at a certain time (a tick of a Dagster schedule has 60 seconds)."""

import contextlib
import time
from collections.abc import Generator
from contextvars import ContextVar

_until: ContextVar[float | None] = ContextVar("incremental_assets_until", default=None)


@contextlib.contextmanager
def done_by(moment: float) -> Generator[None]:
    """Sets the deadline of the block, as a value of ``time.monotonic()``.

    The deadline is a context variable: threads that the block starts do not inherit it.
    """
    token = _until.set(moment)
    try:
        yield
    finally:
        _until.reset(token)


def seconds_left() -> float | None:
    """The seconds until the deadline, at least 0; None if there is no deadline."""
    until = _until.get()
    return None if until is None else max(0.0, until - time.monotonic())
