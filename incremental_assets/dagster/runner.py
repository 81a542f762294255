"""Syncs containers for the command line: plans each, executes it as an ordinary Dagster run, and returns one record for each container.

Belongs here: executing the runs, and making the records of ``sync --json`` from their events. Does not belong: the processes that sync
several containers at a time (``runs.workers``), or the output on a terminal (``cli``).
"""

import functools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, is_named
from incremental_assets.core.cursor_type import json_value
from incremental_assets.core.errors import ConfigurationError, ContainerMissing, SyncError
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.dagster.adapters import adapter_of
from incremental_assets.dagster.jobs import job_name, keep_learned, launch_of
from incremental_assets.dagster.locks import holder_of
from incremental_assets.dagster.metadata import in_one, line, plain
from incremental_assets.dagster.partitions import container_key, keys_between
from incremental_assets.dagster.project import dagster_home, lake_root
from incremental_assets.dagster.quality.summary import summary_in
from incremental_assets.dagster.runs.ordinary_run import command_line_instance, run_here
from incremental_assets.dagster.runs.workers import run_in_workers
from incremental_assets.delta.result import NEW
from incremental_assets.files.rounds import first_round, next_round, parts_of_refresh

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyncOptions:
    """The options of a sync, which hold for each of its containers.

    ``mode``: None means ``incremental``. ``keys``: the first and the last partition key of a refresh, both inclusive; None: no partitions
    were named. ``reset``: loads the whole container anew. ``allow_empty``: the sync may remove rows although the source has none in their
    place. ``started_by``: the value of the tag by which the UI shows who started the run.
    """

    mode: Mode | None = None
    keys: tuple[str, str] | None = None
    reset: bool = False
    allow_empty: bool = False
    started_by: str = "command line"

    def request(self, definition: ContainerDefinition, instance: dg.DagsterInstance) -> Request:
        """The request for one container. Raises ConfigurationError where the options do not apply to it."""
        container = definition.container
        if self.mode is Mode.INCREMENTAL and container.identifier is None:
            raise ConfigurationError(
                f"{container.label}: incremental field not configured. Add it under incremental:, or leave --mode out."
            )
        if self.keys is not None:
            if container.identifier is None:
                raise ConfigurationError(f"{container.label}: it has no partitions: incremental field not configured.")
            if self.mode is Mode.INCREMENTAL:
                raise ConfigurationError("--partition and --from/--to ask for a refresh, not for --mode incremental.")
            return Request(Mode.REFRESH, tuple(keys_between(definition, instance, *self.keys)), False, self.allow_empty)
        return Request(self.mode or Mode.INCREMENTAL, None, self.reset, self.allow_empty)


class Runner:
    """Syncs containers in this process, one after another."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self._definitions = definitions
        self._instance = instance
        # Of the last run of a container of files: how many files it has left to be read, and how many it has read or refused.
        self._left = self._done = 0

    def sync(self, chosen: Sequence[ContainerDefinition], asked: SyncOptions) -> Iterator[dict[str, Any]]:
        """Yields the record of each container as it finishes. Raises KeyboardInterrupt after a run was cancelled.

        Raises ConfigurationError before the first run where the options do not apply to one of the containers.
        """
        for definition, request in [(d, asked.request(d, self._instance)) for d in chosen]:
            yield from self._one(definition, request, asked.started_by)

    def _one(self, definition: ContainerDefinition, request: Request, started_by: str) -> list[dict[str, Any]]:
        """Syncs one container in as many rounds as it needs (``files.rounds``). Returns its record, as a list of one."""
        lines: list[dict[str, Any]] = []
        asked: Request | None = first_round(definition, request)
        while asked is not None:
            found, asked = self._round(definition, asked, started_by)
            # A further round that has nothing to do ends the sync. Its record is left out.
            if lines and all(one["status"] == "skipped" for one in found):
                break
            lines += found
        # The message of each round says how many files are left. Those of the first and the last round are enough.
        for one in lines[1:-1]:
            one["message"] = one["message"] if one["status"] != "synced" else ""
        return [in_one(lines)]

    def _round(self, definition: ContainerDefinition, request: Request, started_by: str) -> tuple[list[dict[str, Any]], Request | None]:
        """Plans and executes one round. Returns the records of its runs, and the request of the next round; None: there is no next one."""
        container = definition.container
        started = time.monotonic()
        common: dict[str, Any] = {"mode": request.mode.value, "strategy": container.strategy.value}
        try:
            # This marks a killed run as failed, which would otherwise keep its slot in the container's pool.
            holder_of(dagster_home(), container, self._instance)
            plan, keys = adapter_of(definition).plan(self._instance, request, lake_root())
            watermark = None if container.cursor_type is None else json_value(container.cursor_type, plan.watermark)
            if plan.action is Action.SKIP:
                now = keep_learned(definition, self._instance, plan)
                moved = {} if container.cursor_type is None else {NEW: json_value(container.cursor_type, now)}
                status = "warning" if plan.alarm else "skipped"
                seconds = time.monotonic() - started
                skipped = line(container.label, status, metadata=moved, message=plan.reason, watermark=watermark, seconds=seconds, **common)
                return [skipped], None
            parts = parts_of_refresh(definition, plan)
            if len(parts) > 1:
                return [one for part in parts for one in self._round(definition, part, started_by)[0]], None
            launch = launch_of(definition, self._instance, plan, keys)
        except ContainerMissing as error:
            return [line(container.label, "failed" if is_named(definition) else "warning", message=str(error), **common)], None
        except SyncError as error:
            return [line(container.label, "failed", message=str(error), seconds=time.monotonic() - started, **common)], None
        self._left = self._done = 0
        lines = [self._run(definition, plan, launch.run_config, tags, started_by) for tags in launch.tags]
        failed = any(one["status"] == "failed" for one in lines)
        return lines, None if failed else next_round(plan, self._left, self._done)

    def _run(self, definition: ContainerDefinition, plan: Plan, run_config: Any, tags: Any, started_by: str) -> dict[str, Any]:
        """Executes one run, and makes its record from its events."""
        container = definition.container
        job = self._definitions.resolve_job_def(job_name(definition))
        ended = run_here(job, self._instance, run_config, {"incremental_assets/started_by": started_by, **tags})
        events, failure = ended.events, ended.failure
        common = {
            "mode": plan.request.mode.value,
            "strategy": container.strategy.value,
            "run_id": ended.run_id,
            "seconds": ended.seconds,
        }
        watermark = None if container.cursor_type is None else json_value(container.cursor_type, plan.watermark)
        key = container_key(container)
        written = [e.step_materialization_data.materialization for e in events if e.is_step_materialization and e.asset_key == key]
        checks = summary_in(events)
        if failure and (checks is None or not written):
            return line(container.label, "failed", message=failure, watermark=watermark, **common)
        # Without a materialization nothing was written. The observation, if there is one, has the status and the message.
        if not written:
            seen = [e.asset_observation_data.asset_observation for e in events if e.is_asset_observation]
            observed = next((one for one in seen if "sync/message" in one.metadata), None)
            said = plain(observed.metadata) if observed else {"sync/message": "nothing to do any more"}
            self._count(said)
            status, message = str(said.get("sync/status", "skipped")), str(said.get("sync/message", ""))
            numbers = observed.metadata if observed else None
            return line(container.label, status, metadata=numbers, message=message, watermark=watermark, **common)
        keys = sorted(m.partition for m in written if m.partition is not None and "file/refused" not in m.metadata)
        metadata = max((m.metadata for m in written), key=len)
        values = plain(metadata)
        self._count(values)
        status, message = str(values.get("sync/status", "synced")), str(values.get("sync/message", ""))
        # The rows are in the lake and were checked: the run has failed because a blocking rule is broken.
        if failure:
            status, message = "failed", failure
        elif checks is not None and (checks["failed"] or checks["errored"]):
            status, message = "warning", f"{message}; quality: {checks['message']}"
        partitions = _in_order(container.cursor_type, keys)
        return line(container.label, status, metadata=metadata, partitions=partitions, message=message, checks=checks, **common)

    def _count(self, said: Mapping[str, Any]) -> None:
        """Takes the numbers of files from the metadata of a run's event."""
        self._left = int(said.get("sync/files_left", 0))
        self._done = int(said.get("sync/files_read", 0)) + int(said.get("sync/files_refused", 0))


def sync_in_workers(
    project: Path, chosen: Sequence[ContainerDefinition], asked: SyncOptions, instance: dg.DagsterInstance, jobs: int
) -> Iterator[dict[str, Any]]:
    """Syncs containers in up to ``jobs`` worker processes, each with its own Spark session. Yields records as ``Runner.sync`` does.

    Raises ConfigurationError before the first run where the options do not apply to one of the containers.
    """
    for definition in chosen:
        asked.request(definition, instance)  # only to raise the errors of wrong usage before anything runs
    tasks = [(d.container.datastore, d.container.name, asked) for d in chosen]

    def lost(task: tuple[str, str, SyncOptions], message: str) -> list[dict[str, Any]]:
        return [line(f"{task[0]}/{task[1]}", "failed", message=f"{task[0]}/{task[1]}: {message}")]

    of_these = functools.partial(worker, frozenset(task[:2] for task in tasks))
    return run_in_workers(min(jobs, len(tasks)), tasks, of_these, project, lost)


def worker(chosen: Collection[tuple[str, str]], project: Path) -> Callable[[tuple[str, str, SyncOptions]], list[dict[str, Any]]]:
    """Loads the project in a worker process, and returns the function that executes one task there.

    A task is a tuple of datastore, container and options. ``chosen``: datastore and container of all tasks; definitions of other containers
    need not be built.
    """
    from incremental_assets.dagster.loading import load_project
    from incremental_assets.dagster.project import enter_project

    enter_project(project)
    loaded = load_project(project)
    found = {(s.name, d.container.name): d for s in loaded.datastores for d in s.definitions}
    only = [definition for name, definition in found.items() if name in chosen]
    runner = Runner(loaded.definitions(only), command_line_instance())

    def run(task: tuple[str, str, SyncOptions]) -> list[dict[str, Any]]:
        definition = found.get(task[:2])
        if definition is None:
            label = f"{task[0]}/{task[1]}"
            return [line(label, "failed", message=f"{label}: it was taken out of the catalog or the YAML just now.")]
        return list(runner.sync([definition], task[2]))

    return run


def _in_order(cursor_type: Any, keys: list[str]) -> list[str]:
    """The partition keys, which are sorted as text, in the order of their values: keys of integers are sorted as numbers."""
    return sorted(keys, key=int) if cursor_type is not None and not cursor_type.is_time else keys
