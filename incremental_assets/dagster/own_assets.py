"""Writes what users' own assets return to their Delta tables, and finds the rows that own assets depend on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from incremental_assets.core.errors import LakeError
from incremental_assets.core.names import encode_name
from incremental_assets.core.own_rows import OwnRows
from incremental_assets.core.own_write import MERGE_KEYS, WriteMode, column_or_expression, expect_columns, parse_partition_expr, parse_write
from incremental_assets.dagster.frame_types import as_spark
from incremental_assets.dagster.own_partitions import dimensions_of, own_rows
from incremental_assets.delta.counts import row_count
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.own_frames import Partitioned, expr_types, fit
from incremental_assets.delta.own_tables import FrameResult, FrameWrite, write_frame
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.sql import axis_value, boxes_predicate
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.runs.records.metadata import add_metadata_of_partitions, as_metadata, plain

if TYPE_CHECKING:
    from pyspark.sql.dataframe import DataFrame


def write_own_asset(context: dg.OutputContext, scope: LakeScope, returned: object) -> None:
    """Writes the rows to the asset's table in one commit, as its metadata says, and adds metadata to its materializations.

    Raises ConfigurationError or FrameRefused, and then nothing was written.
    """
    path, label = tuple(map(encode_name, context.asset_key.path)), "/".join(context.asset_key.path)
    table, run, metadata = scope.table(*path), context.step_context, _metadata(context)
    write, step = parse_write(label, metadata), run.step.key
    frame = as_spark(label, returned, lambda: scope.assets_spark)
    with scope.held(path, label, run.run_id, run.instance, context.log.info), lake_errors(label, table.url):
        head = table.head()
        if head is not None and head.owner is not None:
            raise LakeError(f"{label}: {table.url} holds the table of {head.owner}; give the asset another key. Nothing was written.")
        replaced = write.mode is WriteMode.OVERWRITE and not context.has_asset_partitions
        fitted = fit(label, frame, None if replaced else head)
        write = replace(write, merge_keys=expect_columns(label, MERGE_KEYS, write.merge_keys, list(fitted.types)))
        rows = _rows(context, metadata, fitted.frame) if context.has_asset_partitions else None
        once = f"incremental_assets/{_first_run(context)}/{step}"
        note = {"asset": label, "run_id": run.run_id, "step": step, "attempt": run.previous_attempt_count, "write": write.mode.value}
        partitioned = _partitioned(context, rows) if rows is not None else None
        result = write_frame(table, head, FrameWrite(fitted, write, partitioned, once, note))
        if result.repeated:
            context.log.info(f"{label}: an earlier attempt of this step has appended its rows; nothing was appended again.")
        _add_metadata(context, scope, table, result)
        if rows is not None:
            _add_counts(context, scope, table, rows)


def _metadata(context: dg.OutputContext) -> dict[str, Any]:
    """The metadata of the asset's definition. What the asset's function has added in this run counts before it."""
    return plain({**(context.definition_metadata or {}), **(context.output_metadata or {})})


def own_predicate(context: dg.InputContext, metadata: Mapping[str, Any], frame: "DataFrame") -> str:
    """A condition for the rows of the partitions that an input is limited to. ``frame``: all rows of its table."""
    return boxes_predicate(_rows(context, metadata, frame).boxes())


def _rows(context: dg.OutputContext | dg.InputContext, metadata: Mapping[str, Any], frame: "DataFrame") -> OwnRows:
    """The rows of the partitions of the context. ``frame``: rows with the columns of the table."""
    label, definition = "/".join(context.asset_key.path), context.asset_partitions_def
    named = parse_partition_expr(label, metadata, dimensions_of(definition))
    exprs = [column_or_expression(label, one, frame.columns) for one in named]
    return own_rows(label, definition, expr_types(label, frame, exprs), list(context.asset_partition_keys))


def _partitioned(context: dg.OutputContext, rows: OwnRows) -> Partitioned:
    keys = list(context.asset_partition_keys)
    words = keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]}" if keys else "none"
    return Partitioned(boxes_predicate(rows.boxes()), tuple(axis.of for axis in rows.axes), words)


def _first_run(context: dg.OutputContext) -> str:
    """The run that began this step: the run itself or, if it executes failed steps of another run again, that one.

    A step that failed may have committed its rows before. A step that succeeded is a materialization of its own: who executes it again
    wants it to be done again.
    """
    run, instance, step = context.step_context.dagster_run, context.step_context.instance, context.step_context.step.key
    while run.parent_run_id is not None:
        parent = instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            break
        stats = instance.get_run_step_stats(parent.run_id, [step])
        if any(one.status is not None and one.status.value == "SUCCESS" for one in stats):
            break
        run = parent
    return run.run_id


def _add_metadata(context: dg.OutputContext, scope: LakeScope, table: LakeTable, result: FrameResult) -> None:
    head = table.head()
    assert head is not None
    known = {
        "dagster/uri": table.url,
        "dagster/row_count": row_count(lambda: scope.spark, table),
        "dagster/column_schema": head.columns,
        "write/rows_inserted": result.inserted,
        "write/rows_updated": result.updated,
        "write/rows_deleted": result.deleted,
        "write/delta_version": head.version,
    }
    context.add_output_metadata(as_metadata(known))


def _add_counts(context: dg.OutputContext, scope: LakeScope, table: LakeTable, rows: OwnRows) -> None:
    """Adds the number of rows to the materialization of each partition of the run, all of them by one query."""
    counts: dict[str, int] = {}
    for parts, key in rows.keys.items():
        # A key whose rows cannot be told from those of others has no count of its own.
        if all(axis.cursor_type is None or part in axis.windows for axis, part in zip(rows.axes, parts, strict=True)):
            counts[key] = 0
    values = ", ".join(axis_value(axis) for axis in rows.axes)
    statement = f"SELECT {values}, count(*) FROM {table.sql_name} WHERE {boxes_predicate(rows.boxes())} GROUP BY ALL"
    for *found, count in scope.spark.sql(statement).collect():
        key = rows.partition_of(found)
        if key is not None and key in counts:
            counts[key] += int(count)
    add_metadata_of_partitions(context, {key: {"dagster/partition_row_count": count} for key, count in counts.items()})


def types_of(head: Head) -> dict[str, str]:
    """The type of each column of a table by its name."""
    return {column.name: column.type for column in head.columns}
