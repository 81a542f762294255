"""Records what an audit has found: evaluations of the check ``complete``, and a row in the records of the datastore.

The check is logged by the run that has compared, and is never executed by itself: it would have to sync first. A run that audits nothing
logs its last state again (``runs.quality.evaluations.repeat_evaluations``).
"""

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, audit_settings
from incremental_assets.core.audit import message_of, summary_of
from incremental_assets.core.comparison import Checksum, Comparison, PartitionDifference
from incremental_assets.core.shown_text import counted
from incremental_assets.core.unfilled import keys_of
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.operation_tables import EndedAs, OperationKind
from incremental_assets.delta.scope import LakeScope
from incremental_assets.quality.records import Records
from incremental_assets.runs.dagster_internals.event_batches import log_evaluations_together
from incremental_assets.runs.partitions import container_key, keys_of_run, partitions_definition
from incremental_assets.runs.quality.evaluations import COMPLETE
from incremental_assets.runs.records.run_tags import started_by


def report_audit(context: dg.AssetExecutionContext, definition: ContainerDefinition, found: Comparison) -> None:
    """Logs the evaluations of the check, if the container has it, and records the audit."""
    container = definition.container
    if audit_settings(definition) is not None:
        inner = context.op_execution_context
        log_evaluations_together(inner, _evaluations(definition, found, keys_of_run(inner, definition)))
    summary = summary_of(found)
    scope: LakeScope = context.resources.lake
    scope.operations.add(
        OperationKind.AUDIT,
        container,
        EndedAs.SUCCESS if found.equal else EndedAs.WARNING,
        summary["seconds"],
        rows=summary["rows"],
        partitions=summary["partitions_checked"],
        table_version=summary["delta_version"],
        message=message_of(found),
    )
    Records(scope.lake, container.key_path[0]).record_audit(
        container.label, context.run.run_id, summary, message_of(found), started_by(context.run.tags), time.time_ns() // 1000
    )


def report_unfilled(context: dg.AssetExecutionContext, definition: ContainerDefinition, sync: ContainerSync) -> None:
    """Logs that partitions differ, where a sync has found older rows without values of a column that was added; and that they no longer
    do, where a refresh has read all of their rows. Without the check nothing is logged."""
    state, after = sync.result.plan.state, sync.result.unfilled
    before = state.unfilled if state is not None else None
    if audit_settings(definition) is None or before == after:
        return
    had, has = keys_of(before, sync.partitions), keys_of(after, sync.partitions)
    columns = ", ".join(after.columns) if after is not None else ""
    made = [_unfilled(definition, key, None) for key in had if key not in has]
    made += [_unfilled(definition, key, columns) for key in has if key not in had]
    log_evaluations_together(context.op_execution_context, made)


def _unfilled(definition: ContainerDefinition, key: str, columns: str | None) -> dg.AssetCheckEvaluation:
    """The evaluation of one partition. ``columns``: those that older rows lack; None if the partition was refreshed."""
    lacks = f"refresh needed: older rows lack values of {columns} that the source has"
    return _complete(definition, key, columns is None, "a refresh has read all rows anew" if columns is None else lacks)


def _evaluations(definition: ContainerDefinition, found: Comparison, planned: list[str] | None) -> list[dg.AssetCheckEvaluation]:
    """An evaluation for each partition that was compared or planned, and one for the whole run where Dagster expects that. Those that
    differ come last, as the UI shows the newest evaluation of a check without partition."""
    different = {one.key: one for one in found.different}
    places: dict[str | None, PartitionDifference | None] = {key: different.get(key) for key in (*found.keys, *(planned or ()))}
    whole = partitions_definition(definition) is None or planned is None
    made = [_evaluation(definition, key, one, found) for key, one in places.items() if key is not None]
    if whole or None in places:
        made.append(
            dg.AssetCheckEvaluation(
                asset_key=container_key(definition.container), check_name=COMPLETE, passed=found.equal, description=message_of(found),
                metadata={"audit/rows": found.rows, **{f"audit/{kind.value}": number for kind, number in found.counts.items()}},
            )
        )  # fmt: skip
    return sorted(made, key=lambda one: not one.passed)


def _evaluation(
    definition: ContainerDefinition, key: str, different: PartitionDifference | None, found: Comparison
) -> dg.AssetCheckEvaluation:
    sides = (different.source, different.lake) if different is not None else (Checksum(), Checksum())
    differs = f"source and lake differ: {counted(sides[0].rows, 'row')} in the source, {sides[1].rows:,} in the lake"
    if different is not None and different.reason is not None:
        differs = different.reason
    said = "source and lake have equal rows" if different is None else differs
    return _complete(definition, key, different is None, said, {"audit/delta_version": found.version})


def _complete(
    definition: ContainerDefinition, key: str, passed: bool, description: str, metadata: Mapping[str, Any] | None = None
) -> dg.AssetCheckEvaluation:
    """An evaluation of the check for one partition."""
    return dg.AssetCheckEvaluation(
        asset_key=container_key(definition.container),
        check_name=COMPLETE,
        passed=passed,
        description=description,
        partition=key,
        metadata=metadata or {},
    )
