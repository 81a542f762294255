"""Several containers side by side: worker processes that each run syncs one after another.

Belongs here: handing out work, and ending it. Does not belong: the sync of one container (``runner``). Processes and not threads: Dagster
reconfigures logging and redirects stdout at the start of each run, for the whole process; two threads have deadlocked on that.
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


def side_by_side(
    count: int, tasks: Sequence[Task], work: Callable[[Path], Callable[[Task], Lines]], project: Path, lost: Callable[[Task, str], Lines]
) -> Iterator[dict[str, Any]]:
    """Runs ``work(project)(task)`` for each task in ``count`` processes and yields the lines as they come.

    ``work`` is a function of a module, or a ``functools.partial`` of one: it is named to the processes, not sent. ``lost`` tells what to
    say of a task whose process died.
    """
    context = multiprocessing.get_context("spawn")
    left = list(reversed(tasks))
    busy: dict[Any, tuple[BaseProcess, Task]] = {}  # by our end of the pipe
    idle: list[tuple[Any, BaseProcess]] = []
    processes: list[BaseProcess] = []
    try:
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, work, project, os.getpid()), name=f"sync-{number}", daemon=True)
            process.start()
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
    os.setsid()  # Ctrl-C at a terminal is the parent's to decide on; it tells by SIGTERM
    for number in (signal.SIGINT, signal.SIGTERM):  # both alike: a Dagster run sets the one to the other when it ends
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
    """A killed parent takes its workers along; what they had begun is a zombie that the next sync heals."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
