"""How many rows were updated or deleted in a source that ``append`` has not met, by the counters of the source's server.

Belongs here: the arithmetic, and the words for people. Does not belong: how a server counts (``databases``).
"""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class CountedChanges:
    """What the counters of a table said when a sync has read it.

    ``count``: rows that were updated or deleted. ``since``: since when they are counted, as the server writes it; after a reset they begin
    anew. ``missed``: how many of them no sync has met since all rows were read. It is negative after a sync that has met more than were
    counted by then, as a server may count some seconds late. ``is_open``: what the read that is under way meets is still to be taken off.
    """

    count: int
    since: str
    missed: int = 0
    is_open: bool = False

    @classmethod
    def from_json(cls, data: Any) -> "CountedChanges | None":
        return None if data is None else cls(*data)

    def to_json(self) -> list[int | str]:
        return [self.count, self.since, self.missed]

    def missed_by(self, now: "CountedChanges | None") -> int:
        """How many changes append has not met when the counters say ``now``."""
        return max(0, self.missed + self._new_in(now))

    def read_again(self, now: "CountedChanges | None") -> "CountedChanges | None":
        """What to store with a sync that reads what is new, and the rows of its lag window again."""
        if now is None:
            return None
        new = self._new_in(now)
        # What was counted late was counted by now.
        return replace(now, missed=(self.missed if new else max(0, self.missed)) + new, is_open=True)

    def met(self, changed: int) -> "CountedChanges":
        """What is left once a read has met so many rows that were changed or deleted."""
        return replace(self, missed=max(self.missed, 0) - changed, is_open=False) if self.is_open else self

    def _new_in(self, now: "CountedChanges | None") -> int:
        began_anew = now is None or now.since != self.since or now.count < self.count
        return 0 if now is None or began_anew else now.count - self.count


def said_of(label: str, missed: int) -> str:
    """What a sync says of changes that it has not met."""
    return (
        f"up to {missed:,} rows of the source were updated or deleted below what append reads again: the lake may have their old values. "
        f"Compare and mend them: incremental-assets audit {label} --repair. If rows are changed regularly, use upsert"
    )
