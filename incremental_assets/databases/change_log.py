"""The protocol of a source's log of changes: everything that a container with ``capture: log`` asks of it.

The log tells *which* rows have changed. What they are now is read from a snapshot of the source, as in every other sync. So no value goes
through the log, and the rows of the lake never become older (docs/decisions/capture.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from incremental_assets.core.capture import Shape

Key = tuple[str, ...]
"""The values of a primary key's columns, as the source's own text."""


@dataclass(frozen=True)
class LogState:
    """The log at one moment, and how the container's table takes part in it.

    ``slot``: the name of the replication slot, which keeps the log. ``confirmed``: what is below it can no longer be read. ``flushed``: the
    end of the log that can be read now. ``retained``: how many bytes of the log the server keeps for the slot. ``timeline``, ``membership``
    and ``shape``: see ``core.capture``.
    """

    slot: str
    confirmed: int
    flushed: int
    retained: int
    timeline: str
    membership: str
    shape: Shape = field(repr=False)


@dataclass(frozen=True)
class Since:
    """What is asked about one container: what has changed from the position ``lsn`` on in the tables ``parts`` (their OIDs, ascending)."""

    lsn: int
    parts: tuple[int, ...]

    @classmethod
    def of(cls, lsn: int, shape: Shape) -> "Since":
        return cls(lsn, tuple(sorted(shape.parts)))


@dataclass(frozen=True)
class Peeked:
    """What a look at the log has found for one container.

    ``changes``: how many rows were inserted, updated or deleted. ``reload``: why these are not enough, in words; None if they are.
    ``end``: all transactions below this position were found, and are visible in the snapshot in which the look was made. ``oldest``: how
    many seconds ago the first of the changes was committed. ``last``: where the last transaction with a change was committed. Both are None
    if there is no change, or if they were not asked for. ``kept``: how many seconds ago the first transaction was committed that the slot
    still has, whichever tables it has changed; None if there is none. ``looked_at``: when it was looked at, in seconds since 1970 UTC, if
    that was for another container's plan; else None.
    """

    changes: int
    reload: str | None
    end: int
    oldest: float | None = None
    last: int | None = None
    kept: float | None = None
    looked_at: float | None = None


class CapturedKeys(Protocol):
    """The keys that have changed. ``found``: what else the look at the log has said."""

    @property
    def found(self) -> Peeked: ...

    def __len__(self) -> int: ...

    def pieces(self, size: int) -> Iterator[Sequence[Key]]:
        """The keys, at most so many at a time."""
        ...

    def close(self) -> None: ...


class ChangeLog(Protocol):
    """The log of the source, for one container. All methods raise SourceError if the log cannot be read."""

    def state(self) -> LogState:
        """The log as it is now.

        Raises ConfigurationError, with the command or the setting that helps, if the container's table is not captured as it has to be.
        """
        ...

    def changed(self, asked: Mapping[str, Since]) -> Mapping[str, Peeked]:
        """Whether anything has changed in each of several containers, by their labels. The source reads its log once for all of them, and
        only numbers come from it."""
        ...

    def point(self, confirmed: int) -> Peeked:
        """A look whose ``end`` alone matters. It is inside ``snapshot()``. ``confirmed``: the position of the slot."""
        ...

    def captured(self, since: int, before: Shape, now: Shape) -> CapturedKeys:
        """The keys of all rows that differ between the position ``since`` and the snapshot that is held. It is inside ``snapshot()``.

        ``before`` and ``now``: the shapes of the table then and in the snapshot. All rows of new partitions are among them.
        """
        ...

    def rows(self, text_columns: Sequence[str], keys: Sequence[Key], most_bytes: int) -> tuple[pa.Table, pa.Table] | None:
        """Those of the rows with these keys that the snapshot has, with the columns and types of the lake, and all the keys with these
        types: the columns of the primary key. None if the rows are too large."""
        ...

    def settle(self, seconds: float) -> None:
        """Waits until all transactions have ended that have written to the table so far: those that began before the table was
        published are in no log. Raises SourceError, which names them, if they take longer."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keeps the slot where it is during the block, whichever other containers use it."""
        ...

    def advance(self, to: int) -> bool:
        """Lets the source forget its log below this position, unless somebody keeps the slot where it is."""
        ...
