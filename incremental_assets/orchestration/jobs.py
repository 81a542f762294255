"""Jobs and schedules: one of each a container, a job over all a datastore, and its maintenance.

Belongs here: what a tick decides. A tick plans in plain SQL first and says in numbers why there is nothing to do; it starts neither a run
nor Spark then. Does not belong: the plan itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from incremental_assets.catalog.datastore import ContainerDefinition, DatastoreSettings
from incremental_assets.lake.partitioning import dagster_partitions
from incremental_assets.lake.table import LakeTable
from incremental_assets.model.errors import SyncError
from incremental_assets.model.partitions import stretches
from incremental_assets.orchestration.assets import container_asset, container_key, container_partitions, source_spec
from incremental_assets.orchestration.planning import Action, Mode, Plan, Request, make_plan, run_keys
from incremental_assets.orchestration.project import lake_root
from incremental_assets.orchestration.watermarks import newest_watermark
from incremental_assets.sources.postgres.reader import PostgresReader

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
ACTIVE = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]


def job_name(definition: ContainerDefinition) -> str:
    return "__".join(definition.container.key_path)


@dataclass(frozen=True)
class Launch:
    """What a run of a plan is started with: one for each stretch of neighbouring partitions."""

    plan: Plan
    run_config: Mapping[str, Any]
    tags: Sequence[Mapping[str, str]]


def plan_container(
    definition: ContainerDefinition, instance: dg.DagsterInstance, request: Request, lake: str | None = None
) -> tuple[Plan, list[str]]:
    """The plan of one container now, and the partition keys its run would have. Opens and closes one connection."""
    container, settings = definition.container, definition.settings
    partitions = container_partitions(definition, dagster_partitions(container, settings.timezone), instance)
    table = LakeTable(lake or lake_root(), *container.key_path)
    with PostgresReader(settings.address, container, timezone=settings.timezone) as reader:
        plan = make_plan(container, reader, table, partitions, request, newest_watermark(instance, container))
        keys = run_keys(plan, reader, partitions) if plan.action is not Action.SKIP else []
    return plan, keys


def launch_of(definition: ContainerDefinition, instance: dg.DagsterInstance, plan: Plan, keys: Sequence[str]) -> Launch:
    """Run config and partition tags; new integer partitions are added first, as a run names only those that exist."""
    container = definition.container
    config: dict[str, Any] = {"mode": plan.request.mode.value}
    if plan.request.reset:
        config["reset_watermarks"] = True
    if plan.request.allow_empty:
        config["allow_empty"] = True
    op = "__".join(container.key_path)
    run_config = {"ops": {op: {"config": config}}}
    partitions_def = dagster_partitions(container, definition.settings.timezone)
    if partitions_def is None or not keys:
        return Launch(plan, run_config, [{}])
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        assert partitions_def.name is not None
        known = set(instance.get_dynamic_partitions(partitions_def.name))
        new = [key for key in keys if key not in known]
        for at in range(0, len(new), 1000):
            instance.add_dynamic_partitions(partitions_def.name, new[at : at + 1000])
        ordered: Sequence[str] = instance.get_dynamic_partitions(partitions_def.name)
        runs = stretches(keys, ordered)
    else:
        runs = [(keys[0], keys[-1])] if plan.request.keys is None else stretches(keys, partitions_def.get_partition_keys())
    if plan.request.keys is None:  # one sync is one run; rows that land elsewhere get their events all the same
        runs = runs[-1:]
    return Launch(plan, run_config, [{RANGE_START: first, RANGE_END: last} for first, last in runs])


def container_job(definition: ContainerDefinition) -> Any:
    return dg.define_asset_job(
        job_name(definition),
        selection=dg.AssetSelection.assets(container_key(definition.container)),
        description=f"Sync of {definition.container.label}.",
        tags={"incremental_assets/container": definition.container.label},
    )


def container_schedule(definition: ContainerDefinition, cron: str) -> dg.ScheduleDefinition:
    """Runs by default; skips with the numbers when there is nothing to do."""
    name = job_name(definition)

    @dg.schedule(
        name=f"{name}_schedule",
        job_name=name,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Syncs {definition.container.label} when something has changed.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        found = _tick(context, definition)
        if isinstance(found, str):
            yield dg.SkipReason(found)
        else:
            yield from found

    return schedule


def datastore_schedule(settings: DatastoreSettings, definitions: Sequence[ContainerDefinition], cron: str) -> dg.ScheduleDefinition:
    """All containers that have no schedule of their own: one run each for those with something to do."""
    own = [d for d in definitions if d.container.options.schedule is None]

    @dg.schedule(
        name=f"{own[0].container.key_path[0] if own else settings.name}_schedule",
        target=dg.AssetSelection.assets(*(container_key(d.container) for d in own)),
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Syncs all containers of {settings.name} that have no schedule of their own.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        reasons: list[str] = []
        for definition in own:
            found = _tick(context, definition)
            if isinstance(found, str):
                reasons.append(found)
            else:
                yield from found
        if len(reasons) == len(own):
            yield dg.SkipReason("\n".join(reasons))

    return schedule


def _tick(context: dg.ScheduleEvaluationContext, definition: ContainerDefinition) -> str | list[dg.RunRequest]:
    """Run requests, or the reason for none. One container's trouble does not stop the others of the tick."""
    label, key = definition.container.label, container_key(definition.container)
    running = context.instance.get_runs(dg.RunsFilter(statuses=ACTIVE, tags={"incremental_assets/container": label}), limit=1)
    if running:
        return f"{label}: run {running[0].run_id} is still at it"
    try:
        mode = Mode.INCREMENTAL
        plan, keys = plan_container(definition, context.instance, Request(mode))
        if plan.action is Action.SKIP:
            return f"{label}: {plan.reason}"
        launch = launch_of(definition, context.instance, plan, keys)
    except SyncError as error:
        context.log.error(str(error))
        return f"{label}: not started: {error}"
    return [
        dg.RunRequest(asset_selection=[key], run_config=launch.run_config, tags={"incremental_assets/container": label, **tags})
        for tags in launch.tags
    ]


def datastore_definitions(settings: DatastoreSettings, definitions: Sequence[ContainerDefinition]) -> dg.Definitions:
    """Assets, jobs and schedules of one datastore."""
    schedules = [container_schedule(d, d.container.options.schedule) for d in definitions if d.container.options.schedule]
    if settings.schedule and any(d.container.options.schedule is None for d in definitions):
        schedules.append(datastore_schedule(settings, definitions, settings.schedule))
    return dg.Definitions(
        assets=[*(container_asset(d) for d in definitions), *(source_spec(d) for d in definitions)],
        jobs=[container_job(d) for d in definitions],
        schedules=schedules,
    )
