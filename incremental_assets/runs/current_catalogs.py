"""The containers that a sync is to process, once the catalogs of their datastores are up to date."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.catalog.operation import announced
from incremental_assets.catalog.state import Presence
from incremental_assets.core.container import Kind
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.runs.catalog_run import run_catalog
from incremental_assets.runs.loading import (
    Datastore,
    LoadedProject,
    find_datastore,
    placed_in_yaml,
    refuse_collisions,
    reload_catalog,
    select,
)
from incremental_assets.runs.ordinary_run import command_line_instance


@dataclass(frozen=True)
class SelectedContainers:
    """The containers that a sync is to process. ``failed``: the labels of those that cannot be synced, each with the reason; of a datastore
    without a catalog, its name."""

    ready: Sequence[ContainerDefinition]
    failed: Sequence[tuple[str, SyncError]]


def select_current(
    project: LoadedProject, names: Sequence[str], tags: Sequence[str], progress: Callable[[str], None]
) -> SelectedContainers:
    """The containers that the arguments of a sync select (see ``select``), after the catalogs of their datastores were brought up to date.

    ``progress``: is called with messages for people. Raises ConfigurationError as ``select`` and ``ensure_catalog`` do.
    """
    chosen = [find_datastore(project.datastores, name) for name in dict.fromkeys(name.partition("/")[0] for name in names)]
    with command_line_instance() as instance:
        for datastore in chosen or project.datastores:
            ensure_catalog(project.folder, datastore, instance, progress)
    refuse_collisions(project.datastores)
    selected = select(project.datastores, names, tags)
    failed: list[tuple[str, SyncError]] = []
    for datastore in chosen or project.datastores:
        if not tags and (not names or datastore.name in names):
            failed += [(f"{datastore.name}/{name}", error) for name, error in datastore.refused.items()]
        if datastore.trouble is not None:
            known = [definition.container.label for one, definition in selected if one is datastore]
            failed += [(label, datastore.trouble) for label in (known if datastore.definitions else [datastore.name])]
    return SelectedContainers([definition for datastore, definition in selected if datastore.trouble is None], failed)


def ensure_catalog(project: Path, datastore: Datastore, instance: dg.DagsterInstance, progress: Callable[[str], None]) -> None:
    """Runs the catalog operation where there is no catalog, where the YAML does not fit it, and where the source has changed.

    ``progress``: is called with messages for people. A failure of the source is kept in ``datastore.trouble``, and raises nothing. Raises
    ConfigurationError where without a new catalog no container can be synced; else it is passed to ``progress`` only, and the sync goes on
    with the stored catalog.
    """
    try:
        if datastore.catalog is not None and datastore.misfit is None and _is_current(datastore, progress):
            return
        progress(f"{datastore.name}: reads the catalog")
        run = run_catalog(datastore.component, datastore.definitions, instance, started_by="sync")
    except ConfigurationError as error:
        if datastore.catalog is None or datastore.misfit is not None:
            raise placed_in_yaml(project, datastore.name, error) from error
        progress(str(error))
        return
    except SyncError as error:
        datastore.trouble = error
        return
    if run.refused is not None and (datastore.catalog is None or datastore.misfit is not None):
        raise placed_in_yaml(project, datastore.name, run.refused)
    if run.refused is not None:
        progress(str(run.refused))  # a container that does not fit any more fails with its own message; the others are synced
    elif run.failure is not None:
        datastore.trouble = run.failure
    else:
        reload_catalog(project, datastore)


def _is_current(datastore: Datastore, progress: Callable[[str], None]) -> bool:
    """Whether the stored catalog still describes the source, judged by one query for the listing. Raises SyncError.

    It is not current if a container is new, changed, gone or back, or if the identifier of one or its first and last value are not decided
    yet. Kinds that the YAML leaves out, and hidden, announced and excluded containers, do not matter.
    """
    settings, catalog = datastore.component.settings(), datastore.catalog
    assert catalog is not None
    known, listed = catalog.by_name, datastore.component.listing(catalog, progress)
    declarations = datastore.component.declarations()
    hidden = {name for name, one in known.items() if one.presence is Presence.HIDDEN}
    hidden |= {one.table.name for one, _ in announced(catalog, declarations)}

    def matters(name: str, kind: Kind) -> bool:
        return kind in settings.catalog.kinds and name not in hidden and not settings.is_excluded(name)

    seen = {name: one.fingerprint for name, one in listed.items() if matters(name, one.kind)}
    present = {n: one for n, one in known.items() if one.presence is Presence.PRESENT and matters(n, one.table.kind)}
    undecided = [n for n, one in present.items() if declarations.lacks_span(one)]
    return not undecided and seen == {name: one.fingerprint for name, one in present.items()}
