"""Loads a project for the command line: its datastores with their catalogs, the containers of a selection, and its Dagster definitions."""

import contextlib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import dagster as dg
from dagster._check import CheckError

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.collector import collector_paused
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.core.names import nearest
from incremental_assets.project.catalog_store import CatalogStore
from incremental_assets.project.catalogued import CataloguedComponent
from incremental_assets.project.defs_files import place_of
from incremental_assets.project.folders import dg_settings, loaded_components, only_containers
from incremental_assets.project.yaml_lines import placed
from incremental_assets.project.yaml_trouble import unset_variables, yaml_trouble
from incremental_assets.runs.collisions import collisions
from incremental_assets.runs.ordinary_run import command_line_instance

_Component = TypeVar("_Component", bound=dg.Component)


@dataclass
class Datastore:
    """One datastore of the project.

    ``component``: its component, from the YAML. ``catalog``: the stored catalog; None: there is none yet. ``definitions``: the containers;
    empty without a catalog, or with a ``misfit``. ``trouble``: why the catalog operation failed; None: it did not. ``misfit``: why the YAML
    does not fit the stored catalog; None: it fits. A new catalog may remedy that, as a table may be newer than the stored one.
    ``refused``: by name, why containers are none of the ``definitions`` (``collisions``).
    """

    component: CataloguedComponent
    catalog: Catalog | None
    definitions: Sequence[ContainerDefinition]
    trouble: SyncError | None = None
    misfit: ConfigurationError | None = None
    refused: Mapping[str, ConfigurationError] = field(default_factory=dict[str, ConfigurationError])

    @property
    def name(self) -> str:
        return self.component.name


def _target(project: Path) -> tuple[str, str]:
    """The names of the code location's module and of its defs module, as the project's dg configuration has them.

    Raises ConfigurationError where the configuration names no root module.
    """
    section = dg_settings(project)
    root = section.get("root_module")
    if not root:
        raise ConfigurationError(f"{project}: its pyproject.toml names no [tool.dg.project] root_module.")
    return section.get("code_location_target_module") or f"{root}.definitions", section.get("defs_module") or f"{root}.defs"


@dataclass
class LoadedProject:
    """A project as the command line has loaded it. ``components``: all its components; None once definitions were built from them."""

    folder: Path
    datastores: list[Datastore]
    components: dg.ComponentTree | None

    def components_of(self, kind: type[_Component]) -> Sequence[_Component]:
        """The components of a kind; none once definitions were built. Raises ConfigurationError for an invalid YAML."""
        if self.components is None:
            return []
        try:
            return self.components.get_all_components(kind)
        except Exception as error:
            raise ConfigurationError(yaml_trouble(error, self.components.defs_module_path)) from error

    def definitions(self, only: Iterable[ContainerDefinition]) -> dg.Definitions:
        """The Dagster definitions, at least of the containers ``only`` (see ``load_definitions``), from the YAML as it was loaded."""
        components, self.components = self.components, None
        with loaded_components(components):
            return load_definitions(self.folder, only)


def load_project(project: Path) -> LoadedProject:
    """Loads the datastores of the project with their stored catalogs. The sources are not queried.

    Raises ConfigurationError where the YAML is invalid, or where two datastores have the same name.
    """
    tree = component_tree(project)
    try:
        with collector_paused():
            components = tree.get_all_components(CataloguedComponent)
    except SyncError:
        raise
    except Exception as error:
        raise ConfigurationError(yaml_trouble(error, tree.defs_module_path)) from error
    names = [component.name for component in components]
    expect_own_names(names, names)
    with collector_paused():
        loaded = LoadedProject(project, [_load(project, component) for component in components], tree)
        refuse_collisions(loaded.datastores)
        return loaded


def component_tree(project: Path) -> dg.ComponentTree:
    """The components of the project, none of which is loaded yet. Raises ConfigurationError where its own code cannot be imported."""
    code_location, _ = _target(project)
    module = importlib.import_module(code_location)  # it may set variables that the YAML refers to
    try:
        prepare = getattr(module, "prepare", None)
        if prepare is not None:
            prepare()
        return dg.ComponentTree.for_project(project)
    except SyncError:
        raise
    except Exception as error:
        raise ConfigurationError(yaml_trouble(error, project)) from error


def expect_own_names(all_names: Sequence[str], names: Sequence[str]) -> None:
    """Raises ConfigurationError for one of ``names`` that several datastores of the project have."""
    for name in names:
        if all_names.count(name) > 1:
            raise ConfigurationError(f"two datastores are called {name!r}; each needs a name of its own.")


def refuse_collisions(datastores: Sequence[Datastore]) -> None:
    """Takes the containers out of the definitions whose jobs would have the names of others."""
    components = [datastore.component for datastore in datastores]
    names = {one.name: [*(each.container.name for each in one.definitions), *one.refused] for one in datastores}
    for datastore in datastores:
        datastore.refused = collisions(datastore.component, components, lambda one: names[one.name])
        datastore.definitions = [one for one in datastore.definitions if one.container.name not in datastore.refused]


def load_datastores(project: Path) -> list[Datastore]:
    """The datastores of ``load_project``."""
    return load_project(project).datastores


def _load(project: Path, component: CataloguedComponent) -> Datastore:
    try:
        component.settings()  # raises ConfigurationError for an invalid YAML, even if there is no catalog yet
    except ConfigurationError as error:
        raise placed_in_yaml(project, component.name, error, names_unset=True) from error
    catalog = _stored(component.store(project))
    try:
        return Datastore(component, catalog, component.definitions(catalog) if catalog else [])
    except ConfigurationError as error:  # the YAML may name a table that is newer than the catalog
        return Datastore(component, catalog, [], misfit=placed_in_yaml(project, component.name, error))


def placed_in_yaml(project: Path, name: str, error: ConfigurationError, *, names_unset: bool = False) -> ConfigurationError:
    """The error with file and line, as far as they are known. ``names_unset``: with the variables that the YAML refers to, and that are not
    set."""
    try:
        place = place_of(dg.ComponentTree.for_project(project).defs_module_path, name)
    except ConfigurationError:
        return error  # its name is a template
    unset = unset_variables(place.file) if names_unset else []
    return ConfigurationError(placed(str(error), place, name) + (f" Not set here: {', '.join(unset)}." if unset else ""))


def _stored(store: CatalogStore) -> Catalog | None:
    """The stored catalog; None where there is none. Dagster's instance is opened only for a catalog that is stored through it."""
    if not store.is_versioned:
        return store.load(None)
    with command_line_instance() as instance:
        return store.load(instance)


def reload_catalog(project: Path, datastore: Datastore) -> None:
    """Reads the stored catalog again, after a catalog operation has written it. Raises ConfigurationError."""
    fresh = _load(project, datastore.component)
    datastore.catalog, datastore.definitions, datastore.misfit = fresh.catalog, fresh.definitions, fresh.misfit


def load_definitions(project: Path, only: Iterable[ContainerDefinition] | None = None) -> dg.Definitions:
    """The Dagster definitions of the code location, with the stored catalogs. Raises ConfigurationError for what Dagster refuses.

    ``only``: the containers that are needed; building definitions of the others is avoided (see ``only_containers``). Where something of
    the project's own, such as a job, names others, all are built nevertheless. None: all.
    """
    if only is not None:
        with contextlib.suppress(ConfigurationError), only_containers(definition.container.label for definition in only):
            return _loaded(project)
    return _loaded(project)


def load_repository(project: Path) -> dg.RepositoryDefinition:
    """The repository that Dagster makes of the code location. Raises ConfigurationError."""
    return _loaded(project).get_repository_def()


def _loaded(project: Path) -> dg.Definitions:
    """The ``Definitions`` of the code location's module, or the result of its function ``defs``. Raises ConfigurationError."""
    module = importlib.import_module(_target(project)[0])
    found = next((v for v in vars(module).values() if isinstance(v, dg.Definitions)), None)
    try:
        if found is None:
            lazy = getattr(module, "defs", None)
            found = lazy() if callable(lazy) else None
        if isinstance(found, dg.Definitions):
            found.get_repository_def()
    except SyncError:
        raise
    except Exception as error:  # of Dagster, such as for an invalid cron expression, owner or tag; or of the project's own code
        folder = dg.ComponentTree.for_project(project).defs_module_path
        refused = "Dagster refuses the project: " if isinstance(error, (dg.DagsterError, CheckError)) else ""
        raise ConfigurationError(f"{refused}{yaml_trouble(error, folder)}") from error
    if not isinstance(found, dg.Definitions):
        raise ConfigurationError(f"{module.__name__} has no Dagster Definitions named defs.")
    return found


def find_datastore(datastores: Sequence[Datastore], name: str) -> Datastore:
    """The datastore of this name. Raises ConfigurationError where there is none, with the nearest name."""
    found = next((d for d in datastores if d.name == name), None)
    if found is None:
        raise ConfigurationError(f"there is no datastore {name!r}.{nearest(name, [d.name for d in datastores])}")
    return found


def select(datastores: Sequence[Datastore], names: Sequence[str], tags: Sequence[str]) -> list[tuple[Datastore, ContainerDefinition]]:
    """The containers that the arguments of a command select, each once, in the order of the arguments.

    ``names``: arguments of the form ``DATASTORE`` or ``DATASTORE/CONTAINER``; empty: all datastores. ``tags``: arguments of the form
    ``K=V``; a selected container has all of them. Raises ConfigurationError for an unknown name, for tags that no selected container has,
    and where the YAML of a selected datastore does not fit its catalog. Containers of a datastore whose catalog operation has failed
    (``trouble``) may be missing; their names raise nothing.
    """
    wanted: dict[str, str] = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        if not equals:
            raise ConfigurationError(f"--tag {tag}: write it as K=V.")
        if wanted.setdefault(key, value) != value:
            raise ConfigurationError(f"--tag {key}={wanted[key]} and --tag {tag}: no container has both.")
    chosen: list[tuple[Datastore, ContainerDefinition]] = []
    for name in names or [datastore.name for datastore in datastores]:
        store_name, _, container_name = name.partition("/")
        datastore = find_datastore(datastores, store_name)
        if datastore.misfit is not None and datastore.trouble is None:
            raise datastore.misfit
        found = [d for d in datastore.definitions if not container_name or d.container.name == container_name]
        if container_name in datastore.refused:
            raise datastore.refused[container_name]
        if container_name and not found and datastore.trouble is None:
            near = nearest(container_name, [d.container.name for d in datastore.definitions])
            raise ConfigurationError(f"{datastore.name} has no container {container_name!r}.{near}")
        chosen += [(datastore, d) for d in found if (datastore, d) not in chosen]
    tagged = [(s, d) for s, d in chosen if all(d.container.options.tags.get(k) == v for k, v in wanted.items())]
    if chosen and not tagged:
        raise ConfigurationError(f"no container has the tags {', '.join(tags)}.")
    return tagged
