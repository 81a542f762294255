"""A container's rules as Dagster asset checks: in the run of a sync right after the write, and in a scan job of their own."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, audit_settings
from incremental_assets.core.container import Container, OnNull
from incremental_assets.core.errors import ConfigurationError, ContainerBusy
from incremental_assets.core.rules.rule import Rule
from incremental_assets.delta.result import NULL_ROWS
from incremental_assets.delta.scope import LakeScope
from incremental_assets.runs.launch import op_name
from incremental_assets.runs.partitions import container_key, expect_files, keys_of_run, partitions_definition
from incremental_assets.runs.quality.evaluations import COMPLETE, RETAINED, enforce, log_evaluations, repeat_complete, repeat_retained
from incremental_assets.runs.quality.request import ScanMode, ScanRequest
from incremental_assets.runs.quality.scanning import ScanOrigin, scan_container
from incremental_assets.runs.quality.summary import ScanSummary
from incremental_assets.runs.records.covered_partitions import is_written
from incremental_assets.runs.records.event_log import asset_events_of
from incremental_assets.runs.records.run_tags import started_by, tags_of


class LooksConfig(str, Enum):
    """The modes of a scan in the run config, where Dagster addresses the members of an enum by their names."""

    full = "full"
    incremental = "incremental"
    partitions = "partitions"


class ScanConfig(dg.Config):
    """The run config of a scan or profile.

    ``looks``: which rows are scanned; left out, those of the run's partition, or the whole container where the run has none.
    ``partitions``: partition keys to scan instead of the run's. ``greater_than``: the threshold of ``incremental`` as text; left out, the
    scan's own watermark. ``auto_resolve``: anomalies that the scan no longer finds are resolved, whatever the YAML says.
    """

    looks: LooksConfig | None = None
    partitions: list[str] | None = None
    greater_than: str | None = None
    auto_resolve: bool = False


def check_name_of(definition: ContainerDefinition) -> str:
    """The name of the op that carries out the checks in a sync's run."""
    return f"{op_name(definition)}__checks"


def scan_job_name(definition: ContainerDefinition) -> str:
    return f"scan_{op_name(definition)}"


def scan_op_name(definition: ContainerDefinition) -> str:
    return f"{op_name(definition)}__scan"


def container_checks(definition: ContainerDefinition) -> list[dg.AssetChecksDefinition]:
    """The asset checks of the container, which one op carries out together.

    It is empty where the container has no rules, is not audited regularly, and does not follow the log of its source. The op logs its
    evaluations and yields nothing (see ``runs.quality.evaluations``). Audits evaluate their check themselves, and syncs that of the log.
    """
    container = definition.container
    specs = [_spec(definition, rule) for rule in container.options.checks]
    if audit_settings(definition) is not None:
        specs.append(complete_check(definition))
    if container.is_captured:
        specs.append(retained_check(definition))
    if not specs:
        return []

    @dg.multi_asset_check(
        name=check_name_of(definition),
        specs=specs,
        can_subset=True,
        required_resource_keys={"lake"},
        description=f"Asks the rules of {container.label} of the partitions that the run wrote.",
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        chosen = {key.name for key in context.selected_asset_check_keys}
        rules = [rule for rule in container.options.checks if rule.id in chosen]
        inner = context.op_execution_context
        if COMPLETE in chosen:
            repeat_complete(inner, definition)
        if RETAINED in chosen:
            repeat_retained(inner, definition)
        if not rules:
            return
        keys = keys_of_run(inner, definition)
        request = _request_after_sync(inner, definition, keys)
        summary = _scan(inner, definition, request, rules, lambda summary: log_evaluations(inner, definition, summary, keys), in_sync=True)
        if summary is not None:
            enforce(definition, summary)
        # This makes the function a generator that yields nothing: the evaluations were logged.
        yield from ()

    return [checks]


def scan_job(definition: ContainerDefinition) -> dg.JobDefinition:
    """The job of a container that has a ``scan`` of its own: it scans without a sync.

    It consists of an op: a job that selects asset checks has no partitions, so that no partition could be chosen in the UI.
    """
    container = definition.container

    @dg.op(
        name=scan_op_name(definition),
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake"},
        description=f"Asks the rules of {container.label}.",
    )
    def scan(context: dg.OpExecutionContext, config: ScanConfig) -> None:
        scan_alone(context, definition, config)

    @dg.job(
        name=scan_job_name(definition),
        partitions_def=partitions_definition(definition),
        description=f"Scan of {container.label}: its rules are asked of a partition, of what is new, or of all rows.",
        tags=tags_of(definition, "scan"),
    )
    def job() -> None:
        scan()

    return job


# ------------------------------------------------------------------ one scan in a run
def scan_alone(context: dg.OpExecutionContext, definition: ContainerDefinition, config: ScanConfig) -> None:
    """Scans the container, in a run that does not sync it."""

    def report(summary: ScanSummary) -> None:
        log_evaluations(context, definition, summary, [place for place in summary.result.rows if place is not None] or None)

    container = definition.container
    summary = _scan(context, definition, request_of(context, config, definition), container.options.checks, report)
    if summary is None:
        context.log.info(f"{container.label}: there is no table yet; sync it first")
        return
    enforce(definition, summary)


def _scan(
    context: dg.OpExecutionContext,
    definition: ContainerDefinition,
    request: ScanRequest,
    rules: Sequence[Rule],
    report: Callable[[ScanSummary], None],
    *,
    in_sync: bool = False,
) -> ScanSummary | None:
    """Scans the container and returns the summary; None where there is no table yet.

    A query that still runs on the Spark server is interrupted when the scan fails or is cancelled.
    """
    scope: LakeScope = context.resources.lake
    try:
        return scan_container(
            definition, context.instance, scope, request, rules, scan_origin(context), context.log.info, report, in_sync=in_sync
        )
    except ContainerBusy as error:
        raise dg.Failure(str(error)) from error
    except BaseException:
        scope.interrupt()
        raise


def scan_origin(context: dg.OpExecutionContext) -> ScanOrigin:
    """What the records of a scan say about how the run was started."""
    tags = context.run.tags
    return ScanOrigin(context.run_id, started_by(tags), tags.get("dagster/schedule_name"))


# ------------------------------------------------------------------ what a run is about
def _request_of_run(keys: Sequence[str] | None) -> ScanRequest:
    """The request for the run's partitions, or for the whole container where the run has none."""
    return ScanRequest(ScanMode.full) if keys is None else ScanRequest(ScanMode.partitions, tuple(keys))


def _request_after_sync(context: dg.OpExecutionContext, definition: ContainerDefinition, keys: Sequence[str] | None) -> ScanRequest:
    """The request for what the sync in the same run has written, by its materialization events. ``keys``: the run's partitions.

    The sync may have written rows in other partitions than those of the run. The scan reads those that were written, and all of the run's
    partitions, because Dagster expects an evaluation of each of these. It leaves out those that were only found to be empty. The events are
    read from the event log, so that it does not matter whether the executor runs the sync and its checks in one process.
    """
    key = container_key(definition.container)
    written = [e.step_materialization_data.materialization for e in asset_events_of(context.instance, context.run_id) if _is_of(e, key)]
    # No step of the run has written, as when only checks were selected.
    if not written:
        return _request_of_run(keys)
    if partitions_definition(definition) is None:
        return ScanRequest(ScanMode.full)
    others = (one.partition for one in written if one.partition is not None and is_written(one.metadata))
    everywhere = dict.fromkeys([*(keys or ()), *others])
    # Where rows without identifier are refused, the sync counts them, too, and there are none.
    refused = definition.container.options.on_null is OnNull.ERROR
    return ScanRequest(ScanMode.partitions, tuple(everywhere), not refused and any(NULL_ROWS in one.metadata for one in written))


def _is_of(event: dg.DagsterEvent, key: dg.AssetKey) -> bool:
    return event.is_step_materialization and event.asset_key == key


def request_of(context: dg.OpExecutionContext, config: ScanConfig, definition: ContainerDefinition) -> ScanRequest:
    """The scan request of a run's config and partitions.

    Raises ConfigurationError where the options contradict each other, or where one names a file that there is not.
    """
    keys, label = keys_of_run(context, definition), definition.container.label
    if config.greater_than is not None and config.looks is not LooksConfig.incremental:
        raise ConfigurationError(f"{label}: greater_than goes with looks: incremental.")
    if config.partitions is not None and config.looks not in (None, LooksConfig.partitions):
        raise ConfigurationError(f"{label}: partitions do not go with looks: {config.looks.value}.")
    if config.looks in (None, LooksConfig.partitions):
        if config.partitions:
            expect_files(definition, context.instance, config.partitions)
        request = _request_of_run(keys if config.partitions is None else config.partitions)
        if config.looks is LooksConfig.partitions and not request.keys:
            raise ConfigurationError(f"{label}: looks: partitions needs partitions. Choose some, or write them under partitions.")
        return ScanRequest(request.mode, request.keys, auto_resolve=config.auto_resolve)
    return ScanRequest(ScanMode(config.looks.value), greater_than=config.greater_than, auto_resolve=config.auto_resolve)


def _spec(definition: ContainerDefinition, rule: Rule) -> dg.AssetCheckSpec:
    """The Dagster spec of the check of one rule."""
    container: Container = definition.container
    partitions_def = partitions_definition(definition)
    words = {name: value for name, value in rule.words().items() if name not in ("rule", "name", "description")}
    technical = json.dumps(words, ensure_ascii=False, default=str)
    metadata: dict[str, Any] = {"quality/rule": rule.rule, "quality/severity": rule.severity.value}
    if rule.owner is not None:
        metadata["quality/owner"] = rule.owner
    if rule.tags:
        metadata["quality/tags"] = dict(rule.tags)
    # Partitioned checks are a preview in Dagster 1.13; the characterization tests pin what is used of them.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=dg.PreviewWarning)
        return dg.AssetCheckSpec(
            rule.id,
            asset=container_key(container),
            description=f"{rule.description or rule.sentence(partitions_def is not None)}\n\n{rule.rule}: {technical}",
            blocking=rule.blocking,
            metadata=metadata,
            partitions_def=partitions_def,
        )


def complete_check(definition: ContainerDefinition) -> dg.AssetCheckSpec:
    """The check that shows, for each partition, what the last audit has found."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=dg.PreviewWarning)
        return dg.AssetCheckSpec(
            COMPLETE,
            asset=container_key(definition.container),
            description="The lake has the rows of the source: all of them, and no others. Audits find out.",
            partitions_def=partitions_definition(definition),
        )


def retained_check(definition: ContainerDefinition) -> dg.AssetCheckSpec:
    """The check that shows how much of its log the source keeps until the container and others have read it."""
    return dg.AssetCheckSpec(
        RETAINED,
        asset=container_key(definition.container),
        description="The source keeps the log that this container has not read yet, and not too much of it. Syncs find out.",
    )
