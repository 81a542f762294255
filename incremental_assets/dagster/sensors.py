"""Sensors: of a container, for files that came or changed; of a folder that is searched, for files that no container has.

Belongs here: what a tick looks at, and its cursor. Does not belong: the plan (``planning``), or the catalog operation.
"""

import dataclasses
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import dagster as dg

from incremental_assets.core.errors import ContainerMissing, SyncError
from incremental_assets.core.files import FileStamp, format_of
from incremental_assets.core.globs import fixed_part, owner_of
from incremental_assets.dagster.catalog_asset import FIRST_AGAIN_SECONDS, TAG
from incremental_assets.dagster.catalog_asset import job_name as catalog_job_name
from incremental_assets.dagster.jobs import CONTAINER_TAG, is_sync, job_name
from incremental_assets.dagster.project import lake_root
from incremental_assets.dagster.schedules import NotDue, launch_if_due
from incremental_assets.delta.table import LakeTable
from incremental_assets.files.definition import FileDefinition, FolderSettings
from incremental_assets.files.plan import FilesPlan

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 60, 3600
"""After a run that failed, until the same is tried again: twice as long each time."""


@dataclasses.dataclass(frozen=True)
class FolderState:
    """The folder, what the YAML says of it, and the version of the table: as long as all are the same, a comparison tells nothing new."""

    folder: str
    yaml: str
    version: int | None


@dataclasses.dataclass(frozen=True)
class Cursor:
    """What was seen last, and what came of it: nothing was left to do, or the ``runs``-th run for it was asked for (at ``at``)."""

    sight: FolderState
    settled: bool
    runs: int = 0
    at: float = 0.0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        try:
            found = json.loads(text or "null")
            return None if found is None else cls(**{**found, "sight": FolderState(**found["sight"])})
        except (KeyError, TypeError, ValueError):  # of an older version: all is compared once
            return None


def files_sensor(definition: FileDefinition) -> dg.SensorDefinition:
    """Runs by default, unless the container or its datastore has a schedule."""
    container, settings = definition.container, definition.settings
    scheduled = container.options.schedule or settings.schedule

    @dg.sensor(
        name=f"{job_name(definition)}_files",
        job_name=job_name(definition),
        minimum_interval_seconds=settings.sensor_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED if scheduled else dg.DefaultSensorStatus.RUNNING,
        description=f"Syncs {container.label} when files have come or changed; {settings.max_files_per_run:,} at a time.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context.instance, definition, context.cursor)

    return sensor


def tick(instance: dg.DagsterInstance, definition: FileDefinition, cursor: str | None) -> dg.SensorResult:
    """Fails with the reason where the folder is not there: that must not look like having nothing to do."""
    before, label = Cursor.from_json(cursor), definition.container.label
    try:
        own = ((path, stamp) for path, stamp in definition.listing(_ignore) if definition.owns(path))
        sight = FolderState(str(digest(own)), f"{definition.glob} {definition.prunes} {definition.how}", _version(definition))
        if before is not None and before.sight == sight and before.settled:
            return dg.SensorResult(skip_reason=f"{label}: nothing to do: the folder is as it was", cursor=cursor)
        runs = before.runs if before is not None and before.sight == sight else 0
        waits = _waits(instance, label, before) if before is not None and runs else None
        if waits is not None:
            return dg.SensorResult(skip_reason=waits, cursor=cursor)
        launch = launch_if_due(instance, definition)
    except ContainerMissing as error:
        return dg.SensorResult(skip_reason=str(error))
    except SyncError as error:
        raise dg.Failure(str(error)) from error
    if isinstance(launch, NotDue):
        settled = isinstance(launch.plan, FilesPlan) and launch.plan.is_settled
        kept = cursor if launch.plan is None else Cursor(sight, settled).to_json()
        return dg.SensorResult(skip_reason=launch.reason, cursor=kept)
    requests = [dg.RunRequest(run_config=launch.run_config, tags={CONTAINER_TAG: label, **tags}) for tags in launch.tags]
    return dg.SensorResult(run_requests=requests, cursor=Cursor(sight, False, runs + 1, time.time()).to_json())


def _waits(instance: dg.DagsterInstance, label: str, before: Cursor) -> str | None:
    """Why the same is not tried again yet."""
    runs = instance.get_runs(dg.RunsFilter(tags={CONTAINER_TAG: label}), limit=20)
    latest = next((run for run in runs if is_sync(run)), None)
    wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (before.runs - 1))
    left = round(before.at + wait - time.time())
    if latest is None or latest.status is not dg.DagsterRunStatus.FAILURE or left <= 0:
        return None
    return f"{label}: run {latest.run_id} has failed; the same is tried again in {left} s, and at once when a file comes or changes"


def unclaimed_sensor(settings: FolderSettings, patterns: Sequence[str]) -> dg.SensorDefinition:
    """Runs the catalog when files have come that no container's pattern matches. ``patterns``: of all containers, hidden ones too."""

    @dg.sensor(
        name=f"{catalog_job_name(settings.name)}_files",
        job_name=catalog_job_name(settings.name),
        minimum_interval_seconds=settings.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Runs the catalog of {settings.name} when files have come that belong to no container yet.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return find_unclaimed(context.instance, settings, patterns, context.cursor)

    return sensor


def find_unclaimed(instance: dg.DagsterInstance, settings: FolderSettings, patterns: Sequence[str], cursor: str | None) -> dg.SensorResult:
    """Once for the same files: what the catalog leaves out (``exclude``) belongs to no container, and stays so.

    Again where its run has failed, every five minutes.
    """
    near: defaultdict[str, list[str]] = defaultdict(list)
    for pattern in patterns:  # those that the catalog makes name their folder
        near[fixed_part(pattern)].append(pattern)

    def unclaimed() -> Iterator[tuple[str, FileStamp]]:
        for path, _ in settings.address.list("", _ignore):
            if format_of(path) is not None and owner_of(path, near.get(path.rpartition("/")[0], ())) is None:
                yield path, FileStamp(0, 0)

    try:
        found = digest(unclaimed())
    except SyncError as error:
        raise dg.Failure(str(error)) from error
    latest = next(iter(instance.get_run_records(dg.RunsFilter(job_name=catalog_job_name(settings.name)), limit=1)), None)
    failed = latest is not None and latest.dagster_run.status is dg.DagsterRunStatus.FAILURE
    again = failed and latest is not None and time.time() - (latest.end_time or 0) > FIRST_AGAIN_SECONDS
    if not found.count or (str(found) == cursor and not again):
        return dg.SensorResult(skip_reason=f"{settings.name}: no file has come that belongs to no container", cursor=cursor)
    return dg.SensorResult(run_requests=[dg.RunRequest(tags={f"{TAG}started_by": "files of no container"})], cursor=str(found))


def _ignore(where: str, message: str) -> None:
    """What cannot be looked into now may be later; the plan, and the catalog, tell of it."""


@dataclasses.dataclass(frozen=True)
class Digest:
    """Of a set of files, in any order: the sum of their hashes."""

    count: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.count}:{self.total:032x}"


_HASHES = 2**128


def digest(files: Iterable[tuple[str, FileStamp]]) -> Digest:
    """Of paths and stamps; its memory does not grow with their number."""
    total, count = 0, 0
    for path, stamp in files:
        line = f"{path}\0{stamp.modified}\0{stamp.size}\0{stamp.etag}".encode("utf-8", "surrogateescape")
        total, count = (total + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")) % _HASHES, count + 1
    return Digest(count, total)


def _version(definition: FileDefinition) -> int | None:
    head = LakeTable(lake_root(), *definition.container.key_path).head()
    return None if head is None else head.version
