"""Reads files although one of them may end the Spark server: halves the suspected files until the one that does it is found and refused.

Files that were being read when the server ended are read by a separate server of this run from then on, half as many each time, so that
the syncs of other containers do not end with it. The file that ends a server while it is read by itself is refused, and the others are no
longer suspects.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence

from incremental_assets.core.errors import LakeError
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.scope import LakeScope
from incremental_assets.files.attempts import Attempts, Suspect, of_files
from incremental_assets.files.readers.read import FileRows
from incremental_assets.files.readers.reading import ReadFile, refusal
from incremental_assets.spark.embedded.launch import SparkUnavailable, driver_memory
from incremental_assets.spark.exceptions import rpc_exception, spark_exception

ALONE = 2
"""How often a server has to end while it reads a file by itself, before that file is refused.

This holds for a server that ``SPARK_REMOTE`` names, which other clients use too and which may have ended because of them. On a separate
server of this run, once is enough.
"""
Read = Callable[[Sequence[ReadFile]], FileRows]


def ended_with(file: ReadFile) -> str:
    """The reason for refusing a file that ended the server while it was read by itself.

    The manifest keeps this text, and the next plan compares it: with another amount of memory it differs, so that the file is tried again.
    """
    memory = "" if os.environ.get("SPARK_REMOTE") else f", which has {driver_memory()} of memory"
    return refusal(
        file,
        f"the Spark server{memory}, ended while it read this file by itself. Give the server more (INCREMENTAL_ASSETS_SPARK_MEMORY), or "
        f"bring the file in smaller parts. It is tried again when one of these changes, and by --partition",
    )


class Attempt:
    """The reading of one sync's files, with repeated attempts where the Spark server ends.

    ``refused``: by key, why a file ended the server. ``waiting``: files that were not read, which the next sync is to read.
    """

    def __init__(self, scope: LakeScope, attempts: Attempts, log: Callable[[str], None]) -> None:
        self._scope, self._attempts, self._log = scope, attempts, log
        self._suspects: dict[str, Suspect] = {}
        self._kept: dict[str, Suspect] = {}
        self._reading: list[Suspect] = []
        self._outdated = False
        self.refused: dict[str, str] = {}
        self.waiting: tuple[ReadFile, ...] = ()

    def read(self, files: Sequence[ReadFile], read: Read) -> tuple[Sequence[ReadFile], FileRows | None]:
        """Returns the files that were read, and their rows; ``((), None)`` where no file was read.

        Raises what ``read`` raises, unless the server has ended; SparkUnavailable where it has ended and no other one can be used.
        """
        own = {file.key: file for file in files}
        self._look_up(own)
        # With suspects among the files, the shared server is not used at all: it would end for the syncs of other containers too.
        apart = bool(self._suspects) and self._apart()
        for key in [key for key, one in self._suspects.items() if one.alone >= ALONE]:
            self._refuse(own[key])
        left = [file for file in files if file.key not in self.refused]
        while left:
            chosen = self._chosen(left)
            # The session is opened first. The stack calls back in reverse order, so that ``_close`` can still ask the server whether it
            # is there before the session is closed.
            server = self._scope.server_id()
            self._reading = of_files(((file.key, file.modified, file.size) for file in chosen), self._suspects, server)
            self._scope.stack.callback(self._close)
            # Before Spark sees the files: if this process ends with the server, the next sync finds the records open.
            self._write(self._reading)
            try:
                rows = read(chosen)
            except (spark_exception(), rpc_exception()) as error:
                if not self._scope.is_server_gone():
                    raise
                for one in self._reading:
                    self._suspects[one.file] = one.ended(len(chosen))
                self._reading = []
                if len(chosen) == 1 and (apart or self._suspects[chosen[0].key].alone >= ALONE):
                    self._suspects.clear()  # this file explains why the server ended each time, so the others are cleared
                    self._refuse(chosen[0])
                    left = [file for file in left if file.key not in self.refused]
                else:
                    self._log(f"the Spark server ended while it read {counted(len(chosen), 'file')}; its own one now reads fewer at once")
                self._write([])
                apart = self._apart()
                if not apart and chosen[0].key in self.refused:
                    self.waiting = tuple(left)  # the named server has just ended, so there may be none for them now
                    return (), None
                if not apart:
                    raise SparkUnavailable(
                        f"The Spark server ended while it read {counted(len(chosen), 'file')}, such as {chosen[0].path!r}. Sync again: "
                        f"then fewer of them are read at once, until it is known which file ends the server."
                    ) from error
                continue
            self.waiting = tuple(file for file in left if file not in chosen)
            return chosen, rows
        return (), None

    def are_suspects(self, files: Sequence[ReadFile]) -> bool:
        """Whether the Spark server may have ended because of one of the files."""
        self._look_up({file.key: file for file in files})
        return bool(self._suspects)

    def done(self) -> None:
        """Removes the records, once the rows of the files that were read have been committed."""
        for one in self._reading:
            self._suspects.pop(one.file, None)
        finished, self._reading = bool(self._reading), []
        if finished or self.refused or self._outdated:
            self._write([])

    def _look_up(self, own: Mapping[str, ReadFile]) -> None:
        """Finds the suspects among the files that this sync reads. The records of all other files stay as they are.

        A suspect that has changed since is another file: it is no longer one, and its record goes.
        """
        found = self._attempts.suspects(self._scope.running_servers)
        self._suspects = {key: one for key, one in found.items() if key in own and _is_of(one, own[key])}
        self._kept = {key: one for key, one in found.items() if key not in own}
        self._outdated = len(self._suspects) + len(self._kept) < len(found)

    def _chosen(self, left: Sequence[ReadFile]) -> Sequence[ReadFile]:
        """Returns all files where none is a suspect; else half as many as were read together when the server ended, at least one.

        Of suspects of several reads, those of the smallest read come first: they are nearest to a single file.
        """
        suspected = [file for file in left if file.key in self._suspects]
        if not suspected:
            return left
        together = min(self._suspects[file.key].together for file in suspected)
        nearest = [file for file in suspected if self._suspects[file.key].together == together]
        return nearest[: max(1, together // 2)]

    def _refuse(self, file: ReadFile) -> None:
        """Refuses a file that ended the server while it was read by itself."""
        self.refused[file.key] = ended_with(file)
        self._log(f"left out: {self.refused[file.key]}")
        # The record stays, closed: where the file is tried again, it is read by itself at once, and not together with others.
        self._kept[file.key] = Suspect(file.key, file.modified, file.size, 1, 1, False)
        self._suspects.pop(file.key, None)

    def _apart(self) -> bool:
        """Moves on to a separate server of this run; False where ``SPARK_REMOTE`` names the only one."""
        return self._scope.open_apart()

    def _write(self, reading: Sequence[Suspect]) -> None:
        """Writes the records of the files being read, together with all other suspects."""
        now = {one.file for one in reading}
        others = [one for one in (*self._suspects.values(), *self._kept.values()) if one.file not in now]
        self._attempts.write([*reading, *others])

    def _close(self) -> None:
        """Closes the records where the run ends before ``done``. Only where the server has ended do the files become suspects."""
        if not self._reading:
            return
        gone = self._scope.is_server_gone()
        for one in self._reading:
            if gone:
                self._suspects[one.file] = one.ended(len(self._reading))
        self._reading = []
        with contextlib.suppress(LakeError):  # then the records stay open, and the next sync treats the files as suspects
            self._write([])


def _is_of(suspect: Suspect, file: ReadFile) -> bool:
    """Whether the record is of this version of the file."""
    return (suspect.modified, suspect.size) == (file.modified, file.size)
