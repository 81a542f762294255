"""Logs the results of a scan as Dagster events: an evaluation of each rule and partition, and an observation of the asset.

Partitioned checks are a preview in Dagster. In a run over several partitions, a result that a check yields is stored without a partition,
and what was planned for each partition stays planned. So the evaluation of each partition is logged by itself, and nothing is yielded.
Dagster does not enforce `blocking` then, so ``enforce`` does. The characterization tests pin the behaviour of Dagster that this relies on.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Recorded
from dagster_shared.record import replace

from incremental_assets.catalog.definition import ContainerDefinition, audit_settings
from incremental_assets.core.rules.examples import example_in
from incremental_assets.core.rules.rule import FailedRow, Rule, Severity, Status, Verdict
from incremental_assets.core.rules.table import TableRule
from incremental_assets.core.shown_text import counted
from incremental_assets.runs.dagster_internals.event_batches import log_evaluations_together
from incremental_assets.runs.partitions import container_key, keys_of_run, partitions_definition
from incremental_assets.runs.quality.summary import ScanSummary, summary_metadata
from incremental_assets.runs.quality.tables import rows_of, samples

COMPLETE = "complete"
"""The name of the check that audits evaluate."""
RETAINED = "retained_log"
"""The name of the check of a container that follows the log of its source: how much of it the source keeps."""
_MOST_KNOWN = 1000
"""How many of a check's evaluations are looked at for its state in all partitions."""
_SEVERITY = {Severity.WARN: dg.AssetCheckSeverity.WARN, Severity.ERROR: dg.AssetCheckSeverity.ERROR}


def log_evaluations(context: Any, definition: ContainerDefinition, summary: ScanSummary, planned: Sequence[str] | None) -> None:
    """Logs an evaluation of each rule and partition, and an observation with the summary of the scan.

    The failed evaluations are logged last: where no partition was planned, the UI shows the newest evaluation of a check.

    ``planned``: the partitions of the run. Dagster has planned an evaluation of each of them, and each has to get one. None means that
    Dagster expects one evaluation without partition.
    """
    container = definition.container
    key = container_key(container)
    partitioned = partitions_definition(definition) is not None
    targets = _targets(context.instance, key, {verdict.partition for verdict in summary.result.verdicts} | set(planned or ()))
    by_rule: dict[str, dict[str | None, Verdict]] = {}
    for verdict in summary.result.verdicts:
        by_rule.setdefault(verdict.rule, {})[verdict.partition] = verdict
    evaluations: list[dg.AssetCheckEvaluation] = []
    for name, verdicts in by_rule.items():
        rule = summary.rules[name]
        everywhere = False
        # A rule of the whole table has one verdict, which is the same for each partition.
        if isinstance(rule, TableRule):
            by_partition: dict[str | None, Verdict] = dict.fromkeys(planned or [None], verdicts[None])
        else:
            # The verdict on the rows without identifier, which are in no partition, comes first.
            by_partition = dict(sorted(verdicts.items(), key=lambda item: item[0] is not None))
            # Dagster expects one evaluation of the whole run then.
            if partitioned and planned is None and verdicts:
                by_partition[None], everywhere = overall(list(verdicts.values())), True
        for place, verdict in by_partition.items():
            rows = rows_of(summary.result.failed_rows, rule.id, place, everywhere=everywhere and place is None)
            evaluations.append(_evaluation(key, rule, place, verdict, summary, targets.get(place), rows))
    log_evaluations_together(context, sorted(evaluations, key=lambda one: not one.passed))
    context.log_event(dg.AssetObservation(key, description=summary.operation.message, metadata=summary_metadata(summary)))


def repeat_evaluations(context: Any, definition: ContainerDefinition) -> None:
    """Logs, in a run that writes nothing, the last known state of each check again for the run's partitions. It is still their state.

    Dagster has planned an evaluation of each check and partition. Those that stay planned would be shown as skipped.
    """
    for rule in definition.container.options.checks:
        _repeat(context, definition, rule.id, _SEVERITY[rule.severity])
    if audit_settings(definition) is not None:
        repeat_complete(context, definition)
    if definition.container.is_captured:
        repeat_retained(context, definition)


def repeat_complete(context: Any, definition: ContainerDefinition) -> None:
    """Does the same for the check that audits evaluate. In a run that has audited, nothing is left to be logged."""
    _repeat(context, definition, COMPLETE, dg.AssetCheckSeverity.ERROR)


def repeat_retained(context: Any, definition: ContainerDefinition) -> None:
    """Does the same for the check of the retained log. In a run that has read the log, nothing is left."""
    _repeat(context, definition, RETAINED, dg.AssetCheckSeverity.WARN)


def _repeat(context: Any, definition: ContainerDefinition, name: str, severity: dg.AssetCheckSeverity) -> None:
    key, storage, keys = container_key(definition.container), context.instance.event_log_storage, keys_of_run(context, definition)
    check = dg.AssetCheckKey(key, name)
    for place in keys or [None]:
        newest = storage.get_asset_check_execution_history(check, limit=1, partition_filter=PartitionKeyFilter(key=place))
        # Another run may have planned or evaluated the check since; its state is newer than what is repeated here.
        if not newest or newest[0].status is not Recorded.PLANNED or newest[0].run_id != context.run.run_id:
            continue
        known = _last_known(storage, check, place)
        context.log_event(
            known
            if known is not None
            else dg.AssetCheckEvaluation(
                asset_key=key, check_name=name, passed=True, severity=severity, partition=place,
                description="unasserted: nothing has looked before", metadata={"quality/status": "unasserted"},
            )
        )  # fmt: skip


def _last_known(storage: Any, check: dg.AssetCheckKey, place: str | None) -> dg.AssetCheckEvaluation | None:
    """The newest evaluation of the check in the partition; of a run without partitions, which may be of all, one that failed in any."""
    evaluated = {Recorded.SUCCEEDED, Recorded.FAILED}
    found = storage.get_asset_check_execution_history(check, limit=1, status=evaluated, partition_filter=PartitionKeyFilter(key=place))
    if place is None and not found:
        newest: dict[str | None, Any] = {}
        for record in storage.get_asset_check_execution_history(check, limit=_MOST_KNOWN, status=evaluated):
            newest.setdefault(record.partition, record)
        found = sorted(newest.values(), key=lambda record: record.status is not Recorded.FAILED)
    event = found[0].event if found else None
    if event is None or event.dagster_event is None:
        return None
    data = event.dagster_event.asset_check_evaluation_data
    return replace(data, partition=place) if data.partition != place else data


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a rule on all partitions of a scan: the worst status, with the row counts of all partitions.

    Errored is worse than failed, which is worse than passed, which is worse than unasserted.
    """
    order = (Status.UNASSERTED, Status.PASSED, Status.FAILED, Status.ERRORED)
    worst = max(verdicts, key=lambda verdict: order.index(verdict.status))
    asserted = sum(verdict.asserted for verdict in verdicts)
    failed = None if worst.failed is None else sum(verdict.failed or 0 for verdict in verdicts)
    alike = sum(1 for verdict in verdicts if verdict.status is worst.status)
    where = f"; {worst.partition or 'the rows without identifier'}: {worst.message}" if worst.status is not Status.PASSED else ""
    message = f"{alike} of {counted(len(verdicts), 'partition')}{where}" if len(verdicts) > 1 else worst.message
    return Verdict(
        worst.rule, None, worst.status, worst.severity, worst.blocking, sum(verdict.rows for verdict in verdicts), asserted, failed,
        None if failed is None or not asserted else failed / asserted, message,
    )  # fmt: skip


def _targets(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: set[str | None]
) -> dict[str | None, AssetCheckEvaluationTargetMaterializationData]:
    """The newest materialization of each partition, by partition; None stands for the asset without partition.

    The UI shows an evaluation only where it names the newest materialization of its partition.
    """
    named = {partition for partition in partitions if partition is not None}
    found: dict[str | None, AssetCheckEvaluationTargetMaterializationData] = {}
    if named:
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        newest = instance.event_log_storage.get_latest_storage_id_by_partition(key, kind, named)
        chosen = dg.AssetRecordsFilter(asset_key=key, storage_ids=list(newest.values()))
        for record in instance.fetch_materializations(chosen, limit=len(newest)).records if newest else ():
            found[record.partition_key] = _target(record)
    for record in instance.fetch_materializations(key, limit=1).records if None in partitions else ():
        found[None] = _target(record)
    return found


def _target(record: dg.EventLogRecord) -> AssetCheckEvaluationTargetMaterializationData:
    return AssetCheckEvaluationTargetMaterializationData(storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp)


def _evaluation(
    key: dg.AssetKey,
    rule: Rule,
    place: str | None,
    verdict: Verdict,
    summary: ScanSummary,
    target: AssetCheckEvaluationTargetMaterializationData | None,
    rows: Sequence[FailedRow],
) -> dg.AssetCheckEvaluation:
    """The Dagster evaluation of one verdict. ``rows``: some of the failed rows; none where the container keeps no samples."""
    values: dict[str, Any] = {
        "quality/status": verdict.status.value,
        "quality/rows_asserted": dg.MetadataValue.int(verdict.asserted),
        "quality/rows_unasserted": dg.MetadataValue.int(verdict.unasserted),
        "quality/passes": dg.MetadataValue.int(summary.result.passes),
    }
    if verdict.failed is not None:
        values["quality/rows_failed"] = dg.MetadataValue.int(verdict.failed)
    if verdict.value is not None:
        values["quality/value"] = dg.MetadataValue.float(verdict.value)
    if rows:
        values["quality/samples"] = samples(rows)
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=rule.id,
        passed=verdict.status in (Status.PASSED, Status.UNASSERTED),
        severity=_SEVERITY[rule.severity],
        description=f"{verdict.status.value}: {verdict.message}{example_in(rule, rows)}",
        partition=place,
        metadata=values,
        target_materialization_data=target,
    )


def enforce(definition: ContainerDefinition, summary: ScanSummary) -> None:
    """Raises dagster.Failure where a blocking rule is broken, so that assets downstream do not run.

    Dagster does not do this for evaluations that are logged and not yielded.
    """
    if not summary.blocked:
        return
    by_rule: dict[str, list[str]] = {}
    for verdict in summary.blocked:
        nowhere = "the whole container" if partitions_definition(definition) is None else "the rows without identifier"
        by_rule.setdefault(verdict.rule, []).append(verdict.partition or nowhere)
    broken = "; ".join(
        f"{rule} in {', '.join(places[:10])}{f' and {len(places) - 10} more' if len(places) > 10 else ''}"
        for rule, places in by_rule.items()
    )
    raise dg.Failure(
        f"{definition.container.label}: blocking rules are broken: {broken}. What is downstream does not run.", allow_retries=False
    )
