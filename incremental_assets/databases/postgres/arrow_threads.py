"""Reads the ranges of an exported snapshot into files in this process, by several threads.

Belongs here: who reads which range, and how all stop where one fails or the user interrupts. Does not belong: how a range is read
(``arrow_task``), and which ranges there are (``arrow_files``).

Reading and writing happen in libpq, ADBC and Arrow, which do not hold Python's global lock, so that threads are as fast as the processes of
Spark's tasks.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from incremental_assets.databases.postgres.arrow_task import ReadTask, SnapshotReader, connected, keep_freed_memory, read_range

File = tuple[str, int, int, str]


def read_by_threads(task: ReadTask, cores: int, report: Callable[[int], None]) -> Sequence[File]:
    """Reads all ranges, each once, and returns their files (``FilesWriter.files``). ``cores``: at most so many threads read at a time.

    ``report`` gets the number of rows of each batch, from each thread.
    Raises SourceFailed, and what writing to the store raises. No file is left then, as far as they can be removed.
    """
    keep_freed_memory()
    reading = _Reading(task, report)
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

    def __init__(self, task: ReadTask, report: Callable[[int], None]) -> None:
        self.files: list[File] = []
        self._task, self._report, self._lock = task, report, threading.Lock()
        self._next = iter(range(len(task.read.queries)))
        self._readers: list[SnapshotReader] = []

    def run(self) -> None:
        """Reads one range after another until there is none."""
        with connected(self._task.read) as reader:
            with self._lock:
                self._readers.append(reader)
            while (number := self._taken()) is not None:
                found = read_range(self._task, reader, number, self._report)
                with self._lock:
                    self.files += found

    def end(self) -> None:
        """From now on no range is begun."""
        with self._lock:
            self._next = iter(range(0))
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
            return next(self._next, None)
