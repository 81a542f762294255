"""Inspects containers: their columns, the proposed identifier, and the first and last value of the identifier."""

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from incremental_assets.catalog.detect import WHOLE_BYTES, Proposal, propose, with_partitions
from incremental_assets.catalog.state import Known, Presence
from incremental_assets.core.container import Kind, OnNewTable, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.core.evidence import ListedContainer, TableEvidence, TableProfile
from incremental_assets.core.grammar import IncrementalSpec, Strategy
from incremental_assets.core.identifier_types import cursor_type_of, identifier_cursor_type
from incremental_assets.core.partition_column import axis_of
from incremental_assets.core.shown_text import counted

BATCH = 200
"""How many containers are inspected at a time. After each batch, progress is reported and the finished entries are kept."""
SMALL_ROWS = 1_000_000
"""Up to this number of rows, the first and last value of a column without an index are queried, in order to propose partitions."""


class CatalogSource(Protocol):
    """The queries of the catalog operation to a datastore. Each call may raise SyncError.

    ``troubles``: by table or path, what could not be inspected. ``missing_privileges``: see ``Catalog``; known after the listing.
    """

    troubles: dict[str, str]
    missing_privileges: tuple[str, ...] = ()

    def listing(self) -> Mapping[str, ListedContainer]:
        """Lists all containers of the datastore by name, without inspecting any of them."""
        ...

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        """Returns the columns, keys and indexes of those of the named containers that exist."""
        ...

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """Returns by container the statistics, triggers and unique indexes from which an identifier is proposed."""
        ...

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """Returns the first and the last identifier, as values of the cursor type ``cursor_type``; None: no row has an identifier."""
        ...

    def last_drawn(self, table: str, column: SourceColumn) -> int | None:
        """Returns the last value that the column's sequence gave out; None: it has no sequence, or nobody knows."""
        ...


@dataclass(frozen=True)
class CatalogDeclarations:
    """The settings of the YAML that the catalog operation needs.

    ``specs``: the entries under ``incremental:``, by table. ``named``: the containers that the YAML names, which are never forgotten.
    ``excluded``: whether a container of this name is left out. ``auto``: whether the identifier that the catalog operation detects is used
    for a container of this name, unless the YAML names one. ``kinds``: the kinds of relations that become containers. ``on_new_table``:
    what happens to tables that the first run did not find. ``schema``: the schema of the tables.
    """

    specs: Mapping[str, IncrementalSpec] = field(default_factory=dict[str, IncrementalSpec])
    named: Collection[str] = ()
    excluded: Callable[[str], bool] = lambda _: False
    auto: Callable[[str], bool] = lambda _: False
    kinds: frozenset[Kind] = frozenset(Kind)
    on_new_table: OnNewTable = OnNewTable.LOAD_ALL
    schema: str = ""

    def leaves_out(self, name: str, kind: Kind) -> bool:
        """Whether the YAML leaves out the container of this name."""
        return self.excluded(name) or kind not in self.kinds

    def why_not_synced(self, known: Known) -> str | None:
        """Why a table that the first run did not find is not synced, in words; None: it is."""
        table, proposal = known.table, known.proposal
        if table.name in self.named or self.on_new_table is OnNewTable.LOAD_ALL:
            return None
        if self.on_new_table is OnNewTable.ANNOUNCE:
            return "on_new_table is announce"
        if proposal.is_small or (proposal.trusted and self.detects(table.name)):
            return None
        return f"it is larger than {WHOLE_BYTES >> 20} MB or of unknown size, and has no trusted identifier that identifiers: auto uses"

    def detects(self, name: str) -> bool:
        """Whether the catalog operation decides which identifier a container has."""
        return name not in self.specs and self.auto(name)

    def identifier(self, known: Known) -> tuple[Sequence[str], CursorType] | None:
        """Returns columns and cursor type of the identifier by which a container is synced; None for a snapshot.

        It is also None where the YAML does not fit the table, which ``core.resolve`` reports.
        """
        table, spec = known.table, self.specs.get(known.table.name)
        if spec is None and self.detects(table.name) and known.pinned is not None:
            spec = known.pinned.spec("", table.name)
        if spec is None or spec.excluded:
            return None
        chosen = [column for name in spec.columns if (column := table.column(name)) is not None]
        try:
            cursor_types = {identifier_cursor_type(table.name, column, spec.type) for column in chosen}
        except ConfigurationError:
            return None
        return (spec.columns, cursor_types.pop()) if len(chosen) == len(spec.columns) and len(cursor_types) == 1 else None

    def axis(self, known: Known) -> tuple[Sequence[str], CursorType] | None:
        """Returns columns and cursor type of what the partitions are windows of, which is the identifier unless the YAML says otherwise."""
        spec, used = self.specs.get(known.table.name), self.identifier(known)
        if used is None or spec is None or spec.partition_by is None:
            return used
        axis = axis_of(known.table, spec)
        return None if axis is None else (axis.columns, axis.cursor_type)

    def lacks_span(self, known: Known) -> bool:
        """Whether first and last identifier of an unchanged container have to be queried all the same.

        The YAML may have named an identifier since, or switched to ``identifiers: auto``, or an earlier query may have failed.
        """
        undecided = self.detects(known.table.name) and known.pinned is None
        axis = self.axis(known)
        if axis is None or undecided:
            return undecided
        return known.table.span is None or known.table.spanned != self.spanned(known)

    def spanned(self, known: Known) -> tuple[str, ...]:
        """Returns what ``SourceTable.spanned`` has to be."""
        spec, axis = self.specs.get(known.table.name), self.axis(known)
        return () if axis is None or spec is None or spec.partition_by is None else tuple(axis[0])


class ContainerInspection:
    """Inspects containers in batches. A failure with the identifier of one container does not stop the others: it is in ``troubles``.

    ``now``: the time of the run (ISO 8601, UTC). ``progress``: is called with messages for people. ``finished``: the entries that an
    interrupted run had finished, which are not queried again. ``keep``: is called with the entries of this run as they are finished.
    ``profiles``: of the containers that have one, by name.
    """

    def __init__(
        self,
        source: CatalogSource,
        declarations: CatalogDeclarations,
        now: str,
        progress: Callable[[str], None],
        finished: Mapping[str, Known],
        keep: Callable[[Mapping[str, Known]], None],
        profiles: Mapping[str, TableProfile],
    ) -> None:
        self._source, self._declarations, self._now = source, declarations, now
        self._progress, self._finished, self._keep, self._profiles = progress, finished, keep, profiles
        self.troubles: dict[str, str] = {}
        self._evidence: dict[str, TableEvidence] = {}

    # ------------------------------------------------------------------ columns and proposals
    def renew(self, names: Sequence[str], listed: Mapping[str, ListedContainer], old: Mapping[str, Known]) -> dict[str, Known]:
        """Returns new entries of the named containers; those that have vanished since the listing are left out.

        ``listed``: the listing, by name. ``old``: the stored entries, by name. Raises SyncError.
        """
        done = {name: self._finished[name] for name in names if name in self._finished}
        # An entry of an interrupted run counts only if the container has not changed since.
        found = {name: one for name, one in done.items() if (one.fingerprint, one.activity) == _mark(listed[name])}
        left = [name for name in names if name not in found]
        if found:
            self._progress(f"{counted(len(found), 'container was', 'containers were')} finished by a run that did not end")
        for at in range(0, len(left), BATCH):
            tables = {table.name: table for table in self._source.tables(left[at : at + BATCH])}
            self._evidence |= self._source.evidence(list(tables))
            for name, table in tables.items():
                found[name] = self._entry(table, listed[name], self._evidence.get(name, TableEvidence()), old.get(name))
            self._keep(found)
            if len(left) > BATCH:
                self._progress(f"{min(at + BATCH, len(left)):,} of {counted(len(left), 'container')}")
        return found

    def _entry(self, table: SourceTable, listed: ListedContainer, evidence: TableEvidence, before: Known | None) -> Known:
        """The new entry of a container. ``before``: its stored entry; one that was not synced is not continued, but begun anew."""
        table = replace(table, rows=listed.rows, bytes=listed.bytes, files=listed.files)
        fingerprint, activity = _mark(listed)
        # Since when the table is known counts for its age where the source does not tell that.
        there = (Presence.PRESENT, Presence.ANNOUNCED)
        is_same = before is not None and before.presence in there and before.identity == listed.identity
        since = before.since if before is not None and is_same else self._now
        proposal, profiled = self._proposal(table, evidence, since)
        is_synced = before is not None and (before.presence is not Presence.ANNOUNCED or table.name in self._declarations.named)
        if before is None or before.presence is Presence.HIDDEN or not is_synced:
            entry = Known(table, fingerprint, since, activity, proposal=proposal, identity=listed.identity, profiled=profiled)
            return self._pinned(entry)
        # The first identifier and the span stay as they were first found: the partitions follow from them, and existing partition keys must
        # not change.
        old = before.table
        table = replace(table, first=old.first, last=old.last, span=old.span, spanned=old.spanned)
        names = {column.name for column in table.columns}
        dropped = {c.name: c for c in (*before.dropped, *before.table.columns) if c.name not in names}
        entry = replace(
            before,
            table=table,
            fingerprint=fingerprint,
            activity=activity,
            since=since,
            presence=Presence.PRESENT,
            dropped=tuple(dropped.values()),
            proposal=proposal,
            identity=listed.identity,
            profiled=profiled,
        )
        return self._pinned(entry)

    def _proposal(self, table: SourceTable, evidence: TableEvidence, since: str) -> tuple[Proposal, str | None]:
        """The proposal, and the id of the profile that it takes into account. ``since``: when the table was seen first, or was back."""
        profile = self._profiles.get(table.name)
        seen_at = datetime.datetime.fromisoformat(since)
        if since != self._now and (evidence.made_at is None or seen_at < evidence.made_at):
            evidence = replace(evidence, made_at=seen_at)
        return propose(table, evidence, profile), self._profiled(table.name)

    def _profiled(self, name: str) -> str | None:
        profile = self._profiles.get(name)
        return None if profile is None else f"{profile.id}{', older' if profile.is_older else ''}"

    def _pinned(self, known: Known) -> Known:
        """Returns the entry with the proposal that ``identifiers: auto`` uses.

        Once chosen, it stays, also where none was trusted and the container is a snapshot: with another identifier the whole table would
        have to be loaded anew. It is chosen again only where its columns or its key have changed. Where the source no longer guarantees
        what it relies on, it stays too, and ``doubt`` says what has changed.
        """
        if not self._declarations.detects(known.table.name):
            return known
        if known.pinned is None or not _still_fits(known.pinned, known.table):
            # The partitions of a detected identifier are its own.
            return replace(known, pinned=replace(known.proposal, about=None) if known.proposal.trusted else Proposal(), doubt=None)
        used, now = known.pinned, known.proposal
        if (
            used.type is not None
            and known.doubt is None
            and not ((now.trusted or now.waits) and (now.columns, now.strategy) == (used.columns, used.strategy))
        ):
            by = f"{'/'.join(used.columns)} ({used.strategy.value})"
            doubt = (
                f"it is synced by {by}, as was detected once; now: {'; '.join(now.reasons[:4])}. Say in the YAML how it is to be synced, "
                f"and load it anew with --reset-watermarks"
            )
            return replace(known, doubt=doubt)
        return known

    # ------------------------------------------------------------------ spans
    def measure(self, entries: Mapping[str, Known], listed: Mapping[str, ListedContainer], new: Collection[str]) -> dict[str, Known]:
        """Returns the entries with first and last identifiers and fresh proposals, of those containers whose rows or profiles have changed.

        ``new``: names of containers whose entries this run has made; their evidence is fresh. For the others, evidence is read again. A
        container whose query fails keeps its entry, and the failure is in ``troubles``. Raises SyncError where evidence cannot be read.
        """
        moved = [
            n
            for n, known in entries.items()
            if n in new
            or listed[n].activity != known.activity
            or self._declarations.lacks_span(known)
            or self._profiled(n) not in (None, known.profiled)
        ]
        again = [n for n in moved if n not in new]
        for at in range(0, len(again), BATCH):
            self._evidence |= self._source.evidence(again[at : at + BATCH])
        measured: dict[str, Known] = {}
        for name in moved:
            known = entries[name]
            if name not in new and name in self._evidence:
                proposal, profiled = self._proposal(known.table, self._evidence[name], known.since)
                known = self._pinned(replace(known, proposal=proposal, profiled=profiled))
            try:
                measured[name] = replace(self._spanned(known), activity=listed[name].activity)
            except SyncError as error:
                self.troubles[name] = str(error)
                measured[name] = replace(known, activity=None)  # without activity, the next run queries it again
        return measured

    def _spanned(self, known: Known) -> Known:
        """Returns the entry with first and last identifier, and with proposed partitions. Raises SyncError.

        Without an identifier in use, they are queried only for the proposal, and only where that is cheap.
        """
        table, used = known.table, self._declarations.axis(known)
        if used is not None:
            columns, cursor_type = used
            if table.span is not None and self._declarations.lacks_span(known):
                table = replace(table, first=None, last=None, span=None)  # they are those of another column
            if table.span is not None and not set(columns) <= set(table.indexed):
                return known  # the first value is known; the last one is not worth reading the whole table without an index
            ends = self._source.span(table.name, columns, cursor_type)
            pinned = known.pinned
            if pinned is not None and pinned.type is not None and pinned.partition_by is None and table.span is None and ends is not None:
                other = self._unless_set_back(table, pinned, ends[1], known.since) if self._declarations.detects(table.name) else None
                if other is not None:
                    chosen = replace(other, about=None) if other.trusted and other.cursor_type is not CursorType.INTEGER else Proposal()
                    return self._spanned(replace(known, proposal=other, pinned=chosen))
                # The partitions of a detected identifier are chosen when its first rows are seen, and stay.
                pinned = with_partitions(pinned, cursor_type, *ends, table.rows)
            return replace(
                known, pinned=pinned, table=replace(_with_ends(table, ends, cursor_type), spanned=self._declarations.spanned(known))
            )
        proposal = known.proposal
        about = None if proposal.about is None else table.column(proposal.about)
        columns, cursor_type = (proposal.columns, proposal.cursor_type) if about is None else ((about.name,), cursor_type_of(about))
        cheap = set(columns) <= set(table.indexed) or (table.rows is not None and table.rows <= SMALL_ROWS)
        if cursor_type is None or proposal.partition_by is not None or proposal.is_small or not cheap:
            return known
        ends = self._source.span(table.name, columns, cursor_type)
        if ends is None:
            return known
        other = self._unless_set_back(table, proposal, ends[1], known.since) if about is None else None
        return replace(known, proposal=other or with_partitions(proposal, cursor_type, *ends, table.rows))

    def _unless_set_back(self, table: SourceTable, proposal: Proposal, highest: int, since: str) -> Proposal | None:
        """A proposal without the column, if its sequence is below the rows that are there, the highest of which is ``highest``; else None.

        New rows come below those then, until the sequence has passed them. Raises SyncError.
        """
        column = table.column(proposal.columns[0])
        drawn = self._source.last_drawn(table.name, column) if column is not None and column.sequence is not None else None
        if column is None or drawn is None or drawn >= highest:
            return None
        others = replace(table, columns=tuple(one for one in table.columns if one is not column))
        found, _ = self._proposal(others, self._evidence.get(table.name, TableEvidence()), since)
        why = f"{column.name}: its sequence {column.sequence} is at {drawn:,}, below rows that reach {highest:,}: new ones come below these"
        return replace(found, reasons=(*found.reasons, why))


def _mark(listed: ListedContainer) -> tuple[str, int | None]:
    """By which an entry of an interrupted run is recognized as still valid."""
    return listed.fingerprint, listed.activity


def _with_ends(table: SourceTable, ends: tuple[int, int] | None, cursor_type: CursorType) -> SourceTable:
    """Returns the table with its identifiers: ``first`` and ``span`` are set once, ``last`` each time.

    ``ends``: None for a table without identifiers, whose span is 0. The span of times is 0 too: their partitions do not depend on it.
    """
    if ends is None:
        return replace(table, span=0 if table.span is None else table.span)
    first = format_value(cursor_type, ends[0]) if table.first is None else table.first
    span = (0 if cursor_type.is_time else ends[1] - ends[0]) if table.span is None else table.span
    return replace(table, first=first, last=format_value(cursor_type, ends[1]), span=span)


def _still_fits(proposal: Proposal, table: SourceTable) -> bool:
    """Whether the columns of a proposal still have its cursor type, and, for ``upsert``, its key is still the table's primary key."""
    columns: list[SourceColumn | None] = [table.column(name) for name in proposal.columns]
    same_key = proposal.strategy is not Strategy.UPSERT or table.primary_key == proposal.primary_key
    return same_key and all(column is not None and cursor_type_of(column) is proposal.cursor_type for column in columns)
