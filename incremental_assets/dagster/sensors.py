"""Builds the sensors of files: one for each container, for new and changed files, and one for each folder that the catalog searches.

The sensor of a folder starts the catalog operation when files have come that belong to no container.
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
from incremental_assets.core.looks import Look
from incremental_assets.delta.table import LakeTable
from incremental_assets.files.definition import FileDefinition, FolderSettings
from incremental_assets.files.plan import FilesPlan
from incremental_assets.project.folders import lake_root
from incremental_assets.runs.adapters.file_adapter import FileAdapter
from incremental_assets.runs.automation import sensor_name
from incremental_assets.runs.catalog_run import FIRST_AGAIN_SECONDS
from incremental_assets.runs.catalog_run import job_name as catalog_job_name
from incremental_assets.runs.due import NotDue, at_work, launch_planned
from incremental_assets.runs.launch import job_name
from incremental_assets.runs.records.looks import remember
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, STARTED_BY_TAG, is_sync

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 60, 3600
"""How long the sensor waits after a run that failed, until it requests a run for an unchanged folder again.

The first wait is doubled after each further run, up to the longest one."""


@dataclasses.dataclass(frozen=True)
class FolderState:
    """Everything on which a container's plan depends. While it is the same, a new plan would have the same result.

    ``folder``: a digest of keys and stamps of the container's files (see ``digest``). ``yaml``: the settings by which they are read.
    ``version``: the Delta version of the container's table; None: there is no table.
    """

    folder: str
    yaml: str
    version: int | None


@dataclasses.dataclass(frozen=True)
class Cursor:
    """The sensor's cursor: the state that its last tick saw, and what the tick did.

    ``settled``: there is nothing more to do for this state. ``runs``: how many ticks in a row have requested runs for this state. ``at``:
    when the last of them did (seconds since 1970 UTC).
    """

    sight: FolderState
    settled: bool
    runs: int = 0
    at: float = 0.0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor | None":
        """The cursor; None where there is none, or where its text is of an older version. All is compared once then."""
        try:
            found = json.loads(text or "null")
            return None if found is None else cls(**{**found, "sight": FolderState(**found["sight"])})
        except (KeyError, TypeError, ValueError):
            return None


def files_sensor(definition: FileDefinition) -> dg.SensorDefinition:
    """The sensor of one container. It is switched on by default, unless the container or its datastore has a schedule."""
    container, settings = definition.container, definition.settings
    scheduled = container.options.schedule or settings.schedule

    @dg.sensor(
        name=sensor_name(definition),
        job_name=job_name(definition),
        minimum_interval_seconds=settings.sensor_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED if scheduled else dg.DefaultSensorStatus.RUNNING,
        description=f"Syncs {container.label} when files have come or changed; {settings.max_files_per_run:,} at a time.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context.instance, definition, context.cursor)

    return sensor


def tick(instance: dg.DagsterInstance, definition: FileDefinition, cursor: str | None) -> dg.SensorResult:
    """Evaluates one tick. ``cursor``: the text of the last tick's cursor; None: there is none.

    Raises Failure where the folder cannot be listed or the container cannot be planned: that must not be shown as a skip.
    """
    before, label, adapter = Cursor.from_json(cursor), definition.container.label, FileAdapter(definition)
    try:
        listed = adapter.listing()
        sight = FolderState(
            str(digest(listed.stamps.items())), f"{definition.glob} {definition.options.prune} {definition.how}", _version(definition)
        )
        if before is not None and before.sight == sight and before.settled:
            remember(instance, {label: None if listed.at is None else Look(int(listed.at))})
            return dg.SensorResult(skip_reason=f"{label}: nothing to do: the folder is as it was", cursor=cursor)
        # The count begins again when the state has changed: a file that comes or changes ends the wait after a failure.
        runs = before.runs if before is not None and before.sight == sight else 0
        waits = _waits(instance, label, before) if before is not None and runs else None
        if waits is not None:
            return dg.SensorResult(skip_reason=waits, cursor=cursor)
        # Looked up before the plan: a run that syncs the container now may change what the plan would find.
        launch = at_work(instance, definition)
        if launch is None:
            launch = launch_planned(instance, definition, *adapter.plan_from(listed, instance, adapter.due, lake_root()))
    except ContainerMissing as error:
        return dg.SensorResult(skip_reason=str(error), cursor=cursor)
    except SyncError as error:
        raise dg.Failure(str(error)) from error
    if isinstance(launch, NotDue):
        remember(instance, {label: launch.look})
        settled = isinstance(launch.plan, FilesPlan) and launch.plan.is_settled
        # Without a plan nothing is known of this state. The old cursor stays, so that the next tick plans.
        kept = cursor if launch.plan is None else Cursor(sight, settled).to_json()
        return dg.SensorResult(skip_reason=launch.reason, cursor=kept)
    requests = [dg.RunRequest(run_config=launch.run_config, tags={CONTAINER_TAG: label, **tags}) for tags in launch.tags]
    return dg.SensorResult(run_requests=requests, cursor=Cursor(sight, False, runs + 1, time.time()).to_json())


def _waits(instance: dg.DagsterInstance, label: str, before: Cursor) -> str | None:
    """The reason why no run is requested yet for a state whose last run has failed; None where one may be requested.

    ``before``: the cursor, with ``runs`` of at least 1.
    """
    runs = instance.get_runs(dg.RunsFilter(tags={CONTAINER_TAG: label}), limit=20)
    latest = next((run for run in runs if is_sync(run)), None)
    wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (before.runs - 1))
    left = round(before.at + wait - time.time())
    if latest is None or latest.status is not dg.DagsterRunStatus.FAILURE or left <= 0:
        return None
    return f"{label}: run {latest.run_id} has failed; the same is tried again in {left} s, and at once when a file comes or changes"


def unclaimed_sensor(settings: FolderSettings, patterns: Sequence[str]) -> dg.SensorDefinition:
    """The sensor that runs the catalog operation when files have come that no container's pattern matches.

    ``patterns``: the glob patterns of all containers, including hidden ones.
    """

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
    """Evaluates one tick. ``cursor``: the digest of the files without container that the last requested run was for; None: there is none.

    The operation is run once for the same files: those that it leaves out (``exclude``) belong to no container afterwards either. Where its
    run has failed, it is run again every ``FIRST_AGAIN_SECONDS``. Raises Failure where the folder cannot be listed.
    """
    # Comparing each file with all patterns would take too long. The patterns of a folder that is searched are made by the catalog: each
    # names its folder in full, so only patterns of a file's own folder can match it.
    near: defaultdict[str, list[str]] = defaultdict(list)
    for pattern in patterns:
        near[fixed_part(pattern)].append(pattern)

    def unclaimed() -> Iterator[tuple[str, FileStamp]]:
        # A folder that cannot be listed is left to a later tick; the plan and the catalog report it.
        for path, _ in settings.address.list("", {}):
            if format_of(path) is not None and owner_of(path, near.get(path.rpartition("/")[0], ())) is None:
                yield path, FileStamp(0, 0)  # only new names matter: an unclaimed file that changes stays unclaimed

    try:
        found = digest(unclaimed())
    except SyncError as error:
        raise dg.Failure(str(error)) from error
    latest = next(iter(instance.get_run_records(dg.RunsFilter(job_name=catalog_job_name(settings.name)), limit=1)), None)
    failed = latest is not None and latest.dagster_run.status is dg.DagsterRunStatus.FAILURE
    again = failed and latest is not None and time.time() - (latest.end_time or 0) > FIRST_AGAIN_SECONDS
    if not found.count or (str(found) == cursor and not again):
        return dg.SensorResult(skip_reason=f"{settings.name}: no file has come that belongs to no container", cursor=cursor)
    return dg.SensorResult(run_requests=[dg.RunRequest(tags={STARTED_BY_TAG: "files of no container"})], cursor=str(found))


@dataclasses.dataclass(frozen=True)
class Digest:
    """A digest of a set of files that does not depend on their order. ``total``: the sum of the files' hashes modulo 2^128."""

    count: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.count}:{self.total:032x}"


_HASHES = 2**128


def digest(files: Iterable[tuple[str, FileStamp]]) -> Digest:
    """The digest of files, given as paths or keys, each with its stamp."""
    total = count = 0
    for path, (modified, size, etag, identity) in files:
        count += 1
        line = f"{path}\0{modified}\0{size}\0{etag}\0{identity}".encode("utf-8", "surrogateescape")
        total += int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")
    return Digest(count, total % _HASHES)


def _version(definition: FileDefinition) -> int | None:
    head = LakeTable(lake_root(), *definition.container.key_path).head()
    return None if head is None else head.version
