"""Combines a datastore's settings with its catalog, and resolves both to the datastore's containers."""

import contextlib
import fnmatch
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from incremental_assets.catalog.definition import KEEP_DAYS, MAX_RUNTIME_SECONDS, CatalogSettings
from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.core.capture import Capture
from incremental_assets.core.container import (
    AuditSettings,
    Container,
    ContainerOptions,
    Engine,
    Inherited,
    OnNewTable,
    RegularScan,
    RowSecurity,
    SourceTable,
    WhenRecreated,
)
from incremental_assets.core.cursor_type import IdentifierType
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.errors import ConfigurationError, MisfitError, Refuse, raise_it, refused_to
from incremental_assets.core.grammar import IncrementalSpec, Strategy
from incremental_assets.core.lag import where_sessions_are_hidden
from incremental_assets.core.metadata_documents import MetadataSettings
from incremental_assets.core.names import canonical_name, nearest
from incremental_assets.core.partitions import expect_partition_by
from incremental_assets.core.resolve import CAPTURED_KINDS, key_of, resolve
from incremental_assets.core.rules.checks import check_rules
from incremental_assets.databases.dialect import Dialect
from incremental_assets.databases.limits import Limits

CAPTURE_WARNING_BYTES = 1 << 30
ROWS_A_SECOND = 10_000
"""The number of rows that even a slow source and a slow lake read and write in a second; 200,000 were measured on two cores."""


@dataclass(frozen=True)
class DatastoreSettings:
    """The settings of a whole datastore, as the YAML says them.

    ``address``: of the database, of its dialect's own class, with ``display``, the address without password, and ``database``. ``dialect``:
    the kind of database. ``schema``: the schema that is read. ``safety_lag_seconds``: that of containers that have none of their own.
    ``max_source_connections``: how many connections the datastore may use at once. ``settle_seconds``: how long a sync waits for open
    transactions to end before it takes its snapshot. ``watermark_margin_seconds``: how far a time's watermark stays below the source's
    clock. ``load_rows``: a load of more rows goes window by window. ``limits``: those of one snapshot. ``timezone``: the time
    zone of columns without one (None: the YAML does not say it, and UTC counts). ``capture``: whether containers follow the source's log
    that do not say it themselves. ``capture_slot``: the name of the replication slot and of the publication; None: one that is made of the
    datastore's name. ``capture_warning_bytes``: from so many bytes of log on that the source keeps for the slot, syncs warn.
    ``row_security``: what syncs of containers do with it that do not say it themselves. ``schedule`` and ``maintenance``: when syncs and
    maintenance run. ``keep_days``: how many days runs and records of scans are kept (None: for ever). ``incremental``: the incremental
    identifiers. ``options``: the settings of containers, by table. ``exclude``: patterns (fnmatch) of tables that are not synced; ``only``:
    of those that are; empty: all.
    ``auto_identifiers``: identifiers that the catalog detected are used where the YAML names none. ``when_recreated``: what syncs of
    containers do that do not say it themselves, where the table is another one than before. ``engine``: who reads and writes the rows of
    containers that do not say it themselves. ``on_new_table``: what happens to tables that the first catalog did not find.
    """

    name: str
    address: Any
    dialect: Dialect
    schema: str = "public"
    safety_lag_seconds: int | Literal["auto"] = "auto"
    max_source_connections: int = 8
    settle_seconds: float = 2.0
    watermark_margin_seconds: float = 1.0
    load_rows: int = 20_000_000
    limits: Limits = field(default_factory=Limits)
    timezone: str | None = None
    schedule: str | None = None
    maintenance: str | None = None
    max_runtime_seconds: int = MAX_RUNTIME_SECONDS
    keep_days: int | None = KEEP_DAYS
    audit: AuditSettings | None = None
    scan: RegularScan | None = None
    profile: RegularScan | None = None
    metadata: MetadataSettings | None = None
    capture: Capture = Capture.NONE
    capture_slot: str | None = None
    capture_warning_bytes: int = CAPTURE_WARNING_BYTES
    row_security: RowSecurity = RowSecurity.REFUSE
    incremental: tuple[IncrementalSpec, ...] = ()
    options: Mapping[str, ContainerOptions] = field(default_factory=dict[str, ContainerOptions])
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    auto_identifiers: bool = False
    when_recreated: WhenRecreated = WhenRecreated.REFUSE
    engine: Engine = Engine.AUTO
    on_new_table: OnNewTable = OnNewTable.ANNOUNCE
    catalog: CatalogSettings = field(default_factory=CatalogSettings)

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
            if spec.partition_by is not None:
                expect_partition_by(f"{self.name}/{spec.table}", spec.partition_by.every, None)
        for table, options in self.options.items():
            own = self.specs.get(table)
            is_time = None if own is None or own.partition_by is not None else own.type is not IdentifierType.INTEGER
            expect_partition_by(f"{self.name}/{table}", options.partition_by, is_time)

    @property
    def named(self) -> frozenset[str]:
        """The tables that the YAML names under ``incremental`` or ``containers``."""
        return self._named

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(self.specs) | frozenset(self.options)

    @property
    def rows_a_window(self) -> int:
        """How many rows a load reads from one snapshot: ``load_rows``, or fewer if a slow source needs longer than a snapshot may be
        held."""
        return min(self.load_rows, self.limits.snapshot * ROWS_A_SECOND)

    def is_excluded(self, table: str) -> bool:
        """Whether no pattern of ``only`` matches the name, with regard to case, or one of ``exclude``."""
        left_out = bool(self.only) and not any(fnmatch.fnmatchcase(table, pattern) for pattern in self.only)
        return left_out or any(fnmatch.fnmatchcase(table, pattern) for pattern in self.exclude)

    def is_auto(self, table: str) -> bool:
        """Whether an identifier that the catalog detected is used for this table if the YAML names none."""
        own = self.options.get(table, ContainerOptions()).identifiers
        return self.auto_identifiers if own is None else own

    @property
    def slot(self) -> str:
        """The name of the replication slot and of the publication of its captured containers."""
        return self.capture_slot or default_slot(self.name)

    def captures(self, table: SourceTable) -> Capture:
        """Whether the container of this table follows the source's log.

        What holds for all containers of a datastore does not hold for those that cannot follow it.
        """
        options = self.options.get(table.name, ContainerOptions())
        if options.capture is not None:
            return options.capture
        able = table.kind in CAPTURED_KINDS and options.inherited is not Inherited.INCLUDE and bool(key_of(table, options))
        return self.capture if able else Capture.NONE

    def row_security_of(self, name: str) -> RowSecurity:
        """What a sync of the container of this name does with row security."""
        return self.options.get(name, ContainerOptions()).row_security or self.row_security

    def may_capture(self, name: str) -> bool:
        """Whether the container of this name follows the source's log, unless its table cannot."""
        own = self.options.get(name, ContainerOptions()).capture
        return not self.is_excluded(name) and (self.capture if own is None else own) is Capture.LOG

    @cached_property
    def specs(self) -> Mapping[str, IncrementalSpec]:
        """The incremental identifiers of the YAML by table."""
        return {spec.table: spec for spec in self.incremental}


@dataclass(frozen=True)
class TableDefinition:
    """The ``ContainerDefinition`` of a table or view. It can be resolved again when the table's columns have changed.

    ``found_on``: the day of the datastore's first catalog operation (days since 1970-01-01). ``proposal``: the identifier that the catalog
    proposes now. ``pinned``: the proposal that ``identifiers: auto`` uses since it was first needed (None: none yet). ``missing_since``:
    when the table was first missing in the source (ISO 8601, UTC; None: it is there). ``shows_activity``: whether the datastore's role may
    see what the sessions of other roles are doing; True as long as that is not known.
    """

    settings: DatastoreSettings
    table: SourceTable
    found_on: int
    proposal: Proposal = field(default_factory=Proposal)
    pinned: Proposal | None = None
    missing_since: str | None = None
    shows_activity: bool = True

    @property
    def container(self) -> Container:
        """The resolved container. Raises ConfigurationError if the YAML does not fit the table."""
        return self._container

    @cached_property
    def _container(self) -> Container:
        resolved = self._resolve(self.table)
        return resolved if self.shows_activity else where_sessions_are_hidden(resolved)

    @property
    def entry(self) -> str | None:
        """The proposed identifier as an entry for the YAML; None if there is no proposal."""
        return self.proposal.entry(self.settings.schema, self.table.name)

    @property
    def is_specified(self) -> bool:
        """Whether the YAML names the incremental identifier."""
        return self.table.name in self.settings.specs

    @property
    def is_detected(self) -> bool:
        """Whether the container uses an identifier that the catalog has detected."""
        return self._detected is not None and self.container.identifier is not None

    @property
    def _detected(self) -> Proposal | None:
        auto = not self.is_specified and self.settings.is_auto(self.table.name)
        return self.pinned if auto and self.pinned is not None and self.pinned.type is not None else None

    def with_columns_of(self, now: SourceTable) -> Container:
        """The same container with the columns, keys and indexes that the source has now.

        The safety lag stays the one with which the sync was planned, because its windows were computed with it.
        """
        old, planned = self.table, self.container
        fresh = replace(now, first=old.first, last=old.last, span=old.span, spanned=old.spanned, rows=old.rows, bytes=old.bytes)
        return replace(self._resolve(fresh), lag=planned.lag, lag_is_auto=planned.lag_is_auto, lag_reason=planned.lag_reason)

    def _resolve(self, table: SourceTable) -> Container:
        settings, detected = self.settings, self._detected
        own = settings.options.get(table.name, ContainerOptions())
        options = replace(
            own,
            capture=settings.captures(table),
            row_security=settings.row_security_of(table.name),
            when_recreated=own.when_recreated or settings.when_recreated,
            engine=own.engine or settings.engine,
        )
        spec = settings.specs.get(table.name)

        def resolved(spec: IncrementalSpec | None, options: ContainerOptions) -> Container:
            lag, zone = settings.safety_lag_seconds, settings.timezone
            reasons = {column.name: settings.dialect.reason_against(column, options) for column in table.columns}
            left_out = {name: why for name, why in reasons.items() if why is not None}
            made = resolve(settings.name, settings.schema, table, spec, options, lag, self.found_on, zone, left_out)
            settings.dialect.check(made.label, table, made)
            return _with_canonical_forms(made, settings.dialect)

        if spec is None and settings.is_auto(table.name):
            if detected is not None:
                # If the options do not fit the detected identifier, they were written for another one. The container is synced whole then.
                with contextlib.suppress(ConfigurationError):
                    partitioning = options.partition_by if options.partition_by is not None else detected.partition_by
                    return resolved(detected.spec(settings.schema, table.name), replace(options, partition_by=partitioning))
            options = replace(options, partition_by=None, deletes=None)  # they are for an identifier that may be detected one day
        return resolved(spec, options)


def _with_canonical_forms(container: Container, dialect: Dialect) -> Container:
    """The container with the canonical forms that its key has. Only an upsert goes by them."""
    if container.strategy is not Strategy.UPSERT:
        return container
    taken = {column.name.lower() for column in container.columns}
    names = (name for name in dialect.canonical(container) if canonical_name(name).lower() not in taken)
    return replace(container, canonical=tuple(names))


def default_slot(datastore: str) -> str:
    """The name of a datastore's slot. PostgreSQL permits small letters, digits and underscores, and 63 of them."""
    plain = re.sub(r"[^a-z0-9_]", "_", datastore.lower())
    name = f"incremental_assets_{plain}"
    if plain == datastore and len(name) <= 63:
        return name
    return f"{name[:54]}_{zlib.crc32(datastore.encode()):08x}"


def is_synced(settings: DatastoreSettings, table: SourceTable) -> bool:
    """Whether a table is synced: it has columns, ``only`` and ``exclude`` do not leave it out, and ``catalog: include`` has its kind."""
    return bool(table.columns) and not settings.is_excluded(table.name) and table.kind in settings.catalog.kinds


def definitions_of(settings: DatastoreSettings, catalog: Catalog, refuse: Refuse = raise_it) -> list[TableDefinition]:
    """The definitions of all containers of the datastore, in the order of their names.

    ``refuse`` is called with a ConfigurationError if the YAML names a table that does not exist, and with a MisfitError if its settings do
    not fit a table. Where it does not raise it, that table is left out.
    """
    known = catalog.by_name
    for what, names in (("incremental", list(settings.specs)), ("containers", list(settings.options))):
        for name in names:
            if not settings.is_excluded(name):
                with refused_to(refuse):
                    _expect(settings, what, name, known)
    shown = [one for one in catalog.entries if _is_shown(settings, one) and is_synced(settings, one.table)]
    columns = {one.table.name: [column.name for column in one.table.columns] for one in catalog.entries}
    definitions: list[TableDefinition] = []
    for one in shown:
        with refused_to(refuse):
            definitions.append(_definition(settings, catalog.found_on, one, columns))
    paths: dict[tuple[str, str], str] = {}
    for definition in definitions:
        other = paths.setdefault(definition.container.key_path, definition.table.name)
        assert other == definition.table.name, "the encoding of names is reversible, so two names never meet"
    return definitions


def _is_shown(settings: DatastoreSettings, known: Known) -> bool:
    """Whether nothing but the YAML can keep the entry from being a container. A table that was announced is one as soon as it is named."""
    return known.presence is not Presence.HIDDEN and (known.presence is not Presence.ANNOUNCED or known.table.name in settings.named)


def _expect(settings: DatastoreSettings, what: str, name: str, known: Mapping[str, Known]) -> None:
    """Raises ConfigurationError, with the reason, if a table that the YAML names under ``what`` is not a container."""
    one = known.get(name)
    if one is None:
        raise ConfigurationError(
            f"{settings.name}: {what} names {name!r}, which schema {settings.schema!r} does not have.{nearest(name, known)} "
            f"If it is new, or of a kind that catalog: include leaves out: incremental-assets catalog {settings.name}"
        )
    if one.presence is Presence.HIDDEN:
        raise ConfigurationError(
            f"{settings.name}: {what} names {name!r}, which was removed from the catalog. To bring it back: "
            f"incremental-assets catalog {settings.name} --recreate"
        )
    if one.table.kind not in settings.catalog.kinds:
        raise ConfigurationError(f"{settings.name}: {what} names {name!r}, a {one.table.kind.value}, which catalog: include leaves out.")


def _definition(settings: DatastoreSettings, found_on: int, known: Known, others: Mapping[str, Sequence[str]]) -> TableDefinition:
    """The definition of one container. ``others`` has the names of the columns of all tables, by table.

    Raises MisfitError if the container's settings or quality rules do not fit it.
    """
    missing_since = known.since if known.presence is Presence.MISSING else None
    definition = TableDefinition(settings, known.table, found_on, known.proposal, known.pinned, missing_since)
    try:
        container = definition.container
        columns = [column.name for column in container.columns]
        columns += [MARK.name] if container.options.deletes is Deletes.SOFT else []
        check_rules(container.label, container.options.checks, columns, others, container.partitioning is not None)
    except ConfigurationError as error:
        raise MisfitError(known.table.name, str(error)) from error
    return definition
