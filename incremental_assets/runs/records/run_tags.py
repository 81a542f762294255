"""The tags of runs that are this product's own: their names, and what they say about a run.

Their names begin as Dagster's own do, so that the UI's lists of runs leave them out, as it does Dagster's; the page of a run and GraphQL
show them, and runs can be filtered by them. Versions before wrote ``incremental_assets/`` in place of that prefix. Such runs, and callers
who still write such tags, are understood wherever a tag is read from a run.
"""

from collections.abc import Mapping

import dagster as dg
from dagster._core.storage.tags import SYSTEM_TAG_PREFIX

from incremental_assets.catalog.definition import ContainerDefinition

PREFIX = f"{SYSTEM_TAG_PREFIX}incremental_assets."
"""What the names of the tags begin with."""
_PREFIX_BEFORE = "incremental_assets/"
CONTAINER_TAG, OPERATION_TAG = f"{PREFIX}container", f"{PREFIX}operation"
"""Tags of a run: its container (``datastore/container``), and what it does, such as a scan or a profile; a sync has no operation tag."""
DATASTORE_TAG = f"{PREFIX}datastore"
"""The tag of a run that concerns a whole datastore."""
STARTED_BY_TAG = f"{PREFIX}started_by"
"""The tag with the person or mechanism that started the run."""
REQUEST_TAG = f"{PREFIX}request"
"""The tag of a run with the id of the HTTP request that has launched it."""
RESULT_TAG = f"{PREFIX}result"
"""The tag with the outcome of an operation: ``success`` or ``warning``."""


def tags_of(definition: ContainerDefinition, operation: str) -> dict[str, str]:
    """The tags of a run that is no sync of the container, such as ``scan``."""
    container = definition.container
    return {CONTAINER_TAG: container.label, OPERATION_TAG: operation, DATASTORE_TAG: container.datastore}


def tag_of(run: dg.DagsterRun, name: str) -> str | None:
    """The value of one of these tags, which may be from an older version; None where the run does not have it."""
    return _tag(run.tags, name)


def is_sync(run: dg.DagsterRun) -> bool:
    """Whether the run is a sync. Runs of scans and profiles have the container's tag, too."""
    return (tag_of(run, OPERATION_TAG) or "sync") == "sync"


def datastore_of(run: dg.DagsterRun) -> str | None:
    """The datastore that the run is about, by its tags; None where they do not say."""
    return tag_of(run, DATASTORE_TAG) or (tag_of(run, CONTAINER_TAG) or "").partition("/")[0] or None


def runs_with(instance: dg.DagsterInstance, name: str, value: str, limit: int) -> list[dg.RunRecord]:
    """The newest runs with this tag, the newest first; those of older versions where there is none of this one."""
    found = instance.get_run_records(dg.RunsFilter(tags={name: value}), limit=limit)
    return list(found or instance.get_run_records(dg.RunsFilter(tags={_before(name): value}), limit=limit))


def started_by(tags: Mapping[str, str]) -> str:
    """The person or mechanism that started a run, by the run's tags."""
    by_itself = "schedule" if "dagster/schedule_name" in tags else "sensor" if "dagster/sensor_name" in tags else "UI"
    return _tag(tags, STARTED_BY_TAG) or tags.get("user") or by_itself


def schedule_of(tags: Mapping[str, str]) -> str | None:
    """The name of the schedule or sensor that started a run; None where neither did."""
    return tags.get("dagster/schedule_name") or tags.get("dagster/sensor_name")


def _tag(tags: Mapping[str, str], name: str) -> str | None:
    return tags.get(name) or tags.get(_before(name))


def _before(name: str) -> str:
    return _PREFIX_BEFORE + name.removeprefix(PREFIX)
