"""Defines the common interface of containers and of their datastores' settings, for code that works with any kind of source."""

from dataclasses import dataclass
from typing import Protocol

from incremental_assets.catalog.detect import WHOLE_BYTES, Proposal
from incremental_assets.core.container import AuditSettings, Container, Kind, RegularScan, SourceTable
from incremental_assets.core.metadata_documents import MetadataSettings

KEEP_DAYS = 90
"""How many days the history of runs and the records of scans are kept by default."""


@dataclass(frozen=True)
class CatalogSettings:
    """The settings under ``catalog:`` in the YAML.

    ``schedule``: a cron expression; None: no schedule. ``name``: the name that its runs show; None: a default. ``prune``: forget containers
    that are gone from the source. ``recreate``: bring hidden containers back. ``kinds``: the kinds of relations that become containers.
    """

    schedule: str | None = None
    name: str | None = None
    prune: bool = False
    recreate: bool = False
    kinds: frozenset[Kind] = frozenset(Kind)


MAX_RUNTIME_SECONDS = 24 * 3600
"""The default limit of a run's duration, in seconds.

A run that is ended by it keeps what it has committed, and the next run goes on from there."""


class Settings(Protocol):
    """The settings that every datastore has.

    ``schedule``, ``maintenance``: cron expressions; None: none. ``named``: the containers that the YAML names, which are never forgotten.
    """

    @property
    def name(self) -> str: ...
    @property
    def schedule(self) -> str | None: ...
    @property
    def maintenance(self) -> str | None: ...
    @property
    def max_runtime_seconds(self) -> int:
        """The limit of a run's duration, unless the container has its own."""
        ...

    @property
    def keep_days(self) -> int | None:
        """How many days the history of runs and the records of scans are kept; None: for ever."""
        ...

    @property
    def audit(self) -> AuditSettings | None:
        """The regular audits of its containers, unless a container has its own; None: there are none."""
        ...

    @property
    def scan(self) -> RegularScan | None:
        """The regular scans of all its containers; None: there are none."""
        ...

    @property
    def profile(self) -> RegularScan | None:
        """The regular profiles of all its containers; None: there are none."""
        ...

    @property
    def metadata(self) -> MetadataSettings | None:
        """The documents that are written after syncs, unless a container has its own setting; None: there are none."""
        ...

    @property
    def catalog(self) -> CatalogSettings: ...
    @property
    def named(self) -> frozenset[str]: ...
    def is_excluded(self, table: str) -> bool:
        """Whether ``exclude`` in the YAML leaves out the container of this name."""
        ...


class ContainerDefinition(Protocol):
    """A container together with the settings and the catalog entry that it was resolved from.

    ``missing_since``: when the catalog operation found it gone from the source (ISO 8601, UTC); it is kept then, and not synced. None: it
    is there. ``proposal``: the identifier that the catalog operation proposes.
    """

    @property
    def settings(self) -> Settings: ...
    @property
    def table(self) -> SourceTable: ...
    @property
    def missing_since(self) -> str | None: ...
    @property
    def container(self) -> Container: ...
    @property
    def proposal(self) -> Proposal: ...
    @property
    def entry(self) -> str | None:
        """The line under ``incremental:`` that would put the proposal into the YAML; None: there is none."""
        ...

    @property
    def is_specified(self) -> bool:
        """Whether its identifier is already decided, so that nothing is to be proposed."""
        ...

    @property
    def is_detected(self) -> bool:
        """Whether its identifier is one that the catalog operation has detected."""
        ...


def is_outgrown(definition: ContainerDefinition) -> bool:
    """Whether the container is synced whole, has become too large for that, and the catalog knows another way."""
    size = definition.table.bytes
    is_whole = definition.container.identifier is None and definition.proposal.type is not None
    return is_whole and size is not None and size > 3 * WHOLE_BYTES


def max_runtime_seconds(definition: ContainerDefinition) -> int:
    """The limit of a run of the container, in seconds."""
    return definition.container.options.max_runtime_seconds or definition.settings.max_runtime_seconds


def audit_settings(definition: ContainerDefinition) -> AuditSettings | None:
    """The container's regular audits; None: there are none."""
    return definition.container.options.audit or definition.settings.audit


def metadata_settings(definition: ContainerDefinition) -> MetadataSettings | None:
    """The documents that are written after the container's syncs; None: there are none."""
    return definition.container.options.metadata or definition.settings.metadata


def is_named(definition: ContainerDefinition) -> bool:
    """Whether the YAML names the container."""
    return definition.table.name in definition.settings.named


def missing(definition: ContainerDefinition) -> str:
    """The message for a container that is gone from the source: what that means, and what to do."""
    name = definition.settings.name
    remedy = "take it out of the YAML" if is_named(definition) else f"forget it: incremental-assets catalog {name} --prune"
    return (
        f"{definition.container.label}: gone from the source since {definition.missing_since}; its rows stay in the lake and are not "
        f"synced. Bring it back, or {remedy}."
    )
