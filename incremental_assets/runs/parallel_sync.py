"""Syncs several containers at the same time: in this process, in worker processes, or in both."""

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.runs.ordinary_run import command_line_instance
from incremental_assets.runs.records.metadata import line
from incremental_assets.runs.runner import Runner, SyncOptions
from incremental_assets.runs.workers import run_in_workers

ALONE_SECONDS = 10.0
"""How long this process syncs alone before it starts workers. Each worker loads Dagster, Spark and the project, which takes about five
seconds of a core: in that time this process syncs some small containers, or finds hundreds of them unchanged."""


def sync_beside_workers(
    runner: Runner,
    project: Path,
    chosen: Sequence[ContainerDefinition],
    options: SyncOptions,
    jobs: int,
    report: Callable[[dict[str, Any]], None],
) -> None:
    """Syncs containers in this process, and after ``ALONE_SECONDS`` in up to ``jobs`` - 1 worker processes, too, which begin at the end.

    ``report`` is called with the record of each container as it finishes, by one thread at a time. Raises what ``Runner.sync`` raises; the
    workers are ended then.
    """
    waiting = deque(range(len(chosen)))
    ready, stopped, reporting = threading.Event(), threading.Event(), threading.Lock()

    def report_one(record: dict[str, Any]) -> None:
        with reporting:
            report(record)

    def beside() -> None:
        ready.wait(ALONE_SECONDS)
        if waiting and not stopped.is_set():
            for record in _in_workers(project, chosen, waiting, options, jobs - 1, stopped):
                report_one(record)

    with ThreadPoolExecutor(1) as threads:
        workers = threads.submit(beside) if jobs > 1 and len(chosen) > 1 else None
        try:
            for record in runner.sync(chosen, options, waiting):
                report_one(record)
            ready.set()
            if workers is not None:
                workers.result()
        finally:
            stopped.set()
            ready.set()


def sync_in_workers(
    project: Path, chosen: Sequence[ContainerDefinition], options: SyncOptions, instance: dg.DagsterInstance, jobs: int
) -> Iterator[dict[str, Any]]:
    """Syncs containers in up to ``jobs`` worker processes. Yields the record of each container as it finishes.

    Raises ConfigurationError before the first run where the options do not apply to one of the containers.
    """
    for definition in chosen:
        options.request(definition, instance)  # only to raise the errors of wrong usage before anything runs
    waiting = deque(reversed(range(len(chosen))))
    yield from _in_workers(project, chosen, waiting, options, jobs, threading.Event())
    for position in waiting:
        yield _lost(chosen[position].container.label, "no process was left to run it; sync again")


def _in_workers(
    project: Path,
    chosen: Sequence[ContainerDefinition],
    waiting: deque[int],
    options: SyncOptions,
    jobs: int,
    stopped: threading.Event,
) -> Iterator[dict[str, Any]]:
    """Syncs the containers at the positions in ``waiting``, from its right end. Where all workers have died, the rest is left in it."""
    labels = tuple(definition.container.label for definition in chosen)

    def lost(position: int, message: str) -> dict[str, Any]:
        return _lost(labels[position], message)

    yield from run_in_workers(min(jobs, len(waiting)), waiting, functools.partial(worker, labels, options), project, lost, stopped)


def _lost(label: str, message: str) -> dict[str, Any]:
    return line(label, "failed", message=f"{label}: {message}")


def worker(labels: Sequence[str], options: SyncOptions, project: Path) -> Callable[[int], dict[str, Any]]:
    """Loads the project in a worker process, and returns the function that syncs the container with one of the labels there."""
    from incremental_assets.databases.slot_counts import SlotCounts
    from incremental_assets.project.folders import enter_project, lake_root
    from incremental_assets.runs.loading import load_project

    enter_project(project)
    loaded = load_project(project)
    found = {definition.container.label: definition for store in loaded.datastores for definition in store.definitions}
    # Definitions of other containers need not be built.
    mine = [found[label] for label in labels if label in found]
    runner, counts = Runner(loaded.definitions(mine), command_line_instance()), SlotCounts(mine, lake_root())

    def run(position: int) -> dict[str, Any]:
        label = labels[position]
        if label not in found:
            return _lost(label, "it was taken out of the catalog or the YAML just now.")
        return next(runner.sync([found[label]], options, counts=counts))

    return run
