"""A project loaded for the command line: its datastores with their catalogs, the containers a selection names, its Dagster definitions.

Belongs here: reading the project. Does not belong: running it (``runner``).
"""

import contextlib
import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._check import CheckError

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.catalog.state import Catalog, Presence
from incremental_assets.core.container import Kind
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.core.names import nearest
from incremental_assets.dagster.catalog_asset import run_catalog
from incremental_assets.dagster.catalog_store import CatalogStore
from incremental_assets.dagster.catalogued import CataloguedComponent
from incremental_assets.dagster.project import dg_settings, only_containers
from incremental_assets.dagster.runs.ordinary_run import command_line_instance


@dataclass
class Datastore:
    """One component of the project. ``trouble``: why its catalog could not be read, where it could not; ``misfit``: what the YAML names
    and the stored catalog does not have, which a look at the source may heal."""

    component: CataloguedComponent
    catalog: Catalog | None
    definitions: Sequence[ContainerDefinition]
    trouble: SyncError | None = None
    misfit: ConfigurationError | None = None

    @property
    def name(self) -> str:
        return self.component.name


def _target(project: Path) -> tuple[str, str]:
    """Modules of the code location and of its defs folder, as the project's dg configuration names them."""
    section = dg_settings(project)
    root = section.get("root_module")
    if not root:
        raise ConfigurationError(f"{project}: its pyproject.toml names no [tool.dg.project] root_module.")
    return section.get("code_location_target_module") or f"{root}.definitions", section.get("defs_module") or f"{root}.defs"


def load_datastores(project: Path) -> list[Datastore]:
    """The datastores of the project, with the catalogs that are stored. Raises ConfigurationError for YAML that does not hold."""
    code_location, _ = _target(project)
    importlib.import_module(code_location)  # it may set variables that the YAML refers to
    try:
        module = importlib.import_module(code_location)
        prepare = getattr(module, "prepare", None)
        if prepare is not None:
            prepare()
        tree = dg.ComponentTree.for_project(project)
        components = tree.get_all_components(CataloguedComponent)
    except SyncError:
        raise
    except Exception as error:
        raise ConfigurationError(_yaml_trouble(error)) from error
    names = [component.name for component in components]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two datastores are called {name!r}; each needs a name of its own.")
    return [_load(project, component) for component in components]


def _yaml_trouble(error: Exception) -> str:
    """The message of Dagster's component errors that names file and line; else the innermost one."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        texts.append(str(seen).strip())
        seen = seen.__cause__ or seen.__context__
    placed = [text for text in texts if "defs.yaml:" in text]
    chosen = placed[-1] if placed else next((text for text in reversed(texts) if text), type(error).__name__)
    return "\n".join(line for line in chosen.splitlines() if "errors.pydantic.dev" not in line)


def _load(project: Path, component: CataloguedComponent) -> Datastore:
    component.settings()  # raises for YAML that does not hold, whatever the catalog knows
    catalog = _stored(component.store(project))
    try:
        return Datastore(component, catalog, component.definitions(catalog) if catalog else [])
    except ConfigurationError as error:  # the table may be newer than the catalog
        return Datastore(component, catalog, [], misfit=error)


def _stored(store: CatalogStore) -> Catalog | None:
    if not store.is_versioned:
        return store.load(None)
    with command_line_instance() as instance:
        return store.load(instance)


def reload_catalog(project: Path, datastore: Datastore) -> None:
    """After an operation has written it."""
    fresh = _load(project, datastore.component)
    datastore.catalog, datastore.definitions, datastore.misfit = fresh.catalog, fresh.definitions, fresh.misfit


def ensure_catalog(project: Path, datastore: Datastore, instance: dg.DagsterInstance, progress: Callable[[str], None]) -> None:
    """Runs the catalog where there is none, and where what it looks at has changed; trouble is kept for the containers."""
    try:
        if datastore.catalog is not None and datastore.misfit is None and _is_current(datastore):
            return
        progress(f"{datastore.name}: reads the catalog")
        run = run_catalog(datastore.component, datastore.definitions, instance, started_by="sync")
    except ConfigurationError as error:
        if datastore.catalog is None or datastore.misfit is not None:
            raise
        progress(str(error))
        return
    except SyncError as error:
        datastore.trouble = error
        return
    if run.refused is not None and (datastore.catalog is None or datastore.misfit is not None):
        raise run.refused
    if run.refused is not None:
        progress(str(run.refused))  # what no longer fits fails by itself, with its own message; the other containers are synced
    elif run.failure is not None:
        datastore.trouble = run.failure
    else:
        reload_catalog(project, datastore)


def _is_current(datastore: Datastore) -> bool:
    settings, catalog = datastore.component.settings(), datastore.catalog
    assert catalog is not None
    known, listed = catalog.by_name, datastore.component.listing(catalog)
    hidden = {name for name, one in known.items() if one.presence is Presence.HIDDEN}

    def matters(name: str, kind: Kind) -> bool:
        return kind in settings.catalog.kinds and name not in hidden and not settings.is_excluded(name)

    seen = {name: one.fingerprint for name, one in listed.items() if matters(name, one.kind)}
    present = {n: one for n, one in known.items() if one.presence is Presence.PRESENT and matters(n, one.table.kind)}
    said = datastore.component.said()
    undecided = [n for n, one in present.items() if said.lacks_span(one)]
    return not undecided and seen == {name: one.fingerprint for name, one in present.items()}


def load_definitions(project: Path, only: Iterable[ContainerDefinition] | None = None) -> dg.Definitions:
    """The code location's definitions, with the catalogs as stored now. Raises ConfigurationError for what Dagster refuses.

    ``only``: these containers are enough, unless something of the project's own, such as a job, names others. None: all of them.
    """
    if only is not None:
        with contextlib.suppress(ConfigurationError), only_containers(definition.container.label for definition in only):
            return _loaded(project)
    return _loaded(project)


def _loaded(project: Path) -> dg.Definitions:
    module = importlib.import_module(_target(project)[0])
    found = next((v for v in vars(module).values() if isinstance(v, dg.Definitions)), None)
    try:
        if found is None:
            lazy = getattr(module, "defs", None)
            found = lazy() if callable(lazy) else None
        if isinstance(found, dg.Definitions):
            found.get_repository_def()
    except (dg.DagsterError, CheckError) as error:  # a cron, an owner or a tag that is none
        raise ConfigurationError(f"Dagster refuses the project: {_yaml_trouble(error)}") from error
    if not isinstance(found, dg.Definitions):
        raise ConfigurationError(f"{module.__name__} has no Dagster Definitions named defs.")
    return found


def find_datastore(datastores: Sequence[Datastore], name: str) -> Datastore:
    """Raises ConfigurationError where there is none of that name."""
    found = next((d for d in datastores if d.name == name), None)
    if found is None:
        raise ConfigurationError(f"there is no datastore {name!r}.{nearest(name, [d.name for d in datastores])}")
    return found


def select(datastores: Sequence[Datastore], names: Sequence[str], tags: Sequence[str]) -> list[tuple[Datastore, ContainerDefinition]]:
    """The containers that ``DATASTORE`` or ``DATASTORE/CONTAINER`` arguments name (none: all), narrowed by ``K=V`` tags.

    Raises ConfigurationError for a name that nothing has.
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
        if container_name and not found and datastore.trouble is None:
            near = nearest(container_name, [d.container.name for d in datastore.definitions])
            raise ConfigurationError(f"{datastore.name} has no container {container_name!r}.{near}")
        chosen += [(datastore, d) for d in found if (datastore, d) not in chosen]
    tagged = [(s, d) for s, d in chosen if all(d.container.options.tags.get(k) == v for k, v in wanted.items())]
    if chosen and not tagged:
        raise ConfigurationError(f"no container has the tags {', '.join(tags)}.")
    return tagged
