"""Defines a folder of files as a datastore: its settings and its containers."""

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from incremental_assets.catalog.definition import KEEP_DAYS, MAX_RUNTIME_SECONDS, CatalogSettings
from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.core.container import (
    AuditSettings,
    Container,
    ContainerOptions,
    Engine,
    Identifier,
    Kind,
    Partitioning,
    RegularScan,
    SourceColumn,
    SourceTable,
)
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConfigurationError, Refuse, raise_it, refused_to
from incremental_assets.core.files import FILE, MODIFIED, FileFormat, FileStamp, Limits, format_of
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.core.globs import fixed_part, matches, rank
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.metadata_documents import MetadataSettings
from incremental_assets.core.names import nearest
from incremental_assets.core.rules.checks import check_rules
from incremental_assets.files.listing import FolderAddress
from incremental_assets.files.readers.reading import Reading

COLUMNS = (SourceColumn(FILE.name, "text", "text", True), SourceColumn(MODIFIED.name, "timestamp with time zone", "file time", True))
"""The columns that every container of files has. All others are known only once a file has been read."""


@dataclass(frozen=True)
class FileOptions:
    """The settings of one container in the YAML.

    ``glob``, ``format``: None where the catalog operation determines them. ``read``: the options of Spark's reader for the format.
    ``types``: the Spark type by column name. ``prune``: whether the rows of files that are gone are deleted. ``cuts_times``: whether digits
    of a time below the microsecond are left out. ``folders``: the column of folders by which it is partitioned; None: by file.
    """

    glob: str | None = None
    format: FileFormat | None = None
    read: Mapping[str, str] = field(default_factory=dict[str, str])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    prune: bool = False
    cuts_times: bool = False
    folders: FolderColumn | None = None
    limits: Limits = field(default_factory=Limits)
    container: ContainerOptions = field(default_factory=ContainerOptions)


@dataclass(frozen=True)
class FolderSettings:
    """The settings of a whole folder in the YAML.

    ``settle_seconds``: a file that was modified less than this ago may still be written and is not read yet. ``sensor_seconds``: the
    interval between two ticks of the folder's sensors. ``max_files_per_run``: the largest number of files that one run of
    a tick or of the command line reads. ``schedule``, ``maintenance``: cron expressions; None: none. ``keep_days``: how many days the
    history of runs and scans is kept; None: for ever. ``options``: the settings by name of the container; ``defaults``: those of all other
    containers. ``exclude``: patterns of container names that are not synced.
    """

    name: str
    address: FolderAddress
    settle_seconds: float = 5.0
    sensor_seconds: int = 30
    max_files_per_run: int = 1000
    schedule: str | None = None
    maintenance: str | None = None
    max_runtime_seconds: int = MAX_RUNTIME_SECONDS
    keep_days: int | None = KEEP_DAYS
    audit: AuditSettings | None = None
    scan: RegularScan | None = None
    profile: RegularScan | None = None
    metadata: MetadataSettings | None = None
    options: Mapping[str, FileOptions] = field(default_factory=dict[str, FileOptions])
    defaults: FileOptions = field(default_factory=FileOptions)
    exclude: tuple[str, ...] = ()
    catalog: CatalogSettings = field(default_factory=CatalogSettings)

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
        """The container's own settings in the YAML; those of the datastore where the YAML does not name it."""
        return self.settings.options.get(self.table.name, self.settings.defaults)

    @property
    def glob(self) -> str:
        assert self.table.glob is not None
        return self.table.glob

    @property
    def format(self) -> FileFormat:
        assert self.table.format is not None
        return FileFormat(self.table.format)

    @property
    def reading(self) -> Reading:
        """How its files are read. Raises ConfigurationError for an option that must not be set."""
        own = self.options
        folders = None if own.folders is None else own.folders.name
        return Reading(
            self.format, own.read, own.types, own.limits, own.cuts_times, folders=folders, engine=own.container.engine or Engine.AUTO
        )

    @property
    def folders(self) -> FolderColumn | None:
        """The column of folders by which it is partitioned; None where each file is a partition."""
        return self.options.folders

    def partition_of(self, file: str) -> str:
        """The key of the partition of the file with this key."""
        return file if self.folders is None else self.folders.partition_of(file)

    @cached_property
    def how(self) -> str:
        """A digest of the settings by which the files are read: 16 hexadecimal digits.

        The manifest records it with each file. A file that could not be read is tried again once these settings have changed.
        """
        own = self.options
        settings: tuple[object, ...] = (self.format.value, sorted(own.read.items()), sorted(own.types.items()))
        if own.limits != Limits():
            settings = (*settings, own.limits)
        if own.cuts_times:
            settings = (*settings, "finer_times: cut")
        return hashlib.sha256(repr(settings).encode()).hexdigest()[:16]

    def listing(self, unseen: dict[str, str]) -> Iterator[tuple[str, FileStamp]]:
        """Yields path and stamp of each file that the pattern matches. ``unseen`` and what is raised: see ``FolderAddress.list``."""
        return self.settings.address.list("", unseen, [self.glob])

    def owns(self, path: str) -> bool:
        """Whether a file that the pattern matches belongs to this container, and not to one with a closer pattern."""
        return not (self._closer and any(matches(pattern, path) for pattern in self._closer))

    @cached_property
    def _closer(self) -> tuple[str, ...]:
        """The patterns of other containers that take precedence over its own (``globs.rank``), and may match the same files.

        A pattern may do so whose fixed folder is the same, above or below. The others are left out for speed: ``owns`` is called for each
        file of a listing. A container that is missing has no pattern of its own any more, so that all others take precedence.
        """
        own, here, missing = rank(self.glob), fixed_part(self.glob), self.glob not in self.patterns
        near = (p for p in self.patterns if is_above(fixed_part(p), here) or is_above(here, fixed_part(p)))
        return tuple(pattern for pattern in near if pattern != self.glob and (missing or rank(pattern) > own))

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
            partitioning=Partitioning(by_file=True, folders=self.folders),
            strategy=Strategy.APPEND,
            primary_key=(),
            key_is_enforced=False,
            lag=0,
            options=self.options.container,
            bytes=table.bytes,
            comment=table.comment,
        )


def is_above(folder: str, other: str) -> bool:
    """Whether ``folder`` is ``other`` itself or one of the folders that contain it; ``""`` is the datastore's own folder."""
    return not folder or other == folder or other.startswith(f"{folder}/")


def file_definitions(settings: FolderSettings, catalog: Catalog, refuse: Refuse = raise_it) -> list[FileDefinition]:
    """Returns all containers of the folder, in the order of their names.

    ``refuse`` is called with a ConfigurationError where the YAML names a container that the catalog does not have, or has hidden, and where
    a rule cannot be right.
    """
    known = catalog.by_name
    for name, options in settings.options.items():
        if not settings.is_excluded(name):
            with refused_to(refuse):
                _expect(settings, name, options, known)
    shown = {name: one for name, one in known.items() if one.presence is not Presence.HIDDEN and not settings.is_excluded(name)}
    tables = {name: (one.table, one.since if one.presence is Presence.MISSING else None) for name, one in shown.items()}
    for name, options in settings.options.items():  # a pattern in the YAML takes effect at once, before the next run of the catalog
        if options.glob is not None and not settings.is_excluded(name):
            found = shown[name].table if name in shown else SourceTable(name, Kind.FILES, COLUMNS, span=0)
            tables[name] = replace(found, glob=options.glob, format=format_for(options, options.glob).value), None
    # Hidden and excluded containers keep their patterns: otherwise their files would fall to a container with a wider pattern.
    hidden = [one.table for one in known.values() if one.presence is Presence.HIDDEN or settings.is_excluded(one.table.name)]
    owners = [table for table, since in tables.values() if since is None]  # the files of a missing container may be another's by now
    excluded = [options.glob for name, options in settings.options.items() if settings.is_excluded(name)]
    globs = (*(table.glob for table in (*owners, *hidden)), *excluded)
    patterns = tuple(dict.fromkeys(glob for glob in globs if glob is not None))
    unknown = dict.fromkeys(tables)  # rules are checked without columns, which are known only once files have been read
    for name, options in settings.options.items():
        with refused_to(refuse):
            check_rules(f"{settings.name}/{name}", options.container.checks, None, unknown)
    return [FileDefinition(settings, table, since, patterns) for _, (table, since) in sorted(tables.items()) if table.glob is not None]


def _expect(settings: FolderSettings, name: str, options: FileOptions, known: Mapping[str, Known]) -> None:
    """Raises ConfigurationError, with the reason, if what the YAML names under ``containers`` is none."""
    one = known.get(name)
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


def format_for(options: FileOptions, glob: str) -> FileFormat:
    """The format of the files of a pattern in the YAML: as the YAML says, else by the pattern's extension."""
    return options.format or format_of(glob) or FileFormat.TEXT
