"""Reading files although one of them may end the Spark server: with fewer and fewer of them, down to the one that does it.

Belongs here: which files are read together, and which one is refused. Does not belong: reading (``files.readers``), what is remembered of
it (``files.attempts``).

Files that were being read when the server ended are read by a server of this run's own from then on, so that nobody else's sync ends with
it: half as many each time. The one that ends the server by itself is refused, and the others are no longer under suspicion.
"""

import contextlib
import os
from collections.abc import Callable, Sequence

import grpc
from pyspark.errors import PySparkException

from incremental_assets.core.errors import LakeError
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.attempts import Attempts, Suspect, of_files
from incremental_assets.files.readers.read import FileRows, ReadFile
from incremental_assets.files.readers.reading import refusal
from incremental_assets.spark.embedded.launch import SparkUnavailable, driver_memory

ALONE = 2
"""So often the server has to end with a file that is read by itself, where it is not known to have been the file's doing."""
Read = Callable[[Sequence[ReadFile]], FileRows]


def ended_with(file: ReadFile) -> str:
    """Why a file is refused that the server ended with."""
    memory = "" if os.environ.get("SPARK_REMOTE") else f", which has {driver_memory()} of memory"
    return refusal(
        file,
        f"the Spark server{memory}, ended while it read this file by itself. Give the server more (INCREMENTAL_ASSETS_SPARK_MEMORY), or "
        f"bring the file in smaller parts. It is tried again when one of these changes, and by --partition",
    )


class Attempt:
    """Of one sync. ``refused``: why files are, by key; ``postponed``: those that the next sync is to read."""

    def __init__(self, scope: LakeScope, attempts: Attempts, log: Callable[[str], None]) -> None:
        self._scope, self._attempts, self._log = scope, attempts, log
        self._suspects: dict[str, Suspect] = {}
        self._kept: dict[str, Suspect] = {}
        self._reading: list[Suspect] = []
        self.refused: dict[str, str] = {}
        self.postponed: tuple[ReadFile, ...] = ()

    def read(self, files: Sequence[ReadFile], read: Read) -> tuple[Sequence[ReadFile], FileRows | None]:
        """The files that were read, and what is in them. Raises what ``read`` does while there is a server."""
        own = {file.key: file for file in files}
        found = self._attempts.suspects()
        self._suspects = {key: one for key, one in found.items() if key in own and _is_of(one, own[key])}
        self._kept = {key: one for key, one in found.items() if key not in own}
        apart = bool(self._suspects) and self._apart()
        for key in [key for key, one in self._suspects.items() if one.alone >= ALONE]:
            self._refuse(own[key])
        left = [file for file in files if file.key not in self.refused]
        while left:
            chosen = self._chosen(left)
            self._reading = of_files(((file.key, file.modified, file.size) for file in chosen), self._suspects)
            self._write(self._reading)
            _ = self._scope.spark
            self._scope.stack.callback(self._close)  # before the session is given back
            try:
                rows = read(chosen)
            except (PySparkException, grpc.RpcError) as error:
                if not self._scope.is_server_gone():
                    raise
                for one in self._reading:
                    self._suspects[one.file] = one.ended(len(chosen))
                self._reading = []
                if len(chosen) == 1 and (apart or self._suspects[chosen[0].key].alone >= ALONE):
                    self._suspects.clear()  # it explains all that happened
                    self._refuse(chosen[0])
                    left = [file for file in left if file.key not in self.refused]
                else:
                    self._log(f"the Spark server ended while it read {len(chosen):,} files; fewer of them are read by one of their own")
                self._write([])
                apart = self._apart()
                if not apart and chosen[0].key in self.refused:
                    self.postponed = tuple(left)  # there may be no server for them now
                    return (), None
                if not apart:
                    raise SparkUnavailable(
                        f"The Spark server ended while it read {len(chosen):,} files, such as {chosen[0].path!r}. Sync again: then fewer "
                        f"of them are read at once, until it is known which of them it was."
                    ) from error
                continue
            self.postponed = tuple(file for file in left if file not in chosen)
            return chosen, rows
        return (), None

    def done(self) -> None:
        """The rows of the files that were read are in the lake."""
        for one in self._reading:
            self._suspects.pop(one.file, None)
        finished, self._reading = bool(self._reading), []
        if finished or self.refused:
            self._write([])

    def _chosen(self, left: Sequence[ReadFile]) -> Sequence[ReadFile]:
        """All; or half of those that were read together when the server ended, as long as there are any."""
        suspected = [file for file in left if file.key in self._suspects]
        if not suspected:
            return left
        together = min(self._suspects[file.key].together for file in suspected)
        nearest = [file for file in suspected if self._suspects[file.key].together == together]
        return nearest[: max(1, together // 2)]

    def _refuse(self, file: ReadFile) -> None:
        self.refused[file.key] = ended_with(file)
        self._log(f"left out: {self.refused[file.key]}")
        self._kept[file.key] = Suspect(file.key, file.modified, file.size, 1, 1, False)
        self._suspects.pop(file.key, None)

    def _apart(self) -> bool:
        return self._scope.open_apart()

    def _write(self, reading: Sequence[Suspect]) -> None:
        now = {one.file for one in reading}
        others = [one for one in (*self._suspects.values(), *self._kept.values()) if one.file not in now]
        self._attempts.write([*reading, *others])

    def _close(self) -> None:
        """The run has ended otherwise: with the server, or with an error that no file is to blame for."""
        if not self._reading:
            return
        gone = self._scope.is_server_gone()
        for one in self._reading:
            if gone:
                self._suspects[one.file] = one.ended(len(self._reading))
        self._reading = []
        with contextlib.suppress(LakeError):  # then it stays open, and the next sync takes it for one that ended with the server
            self._write([])


def _is_of(suspect: Suspect, file: ReadFile) -> bool:
    return (suspect.modified, suspect.size) == (file.modified, file.size)
