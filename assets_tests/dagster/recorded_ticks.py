"""Records ticks and waiting runs of schedules and sensors in an instance, as Dagster's daemon does, at times of the test's choice.

Belongs here: what several tests need of it. Does not belong: ticks of a real daemon (``test_overdue``).
"""

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.definitions.selector import InstigatorSelector
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteInstigatorOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.storage.tags import SCHEDULE_NAME_TAG
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster_shared.error import SerializableErrorInfo

from incremental_assets.runs.records.run_tags import CONTAINER_TAG

_GONE = SerializableErrorInfo("the source is gone", [], None)


def _origin(name: str) -> RemoteInstigatorOrigin:
    target = LoadableTargetOrigin(executable_path="python", module_name="definitions")
    location = InProcessCodeLocationOrigin(target, location_name="definitions")
    return RemoteInstigatorOrigin(RemoteRepositoryOrigin(location, "__repository__"), name)


def switch_on(instance: dg.DagsterInstance, name: str, at: float, *, cron: str | None = None, seconds: int = 30) -> None:
    """Records that the daemon has switched on a schedule (``cron``) or a sensor (``seconds``: between two ticks) at this time."""
    data = ScheduleInstigatorData(cron, at, at) if cron else SensorInstigatorData(min_interval=seconds, last_sensor_start_timestamp=at)
    kind = InstigatorType.SCHEDULE if cron else InstigatorType.SENSOR
    instance.add_instigator_state(InstigatorState(_origin(name), kind, InstigatorStatus.DECLARED_IN_CODE, data))


def switch_off(instance: dg.DagsterInstance, name: str) -> None:
    """Records that a person has switched it off."""
    [state] = [one for one in instance.all_instigator_state() if one.instigator_name == name]
    instance.update_instigator_state(state.with_status(InstigatorStatus.STOPPED))


def queue_run(instance: dg.DagsterInstance, schedule: str, container: str) -> None:
    """Records that a tick of the schedule has launched a run of the container, which waits."""
    origin = RemoteJobOrigin(_origin(schedule).repository_origin, IMPLICIT_ASSET_JOB_NAME)
    tags = {SCHEDULE_NAME_TAG: schedule, CONTAINER_TAG: container}
    create_run_for_test(instance, tags=tags, status=dg.DagsterRunStatus.QUEUED, remote_job_origin=origin)


def record_tick(
    instance: dg.DagsterInstance,
    name: str,
    at: float,
    status: TickStatus = TickStatus.SKIPPED,
    *,
    is_schedule: bool = True,
    error: SerializableErrorInfo = _GONE,
) -> None:
    """Records a tick. ``error``: of one that has failed."""
    selector = InstigatorSelector(location_name="definitions", repository_name="__repository__", name=name).get_id()
    kind = InstigatorType.SCHEDULE if is_schedule else InstigatorType.SENSOR
    ended = at if status is not TickStatus.STARTED else None
    why = error if status is TickStatus.FAILURE else None
    tick = TickData(_origin(name).get_id(), name, kind, status, at, selector_id=selector, end_timestamp=ended, error=why)
    instance.create_tick(tick)
