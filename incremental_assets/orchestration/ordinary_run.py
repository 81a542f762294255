"""A job of the code location, run in this process, and looking in the UI like one that the daemon started.

Belongs here: the few calls into Dagster's insides that this takes (``execute_in_process`` leaves a run without a code location: the UI then
neither links to its job nor offers to run it again). Does not belong: which job, and what becomes of its events.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from filelock import FileLock

from incremental_assets.orchestration.project import dagster_home

REPOSITORY = "__repository__"
"""Dagster's own name for the one repository of a code location made by ``Definitions``."""


def command_line_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME, without the capture of raw output: that redirects the whole process's stdout, which carries the
    lines of ``--json``."""
    silent = {"compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager", "config": {}}}
    home = dagster_home()
    with FileLock(home / "storage.lock"):  # it makes its databases when there are none; two processes at once trip over each other
        return dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=silent))


def new_run_id() -> str:
    return str(uuid.uuid4())


def run_here(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    *,
    run_id: str,
    run_config: Mapping[str, Any],
    tags: Mapping[str, str],
    location: str,
) -> Sequence[dg.DagsterEvent]:
    """The events of the run. ``location``: what workspace.yaml calls the code location. Raises DagsterError where it cannot begin."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), REPOSITORY)
    run = instance.create_run_for_job(
        job,
        run_id=run_id,
        run_config=run_config,
        tags={**job.run_tags, **tags},
        remote_job_origin=RemoteJobOrigin(repository, job.name),
    )
    return execute_run(InMemoryJob(job), run, instance).all_events
