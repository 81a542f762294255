"""Defines the part of a datastore's component that the catalog operation uses: its settings, its source, and the catalog as its state."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
from dagster.components import DefsStateConfig, ResolvedDefsStateConfig

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.catalog.inspect import CatalogDeclarations, CatalogSource
from incremental_assets.catalog.operation import CatalogOptions, CatalogResult, take_catalog
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.errors import ConfigurationError, LakeError, Refuse, raise_it
from incremental_assets.core.evidence import ListedContainer, TableProfile
from incremental_assets.core.names import encode_name
from incremental_assets.delta.table import LakeTable
from incremental_assets.profiles.facts import profile_facts
from incremental_assets.project.catalog_store import CatalogStore
from incremental_assets.project.folders import current_project, lake_root

log = logging.getLogger(__name__)


class CataloguedComponent(dg.StateBackedComponent, ABC):
    """A datastore whose containers the catalog operation finds. Their catalog is the state of the component, in Dagster's sense."""

    name: str
    defs_state: ResolvedDefsStateConfig
    stand_ins: ClassVar[Mapping[str, str]] = {}
    """By attribute, a well-formed address that leads nowhere: it stands for variables that are not set, where the YAML is checked without
    its source. ``{schema}`` is the schema that the entries name."""

    @property
    @abstractmethod
    def ui_kind(self) -> str:
        """The kind that Dagster's UI shows as an icon on the catalog's asset."""

    @abstractmethod
    def settings(self) -> Settings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong."""

    @abstractmethod
    def definitions(self, catalog: Catalog, refuse: Refuse = raise_it) -> Sequence[ContainerDefinition]:
        """The containers of the catalog, as the YAML configures them. ``refuse`` is called with a ConfigurationError for each part of the
        YAML that does not fit the catalog. Raises ConfigurationError for an invalid YAML."""

    @abstractmethod
    def declarations(self) -> CatalogDeclarations:
        """The settings of the YAML that the catalog operation needs."""

    @abstractmethod
    def source(self, before: Catalog | None) -> AbstractContextManager[CatalogSource]:
        """The source of the catalog operation, with an open connection. ``before``: the stored catalog; None: there is none.

        Raises SourceError.
        """

    @property
    def defs_state_config(self) -> DefsStateConfig:
        # A project's own subclass finds the catalog that the class before it has stored.
        ours = next(one.__name__ for one in type(self).__mro__ if one.__module__.startswith("incremental_assets."))
        return DefsStateConfig.from_args(self.defs_state, default_key=f"{ours}[{encode_name(self.name)}]")

    def take_catalog(
        self, before: Catalog | None, options: CatalogOptions | None = None, progress: Callable[[str], None] = lambda _: None, **kept: Any
    ) -> CatalogResult:
        """Runs the catalog operation, and returns its result without storing it. Raises SourceError or ConfigurationError.

        ``before``: the stored catalog; None: there is none. ``options``: None means the options under ``catalog:`` of the YAML. ``kept``:
        the arguments ``finished`` and ``keep`` of ``catalog.operation.take_catalog``.
        """
        of_yaml = self.settings().catalog
        chosen = options or CatalogOptions(of_yaml.prune, of_yaml.recreate, of_yaml.kinds)
        with self.source(before) as source:
            outcome = take_catalog(source, before, chosen, self.declarations(), progress, profiles=self._profiles(before), **kept)
            for note in self.notes(source):
                progress(note)
            return replace(outcome, troubles={**outcome.troubles, **source.troubles})

    def _profiles(self, before: Catalog | None) -> Mapping[str, TableProfile]:
        """The profiles of the datastore's containers, by name. Where they cannot be read, the catalog goes without."""
        if before is None:
            return {}
        try:
            stored, lake = [one.container for one in self.definitions(before)], lake_root()
        except ConfigurationError:  # the YAML may name a table that is newer than the catalog, which is being renewed
            return {}
        try:
            found = profile_facts(lake, self.name, {one.label: LakeTable(lake, *one.key_path) for one in stored})
        except LakeError as error:
            log.warning(f"{self.name}: its profiles cannot be read, so that proposals do not take them into account: {error}")
            return {}
        return {one.name: found[one.label] for one in stored if one.label in found}

    def listing(self, before: Catalog | None, progress: Callable[[str], None] = lambda _: None) -> Mapping[str, ListedContainer]:
        """Lists the source, to find out whether a stored catalog still describes it. No container is inspected. Raises SyncError.

        ``progress``: is called with messages for people.
        """
        with self.source(before) as source:
            found = source.listing()
            for note in self.notes(source):
                progress(note)
            return found

    def notes(self, source: CatalogSource) -> Sequence[str]:
        """What people may want to know of a source that has been listed, and what is no trouble: one sentence each."""
        return ()

    def store(self, project: Path) -> CatalogStore:
        return CatalogStore(self.defs_state_config, project)

    def write_state_to_path(self, state_path: Path) -> None:
        """Takes and stores the catalog for Dagster's own command ``dg utils refresh-defs-state``."""
        self.take_catalog(self.store(current_project()).load(None)).catalog.save(state_path)
