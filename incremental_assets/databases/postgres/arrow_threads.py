"""Reads the ranges of an exported snapshot into files in this process, by several threads.

Reading and writing happen in libpq, ADBC and Arrow, which do not hold Python's global lock, so that threads are as fast as the processes of
Spark's tasks. As those share the cores of one server, all processes with one DAGSTER_HOME share the machine's: however many large tables
are loaded at the same time, no more ranges are read at once, which bounds the memory.
"""

import contextlib
import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from incremental_assets.databases.postgres.arrow_task import ReadTask, SnapshotReader, connected, keep_freed_memory, read_range

File = tuple[str, int, int, str]
WAIT_SECONDS = 0.1
"""How long a thread waits before it looks again for a core."""


def read_by_threads(task: ReadTask, cores: int, report: Callable[[int], None]) -> Sequence[File]:
    """Reads all ranges, each once, and returns their files (``FilesWriter.files``). ``cores``: at most so many threads read at a time.

    ``report`` gets the number of rows of each batch, from each thread.
    Raises SourceFailed, and what writing to the store raises. No file is left then, as far as they can be removed.
    """
    keep_freed_memory()
    reading = _Reading(task, cores, report)
    count = max(1, min(task.tasks, cores))
    # ADBC's functions return only when the source has answered, and no signal is handled until then. So this thread only waits.
    with ThreadPoolExecutor(count, "read") as threads:
        all_of_them = [threads.submit(reading.run) for _ in range(count)]
        try:
            for each in wait(all_of_them, return_when=FIRST_EXCEPTION).done:
                each.result()
        except BaseException:
            reading.end()
            while wait(all_of_them, timeout=1).not_done:
                reading.cancel()
            reading.discard()
            raise
    return reading.files


class _Reading:
    """The ranges that no thread has begun, and what came of the others."""

    def __init__(self, task: ReadTask, cores: int, report: Callable[[int], None]) -> None:
        self.files: list[File] = []
        self._task, self._cores, self._report = task, cores, report
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._waiting = deque(range(len(task.read.queries)))
        self._readers: list[SnapshotReader] = []

    def run(self) -> None:
        """Reads one range after another until there is none."""
        with connected(self._task.read) as reader:
            with self._lock:
                self._readers.append(reader)
            while self._waiting and not self._ended.is_set():
                with a_core(self._cores) as is_free:
                    number = self._taken() if is_free else None
                    if number is not None:
                        found = read_range(self._task, reader, number, self._report)
                        with self._lock:
                            self.files += found
                if not is_free:
                    self._ended.wait(WAIT_SECONDS)

    def end(self) -> None:
        """From now on no range is begun."""
        self._ended.set()
        self.cancel()

    def cancel(self) -> None:
        """Ends the queries that the threads are waiting for."""
        for reader in list(self._readers):
            with contextlib.suppress(Exception):  # it has ended by itself
                reader.cancel()

    def discard(self) -> None:
        """Removes the files of the ranges that were read: no commit will name them."""
        for name, *_ in self.files:
            with contextlib.suppress(Exception):
                self._task.into.remove(name)

    def _taken(self) -> int | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None


@contextlib.contextmanager
def a_core(cores: int) -> Iterator[bool]:
    """Holds one of so many cores of this machine during the block, if one is free; yields whether it is.

    Without a DAGSTER_HOME, or where its folder cannot be written, each process has all cores to itself.
    """
    home = os.environ.get("DAGSTER_HOME")
    with contextlib.ExitStack() as files:
        try:
            folder = os.path.join(home or "", "readers")
            if home:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            held = [files.enter_context(open(os.path.join(folder, str(n)), "ab")) for n in range(cores)] if home else []
        except OSError:
            held = []
        yield not held or any(_locked(file.fileno()) for file in held)


def _locked(descriptor: int) -> bool:
    """Whether the file could be locked, until it is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
