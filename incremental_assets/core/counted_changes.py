"""How many rows were updated or deleted in a source that no sync has met, by the counters of the source's server."""

from dataclasses import dataclass, field, replace
from typing import Any

from incremental_assets.core.container import Container
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.shown_text import counted


@dataclass(frozen=True)
class CountedChanges:
    """What the counters of a table said before a sync has read it.

    ``count``: rows that were updated or deleted; of an upsert, which meets updates, those that were deleted. ``table``: the table that they
    are of, and which of the two is counted. ``since``: since when they are counted, in seconds since 1970 UTC; after a reset or a crash
    they begin anew. ``missed``: how many of them no sync has met since all rows were read. ``new``: how many of ``missed`` the read that is
    under way may meet; 0 once it has ended. ``is_one``: it is one counter, which begins anew if it has fallen, and no sum over parts of the
    table, of which one may be gone with its counter.
    """

    count: int
    table: str
    since: int
    missed: int = 0
    new: int = 0
    is_one: bool = field(default=False, compare=False)

    @classmethod
    def from_json(cls, data: Any) -> "CountedChanges | None":
        return None if data is None else cls(*data)

    def to_json(self) -> list[int | str]:
        return [self.count, self.table, self.since, self.missed]

    def missed_by(self, now: "CountedChanges | None") -> int:
        """How many changes no sync has met when the counters say ``now``."""
        return self.missed + self._new_in(now)

    def read_again(self, now: "CountedChanges | None") -> "CountedChanges":
        """What to store with a sync that reads what is new, and the rows of its lag window again. ``now``: from before its snapshot; None:
        the server did not say, as a replica."""
        new = self._new_in(now)
        return self if now is None else replace(now, missed=self.missed + new, new=new)

    def met(self, changed: int) -> "CountedChanges":
        """What is left once the read has met so many rows that were changed or deleted. What was missed before it stays missed: a read of
        the lag window may find more differences than were counted, such as values of a new column."""
        return replace(self, missed=self.missed - min(changed, self.new), new=0)

    def _new_in(self, now: "CountedChanges | None") -> int:
        if now is None or now.table != self.table:
            return 0
        if now.since != self.since or (now.is_one and now.count < self.count):
            return now.count  # all of it was counted since the counters have begun anew
        return max(0, now.count - self.count)


def counted_of(container: Container, table: str) -> str:
    """What is counted, for ``CountedChanges.table``: an upsert meets updates, so that only deletions count."""
    return f"{table} deleted" if container.strategy is Strategy.UPSERT else table


def is_said(text: str) -> bool:
    """Whether a text is one of ``said_of``."""
    return text.startswith("up to ") and " reads again: the lake may " in text


def said_of(label: str, strategy: Strategy, missed: int) -> str:
    """What a sync says of changes that it has not met."""
    if strategy is Strategy.UPSERT:
        deleted = counted(missed, "row of the source was deleted", "rows of the source were deleted")
        return (
            f"up to {deleted} below what upsert reads again: the lake may still have them. With deletes: sweep they go, with "
            f"soft they are marked, and keep says that they are to stay, which ends this warning. To remove them once: "
            f"incremental-assets audit {label} --repair"
        )
    return (
        f"up to {counted(missed, 'row of the source was', 'rows of the source were')} updated or deleted below what append "
        f"reads again: the lake may have their old values. Compare and mend them: incremental-assets audit {label} --repair. A whole "
        f"audit that finds nothing, or "
        f"sync {label} --mode refresh, ends this warning. If rows are changed regularly, use upsert"
    )
