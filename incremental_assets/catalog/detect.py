"""Proposes an incremental identifier for a table, from what the source itself knows of its columns, and from a profile."""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated

from pydantic import AliasChoices, Field

from incremental_assets.catalog.candidates import Candidate, Role, columns_of_events, judge
from incremental_assets.catalog.measured import measured
from incremental_assets.core.container import Heirs, Kind, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.evidence import ColumnEvidence, TableEvidence, TableProfile
from incremental_assets.core.grammar import IncrementalSpec, PartitionColumn, Strategy
from incremental_assets.core.identifier_types import cursor_type_of
from incremental_assets.core.partitions import Granularity, default_granularity
from incremental_assets.core.resolve import DEFAULT_WIDTH_PARTITIONS, round_width
from incremental_assets.core.shown_text import counted
from incremental_assets.core.yaml_text import flow

_TYPES = {
    CursorType.DATE: IdentifierType.DATE,
    CursorType.INTEGER: IdentifierType.INTEGER,
    CursorType.TIMESTAMP_NTZ: IdentifierType.TIMESTAMP,
    CursorType.TIMESTAMP: IdentifierType.TIMESTAMP,
}
_DAYS = {Granularity.DAY: 1, Granularity.WEEK: 7, Granularity.MONTH: 30}
BATCH_ROWS = 1000
"""The average number of rows per value from which on each value of an integer becomes one partition."""
WHOLE_BYTES = 16 << 20
"""Up to this size in the source, with indexes, a table is synced whole: that takes no longer than to look for what is new in it, needs no
identifier and misses nothing (measured by ``benchmarks.small_tables``). A source that does not tell sizes has no small tables."""
ENOUGH_ROWS = 1000
"""How many rows must have been inserted, without a single one being updated or deleted, before rows count as written once."""
ENOUGH_COUNTED = datetime.timedelta(days=14)
"""How long the source must have counted, and the table must have been there, before rows count as written once."""
ENOUGH_DAYS = 3
"""On how many days of these rows must have come: a table that was filled and not used since says nothing of what an application does."""
COUNTED_APART = 0.1
"""The share by which the numbers of inserted and of live rows may differ, as the source's counters of both are approximate."""
PARTITION_ROWS = 10_000
"""Partitions are chosen so large that they hold at least about so many rows each, where that is possible."""


@dataclass(frozen=True)
class Proposal:
    """The proposal of how a container is best synced.

    ``columns``: of the identifier; empty: no column is suitable, and the container is synced as a snapshot. ``cursor_type``: of those
    columns. ``partition_by``: a granularity, a width of integers, or ``batch``; None: not decided. ``primary_key``: the key for
    ``upsert``; without an identifier, the columns in whose order the rows can be read. ``trusted``: the source itself guarantees what the
    strategy relies on, as far as it can be seen, and the table is not small. ``reasons``: in words. ``about``: the column whose windows are
    the partitions, where that is not the identifier. ``waits``: it is not trusted yet, though nothing speaks against it. ``is_small``: the
    table has ``WHOLE_BYTES`` at most.
    """

    columns: tuple[str, ...] = ()
    cursor_type: Annotated[CursorType | None, Field(validation_alias=AliasChoices("axis", "cursor_type"), serialization_alias="axis")] = (
        None  # stored catalogs have it as ``axis``
    )
    strategy: Strategy = Strategy.SNAPSHOT
    partition_by: str | int | None = None
    primary_key: tuple[str, ...] = ()
    trusted: bool = False
    reasons: tuple[str, ...] = ()
    about: str | None = None
    waits: bool = False
    is_small: bool = False

    @property
    def type(self) -> IdentifierType | None:
        """The type of the identifier in the grammar of ``incremental:``; None: there is no identifier."""
        return None if self.cursor_type is None else _TYPES[self.cursor_type]

    def spec(self, schema: str, table: str) -> IncrementalSpec | None:
        """Returns the proposal as an entry of ``incremental:``; None: there is no identifier."""
        if self.type is None:
            return None
        by = None if self.about is None else PartitionColumn(self.about, self.partition_by)
        return IncrementalSpec(schema, table, self.columns, self.type, None, self.strategy, partition_by=by)

    def entry(self, schema: str, table: str) -> str | None:
        """Returns the line for ``incremental:``, to be copied into the YAML; None: there is no identifier."""
        if self.type is None:
            return None
        if len(self.columns) == 1 and self.about is None and not re.search(r"[^A-Za-z0-9_]", schema + table + self.columns[0]):
            return f'"{schema}.{table}:{self.columns[0]}:{self.type.value}{"!upsert" if self.strategy is Strategy.UPSERT else ""}"'
        columns = self.columns[0] if len(self.columns) == 1 else list(self.columns)
        entry = {"table": f"{schema}.{table}", "column": columns, "type": self.type.value, "strategy": self.strategy.value}
        if self.about is not None:
            entry["partition_by"] = {"column": self.about} | ({} if self.partition_by is None else {"every": self.partition_by})
        return flow(entry)


def propose(table: SourceTable, evidence: TableEvidence, profile: TableProfile | None = None) -> Proposal:
    """Returns the proposal for a table. Containers of files need none: they have their modification time.

    ``profile``: of the container; None: there is none. It ranks candidates, rules some out and warns; it makes none trusted.
    """
    found, size = _by_columns(table, evidence, profile), table.bytes if evidence.bytes is None else evidence.bytes
    if size is None or size > WHOLE_BYTES:
        return found
    if found.type is None:
        return replace(found, is_small=True)
    why = f"small ({size / 2**20:.1f} MB): as well synced whole, which misses nothing"
    return replace(found, trusted=False, is_small=True, waits=found.trusted or found.waits, reasons=(why, *found.reasons[:1]))


def _by_columns(table: SourceTable, evidence: TableEvidence, profile: TableProfile | None) -> Proposal:
    """The proposal for a table of any size."""
    if table.heirs is Heirs.ALL:
        table = replace(table, primary_key=())  # it holds in each of the tables that have the rows, and not across them
    if table.kind is Kind.FILES:
        return Proposal(reasons=("files go by their modification time; each is a partition",))
    reasons: list[str] = []
    candidates: list[Candidate] = []
    for column in table.columns:
        found = judge(table, column, evidence)
        if isinstance(found, Candidate):
            seen = measured(profile, column.name, cursor_type_of(column) or CursorType.INTEGER)
            # A column of changes may be NULL until the first change: it may still be one of a pair. And rows that were loaded by one
            # transaction have one time by the source's own clock.
            alike = found.sure and not seen.is_mostly_null
            if seen.against is None or alike or (found.role is Role.CHANGED and seen.has_nulls):
                candidates.append(replace(found, measured=seen))
            else:
                reasons.append(f"{column.name}: {seen.in_words()}")
        elif found is not None:
            reasons.append(f"{column.name}: {found}")
    changed = _best(table, [c for c in candidates if c.role is Role.CHANGED])
    if changed is not None and not table.primary_key:
        reasons.append(f"{changed.column.name}: {changed.why}, but without a key that is never NULL its rows cannot be merged")
    elif changed is not None:
        return _by_changes(table, evidence, changed, candidates, reasons)
    return _by_arrival(table, evidence, candidates, reasons)


def with_partitions(proposal: Proposal, cursor_type: CursorType, first: int, last: int, rows: int | None) -> Proposal:
    """Returns the proposal with the partition identifier that suits the span of values and the number of rows.

    ``first``, ``last``: the first and last identifier, in units of ``cursor_type``. ``rows``: about how many rows; None: unknown.
    """
    if cursor_type.is_time:
        order = [Granularity.DAY, Granularity.WEEK, Granularity.MONTH]
        chosen = default_granularity(cursor_type, first, last)
        days = max(1, (last - first) // cursor_type.steps_per_day + 1)
        while rows is not None and days > 14 and chosen is not Granularity.MONTH and rows * _DAYS[chosen] / days < PARTITION_ROWS:
            chosen = order[order.index(chosen) + 1]
        each = chosen.value if proposal.about is None else f"{chosen.value} of {proposal.about}"
        why = f"partitions: a {each} each, for {counted(days, 'day')}" + ("" if rows is None else f" with about {counted(rows, 'row')}")
        return replace(proposal, partition_by=chosen.value, reasons=(*proposal.reasons, why))
    span = last - first + 1
    width = round_width(max(span // DEFAULT_WIDTH_PARTITIONS, 1 if not rows else PARTITION_ROWS * span // rows))
    why = f"partitions: {counted(width, 'value')} each, for {first:,} to {last:,}" + (
        "" if rows is None else f" with about {counted(rows, 'row')}"
    )
    return replace(proposal, partition_by=width, reasons=(*proposal.reasons, why))


def _by_changes(
    table: SourceTable, evidence: TableEvidence, changed: Candidate, candidates: Sequence[Candidate], reasons: list[str]
) -> Proposal:
    """Proposes ``upsert`` by a column that is set at each change."""
    # A column of changes that is NULL until the first change is completed by one that is set when a row arrives: the greater of both.
    columns, trusted = (changed.column.name,), changed.sure and changed.is_complete(evidence)
    why = changed.reasons()
    if not changed.is_complete(evidence):
        partner = _best(
            table, [c for c in candidates if c.role is Role.ARRIVED and cursor_type_of(c.column) is cursor_type_of(changed.column)]
        )
        if partner is not None and partner.is_complete(evidence):
            columns, trusted = (partner.column.name, changed.column.name), changed.sure and partner.sure
            why += [*partner.reasons(), f"the greater of both, as {changed.column.name} can be NULL"]
        else:
            why.append(f"{changed.column.name} can be NULL: such rows are read again with every sync")
    why += [_indexed(table, name) for name in columns]
    why.append(f"key ({', '.join(table.primary_key)}); deleted rows stay in the lake until a refresh")
    about = _about(table, evidence, [one for one in candidates if one.column.name not in columns[-1:]])
    cursor_type, reasons = cursor_type_of(changed.column), [one for one in reasons if not one.startswith(f"{about}: ")]
    return Proposal(columns, cursor_type, Strategy.UPSERT, None, table.primary_key, trusted, (*why, *reasons), about)


def _about(table: SourceTable, evidence: TableEvidence, candidates: Sequence[Candidate]) -> str | None:
    """The column that says when what a row is about came to be, by whose windows people ask for rows; None: there is none.

    A source that tells nothing of its keys, as through JDBC, is partitioned by the identifier alone.
    """
    if not evidence.unique:
        return None
    arrived = [one.column for one in candidates if one.role is Role.ARRIVED]
    return next((column.name for column in (*arrived, *columns_of_events(table)) if column.not_null), None)


def _by_arrival(table: SourceTable, evidence: TableEvidence, candidates: Sequence[Candidate], reasons: list[str]) -> Proposal:
    """Proposes ``append`` by a column whose values follow the arrival of rows; a snapshot where there is none."""
    # A column that an index leads with comes first, if the source itself sets it: each sync then reads only the newest rows.
    arrived = [c for c in candidates if c.role is not Role.CHANGED]
    found = _best(table, [c for c in arrived if c.sure and c.column.name in table.indexed]) or _best(table, arrived)
    if found is None:
        none = "no column tells new rows from old: it is synced whole each time"
        if table.primary_key:
            none += f"; its rows can be read in the order of ({', '.join(table.primary_key)})"
        return Proposal(primary_key=table.primary_key, reasons=(none, *reasons))
    name = found.column.name
    proof, reason = _written_once(evidence, [one.column.name for one in arrived if one.role is Role.ARRIVED])
    why = [*found.reasons(), _indexed(table, name), reason]
    if found.sure and proof is not Proof.GIVEN:
        why = [reason, *why[:-1]]  # what decides comes first
    partition_by = "batch" if _is_batch(table, found.column, evidence) else None
    sure, cursor_type = found.sure and found.is_complete(evidence), cursor_type_of(found.column)
    return Proposal(
        (name,), cursor_type, Strategy.APPEND, partition_by, table.primary_key, sure and proof is Proof.GIVEN, (*why, *reasons),
        waits=sure and proof is Proof.MISSING,
    )  # fmt: skip


class Proof(Enum):
    """What the source's counters say of whether rows are written once, and never updated or deleted."""

    GIVEN = "given"
    MISSING = "missing"
    AGAINST = "against"


def _written_once(evidence: TableEvidence, arrivals: Sequence[str]) -> tuple[Proof, str]:
    """Returns whether rows are written once and never changed, as far as the source's counters show, and the reason in words.

    ``append`` relies on it: it misses updates and deletions. No update so far proves nothing in a database that was restored yesterday, or
    whose counters are of yesterday. ``arrivals``: the columns that have the time at which a row came.
    """
    inserts, changes, live = evidence.inserts or 0, evidence.changes, evidence.live or 0
    if changes is None:
        return Proof.MISSING, "whether its rows are updated or deleted cannot be seen, which append would miss"
    if changes:
        return Proof.AGAINST, f"{counted(changes, 'row was', 'rows were')} updated or deleted so far, which append misses until a refresh"
    if inserts - live > inserts * COUNTED_APART:
        return Proof.AGAINST, f"{counted(inserts, 'row')} came and {live:,} are there: it was truncated, which append does not see"
    seen = f"no row was updated or deleted so far, while {inserts:,} came"
    if live - inserts > inserts * COUNTED_APART:  # a standby that has taken over counts from then on, and says otherwise
        return Proof.MISSING, f"not proved to be written once: {seen} and {live:,} are there, so that the source has not counted all along"
    now = datetime.datetime.now(datetime.timezone.utc)
    if evidence.counted_since is None or evidence.made_at is None:
        unknown = "the source has counted" if evidence.counted_since is None else "the table is there"
        return Proof.MISSING, f"not proved to be written once: {seen}; but since when {unknown} is not known"
    since = max(evidence.counted_since, evidence.made_at)
    if now - since < ENOUGH_COUNTED:
        days = f"{counted((now - since).days, 'day')}, and {ENOUGH_COUNTED.days} would prove it"
        return Proof.MISSING, f"not proved to be written once: {seen}; but in {days}"
    known = [evidence.columns.get(name, ColumnEvidence()).days for name in arrivals]
    days = max((sum(since.date() <= day <= now.date() for day in one) for one in known), default=0)
    if days < ENOUGH_DAYS or inserts < ENOUGH_ROWS:
        few = counted(days, "day that is known, which is", "days that are known, which are")
        return Proof.MISSING, f"not proved to be written once: {seen}, on {few} too few"
    return Proof.GIVEN, f"{seen}, on {counted(days, 'day')} or more since {since.date()}"


def _best(table: SourceTable, candidates: Sequence[Candidate]) -> Candidate | None:
    """Returns the best candidate; None where there is none.

    Sure ones come first, and of those as sure, the ones come last that are known by statistics alone, and before these the ones against
    which a profile speaks; then those count that an index leads with, then the role (times before numbers). Of equal ones the first column
    is taken.
    """
    order = list(Role)

    def rank(one: Candidate) -> tuple[bool, bool, bool, bool, int]:
        known_by_statistics, unindexed = one.role is Role.ORDERED, one.column.name not in table.indexed
        return not one.sure, known_by_statistics, bool(one.measured.doubts), unindexed, order.index(one.role)

    return min(candidates, key=rank, default=None)


def _is_batch(table: SourceTable, column: SourceColumn, evidence: TableEvidence) -> bool:
    """Whether each value of an integer stands for many rows, so that one partition per value is proposed."""
    distinct = evidence.columns.get(column.name, ColumnEvidence()).distinct
    if cursor_type_of(column) is not CursorType.INTEGER or distinct is None or not table.rows:
        return False
    # A negative number is a share of the rows: PostgreSQL expects the number of distinct values to grow with the table.
    return distinct > 0 and table.rows / distinct >= BATCH_ROWS


def _indexed(table: SourceTable, name: str) -> str:
    if name in table.indexed:
        return f"an index leads with {name}"
    if table.kind in (Kind.VIEW, Kind.FOREIGN):
        return f"whether an index helps with {name} cannot be seen"
    return f"no index leads with {name}: each sync reads the whole table for its newest rows"
