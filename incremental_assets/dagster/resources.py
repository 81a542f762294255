"""The Dagster resources of a run: what it holds of the lake, from its beginning to its end, and the Spark session of the user's own
assets.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from incremental_assets.delta.progress import RunProgress
from incremental_assets.delta.scope import LakeScope, TableLock
from incremental_assets.runs.records.operation_log import record_run

if TYPE_CHECKING:
    from incremental_assets.dagster.spark_resource import ConnectSpark


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
        progress = RunProgress(log, context.log.debug if context.log else log)
        scope = LakeScope(lake(), state_dir(), run.job_name if run else "incremental-assets", log, held, progress)
        try:
            with scope.assets_stack, scope.stack:
                yield scope
        finally:
            progress.end()
            # The locks are released by now: nobody waits for these rows.
            record_run(context, scope.lake, scope.operations)

    return resource


@dg.resource(
    required_resource_keys={"lake"},
    description="A PySparkResource for assets of your own: the run's Spark Connect session, opened when it is first asked for.",
)
def spark_resource(context: dg.InitResourceContext) -> "Iterator[ConnectSpark]":
    """The resource ``spark``. No ``ConfigurableResource`` in the definitions themselves, for which each command would import the base."""
    from incremental_assets.dagster.spark_resource import ConnectSpark

    with ConnectSpark.from_resource_context_cm(context) as spark:
        yield spark
