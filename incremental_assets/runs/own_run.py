"""The run that a process was started for, and the containers that it needs of the project."""

import sys
from collections.abc import Iterator
from types import FrameType

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME

from incremental_assets.core.names import decode_name, encode_name
from incremental_assets.runs.launch import JOBS_OF_A_CONTAINER, JOBS_OF_A_DATASTORE
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, DATASTORE_TAG, tag_of

_LOADER = ("dagster._grpc.impl", "core_execute_run")
"""The module and the name of the function of Dagster that a run's process executes: it loads the project, and then carries out the run."""


def run_of_this_process() -> dg.DagsterRun | None:
    """The run for which Dagster is loading the project just now, in a process that executes only this run; None: there is no such run.

    Dagster does not tell a project for what it is loaded. But the function that loads it has the run in a variable, and is among the
    callers of this one.
    """
    for frame in _callers():
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _LOADER:
            run = frame.f_locals.get("dagster_run")
            return run if isinstance(run, dg.DagsterRun) else None
    return None


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def containers_of(run: dg.DagsterRun) -> frozenset[str] | None:
    """The labels (``datastore/container``) of those containers whose definitions the run needs; None: that cannot be told, or all.

    A run needs its own container. One of a datastore's job needs none: it starts runs of its own, or looks at a table without its asset.
    Whether the labels are those of containers is for the caller to find out (``is_served``): an asset of the project's own may have a key
    like theirs.
    """
    if run.job_name == IMPLICIT_ASSET_JOB_NAME:
        paths = [key.path for key in _selected(run)]
        fits = bool(paths) and all(len(path) == 2 for path in paths)
        return frozenset("/".join(map(decode_name, path)) for path in paths) if fits else None
    label, datastore = tag_of(run, CONTAINER_TAG), tag_of(run, DATASTORE_TAG)
    if datastore is not None and run.job_name in {f"{job}_{encode_name(datastore)}" for job in JOBS_OF_A_DATASTORE}:
        return frozenset()
    if label is not None:
        op = "__".join(map(encode_name, label.split("/", 1)))
        return frozenset([label]) if run.job_name in {f"{job}_{op}" for job in JOBS_OF_A_CONTAINER} else None
    return None


def is_served(run: dg.DagsterRun, repository: dg.RepositoryDefinition, mark: str) -> bool:
    """Whether these definitions have all that the run executes: its job, and containers' assets alone.

    ``mark``: a metadata key that the assets of containers have and others do not. An asset of the project's own may read any container.
    """
    graph = repository.asset_graph
    assets = all(graph.has(key) and mark in graph.get(key).metadata for key in _selected(run))
    checks = (run.asset_check_selection or frozenset()) <= graph.asset_check_keys
    return assets and checks and repository.has_job(run.job_name)


def _selected(run: dg.DagsterRun) -> set[dg.AssetKey]:
    """The assets that the run materializes, and those that it checks."""
    return {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
