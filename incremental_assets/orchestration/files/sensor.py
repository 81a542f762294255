"""A container's sensor: a run for the files that came or changed.

Belongs here: what a tick looks at, and its cursor. Does not belong: the plan (``planning``).
"""

import dataclasses
import hashlib
import json

import dagster as dg

from incremental_assets.catalog.folder import FileDefinition
from incremental_assets.lake.table import LakeTable
from incremental_assets.model.errors import SyncError
from incremental_assets.orchestration.files.planning import FilesPlan
from incremental_assets.orchestration.jobs import CONTAINER_TAG, job_name
from incremental_assets.orchestration.project import lake_root
from incremental_assets.orchestration.schedules import NotDue, launch_if_due


@dataclasses.dataclass(frozen=True)
class Cursor:
    """The folder, what the YAML says of it, and the table, when nothing was left to do: as long as all are so, nothing is compared."""

    folder: str
    yaml: str
    version: int | None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        try:
            return None if text is None else cls(**json.loads(text))
        except (TypeError, ValueError):  # of an older version: all is compared once
            return None


def files_sensor(definition: FileDefinition) -> dg.SensorDefinition:
    """Runs by default, unless the container or its datastore has a schedule."""
    container, settings = definition.container, definition.settings
    scheduled = container.options.schedule or settings.schedule

    @dg.sensor(
        name=f"{job_name(definition)}_files",
        job_name=job_name(definition),
        minimum_interval_seconds=settings.look_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED if scheduled else dg.DefaultSensorStatus.RUNNING,
        description=f"Syncs {container.label} when files have come or changed; {settings.most_files:,} at a time.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context.instance, definition, context.cursor)

    return sensor


def tick(instance: dg.DagsterInstance, definition: FileDefinition, cursor: str | None) -> dg.SensorResult:
    """Fails with the reason where the folder is not there: that must not look like having nothing to do."""
    try:
        now = Cursor(_digest(definition), f"{definition.glob} {definition.prunes}", _version(definition))
        if Cursor.from_json(cursor) == now:
            return dg.SensorResult(skip_reason=f"{definition.container.label}: nothing to do: the folder is as it was", cursor=cursor)
        launch = launch_if_due(instance, definition)
    except SyncError as error:
        raise dg.Failure(str(error)) from error
    if isinstance(launch, NotDue):
        settled = isinstance(launch.plan, FilesPlan) and launch.plan.is_settled
        return dg.SensorResult(skip_reason=launch.reason, cursor=now.to_json() if settled else None)
    label = definition.container.label
    requests = [dg.RunRequest(run_config=launch.run_config, tags={CONTAINER_TAG: label, **tags}) for tags in launch.tags]
    return dg.SensorResult(run_requests=requests)


def _digest(definition: FileDefinition) -> str:
    """Of all paths and stamps, in any order; its memory does not grow with the folder."""
    total, count = 0, 0
    for path, stamp in definition.settings.address.list(definition.folder, lambda where, message: None):
        if definition.owns(path):
            line = f"{path}\0{stamp.modified}\0{stamp.size}\0{stamp.etag}".encode("utf-8", "surrogateescape")
            total, count = (total + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")) % 2**128, count + 1
    return f"{count}:{total:032x}"


def _version(definition: FileDefinition) -> int | None:
    head = LakeTable(lake_root(), *definition.container.key_path).head()
    return None if head is None else head.version
