"""Judges which columns of a table may be its incremental identifier, by what the source knows of each: triggers, defaults, sequences,
statistics, names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from incremental_assets.catalog.measured import MOSTLY_NULL, NOTHING, Measured
from incremental_assets.core.container import SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.evidence import ON_UPDATE, ColumnEvidence, TableEvidence
from incremental_assets.core.identifier_types import cursor_type_of
from incremental_assets.core.resolve import AT_INSERT


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words in the names of columns that say when a row was changed, or when it arrived.
_CHANGED = _words("updated update upd modified modification modify changed change mod mtime touched rowversion")
_ARRIVED = _words("created creation create inserted insert loaded ingested recorded logged received added arrived ctime")
_SUBJECT = _words(
    "birth birthday dob due valid expires expiry expiration expire start started end ended ends begin scheduled planned deleted login seen"
    " from until effective shipped ship delivery paid hired closed opened released by count number total"
)
"""Words in the names of columns that belong to the subject of the row, such as a birthday or a delivery.

People set such values in any order, and change them, so that they say nothing about new rows."""
# Words in the names of times that say when what the row is about came to be, such as an order.
_EVENT = _words("opened issued ordered order placed booked booking submitted occurred happened posted invoiced invoice sent paid event")
_MOVING = _words("last next latest") | _CHANGED
"""Words in the names of times that move on with each event."""
# Words in the names of integer columns that number the batches in which rows are loaded.
_BATCH = _words("batch load run import job")
# One word of a name in snake_case or camelCase.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
IN_ORDER = 0.95
"""The least correlation of a column's values with the physical order of rows (``pg_stats.correlation``) from which rows count as having
arrived in the order of their values."""


class Role(Enum):
    """How a column's values are made, from the best role to the least: the order counts in ``detect``."""

    CHANGED = "set at each change"
    ARRIVED = "set when a row arrives"
    KEY = "drawn from a sequence"
    ORDERED = "in the order of arrival"


@dataclass(frozen=True)
class Candidate:
    """A column that may be the identifier. ``sure``: the source itself always sets its value; it is not only named accordingly.
    ``measured``: what a profile says of it."""

    column: SourceColumn
    role: Role
    sure: bool
    why: str
    measured: Measured = NOTHING

    def is_complete(self, evidence: TableEvidence) -> bool:
        """Whether each row has a value, by the column's constraint; or by statistics, unless a profile has seen rows without."""
        return self.column.not_null or (is_complete(self.column, evidence) and not self.measured.has_nulls)

    def reasons(self) -> list[str]:
        return [f"{self.column.name}: {one}" for one in (self.why, self.measured.in_words()) if one]


def judge(table: SourceTable, column: SourceColumn, evidence: TableEvidence) -> Candidate | str | None:
    """Returns a candidate, or the reason why a column that seems to be one is none; None for all other columns."""
    cursor_type = cursor_type_of(column)
    if cursor_type is None:
        return None
    known = evidence.columns.get(column.name, ColumnEvidence())
    words = {word.lower() for word in _WORD.findall(column.name)}
    if cursor_type is CursorType.INTEGER:
        return _judge_integer(table, column, known, evidence.unique, words)
    if words & _SUBJECT and known.at_update is None:
        return f"its name ({', '.join(sorted(words & _SUBJECT))}) speaks of what the row is about, not of when it came or changed"
    if known.null_share is not None and known.null_share > MOSTLY_NULL and known.at_update is None and not words & _CHANGED:
        return f"it is NULL in {known.null_share:.0%} of the rows"  # NULL until the first change, it may still be one of a pair
    by_default = column.default is not None and AT_INSERT.search(column.default) is not None
    clock_goes_on = cursor_type is not CursorType.TIMESTAMP_NTZ  # a time without zone repeats an hour when clocks are set back
    if known.at_update is not None:
        # The trigger at updates is enough where the column is NULL until the first update. Where it never is, something else sets it at
        # inserts, and unless that is a trigger or a default, it is the application.
        always = known.at_insert is not None or by_default or not is_complete(column, evidence)
        beside = "" if always else ", though not when a row arrives"
        setter = known.at_update if known.at_update == ON_UPDATE else f"the trigger {known.at_update}"
        return Candidate(column, Role.CHANGED, always and clock_goes_on, f"{setter} sets it at each change{beside}")
    if words & _CHANGED:
        set_by = f" (its default is {column.default})" if by_default else ""
        why = f"its name says that it is {Role.CHANGED.value}{set_by}, though nothing in the source is known to set it at an update"
        return Candidate(column, Role.CHANGED, False, why)
    if by_default:
        return Candidate(column, Role.ARRIVED, clock_goes_on, f"its default is {column.default}: {Role.ARRIVED.value}")
    if known.at_insert is not None:
        return Candidate(column, Role.ARRIVED, clock_goes_on, f"the trigger {known.at_insert} sets it when a row arrives")
    in_order = known.correlation is not None and known.correlation >= IN_ORDER
    if words & _ARRIVED:
        seen = f", and its values grow with the table (correlation {known.correlation:.2f})" if in_order else ""
        return Candidate(column, Role.ARRIVED, False, f"its name says that it is {Role.ARRIVED.value}{seen}")
    if in_order and column.name in table.indexed:
        return Candidate(column, Role.ORDERED, False, f"its values grow with the table (correlation {known.correlation:.2f})")
    return None


def _judge_integer(
    table: SourceTable, column: SourceColumn, known: ColumnEvidence, unique: Sequence[tuple[str, ...]], words: set[str]
) -> Candidate | str | None:
    """Returns what ``judge`` does, for a column of integers. ``words``: of the column's name, in lower case."""
    if column.origin is not None and column.origin.is_rowversion:
        return Candidate(column, Role.CHANGED, True, "it is a rowversion: the source itself sets it at each change")
    if column.origin is not None and column.origin.counts_down:
        return f"it is drawn from {column.sequence or 'a sequence'}, which counts down: new rows come below the old ones"
    alone = (column.name,) in unique or table.primary_key == (column.name,)
    if column.sequence is not None:
        beside = "" if known.in_turn else ", which does not give them out one by one and upwards"
        return Candidate(column, Role.KEY, alone and known.in_turn, f"it is drawn from the sequence {column.sequence}{beside}")
    if words & _SUBJECT or column.base == "smallint":
        return None
    if known.correlation is not None and column.name in table.indexed and (alone or words & _BATCH):
        if known.correlation >= IN_ORDER:
            return Candidate(column, Role.ORDERED, False, f"its values grow with the table (correlation {known.correlation:.2f})")
        return f"its values do not come in their order (correlation {known.correlation:.2f})"
    return None


def columns_of_events(table: SourceTable) -> list[SourceColumn]:
    """The columns of dates and times that say, by their names, when what a row is about came to be."""
    times = [column for column in table.columns if (cursor_type := cursor_type_of(column)) is not None and cursor_type.is_time]
    words = {column.name: {word.lower() for word in _WORD.findall(column.name)} for column in times}
    return [column for column in times if words[column.name] & _EVENT and not words[column.name] & _MOVING]


def is_complete(column: SourceColumn, evidence: TableEvidence) -> bool:
    """Whether each row has a value, by the column's constraint or by statistics."""
    known = evidence.columns.get(column.name, ColumnEvidence())
    return column.not_null or known.null_share == 0
