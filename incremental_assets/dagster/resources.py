"""The Dagster resource ``lake``: what a run holds of the lake, from the run's beginning to its end.

Belongs here: the resource. Does not belong: the object that it provides (``delta.scope``).
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg

from incremental_assets.delta.scope import LakeScope, TableLock


def lake_resource(lake: Callable[[], str], state_dir: Callable[[], Path], held: TableLock | None = None) -> dg.ResourceDefinition:
    """Returns the resource ``lake``, which provides a ``LakeScope``.

    ``lake`` and ``state_dir`` return the lake's folder or URL and the folder of the Spark server's state; they are called when a run
    begins. ``held`` is the lock that the IO manager takes before it writes the table of a user's own asset; None means that nothing keeps
    two runs from writing one table.
    """

    @dg.resource(description="The lake and, when needed, a Spark Connect session of the run's own.")
    def resource(context: dg.InitResourceContext) -> Iterator[LakeScope]:
        run = context.run
        log = context.log.info if context.log else (lambda _: None)
        scope = LakeScope(lake(), state_dir(), run.job_name if run else "incremental-assets", log, held)
        with scope.stack:
            yield scope

    return resource
