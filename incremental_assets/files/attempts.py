"""Which files a sync is reading right now, in a small Delta table beside the manifest: what is left in it was never finished.

Belongs here: these records, and what follows from one that nobody closed. Does not belong: what a sync does about it (``files.attempt``).

It is written before Spark sees the files, and emptied after the sync. So a file that ends the Spark server, or the whole machine, is under
suspicion for the next sync too, and is not read together with all others again and again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from deltalake import write_deltalake

from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import ATTEMPTS_FOLDER
from incremental_assets.delta.table import LakeTable, read_rows, storage_options

TIDY_AFTER = 50
_NUMBERS = ("modified", "size", "together", "alone")
_SCHEMA = pa.schema([("file", pa.string()), *((name, pa.int64()) for name in _NUMBERS), ("open", pa.bool_())])


@dataclass(frozen=True)
class Suspect:
    """A file that was being read when the Spark server ended, or the sync itself.

    ``file``: the key of its partition, with the stamp it had. ``together``: how many files were read at once, the last time. ``alone``: how
    often that happened while it was read by itself. ``open``: it is being read, or nobody has told how that ended.
    """

    file: str
    modified: int
    size: int
    together: int
    alone: int
    open: bool

    def ended(self, together: int) -> "Suspect":
        """It was among so many files when the server ended."""
        return replace(self, together=together, alone=self.alone + (together == 1), open=False)


class Attempts:
    """Those of one container."""

    def __init__(self, lake: str, key_path: tuple[str, str]) -> None:
        self.table = LakeTable(lake, key_path[0], ATTEMPTS_FOLDER, key_path[1])

    def suspects(self) -> dict[str, Suspect]:
        """By key. Those that were never closed count as files that the server ended with."""
        delta = self.table.opened()
        found = [] if delta is None else [Suspect(**row) for row in read_rows(delta).to_pylist()]
        together = sum(1 for one in found if one.open)
        return {one.file: one.ended(together) if one.open else one for one in found}

    def write(self, suspects: Iterable[Suspect]) -> None:
        """All that is to be remembered. Raises LakeError where the place cannot be written."""
        rows = pa.Table.from_pylist([asdict(one) for one in suspects], schema=_SCHEMA)
        delta, options = self.table.opened(), storage_options() or None
        if delta is None and not rows.num_rows:
            return
        with place_errors(self.table.url):
            write_deltalake(self.table.address, rows, mode="overwrite", schema_mode="overwrite", storage_options=options)
            if delta is not None and delta.version() % TIDY_AFTER == TIDY_AFTER - 1:
                now = self.table.opened()
                assert now is not None
                now.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)  # nobody reads older versions
                now.create_checkpoint()


def of_files(files: Iterable[tuple[str, int, int]], known: Mapping[str, Suspect]) -> list[Suspect]:
    """Key, time and size of files that are about to be read, as open attempts."""
    blank = (Suspect(key, modified, size, 0, 0, True) for key, modified, size in files)
    return [replace(known[one.file], open=True) if one.file in known else one for one in blank]
