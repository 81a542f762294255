"""Worker processes, each of which runs the syncs of containers one after another.

These are processes and not threads: Dagster configures logging and redirects stdout at the start of each run, for the whole process. Two
threads have deadlocked on that.
"""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar, cast

from incremental_assets.core.collector import collect_less_often
from incremental_assets.delta.progress import Progress, displayed_by, is_displayed, show
from incremental_assets.runs.records.operation_log import recorded_together

Task = TypeVar("Task")
Record = dict[str, Any]
Work = Callable[[Path], Callable[[Task], Record]]
END_SECONDS = 30
"""How long a worker may take to end after SIGTERM, before it is killed."""


@dataclass(frozen=True)
class _Shown:
    """How far the sync of a container is that a worker carries out; None: it has ended."""

    container: str
    progress: Progress | None


@dataclass(frozen=True)
class _Said:
    """What a worker has written to stderr."""

    text: str


def run_in_workers(
    count: int,
    waiting: deque[Task],
    work: Work[Task],
    project: Path,
    lost: Callable[[Task, str], Record],
    stopped: threading.Event,
) -> Iterator[Record]:
    """Runs ``work(project)(task)`` for each task in ``count`` processes, and yields the record of each task as it finishes.

    ``waiting``: the tasks, of which a worker that is ready takes the one at the right end. Others may take some meanwhile, and where all
    workers have died the rest is left in it. ``work`` must be a function of a module, or a ``functools.partial`` of one: the processes are
    spawned, and pickle sends it by name. It is called once in each process. ``lost`` returns the record of a task whose process died, from
    the task and a message. ``stopped``: when this is set, or the generator is closed, the processes are ended.
    """
    context = multiprocessing.get_context("spawn")
    # The process behind each of the parent's ends of the pipes, and the task of those that have one.
    processes: dict[Any, BaseProcess] = {}
    tasks: dict[Any, Task] = {}
    try:
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, work, project, os.getpid(), is_displayed()), name=f"sync-{number}", daemon=True
            )
            process.start()
            # From here on the worker has the only open copy of its end. So reading raises EOFError once the worker has died.
            theirs.close()
            processes[ours] = process
        alive = set(processes)
        while not stopped.is_set() and (tasks or (waiting and alive)):
            # A worker sends None when it has loaded the project, and then a record for each task. Where this process has a display, it
            # also sends what people are to be shown: written by the worker itself, it would be in the midst of the display.
            for ready in cast(list[Any], wait(list(alive), timeout=1)):
                try:
                    record = ready.recv()
                except EOFError:
                    alive.remove(ready)
                    processes[ready].join(5)
                    code = processes[ready].exitcode
                    if ready in tasks:
                        yield lost(tasks.pop(ready), f"its process ended unexpectedly (exit code {code}); sync again")
                    continue
                if isinstance(record, _Shown):
                    show(record.container, record.progress)
                    continue
                if isinstance(record, _Said):
                    sys.stderr.write(record.text)
                    continue
                if record is not None:
                    del tasks[ready]
                    yield record
                # Nothing is left for this worker, or it has died in this moment, which is then the next thing that is heard of it.
                with contextlib.suppress(IndexError, BrokenPipeError):
                    tasks[ready] = waiting.pop()
                    ready.send(tasks[ready])
    finally:
        for process in processes.values():
            if process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid or 0, signal.SIGTERM)
        for process in processes.values():
            process.join(END_SECONDS)
            if process.is_alive():
                process.kill()


class _ToParent(io.TextIOBase):
    """The display and the stderr of a worker process whose parent has a display: passes everything on to the parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._sending = connection, threading.Lock()

    def send(self, message: object) -> None:
        """Sends something to the parent. Several threads may do so."""
        with self._sending:
            self._connection.send(message)

    def show(self, container: str, progress: Progress | None) -> None:
        self._pass_on(_Shown(container, progress))

    def write(self, s: str) -> int:
        self._pass_on(_Said(s))
        return len(s)

    def _pass_on(self, message: object) -> None:
        # Where the parent has ended, this process ends in half a second (``_end_with``).
        with contextlib.suppress(OSError):
            self.send(message)


def _serve(connection: Connection, work: Work[Any], project: Path, parent: int, is_displayed: bool) -> None:
    """The main function of a worker process: runs the tasks that it receives, until the pipe is closed."""
    to_parent = _ToParent(connection)
    if is_displayed:
        sys.stderr = to_parent
    # In a session of its own, the worker does not receive Ctrl-C from the terminal. The parent decides what becomes of it, and sends
    # SIGTERM.
    os.setsid()
    # Both signals get the same handler: when a Dagster run ends, it sets the handler of one to that of the other.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    collect_less_often()
    try:
        with recorded_together(), displayed_by(to_parent) if is_displayed else contextlib.nullcontext():
            run = work(project)
            to_parent.send(None)
            while True:
                try:
                    task = connection.recv()
                except EOFError:
                    return
                to_parent.send(run(task))
    except KeyboardInterrupt:
        os._exit(130)


def _end_with(parent: int) -> None:
    """Ends this worker process within half a second after its parent has ended, even if the parent was killed.

    Queries that the worker has started may go on on the Spark server; the next sync of the container copes with what they write.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _stop(number: int, frame: Any) -> None:
    """The signal handler of a worker process."""
    raise KeyboardInterrupt
