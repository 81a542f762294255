"""Records how much of its log a source keeps for a container: evaluations of the check ``retained_log``.

The check is logged by the run that syncs, which asks the source anyway, and needs no Spark. A run that cannot read the log, as the source
has removed it, logs that before it fails.
"""

import functools
from collections.abc import Callable

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.capture import RetainedLog
from incremental_assets.core.duration import for_people
from incremental_assets.core.errors import LogLost
from incremental_assets.runs.dagster_internals.event_batches import log_evaluations_together
from incremental_assets.runs.partitions import container_key, keys_of_run
from incremental_assets.runs.quality.evaluations import RETAINED
from incremental_assets.runs.records.metadata import as_metadata


def report_retained(context: dg.AssetExecutionContext, definition: ContainerDefinition, retained: RetainedLog | None) -> None:
    """Logs the evaluation in a run. ``retained``: None where the container does not follow the log of its source."""
    if retained is None:
        return
    since = "" if retained.seconds is None else f"; its oldest transaction was committed {for_people(retained.seconds)} ago"
    values = {"capture/slot": retained.slot, "capture/retained_bytes": retained.bytes, "capture/warning_bytes": retained.most}
    if retained.seconds is not None:
        values["capture/retained_seconds"] = round(retained.seconds, 3)
    said = f"the source keeps {retained.bytes:,} bytes of its log for the replication slot {retained.slot}{since}"

    def evaluation(place: str | None) -> dg.AssetCheckEvaluation:
        return dg.AssetCheckEvaluation(
            asset_key=container_key(definition.container),
            check_name=RETAINED,
            passed=retained.warning is None,
            severity=dg.AssetCheckSeverity.WARN,
            description=retained.warning or said,
            partition=place,
            metadata=as_metadata(values),
        )

    _log(context, definition, evaluation)


def report_lost(context: dg.AssetExecutionContext, definition: ContainerDefinition, error: LogLost) -> None:
    """Logs in a run that the log was removed."""
    _log(context, definition, functools.partial(_lost, definition, error))


def report_lost_without_run(instance: dg.DagsterInstance, definition: ContainerDefinition, error: LogLost) -> None:
    """Records that the log was removed, where a plan has found it and no run was started."""
    instance.report_runless_asset_event(_lost(definition, error, None))


def _log(
    context: dg.AssetExecutionContext, definition: ContainerDefinition, evaluation: Callable[[str | None], dg.AssetCheckEvaluation]
) -> None:
    """Logs the evaluation for each partition of the run, for which Dagster has planned it although the check has none, and at last the one
    without partition, which is the state of the check."""
    inner = context.op_execution_context
    log_evaluations_together(inner, [evaluation(place) for place in (*(keys_of_run(inner, definition) or ()), None)])


def _lost(definition: ContainerDefinition, error: LogLost, place: str | None) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=container_key(definition.container),
        check_name=RETAINED,
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=str(error),
        partition=place,
    )
