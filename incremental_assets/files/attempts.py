"""Records which files a sync is reading right now, in a small Delta table beside the manifest.

The record is written before Spark sees the files, and removed after the sync. So a file that ends the Spark server, or the whole machine,
is still a suspect for the next sync, also in another process, and is not read together with all others again and again. Where only the sync
was killed, the server that it has used is still running, and its files are no suspects.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from deltalake import write_deltalake

from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import ATTEMPTS_FOLDER
from incremental_assets.delta.store import storage_options
from incremental_assets.delta.table import LakeTable, read_rows

TIDY_AFTER = 50
"""The number of commits between two clean-ups of the table. Each sync adds at least two: the records are written, and removed."""
_NUMBERS = ("modified", "size", "together", "alone")
_SCHEMA = pa.schema([("file", pa.string()), *((name, pa.int64()) for name in _NUMBERS), ("open", pa.bool_()), ("server", pa.string())])


@dataclass(frozen=True)
class Suspect:
    """A file that is being read, or that was being read when the Spark server or the sync itself ended.

    ``file``: the key of its partition. ``modified`` (microseconds since 1970 UTC) and ``size`` (bytes): the version of the file.
    ``together``: how many files were being read at once when that last happened; 0: it has not. ``alone``: how often it happened while the
    file was read by itself. ``open``: the file is being read now, or the sync ended without recording how that went. ``server``: the id of
    the Spark server that was to read it last.
    """

    file: str
    modified: int
    size: int
    together: int
    alone: int
    open: bool
    server: str | None = None

    def ended(self, together: int) -> "Suspect":
        """Returns the record after the server ended while it read the file together with others: ``together`` files in all."""
        return replace(self, together=together, alone=self.alone + (together == 1), open=False)


class Attempts:
    """The records of one container."""

    def __init__(self, lake: str, key_path: tuple[str, str]) -> None:
        self.table = LakeTable(lake, key_path[0], ATTEMPTS_FOLDER, key_path[1])

    def suspects(self, running: Callable[[], Set[str]]) -> dict[str, Suspect]:
        """Returns the suspects by key. ``running`` returns the ids of the Spark servers that are running now.

        The caller holds the container's lock, so no other sync can be reading the files of an open record.
        """
        delta = self.table.opened()
        return judged([] if delta is None else [Suspect(**row) for row in read_rows(delta).to_pylist()], running)

    def write(self, suspects: Iterable[Suspect]) -> None:
        """Replaces all records by these. Raises LakeError where the table cannot be written."""
        rows = pa.Table.from_pylist([asdict(one) for one in suspects], schema=_SCHEMA)
        delta, options = self.table.opened(), storage_options() or None
        if delta is None and not rows.num_rows:
            return
        with place_errors(self.table.url):
            write_deltalake(self.table.address, rows, mode="overwrite", schema_mode="overwrite", storage_options=options)
            if delta is not None and delta.version() % TIDY_AFTER == TIDY_AFTER - 1:
                now = self.table.opened_to_change()
                assert now is not None
                # No older version is needed: only the sync that holds the container's lock reads this table.
                now.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
                now.create_checkpoint()


def judged(found: Iterable[Suspect], running: Callable[[], Set[str]]) -> dict[str, Suspect]:
    """Returns the suspects among the records that earlier syncs have left, by key.

    A record that is still open counts as a file that was being read when the server ended, unless that server is still running.
    """
    opened, closed = [one for one in found if one.open], [one for one in found if not one.open]
    servers = running() if opened else frozenset()
    ended = [one for one in opened if one.server not in servers]
    # The others are of a sync that was killed without its server: what was known of the file before still holds.
    closed += [replace(one, open=False) for one in opened if one.server in servers and one.together]
    return {one.file: one for one in (*closed, *(one.ended(len(ended)) for one in ended))}


def of_files(files: Iterable[tuple[str, int, int]], known: Mapping[str, Suspect], server: str | None = None) -> list[Suspect]:
    """Returns an open record for each file about to be read by the server of this id.

    ``files``: key, modification time and size; ``known``: the suspects so far.
    """
    blank = (Suspect(key, modified, size, 0, 0, True, server) for key, modified, size in files)
    return [replace(known[one.file], open=True, server=server) if one.file in known else one for one in blank]
