"""The Dagster definitions of a whole project: the datastores found under ``defs``, the lake, the IO manager, Spark, the executor."""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.core.collector import collector_paused, spare_what_is_loaded
from incremental_assets.dagster.io_manager import OF_A_CONTAINER, delta_io_manager
from incremental_assets.dagster.resources import lake_resource, spark_resource
from incremental_assets.project.folders import (
    dagster_home,
    is_limited,
    lake_root,
    loaded_components,
    only_containers,
    serve_project,
    take_components,
)
from incremental_assets.runs.loading import load_repository
from incremental_assets.runs.locks import table_lock
from incremental_assets.runs.loggers import LOGGERS
from incremental_assets.runs.own_run import containers_of, is_served, run_of_this_process

log = logging.getLogger(__name__)
FEW = 100
"""Of a datastore with at most so many containers, the process of a run builds all: that takes less than a second, and finding out whether
the project can do without them loads what is the project's own a second time."""


def build_definitions(project: Path, *, resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Builds the definitions of a code location from the project in the folder ``project``.

    The executor runs in the run's own process: a run materializes one asset, so a process for each step would only cost start-up time.
    Where Dagster loads a large project in order to execute one run, only the containers of that run are built.
    ``resource_overrides`` replaces or adds Dagster resources by their key, for example in tests.
    """
    serve_project(project)
    if is_limited():  # by a command, whose process has its own way with the collector
        return _build(project, take_components(project), resource_overrides, is_shown=False)
    run = run_of_this_process()
    try:
        if run is None:
            return _build(project, take_components(project), resource_overrides, is_shown=True)
        return _build_for(run, project, resource_overrides)
    finally:
        spare_what_is_loaded()


def _build_for(run: dg.DagsterRun, project: Path, resource_overrides: Mapping[str, Any] | None) -> dg.Definitions:
    """Builds definitions for a run, of its containers alone where that is enough."""
    needed = containers_of(run)
    if needed is not None:
        with only_containers(needed, beyond=FEW) as left_out:
            tree = take_components(project)
            narrow = _build(project, tree, resource_overrides, is_shown=False)
            if not left_out or _is_enough(run, project, tree):
                return narrow
    return _build(project, take_components(project), resource_overrides, is_shown=False)


def _is_enough(run: dg.DagsterRun, project: Path, tree: dg.ComponentTree) -> bool:
    """Whether the project loads with only the containers of the run, and has all that the run executes.

    Something of the project's own, such as a schedule, may name other containers, and Dagster refuses it without those. ``tree``: the
    components, from which the definitions have been built.
    """
    try:
        with loaded_components(tree):
            return is_served(run, load_repository(project), OF_A_CONTAINER)
    except Exception as error:  # noqa: BLE001 whatever it is, with all containers it will be seen again
        log.debug("loads all containers for run %s: %s", run.run_id, error)
        return False


def _build(project: Path, tree: dg.ComponentTree, resource_overrides: Mapping[str, Any] | None, *, is_shown: bool) -> dg.Definitions:
    """Builds the definitions of the components.

    ``is_shown``: whether the UI will read them. For its page of component types, Dagster imports every component that is installed and
    describes its attributes, which takes a third of a second that a run, or a command, does without.
    """
    with warnings.catch_warnings(), collector_paused():
        # As `dg.load_from_defs_folder` does: Dagster would warn of each preview and beta feature that its own loading uses.
        for category in (dg.PreviewWarning, dg.BetaWarning):
            warnings.filterwarnings("ignore", category=category)
        found = tree.build_defs() if is_shown else tree.build_defs(tree.defs_module_path)
    resources = {
        **({} if "spark" in (found.resources or {}) else {"spark": spark_resource}),  # one that the project has already stays
        "lake": lake_resource(lambda: lake_root(project), lambda: dagster_home(project), table_lock),
        "delta": delta_io_manager,
        **(resource_overrides or {}),
    }
    return dg.Definitions.merge(found, dg.Definitions(resources=resources, executor=dg.in_process_executor, loggers=LOGGERS))
