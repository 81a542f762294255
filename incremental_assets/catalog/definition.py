"""What every container is to those who run it, whatever its source: the container itself, and what is known of it.

Belongs here: what tables and files have in common. Does not belong: how either comes about (``datastore``, ``folder``).
"""

from dataclasses import dataclass
from typing import Protocol

from incremental_assets.catalog.detect import Proposal
from incremental_assets.core.container import Container, Kind, SourceTable

KEEP_DAYS = 90
"""How long runs and what scans have recorded are kept, where the YAML does not say."""


@dataclass(frozen=True)
class CatalogSettings:
    """``catalog:`` of the YAML. ``kinds``: which of them become containers at all."""

    schedule: str | None = None
    name: str | None = None
    prune: bool = False
    recreate: bool = False
    kinds: frozenset[Kind] = frozenset(Kind)


MAX_RUNTIME_SECONDS = 24 * 3600
"""What a run may take where the YAML says nothing: what was committed by then stays, and the next one goes on from there."""


class Settings(Protocol):
    """What every datastore's settings have. ``timezone``: of times without zone; ``named``: containers that the YAML counts on."""

    @property
    def name(self) -> str: ...
    @property
    def timezone(self) -> str: ...
    @property
    def schedule(self) -> str | None: ...
    @property
    def maintenance(self) -> str | None: ...
    @property
    def max_runtime_seconds(self) -> int: ...
    @property
    def keep_days(self) -> int | None:
        """How long runs and what scans have recorded are kept; None: for ever."""
        ...

    @property
    def catalog(self) -> CatalogSettings: ...
    @property
    def named(self) -> frozenset[str]: ...
    def is_excluded(self, table: str) -> bool: ...


class ContainerDefinition(Protocol):
    """A container together with what it was resolved from.

    ``missing_since``: when it was found to be gone from the source (ISO 8601); it is kept then, and not synced.
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
        """What the YAML would say for what is proposed."""
        ...

    @property
    def is_specified(self) -> bool:
        """Whether it is settled by what it is synced, and nothing is to be proposed."""
        ...

    @property
    def is_detected(self) -> bool:
        """Whether its identifier is one that the catalog has detected."""
        ...


def max_runtime_seconds(definition: ContainerDefinition) -> int:
    """What a run of the container may take."""
    return definition.container.options.max_runtime_seconds or definition.settings.max_runtime_seconds


def is_named(definition: ContainerDefinition) -> bool:
    """Whether the YAML counts on it."""
    return definition.table.name in definition.settings.named


def missing(definition: ContainerDefinition) -> str:
    """Of a container that is missing: what that means, and what to do."""
    name = definition.settings.name
    remedy = "take it out of the YAML" if is_named(definition) else f"forget it: incremental-assets catalog {name} --prune"
    return (
        f"{definition.container.label}: gone from the source since {definition.missing_since}; its rows stay in the lake and are not "
        f"synced. Bring it back, or {remedy}."
    )
