"""A datastore as configured and as found: its settings, its catalog state, and the containers the two give.

Belongs here: the state's format, and matching the YAML's entries to tables. Does not belong: YAML parsing (the component does it).
"""

import datetime
import fnmatch
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from incremental_assets.model.container import Container, ContainerOptions, SourceTable, table_from_json, table_to_json
from incremental_assets.model.errors import ConfigurationError
from incremental_assets.model.grammar import IncrementalSpec
from incremental_assets.model.names import nearest
from incremental_assets.model.resolve import resolve
from incremental_assets.sources.postgres.connection import PostgresAddress

CATALOG_FORMAT = 1


@dataclass(frozen=True)
class DatastoreSettings:
    """What the YAML says of a whole datastore."""

    name: str
    address: PostgresAddress
    schema: str = "public"
    safety_lag_seconds: int = 0
    max_source_connections: int = 8
    settle_seconds: float = 2.0
    load_rows: int = 20_000_000
    timezone: str = "UTC"
    schedule: str | None = None
    maintenance: str | None = None
    incremental: tuple[IncrementalSpec, ...] = ()
    options: Mapping[str, ContainerOptions] = field(default_factory=dict[str, ContainerOptions])
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        tables = [spec.table for spec in self.incremental]
        for spec in self.incremental:
            if spec.schema not in (None, self.schema):
                raise ConfigurationError(
                    f"{self.name}: incremental names {spec.schema}.{spec.table}, but the datastore's schema is {self.schema!r}. "
                    f"A datastore is one schema; add another datastore for {spec.schema!r}."
                )
            if tables.count(spec.table) > 1:
                raise ConfigurationError(
                    f"{self.name}: {spec.table} is listed twice under incremental. For two columns of one table write "
                    f"{{table: {self.schema}.{spec.table}, column: [<created>, <updated>], type: {spec.type.value}, strategy: upsert}}."
                )

    @property
    def named(self) -> frozenset[str]:
        """Tables that the YAML names."""
        return frozenset(self.specs) | frozenset(self.options)

    @property
    def specs(self) -> dict[str, IncrementalSpec]:
        return {spec.table: spec for spec in self.incremental}


@dataclass(frozen=True)
class Catalog:
    """What was found, and on which day (days since 1970-01-01)."""

    found_on: int
    found_at: str
    tables: tuple[SourceTable, ...]

    def save(self, path: Path) -> None:
        """Written beside and moved over: a reader sees the old state or the new one, whole."""
        data = {
            "format": CATALOG_FORMAT,
            "found_on": self.found_on,
            "found_at": self.found_at,
            "tables": [table_to_json(table) for table in self.tables],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        beside.write_text(json.dumps(data, indent=1), encoding="utf-8")
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Catalog":
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["found_on"], data["found_at"], tuple(table_from_json(table) for table in data["tables"]))

    @classmethod
    def of(cls, tables: Sequence[SourceTable], before: "Catalog | None", wanted: Collection[str] = ()) -> "Catalog":
        """A new catalog. The calendar of a container stays what its first rows made it: keys that were seen stay.

        ``wanted``: tables the YAML names; one of them that was there before stays, so that its sync fails and not the whole project.
        """
        now = datetime.datetime.now(datetime.timezone.utc)
        old = {table.name: table for table in before.tables} if before else {}

        def keep_first(table: SourceTable) -> SourceTable:
            earlier = old.get(table.name)
            if earlier is None:
                return table
            span, first = table.span if earlier.span is None else earlier.span, table.first if earlier.first is None else earlier.first
            return replace(table, span=span, first=first)

        day = now.date().toordinal() - datetime.date(1970, 1, 1).toordinal()
        found = {table.name for table in tables}
        gone = [table for name, table in old.items() if name not in found and name in wanted]
        kept = sorted([*(keep_first(t) for t in tables), *gone], key=lambda table: table.name)
        return cls(before.found_on if before else day, now.isoformat(timespec="seconds"), tuple(kept))


@dataclass(frozen=True)
class ContainerDefinition:
    """A container together with what it was resolved from, so that it can be resolved again when its columns have changed."""

    settings: DatastoreSettings
    table: SourceTable
    found_on: int

    @cached_property
    def container(self) -> Container:
        return self._resolve(self.table)

    def with_columns_of(self, now: SourceTable) -> Container:
        """The same container with the columns, keys and indexes the source has now."""
        old = self.table
        fresh = replace(now, first=old.first, last=old.last, span=old.span, rows=old.rows, bytes=old.bytes)
        return self._resolve(fresh)

    def _resolve(self, table: SourceTable) -> Container:
        options = self.settings.options.get(table.name, ContainerOptions())
        spec = self.settings.specs.get(table.name)
        return resolve(self.settings.name, self.settings.schema, table, spec, options, self.settings.safety_lag_seconds, self.found_on)


def synced_tables(settings: DatastoreSettings, tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Those that ``exclude`` leaves and that have columns."""
    return [t for t in tables if t.columns and not any(fnmatch.fnmatchcase(t.name, pattern) for pattern in settings.exclude)]


def definitions_of(settings: DatastoreSettings, catalog: Catalog) -> list[ContainerDefinition]:
    """All containers of the datastore, in the order of their names.

    Raises ConfigurationError where the YAML names a table that is not there, or says something that does not fit it.
    """
    tables = {table.name: table for table in catalog.tables}
    for what, names in (("incremental", list(settings.specs)), ("containers", list(settings.options))):
        for name in names:
            if name not in tables:
                raise ConfigurationError(
                    f"{settings.name}: {what} names {name!r}, which schema {settings.schema!r} does not have.{nearest(name, tables)} "
                    f"If it is new: incremental-assets catalog {settings.name}"
                )
    definitions = [ContainerDefinition(settings, table, catalog.found_on) for table in synced_tables(settings, catalog.tables)]
    paths: dict[tuple[str, str], str] = {}
    for definition in definitions:
        other = paths.setdefault(definition.container.key_path, definition.table.name)
        assert other == definition.table.name, "the encoding of names is reversible, so two names never meet"
    return definitions
