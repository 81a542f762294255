"""Worker processes, each of which runs the syncs of containers one after another.

Belongs here: handing out tasks, and ending the processes. Does not belong: the sync of one container (``runner``).

These are processes and not threads: Dagster configures logging and redirects stdout at the start of each run, for the whole process. Two
threads have deadlocked on that.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar, cast

Task = TypeVar("Task")
Lines = list[dict[str, Any]]
END_SECONDS = 30
"""How long a worker may take to end after SIGTERM, before it is killed."""


def run_in_workers(
    count: int, tasks: Sequence[Task], work: Callable[[Path], Callable[[Task], Lines]], project: Path, lost: Callable[[Task, str], Lines]
) -> Iterator[dict[str, Any]]:
    """Runs ``work(project)(task)`` for each task in ``count`` processes, and yields the records of each task as it finishes.

    ``work`` must be a function of a module, or a ``functools.partial`` of one: the processes are spawned, and pickle sends it by name. It
    is called once in each process. ``lost`` returns the records of a task whose process died, from the task and a message. When the
    generator is closed, the processes are ended.
    """
    context = multiprocessing.get_context("spawn")
    left = list(reversed(tasks))
    # The keys are the parent's ends of the pipes.
    busy: dict[Any, tuple[BaseProcess, Task]] = {}
    idle: list[tuple[Any, BaseProcess]] = []
    processes: list[BaseProcess] = []
    try:
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, work, project, os.getpid()), name=f"sync-{number}", daemon=True)
            process.start()
            # From here on the worker has the only open copy of its end. So reading raises EOFError once the worker has died.
            theirs.close()
            processes.append(process)
            idle.append((ours, process))
        while left or busy:
            while left and idle:
                connection, process = idle.pop()
                task = left.pop()
                connection.send(task)
                busy[connection] = (process, task)
            for ready in cast(list[Any], wait(list(busy), timeout=1)):
                process, task = busy.pop(ready)
                try:
                    yield from ready.recv()
                    idle.append((ready, process))
                except EOFError:
                    process.join(5)
                    yield from lost(task, f"its process ended unexpectedly (exit code {process.exitcode}); sync again")
                    if left and not idle and not busy:
                        yield from (line for task in reversed(left) for line in lost(task, "no process was left to run it; sync again"))
                        left.clear()
    finally:
        for process in processes:
            if process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid or 0, signal.SIGTERM)
        for process in processes:
            process.join(END_SECONDS)
            if process.is_alive():
                process.kill()


def _serve(connection: Connection, work: Callable[[Path], Callable[[Any], Lines]], project: Path, parent: int) -> None:
    """The main function of a worker process: runs the tasks that it receives, until the pipe is closed."""
    # In a session of its own, the worker does not receive Ctrl-C from the terminal. The parent decides what becomes of it, and sends
    # SIGTERM.
    os.setsid()
    # Both signals get the same handler: when a Dagster run ends, it sets the handler of one to that of the other.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        run = work(project)
        while True:
            try:
                task = connection.recv()
            except EOFError:
                return
            connection.send(run(task))
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
