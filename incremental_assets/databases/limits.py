"""The limits of one snapshot of a source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one snapshot, in seconds.

    ``snapshot``: how long it may be held. ``blocking``: how long somebody may wait for the lock that it holds. ``silence``: how long a
    reader waits for the next bytes from the source.
    """

    snapshot: int = 3600
    blocking: int = 30
    silence: int = 600
