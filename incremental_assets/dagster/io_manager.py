"""The IO manager: writes containers and the rows of any asset to Delta tables, and loads both.

To use it for an asset of your own, return a DataFrame and say in the asset's metadata how it is written: ``write``, ``merge_keys`` and, for
partitions, ``partition_expr`` (docs/io-manager.md). The rows are one commit, and no other run writes to the table meanwhile. To load a
container, or some of its partitions, depend on its asset.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from incremental_assets.core.errors import ConcurrentWriteError, ConfigurationError, LakeError
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import encode_name
from incremental_assets.core.own_write import column_names, expect_columns
from incremental_assets.dagster.frame_types import converter
from incremental_assets.dagster.own_assets import own_predicate, types_of, write_own_asset
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.sql import file_predicate, folder_predicate, scope_predicate
from incremental_assets.runs.commit import commit_batches
from incremental_assets.runs.partitioning import WINDOWS_METADATA, from_windows_metadata
from incremental_assets.runs.records.metadata import plain

OF_A_CONTAINER = "sync/strategy"
"""A metadata key that the assets of containers have and others do not."""
COLUMNS = "columns"
"""The key of an input's metadata that names the columns to load."""

MOST_RETRIES = 3
"""How many times a step is tried again after a concurrent write."""
RETRY_SECONDS = 2
"""How many seconds pass before it is tried again."""


class DeltaIOManager(dg.IOManager):
    """Commits the write batches of a ``ContainerSync``, writes the rows of other assets, and loads partitions or all of a table.

    The table is ``<lake>/<asset key>``.
    A key part that is not a valid folder name is encoded (``core.names.encode_name``).
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commits the output of an asset: the ``ContainerSync`` of a container, or the rows of any other asset.

        Raises RetryRequested after a concurrent write, so that the step is tried again. On every error, and when the run is cancelled, the
        queries that still run on the Spark server are interrupted.
        """
        scope: LakeScope = context.resources.lake  # pyright: ignore[reportAttributeAccessIssue]
        try:
            if isinstance(obj, ContainerSync):
                self._commit(context, scope, obj)
            else:
                write_own_asset(context, scope, obj)
        except ConcurrentWriteError as moved:
            # A concurrent write, by a query that a killed run has left on the Spark server or by another host. A step that is tried again
            # makes a new plan, which takes that write into account.
            scope.interrupt()
            context.log.warning(str(moved))
            raise dg.RetryRequested(max_retries=MOST_RETRIES, seconds_to_wait=RETRY_SECONDS) from moved
        except BaseException:
            # A query goes on on the Spark Connect server after its client has ended, and could commit later.
            scope.interrupt()
            raise

    def _commit(self, context: dg.OutputContext, scope: LakeScope, sync: ContainerSync) -> None:
        try:
            commit_batches(context, scope, sync)
        except LakeError:
            # A run whose lease is lost has its queries interrupted, and that is all that they say.
            scope.expect_lease()
            raise

    def load_input(self, context: dg.InputContext) -> Any:
        """Loads the upstream asset's table, limited to the partitions of the context where it has any, as the annotation asks for it.

        Raises LakeError where the upstream asset has no table yet.
        """
        scope: LakeScope = context.resources.lake  # pyright: ignore[reportAttributeAccessIssue]
        label = "/".join(context.asset_key.path)
        convert = converter(f"The input {context.name!r} ({label})", context.dagster_type.typing_type)
        upstream = context.upstream_output
        metadata = plain((upstream.definition_metadata or {}) if upstream else {})
        # The asset key of a container is made of encoded names already; encoding them again would change them.
        parts = context.asset_key.path if OF_A_CONTAINER in metadata else map(encode_name, context.asset_key.path)
        table = scope.table(*parts)
        head = table.head()
        if head is None:
            raise LakeError(f"{label} has no table at {table.url} yet; materialize it first.")
        types = types_of(head)
        chosen = _chosen_columns(context, label, list(types))
        frame = scope.assets_spark.read.format("delta").load(table.url)
        if context.has_asset_partitions:
            windows = metadata.get(WINDOWS_METADATA)
            frame = frame.where(container_predicate(context, windows) if windows is not None else own_predicate(context, metadata, frame))
        with lake_errors(label, table.url):
            return convert(frame.select(*map(quote, chosen)) if chosen else frame)


def _chosen_columns(context: dg.InputContext, label: str, there: list[str]) -> tuple[str, ...]:
    """The columns that the input's metadata names; empty if it names none, and all are loaded."""
    given = plain(context.definition_metadata or {}).get(COLUMNS)
    if given is None:
        return ()
    names = column_names(given)
    if not names:
        raise ConfigurationError(
            f"The input {context.name!r} ({label}): columns is {given!r}. Name different columns: "
            f"AssetIn(metadata={{'columns': ['<column>', …]}})."
        )
    return expect_columns(f"The input {context.name!r} ({label})", COLUMNS, names, there)


@dg.io_manager(required_resource_keys={"lake"}, description="Delta tables in the lake: rows are overwritten, appended or merged.")
def delta_io_manager() -> DeltaIOManager:
    """The IO manager as a Dagster resource. It needs the resource ``lake``."""
    return DeltaIOManager()


def container_predicate(context: dg.InputContext, windows: Mapping[str, Any]) -> str:
    """A condition for the rows of a container's partitions that an input is limited to. ``windows``: of ``windows_metadata``.

    Containers have windows of their own: the first one reaches down to −∞ and the last one up to ∞, so that rows outside Dagster's time
    windows are loaded too.
    """
    if windows.get("folders"):
        return folder_predicate(FolderColumn(**windows["folders"]), list(context.asset_partition_keys))
    if windows.get("by_file"):
        return file_predicate(list(context.asset_partition_keys))
    identifier, partitions = from_windows_metadata(windows, context.asset_partitions_def, context.instance)
    return scope_predicate(identifier, partitions.windows_of(context.asset_partition_keys), False)
