"""Dagster's resource of the lake: what a run holds of it, from its beginning to its end.

Belongs here: the resource. Does not belong: what it hands out (``delta.scope``).
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg

from incremental_assets.delta.scope import LakeScope, TableLock


def lake_resource(lake: Callable[[], str], state_dir: Callable[[], Path], held: TableLock | None = None) -> dg.ResourceDefinition:
    """The resource ``lake``; the folders are asked for when a run begins. ``held``: left out, nothing keeps two runs from one table."""

    @dg.resource(description="The lake and, when needed, a Spark Connect session of the run's own.")
    def resource(context: dg.InitResourceContext) -> Iterator[LakeScope]:
        run = context.run
        log = context.log.info if context.log else (lambda _: None)
        scope = LakeScope(lake(), state_dir(), run.job_name if run else "incremental-assets", log, held)
        with scope.stack:
            yield scope

    return resource
