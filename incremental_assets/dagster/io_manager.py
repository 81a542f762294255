"""The IO manager: writes containers and Spark DataFrames of any asset to Delta tables, and loads both.

Belongs here: the conversion between Dagster's contexts and ``delta.write``. Does not belong: planning a sync, or the write strategies
themselves.

To use it for an asset of your own, return a Spark DataFrame and name the column that the partitions go by in the asset's metadata as
``partition_expr``. The partitions of the run are overwritten in one commit, and no other run writes to the table meanwhile. To load a
container, or some of its partitions, depend on its asset.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator

from incremental_assets.core.container import Identifier
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.errors import ConcurrentWriteError, ConfigurationError, LakeError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import encode_name
from incremental_assets.core.window import Window, merge
from incremental_assets.dagster.metadata import as_metadata
from incremental_assets.dagster.own_partitions import own_windows
from incremental_assets.dagster.partitioning import WINDOWS_METADATA, from_windows_metadata
from incremental_assets.dagster.partitions import add_keys
from incremental_assets.delta.container_sync import ContainerSync, ReadAgain
from incremental_assets.delta.counts import partition_rows, row_count
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.sql import file_predicate, scope_predicate
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write import commit
from incremental_assets.delta.write_batch import WriteResult

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

PARTITION_EXPR = "partition_expr"
"""Dagster's conventional metadata key for the column that an asset's partitions go by."""
OF_A_CONTAINER = "sync/strategy"
"""A metadata key that the assets of containers have and others do not."""

MOST_RETRIES = 3
"""How many times a step is tried again after a concurrent write."""
RETRY_SECONDS = 2
"""How many seconds pass before it is tried again."""

_CURSOR_TYPES = {"date": CursorType.DATE, "timestamp_ntz": CursorType.TIMESTAMP_NTZ, "timestamp": CursorType.TIMESTAMP}
"""The cursor type of a column by its Spark type; integers and decimals are not listed."""
_TYPES = {
    CursorType.DATE: IdentifierType.DATE,
    CursorType.TIMESTAMP_NTZ: IdentifierType.DATETIME,
    CursorType.TIMESTAMP: IdentifierType.TIMESTAMP,
}


class DeltaIOManager(dg.IOManager):
    """Commits the write batches of a ``ContainerSync``, writes Spark DataFrames, and loads one partition, a range or all of a table.

    The table is ``<lake>/<asset key>``.
    A key part that is not a valid folder name is encoded (``core.names.encode_name``).
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commits the output of an asset: the ``ContainerSync`` of a container, or a Spark DataFrame of any other asset.

        Raises RetryRequested after a concurrent write, so that the step is tried again. On every error, and when the run is cancelled, the
        queries that still run on the Spark server are interrupted.
        """
        scope: LakeScope = context.resources.lake  # pyright: ignore[reportAttributeAccessIssue]
        try:
            if isinstance(obj, ContainerSync):
                self._commit_batches(context, scope, obj)
            else:
                self._write_frame(context, scope, obj)
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

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """Loads the upstream asset's table as a DataFrame, limited to the partitions of the context where it has any.

        Raises LakeError where the upstream asset has no table yet.
        """
        scope: LakeScope = context.resources.lake  # pyright: ignore[reportAttributeAccessIssue]
        upstream = context.upstream_output
        metadata = dict(upstream.definition_metadata or {}) if upstream else {}
        # The asset key of a container is made of encoded names already; encoding them again would change them.
        parts = context.asset_key.path if OF_A_CONTAINER in metadata else map(encode_name, context.asset_key.path)
        table = scope.table(*parts)
        if table.head() is None:
            raise LakeError(f"{'/'.join(context.asset_key.path)} has no table at {table.url} yet; materialize it first.")
        frame = scope.assets_spark.read.format("delta").load(table.url)
        if not context.has_asset_partitions:
            return frame
        described = metadata.get(WINDOWS_METADATA)
        # Containers have windows of their own: the first one reaches down to −∞ and the last one up to ∞, so that rows outside Dagster's
        # time windows are loaded too.
        if described is not None:
            data = getattr(described, "data", described)
            if data.get("by_file"):
                return frame.where(file_predicate(list(context.asset_partition_keys)))
            identifier, partitions = from_windows_metadata(data, context.asset_partitions_def, context.instance)
            windows = partitions.windows_of(context.asset_partition_keys)
        else:
            column = _column(metadata, context.asset_key)
            identifier = _identifier(column, {c.name: c.type for c in _head_columns(table)}, context.asset_key)
            windows = _windows(context, identifier.cursor_type)
        return frame.where(scope_predicate(identifier, windows, False))

    # ------------------------------------------------------------------ containers
    def _commit_batches(self, context: dg.OutputContext, scope: LakeScope, sync: ContainerSync) -> None:
        """Commits the write batches of a container's sync one by one, then adds metadata and events.

        Each partition that was written gets its own row count.
        """
        container, table = sync.container, sync.table
        written: list[Window] = []
        outcomes: list[WriteResult] = []
        replaced_whole = False
        for step in sync.write_batches():
            if sync.needs_spark():
                # The session is opened before the step opens its snapshot of the source, so that none is held while a JVM starts.
                sync.prepare_spark(scope.spark)
            try:
                with step as write_batch:
                    # Another host may have taken the container over while the rows were read.
                    scope.expect_lease()
                    outcome = commit(lambda: scope.spark, table, write_batch, context.log.info)
                    sync.sweep(lambda: scope.spark, write_batch, outcome, scope.expect_lease)
                    sync.inspect(lambda: scope.spark, outcome)
            except ReadAgain as again:
                context.log.info(f"{container.label}: {again}")
                continue
            sync.committed(write_batch, outcome)
            written += write_batch.windows
            outcomes.append(outcome)
            # An append that is one commit without NULL identifiers replaces exactly the windows that it read. An upsert leaves other rows
            # in them.
            replaced_whole = container.strategy is Strategy.APPEND and not write_batch.include_nulls and len(outcomes) == 1
        with lake_errors(container.label, table.url):
            keys = sorted(context.asset_partition_keys) if context.has_asset_partitions else []
            partitions, known = sync.partitions, sync.rows_of(keys)
            rows: dict[str, int] = {}
            if known is not None:
                rows = dict(known)
            elif partitions is not None and replaced_whole and len(keys) == 1 and tuple(written) == partitions.windows_of(keys):
                # One partition was replaced as a whole by the rows that were read, so their number is known without counting.
                rows = {keys[0]: outcomes[0].rows_read}
            elif partitions is not None:
                counted = sorted({*keys, *sync.changed_partitions()})
                rows = partition_rows(lambda: scope.spark, table, container, partitions, merge(written), counted)
            total = sync.total_rows()
            if total is None:
                total = row_count(lambda: scope.spark, table)
        common = {**as_metadata(sync.metadata()), "dagster/row_count": total}
        context.add_output_metadata(common)
        of_the_run = set(keys)
        # Rows may also have landed in partitions that the run was not launched with. Their keys must exist before there is an event of
        # them, and the events of these partitions are logged here, because Dagster makes those of the run's own partitions only.
        # That holds for a run without partitions too, such as one that materializes all assets.
        add_keys(context.step_context.instance, context.asset_spec.partitions_def, [key for key in rows if key not in of_the_run])
        own = {key: {**as_metadata(sync.partition_metadata(key)), "dagster/partition_row_count": count} for key, count in rows.items()}
        add_metadata_of_partitions(context, {key: metadata for key, metadata in own.items() if key in of_the_run})
        for key, metadata in own.items():
            if key not in of_the_run:
                context.log_event(dg.AssetMaterialization(context.asset_key, partition=key, metadata={**common, **metadata}))

    # ------------------------------------------------------------------ DataFrames of a user's own assets
    def _write_frame(self, context: dg.OutputContext, scope: LakeScope, frame: "DataFrame") -> None:
        """Overwrites the partitions of the run, or the whole table of an asset without partitions, with the DataFrame, in one commit."""
        path = tuple(encode_name(part) for part in context.asset_key.path)
        table, label, run = scope.table(*path), "/".join(context.asset_key.path), context.step_context
        writer = frame.write.format("delta").mode("overwrite")
        identifier: Identifier | None = None
        if context.has_asset_partitions:
            column = _column(dict(context.definition_metadata or {}), context.asset_key)
            identifier = _identifier(column, dict(frame.dtypes), context.asset_key)
            windows = _windows(context, identifier.cursor_type)
            # Delta refuses rows outside of this predicate. So a DataFrame cannot change other partitions than those of the run.
            writer = writer.option("replaceWhere", scope_predicate(identifier, windows, False))
        else:
            writer = writer.option("overwriteSchema", "true")
        with scope.held(path, label, run.run_id, run.instance, context.log.info), lake_errors(label, table.url):
            writer.save(table.url)
            context.add_output_metadata({"dagster/uri": table.url, "dagster/row_count": row_count(lambda: scope.spark, table)})


def add_metadata_of_partitions(context: dg.OutputContext, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds metadata to the materializations of single partitions of the run.

    ``step_context.add_asset_metadata`` does the same for one partition, but it reads all partition keys of the asset at each call: with
    10,000 partitions it takes an hour (see the characterization tests).
    """
    step = context.step_context
    added = {AssetMetadataHandle(asset_key=context.asset_key, partition_key=key): own for key, own in metadata.items()}
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata={**step._metadata_accumulator.per_output_metadata, **added})


def _head_columns(table: LakeTable):
    head = table.head()
    assert head is not None
    return head.columns


def _column(metadata: dict[str, Any], key: dg.AssetKey) -> str:
    """The column that the partitions go by. Raises ConfigurationError where the asset's metadata names none."""
    value = metadata.get(PARTITION_EXPR)
    column = getattr(value, "value", value)
    if not isinstance(column, str):
        raise ConfigurationError(
            f"{'/'.join(key.path)}: the column of its partitions is not known. Add @asset(metadata={{'partition_expr': '<column>'}})."
        )
    return column


def _identifier(column: str, types: dict[str, str], key: dg.AssetKey) -> Identifier:
    """The column as an identifier with its cursor type. ``types``: Spark types by column name.

    Raises ConfigurationError where there is no such column, or where it is not a date, a timestamp or an integer.
    """
    if column not in types:
        raise ConfigurationError(f"{'/'.join(key.path)}: partition_expr names {column!r}; the columns are {', '.join(types)}.")
    cursor_type = _CURSOR_TYPES.get(types[column], CursorType.INTEGER)
    if cursor_type is CursorType.INTEGER and not types[column].startswith(("bigint", "int", "smallint", "tinyint", "decimal")):
        raise ConfigurationError(
            f"{'/'.join(key.path)}: partition_expr {column!r} is {types[column]}; a date, timestamp or integer is needed."
        )
    return Identifier((column,), _TYPES.get(cursor_type, IdentifierType.INTEGER), cursor_type)


def _windows(context: dg.OutputContext | dg.InputContext, cursor_type: CursorType) -> Sequence[Window]:
    """The windows of the partition keys of the context."""
    return own_windows("/".join(context.asset_key.path), cursor_type, context.asset_partitions_def, list(context.asset_partition_keys))


@dg.io_manager(required_resource_keys={"lake"}, description="Delta tables in the lake: partitions are overwritten or merged.")
def delta_io_manager() -> DeltaIOManager:
    """The IO manager as a Dagster resource. It needs the resource ``lake``."""
    return DeltaIOManager()
