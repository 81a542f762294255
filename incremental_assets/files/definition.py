"""Defines a folder of files as a datastore: its settings, its containers, and the source that the catalog operation asks.

Belongs here: the settings of a folder, and how glob patterns and groups of similar files become containers. Does not belong: listing a
folder (``files.listing``), deciding which files are due (``core.files``), or parsing YAML (``dagster.components.files``).
"""

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from incremental_assets.catalog.definition import KEEP_DAYS, MAX_RUNTIME_SECONDS, CatalogSettings
from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.state import Catalog, Presence
from incremental_assets.core.container import Container, ContainerOptions, Identifier, Kind, Partitioning, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.evidence import ListedContainer, TableEvidence
from incremental_assets.core.file_groups import group_files
from incremental_assets.core.files import FILE, MODIFIED, FileFormat, FileStamp, Limits, format_of
from incremental_assets.core.globs import fixed_part, owner_of
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import nearest
from incremental_assets.core.rules.checks import check_rules
from incremental_assets.files.listing import FolderAddress, OnTrouble

_COLUMNS = (SourceColumn(FILE.name, "text", "text", True), SourceColumn(MODIFIED.name, "timestamp with time zone", "file time", True))
"""The columns that every container of files has. All others are known only once a file has been read."""


@dataclass(frozen=True)
class FileOptions:
    """The settings of one container in the YAML.

    ``glob``, ``format``: None where the catalog operation determines them. ``read``: the options of Spark's reader for the format.
    ``types``: the Spark type by column name. ``prune``: whether the rows of files that are no longer in the folder are deleted; None: as
    the datastore says. ``max_file_bytes``, ``max_line_bytes``, ``max_columns``: see ``core.files.Limits``; None: as the datastore says.
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
    """The settings of a whole folder in the YAML.

    ``settle_seconds``: a file that was modified less than this ago may still be written and is not read yet. ``sensor_seconds``: the
    interval between two ticks of the folder's sensors. ``max_files_per_run``: the largest number of files that one run of
    a tick or of the command line reads. ``prune_files``: whether the rows of files that are no longer in the folder are deleted.
    ``schedule``, ``maintenance``: cron expressions; None: none. ``keep_days``: how many days the history of runs and scans is kept; None:
    for ever. ``options``: the settings by name of the container. ``exclude``: patterns of container names that are not synced.
    """

    name: str
    address: FolderAddress
    settle_seconds: float = 5.0
    sensor_seconds: int = 30
    max_files_per_run: int = 1000
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
        """Whether the YAML declares the containers by their glob patterns. Otherwise the catalog operation searches the folder for them."""
        return any(options.glob is not None for options in self.options.values())

    @property
    def named(self) -> frozenset[str]:
        return frozenset(self.options)

    def is_excluded(self, table: str) -> bool:
        return any(fnmatch.fnmatchcase(table, pattern) for pattern in self.exclude)


@dataclass(frozen=True)
class FileDefinition:
    """The ``ContainerDefinition`` of one container of files.

    ``missing_since``: when the catalog operation found no file of it any more (ISO 8601, UTC); None: it is not missing. ``patterns``: the
    patterns of all containers of the folder. A file belongs to one container only, so each needs to know the patterns of the others.
    """

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
        """Always None: there is no identifier to be copied into the YAML."""
        return None

    @property
    def is_specified(self) -> bool:
        """Always true: the incremental identifier of files is their modification time, and nothing else can be chosen."""
        return True

    @property
    def is_detected(self) -> bool:
        """Always false: the identifier is not detected."""
        return False

    @property
    def options(self) -> FileOptions:
        """The container's own settings in the YAML; all defaults where the YAML does not name it."""
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
        """Whether the rows of files that are no longer in the folder are deleted: as the container says, else as the datastore says."""
        own = self.options.prune
        return self.settings.prune_files if own is None else own

    @cached_property
    def limits(self) -> Limits:
        """The limits of its files: each as the container says, else as the datastore says."""
        own, all_ = self.options, self.settings.limits
        return Limits(own.max_file_bytes or all_.file_bytes, own.max_line_bytes or all_.line_bytes, own.max_columns or all_.columns)

    @cached_property
    def how(self) -> str:
        """A digest of the settings by which the files are read: 16 hexadecimal digits.

        The manifest records it with each file. A file that could not be read is tried again once these settings have changed.
        """
        own = self.options
        said: tuple[object, ...] = (self.format.value, sorted(own.read.items()), sorted(own.types.items()))
        if self.limits != Limits():
            said = (*said, self.limits)
        return hashlib.sha256(repr(said).encode()).hexdigest()[:16]

    def listing(self, on_trouble: OnTrouble) -> Iterator[tuple[str, FileStamp]]:
        """Yields path and stamp of each file that the pattern matches. Raises what ``FolderAddress.list`` raises."""
        return self.settings.address.list("", on_trouble, [self.glob])

    def owns(self, path: str) -> bool:
        """Whether a file that the pattern matches belongs to this container, and not to one with a closer pattern."""
        owner = owner_of(path, self._rivals)
        return owner is None or self._rivals[owner] == self.glob

    @cached_property
    def _rivals(self) -> tuple[str, ...]:
        """The patterns that may match the same files: its own, and those whose fixed folder is the same, above or below.

        The others are left out for speed: ``owns`` is called for each file of a listing.
        """
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
            identifier=Identifier((MODIFIED.name,), IdentifierType.TIMESTAMP, CursorType.TIMESTAMP),
            partitioning=Partitioning(by_file=True),
            strategy=Strategy.APPEND,
            primary_key=(),
            key_is_enforced=False,
            lag=0,
            options=self.options.container,
            bytes=table.bytes,
            comment=table.comment,
        )


def _above(folder: str, other: str) -> bool:
    """Whether ``folder`` is ``other`` itself or one of the folders that contain it; ``""`` is the datastore's own folder."""
    return not folder or other == folder or other.startswith(f"{folder}/")


def file_definitions(settings: FolderSettings, catalog: Catalog) -> list[FileDefinition]:
    """Returns all containers of the folder, in the order of their names.

    Raises ConfigurationError where the YAML names a container that the catalog does not have, or has hidden.
    """
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
    for name, options in settings.options.items():  # a pattern in the YAML takes effect at once, before the next run of the catalog
        if options.glob is not None and not settings.is_excluded(name):
            found = shown[name].table if name in shown else SourceTable(name, Kind.FILES, _COLUMNS, span=0)
            tables[name] = replace(found, glob=options.glob, format=_format(options, options.glob).value), None
    # Hidden and excluded containers keep their patterns: otherwise their files would fall to a container with a wider pattern.
    hidden = [one.table for one in known.values() if one.presence is Presence.HIDDEN or settings.is_excluded(one.table.name)]
    owners = [table for table, since in tables.values() if since is None]  # the files of a missing container may be another's by now
    excluded = [options.glob for name, options in settings.options.items() if settings.is_excluded(name)]
    globs = (*(table.glob for table in (*owners, *hidden)), *excluded)
    patterns = tuple(dict.fromkeys(glob for glob in globs if glob is not None))
    unknown = dict.fromkeys(tables)  # rules are checked without columns, which are known only once files have been read
    for name, options in settings.options.items():
        check_rules(f"{settings.name}/{name}", options.container.checks, None, unknown)
    return [FileDefinition(settings, table, since, patterns) for _, (table, since) in sorted(tables.items()) if table.glob is not None]


def _format(options: FileOptions, glob: str) -> FileFormat:
    return options.format or format_of(glob) or FileFormat.TEXT


# ---------------------------------------------------------------- the source of the catalog operation
@dataclass
class _Found:
    """A container as one listing shows it: its pattern, and the stamp of each of its files by path."""

    glob: str
    format: FileFormat
    stamps: dict[str, FileStamp] = field(default_factory=dict[str, FileStamp])


class FolderCatalog:
    """The ``CatalogSource`` of a folder. It lists the folder once; ``tables`` answers from that listing.

    ``before``: the stored catalog, from which groups of files keep their names; None: there is none. ``troubles``: by path, why a folder
    could not be listed. The containers in such a folder count as unchanged.
    """

    def __init__(self, settings: FolderSettings, before: Catalog | None) -> None:
        self._settings = settings
        self._before = [one.table for one in before.entries] if before is not None else []
        self._found: dict[str, _Found] = {}
        self.troubles: dict[str, str] = {}

    def listing(self) -> Mapping[str, ListedContainer]:
        self.troubles.clear()
        self._found = self._declared() if self._settings.declares else self._searched()
        return {name: _listed(found) for name, found in self._found.items()}

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        return [_table(name, self._found[name]) for name in names]

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """Always empty: files need no proposal."""
        return {}

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """Always None: each file is a partition, whatever its modification time."""
        return None

    def _declared(self) -> dict[str, _Found]:
        """Returns a container for each pattern of the YAML, whether there are such files already or not."""
        found: dict[str, _Found] = {}
        for name, options in self._settings.options.items():
            assert options.glob is not None, "checked with the YAML"
            found[name] = _Found(options.glob, _format(options, options.glob))
        names, patterns = list(found), [one.glob for one in found.values()]
        # Each fixed folder is listed once: one that lies below another is covered by the listing of that.
        roots = {fixed_part(pattern) for pattern in patterns}
        for root in sorted(one for one in roots if not any(_above(other, one) for other in roots - {one})):
            for path, stamp in self._settings.address.list(root, self._note, patterns):
                owner = owner_of(path, patterns)
                assert owner is not None, "only what one of the patterns matches is listed"
                found[names[owner]].stamps[path] = stamp
        return found

    def _searched(self) -> dict[str, _Found]:
        """Lists the whole folder, and returns a container for each group of similar files."""
        stamps = dict(self._settings.address.list("", self._note))
        groups = group_files(stamps, {table.glob: table.name for table in self._before if table.glob is not None})
        said = {name: options.format for name, options in self._settings.options.items() if options.format is not None}
        found = {g.name: _Found(g.pattern, said.get(g.name, g.format), {path: stamps[path] for path in g.files}) for g in groups}
        # Containers in folders that could not be listed stay as they are: that they have no files in this listing says nothing.
        for table in self._before:
            if table.glob is None or table.format is None or table.name in found:
                continue
            folder = fixed_part(table.glob)
            if any(_above(path, folder) or _above(folder, path) for path in self.troubles):
                found[table.name] = _Found(table.glob, FileFormat(table.format))
        return found

    def _note(self, path: str, message: str) -> None:
        self.troubles[path] = message


def _listed(found: _Found) -> ListedContainer:
    """The listing's entry. Its fingerprint covers pattern and format alone, so that new files of a container are no difference."""
    shape = hashlib.sha256(repr((found.glob, found.format.value)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    newest = max((stamp.modified for stamp in found.stamps.values()), default=0)
    size, count = sum(stamp.size for stamp in found.stamps.values()), len(found.stamps)
    # The activity is stored and compared by later processes: Python randomizes the hashes of texts, not those of integers.
    return ListedContainer(Kind.FILES, shape, None, size, hash((count, newest)), files=count)


def _table(name: str, found: _Found) -> SourceTable:
    return SourceTable(name, Kind.FILES, _COLUMNS, span=0, glob=found.glob, format=found.format.value)
