"""Profiles in Dagster: the job that profiles a container, its events, its HTML page, and rules that are proposed from a profile."""

import dataclasses
import datetime
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import format_value, json_value
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.core.rules.sql import ScannedTable
from incremental_assets.core.shown_text import counted
from incremental_assets.dagster.asset_checks import ScanConfig, request_of, scan_origin
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.operation_tables import EndedAs, OperationKind
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import Head
from incremental_assets.profiles.column import Profile, rows_of
from incremental_assets.profiles.facts import profile_facts
from incremental_assets.profiles.page import PLOTS_MISSING, has_plots, profile_page
from incremental_assets.profiles.store import ProfileStore, Refreshed
from incremental_assets.profiles.suggest import split_partitions, suggest
from incremental_assets.project.folders import dagster_home
from incremental_assets.quality.records import OperationResult as Ended
from incremental_assets.quality.records import OperationType, Records, ScanOperation
from incremental_assets.quality.rows import PARTITION, Rows
from incremental_assets.quality.scan_scope import ScanScope
from incremental_assets.runs.launch import op_name
from incremental_assets.runs.locks import scan_lock
from incremental_assets.runs.partitions import container_key, partitions_definition
from incremental_assets.runs.quality.pages import PAGE, page_link, page_path
from incremental_assets.runs.quality.request import ScanMode, ScanRequest, requested_scope, scanned_after
from incremental_assets.runs.quality.scanning import scanned_to
from incremental_assets.runs.quality.summary import PROFILE_SUMMARY
from incremental_assets.runs.records.run_tags import tags_of

_CONFIG_SCHEMA: Any = ScanConfig.to_config_schema()
"""The config schema of all profile jobs, made once: inferring it takes longer than the rest of a job's definition."""


def profile_job_name(definition: ContainerDefinition) -> str:
    return f"profile_{op_name(definition)}"


def profile_op_name(definition: ContainerDefinition) -> str:
    return f"{op_name(definition)}__profile"


def profile_alone(context: dg.OpExecutionContext, definition: ContainerDefinition, config: ScanConfig) -> None:
    """Profiles the container in this run, and logs its observation."""
    label = definition.container.label
    request = request_of(context, config, definition)
    try:
        result = _profile(context, definition, request)
    except BaseException:
        context.resources.lake.interrupt()
        raise
    if result is None:
        context.log.info(f"{label}: there is no table yet; sync it first")
        return
    context.log.info(f"{label}: {result['message']}")
    key = container_key(definition.container)
    context.log_event(dg.AssetObservation(key, description=result["message"], metadata=_metadata(result, page_link(definition.container))))


def profile_job(definition: ContainerDefinition) -> dg.JobDefinition:
    """The job of a container that has a ``profile`` of its own."""
    container = definition.container

    @dg.op(
        name=profile_op_name(definition),
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake"},
        config_schema=_CONFIG_SCHEMA,
        description=f"Counts and measures the columns of {container.label}.",
    )
    def profile(context: dg.OpExecutionContext) -> None:
        profile_alone(context, definition, ScanConfig(**context.op_config))

    @dg.job(
        name=profile_job_name(definition),
        partitions_def=partitions_definition(definition),
        description=f"Profile of {container.label}: counts, bounds, quantiles, frequent values of each column.",
        tags=tags_of(definition, OperationType.PROFILE.value),
    )
    def job() -> None:
        profile()

    return job


def _profile(context: dg.OpExecutionContext, definition: ContainerDefinition, request: ScanRequest) -> dict[str, Any] | None:
    """Profiles the container and returns the numbers of the profile; None where there is no table yet.

    Raises SyncError; the failure is recorded then.
    """
    scope: LakeScope = context.resources.lake
    container, origin = definition.container, scan_origin(context)
    records = Records(scope.lake, container.key_path[0])
    started = time.time_ns() // 1000
    operation = ScanOperation(
        id=origin.run_id, container=container.label, type=OperationType.PROFILE, started=started, ended=started, result=Ended.FAILURE,
        triggered_by=origin.triggered_by, schedule=origin.schedule, options=json.dumps(request.options(), ensure_ascii=False),
        identifier=container.signature,
    )  # fmt: skip
    scope.operations.begin(OperationKind.PROFILE, container.datastore, container.label)
    with scan_lock(dagster_home(), container, origin.run_id, context.log.info, context.instance, profile=True):
        try:
            head = scope.table(*container.key_path).head()
            if head is None:
                scope.operations.end(OperationKind.PROFILE, container.label, EndedAs.SKIPPED, message="there is no table yet")
                return None
            before = scanned_to(records, container, OperationType.PROFILE)
            store = ProfileStore(scope.lake, container.datastore)
            scan_scope = requested_scope(definition, context.instance, request, head, before, store.known(scope.spark, container.label))
            rows = _rows(scope, container, head, scan_scope)
            whole = scan_scope.predicate is None
            refreshed = store.refresh(
                rows.frame,
                container.label,
                head.columns,
                delta_version=head.version,
                operation_id=origin.run_id,
                partition=None if scan_scope.partition is None else PARTITION,
                # The old states of a listed partition that has no rows any more are replaced by those of no rows. For a profile of all rows
                # nothing is listed: the states of everything without rows are removed.
                keys=() if whole else (*(scan_scope.keys or ()), *scan_scope.with_open_anomalies),
                key_of=scan_scope.key_of,
                whole=whole,
                samples=container.options.samples,
            )
            merged = store.profile(scope.spark, container.label, order=_order_of_arrival(definition, context.instance))
            in_table = _rows_of_table(scope, container, head) if merged is not None and not whole else None
            page = page_path(scope.lake, container.key_path)
            message = _write_page(page, container, merged, refreshed, in_table)
            after = scanned_after(container, head, scan_scope, before)
            read = sum(refreshed.rows.values())
            cursor_type = container.cursor_type
            records.record(
                dataclasses.replace(
                    operation, ended=time.time_ns() // 1000, result=Ended.SUCCESS, message=message, delta_version=head.version, passes=1,
                    rows=read, watermark=None if after is None or cursor_type is None else format_value(cursor_type, after),
                ), (), (), (),
            )  # fmt: skip
        except SyncError as error:
            records.record(dataclasses.replace(operation, ended=time.time_ns() // 1000, message=str(error)), (), (), ())
            raise
    scope.operations.end(
        OperationKind.PROFILE, container.label, EndedAs.SUCCESS,
        rows=read, partitions=len(refreshed.rows), table_version=head.version, message=message,
    )  # fmt: skip
    return {
        "rows_profiled": read,
        "partitions": len(refreshed.rows),
        "columns": [] if merged is None else merged.records(),
        "delta_version": head.version,
        "watermark": {
            "previous": None if cursor_type is None else json_value(cursor_type, before),
            "new": None if cursor_type is None else json_value(cursor_type, after),
        },
        "page": None if merged is None else str(page),
        "message": message,
    }


def _order_of_arrival(definition: ContainerDefinition, instance: dg.DagsterInstance) -> Sequence[str]:
    """The partition keys of a container of files in the order in which the files came; empty for other containers.

    The names of files do not tell that order; other keys are in order by themselves.
    """
    partitioning, in_dagster = definition.container.partitioning, partitions_definition(definition)
    if partitioning is None or not partitioning.by_file or in_dagster is None:
        return ()
    return in_dagster.get_partition_keys(dynamic_partitions_store=instance)


def _rows_of_table(scope: LakeScope, container: Container, head: Head) -> int:
    """The number of rows in the version that was profiled. Delta reads no rows for it: it adds up the counts of its log."""
    table = scope.table(*container.key_path)
    with lake_errors(container.label, table.url):
        return scope.spark.read.format("delta").option("versionAsOf", head.version).load(table.url).count()


def _write_page(page: Path, container: Container, merged: Profile | None, refreshed: Refreshed, in_table: int | None) -> str:
    """Writes the HTML page, or removes it where there is no profile any more, and returns the message for the record.

    ``merged``: the profile of all partitions together, None where there is none. ``in_table``: the number of rows in the table; None where
    the profile is of all of them.
    """
    if merged is None:
        page.unlink(missing_ok=True)
        return "nothing to profile: there are no rows where it looked, and no profile of others"
    notes: list[str] = []
    if in_table is not None and in_table != merged.rows:
        notes = [
            f"The table has {counted(in_table, 'row')}, and this profile is of {merged.rows:,}: partitions that were not profiled "
            f"yet, or were rewritten since, are profiled with --full."
        ]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(profile_page(merged, container.label, notes), encoding="utf-8")
    read = (
        f"{counted(sum(refreshed.rows.values()), 'row')} of {counted(len(refreshed.rows), 'partition')} profiled in one pass; "
        f"{counted(merged.rows, 'row')} of {len(merged.partitions):,} in the merged profile"
    )
    return ". ".join([read, *notes, *([] if has_plots() else [PLOTS_MISSING])])


def _metadata(result: Mapping[str, Any], link: dg.UrlMetadataValue) -> dict[str, Any]:
    """The metadata of the observation that reports the profile. ``link``: to its page."""
    columns = result["columns"]
    names = list(columns[0]) if columns else ["column"]
    records = [dg.TableRecord({name: "" if one[name] is None else one[name] for name in names}) for one in columns]
    return {
        "profile/columns": dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names])),
        "profile/rows": dg.MetadataValue.int(result["rows_profiled"]),
        **({} if result["page"] is None else {PAGE: link}),
        PROFILE_SUMMARY: dg.MetadataValue.json({name: value for name, value in result.items() if name != "columns"}),
    }


def _rows(scope: LakeScope, container: Container, head: Head, scan_scope: ScanScope) -> Rows:
    """The rows of the scan scope in this version of the table, as a Spark DataFrame with their partitions."""
    in_sql = ScannedTable(head.columns, datetime.datetime.now(datetime.timezone.utc), container.timezone)
    return Rows(lambda: scope.spark, scope.table(*container.key_path), head, scan_scope, in_sql)


def suggested_checks(definition: ContainerDefinition, instance: dg.DagsterInstance, scope: LakeScope, log: Callable[[str], None]) -> str:
    """Proposes rules from the container's profile, as YAML text for ``checks:``.

    The rules are made from some of the partitions and tried on the rows of the others. Raises ConfigurationError where there is no profile
    that fits the container.
    """
    container = definition.container
    again = f"incremental-assets profile {container.label}"
    store, table = ProfileStore(scope.lake, container.datastore), scope.table(*container.key_path)
    head = table.head()
    if head is None:
        raise ConfigurationError(
            f"{container.label}: rules are made from a profile of its table, and it has no table yet. Run: incremental-assets sync "
            f"{container.label} && {again}"
        )
    facts = profile_facts(scope.lake, container.datastore, {container.label: table}).get(container.label)  # before Spark is started
    profile = store.profile(scope.spark, container.label, order=_order_of_arrival(definition, instance)) if facts is not None else None
    if facts is None or profile is None:
        raise ConfigurationError(f"{container.label}: it has no profile yet. Run: {again}")
    if facts.is_older:
        log(
            f"{container.label}: these rules are made from its profile of {facts.made_at[:10]}, and its table has changed since. To renew "
            f"the profile: {again}"
        )
    split = split_partitions(profile)
    fitted = store.profile(scope.spark, container.label, split.fitted)
    if fitted is None:
        raise ConfigurationError(f"{container.label}: there are no rows in its profile to make rules from. Once it has some, run: {again}")
    chosen = tuple(key for key in split.held_out if key is not None)
    try:
        scan_scope = requested_scope(definition, instance, ScanRequest(ScanMode.partitions, chosen), head, None)
    except ConfigurationError as error:
        raise _of_other_partitions(container, str(error).rstrip("."), again) from error
    if chosen and scan_scope.partition is None:
        raise _of_other_partitions(container, "it has none now", again)
    rows = _rows(scope, container, head, scan_scope)
    log(f"{container.label}: proposes from {counted(len(split.fitted), 'partition')}, and asks {len(chosen):,} others")
    with lake_errors(container.label, table.url):
        found = suggest(
            fitted,
            split,
            (lambda wanted: rows.aggregate(rows.frame, wanted)) if chosen else None,
            lambda rule: rule.condition(rows.in_sql),
            rows={key: rows_of(columns) for key, columns in profile.partitions.items()},
            filling=[key for key in chosen if not scan_scope.is_over(key)],
        )
    return found.yaml()


def _of_other_partitions(container: Container, why: str, again: str) -> ConfigurationError:
    """The error for a profile whose partitions the container does not have any more, because its partitioning was changed."""
    return ConfigurationError(f"{container.label}: its profile is of other partitions than it has: {why}. Profile it anew: {again} --full")
