"""The Dagster definitions of a whole project: the datastores found under ``defs``, the lake, the IO manager, Spark, the executor.

Belongs here: the definitions that every project shares; ``incremental-assets init`` writes a ``definitions.py`` with one call to
``build_definitions``. Does not belong: the definitions of one datastore (``datastore``).
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.dagster.io_manager import delta_io_manager
from incremental_assets.dagster.locks import table_lock
from incremental_assets.dagster.loggers import LOGGERS
from incremental_assets.dagster.project import dagster_home, lake_root, serve_project, take_components
from incremental_assets.dagster.resources import lake_resource, spark_resource


def build_definitions(project: Path, *, resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Builds the definitions of a code location from the project in the folder ``project``.

    The executor runs in the run's own process: a run materializes one asset, so a process for each step would only cost start-up time.
    ``resource_overrides`` replaces or adds Dagster resources by their key, for example in tests.
    """
    serve_project(project)
    with warnings.catch_warnings():
        # As `dg.load_from_defs_folder` does: Dagster would warn of each preview and beta feature that its own loading uses.
        for category in (dg.PreviewWarning, dg.BetaWarning):
            warnings.filterwarnings("ignore", category=category)
        found = take_components(project).build_defs()
    resources = {
        **({} if "spark" in (found.resources or {}) else {"spark": spark_resource}),  # one that the project has already stays
        "lake": lake_resource(lambda: lake_root(project), lambda: dagster_home(project), table_lock),
        "delta": delta_io_manager,
        **(resource_overrides or {}),
    }
    return dg.Definitions.merge(found, dg.Definitions(resources=resources, executor=dg.in_process_executor, loggers=LOGGERS))
