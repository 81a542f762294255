"""The catalog operation of a datastore as Dagster loads it: its asset, job, schedule, and the sensor of a datastore that is new."""

import time
from collections.abc import Sequence
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.project.catalogued import CataloguedComponent
from incremental_assets.project.folders import current_project
from incremental_assets.runs.catalog_run import FIRST_AGAIN_SECONDS, asset_and_job, job_name
from incremental_assets.runs.records.run_tags import PREFIX, STARTED_BY_TAG


def catalog_definitions(component: CataloguedComponent, settings: Settings, known: Sequence[ContainerDefinition] | None) -> dg.Definitions:
    """The asset, job and schedule of a datastore's catalog operation.

    ``known``: the containers of the stored catalog. None means that the datastore was never catalogued; then there is also a sensor, which
    runs the operation for the first time.
    """
    asset, job = asset_and_job(component, settings, known or [], lambda _: None)
    schedules = [_schedule(settings, job)] if settings.catalog.schedule else []
    return dg.Definitions(
        assets=[asset], jobs=[job], schedules=schedules, sensors=[_first(component, settings, job)] if known is None else []
    )


def _schedule(settings: Settings, job: Any) -> dg.ScheduleDefinition:
    """The schedule of the operation, in UTC; it runs by default. The schedule's name of the YAML is a tag of its runs."""
    name = settings.catalog.name or f"{job_name(settings.name)}_schedule"
    return dg.ScheduleDefinition(
        name=f"{job_name(settings.name)}_schedule",
        job=job,
        cron_schedule=settings.catalog.schedule or "",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=name,
        execution_fn=lambda _: dg.RunRequest(tags={f"{PREFIX}schedule": name, STARTED_BY_TAG: "schedule"}),
    )


def _first(component: CataloguedComponent, settings: Settings, job: Any) -> dg.SensorDefinition:
    """A sensor that runs the operation of a datastore that was never catalogued. The definitions have it only until then."""

    @dg.sensor(
        name=f"{job_name(settings.name)}_first",
        job=job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"{settings.name} was just added: runs its catalog, and again after {FIRST_AGAIN_SECONDS} s while that fails.",
    )
    def first(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if component.store(current_project()).load(context.instance) is not None:
            return dg.SkipReason("It has been catalogued; its assets show once the code location is reloaded (Deployment → Reload).")
        latest = next(iter(context.instance.get_run_records(dg.RunsFilter(job_name=job_name(settings.name)), limit=1)), None)
        if latest is not None and not latest.dagster_run.is_finished:
            return dg.SkipReason(f"Run {latest.dagster_run.run_id} is about to.")
        if latest is not None and time.time() - (latest.end_time or 0) < FIRST_AGAIN_SECONDS:
            return dg.SkipReason(f"Run {latest.dagster_run.run_id} has just failed; it is tried again after {FIRST_AGAIN_SECONDS} s.")
        return dg.RunRequest(tags={STARTED_BY_TAG: "first catalog"})

    return first
