"""Profiles in Dagster: the job of a container, what it tells, the page it leaves; and rules that are proposed from a profile.

Belongs here: from a request to refreshed states, and back to the reader. Does not belong: states, merging, plots, proposals
(``quality.profile``).
"""

import dataclasses
import datetime
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.lake.scope import LakeScope
from incremental_assets.lake.table import Head
from incremental_assets.model.axis import format_value, json_value
from incremental_assets.model.container import Container
from incremental_assets.model.errors import ConfigurationError, SyncError
from incremental_assets.orchestration.jobs import CONTAINER_TAG, op_name
from incremental_assets.orchestration.locks import scan_lock
from incremental_assets.orchestration.partition_keys import container_key, partitions_definition
from incremental_assets.orchestration.project import dagster_home
from incremental_assets.orchestration.quality.checks import ScanConfig, keys_of_run, request_of, told_of
from incremental_assets.orchestration.quality.pages import PAGE, page_path
from incremental_assets.orchestration.quality.request import Looks, ScanRequest, ground_asked, scanned_after
from incremental_assets.orchestration.quality.scanning import scanned_to
from incremental_assets.orchestration.quality.summary import PROFILE_SUMMARY
from incremental_assets.quality.ground import Ground
from incremental_assets.quality.predicates import Asked, row_predicate
from incremental_assets.quality.profile.column import Profile
from incremental_assets.quality.profile.page import profile_page
from incremental_assets.quality.profile.store import ProfileStore
from incremental_assets.quality.profile.suggest import split_partitions, suggest
from incremental_assets.quality.records import OperationType, Records, ScanOperation
from incremental_assets.quality.records import Result as Ended
from incremental_assets.quality.rows import PARTITION, Rows


def profile_job_name(definition: ContainerDefinition) -> str:
    return f"profile_{op_name(definition)}"


def profile_op_name(definition: ContainerDefinition) -> str:
    return f"{op_name(definition)}__profile"


def profile_job(definition: ContainerDefinition) -> dg.JobDefinition:
    """Of a partition, of what is new, or of all rows."""
    container = definition.container

    @dg.op(
        name=profile_op_name(definition),
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake"},
        description=f"Counts and measures the columns of {container.label}.",
    )
    def profile(context: dg.OpExecutionContext, config: ScanConfig) -> None:
        request = request_of(config, keys_of_run(context, definition))
        try:
            told = _profile(context, definition, request)
        except BaseException:
            context.resources.lake.interrupt()
            raise
        if told is None:
            context.log.info(f"{container.label}: there is no table yet; sync it first")
            return
        context.log.info(f"{container.label}: {told['message']}")
        context.log_event(dg.AssetObservation(container_key(container), description=told["message"], metadata=_metadata(told)))

    @dg.job(
        name=profile_job_name(definition),
        partitions_def=partitions_definition(definition),
        description=f"Profile of {container.label}: counts, bounds, quantiles, frequent values of each column.",
        tags={
            CONTAINER_TAG: container.label,
            "incremental_assets/operation": OperationType.PROFILE.value,
            "incremental_assets/datastore": container.datastore,
        },
    )
    def job() -> None:
        profile()

    return job


def _profile(context: dg.OpExecutionContext, definition: ContainerDefinition, request: ScanRequest) -> dict[str, Any] | None:
    """What it tells of itself; None where there is no table yet. Raises SyncError; what went wrong is on record then, too."""
    scope: LakeScope = context.resources.lake
    container, told = definition.container, told_of(context)
    records = Records(scope.lake, container.key_path[0])
    started = time.time_ns() // 1000
    operation = ScanOperation(
        id=told.run_id, container=container.label, type=OperationType.PROFILE, started=started, ended=started, result=Ended.FAILURE,
        triggered_by=told.triggered_by, schedule=told.schedule, options=json.dumps(request.options(), ensure_ascii=False),
        identifier=container.signature,
    )  # fmt: skip
    with scan_lock(dagster_home(), container, told.run_id, context.log.info):
        try:
            head = scope.table(*container.key_path).head()
            if head is None:
                return None
            before = scanned_to(records, container, OperationType.PROFILE)
            ground = ground_asked(definition, context.instance, request, head, before)
            rows = _rows(scope, container, head, ground, definition.settings.timezone)
            store = ProfileStore(scope.lake, container.datastore)
            refreshed = store.refresh(
                rows.frame,
                container.label,
                head.columns,
                delta_version=head.version,
                operation_id=told.run_id,
                partition=None if ground.partition is None else PARTITION,
                keys=ground.keys or (),
                key_of=ground.key_of,
                whole=ground.predicate is None,
            )
            merged = store.profile(scope.spark, container.label)
            assert merged is not None
            page = page_path(scope.lake, container)
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(profile_page(merged, container.label), encoding="utf-8")
            after = scanned_after(container, head, ground, before)
            read = sum(refreshed.rows.values())
            message = (
                f"{read:,} rows of {len(refreshed.rows):,} partitions profiled in one pass; {merged.rows:,} rows of "
                f"{len(merged.partitions):,} in the merged profile"
            )
            axis = container.axis
            records.record(
                dataclasses.replace(
                    operation, ended=time.time_ns() // 1000, result=Ended.SUCCESS, message=message, delta_version=head.version, passes=1,
                    rows=read, watermark=None if after is None or axis is None else format_value(axis, after),
                ), (), (), (),
            )  # fmt: skip
        except SyncError as error:
            records.record(dataclasses.replace(operation, ended=time.time_ns() // 1000, message=str(error)), (), (), ())
            raise
    return {
        "rows_profiled": read,
        "partitions": len(refreshed.rows),
        "columns": merged.records(),
        "delta_version": head.version,
        "watermark": {
            "previous": None if axis is None else json_value(axis, before),
            "new": None if axis is None else json_value(axis, after),
        },
        "page": str(page),
        "message": message,
    }


def _metadata(told: Mapping[str, Any]) -> dict[str, Any]:
    columns = told["columns"]
    names = list(columns[0]) if columns else ["column"]
    records = [dg.TableRecord({name: "" if one[name] is None else one[name] for name in names}) for one in columns]
    return {
        "profile/columns": dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names])),
        "profile/rows": dg.MetadataValue.int(told["rows_profiled"]),
        PAGE: dg.MetadataValue.path(told["page"]),
        PROFILE_SUMMARY: dg.MetadataValue.json({name: value for name, value in told.items() if name != "columns"}),
    }


def _rows(scope: LakeScope, container: Container, head: Head, ground: Ground, timezone: str) -> Rows:
    asked = Asked({c.name: c.type for c in head.columns}, datetime.datetime.now(datetime.timezone.utc), timezone)
    return Rows(scope.spark, scope.table(*container.key_path), head, ground, asked)


def suggested_checks(definition: ContainerDefinition, instance: dg.DagsterInstance, scope: LakeScope, log: Callable[[str], None]) -> str:
    """Rules to paste under ``checks:``. Raises ConfigurationError where there is no profile yet."""
    container = definition.container
    store = ProfileStore(scope.lake, container.datastore)
    head = scope.table(*container.key_path).head()
    profile: Profile | None = store.profile(scope.spark, container.label) if head is not None else None
    if head is None or profile is None:
        raise ConfigurationError(f"{container.label}: it has no profile yet. Run: incremental-assets profile {container.label}")
    split = split_partitions(profile)
    fitted = store.profile(scope.spark, container.label, split.fitted)
    assert fitted is not None
    chosen = tuple(key for key in split.held_out if key is not None)
    ground = ground_asked(definition, instance, ScanRequest(Looks.partitions, chosen), head, None)
    rows = _rows(scope, container, head, ground, definition.settings.timezone)
    log(f"{container.label}: proposes from {len(split.fitted):,} partitions, and asks {len(chosen):,} others")
    found = suggest(
        fitted,
        split,
        rows.frame if chosen else None,
        lambda rule: row_predicate(rule, rows.asked),
        rows={key: max((one.rows for one in columns.values()), default=0) for key, columns in profile.partitions.items()},
        partition=None if ground.partition is None else PARTITION,
        filling=[key for key in split.held_out if key is not None and not ground.is_over(key)],
    )
    return found.yaml()
