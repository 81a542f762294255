"""What the profile of a container says for and against a column as its incremental identifier.

A profile describes the rows that were there. It can speak against a column and rank candidates, and never guarantees anything of the rows
to come: only the source's own constraints, defaults and triggers do.
"""

from dataclasses import dataclass
from datetime import date, timedelta

from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.evidence import ProfiledColumn, TableProfile

MOSTLY_NULL = 0.5
"""The share of NULLs above which a column is not proposed."""
FEW_ROWS = 100
"""A profile of fewer values does not speak against a column because of what these values are."""
IN_ORDER = 0.95
"""The least share of neighbouring partitions without overlapping values, from which on values count as growing with the partitions."""
_FUTURE = timedelta(days=2)
"""By how much a time may be later than the profile: zones of the world, and clocks that are ahead."""


@dataclass(frozen=True)
class Measured:
    """What a profile says of one column.

    ``against``: why it cannot be the identifier, as long as the source itself does not set it; None: nothing rules it out. ``doubts``: what
    speaks against it without ruling it out. ``good``: what speaks for it. ``has_nulls``: some rows have no value. ``is_mostly_null``: more
    than ``MOSTLY_NULL`` have none. ``source``: which profile it was.
    """

    against: str | None = None
    doubts: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    has_nulls: bool = False
    is_mostly_null: bool = False
    source: str = ""

    def in_words(self) -> str:
        """All that it says, with the day of the profile; empty without a profile."""
        said = [*([self.against] if self.against else []), *self.doubts, *self.good]
        return f"{self.source}: {', '.join(said)}" if said else ""


NOTHING = Measured()


def measured(profile: TableProfile | None, name: str, cursor_type: CursorType) -> Measured:
    """What the profile says of a column."""
    column = None if profile is None else profile.columns.get(name)
    if profile is None or column is None or not column.rows:
        return NOTHING
    older = ", older than the table is now" if profile.is_older else ""
    values = column.rows - column.nulls
    against = _against(column, values)
    doubts: list[str] = []
    good: list[str] = []
    if column.nulls and against is None:
        doubts.append(f"{_share(column.nulls / column.rows)} of the values are NULL")
    elif not column.nulls:
        good.append("no value is NULL")
    future = _future(profile, column, cursor_type)
    if future is not None and values >= FEW_ROWS:
        doubts.append(future)
    if column.in_order is not None and against is None:
        if column.in_order < IN_ORDER:
            doubts.append(f"its values do not grow with the partitions: {_share(1 - column.in_order)} of them overlap the one before")
        else:
            good.append("its values grow with the partitions")
    if against is None and column.minimum is not None:
        distinct = "" if column.distinct is None else f", about {column.distinct:,} different values"
        good.append(f"from {column.minimum} to {column.maximum}{distinct}")
    source = f"profile of {profile.made_at[:10]}{older}"
    mostly = column.nulls / column.rows > MOSTLY_NULL
    return Measured(against, tuple(doubts), tuple(good), column.nulls > 0, mostly, source)


def _against(column: ProfiledColumn, values: int) -> str | None:
    if column.nulls / column.rows > MOSTLY_NULL:
        return f"{_share(column.nulls / column.rows)} of the values are NULL"
    if values >= FEW_ROWS and column.minimum is not None and column.minimum == column.maximum:
        return f"all {values:,} values are {column.minimum}"
    return None


def _future(profile: TableProfile, column: ProfiledColumn, cursor_type: CursorType) -> str | None:
    """Says that values lie after the day of the profile, which are none at which a row came or was changed."""
    if not cursor_type.is_time or column.maximum is None:
        return None
    try:
        is_later = date.fromisoformat(column.maximum[:10]) > date.fromisoformat(profile.made_at[:10]) + _FUTURE
    except ValueError:  # years that Python has no date for
        is_later = not column.maximum.startswith("-")
    return f"there are values up to {column.maximum}, which had not come yet" if is_later else None


def _share(share: float) -> str:
    """A share in percent, that reads as neither nothing nor all unless it is."""
    percent = share * 100
    if 0 < percent < 1:
        return "less than 1 %"
    return "more than 99 %" if 99 < percent < 100 else f"{percent:.0f} %"
