"""A whole project as Dagster definitions: the datastores found under ``defs``, the lake, the IO manager, one process a run.

Belongs here: what every project shares; ``incremental-assets init`` writes a ``definitions.py`` of one call to it.
"""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import colored_console_logger

from incremental_assets.lake.io_manager import delta_io_manager
from incremental_assets.lake.scope import lake_resource
from incremental_assets.orchestration.project import dagster_home, lake_root, serve_project
from incremental_assets.orchestration.runner import BRIEF_LOGGER


class _BriefHandler(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """What a run itself says, a line each, on stderr; Dagster's own events and stack traces stay in the event log."""

    def emit(self, record: logging.LogRecord) -> None:
        meta = getattr(record, "dagster_meta", {})
        if not meta.get("dagster_event"):
            record.msg, record.args = meta.get("orig_message", record.msg), ()
            super().emit(record)


@dg.logger({}, description="For the command line: what a run itself says.")
def brief_logger(context: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("incremental_assets", logging.INFO)
    handler = _BriefHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    return logger


LOGGERS = {"console": colored_console_logger, BRIEF_LOGGER: brief_logger}


def build_definitions(project: Path, *, resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """The code location of the project. A run is one asset, so it needs no further processes of its own."""
    serve_project(project)
    resources = {
        "lake": lake_resource(lambda: lake_root(project), lambda: dagster_home(project)),
        "delta": delta_io_manager,
        **(resource_overrides or {}),
    }
    found = dg.load_from_defs_folder(path_within_project=project)
    return dg.Definitions.merge(found, dg.Definitions(resources=resources, executor=dg.in_process_executor, loggers=LOGGERS))
