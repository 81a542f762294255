"""A datastore's component as the catalog operation sees it: its settings, its source, and the catalog that is its state.

Belongs here: the passage between a component and the catalog operation, which the command line uses, too. Does not belong: the YAML
(``datastore``, ``postgres``, ``files``), or the definitions that are made of the catalog (``datastore``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components import DefsStateConfig, ResolvedDefsStateConfig

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.catalog.inspect import CatalogDeclarations, CatalogSource
from incremental_assets.catalog.operation import CatalogOptions, CatalogResult, take_catalog
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.evidence import ListedContainer
from incremental_assets.core.names import encode_name
from incremental_assets.dagster.catalog_store import CatalogStore
from incremental_assets.dagster.project import current_project


class CataloguedComponent(dg.StateBackedComponent, ABC):
    """A datastore whose containers the catalog operation finds; what it found is the component's state."""

    name: str
    defs_state: ResolvedDefsStateConfig

    @property
    @abstractmethod
    def picture(self) -> str:
        """Dagster's word for what stands beside the catalog's asset."""

    @abstractmethod
    def settings(self) -> Settings:
        """Raises ConfigurationError naming what is wrong."""

    @abstractmethod
    def definitions(self, catalog: Catalog) -> Sequence[ContainerDefinition]:
        """The containers. Raises ConfigurationError where the YAML does not fit what was found."""

    @abstractmethod
    def said(self) -> CatalogDeclarations:
        """What the YAML says that the operation must know."""

    @abstractmethod
    def source(self, before: Catalog | None) -> AbstractContextManager[CatalogSource]:
        """What the operation asks. Raises SourceError."""

    @property
    def defs_state_config(self) -> DefsStateConfig:
        return DefsStateConfig.from_args(self.defs_state, default_key=f"{type(self).__name__}[{encode_name(self.name)}]")

    def take_catalog(
        self, before: Catalog | None, asked: CatalogOptions | None = None, progress: Callable[[str], None] = lambda _: None, **kept: Any
    ) -> CatalogResult:
        """Asks the source what is there, and compares. Raises SourceError or ConfigurationError; ``kept`` as ``operation.take_catalog``."""
        of_yaml = self.settings().catalog
        chosen = asked or CatalogOptions(of_yaml.prune, of_yaml.recreate, of_yaml.kinds)
        with self.source(before) as source:
            outcome = take_catalog(source, before, chosen, self.said(), progress, **kept)
            return replace(outcome, troubles={**outcome.troubles, **source.troubles})

    def listing(self, before: Catalog | None) -> Mapping[str, ListedContainer]:
        """The one question by which it is seen whether the catalog is as it was."""
        with self.source(before) as source:
            return source.listing()

    def store(self, project: Path) -> CatalogStore:
        return CatalogStore(self.defs_state_config, project)

    def write_state_to_path(self, state_path: Path) -> None:
        """For Dagster's own `dg utils refresh-defs-state`."""
        self.take_catalog(self.store(current_project()).load(None)).catalog.save(state_path)
