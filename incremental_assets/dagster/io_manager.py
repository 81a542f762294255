"""The IO manager: containers' extractions become commits; anybody's DataFrame becomes partitions of a Delta table; both are read back.

Belongs here: the passage between Dagster's contexts and ``write``. Does not belong: planning, or the strategies themselves.

For assets of your own: return a Spark DataFrame, and name the column that the partitions go by in the asset's metadata as
``partition_expr``. The asked partitions are overwritten in one commit, while no other run writes to the table. Load a container, or one of
its partitions, by depending on it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator

from incremental_assets.core.axis import Axis, IdentifierType
from incremental_assets.core.container import Identifier
from incremental_assets.core.errors import ConfigurationError, LakeError, LakeMoved
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import encode_name
from incremental_assets.core.window import Window, merge
from incremental_assets.dagster.metadata import as_metadata
from incremental_assets.dagster.own_partitions import own_windows
from incremental_assets.dagster.partitioning import WINDOWS_METADATA, from_windows_metadata
from incremental_assets.delta.counts import partition_rows, row_count
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.extraction import Extractions, Outcome
from incremental_assets.delta.scope import LakeScope, Written
from incremental_assets.delta.sql import file_predicate, scope_predicate
from incremental_assets.delta.table import LakeTable
from incremental_assets.delta.write import commit

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame

PARTITION_EXPR = "partition_expr"
"""Dagster's conventional metadata key for the column that partitions go by."""
OF_A_CONTAINER = "sync/strategy"
"""A metadata key that containers' assets have."""

MOST_RETRIES = 3
RETRY_SECONDS = 2

_AXES = {"date": Axis.DAY, "timestamp_ntz": Axis.LOCAL, "timestamp": Axis.INSTANT}
_TYPES = {Axis.DAY: IdentifierType.DATE, Axis.LOCAL: IdentifierType.DATETIME, Axis.INSTANT: IdentifierType.TIMESTAMP}


class DeltaIOManager(dg.IOManager):
    """Writes ``Extractions`` and Spark DataFrames to ``<lake>/<asset key>``; loads DataFrames of one partition, a range, or all."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        scope: LakeScope = context.resources.lake  # pyright: ignore[reportAttributeAccessIssue]
        try:
            if isinstance(obj, Extractions):
                self._write_extractions(context, scope, obj)
            else:
                self._write_frame(context, scope, obj)
        except LakeMoved as moved:  # by what a killed run had left running, or by another host: planned anew, it holds
            scope.interrupt()
            context.log.warning(str(moved))
            raise dg.RetryRequested(max_retries=MOST_RETRIES, seconds_to_wait=RETRY_SECONDS) from moved
        except BaseException:
            scope.interrupt()
            raise

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        scope: LakeScope = context.resources.lake  # pyright: ignore[reportAttributeAccessIssue]
        upstream = context.upstream_output
        metadata = dict(upstream.definition_metadata or {}) if upstream else {}
        # A container's key is made of encoded names already.
        parts = context.asset_key.path if OF_A_CONTAINER in metadata else map(encode_name, context.asset_key.path)
        table = scope.table(*parts)
        if table.head() is None:
            raise LakeError(f"{'/'.join(context.asset_key.path)} has no table at {table.url} yet; materialize it first.")
        frame = scope.assets_spark.read.format("delta").load(table.url)
        if not context.has_asset_partitions:
            return frame
        described = metadata.get(WINDOWS_METADATA)
        if described is not None:  # a container: its own windows, so that early and late rows are not left out
            data = getattr(described, "data", described)
            if data.get("by_file"):
                return frame.where(file_predicate(list(context.asset_partition_keys)))
            identifier, partitions = from_windows_metadata(data, context.asset_partitions_def, context.instance)
            windows = partitions.windows_of(context.asset_partition_keys)
        else:
            column = _column(metadata, context.asset_key)
            identifier = _identifier(column, {c.name: c.type for c in _head_columns(table)}, context.asset_key)
            windows = _windows(context, identifier.axis)
        return frame.where(scope_predicate(identifier, windows, False))

    # ------------------------------------------------------------------ containers
    def _write_extractions(self, context: dg.OutputContext, scope: LakeScope, output: Extractions) -> None:
        container = output.container
        table = scope.table(*container.key_path)
        written: list[Window] = []
        outcomes: list[Outcome] = []
        replaced_whole = nulls = False
        for step in output.steps:
            spark = scope.spark  # before the step freezes its source, which must not wait for a JVM that starts
            with step as extraction:
                scope.expect_lease()
                outcome = commit(spark, table, extraction, context.log.info)
            output.done(extraction, outcome)
            written += extraction.windows
            nulls = nulls or extraction.include_nulls
            outcomes.append(outcome)
            replaced_whole = container.strategy is Strategy.APPEND and not extraction.include_nulls and len(outcomes) == 1
        with lake_errors(container.label, table.url):
            keys = sorted(context.asset_partition_keys) if context.has_asset_partitions else []
            partitions = output.partitions
            rows: dict[str, int] = {}
            if output.rows_of is not None:
                rows = dict(output.rows_of(keys))
            elif partitions is not None and replaced_whole and len(keys) == 1 and tuple(written) == partitions.windows_of(keys):
                rows = {keys[0]: outcomes[0].rows_read}  # one partition was replaced by what was read: nothing to count
            elif partitions is not None:
                rows = partition_rows(lambda: scope.spark, table, container, partitions, merge(written), keys)
            total = row_count(lambda: scope.spark, table) if output.total is None else output.total()
        common = {**as_metadata(output.metadata()), "dagster/row_count": total}
        context.add_output_metadata(common)
        scope.written[container.key_path] = Written(tuple(rows), nulls)
        of_the_run = set(keys)
        output.before_outside([key for key in rows if key not in of_the_run])
        own = {key: {**as_metadata(output.of_partition(key)), "dagster/partition_row_count": count} for key, count in rows.items()}
        add_metadata_of_partitions(context, {key: metadata for key, metadata in own.items() if key in of_the_run})
        for key, metadata in own.items():
            if key not in of_the_run:
                context.log_event(dg.AssetMaterialization(context.asset_key, partition=key, metadata={**common, **metadata}))

    # ------------------------------------------------------------------ anybody's DataFrame
    def _write_frame(self, context: dg.OutputContext, scope: LakeScope, frame: "DataFrame") -> None:
        path = tuple(encode_name(part) for part in context.asset_key.path)
        table, label, run = scope.table(*path), "/".join(context.asset_key.path), context.step_context
        writer = frame.write.format("delta").mode("overwrite")
        identifier: Identifier | None = None
        if context.has_asset_partitions:
            column = _column(dict(context.definition_metadata or {}), context.asset_key)
            identifier = _identifier(column, dict(frame.dtypes), context.asset_key)
            windows = _windows(context, identifier.axis)
            writer = writer.option("replaceWhere", scope_predicate(identifier, windows, False))
        else:
            writer = writer.option("overwriteSchema", "true")
        with scope.held(path, label, run.run_id, run.instance, context.log.info), lake_errors(label, table.url):
            writer.save(table.url)
            context.add_output_metadata({"dagster/uri": table.url, "dagster/row_count": row_count(lambda: scope.spark, table)})


def add_metadata_of_partitions(context: dg.OutputContext, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """What ``step_context.add_asset_metadata`` does for one partition of the run, which reads all keys of the asset each time: with 10,000
    partitions it takes an hour (see the characterization tests)."""
    step = context.step_context
    added = {AssetMetadataHandle(asset_key=context.asset_key, partition_key=key): own for key, own in metadata.items()}
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata={**step._metadata_accumulator.per_output_metadata, **added})


def _head_columns(table: LakeTable):
    head = table.head()
    assert head is not None
    return head.columns


def _column(metadata: dict[str, Any], key: dg.AssetKey) -> str:
    value = metadata.get(PARTITION_EXPR)
    column = getattr(value, "value", value)
    if not isinstance(column, str):
        raise ConfigurationError(
            f"{'/'.join(key.path)}: its partitions go by which column? Say so: @asset(metadata={{'partition_expr': '<column>'}})."
        )
    return column


def _identifier(column: str, types: dict[str, str], key: dg.AssetKey) -> Identifier:
    if column not in types:
        raise ConfigurationError(f"{'/'.join(key.path)}: partition_expr names {column!r}; the columns are {', '.join(types)}.")
    axis = _AXES.get(types[column], Axis.INTEGER)
    if axis is Axis.INTEGER and not types[column].startswith(("bigint", "int", "smallint", "tinyint", "decimal")):
        raise ConfigurationError(
            f"{'/'.join(key.path)}: partition_expr {column!r} is {types[column]}; a date, timestamp or integer is needed."
        )
    return Identifier((column,), _TYPES.get(axis, IdentifierType.INTEGER), axis)


def _windows(context: dg.OutputContext | dg.InputContext, axis: Axis) -> Sequence[Window]:
    return own_windows("/".join(context.asset_key.path), axis, context.asset_partitions_def, list(context.asset_partition_keys))


@dg.io_manager(required_resource_keys={"lake"}, description="Delta tables in the lake: partitions are overwritten or merged.")
def delta_io_manager() -> DeltaIOManager:
    return DeltaIOManager()
