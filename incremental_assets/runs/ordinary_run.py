"""Executes a job of the code location in this process, as a run that the UI shows like those which the daemon starts.

Dagster's own ``execute_in_process`` leaves a run without a code location: the UI then neither links to its job nor offers to run it again.
"""

import contextlib
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG
from filelock import FileLock

from incremental_assets.project.folders import current_project, dagster_home, location_name
from incremental_assets.runs.dagster_internals.event_batches import store_events_in_batches
from incremental_assets.runs.dagster_internals.sqlite_files import spare_sqlite_files
from incremental_assets.runs.loggers import BRIEF_LOGGER
from incremental_assets.runs.records.event_log import asset_events_of, failure_of, is_interrupted

REPOSITORY = "__repository__"
"""Dagster's own name for the one repository of a code location made by ``Definitions``."""

POLL_SECONDS = 2.0
"""How often a running run checks whether it was terminated in the UI or has exceeded its time limit."""
log = logging.getLogger(__name__)


def command_line_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME, without the capture of raw output.

    Dagster's capture redirects the stdout of the whole process, which carries the lines of ``--json``.
    """
    silent = {"compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager", "config": {}}}
    home = dagster_home()
    store_events_in_batches()
    spare_sqlite_files(home)
    # The instance makes its databases where there are none. Two processes that do so at the same time fail.
    with FileLock(home / "storage.lock"):
        return dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=silent))


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended.

    ``events``: its events; of a failed run, only the asset events. ``failure``: why it failed; "" where it did not. ``error``: the class
    name of the exception that made it fail; "" where that is not known. ``seconds``: how long it took.
    """

    run_id: str
    events: Sequence[dg.DagsterEvent]
    failure: str
    error: str
    seconds: float


def run_here(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    run_config: Mapping[str, Any],
    tags: Mapping[str, str],
    assets: Set[dg.AssetKey] | None = None,
) -> EndedRun:
    """Executes the job as a run in this process. ``assets``: those of Dagster's job of all assets that the run is about.

    It must be called in the main thread, because it is interrupted by signals. A run has failed, too, where *Terminate* was pressed in the
    UI, and where it took longer than its tag ``dagster/max_runtime`` allows; the daemon enforces this tag for its own runs only. Raises
    KeyboardInterrupt where the run was interrupted otherwise, as by Ctrl-C at the terminal, after it was reported as cancelled.
    """
    run_id, started = str(uuid.uuid4()), time.monotonic()
    events: Sequence[dg.DagsterEvent] = ()
    failure = error = ""
    try:
        events = _execute(job, instance, run_id, {**run_config, "loggers": {BRIEF_LOGGER: {}}}, tags, assets)
    except (_RunTerminated, dg.DagsterError) as trouble:
        failure = str(trouble)
    if is_interrupted(events):
        # Dagster reports a run as failed if it was interrupted without a request for its termination.
        run = instance.get_run_by_id(run_id)
        if run is not None and run.status is not dg.DagsterRunStatus.CANCELED:
            instance.report_run_canceled(run)
        raise KeyboardInterrupt
    if not failure:
        found, failure = failure_of(events)
        error = found or ""
    # The returned events of a failed run lack what its failed step has logged. The stored ones show whether rows were written.
    if failure:
        events = asset_events_of(instance, run_id)
    return EndedRun(run_id, events, failure, error, time.monotonic() - started)


def _execute(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    run_id: str,
    run_config: Mapping[str, Any],
    tags: Mapping[str, str],
    assets: Set[dg.AssetKey] | None,
) -> Sequence[dg.DagsterEvent]:
    """Executes the run and returns its events. Raises DagsterError where it cannot begin, and _RunTerminated."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location_name(current_project())), REPOSITORY)
    run = instance.create_run_for_job(
        job,
        run_id=run_id,
        run_config=run_config,
        tags={**job.run_tags, **tags},
        asset_selection=assets,
        remote_job_origin=RemoteJobOrigin(repository, job.name),
    )
    limit = run.tags.get(MAX_RUNTIME_SECONDS_TAG)
    with _terminable(instance, run_id, None if limit is None else float(limit)):
        return execute_run(InMemoryJob(job), run, instance).all_events


class _RunTerminated(Exception):
    """The run was terminated in the UI, or it exceeded its time limit. The message says which."""


@contextlib.contextmanager
def _terminable(instance: dg.DagsterInstance, run_id: str, seconds: float | None) -> Iterator[None]:
    """Ends the block with _RunTerminated when the run is terminated in the UI, or after ``seconds`` (None: no limit).

    For a run that the daemon did not start, *Terminate* finds no process to signal: it only marks the run as being cancelled. So a thread
    polls for this mark and interrupts the main thread.
    """
    ended, terminated, timed_out, at_work = threading.Event(), threading.Event(), threading.Event(), threading.Lock()
    begun = time.monotonic()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            if seconds is not None and time.monotonic() - begun > seconds:
                with at_work:
                    if not ended.is_set():
                        timed_out.set()
                        os.kill(os.getpid(), signal.SIGINT)
                return
            try:
                run = instance.get_run_by_id(run_id)
            except Exception as error:  # noqa: BLE001 a storage that is busy now may answer the next time
                log.debug("cannot see whether run %s was terminated: %s", run_id, error)
                continue
            with at_work:
                if run is not None and run.status is dg.DagsterRunStatus.CANCELING and not ended.is_set():
                    terminated.set()
                    os.kill(os.getpid(), signal.SIGINT)
                    return

    watcher = threading.Thread(target=watch, name=f"terminate-{run_id}", daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            # The watcher sends its signal only while it holds this lock and `ended` is not set. So no interrupt comes after this.
            with at_work:
                ended.set()
    except KeyboardInterrupt:
        # An interrupt that the watcher has not sent came from the terminal, or from the parent of a worker.
        if not terminated.is_set() and not timed_out.is_set():
            raise
    if timed_out.is_set():
        text = (
            f"ended after {seconds:.0f} s, which is all that max_runtime_seconds allows; what was committed stays, the rest is read again"
        )
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_failed(run, text)
        raise _RunTerminated(text)
    if terminated.is_set():
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_canceled(run)
        raise _RunTerminated("terminated in the UI; what was not committed is read again by the next sync")
