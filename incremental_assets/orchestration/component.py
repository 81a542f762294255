"""``incremental_assets.PostgresDatastore``: a datastore as a Dagster component, its YAML checked word by word.

Belongs here: the schema of ``defs.yaml`` and its translation into ``DatastoreSettings``. Does not belong: what a container needs checked
against its source (``model.container.resolve``). What the catalog found is the component's state, so that the project loads without it.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field

from incremental_assets.catalog.datastore import CatalogSettings, ContainerDefinition, DatastoreSettings, definitions_of
from incremental_assets.catalog.look import Said
from incremental_assets.catalog.operation import Asked, Outcome, take_catalog
from incremental_assets.catalog.state import Catalog
from incremental_assets.model.container import ContainerOptions, HoldBack, OnNull
from incremental_assets.model.errors import ConfigurationError
from incremental_assets.model.grammar import IncrementalSpec, parse_incremental, parse_strategy, parse_type
from incremental_assets.model.names import encode_name
from incremental_assets.orchestration.catalog_asset import catalog_definitions, kinds_of
from incremental_assets.orchestration.catalog_store import CatalogStore
from incremental_assets.orchestration.datastore import datastore_definitions
from incremental_assets.orchestration.project import current_project
from incremental_assets.sources.postgres.catalog import PostgresCatalog
from incremental_assets.sources.postgres.connection import PostgresAddress

# The contract calls it `schema`, which pydantic's base class has a deprecated method of: harmless, and not worth a warning at each load.
warnings.filterwarnings("ignore", message='Field name "schema" in "PostgresDatastoreModel" shadows', category=UserWarning)


class IncrementalEntry(dg.Model):
    """One entry of ``incremental:`` in words, for names that the grammar cannot hold and for two columns."""

    table: str = Field(description="schema.table, or table")
    column: str | list[str] = Field(description="the identifier; two columns of one type: the greater of them")
    type: str = Field(description="date, datetime, timestamp or integer")
    start: str | int | None = Field(default=None, description="inclusive; lower values are never synced")
    strategy: str = Field(default="append", description="append or upsert")
    exclude: bool = Field(default=False, description="synced whole each time instead")


class CatalogEntry(dg.Model):
    """How the catalog operation looks at the datastore."""

    schedule: str | None = Field(default=None, description="cron; runs by default")
    name: str | None = Field(default=None, description="the schedule's, shown with its runs")
    prune: bool = Field(default=False, description="forget containers that are gone from the source; their Delta tables stay")
    recreate: bool = Field(default=False, description="bring back those that `catalog remove` has hidden")
    include: list[Literal["table", "view"]] = Field(default_factory=lambda: ["table", "view"], description="what becomes a container")


class ContainerEntry(dg.Model):
    """What the grammar cannot say of a container."""

    partition_by: str | int | None = Field(default=None, description="hour, day, week, month; a width or 'batch' for integers")
    schedule: str | None = Field(default=None, description="cron; runs by default")
    safety_lag: int | None = Field(default=None, description="seconds for time (whole days for dates), values for integers")
    primary_key: list[str] = Field(default_factory=list, description="where the source declares none, or another is meant")
    on_null: OnNull = Field(default=OnNull.INCLUDE, description="rows without identifier: include, exclude or error")
    exclude_columns: list[str] = Field(default_factory=list)
    text_columns: list[str] = Field(default_factory=list, description="carried as PostgreSQL's own text")
    readers: int | None = Field(default=None, description="parallel reads of the source")
    deletion_vectors: bool = True
    cluster: bool = Field(default=False, description="CLUSTER BY the identifier")
    hold_back: HoldBack = Field(default=HoldBack.ALL, description="which open transactions hold the watermark: all, or writers")
    hold_back_warning_seconds: int = 3600
    where: str | None = Field(default=None, description="SQL of the source; rows that do not match are not synced")
    identifiers: Literal["auto", "yaml"] | None = Field(default=None, description="auto: as the catalog detected it, where it is sure")
    owners: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)


def _entries(context: dg.ResolutionContext, value: Sequence[str | IncrementalEntry]) -> list[str | IncrementalEntry]:
    """Templates such as ``{{ env.X }}`` are filled in inside the entries too."""
    return [
        str(context.resolve_value(entry))
        if isinstance(entry, str)
        else IncrementalEntry(**context.resolve_value(entry.model_dump(mode="json")))
        for entry in value
    ]


def _containers(context: dg.ResolutionContext, value: Mapping[str, ContainerEntry]) -> dict[str, ContainerEntry]:
    return {name: ContainerEntry(**context.resolve_value(entry.model_dump(mode="json"))) for name, entry in value.items()}


@dataclass
class PostgresDatastore(dg.StateBackedComponent, dg.Resolvable):
    """A PostgreSQL schema whose tables and views are kept in step as Delta tables, one partitioned asset each."""

    name: Annotated[str, dg.Resolver.default(description="Asset key prefix, and folder in the lake.", examples=["shop"])]
    url: Annotated[str, dg.Resolver.default(description="postgresql://user:password@host:port/database", examples=["{{ env.SHOP_URL }}"])]
    schema: str = "public"
    safety_lag_seconds: int = 0
    max_source_connections: int = 8
    settle_seconds: float = 2.0
    load_rows: int = 20_000_000
    timezone: str = "UTC"
    schedule: str | None = None
    maintenance: str | None = None
    incremental: Annotated[
        Sequence[str | IncrementalEntry],
        dg.Resolver(_entries, model_field_type=list[str | IncrementalEntry]),  # pyright: ignore[reportArgumentType]
    ] = field(default_factory=list)
    containers: Annotated[
        Mapping[str, ContainerEntry],
        dg.Resolver(_containers, model_field_type=dict[str, ContainerEntry]),  # pyright: ignore[reportArgumentType]
    ] = field(default_factory=dict)
    exclude: Sequence[str] = field(default_factory=list)
    identifiers: Literal["auto", "yaml"] = "yaml"
    catalog: Annotated[
        CatalogEntry,
        dg.Resolver(lambda context, value: CatalogEntry(**context.resolve_value(value.model_dump())), model_field_type=CatalogEntry),
    ] = field(default_factory=CatalogEntry)
    defs_state: ResolvedDefsStateConfig = field(
        default_factory=lambda: DefsStateConfigArgs(
            key=None, management_type=DefsStateConfigArgs.local_filesystem().management_type, refresh_if_dev=False
        )
    )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        return DefsStateConfig.from_args(self.defs_state, default_key=f"PostgresDatastore[{encode_name(self.name)}]")

    # ------------------------------------------------------------------ the catalog, as the component's state
    def take_catalog(
        self, before: Catalog | None, asked: Asked | None = None, progress: Callable[[str], None] = lambda _: None, **kept: Any
    ) -> Outcome:
        """Asks the source what is there, and compares. Raises SourceError or ConfigurationError; ``kept`` as ``operation.take_catalog``."""
        settings = self.settings()
        chosen = asked or Asked(settings.catalog.prune, settings.catalog.recreate, settings.catalog.kinds)
        with settings.address.connect() as connection:
            source = PostgresCatalog(connection, settings.name, settings.schema, settings.address)
            return take_catalog(source, before, chosen, self.said(), progress, **kept)

    def said(self) -> Said:
        """What the YAML says that the operation must know."""
        settings = self.settings()
        return Said(settings.specs, settings.named, settings.is_excluded, settings.is_auto)

    def definitions(self, catalog: Catalog) -> list[ContainerDefinition]:
        """The containers. Raises ConfigurationError where the YAML does not fit what was found."""
        return definitions_of(self.settings(), catalog)

    def store(self, project: Path) -> CatalogStore:
        return CatalogStore(self.defs_state_config, project)

    def write_state_to_path(self, state_path: Path) -> None:
        """For Dagster's own `dg utils refresh-defs-state`."""
        self.take_catalog(self.store(current_project()).load(None)).catalog.save(state_path)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        settings = self.settings()
        known = None if state_path is None else self.definitions(Catalog.load(state_path))
        own = catalog_definitions(self, settings, known)
        return own if known is None else dg.Definitions.merge(own, datastore_definitions(settings, known))

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> DatastoreSettings:
        """Raises ConfigurationError naming what is wrong."""
        if not self.name.strip():
            raise ConfigurationError("a datastore needs a name.")
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError):
            raise ConfigurationError(f"{self.name}: there is no time zone {self.timezone!r}; write one such as Europe/Berlin.") from None
        for what, number in (("safety_lag_seconds", self.safety_lag_seconds), ("settle_seconds", self.settle_seconds)):
            if number < 0:
                raise ConfigurationError(f"{self.name}: {what} is {number}; it cannot be negative.")
        if self.max_source_connections < 2:
            raise ConfigurationError(f"{self.name}: max_source_connections is {self.max_source_connections}; a sync needs at least 2.")
        if not self.catalog.include:
            raise ConfigurationError(f"{self.name}: catalog: include is empty, which leaves no container; it takes table, view, or both.")
        return DatastoreSettings(
            name=self.name,
            address=PostgresAddress.parse(self.name, self.url),
            schema=self.schema,
            safety_lag_seconds=self.safety_lag_seconds,
            max_source_connections=self.max_source_connections,
            settle_seconds=self.settle_seconds,
            load_rows=self.load_rows,
            timezone=self.timezone,
            schedule=self.schedule,
            maintenance=self.maintenance,
            incremental=tuple(_spec(self.name, self.schema, entry) for entry in self.incremental),
            options={table: _options(self.name, table, entry) for table, entry in self.containers.items()},
            exclude=tuple(self.exclude),
            auto_identifiers=self.identifiers == "auto",
            catalog=CatalogSettings(
                self.catalog.schedule, self.catalog.name, self.catalog.prune, self.catalog.recreate, kinds_of(self.catalog.include)
            ),
        )


def _spec(datastore: str, own_schema: str, entry: str | IncrementalEntry) -> IncrementalSpec:
    try:
        if isinstance(entry, str):
            return parse_incremental(entry)
        own = entry.table.startswith(own_schema + ".")  # the rest may have dots of its own
        schema, table = (own_schema, entry.table[len(own_schema) + 1 :]) if own else entry.table.rpartition(".")[::2]
        columns = (entry.column,) if isinstance(entry.column, str) else tuple(entry.column)
        start = None if entry.start is None else str(entry.start)
        return IncrementalSpec(schema or None, table, columns, parse_type(entry.type), start, parse_strategy(entry.strategy), entry.exclude)
    except ConfigurationError as error:
        raise ConfigurationError(f"{datastore}: {error}") from error


def _options(datastore: str, table: str, entry: ContainerEntry) -> ContainerOptions:
    if (entry.safety_lag or 0) < 0 or (entry.readers is not None and entry.readers < 1):
        raise ConfigurationError(f"{datastore}/{table}: safety_lag cannot be negative, and readers is at least 1.")
    values: dict[str, Any] = {name: getattr(entry, name) for name in ContainerEntry.model_fields}
    values["identifiers"] = None if entry.identifiers is None else entry.identifiers == "auto"
    frozen: dict[str, Any] = {name: tuple(cast(list[Any], v)) if isinstance(v, list) else v for name, v in values.items()}
    return ContainerOptions(**frozen)
