"""Which files a container's table holds, in a small Delta table beside it: a row for each time a file was read, refused, or dropped.

Belongs here: reading and appending those rows through delta-rs. Does not belong: what follows from them (``core.files``).

A row counts only while the table is the one it was written for and has the commit that it speaks of: after a RESTORE, or where the table
was made anew, the files are unknown and are read again. So it is never ahead of the rows, as the watermark never is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from incremental_assets.core.files import FileStamp
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import FILES_FOLDER
from incremental_assets.delta.table import LakeTable, read_rows, storage_options

COMPACT_AFTER = 50
EVERY_FILE = ""
"""The file of a record that says that the table was asked, at that commit, which files it holds."""
_SCHEMA = pa.schema(
    [
        ("file", pa.string()), ("modified", pa.int64()), ("size", pa.int64()), ("etag", pa.string()), ("rows", pa.int64()),
        ("rejected", pa.int64()), ("refused", pa.string()), ("dropped", pa.bool_()), ("table_id", pa.string()),
        ("data_version", pa.int64()), ("at", pa.int64()), ("run_id", pa.string()), ("how", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class FileRecord:
    """What became of one file. ``modified`` and ``at`` (when this was written) in microseconds since 1970 UTC.

    ``file``: the key of its partition. ``rows`` are in the table, ``rejected`` beside it. ``refused``: why this version
    of it could not be read; its rows are those of the version before. ``dropped``: its rows were removed. ``how``:
    a digest of how it was read.
    """

    file: str
    modified: int
    size: int
    etag: str | None
    rows: int
    rejected: int
    refused: str | None
    dropped: bool
    table_id: str
    data_version: int
    at: int
    run_id: str
    how: str

    @property
    def stamp(self) -> FileStamp:
        return FileStamp(self.modified, self.size, self.etag)


@dataclass(frozen=True)
class Remembered:
    """``files``: the newest record of each file, as far as the table, as it is now, bears it out; ``idle``: others are there too.

    ``covered``: the newest commit of the table that anything is recorded of (-1: none). Of later ones nobody knows what they were about.
    """

    files: Mapping[str, FileRecord]
    covered: int
    idle: bool


class Manifest:
    """The records of one container, by the key of the file."""

    def __init__(self, lake: str, key_path: tuple[str, str]) -> None:
        self.table = LakeTable(lake, key_path[0], FILES_FOLDER, key_path[1])

    def remembered(self, table_id: str | None, data_version: int | None) -> Remembered:
        """``data_version``: of the table's own state; commits after it that are recorded here are none of the table's any more."""
        newest: dict[str, FileRecord] = {}
        idle, covered = False, -1
        for record in sorted(self._all(), key=_age):
            own = record.table_id == (table_id or "")
            covered = max(record.data_version, covered) if own else covered
            if own and record.file == EVERY_FILE:
                continue
            if not own or record.data_version > (-1 if data_version is None else data_version):
                idle = True
            elif record.dropped:
                newest.pop(record.file, None)
            else:
                newest[record.file] = record
        return Remembered(newest, covered, idle)

    def files(self) -> frozenset[str]:
        """Keys of all files that anything is recorded of, also of those whose rows were removed."""
        return frozenset(record.file for record in self._all() if record.file != EVERY_FILE)

    def clear(self) -> None:
        """Before the table is replaced whole: what breaks off then must not leave files that count as read."""
        if self.table.opened() is not None:
            self._write([], "overwrite")

    def keep_only(self, remembered: Remembered) -> None:
        """Drops records of commits that the table does not have (any more): later ones will have their numbers."""
        if remembered.idle:
            self._write(remembered.files.values(), "overwrite")

    def add(self, records: Iterable[FileRecord]) -> None:
        """Appends. Raises LakeError where the place cannot be written."""
        delta = self.table.opened()
        if delta is not None and delta.version() % COMPACT_AFTER == COMPACT_AFTER - 1:
            merged = {r.file: r for r in sorted((*self._all(), *records), key=_age)}
            self._write(merged.values(), "overwrite")
        else:
            self._write(records, "append")

    def _all(self) -> list[FileRecord]:
        delta = self.table.opened()
        if delta is None or not _is_ours(delta):
            return []
        return [FileRecord(**row) for row in read_rows(delta).to_pylist()]

    def _write(self, records: Iterable[FileRecord], mode: str) -> None:
        rows = pa.Table.from_pylist([asdict(record) for record in records], schema=_SCHEMA)
        delta = self.table.opened()
        if delta is not None and not _is_ours(delta):
            mode = "overwrite"
        options = storage_options() or None
        with place_errors(self.table.url):
            if mode == "append":
                write_deltalake(self.table.address, rows, mode="append", storage_options=options)
            else:
                write_deltalake(self.table.address, rows, mode="overwrite", schema_mode="overwrite", storage_options=options)


def _is_ours(delta: DeltaTable) -> bool:
    """Another version's has other columns: its files are unknown, and read again."""
    return [field.name for field in delta.schema().fields] == _SCHEMA.names


def _age(record: FileRecord) -> tuple[int, int]:
    """Clocks may be set back; versions are not."""
    return record.data_version, record.at


def stamps(known: Mapping[str, FileRecord]) -> dict[str, FileStamp]:
    return {key: record.stamp for key, record in known.items()}
