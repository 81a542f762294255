"""Defines what the components of all kinds of databases share: ``incremental:`` and ``containers:`` of the YAML, and their conversion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import dagster as dg
from dagster.components import ResolvedDefsStateConfig
from pydantic import Field

from incremental_assets.catalog.definition import KEEP_DAYS, MAX_RUNTIME_SECONDS
from incremental_assets.catalog.inspect import CatalogDeclarations
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.capture import Capture
from incremental_assets.core.container import (
    Arrays,
    ContainerOptions,
    Engine,
    HoldBack,
    Inherited,
    OnNewTable,
    OnNull,
    RowSecurity,
    WhenRecreated,
)
from incremental_assets.core.deletes import EVERY_SECONDS, MOST_SHARE, Deletes
from incremental_assets.core.errors import ConfigurationError, Refuse, raise_it
from incremental_assets.core.grammar import IncrementalSpec, PartitionColumn, parse_incremental, parse_strategy, parse_type
from incremental_assets.core.zones import expect_zone
from incremental_assets.dagster.components.audit import AUDIT_RESOLVER, AuditEntry, settings_of_all
from incremental_assets.dagster.components.cron import checked_cron
from incremental_assets.dagster.components.datastore import (
    CATALOG_RESOLVER,
    CatalogEntry,
    DatastoreComponent,
    checked_days,
    checked_duration,
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
from incremental_assets.databases.definition import DatastoreSettings, TableDefinition, definitions_of
from incremental_assets.databases.limits import Limits

_MOST_SECONDS = 7 * 24 * 3600
"""The largest time limit in seconds, a week. PostgreSQL counts such times in milliseconds, in 31 bits, which are 24 days."""


class PartitionEntry(dg.Model):
    """The attribute ``partition_by`` of an entry of ``incremental:``: partitioned by one column, tracked by another."""

    column: str = Field(description="a date, timestamp or integer column")
    every: str | int | None = Field(default=None, description="hour, day, week, month; a width or 'batch' for integers")


class IncrementalEntry(dg.Model):
    """One entry of ``incremental:`` as a mapping, for names that the short grammar cannot express, and for an identifier of two columns."""

    table: str = Field(description="schema.table, or table")
    column: str | list[str] = Field(description="the identifier; two columns of one type: the greater of them")
    type: str = Field(description="date, datetime, timestamp or integer")
    start: str | int | None = Field(default=None, description="inclusive; lower values are never synced")
    strategy: str = Field(default="append", description="append or upsert")
    exclude: bool = Field(default=False, description="synced whole each time instead")
    partition_by: PartitionEntry | None = Field(default=None, description="the column of the partitions; default: the identifier")


class ContainerEntry(QualityEntry):
    """One entry of ``containers:``: the options of a container that the grammar of ``incremental:`` cannot express."""

    partition_by: str | int | None = Field(default=None, description="hour, day, week, month; a width or 'batch' for integers")
    schedule: str | None = Field(default=None, description="cron; runs by default")
    safety_lag: int | Literal["auto"] | None = Field(
        default=None, description="seconds for time (whole days for dates), values for integers; auto: by who makes the values"
    )
    timezone: str | None = Field(default=None, description="the zone of dates and times without zone; default: as the datastore says")
    primary_key: list[str] = Field(default_factory=list, description="where the source declares none, or another is meant")
    on_null: OnNull = Field(default=OnNull.INCLUDE, description="rows without identifier: include, exclude or error")
    exclude_columns: list[str] = Field(default_factory=list)
    text_columns: list[str] = Field(default_factory=list, description="carried as the source's own text")
    binary_columns: list[str] = Field(
        default_factory=list, description="texts carried as the bytes that the source has; of PostgreSQL only"
    )
    arrays: Arrays = Field(default=Arrays.TEXT, description="text, or list: as arrays of the lake; of PostgreSQL only")
    readers: int | None = Field(default=None, description="parallel reads of the source")
    engine: Engine | None = Field(default=None, description="who reads and writes rows: auto, spark or arrow; default: the datastore's")
    deletion_vectors: bool | Literal["auto"] = Field(
        default="auto", description="whether rows are marked as deleted in their files, which some readers do not understand"
    )
    cluster: bool = Field(default=False, description="CLUSTER BY the identifier")
    hold_back: HoldBack = Field(default=HoldBack.ALL, description="which open transactions hold the watermark: all, or writers")
    hold_back_warning_seconds: int = 3600
    where: str | None = Field(default=None, description="SQL of the source; rows that do not match are not synced")
    identifiers: Literal["auto", "yaml"] | None = Field(default=None, description="auto: as the catalog detected it, where it is sure")
    max_runtime_seconds: int | None = Field(default=None, description="what a run may take; default: as the datastore says")
    audit: AuditEntry | None = Field(default=None, description="regular audits, instead of those of the datastore")
    metadata: MetadataEntry | None = Field(default=None, description="documents after syncs, instead of those of the datastore")
    deletes: Deletes | None = Field(default=None, description="of rows that the source has deleted: sweep, soft (marks them), or keep")
    deletes_every: str | None = Field(default=None, description="from one sweep to the next, such as 36 hours; default: 1 day")
    max_deleted_share: float | None = Field(default=None, description="a sweep that would delete more is refused; default: 0.05")
    capture: Capture | None = Field(default=None, description="log: follows the source's log; none; default: as the datastore says")
    row_security: RowSecurity | None = Field(
        default=None, description="rows that policies hide: refuse, or accept; default: as the datastore"
    )
    when_recreated: WhenRecreated | None = Field(
        default=None, description="the table was dropped and created anew: refuse, reload or adopt; default: as the datastore"
    )
    every: str | None = Field(default=None, description="from one read of what is read whole to the next; default: each sync")
    inherited: Inherited | None = Field(default=None, description="a table that others inherit from: only its own rows, or include theirs")
    freshness: str | None = Field(
        default=None, description="Dagster's freshness policy fails where nothing was written for so long, such as 36 hours; default: none"
    )
    owners: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)


def _entries(context: dg.ResolutionContext, value: Sequence[str | IncrementalEntry]) -> list[str | IncrementalEntry]:
    """Resolves templates such as ``{{ env.X }}`` inside the entries of ``incremental:`` too."""
    return [
        str(context.resolve_value(entry))
        if isinstance(entry, str)
        else IncrementalEntry(**context.resolve_value(entry.model_dump(mode="json")))
        for entry in value
    ]


def _containers(context: dg.ResolutionContext, value: Mapping[str, ContainerEntry]) -> dict[str, ContainerEntry]:
    """Resolves templates inside the entries of ``containers:``, and adds to each rule its place in the file."""
    return {
        name: ContainerEntry(
            # The rules are resolved apart, by `placed_checks`: Dagster's templates would turn a pattern such as [0-9] into a list.
            **context.resolve_value(entry.model_dump(mode="json", exclude={"checks"})),
            checks=placed_checks(context, name, entry),
        )
        for name, entry in value.items()
    }


@dataclass
class TableDatastore(DatastoreComponent):
    """The base class of the components whose containers are tables and views of a database.

    The attributes are those of ``defs.yaml``; docs/configuration.md describes them.
    """

    name: Annotated[str, dg.Resolver.default(description="Asset key prefix, and folder in the lake.", examples=["shop"])]
    safety_lag_seconds: int | Literal["auto"] = "auto"
    settle_seconds: float = 2.0
    watermark_margin_seconds: float = 1.0
    load_rows: int = 20_000_000
    max_snapshot_seconds: int = 3600
    max_blocking_seconds: int = 30
    max_silence_seconds: int = 600
    timezone: str | None = None
    schedule: str | None = None
    max_runtime_seconds: int = MAX_RUNTIME_SECONDS
    maintenance: str | None = "daily"
    keep_days: int | None = KEEP_DAYS
    audit: Annotated[AuditEntry | None, AUDIT_RESOLVER] = None
    scan: Annotated[ScanEntry | None, SCAN_RESOLVER] = None
    profile: Annotated[ScanEntry | None, SCAN_RESOLVER] = None
    metadata: Annotated[MetadataEntry | None, METADATA_RESOLVER] = None
    incremental: Annotated[
        Sequence[str | IncrementalEntry],
        dg.Resolver(_entries, model_field_type=list[str | IncrementalEntry]),  # pyright: ignore[reportArgumentType]
    ] = field(default_factory=list)
    containers: Annotated[
        Mapping[str, ContainerEntry],
        dg.Resolver(_containers, model_field_type=dict[str, ContainerEntry]),  # pyright: ignore[reportArgumentType]
    ] = field(default_factory=dict)
    only: Sequence[str] = field(default_factory=list)
    exclude: Sequence[str] = field(default_factory=list)
    identifiers: Literal["auto", "yaml"] = "yaml"
    when_recreated: Literal["refuse", "reload", "adopt"] = "refuse"
    engine: Literal["auto", "spark", "arrow"] = "auto"
    on_new_table: Literal["announce", "load", "load_all"] = "announce"
    catalog: Annotated[CatalogEntry, CATALOG_RESOLVER] = field(default_factory=CatalogEntry)
    defs_state: ResolvedDefsStateConfig = field(default_factory=local_state)

    # ------------------------------------------------------------------ for the catalog operation
    def declarations(self) -> CatalogDeclarations:
        """The parts of the YAML that the catalog operation needs."""
        settings = self.settings()
        return CatalogDeclarations(
            settings.specs,
            settings.named,
            settings.is_excluded,
            settings.is_auto,
            settings.catalog.kinds,
            settings.on_new_table,
            settings.schema,
        )

    def definitions(self, catalog: Catalog, refuse: Refuse = raise_it) -> list[TableDefinition]:
        """The containers of the catalog. ``refuse`` is called with a ConfigurationError where the YAML does not fit it."""
        return definitions_of(self.settings(), catalog, refuse)

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> DatastoreSettings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong."""
        raise NotImplementedError

    def common_settings(self, schema: str) -> dict[str, Any]:
        """The settings that all kinds of databases have. Raises ConfigurationError that names the attribute which is wrong."""
        self.expect_name()
        self.read_numbers()
        expect_zone(self.name, self.timezone)
        lag = 0 if self.safety_lag_seconds == "auto" else self.safety_lag_seconds
        for what, number in (("safety_lag_seconds", lag), ("settle_seconds", self.settle_seconds),
                             ("watermark_margin_seconds", self.watermark_margin_seconds)):  # fmt: skip
            if number < 0:
                raise ConfigurationError(f"{self.name}: {what} is {number}; it cannot be negative.")
        if self.load_rows < 1:
            raise ConfigurationError(f"{self.name}: load_rows is {self.load_rows}; it is at least 1.")
        limits = Limits(self.max_snapshot_seconds, self.max_blocking_seconds, self.max_silence_seconds)
        for what, limit in (("snapshot", limits.snapshot), ("blocking", limits.blocking), ("silence", limits.silence)):
            if not 1 <= limit <= _MOST_SECONDS:
                raise ConfigurationError(
                    f"{self.name}: max_{what}_seconds is {limit}; a sync needs at least 1, and {_MOST_SECONDS} (a week) is the most."
                )
        return {
            "name": self.name,
            "schema": schema,
            "safety_lag_seconds": self.safety_lag_seconds,
            "settle_seconds": self.settle_seconds,
            "watermark_margin_seconds": self.watermark_margin_seconds,
            "load_rows": self.load_rows,
            "limits": limits,
            "timezone": self.timezone,
            "schedule": checked_cron(self.name, "schedule", self.schedule),
            "max_runtime_seconds": run_limit(self.name, self.max_runtime_seconds),
            "maintenance": maintenance_cron(self.name, self.maintenance),
            "keep_days": checked_days(self.name, self.keep_days),
            "audit": settings_of_all(self.name, self.audit),
            "scan": regular_scan(self.name, "scan", self.scan),
            "profile": regular_scan(self.name, "profile", self.profile),
            "metadata": metadata_settings_of(self.metadata),
            "incremental": tuple(_spec(self.name, schema, entry) for entry in self.incremental),
            "options": {table: _options(self.name, table, entry) for table, entry in self.containers.items()},
            "exclude": tuple(self.exclude),
            "only": tuple(self.only),
            "auto_identifiers": self.identifiers == "auto",
            "when_recreated": WhenRecreated(self.when_recreated),
            "engine": Engine(self.engine),
            "on_new_table": OnNewTable(self.on_new_table),
            "catalog": self.catalog.settings(self.name),
        }


def _spec(datastore: str, own_schema: str, entry: str | IncrementalEntry) -> IncrementalSpec:
    """The incremental identifier of one entry of ``incremental:``, text or mapping. ``own_schema``: the datastore's schema."""
    try:
        if isinstance(entry, str):
            return parse_incremental(entry, own_schema)
        # Without this prefix the last dot separates schema and table. With it, the table's name may contain dots.
        own = entry.table.startswith(own_schema + ".")
        schema, table = (own_schema, entry.table[len(own_schema) + 1 :]) if own else entry.table.rpartition(".")[::2]
        columns = (entry.column,) if isinstance(entry.column, str) else tuple(entry.column)
        start = None if entry.start is None else str(entry.start)
        by = None if entry.partition_by is None else PartitionColumn(entry.partition_by.column, entry.partition_by.every)
        strategy = parse_strategy(entry.strategy)
        return IncrementalSpec(schema or None, table, columns, parse_type(entry.type), start, strategy, entry.exclude, by)
    except ConfigurationError as error:
        # The messages of the grammar have the entry themselves.
        of = "" if isinstance(entry, str) else f"/{entry.table.removeprefix(f'{own_schema}.')}: incremental"
        raise ConfigurationError(f"{datastore}{of}: {error}") from error


def _options(datastore: str, table: str, entry: ContainerEntry) -> ContainerOptions:
    """The options of one entry of ``containers:``. ``table``: its name."""
    lag = 0 if entry.safety_lag in (None, "auto") else entry.safety_lag
    if lag < 0 or (entry.readers is not None and entry.readers < 1):
        raise ConfigurationError(f"{datastore}/{table}: safety_lag cannot be negative, and readers is at least 1.")
    expect_zone(f"{datastore}/{table}", entry.timezone)
    run_limit(f"{datastore}/{table}", entry.max_runtime_seconds)
    checked_cron(f"{datastore}/{table}", "schedule", entry.schedule)
    values: dict[str, Any] = {name: getattr(entry, name) for name in ContainerEntry.model_fields}
    values["identifiers"] = None if entry.identifiers is None else entry.identifiers == "auto"
    values["deletion_vectors"] = None if entry.deletion_vectors == "auto" else entry.deletion_vectors
    values["audit"] = None if entry.audit is None else entry.audit.settings(f"{datastore}/{table}")
    values["metadata"] = metadata_settings_of(entry.metadata)
    values |= scans_of(f"{datastore}/{table}", entry)
    values |= _deletes(f"{datastore}/{table}", entry)
    values["freshness"] = freshness_of(f"{datastore}/{table}", entry.freshness)
    values["every"] = checked_duration(f"{datastore}/{table}", "every", entry.every)
    values["checks"] = rules_of(f"{datastore}/{table}", entry)
    frozen: dict[str, Any] = {name: tuple(cast(list[Any], v)) if isinstance(v, list) else v for name, v in values.items()}
    return ContainerOptions(**frozen)


def _deletes(label: str, entry: ContainerEntry) -> dict[str, Any]:
    """The options of one entry that are about deleted rows. ``label``: the container's name, for messages. Raises ConfigurationError."""
    if entry.deletes in (None, Deletes.KEEP) and (entry.deletes_every is not None or entry.max_deleted_share is not None):
        raise ConfigurationError(f"{label}: deletes_every and max_deleted_share belong to deletes: sweep or deletes: soft; add it.")
    every = checked_duration(label, "deletes_every", entry.deletes_every)
    share = MOST_SHARE if entry.max_deleted_share is None else entry.max_deleted_share
    if not 0 <= share <= 1:
        raise ConfigurationError(f"{label}: max_deleted_share is {share:g}; it is a number between 0 and 1: 0.05 means 5 percent.")
    return {"deletes": entry.deletes, "deletes_every": EVERY_SECONDS if every is None else every, "max_deleted_share": share}
