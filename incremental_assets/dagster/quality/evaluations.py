"""What became of a scan, as Dagster's events: an evaluation of each rule and partition, and an observation of the asset.

Belongs here: from verdicts to events. Does not belong: the checks' definitions (``checks``), how a verdict was reached (``quality.judge``).

Partitioned checks are a preview in Dagster. In a run over several partitions what a check yields is stored without a partition, and what
was planned for each stays planned. So each partition's evaluation is logged by itself, and nothing is yielded; `blocking` is then ours to
enforce. What this leans on is pinned by the characterization tests.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Recorded

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.rules import ExpectedSchema, Freshness, Rule, Severity
from incremental_assets.dagster.partitions import container_key, keys_of_run, partitions_definition
from incremental_assets.dagster.quality.scanning import Summary
from incremental_assets.dagster.quality.summary import summary_metadata
from incremental_assets.dagster.quality.tables import samples
from incremental_assets.dagster.runs.event_batches import log_evaluations_together
from incremental_assets.quality.verdict import Status, Verdict

_SEVERITY = {Severity.WARN: dg.AssetCheckSeverity.WARN, Severity.ERROR: dg.AssetCheckSeverity.ERROR}


def log_evaluations(context: Any, definition: ContainerDefinition, summary: Summary, planned: Sequence[str] | None) -> None:
    """An evaluation of each rule and partition, and what became of the scan.

    The broken ones come last: where no partition was planned, the newest is what the UI shows of the check.

    ``planned``: the partitions of the run, each of which has to be told of (None: Dagster expects an evaluation without partition).
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
        if isinstance(rule, ExpectedSchema | Freshness):  # of the table: the same for each partition
            told: dict[str | None, Verdict] = dict.fromkeys(planned or [None], verdicts[None])
        else:
            told = dict(sorted(verdicts.items(), key=lambda item: item[0] is not None))  # the rows of no partition first
            if partitioned and planned is None and verdicts:  # for the whole run
                told[None], everywhere = overall(list(verdicts.values())), True
        for place, verdict in told.items():
            shown = samples(summary.result.failed_rows, rule.id, place, everywhere=everywhere and place is None)
            evaluations.append(_evaluation(key, rule, place, verdict, summary, targets.get(place), shown))
    log_evaluations_together(context, sorted(evaluations, key=lambda one: not one.passed))
    context.log_event(dg.AssetObservation(key, description=summary.operation.message, metadata=summary_metadata(summary)))


def repeat_evaluations(context: Any, definition: ContainerDefinition) -> None:
    """In a run that writes nothing: what was planned for its partitions gets the state that they had, and that is theirs still.

    Without, Dagster takes what stays planned for skipped, and shows that.
    """
    key, storage, keys = container_key(definition.container), context.instance.event_log_storage, keys_of_run(context, definition)
    for rule in definition.container.options.checks:
        check = dg.AssetCheckKey(key, rule.id)
        for place in keys or [None]:
            newest = storage.get_asset_check_execution_history(check, limit=1, partition_filter=PartitionKeyFilter(key=place))
            if not newest or newest[0].status is not Recorded.PLANNED or newest[0].run_id != context.run.run_id:
                continue
            known = storage.get_asset_check_execution_history(
                check, limit=1, status={Recorded.SUCCEEDED, Recorded.FAILED}, partition_filter=PartitionKeyFilter(key=place)
            )
            last = known[0].event if known else None
            event = last.dagster_event if last is not None else None
            context.log_event(
                event.asset_check_evaluation_data
                if event is not None
                else dg.AssetCheckEvaluation(
                    asset_key=key, check_name=rule.id, passed=True, severity=_SEVERITY[rule.severity], partition=place,
                    description="unasserted: nothing was written, and no scan has looked before", metadata={"quality/status": "unasserted"},
                )
            )  # fmt: skip


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of all partitions of a scan: the worst of them, with the rows of all."""
    order = (Status.UNASSERTED, Status.PASSED, Status.FAILED, Status.ERRORED)
    worst = max(verdicts, key=lambda verdict: order.index(verdict.status))
    asserted = sum(verdict.asserted for verdict in verdicts)
    failed = None if worst.failed is None else sum(verdict.failed or 0 for verdict in verdicts)
    alike = sum(1 for verdict in verdicts if verdict.status is worst.status)
    where = f"; {worst.partition or 'the rows without identifier'}: {worst.message}" if worst.status is not Status.PASSED else ""
    message = f"{alike} of {len(verdicts)} partitions{where}" if len(verdicts) > 1 else worst.message
    return Verdict(
        worst.rule, None, worst.status, worst.severity, worst.blocking, sum(verdict.rows for verdict in verdicts), asserted, failed,
        None if failed is None or not asserted else failed / asserted, message,
    )  # fmt: skip


def _targets(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: set[str | None]
) -> dict[str | None, AssetCheckEvaluationTargetMaterializationData]:
    """The newest materialization of each partition: an evaluation that names no other than that is the one that the UI shows."""
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
    summary: Summary,
    target: AssetCheckEvaluationTargetMaterializationData | None,
    shown: dg.MetadataValue[Any] | None,
) -> dg.AssetCheckEvaluation:
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
    if shown is not None:
        values["quality/samples"] = shown
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=rule.id,
        passed=verdict.status in (Status.PASSED, Status.UNASSERTED),
        severity=_SEVERITY[rule.severity],
        description=f"{verdict.status.value}: {verdict.message}",
        partition=place,
        metadata=values,
        target_materialization_data=target,
    )


def enforce(definition: ContainerDefinition, summary: Summary) -> None:
    """Dagster does not do it for evaluations that are logged."""
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
