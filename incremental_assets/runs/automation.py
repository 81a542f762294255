"""The names of the schedules and sensors that start a container's runs, and when a schedule is due next."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from dagster._utils.schedules import get_next_cron_tick

from incremental_assets.catalog.definition import ContainerDefinition, Settings
from incremental_assets.core.names import encode_name
from incremental_assets.files.definition import FileDefinition
from incremental_assets.runs.launch import job_name


def schedules_of(definition: ContainerDefinition) -> Sequence[str]:
    """The names of the schedules that sync the container: its own one, and its datastore's."""
    own = [container_schedule_name(definition)] if definition.container.options.schedule else []
    return [*own, datastore_schedule_name(definition.settings)] if definition.settings.schedule else own


@lru_cache
def next_tick(cron: str, now: datetime) -> datetime:
    """When a schedule is due next after ``now``, both in UTC."""
    # Of a moment that is a tick, the function gives this one.
    return get_next_cron_tick(cron, now + timedelta(seconds=1), "UTC").astimezone(timezone.utc)


def container_schedule_name(definition: ContainerDefinition) -> str:
    """The name of the container's own schedule."""
    return f"{job_name(definition)}_schedule"


def datastore_schedule_name(settings: Settings) -> str:
    """The name of the schedule of all containers of a datastore."""
    return f"sync_{encode_name(settings.name)}_schedule"


def sensor_name(definition: FileDefinition) -> str:
    """The name of the container's sensor."""
    return f"{job_name(definition)}_files"
