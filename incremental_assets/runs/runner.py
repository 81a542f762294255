"""Syncs containers for the command line: plans each, executes it as an ordinary Dagster run, and returns one record for each container."""

import contextlib
import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, is_named
from incremental_assets.core.cursor_type import json_value
from incremental_assets.core.errors import ConfigurationError, ContainerMissing, LogLost, SyncError
from incremental_assets.core.looks import Look
from incremental_assets.core.plan import Action, AuditRequest, Mode, Plan, Request
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.delta.result import NEW
from incremental_assets.files.rounds import first_round, is_first_of_several, next_round, parts_of_refresh
from incremental_assets.project.folders import dagster_home, lake_root
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.dagster_internals.one_asset_job import implicit_job
from incremental_assets.runs.launch import has_own_job, job_name, keep_learned, launch_of
from incremental_assets.runs.locks import holder_of
from incremental_assets.runs.ordinary_run import run_here
from incremental_assets.runs.partitions import container_key, keys_between
from incremental_assets.runs.plans_ahead import PlansAhead
from incremental_assets.runs.quality.summary import summary_in
from incremental_assets.runs.records.covered_partitions import is_written
from incremental_assets.runs.records.looks import remember
from incremental_assets.runs.records.metadata import in_one, line, plain
from incremental_assets.runs.records.operation_log import record_unplanned
from incremental_assets.runs.records.retained_log import report_lost_without_run
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, STARTED_BY_TAG

log = logging.getLogger(__name__)
MakePlan = Callable[[], tuple[Plan, list[str]]]
"""A function that returns a plan, and the partition keys that its run would have."""


@dataclass(frozen=True)
class SyncOptions:
    """The options of a sync, which hold for each of its containers.

    ``mode``: None means ``incremental``. ``keys``: the first and the last partition key of a refresh, both inclusive; None: no partitions
    were named. ``reset``: loads the whole container anew. ``allow_empty``: the sync may remove rows although the source has none in their
    place. ``sweep``: the containers that have sweeps are swept, due or not. ``started_by``: the value of the tag by which the UI shows who
    started the run.
    """

    mode: Mode | None = None
    keys: tuple[str, str] | None = None
    reset: bool = False
    allow_empty: bool = False
    sweep: bool = False
    started_by: str = "command line"

    def request(self, definition: ContainerDefinition, instance: dg.DagsterInstance) -> Request:
        """The request for one container. Raises ConfigurationError where the options do not apply to it."""
        container = definition.container
        if self.mode is Mode.INCREMENTAL and container.identifier is None and not container.is_captured:
            raise ConfigurationError(
                f"{container.label}: incremental field not configured. Add it under incremental:, or leave --mode out."
            )
        if self.keys is not None:
            if container.identifier is None:
                raise ConfigurationError(f"{container.label}: it has no partitions: incremental field not configured.")
            if self.mode is Mode.INCREMENTAL:
                raise ConfigurationError("--partition and --from/--to ask for a refresh, not for --mode incremental.")
            return Request(Mode.REFRESH, tuple(keys_between(definition, instance, *self.keys)), False, self.allow_empty)
        sweep = self.sweep and container.options.sweeps
        return Request(self.mode or Mode.INCREMENTAL, None, self.reset, self.allow_empty, sweep=sweep)


class Runner:
    """Syncs containers in this process, one after another."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self._definitions = definitions
        self._instance = instance
        # Of the last run of a container of files: how many files it has left to be read, and how many it has read or refused.
        self._left = self._done = 0
        # By label, up to when the lake has what the source had: of those containers that needed no run, which records that itself.
        self._covered: dict[str, Look | None] = {}

    def sync(
        self,
        chosen: Sequence[ContainerDefinition],
        options: SyncOptions,
        waiting: deque[int] | None = None,
        counts: SlotCounts | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yields the record of each container as it finishes. Raises KeyboardInterrupt after a run was cancelled.

        ``waiting``: the positions of the containers to be synced; None: all. They are taken from its left end one by one, and others may
        take some from its right end meanwhile. ``counts``: where the command syncs more containers than these; None: these are all of them.
        Raises ConfigurationError before the first run where the options do not apply to one of the containers.
        """
        counts = SlotCounts(chosen, lake_root()) if counts is None else counts
        waiting = deque(range(len(chosen))) if waiting is None else waiting
        requests = [(d, first_round(d, options.request(d, self._instance))) for d in (chosen[position] for position in tuple(waiting))]
        with contextlib.ExitStack() as stack:
            # Once for all of them: to record one takes about as long as to find that it has not changed.
            stack.callback(remember, self._instance, self._covered)
            ahead = stack.enter_context(PlansAhead([functools.partial(self._plan, *one, counts) for one in requests]))
            for definition, request in requests:
                try:
                    waiting.popleft()
                except IndexError:
                    return
                yield self._one(definition, request, options.started_by, ahead.take)

    def refresh(self, definition: ContainerDefinition, request: Request, started_by: str) -> dict[str, Any]:
        """Carries out one request. Returns the record of its runs."""
        return self._one(definition, request, started_by, lambda: self._plan(definition, request))

    def audit(self, definition: ContainerDefinition, audit: AuditRequest, started_by: str) -> dict[str, Any]:
        """Syncs the container and compares it with its source, in one run. Returns the run's record."""
        request = replace(first_round(definition, Request(Mode.INCREMENTAL)), audit=audit)
        started = time.monotonic()
        try:
            plan, keys = self._plan(definition, request)
            # More files than one run reads are read by the runs of an ordinary sync, before the one that compares.
            if is_first_of_several(plan):
                sync = replace(request, audit=None)
                synced = self._one(definition, sync, started_by, lambda: self._plan(definition, sync))
                if synced["status"] == "failed":
                    return synced
                plan, keys = self._plan(definition, request)
            # Where there is nothing to be synced, the run has no partitions, and compares all the same.
            launch = launch_of(definition, self._instance, plan, [] if plan.action is Action.SKIP else keys)
        except SyncError as error:
            return line(definition.container.label, "failed", message=str(error), seconds=time.monotonic() - started)
        return self._run(definition, plan, launch.run_config, launch.tags[0], started_by)

    def _one(self, definition: ContainerDefinition, request: Request, started_by: str, first_plan: MakePlan) -> dict[str, Any]:
        """Syncs one container in as many rounds as it needs (``files.rounds``). Returns its record. ``first_plan``: for the first round."""
        lines: list[dict[str, Any]] = []
        left: Request | None = request
        while left is not None:
            found, left = self._round(definition, left, started_by, None if lines else first_plan)
            # A further round that has nothing to do ends the sync. Its record is left out.
            if lines and all(one["status"] == "skipped" for one in found):
                break
            lines += found
        # The message of each round says how many files are left. Those of the first and the last round are enough.
        for one in lines[1:-1]:
            one["message"] = one["message"] if one["status"] != "synced" else ""
        return in_one(lines)

    def _plan(self, definition: ContainerDefinition, request: Request, counts: SlotCounts | None = None) -> tuple[Plan, list[str]]:
        """The plan, and the partition keys that its run would have. Raises SyncError."""
        # This marks a killed run as failed, which would otherwise keep its slot in the container's pool.
        holder_of(dagster_home(), definition.container, self._instance)
        return adapter_of(definition).plan(self._instance, request, lake_root(), counts=counts)

    def _round(
        self, definition: ContainerDefinition, request: Request, started_by: str, plan_now: MakePlan | None = None
    ) -> tuple[list[dict[str, Any]], Request | None]:
        """Plans and executes one round. Returns the records of its runs, and the request of the next round; None: there is no next one."""
        container = definition.container
        started = time.monotonic()
        common: dict[str, Any] = {"mode": request.mode.value, "strategy": container.strategy.value}
        try:
            plan, keys = plan_now() if plan_now is not None else self._plan(definition, request)
            watermark = None if container.cursor_type is None else json_value(container.cursor_type, plan.watermark)
            if plan.action is Action.SKIP:
                self._covered[container.label] = plan.look
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
            if is_named(definition):
                record_unplanned(lake_root(), container, str(error), time.monotonic() - started, started_by)
            return [line(container.label, "failed" if is_named(definition) else "warning", message=str(error), **common)], None
        except SyncError as error:
            if isinstance(error, LogLost):
                report_lost_without_run(self._instance, definition, error)
            record_unplanned(lake_root(), container, str(error), time.monotonic() - started, started_by)
            return [line(container.label, "failed", message=str(error), seconds=time.monotonic() - started, **common)], None
        self._left = self._done = 0
        lines = [self._run(definition, plan, launch.run_config, tags, started_by) for tags in launch.tags]
        failed = any(one["status"] == "failed" for one in lines)
        return lines, None if failed else next_round(plan, self._left, self._done)

    def _run(self, definition: ContainerDefinition, plan: Plan, run_config: Any, tags: Any, started_by: str) -> dict[str, Any]:
        """Executes one run, and makes its record from its events."""
        container = definition.container
        key = container_key(container)
        all_tags = {STARTED_BY_TAG: started_by, CONTAINER_TAG: container.label, **tags}
        if has_own_job(definition):
            ended = run_here(self._definitions.resolve_job_def(job_name(definition)), self._instance, run_config, all_tags)
        else:
            ended = run_here(implicit_job(self._definitions, key), self._instance, run_config, all_tags, {key})
        events, failure = ended.events, ended.failure
        common = {
            "mode": plan.request.mode.value,
            "strategy": container.strategy.value,
            "run_id": ended.run_id,
            "seconds": ended.seconds,
        }
        watermark = None if container.cursor_type is None else json_value(container.cursor_type, plan.watermark)
        written = [e.step_materialization_data.materialization for e in events if e.is_step_materialization and e.asset_key == key]
        checks = summary_in(events)
        if failure and not written:
            return line(container.label, "failed", message=failure, watermark=watermark, **common)
        # Without a materialization nothing was written. The observation, if there is one, has the status and the message.
        if not written:
            seen = [e.asset_observation_data.asset_observation for e in events if e.is_asset_observation]
            observed = next((values for values in (plain(one.metadata) for one in seen) if "sync/message" in values), None)
            values = observed or {"sync/message": "nothing to do any more"}
            self._count(values)
            status, message = str(values.get("sync/status", "skipped")), str(values.get("sync/message", ""))
            return line(container.label, status, metadata=observed, message=message, watermark=watermark, **common)
        of_rows = [one for one in written if "file/refused" not in one.metadata and is_written(one.metadata)]
        keys = sorted(one.partition for one in of_rows if one.partition is not None)
        values = max((plain(one.metadata) for one in written), key=len)
        self._count(values)
        status, message = str(values.get("sync/status", "synced")), str(values.get("sync/message", ""))
        # The rows are in the lake. The run has failed because a blocking rule is broken, or because partitions were left out.
        if failure:
            status, message = "failed", failure
        elif checks is not None and (checks["failed"] or checks["errored"]):
            status, message = "warning", f"{message}; quality: {checks['message']}"
        partitions = _in_order(container.along_axis.cursor_type, keys)
        return line(container.label, status, metadata=values, partitions=partitions, message=message, checks=checks, **common)

    def _count(self, values: Mapping[str, Any]) -> None:
        """Takes the numbers of files from the metadata of a run's event."""
        self._left = int(values.get("sync/files_left", 0))
        self._done = int(values.get("sync/files_read", 0)) + int(values.get("sync/files_refused", 0))


def _in_order(cursor_type: Any, keys: list[str]) -> list[str]:
    """The partition keys, which are sorted as text, in the order of their values: keys of integers are sorted as numbers."""
    return sorted(keys, key=int) if cursor_type is not None and not cursor_type.is_time else keys
