"""The jobs that scan or profile all containers of a datastore, the job that does so after a sync, and the schedules of scans and profiles.

A job over a datastore consists of ops, as the job that syncs it does: each container is an ordinary run of its own, one after another.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.core.container import RegularScan
from incremental_assets.core.names import encode_name
from incremental_assets.dagster.asset_checks import LooksConfig, ScanConfig, scan_alone, scan_job, scan_job_name, scan_op_name
from incremental_assets.dagster.jobs import counts_by_status, logged, named, regular_schedule
from incremental_assets.dagster.profiles import profile_alone, profile_job, profile_job_name, profile_op_name
from incremental_assets.operations.scans import ScanOptions, profile_lines, scan_lines
from incremental_assets.project.folders import current_project
from incremental_assets.runs.records.run_tags import DATASTORE_TAG, OPERATION_TAG


class DatastoreScanConfig(ScanConfig):
    """The run config of a scan or profile of a datastore.

    ``container``: the name of the only container that is looked at, by this run itself, to which the other options apply. Left out, all
    are, each by a run of its own: with ``looks`` of ``full`` at all rows, else at what is new where they have an identifier.
    """

    container: str | None = None


Lines = Callable[[dg.Definitions, Sequence[ContainerDefinition], ScanOptions, dg.DagsterInstance], Iterator[dict[str, Any]]]
LookAlone = Callable[[dg.OpExecutionContext, ContainerDefinition, ScanConfig], None]


def scan_op(settings: Settings, definitions: Sequence[ContainerDefinition]) -> dg.OpDefinition:
    """The op that scans all containers of a datastore which have rules, or one. It fails if a rule of severity error is broken."""
    with_rules = [one for one in definitions if one.container.options.checks]
    return _op(settings, "scan", f"Asks the rules of the containers of {settings.name}.", with_rules, scan_lines, scan_alone)


def profile_op(settings: Settings, definitions: Sequence[ContainerDefinition]) -> dg.OpDefinition:
    """The op that profiles all containers of a datastore, or one."""
    return _op(settings, "profile", f"Profiles the containers of {settings.name}.", definitions, profile_lines, profile_alone)


def quality_jobs(settings: Settings, definitions: Sequence[ContainerDefinition], sync: dg.OpDefinition) -> list[dg.JobDefinition]:
    """The jobs of a datastore: one that scans, one that profiles, and one that syncs, profiles and scans, in this order.

    ``sync``: the op that syncs all containers. Where it fails, nothing is profiled or scanned.
    """
    name, scan, profile = encode_name(settings.name), scan_op(settings, definitions), profile_op(settings, definitions)
    tags = {DATASTORE_TAG: settings.name}

    @dg.job(name=f"scan_{name}", description=f"Scans the containers of {settings.name}, or one.", tags={**tags, OPERATION_TAG: "scan"})
    def scan_all() -> None:
        scan()

    @dg.job(
        name=f"profile_{name}", description=f"Profiles the containers of {settings.name}, or one.", tags={**tags, OPERATION_TAG: "profile"}
    )
    def profile_all() -> None:
        profile()

    @dg.job(name=f"sync_profile_scan_{name}", description=f"Syncs, profiles and scans all containers of {settings.name}.", tags=tags)
    def every() -> None:
        scan(start=profile(start=sync()))

    return [scan_all, profile_all, every]


def _op(
    settings: Settings,
    what: str,
    description: str,
    definitions: Sequence[ContainerDefinition],
    lines: Lines,
    look_alone: LookAlone,
) -> dg.OpDefinition:
    @dg.op(
        name=f"{encode_name(settings.name)}_{what}",
        ins={"start": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake"},
        description=description,
    )
    def op(context: dg.OpExecutionContext, config: DatastoreScanConfig) -> None:
        if config.container is None:
            _look(context, definitions, config.looks is LooksConfig.full, lines)
        else:
            look_alone(context, named(settings, definitions, config.container), config)

    return op


def _look(context: dg.OpExecutionContext, definitions: Sequence[ContainerDefinition], full: bool, lines: Lines) -> None:
    """Scans or profiles the containers. Raises Failure at the end if one has failed."""
    from incremental_assets.runs.loading import load_project

    built = load_project(current_project()).definitions(definitions)

    def each() -> Iterator[dict[str, Any]]:
        for one in definitions:
            incremental = not full and one.container.identifier is not None
            yield from lines(built, [one], ScanOptions(incremental=incremental, started_by=f"run {context.run_id}"), context.instance)

    found = logged(context, each(), ["failed"])
    context.add_output_metadata(counts_by_status(found))
    failed = [f"{line['container']}: {line['message']}" for line in found if line["status"] == "failed"]
    if failed:
        raise dg.Failure("; ".join(failed), allow_retries=False)


# ---------------------------------------------------------------------- what containers have of their own
def quality_jobs_of(definition: ContainerDefinition) -> list[dg.JobDefinition]:
    """The jobs of a container's own scans and profiles, which their schedules start."""
    options = definition.container.options
    jobs = [profile_job(definition)] if options.profile is not None else []
    return [*jobs, scan_job(definition)] if options.scan is not None and options.checks else jobs


def quality_schedules(definition: ContainerDefinition) -> list[dg.ScheduleDefinition]:
    """The schedules of a container's own scans and profiles. They are switched on by default."""
    options = definition.container.options
    asked = [(options.profile, profile_job_name(definition), profile_op_name(definition))]
    if options.checks:  # without rules there is nothing to be scanned, and no job
        asked.append((options.scan, scan_job_name(definition), scan_op_name(definition)))
    is_whole = definition.container.identifier is None
    return [_schedule(one, job, op, one.full or is_whole) for one, job, op in asked if one is not None]


def datastore_quality_schedules(settings: Settings) -> list[dg.ScheduleDefinition]:
    """The schedules of the scans and profiles of all containers of a datastore. They are switched on by default."""
    name = encode_name(settings.name)
    asked = (("scan", settings.scan), ("profile", settings.profile))
    return [_schedule(one, f"{what}_{name}", f"{name}_{what}", one.full) for what, one in asked if one is not None]


def _schedule(one: RegularScan, job: str, op: str, full: bool) -> dg.ScheduleDefinition:
    looks = LooksConfig.full if full else LooksConfig.incremental
    return regular_schedule(job, one.schedule, {"ops": {op: {"config": {"looks": looks.value}}}})
