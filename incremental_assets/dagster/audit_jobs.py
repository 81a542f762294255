"""The jobs that audit a container, or all containers of a datastore, and their schedules.

A job consists of an op, as the job that syncs a datastore does: an audit is a sync's run, one or more runs that repair, and another
comparison. They are ordinary runs of the container, which this process executes.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.core.container import AuditSettings
from incremental_assets.core.names import encode_name
from incremental_assets.dagster.jobs import counts_by_status, logged, named, regular_schedule
from incremental_assets.operations.audit import AuditOptions, audit_lines
from incremental_assets.project.folders import current_project
from incremental_assets.runs.launch import op_name
from incremental_assets.runs.partitions import is_by_file, keys_of_run, partitions_definition
from incremental_assets.runs.records.run_tags import DATASTORE_TAG, OPERATION_TAG, tags_of
from incremental_assets.runs.runner import Runner


class AuditConfig(dg.Config):
    """The run config of an audit. ``repair``: partitions that differ are refreshed. ``partitions``: the partition keys to be compared,
    instead of those of the run; without either, all rows are."""

    repair: bool = False
    partitions: list[str] | None = None


def audit_job(definition: ContainerDefinition) -> dg.JobDefinition:
    """The job of a container that has an ``audit`` with a schedule of its own."""
    container = definition.container

    @dg.op(name=f"{op_name(definition)}__audit", out=dg.Out(dg.Nothing), description=f"Compares {container.label} with its source.")
    def audit(context: dg.OpExecutionContext, config: AuditConfig) -> None:
        keys = config.partitions if config.partitions is not None else keys_of_run(context, definition)
        _audit(
            context,
            [definition],
            AuditOptions(None, config.repair, f"run {context.run_id}", partitions=None if keys is None else tuple(keys)),
        )

    @dg.job(
        name=f"audit_{op_name(definition)}",
        partitions_def=partitions_definition(definition),
        description=f"Audit of {container.label}: a sync, and a comparison with the source.",
        tags=tags_of(definition, "audit"),
    )
    def job() -> None:
        audit()

    return job


class DatastoreAuditConfig(AuditConfig):
    """The run config of the audit of a datastore. ``container``: the name of the only one that is audited, to which ``partitions``
    apply; left out, all are."""

    container: str | None = None


def datastore_audit_job(settings: Settings, definitions: Sequence[ContainerDefinition]) -> dg.JobDefinition:
    """The job that audits all containers of a datastore, as ``incremental-assets audit DATASTORE`` does, or one of them."""
    name = encode_name(settings.name)

    @dg.op(name=f"{name}_audit", out=dg.Out(dg.Nothing), description=f"Compares all containers of {settings.name} with their source.")
    def audit_all(context: dg.OpExecutionContext, config: DatastoreAuditConfig) -> None:
        chosen = definitions if config.container is None else [named(settings, definitions, config.container)]
        keys = None if config.partitions is None or config.container is None else tuple(config.partitions)
        _audit(context, chosen, AuditOptions(None, config.repair, f"run {context.run_id}", partitions=keys))

    tags = {DATASTORE_TAG: settings.name, OPERATION_TAG: "audit"}

    @dg.job(name=f"audit_{name}", description=f"Audits the containers of {settings.name}, or one.", tags=tags)
    def job() -> None:
        audit_all()

    return job


def _audit(context: dg.OpExecutionContext, definitions: Sequence[ContainerDefinition], options: AuditOptions) -> None:
    """Audits the containers. Raises Failure at the end if one differs, or could not be audited."""
    from incremental_assets.runs.loading import load_project

    runner = Runner(load_project(current_project()).definitions(definitions), context.instance)
    bad = ("different", "failed")
    lines = logged(context, audit_lines(runner, definitions, options, context.instance), bad)
    context.add_output_metadata(counts_by_status(lines))
    wrong = [f"{line['container']}: {line['message']}" for line in lines if line["status"] in bad]
    if wrong:
        raise dg.Failure("; ".join(wrong), allow_retries=False)


# ---------------------------------------------------------------------- schedules
def audit_schedule(definition: ContainerDefinition, settings: AuditSettings, cron: str) -> dg.ScheduleDefinition:
    """The schedule of a container's audits. It is switched on by default."""
    name = f"audit_{op_name(definition)}"

    @dg.schedule(
        name=f"{name}_schedule",
        job_name=name,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compares {definition.container.label} with its source.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        keys = partitions_in_turn(context.instance, definition, settings)
        config = {"repair": settings.repair, **({} if keys is None else {"partitions": list(keys)})}
        yield dg.RunRequest(run_config={"ops": {f"{op_name(definition)}__audit": {"config": config}}})

    return schedule


def partitions_in_turn(instance: dg.DagsterInstance, definition: ContainerDefinition, settings: AuditSettings) -> Sequence[str] | None:
    """The partition keys that the next audit compares; None: all rows. With ``rotating``, it is remembered where the one after begins."""
    partitions_def = partitions_definition(definition)
    if partitions_def is None or (settings.newest is None and settings.rotating is None):
        return None
    keys = list(partitions_def.get_partition_keys(dynamic_partitions_store=instance))
    # Dynamic keys are in the order in which they were added, which is right for files: the newest came last.
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition) and not is_by_file(definition):
        keys.sort(key=int)
    if settings.newest is not None:
        return keys[-settings.newest :]
    assert settings.rotating is not None
    cursor = f"incremental_assets/audit/{definition.container.label}"
    storage = instance.daemon_cursor_storage
    last = storage.get_cursor_values({cursor}).get(cursor)
    at = (keys.index(last) + 1) % len(keys) if last in keys else 0
    chosen = [keys[(at + step) % len(keys)] for step in range(min(settings.rotating, len(keys)))]
    if chosen:
        storage.set_cursor_values({cursor: chosen[-1]})
    return sorted(chosen, key=keys.index)


def datastore_audit_schedule(settings: Settings, audit: AuditSettings, cron: str) -> dg.ScheduleDefinition:
    """The schedule of the audits of all containers of a datastore."""
    name = encode_name(settings.name)
    return regular_schedule(f"audit_{name}", cron, {"ops": {f"{name}_audit": {"config": {"repair": audit.repair}}}})
