"""A whole project as Dagster definitions: the datastores found under ``defs``, the lake, the IO manager, Spark, one process a run.

Belongs here: what every project shares; ``incremental-assets init`` writes a ``definitions.py`` of one call to it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.dagster.io_manager import delta_io_manager
from incremental_assets.dagster.locks import table_lock
from incremental_assets.dagster.loggers import LOGGERS
from incremental_assets.dagster.project import dagster_home, lake_root, serve_project
from incremental_assets.dagster.resources import lake_resource, spark_resource


def build_definitions(project: Path, *, resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """The code location of the project. A run is one asset, so it needs no further processes of its own."""
    serve_project(project)
    found = dg.load_from_defs_folder(path_within_project=project)
    resources = {
        **({} if "spark" in (found.resources or {}) else {"spark": spark_resource}),  # one that the project has already stays
        "lake": lake_resource(lambda: lake_root(project), lambda: dagster_home(project), table_lock),
        "delta": delta_io_manager,
        **(resource_overrides or {}),
    }
    return dg.Definitions.merge(found, dg.Definitions(resources=resources, executor=dg.in_process_executor, loggers=LOGGERS))
