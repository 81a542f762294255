"""Containers that this process and worker processes sync at the same time: each is synced once, and none is lost with a worker.

Belongs here: the sharing of the work, by real processes. Does not belong: interrupts and kills of the command line (``test_kill``).
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets_tests.harness import Project, wait_for
from incremental_assets.runs import parallel_sync
from incremental_assets.runs.parallel_sync import sync_beside_workers
from incremental_assets.runs.runner import Runner, SyncOptions
from incremental_assets.runs.workers import run_in_workers

DEADLY = 7


def work(folder: Path) -> Callable[[int], dict[str, Any]]:
    """Work that no worker has finished before a second one has begun some, so that both take part."""

    def run(task: int) -> dict[str, Any]:
        if task == DEADLY:
            os._exit(9)
        (folder / str(os.getpid())).touch()
        wait_for(lambda: len(list(folder.iterdir())) > 1, "a second worker has begun a task", 60)
        return {"task": task, "by": os.getpid()}

    return run


def lost(task: int, message: str) -> dict[str, Any]:
    return {"task": task, "by": 0, "message": message}


@pytest.mark.long
def test_each_task_is_done_once_though_a_worker_dies_and_others_take_tasks_too(tmp_path: Path) -> None:
    """A container would be synced by nobody, or by two processes."""
    waiting, here = deque(range(60)), list[int]()

    def take_some() -> None:
        for _ in range(20):
            here.append(waiting.popleft())

    waiting.remove(DEADLY)
    waiting.append(DEADLY)
    other = threading.Thread(target=take_some)
    found = run_in_workers(3, waiting, work, tmp_path, lost, threading.Event())
    records = [next(found)]
    other.start()
    records += found
    other.join()
    assert sorted([*here, *(record["task"] for record in records)]) == list(range(60))
    (dead,) = [record for record in records if record["task"] == DEADLY]
    assert "exit code 9" in dead["message"]
    assert len({record["by"] for record in records} - {0}) == 2, "the two others go on"


@pytest.mark.long
def test_what_no_worker_is_left_for_stays_with_the_caller(tmp_path: Path) -> None:
    """Containers would be reported neither as synced nor as failed when the last worker has died."""
    waiting = deque([1, 2, DEADLY])
    assert [record["task"] for record in run_in_workers(1, waiting, work, tmp_path, lost, threading.Event())] == [DEADLY]
    assert list(waiting) == [1, 2]


def test_workers_are_ended_when_the_sync_is_stopped(tmp_path: Path) -> None:
    """Ctrl-C would leave processes behind that go on writing."""
    stopped, waiting = threading.Event(), deque(range(10_000))
    found = run_in_workers(2, waiting, work, tmp_path, lost, stopped)
    pids = {next(found)["by"] for _ in range(20)}
    stopped.set()
    for record in found:
        pids.add(record["by"])
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class SlowAtFirst(Runner):
    """Begins the first container's sync only when the others have been reported."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.others = threading.Event()

    def _one(self, definition: Any, *arguments: Any) -> dict[str, Any]:
        if definition.container.label == "shop/a":
            assert self.others.wait(120), "no worker has taken the other containers"
        return super()._one(definition, *arguments)


@pytest.mark.long
def test_workers_take_containers_while_a_large_one_is_loaded(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    """All small tables would wait for hours until the large one before them is loaded."""
    monkeypatch.setattr(parallel_sync, "ALONE_SECONDS", 0)
    made = project(incremental=["public.a:id:integer", "public.b:id:integer", "public.c:id:integer"])
    for name in "abc":
        made.execute(f"create table {name} (id int); insert into {name} values (1)")
    made.write()
    made.cli("catalog")
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    chosen = made.catalog()
    records: list[dict[str, Any]] = []
    with made.instance() as instance:
        runner = SlowAtFirst(made.dagster(chosen), instance)

        def report(record: dict[str, Any]) -> None:
            records.append(record)
            if len(records) == 2:
                runner.others.set()

        sync_beside_workers(runner, made.path, chosen, SyncOptions(), 2, report)
    assert [(record["container"], record["status"]) for record in records] == [
        ("shop/c", "synced"), ("shop/b", "synced"), ("shop/a", "synced")
    ]  # fmt: skip
    for name in "abc":
        made.assert_equal(name)
