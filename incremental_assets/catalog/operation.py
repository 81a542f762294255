"""The catalog operation: what is in a datastore now, compared with what is known; only the differences are looked at closer.

Belongs here: which container is new, changed, missing, back, and what becomes of it. Does not belong: asking the source (``sources``),
keeping the result (``state``), or running it (``orchestration``).
"""

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from incremental_assets.catalog.detect import Proposal, identifier_type, propose, with_partitions
from incremental_assets.catalog.differences import Change, Difference, field_changes
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.model.axis import Axis, format_value
from incremental_assets.model.container import Kind, SourceColumn, SourceTable
from incremental_assets.model.errors import ConfigurationError, SyncError
from incremental_assets.model.evidence import Listed, TableEvidence
from incremental_assets.model.grammar import IncrementalSpec, Strategy
from incremental_assets.model.resolve import axis_of, identifier_axis

BATCH = 200
"""Containers that are looked at closer at a time: between two of them progress is told and kept."""
SMALL_ROWS = 1_000_000
"""Up to here the ends of a column without an index are looked for, to propose partitions."""


class CatalogSource(Protocol):
    """What the operation asks of a datastore. Each call may raise SyncError."""

    def listing(self) -> Mapping[str, Listed]: ...

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]: ...

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]: ...

    def span(self, table: str, columns: Sequence[str], axis: Axis) -> tuple[int, int] | None: ...


@dataclass(frozen=True)
class Asked:
    """Options of one run. ``kinds``: which containers are looked at; the others stay as they are known."""

    prune: bool = False
    recreate: bool = False
    kinds: frozenset[Kind] = frozenset(Kind)


@dataclass(frozen=True)
class Said:
    """What the YAML says that the operation must know. ``named``: containers that it names, which are never forgotten.

    ``excluded``: whether a name is not to be looked at. ``auto``: whether a detected identifier is used for a container, and has to stay.
    """

    specs: Mapping[str, IncrementalSpec] = field(default_factory=dict[str, IncrementalSpec])
    named: Collection[str] = ()
    excluded: Callable[[str], bool] = lambda _: False
    auto: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True)
class Outcome:
    """``troubles``: what could not be found out, by container; the rest is complete."""

    catalog: Catalog
    differences: tuple[Difference, ...]
    troubles: Mapping[str, str]
    looked_at: int


def take_catalog(
    source: CatalogSource,
    before: Catalog | None,
    asked: Asked,
    said: Said,
    progress: Callable[[str], None] = lambda _: None,
    kept: Mapping[str, Known] | None = None,
    keep: Callable[[Mapping[str, Known]], None] = lambda _: None,
) -> Outcome:
    """Compares the datastore with what is known. Raises SyncError where not even the listing can be had.

    ``kept``: entries that an interrupted run had finished, and ``keep`` is told them as they are: they are looked at once.
    """
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    old = before.by_name if before else {}
    listed = {name: one for name, one in source.listing().items() if one.kind in asked.kinds and not said.excluded(name)}
    work = _Work(source, said, now, progress, dict(kept or {}), keep)
    entries = {n: known for n, known in old.items() if (known.table.kind not in asked.kinds or said.excluded(n)) and n not in listed}
    closer: list[str] = []
    for name, one in listed.items():
        known = old.get(name)
        if known is None or (known.presence is Presence.HIDDEN and asked.recreate):
            closer.append(name)
        elif known.presence is Presence.HIDDEN:
            entries[name] = known
        elif known.fingerprint != one.fingerprint or known.presence is Presence.MISSING:
            closer.append(name)
        else:
            entries[name] = replace(known, table=replace(known.table, rows=one.rows, bytes=one.bytes))
    found = work.look_at(closer, listed, old)
    entries |= found
    entries |= work.measure(
        [n for n, known in entries.items() if n in listed and known.presence is Presence.PRESENT], entries, listed, new=found
    )
    differences = [d for name, known in found.items() if (d := _difference(old.get(name), known)) is not None]
    for name, known in old.items():
        if name in entries or name in listed:
            continue
        gone = known if known.presence is not Presence.PRESENT else replace(known, presence=Presence.MISSING, since=now)
        if asked.prune and name not in said.named:
            differences.append(Difference(name, Change.PRUNED))
            continue
        entries[name] = gone
        if known.presence is Presence.PRESENT:
            differences.append(Difference(name, Change.MISSING))
        elif asked.prune and known.presence is Presence.MISSING:
            work.troubles[name] = "it is gone from the source and cannot be forgotten, as the YAML names it: take it out there first"
    catalog = Catalog(before.found_on if before else _today(), now, tuple(entries[name] for name in sorted(entries)))
    return Outcome(catalog, tuple(sorted(differences, key=lambda d: d.container)), work.troubles, len(closer))


def hide(catalog: Catalog, names: Sequence[str]) -> Catalog:
    """Without the named containers, until somebody recreates them. Raises ConfigurationError for one that is not known."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    known = catalog.by_name
    for name in names:
        if name not in known or known[name].presence is Presence.HIDDEN:
            raise ConfigurationError(f"{name!r} is not in the catalog" + (": it was removed before." if name in known else "."))
    entries = [replace(k, presence=Presence.HIDDEN, since=now) if k.table.name in names else k for k in catalog.entries]
    return replace(catalog, entries=tuple(entries))


class _Work:
    """The closer look, container by container, in batches; trouble with one does not stop the others."""

    def __init__(
        self,
        source: CatalogSource,
        said: Said,
        now: str,
        progress: Callable[[str], None],
        kept: dict[str, Known],
        keep: Callable[[Mapping[str, Known]], None],
    ) -> None:
        self._source, self._said, self._now, self._progress, self._kept, self._keep = source, said, now, progress, kept, keep
        self.troubles: dict[str, str] = {}

    def look_at(self, names: Sequence[str], listed: Mapping[str, Listed], old: Mapping[str, Known]) -> dict[str, Known]:
        finished = {name: self._kept[name] for name in names if name in self._kept}
        found = {name: known for name, known in finished.items() if known.fingerprint == listed[name].fingerprint}
        left = [name for name in names if name not in found]
        if found:
            self._progress(f"{len(found):,} containers were finished by a run that did not end")
        for at in range(0, len(left), BATCH):
            batch = left[at : at + BATCH]
            tables = {table.name: table for table in self._source.tables(batch)}
            evidence = self._source.evidence(list(tables))
            for name, table in tables.items():
                found[name] = self._known(table, listed[name], evidence.get(name, TableEvidence()), old.get(name))
            self._keep(found)
            if len(left) > BATCH:
                self._progress(f"{min(at + BATCH, len(left)):,} of {len(left):,} containers")
        return found

    def _known(self, table: SourceTable, listed: Listed, evidence: TableEvidence, before: Known | None) -> Known:
        table = replace(table, rows=listed.rows, bytes=listed.bytes)
        dropped: tuple[SourceColumn, ...] = ()
        since = self._now
        if before is not None:
            # The calendar of a container stays what its first rows made it: keys that were seen stay.
            table = replace(table, first=before.table.first, last=before.table.last, span=before.table.span)
            names = {column.name for column in table.columns}
            gone = {c.name: c for c in (*before.dropped, *before.table.columns) if c.name not in names}
            dropped = tuple(gone.values())
            since = before.since if before.presence is Presence.PRESENT else self._now
        proposal = self._proposal(table, evidence, before)
        return Known(table, listed.fingerprint, since, None, Presence.PRESENT, dropped, proposal)

    def _proposal(self, table: SourceTable, evidence: TableEvidence, before: Known | None) -> Proposal:
        """One that is used stays, for as long as its columns do: another identifier would mean to load the table anew."""
        if before is not None and self._is_used(before) and _still_fits(before.proposal, table):
            self._doubt(table.name, before.proposal, evidence)
            return before.proposal
        return propose(table, evidence)

    def _is_used(self, known: Known) -> bool:
        name = known.table.name
        return known.proposal.trusted and name not in self._said.specs and self._said.auto(name)

    def measure(
        self, names: Sequence[str], entries: Mapping[str, Known], listed: Mapping[str, Listed], new: Collection[str]
    ) -> dict[str, Known]:
        """First and last identifiers, and better proposals, of those whose rows have changed since they were looked at."""
        moved = [n for n in names if n in new or listed[n].activity != entries[n].activity or self._lacks_span(entries[n])]
        doubtful = [n for n in moved if n not in new]
        evidence: dict[str, TableEvidence] = {}
        for at in range(0, len(doubtful), BATCH):
            evidence |= self._source.evidence(doubtful[at : at + BATCH])
        measured: dict[str, Known] = {}
        for name in moved:
            known = entries[name]
            if name in evidence and self._is_used(known):
                self._doubt(name, known.proposal, evidence[name])
            elif name in evidence:
                known = replace(known, proposal=propose(known.table, evidence[name]))
            try:
                measured[name] = replace(self._with_span(known), activity=listed[name].activity)
            except SyncError as error:
                self.troubles[name] = str(error)
                measured[name] = known  # asked again by the next run
        return measured

    def _doubt(self, name: str, used: Proposal, evidence: TableEvidence) -> None:
        """What was taken for rows that are written once turns out to be changed."""
        if used.strategy is Strategy.APPEND and evidence.changes:
            self.troubles[name] = (
                f"{evidence.changes:,} rows were updated or deleted since {'/'.join(used.columns)} was chosen, which append misses: say in "
                f"the YAML how the container is to be synced, and load it anew with --reset-watermarks"
            )

    def _lacks_span(self, known: Known) -> bool:
        """The YAML has named an identifier since."""
        spec = self._said.specs.get(known.table.name)
        return spec is not None and not spec.excluded and known.table.span is None

    def _with_span(self, known: Known) -> Known:
        table, spec = known.table, self._said.specs.get(known.table.name)
        if spec is not None:
            axis = None if spec.excluded else _axis(table, spec)
            return known if axis is None else replace(known, table=self._spanned(table, spec.columns, axis))
        proposal = known.proposal
        if proposal.type is None:
            return known
        axis = axis_of(next(c for c in table.columns if c.name == proposal.columns[0]))
        assert axis is not None, "proposed identifiers lie on an axis"
        cheap = all(name in table.indexed for name in proposal.columns) or (table.rows is not None and table.rows <= SMALL_ROWS)
        used = self._is_used(known)
        if not (cheap or used):
            return known
        ends = self._source.span(table.name, proposal.columns, axis)
        if used:
            known = replace(known, table=_with_ends(table, ends, axis))
        if ends is not None and proposal.partition_by is None:
            known = replace(known, proposal=with_partitions(proposal, axis, *ends, table.rows))
        return known

    def _spanned(self, table: SourceTable, columns: Sequence[str], axis: Axis) -> SourceTable:
        return _with_ends(table, self._source.span(table.name, columns, axis), axis)


def _with_ends(table: SourceTable, ends: tuple[int, int] | None, axis: Axis) -> SourceTable:
    if ends is None:
        return replace(table, span=0 if table.span is None else table.span)
    first = format_value(axis, ends[0]) if table.first is None else table.first
    span = (0 if axis.is_time else ends[1] - ends[0]) if table.span is None else table.span
    return replace(table, first=first, last=format_value(axis, ends[1]), span=span)


def _axis(table: SourceTable, spec: IncrementalSpec) -> Axis | None:
    """None where the YAML's identifier does not fit: ``resolve`` says what is wrong, where the user sees it."""
    chosen = [column for name in spec.columns if (column := table.column(name)) is not None]
    try:
        axes = {identifier_axis(table.name, column, spec.type) for column in chosen}
    except ConfigurationError:
        return None
    return axes.pop() if len(chosen) == len(spec.columns) and len(axes) == 1 else None


def _still_fits(proposal: Proposal, table: SourceTable) -> bool:
    columns = [table.column(name) for name in proposal.columns]
    same_key = proposal.strategy is not Strategy.UPSERT or table.primary_key == proposal.primary_key
    return same_key and all(column is not None and identifier_type(column) is proposal.type for column in columns)


def _difference(before: Known | None, after: Known) -> Difference | None:
    if before is None:
        return Difference(after.table.name, Change.NEW)
    changes = field_changes(before.table, after.table, before.dropped)
    if before.presence is not Presence.PRESENT:
        return Difference(after.table.name, Change.BACK, changes)
    return Difference(after.table.name, Change.CHANGED, changes) if changes else None


def _today() -> int:
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.date().toordinal() - datetime.date(1970, 1, 1).toordinal()
