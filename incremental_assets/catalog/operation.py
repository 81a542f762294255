"""The catalog operation: what is in a datastore now, compared with what is known; only the differences are looked at closer.

Belongs here: which container is new, changed, missing, back, forgotten. Does not belong: the closer look (``look``), asking the source
(``databases``, ``files``), keeping the result (``state``), or running it (``dagster``).
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from incremental_assets.catalog.diff import Change, Difference, Field, FieldChange, field_changes
from incremental_assets.catalog.inspect import CatalogSource, CloserLook, Said
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.core.container import Kind
from incremental_assets.core.errors import ConfigurationError


@dataclass(frozen=True)
class Asked:
    """Options of one run. ``kinds``: which containers are looked at; the others stay as they are known."""

    prune: bool = False
    recreate: bool = False
    kinds: frozenset[Kind] = frozenset(Kind)


@dataclass(frozen=True)
class Outcome:
    """``troubles``: what could not be found out, or is not as it should be, by container; the rest is complete."""

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
    finished: Mapping[str, Known] | None = None,
    keep: Callable[[Mapping[str, Known]], None] = lambda _: None,
) -> Outcome:
    """Compares the datastore with what is known. Raises SyncError where not even the listing can be had.

    ``finished``: entries of a run that did not end, and ``keep`` is told those of this one as they come: they are looked at once.
    """
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    old = before.by_name if before else {}
    everything = source.listing()
    listed = {name: one for name, one in everything.items() if one.kind in asked.kinds and not said.excluded(name)}
    look = CloserLook(source, said, now, progress, finished or {}, keep)
    entries = {name: known for name, known in old.items() if name in everything and name not in listed}
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
            entries[name] = replace(known, table=replace(known.table, rows=one.rows, bytes=one.bytes, files=one.files))
    found = look.renew(closer, listed, old)
    for name in closer:
        if name not in found and name in old:
            entries[name] = old[name]
            look.troubles[name] = "it vanished while it was looked at; the next run sees what became of it"
    entries |= found
    present = {name: known for name, known in entries.items() if name in listed and known.presence is Presence.PRESENT}
    entries |= look.measure(present, listed, new=found)
    differences = [d for name, known in found.items() if (d := _difference(old.get(name), known)) is not None]
    for name, known in old.items():
        if name not in everything:
            kept, difference = _gone(known, asked, said, now, bool(everything), look.troubles)
            entries |= {} if kept is None else {name: kept}
            differences += [] if difference is None else [difference]
    doubts = {name: known.doubt for name, known in entries.items() if known.doubt is not None and said.detects(name)}
    catalog = Catalog(before.found_on if before else _today(), now, tuple(entries[name] for name in sorted(entries)))
    return Outcome(catalog, tuple(sorted(differences, key=lambda d: d.container)), {**doubts, **look.troubles}, len(closer))


def _gone(
    known: Known, asked: Asked, said: Said, now: str, others: bool, troubles: dict[str, str]
) -> tuple[Known | None, Difference | None]:
    """What becomes of an entry whose container is not in the source: (the entry, or None where it is forgotten; the difference)."""
    name = known.table.name
    if known.presence is Presence.HIDDEN or said.excluded(name) or known.table.kind not in asked.kinds:
        return known, None
    if asked.prune and name not in said.named and others:
        return None, Difference(name, Change.PRUNED)
    if asked.prune and name in said.named:
        troubles[name] = "it is gone from the source and cannot be forgotten, as the YAML names it: take it out there first"
    elif asked.prune:
        troubles[name] = "nothing at all is in the source: is it the right one? Nothing was forgotten"
    if known.presence is Presence.MISSING:
        return known, None
    return replace(known, presence=Presence.MISSING, since=now), Difference(name, Change.MISSING)


def hide(catalog: Catalog, names: Sequence[str]) -> Catalog:
    """Without the named containers, until somebody recreates them. Raises ConfigurationError for one that is not known."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    known = catalog.by_name
    for name in names:
        if name not in known or known[name].presence is Presence.HIDDEN:
            raise ConfigurationError(f"{name!r} is not in the catalog" + (": it was removed before." if name in known else "."))
    entries = [replace(k, presence=Presence.HIDDEN, since=now) if k.table.name in names else k for k in catalog.entries]
    return replace(catalog, entries=tuple(entries))


def _difference(before: Known | None, after: Known) -> Difference | None:
    if before is None:
        return Difference(after.table.name, Change.NEW)
    changes = field_changes(before.table, after.table, before.dropped)
    if before.identity is not None and after.identity is not None and before.identity != after.identity:
        changes = (FieldChange(Field.TABLE, None, "the one before", "another of its name"), *changes)
    if before.presence is not Presence.PRESENT:
        return Difference(after.table.name, Change.BACK, changes)
    return Difference(after.table.name, Change.CHANGED, changes) if changes else None


def _today() -> int:
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.date().toordinal() - datetime.date(1970, 1, 1).toordinal()
