"""A folder of files as a datastore: its settings, its containers, and what the catalog operation finds in it.

Belongs here: patterns and groups of files as containers. Does not belong: listing (``files.readers``), what a file is to be read for
(``core.files``), or YAML parsing.
"""

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from incremental_assets.catalog.definition import KEEP_DAYS, MAX_RUNTIME_SECONDS, CatalogSettings
from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.state import Catalog, Presence
from incremental_assets.core.axis import Axis, IdentifierType
from incremental_assets.core.container import Container, ContainerOptions, Cut, Identifier, Kind, SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.evidence import Listed, TableEvidence
from incremental_assets.core.file_groups import group_files
from incremental_assets.core.files import FILE, MODIFIED, FileFormat, FileStamp, Limits, format_of
from incremental_assets.core.globs import fixed_part, owner_of
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import nearest
from incremental_assets.files.listing import FolderAddress, OnTrouble
from incremental_assets.quality.declared import check_rules

_COLUMNS = (SourceColumn(FILE.name, "text", "text", True), SourceColumn(MODIFIED.name, "timestamp with time zone", "file time", True))
"""What is known of every file; the others show when one is read."""


@dataclass(frozen=True)
class FileOptions:
    """What the YAML says of one container. ``glob`` and ``format`` are None where the catalog is to find them.

    ``read``: Spark's options for the format. ``types``: of columns, as Spark calls them. ``prune``: rows of files that are gone go too.
    """

    glob: str | None = None
    format: FileFormat | None = None
    read: Mapping[str, str] = field(default_factory=dict[str, str])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    prune: bool | None = None
    max_file_bytes: int | None = None
    max_line_bytes: int | None = None
    max_columns: int | None = None
    container: ContainerOptions = field(default_factory=ContainerOptions)


@dataclass(frozen=True)
class FolderSettings:
    """What the YAML says of a whole folder. ``most_files``: asked for by a tick of a sensor or schedule; ``look_seconds``: between two."""

    name: str
    address: FolderAddress
    settle_seconds: float = 5.0
    look_seconds: int = 30
    most_files: int = 1000
    prune_files: bool = False
    limits: Limits = field(default_factory=Limits)
    schedule: str | None = None
    maintenance: str | None = None
    max_runtime_seconds: int = MAX_RUNTIME_SECONDS
    keep_days: int | None = KEEP_DAYS
    options: Mapping[str, FileOptions] = field(default_factory=dict[str, FileOptions])
    exclude: tuple[str, ...] = ()
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    timezone: str = "UTC"

    @property
    def declares(self) -> bool:
        """Whether the YAML names the containers, by their patterns; else the folder is searched for them."""
        return any(options.glob is not None for options in self.options.values())

    @property
    def named(self) -> frozenset[str]:
        return frozenset(self.options)

    def is_excluded(self, table: str) -> bool:
        return any(fnmatch.fnmatchcase(table, pattern) for pattern in self.exclude)


@dataclass(frozen=True)
class FileDefinition:
    """A ``ContainerDefinition`` of files. ``patterns``: of all containers of the folder, as a file belongs to one of them only."""

    settings: FolderSettings
    table: SourceTable
    missing_since: str | None
    patterns: tuple[str, ...]
    proposal: Proposal = field(default_factory=Proposal)

    @property
    def container(self) -> Container:
        return self._container

    @property
    def entry(self) -> None:
        return None

    @property
    def is_specified(self) -> bool:
        """There is no choice: files go by their modification time."""
        return True

    @property
    def is_detected(self) -> bool:
        return False

    @property
    def options(self) -> FileOptions:
        return self.settings.options.get(self.table.name, FileOptions())

    @property
    def glob(self) -> str:
        assert self.table.glob is not None
        return self.table.glob

    @property
    def format(self) -> FileFormat:
        assert self.table.format is not None
        return FileFormat(self.table.format)

    @property
    def prunes(self) -> bool:
        own = self.options.prune
        return self.settings.prune_files if own is None else own

    @cached_property
    def limits(self) -> Limits:
        own, all_ = self.options, self.settings.limits
        return Limits(own.max_file_bytes or all_.file_bytes, own.max_line_bytes or all_.line_bytes, own.max_columns or all_.columns)

    @cached_property
    def how(self) -> str:
        """A digest of how its files are read, as far as the YAML says so."""
        own = self.options
        said: tuple[object, ...] = (self.format.value, sorted(own.read.items()), sorted(own.types.items()))
        if self.limits != Limits():
            said = (*said, self.limits)
        return hashlib.sha256(repr(said).encode()).hexdigest()[:16]

    def listing(self, on_trouble: OnTrouble) -> Iterator[tuple[str, FileStamp]]:
        """Path and stamp of each file that its pattern matches. Raises as ``FolderAddress.list``."""
        return self.settings.address.list("", on_trouble, [self.glob])

    def owns(self, path: str) -> bool:
        """Whether a file that its pattern matches is one of this container's."""
        owner = owner_of(path, self._rivals)
        return owner is None or self._rivals[owner] == self.glob

    @cached_property
    def _rivals(self) -> tuple[str, ...]:
        """The patterns that may match the same files: own and those of folders above and below."""
        here = fixed_part(self.glob)
        return tuple(p for p in self.patterns if _above(fixed_part(p), here) or _above(here, fixed_part(p)))

    @cached_property
    def _container(self) -> Container:
        table = self.table
        return Container(
            datastore=self.settings.name,
            schema="",
            name=table.name,
            kind=Kind.FILES,
            columns=table.columns,
            identifier=Identifier((MODIFIED.name,), IdentifierType.TIMESTAMP, Axis.INSTANT),
            cut=Cut(by_file=True),
            strategy=Strategy.APPEND,
            primary_key=(),
            key_is_enforced=False,
            lag=0,
            options=self.options.container,
            bytes=table.bytes,
            comment=table.comment,
        )


def _above(folder: str, other: str) -> bool:
    return not folder or other == folder or other.startswith(f"{folder}/")


def file_definitions(settings: FolderSettings, catalog: Catalog) -> list[FileDefinition]:
    """All containers of the folder, in the order of their names. Raises ConfigurationError where the YAML counts on one that is not."""
    known = catalog.by_name
    for name, options in settings.options.items():
        one = known.get(name)
        if settings.is_excluded(name):
            continue
        if one is None and options.glob is None:
            raise ConfigurationError(
                f"{settings.name}: containers names {name!r}, which no files were found for.{nearest(name, known)} Give it a glob, or, if "
                f"its files are new: incremental-assets catalog {settings.name}"
            )
        if one is not None and one.presence is Presence.HIDDEN:
            raise ConfigurationError(
                f"{settings.name}: containers names {name!r}, which was removed from the catalog. To bring it back: "
                f"incremental-assets catalog {settings.name} --recreate"
            )
    shown = {name: one for name, one in known.items() if one.presence is not Presence.HIDDEN and not settings.is_excluded(name)}
    tables = {name: (one.table, one.since if one.presence is Presence.MISSING else None) for name, one in shown.items()}
    for name, options in settings.options.items():  # what the YAML says counts at once, whatever the catalog knows
        if options.glob is not None and not settings.is_excluded(name):
            found = shown[name].table if name in shown else SourceTable(name, Kind.FILES, _COLUMNS, span=0)
            tables[name] = replace(found, glob=options.glob, format=_format(options, options.glob).value), None
    hidden = [one.table for one in known.values() if one.presence is Presence.HIDDEN or settings.is_excluded(one.table.name)]
    owners = [table for table, since in tables.values() if since is None]  # files of one that is gone may be another's by now
    excluded = [options.glob for name, options in settings.options.items() if settings.is_excluded(name)]
    globs = (*(table.glob for table in (*owners, *hidden)), *excluded)
    patterns = tuple(dict.fromkeys(glob for glob in globs if glob is not None))
    unknown = dict.fromkeys(tables)  # the columns of files show when they are read
    for name, options in settings.options.items():
        check_rules(f"{settings.name}/{name}", options.container.checks, None, unknown)
    return [FileDefinition(settings, table, since, patterns) for _, (table, since) in sorted(tables.items()) if table.glob is not None]


def _format(options: FileOptions, glob: str) -> FileFormat:
    return options.format or format_of(glob) or FileFormat.TEXT


# ---------------------------------------------------------------- what the operation asks of a folder
@dataclass
class _Found:
    glob: str
    format: FileFormat
    stamps: dict[str, FileStamp] = field(default_factory=dict[str, FileStamp])


class FolderCatalog:
    """A ``CatalogSource``: one listing, from which the rest follows. ``before``: groups keep the names that they have in it.

    ``troubles``: folders that could not be looked into, by path; the containers in them count as unchanged.
    """

    def __init__(self, settings: FolderSettings, before: Catalog | None) -> None:
        self._settings = settings
        self._before = [one.table for one in before.entries] if before is not None else []
        self._found: dict[str, _Found] = {}
        self.troubles: dict[str, str] = {}

    def listing(self) -> Mapping[str, Listed]:
        self.troubles.clear()
        self._found = self._declared() if self._settings.declares else self._searched()
        return {name: _listed(found) for name, found in self._found.items()}

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        return [_table(name, self._found[name]) for name in names]

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        return {}

    def span(self, table: str, columns: Sequence[str], axis: Axis) -> tuple[int, int] | None:
        return None

    def _declared(self) -> dict[str, _Found]:
        """One for each pattern of the YAML, whether there are such files already or not."""
        found: dict[str, _Found] = {}
        for name, options in self._settings.options.items():
            assert options.glob is not None, "checked with the YAML"
            found[name] = _Found(options.glob, _format(options, options.glob))
        names, patterns = list(found), [one.glob for one in found.values()]
        roots = {fixed_part(pattern) for pattern in patterns}
        for root in sorted(one for one in roots if not any(_above(other, one) for other in roots - {one})):
            for path, stamp in self._settings.address.list(root, self._note, patterns):
                owner = owner_of(path, patterns)
                assert owner is not None, "only what one of the patterns matches is listed"
                found[names[owner]].stamps[path] = stamp
        return found

    def _searched(self) -> dict[str, _Found]:
        stamps = dict(self._settings.address.list("", self._note))
        groups = group_files(stamps, {table.glob: table.name for table in self._before if table.glob is not None})
        said = {name: options.format for name, options in self._settings.options.items() if options.format is not None}
        found = {g.name: _Found(g.pattern, said.get(g.name, g.format), {path: stamps[path] for path in g.files}) for g in groups}
        for table in self._before:
            if table.glob is None or table.format is None or table.name in found:
                continue
            folder = fixed_part(table.glob)
            if any(_above(path, folder) or _above(folder, path) for path in self.troubles):
                found[table.name] = _Found(table.glob, FileFormat(table.format))
        return found

    def _note(self, path: str, message: str) -> None:
        self.troubles[path] = message


def _listed(found: _Found) -> Listed:
    shape = hashlib.sha256(repr((found.glob, found.format.value)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    newest = max((stamp.modified for stamp in found.stamps.values()), default=0)
    size, count = sum(stamp.size for stamp in found.stamps.values()), len(found.stamps)
    return Listed(Kind.FILES, shape, None, size, hash((count, newest)), files=count)


def _table(name: str, found: _Found) -> SourceTable:
    return SourceTable(name, Kind.FILES, _COLUMNS, span=0, glob=found.glob, format=found.format.value)
