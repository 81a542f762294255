"""``incremental_assets.FileDatastore``: a folder of files as a Dagster component."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import dagster as dg
from dagster.components import ResolvedDefsStateConfig
from pydantic import Field

from incremental_assets.catalog.definition import KEEP_DAYS, MAX_RUNTIME_SECONDS
from incremental_assets.catalog.inspect import CatalogDeclarations, CatalogSource
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.container import ContainerOptions, Engine
from incremental_assets.core.errors import ConfigurationError, Refuse, raise_it
from incremental_assets.core.files import LONGEST_LINE, FileFormat, Limits, format_of
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.dagster.components.audit import AUDIT_RESOLVER, AuditEntry, settings_of_all
from incremental_assets.dagster.components.cron import checked_cron
from incremental_assets.dagster.components.datastore import (
    CATALOG_RESOLVER,
    CatalogEntry,
    DatastoreComponent,
    checked_days,
    freshness_of,
    local_state,
    maintenance_cron,
    run_limit,
)
from incremental_assets.dagster.components.metadata import METADATA_RESOLVER, MetadataEntry, metadata_settings_of
from incremental_assets.dagster.components.quality import (
    SCAN_RESOLVER,
    QualityEntry,
    ScanEntry,
    placed_checks,
    regular_scan,
    rules_of,
    scans_of,
)
from incremental_assets.dagster.sensors import unclaimed_sensor
from incremental_assets.delta.folders import RESERVED
from incremental_assets.files.definition import FileDefinition, FileOptions, FolderSettings, file_definitions
from incremental_assets.files.folder_catalog import FolderCatalog
from incremental_assets.files.listing import FolderAddress
from incremental_assets.project.folders import current_project


class FoldersEntry(dg.Model):
    """The attribute ``partition_by`` of an entry of ``containers:``: which column of the files' folders their partitions are values of."""

    column: str = Field(description="a column that folders name (month=01)")


class FilesEntry(QualityEntry):
    """One entry of ``containers:``: which files are a container, and how they are read."""

    glob: str | None = Field(default=None, description="path below the folder; * and ? within a part, ** over any folders, [...] one of")
    format: Literal["csv", "tsv", "json", "parquet", "avro", "text"] | None = Field(default=None, description="default: by the extension")
    options: dict[str, str | int | float | bool | list[str | int | float | bool]] = Field(
        default_factory=dict, description="how files are read: header, sep, encoding, skip_lines, decimal, …"
    )
    columns: dict[str, str] = Field(default_factory=dict, description="types of columns, as Spark calls them; others are inferred")
    partition_by: FoldersEntry | None = Field(default=None, description="the column of folders of the partitions; default: by file")
    schedule: str | None = Field(default=None, description="cron; runs by default, and the sensor then does not")
    prune_files: bool | None = Field(default=None, description="rows of files that are gone go too; default: as the datastore says")
    finer_times: Literal["refuse", "cut"] | None = Field(
        default=None, description="what becomes of times with more than microseconds; default: as the datastore says"
    )
    max_file_bytes: int | None = Field(default=None, description="a larger file, stored or unpacked, is refused; default: the datastore's")
    max_line_bytes: int | None = Field(default=None, description="a file with a longer line is refused; default: the datastore's")
    max_columns: int | None = Field(default=None, description="a file that brings more is refused; default: the datastore's")
    audit: AuditEntry | None = Field(default=None, description="regular audits, instead of those of the datastore")
    metadata: MetadataEntry | None = Field(default=None, description="documents after syncs, instead of those of the datastore")
    engine: Engine | None = Field(
        default=None, description="who reads files and writes rows: auto, spark or arrow; default: the datastore's"
    )
    deletion_vectors: bool | Literal["auto"] = Field(
        default="auto", description="whether rows are marked as deleted in their files, which some readers do not understand"
    )
    max_runtime_seconds: int | None = Field(default=None, description="what a run may take; default: as the datastore says")
    freshness: str | None = Field(
        default=None, description="Dagster's freshness policy fails where nothing was written for so long, such as 36 hours; default: none"
    )
    owners: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)


def _entries(context: dg.ResolutionContext, value: Mapping[str, FilesEntry]) -> dict[str, FilesEntry]:
    """Resolves templates inside the entries of ``containers:``, and adds to each rule its place in the file."""
    return {
        name: FilesEntry(
            # The rules are resolved apart, by `placed_checks`: Dagster's templates would turn a pattern such as [0-9] into a list.
            **context.resolve_value(entry.model_dump(mode="json", exclude={"checks"})),
            checks=placed_checks(context, name, entry),
        )
        for name, entry in value.items()
    }


@dataclass
class FileDatastore(DatastoreComponent, dg.Resolvable):
    """A folder, local, in a store or behind any fsspec URL, whose files are kept in step as Delta tables, one partition for each file.

    The attributes are those of ``defs.yaml``; docs/configuration.md describes them.
    """

    stand_ins: ClassVar[Mapping[str, str]] = {"path": "nowhere"}
    name: Annotated[str, dg.Resolver.default(description="Asset key prefix, and folder in the lake.", examples=["landing"])]
    path: Annotated[
        str,
        dg.Resolver.default(
            description="a local folder, one in a store (s3://, gs://, az://), or any fsspec URL",
            examples=["{{ env.LANDING_PATH }}"],
        ),
    ]
    containers: Annotated[
        Mapping[str, FilesEntry],
        dg.Resolver(_entries, model_field_type=dict[str, FilesEntry]),  # pyright: ignore[reportArgumentType]
    ] = field(default_factory=dict)
    exclude: Sequence[str] = field(default_factory=list)
    settle_seconds: float = 5.0
    sensor_seconds: int = 30
    max_files_per_run: int = 1000
    files_a_tick: int | None = None  # the name of max_files_per_run before it had this one
    prune_files: bool = False
    finer_times: Annotated[
        Literal["refuse", "cut"],
        dg.Resolver.default(description="what becomes of times with more than microseconds, which Parquet may have"),
    ] = "refuse"
    max_file_bytes: int = Limits.file_bytes
    max_line_bytes: int = Limits.line_bytes
    max_columns: int = Limits.columns
    engine: Literal["auto", "spark", "arrow"] = "auto"
    schedule: str | None = None
    max_runtime_seconds: int = MAX_RUNTIME_SECONDS
    maintenance: str | None = "daily"
    keep_days: int | None = KEEP_DAYS
    audit: Annotated[AuditEntry | None, AUDIT_RESOLVER] = None
    scan: Annotated[ScanEntry | None, SCAN_RESOLVER] = None
    profile: Annotated[ScanEntry | None, SCAN_RESOLVER] = None
    metadata: Annotated[MetadataEntry | None, METADATA_RESOLVER] = None
    catalog: Annotated[CatalogEntry, CATALOG_RESOLVER] = field(default_factory=CatalogEntry)
    defs_state: ResolvedDefsStateConfig = field(default_factory=local_state)

    # ------------------------------------------------------------------ for the catalog operation
    @property
    def ui_kind(self) -> str:
        """Dagster's kind of the catalog's asset, for its icon."""
        return "file"

    @contextlib.contextmanager
    def source(self, before: Catalog | None) -> Iterator[CatalogSource]:
        """The folder as the catalog operation uses it. ``before``: the stored catalog, None where there is none."""
        yield FolderCatalog(self.settings(), before)

    def notes(self, source: CatalogSource) -> Sequence[str]:
        assert isinstance(source, FolderCatalog)
        return (*(() if source.unread is None else (source.unread,)), *source.proposed)

    def declarations(self) -> CatalogDeclarations:
        """The parts of the YAML that the catalog operation needs."""
        settings = self.settings()
        return CatalogDeclarations(named=settings.named, excluded=settings.is_excluded)

    def definitions(self, catalog: Catalog, refuse: Refuse = raise_it) -> list[FileDefinition]:
        """The containers of the catalog. ``refuse`` is called with a ConfigurationError where the YAML does not fit it."""
        return file_definitions(self.settings(), catalog, refuse)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """The definitions of the datastore.

        Where the YAML gives no globs, the catalog operation searches the folder for containers. The definitions then include a sensor that
        runs it when files come that belong to no container yet.
        """
        built, settings = super().build_defs_from_state(context, state_path), self.settings()
        if state_path is None or settings.declares:
            return built
        patterns = [one.table.glob for one in Catalog.load(state_path).entries if one.table.glob is not None]
        return dg.Definitions.merge(built, dg.Definitions(sensors=[unclaimed_sensor(settings, patterns)]))

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> FolderSettings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong."""
        self.expect_name()
        self.read_numbers()
        if self.settle_seconds < 0:
            raise ConfigurationError(f"{self.name}: settle_seconds is {self.settle_seconds}; it cannot be negative.")
        if self.files_a_tick is not None and self.max_files_per_run != 1000:
            raise ConfigurationError(f"{self.name}: files_a_tick is the old name of max_files_per_run; leave it out.")
        per_run = ("max_files_per_run", self.max_files_per_run) if self.files_a_tick is None else ("files_a_tick", self.files_a_tick)
        for what, number in (per_run, ("sensor_seconds", self.sensor_seconds)):
            if number < 1:
                raise ConfigurationError(f"{self.name}: {what} is {number}; it is at least 1.")
        limits = _limits(self.name, Limits(), self.max_file_bytes, self.max_line_bytes, self.max_columns)
        container = ContainerOptions(engine=Engine(self.engine))
        defaults = FileOptions(prune=self.prune_files, cuts_times=self.finer_times == "cut", limits=limits, container=container)
        without = [name for name, entry in self.containers.items() if entry.glob is None]
        if without and len(without) < len(self.containers):
            raise ConfigurationError(
                f"{self.name}/{without[0]}: it has no glob, and others have one. Give all containers a glob, or none: then the folder is "
                f"searched, and the entries say more of what is found."
            )
        globs = {entry.glob: name for name, entry in self.containers.items()}
        for name, entry in self.containers.items():
            if entry.glob is not None and globs[entry.glob] != name:
                raise ConfigurationError(f"{self.name}: {name!r} and {globs[entry.glob]!r} have the same glob; a file is of one container.")
        return FolderSettings(
            name=self.name,
            address=FolderAddress.parse(self.name, _of_the_project(self.path)),
            settle_seconds=self.settle_seconds,
            sensor_seconds=self.sensor_seconds,
            max_files_per_run=per_run[1],
            schedule=checked_cron(self.name, "schedule", self.schedule),
            max_runtime_seconds=run_limit(self.name, self.max_runtime_seconds),
            maintenance=maintenance_cron(self.name, self.maintenance),
            keep_days=checked_days(self.name, self.keep_days),
            audit=settings_of_all(self.name, self.audit),
            scan=regular_scan(self.name, "scan", self.scan),
            profile=regular_scan(self.name, "profile", self.profile),
            metadata=metadata_settings_of(self.metadata),
            options={name: _options(self.name, name, entry, defaults) for name, entry in self.containers.items()},
            defaults=defaults,
            exclude=tuple(self.exclude),
            catalog=self.catalog.settings(self.name),
        )


def _limits(label: str, default: Limits, file_bytes: int | None, line_bytes: int | None, columns: int | None) -> Limits:
    """The limits of a file in bytes, of a line in bytes, and of columns; None means that of ``default``. Raises ConfigurationError."""
    for what, number in (("max_file_bytes", file_bytes), ("max_line_bytes", line_bytes), ("max_columns", columns)):
        if number is not None and number < 1:
            raise ConfigurationError(f"{label}: {what} is {number}; it is at least 1.")
    if line_bytes is not None and line_bytes > LONGEST_LINE:
        raise ConfigurationError(f"{label}: max_line_bytes is {line_bytes}; Spark keeps no text of more than {LONGEST_LINE} bytes.")
    return Limits(file_bytes or default.file_bytes, line_bytes or default.line_bytes, columns or default.columns)


def _of_the_project(path: str) -> str:
    """A relative path is relative to the project, whatever the working directory is. URLs and absolute paths stay as they are."""
    relative = bool(path and path.strip()) and "://" not in path and not os.path.isabs(os.path.expanduser(path))
    return str(current_project() / path) if relative else path


def _option_text(value: str | int | float | bool | list[str | int | float | bool]) -> str:
    if isinstance(value, list):
        return json.dumps([_option_text(one) for one in value])
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(datastore: str, name: str, entry: FilesEntry, defaults: FileOptions) -> FileOptions:
    """The options of one entry of ``containers:``; ``defaults``: what holds where it says nothing. Raises ConfigurationError."""
    label = f"{datastore}/{name}"
    if name in RESERVED:
        raise ConfigurationError(f"{label}: this name is the product's own; choose another.")
    scans = scans_of(label, entry)
    limits = _limits(label, defaults.limits, entry.max_file_bytes, entry.max_line_bytes, entry.max_columns)
    glob, found = entry.glob, None
    if glob is not None:
        if not glob.strip() or glob.startswith("/") or glob.endswith("/") or ".." in glob.split("/"):
            raise ConfigurationError(f"{label}: glob {glob!r} is no path below the folder; write it without a leading /, and without '..'.")
        found = format_of(glob)
        if entry.format is None and found is None:
            raise ConfigurationError(f"{label}: what {glob!r} matches cannot be told by its extension; say its format.")
    types, folders = dict(entry.columns), None
    if entry.partition_by is not None:
        by = entry.partition_by.column
        folders = FolderColumn.declared(label, by, next((types[name] for name in types if name.lower() == by.lower()), None))
        types = {**{name: type_ for name, type_ in types.items() if name.lower() != by.lower()}, by: folders.type}
    return FileOptions(
        glob=glob,
        format=FileFormat(entry.format) if entry.format else found,
        read={key: _option_text(value) for key, value in entry.options.items()},
        types=types,
        prune=defaults.prune if entry.prune_files is None else entry.prune_files,
        cuts_times=defaults.cuts_times if entry.finer_times is None else entry.finer_times == "cut",
        folders=folders,
        limits=limits,
        container=ContainerOptions(
            schedule=checked_cron(label, "schedule", entry.schedule),
            engine=entry.engine or defaults.container.engine,
            deletion_vectors=None if entry.deletion_vectors == "auto" else entry.deletion_vectors,
            freshness=freshness_of(label, entry.freshness),
            owners=tuple(entry.owners),
            tags=entry.tags,
            checks=rules_of(label, entry),
            auto_resolve=entry.auto_resolve,
            max_runtime_seconds=run_limit(label, entry.max_runtime_seconds),
            samples=entry.samples,
            audit=None if entry.audit is None else entry.audit.settings(label),
            scan=scans["scan"],
            profile=scans["profile"],
            metadata=metadata_settings_of(entry.metadata),
        ),
    )
