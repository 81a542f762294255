"""Runs the catalog operation: lists a datastore, compares the listing with the stored catalog, and inspects only what differs."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from incremental_assets.catalog.diff import Change, Difference, Field, FieldChange, field_changes
from incremental_assets.catalog.inspect import CatalogDeclarations, CatalogSource, ContainerInspection
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.core.container import Kind
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.evidence import TableProfile


@dataclass(frozen=True)
class CatalogOptions:
    """The options of one run.

    ``prune``: remove the entries of containers that are gone from the source. ``recreate``: bring hidden containers back. ``kinds``: the
    kinds of containers that are compared; the entries of all others stay as they are.
    """

    prune: bool = False
    recreate: bool = False
    kinds: frozenset[Kind] = frozenset(Kind)


@dataclass(frozen=True)
class CatalogResult:
    """The result of one run.

    ``differences``: in the order of names. ``troubles``: by container, what could not be inspected or is not as it should be; the others
    are complete. ``inspected``: how many containers were inspected.
    """

    catalog: Catalog
    differences: tuple[Difference, ...]
    troubles: Mapping[str, str]
    inspected: int


def take_catalog(
    source: CatalogSource,
    before: Catalog | None,
    options: CatalogOptions,
    declarations: CatalogDeclarations,
    progress: Callable[[str], None] = lambda _: None,
    finished: Mapping[str, Known] | None = None,
    keep: Callable[[Mapping[str, Known]], None] = lambda _: None,
    profiles: Mapping[str, TableProfile] | None = None,
) -> CatalogResult:
    """Compares the datastore with the stored catalog. Raises SyncError where not even the listing succeeds.

    ``before``: the stored catalog; None: there is none. ``progress``: is called with messages for people. ``finished``: the entries that
    an interrupted run had finished, which are not inspected again. ``keep``: is called with the entries of this run as they are finished.
    ``profiles``: of the containers that have one, by name.
    """
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    old = before.by_name if before else {}
    everything = source.listing()
    listed = {name: one for name, one in everything.items() if one.kind in options.kinds and not declarations.excluded(name)}
    inspection = ContainerInspection(source, declarations, now, progress, finished or {}, keep, profiles or {})
    # Entries that this run does not compare stay as they are: other kinds, and excluded containers.
    entries = {name: known for name, known in old.items() if name in everything and name not in listed}
    to_inspect: list[str] = []
    # Inspected are new and changed containers, hidden ones that are brought back, missing ones that are there again, and announced ones
    # with other rows, whose identifier is not chosen for good. Of all others only the sizes are taken from the listing.
    for name, one in listed.items():
        known = old.get(name)
        if known is None or (known.presence is Presence.HIDDEN and options.recreate):
            to_inspect.append(name)
        elif known.presence is Presence.HIDDEN:
            entries[name] = known
        elif (
            known.fingerprint != one.fingerprint
            or known.presence is Presence.MISSING
            or (known.presence is Presence.ANNOUNCED and known.activity != one.activity)
        ):
            to_inspect.append(name)
        else:
            entries[name] = replace(known, table=replace(known.table, rows=one.rows, bytes=one.bytes, files=one.files))
    renewed = inspection.renew(to_inspect, listed, old)
    for name in to_inspect:
        if name not in renewed and name in old:
            entries[name] = old[name]
            inspection.troubles[name] = "it disappeared from the source while it was inspected; the next run of the catalog looks again"
    entries |= renewed
    there = (Presence.PRESENT, Presence.ANNOUNCED)
    present = {name: known for name, known in entries.items() if name in listed and known.presence in there}
    entries |= inspection.measure(present, listed, new=renewed)
    announced = {name for name, known in old.items() if known.presence is Presence.ANNOUNCED}
    recent = {name for name in listed if name in entries and (name not in old or name in announced)}
    entries |= {name: _placed(entries[name], before, declarations) for name in recent}
    differences = [d for name in {*renewed, *recent} if (d := _difference(old.get(name), entries[name])) is not None]
    # Whether a container is gone is decided by the whole listing: one of another kind, or an excluded one, is still in the source.
    for name, known in old.items():
        if name not in everything:
            kept, difference = _gone(known, options, declarations, now, bool(everything), inspection.troubles)
            entries |= {} if kept is None else {name: kept}
            differences += [] if difference is None else [difference]
    doubts = {name: known.doubt for name, known in entries.items() if known.doubt is not None and declarations.detects(name)}
    found_on, kept = before.found_on if before else _today(), tuple(entries[name] for name in sorted(entries))
    aside = {name: one for name, one in everything.items() if name not in listed}
    if before is not None:
        aside = {name: one for name, one in aside.items() if name in before.left_out or declarations.leaves_out(name, one.kind)}
    # What is away now, or could not be looked at, is not new when it is there again.
    away = {name for name in (before.left_out if before is not None else ()) if name not in everything}
    unread = {name for name in source.troubles if name not in entries}
    catalog = Catalog(found_on, now, kept, missing_privileges=source.missing_privileges, left_out=tuple(sorted({*aside, *away, *unread})))
    return CatalogResult(catalog, tuple(sorted(differences, key=lambda d: d.container)), {**doubts, **inspection.troubles}, len(to_inspect))


def _placed(known: Known, before: Catalog | None, declarations: CatalogDeclarations) -> Known:
    """Returns the entry of a container that is new or was announced, with whether it is synced.

    The first catalog takes in all. Who no longer leaves a container out wants it.
    """
    if before is None or not before.entries:  # a schema may have been empty before
        return replace(known, presence=Presence.PRESENT)
    is_wanted = known.table.name in before.left_out or declarations.why_not_synced(known) is None
    return replace(known, presence=Presence.PRESENT if is_wanted else Presence.ANNOUNCED)


def _gone(
    known: Known, options: CatalogOptions, declarations: CatalogDeclarations, now: str, others: bool, troubles: dict[str, str]
) -> tuple[Known | None, Difference | None]:
    """Decides about an entry whose container is not in the source. Returns the entry (None: it is forgotten), and the difference.

    ``others``: whether the source has any container at all. If not, nothing is forgotten, as it may be the wrong source. What speaks
    against forgetting an entry is added to ``troubles``.
    """
    name = known.table.name
    if known.presence is Presence.HIDDEN or declarations.excluded(name) or known.table.kind not in options.kinds:
        return known, None
    if known.presence is Presence.ANNOUNCED and others and name not in declarations.named:
        return None, None  # nothing was synced of it
    if options.prune and name not in declarations.named and others:
        return None, Difference(name, Change.PRUNED)
    if options.prune and name in declarations.named:
        troubles[name] = "it is gone from the source and cannot be forgotten, as the YAML names it: remove it from the YAML first"
    elif options.prune:
        troubles[name] = "the source is empty, so nothing was forgotten. Check whether it is the right source"
    if known.presence is Presence.MISSING or (known.presence is Presence.ANNOUNCED and name not in declarations.named):
        return known, None
    return replace(known, presence=Presence.MISSING, since=now), Difference(name, Change.MISSING)


def hide(catalog: Catalog, names: Sequence[str]) -> Catalog:
    """Returns the catalog with the named containers hidden, until a run recreates them.

    Raises ConfigurationError for a name that the catalog does not have, or has hidden before.
    """
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    known = catalog.by_name
    for name in names:
        if name not in known or known[name].presence is Presence.HIDDEN:
            raise ConfigurationError(f"{name!r} is not in the catalog" + (": it was removed before." if name in known else "."))
    entries = [replace(k, presence=Presence.HIDDEN, since=now) if k.table.name in names else k for k in catalog.entries]
    return replace(catalog, entries=tuple(entries))


def announced(catalog: Catalog | None, declarations: CatalogDeclarations) -> list[tuple[Known, str]]:
    """Returns the announced containers that the YAML neither names nor leaves out, each with why it is not synced, in words."""
    entries = [one for one in catalog.entries if one.presence is Presence.ANNOUNCED] if catalog is not None else []
    left = [(one, declarations.why_not_synced(one)) for one in entries if not declarations.leaves_out(one.table.name, one.table.kind)]
    return [(one, f"new since {one.since}; not synced: {why}") for one, why in left if why is not None]


def _difference(before: Known | None, after: Known) -> Difference | None:
    """Returns the difference between a stored entry (None: there is none) and the new one; None: there is no difference."""
    if after.presence is Presence.ANNOUNCED:
        return Difference(after.table.name, Change.ANNOUNCED) if before is None else None
    if before is None or before.presence is Presence.ANNOUNCED:
        return Difference(after.table.name, Change.NEW)
    changes = field_changes(before.table, after.table, before.dropped)
    if before.identity is not None and after.identity is not None and before.identity != after.identity:
        changes = (FieldChange(Field.TABLE, None, "the one before", "another of its name"), *changes)
    if before.presence is not Presence.PRESENT:
        return Difference(after.table.name, Change.BACK, changes)
    return Difference(after.table.name, Change.CHANGED, changes) if changes else None


def _today() -> int:
    """Days since 1970-01-01, in UTC."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.date().toordinal() - datetime.date(1970, 1, 1).toordinal()
