"""The closer look at a container: its fields, what is proposed for it, what its identifier spans.

Belongs here: what becomes of one container's entry. Does not belong: which containers need the look (``operation``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from incremental_assets.catalog.detect import Proposal, propose, with_partitions
from incremental_assets.catalog.state import Known, Presence
from incremental_assets.core.axis import Axis, format_value
from incremental_assets.core.container import SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.core.evidence import Listed, TableEvidence
from incremental_assets.core.grammar import IncrementalSpec, Strategy
from incremental_assets.core.resolve import axis_of, identifier_axis

BATCH = 200
"""Containers that are looked at closer at a time: between two of them progress is told and kept."""
SMALL_ROWS = 1_000_000
"""Up to here the ends of a column without an index are looked for, to propose partitions."""


class CatalogSource(Protocol):
    """What the operation asks of a datastore. Each call may raise SyncError. ``troubles``: what could not be looked at, in words."""

    troubles: dict[str, str]

    def listing(self) -> Mapping[str, Listed]: ...

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]: ...

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]: ...

    def span(self, table: str, columns: Sequence[str], axis: Axis) -> tuple[int, int] | None: ...


@dataclass(frozen=True)
class Said:
    """What the YAML says that the operation must know. ``named``: containers that it names, which are never forgotten.

    ``excluded``: whether a name is not to be looked at. ``auto``: whether a detected identifier may be used for a container.
    """

    specs: Mapping[str, IncrementalSpec] = field(default_factory=dict[str, IncrementalSpec])
    named: Collection[str] = ()
    excluded: Callable[[str], bool] = lambda _: False
    auto: Callable[[str], bool] = lambda _: False

    def detects(self, name: str) -> bool:
        """Whether the catalog decides by what a container is synced."""
        return name not in self.specs and self.auto(name)

    def identifier(self, known: Known) -> tuple[Sequence[str], Axis] | None:
        """Columns and axis of what a container is synced by; None for a snapshot, and where the YAML does not fit (``resolve`` says so)."""
        table, spec = known.table, self.specs.get(known.table.name)
        if spec is None and self.detects(table.name) and known.pinned is not None:
            spec = known.pinned.spec("", table.name)
        if spec is None or spec.excluded:
            return None
        chosen = [column for name in spec.columns if (column := table.column(name)) is not None]
        try:
            axes = {identifier_axis(table.name, column, spec.type) for column in chosen}
        except ConfigurationError:
            return None
        return (spec.columns, axes.pop()) if len(chosen) == len(spec.columns) and len(axes) == 1 else None

    def lacks_span(self, known: Known) -> bool:
        """The YAML has named an identifier since, or its ends could not be found out."""
        undecided = self.detects(known.table.name) and known.pinned is None
        return undecided or (known.table.span is None and self.identifier(known) is not None)


class CloserLook:
    """Looks at containers in batches; trouble with one does not stop the others.

    ``finished``: entries of a run that did not end, which are not asked for again; ``keep`` is told those of this run as they come.
    """

    def __init__(
        self,
        source: CatalogSource,
        said: Said,
        now: str,
        progress: Callable[[str], None],
        finished: Mapping[str, Known],
        keep: Callable[[Mapping[str, Known]], None],
    ) -> None:
        self._source, self._said, self._now, self._progress, self._finished, self._keep = source, said, now, progress, finished, keep
        self.troubles: dict[str, str] = {}

    # ------------------------------------------------------------------ fields and proposals
    def renew(self, names: Sequence[str], listed: Mapping[str, Listed], old: Mapping[str, Known]) -> dict[str, Known]:
        """New entries of the named containers; those that have vanished meanwhile are left out."""
        done = {name: self._finished[name] for name in names if name in self._finished}
        found = {name: one for name, one in done.items() if (one.fingerprint, one.activity) == _mark(listed[name])}
        left = [name for name in names if name not in found]
        if found:
            self._progress(f"{len(found):,} containers were finished by a run that did not end")
        for at in range(0, len(left), BATCH):
            tables = {table.name: table for table in self._source.tables(left[at : at + BATCH])}
            evidence = self._source.evidence(list(tables))
            for name, table in tables.items():
                found[name] = self._entry(table, listed[name], evidence.get(name, TableEvidence()), old.get(name))
            self._keep(found)
            if len(left) > BATCH:
                self._progress(f"{min(at + BATCH, len(left)):,} of {len(left):,} containers")
        return found

    def _entry(self, table: SourceTable, listed: Listed, evidence: TableEvidence, before: Known | None) -> Known:
        table = replace(table, rows=listed.rows, bytes=listed.bytes, files=listed.files)
        fingerprint, activity = _mark(listed)
        proposal = propose(table, evidence)
        if before is None or before.presence is Presence.HIDDEN:
            entry = Known(table, fingerprint, self._now, activity, proposal=proposal, identity=listed.identity)
            return self._pinned(entry)
        # The calendar of a container stays what its first rows made it: keys that were seen stay.
        table = replace(table, first=before.table.first, last=before.table.last, span=before.table.span)
        names = {column.name for column in table.columns}
        dropped = {c.name: c for c in (*before.dropped, *before.table.columns) if c.name not in names}
        entry = replace(
            before,
            table=table,
            fingerprint=fingerprint,
            activity=activity,
            since=before.since if before.presence is Presence.PRESENT else self._now,
            presence=Presence.PRESENT,
            dropped=tuple(dropped.values()),
            proposal=proposal,
            identity=listed.identity,
        )
        return self._pinned(entry)

    def _pinned(self, known: Known) -> Known:
        """With what ``identifiers: auto`` goes by. It stays, as another identifier would mean to load the table anew; also "none" stays.

        It is chosen again where its columns or its key are no longer what they were. What it relied on and is no more, is a doubt.
        """
        if not self._said.detects(known.table.name):
            return known
        if known.pinned is None or not _still_fits(known.pinned, known.table):
            return replace(known, pinned=known.proposal if known.proposal.trusted else Proposal(), doubt=None)
        used, now = known.pinned, known.proposal
        if (
            used.type is not None
            and known.doubt is None
            and not (now.trusted and (now.columns, now.strategy) == (used.columns, used.strategy))
        ):
            by = f"{'/'.join(used.columns)} ({used.strategy.value})"
            doubt = (
                f"it is synced by {by}, as was detected once; now: {'; '.join(now.reasons[:4])}. Say in the YAML how it is to be synced, "
                f"and load it anew with --reset-watermarks"
            )
            return replace(known, doubt=doubt)
        return known

    # ------------------------------------------------------------------ spans
    def measure(self, entries: Mapping[str, Known], listed: Mapping[str, Listed], new: Collection[str]) -> dict[str, Known]:
        """First and last identifiers, and proposals, of those whose rows have changed since they were looked at, or that are ``new``."""
        moved = [n for n, known in entries.items() if n in new or listed[n].activity != known.activity or self._said.lacks_span(known)]
        again = [n for n in moved if n not in new]
        evidence: dict[str, TableEvidence] = {}
        for at in range(0, len(again), BATCH):
            evidence |= self._source.evidence(again[at : at + BATCH])
        measured: dict[str, Known] = {}
        for name in moved:
            known = entries[name]
            if name in evidence:
                known = self._pinned(replace(known, proposal=propose(known.table, evidence[name])))
            try:
                measured[name] = replace(self._spanned(known), activity=listed[name].activity)
            except SyncError as error:
                self.troubles[name] = str(error)
                measured[name] = replace(known, activity=None)  # asked again by the next run
        return measured

    def _spanned(self, known: Known) -> Known:
        table, used = known.table, self._said.identifier(known)
        if used is not None:
            columns, axis = used
            if table.span is not None and not set(columns) <= set(table.indexed):
                return known  # what it begins with is known, and its end is not worth reading the whole table
            ends = self._source.span(table.name, columns, axis)
            pinned = known.pinned
            if pinned is not None and pinned.type is not None and pinned.partition_by is None and table.span is None and ends is not None:
                pinned = with_partitions(pinned, axis, *ends, table.rows)
            return replace(known, pinned=pinned, table=_with_ends(table, ends, axis))
        proposal = known.proposal
        cheap = set(proposal.columns) <= set(table.indexed) or (table.rows is not None and table.rows <= SMALL_ROWS)
        if proposal.axis is None or proposal.partition_by is not None or not cheap:
            return known
        ends = self._source.span(table.name, proposal.columns, proposal.axis)
        return known if ends is None else replace(known, proposal=with_partitions(proposal, proposal.axis, *ends, table.rows))


def _mark(listed: Listed) -> tuple[str, int | None]:
    return listed.fingerprint, listed.activity


def _with_ends(table: SourceTable, ends: tuple[int, int] | None, axis: Axis) -> SourceTable:
    """``first`` and ``span`` are told once, ``last`` each time; an empty table has a span of 0."""
    if ends is None:
        return replace(table, span=0 if table.span is None else table.span)
    first = format_value(axis, ends[0]) if table.first is None else table.first
    span = (0 if axis.is_time else ends[1] - ends[0]) if table.span is None else table.span
    return replace(table, first=first, last=format_value(axis, ends[1]), span=span)


def _still_fits(proposal: Proposal, table: SourceTable) -> bool:
    """Whether its columns are still on the axis they were, and its key is the table's."""
    columns: list[SourceColumn | None] = [table.column(name) for name in proposal.columns]
    same_key = proposal.strategy is not Strategy.UPSERT or table.primary_key == proposal.primary_key
    return same_key and all(column is not None and axis_of(column) is proposal.axis for column in columns)
