"""Records which files a container's table holds, in a small Delta table beside it: one row each time a file is read, refused or dropped.

A row is valid only for the table that it was written for, and only while that table has the commit that the row names. After a RESTORE, or
where the table was created anew, its files are unknown and are read again. So the manifest is never ahead of the rows, just as the
watermark is never ahead of them.

Each row has the format (``FORMAT``) and the version of this product by which it was written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from incremental_assets.core.files import FileStamp, FileState
from incremental_assets.core.names import decode_name
from incremental_assets.core.stored_format import WRITTEN_BY, expect_known, product_version
from incremental_assets.delta.errors import place_errors
from incremental_assets.delta.folders import FILES_FOLDER
from incremental_assets.delta.store import storage_options
from incremental_assets.delta.table import LakeTable, read_rows

FORMAT = 1
"""The format of the rows (``core.stored_format``): a column that older versions must not ignore raises it."""
COMPACT_AFTER = 50
"""The number of commits of the manifest after which it is rewritten with only the newest record of each file."""
EVERY_FILE = ""
"""The key of a record that is of no file: at its commit, the files that the table holds were compared with the manifest.

It is written where such a comparison (``FilesPlan.recheck``) leads to no commit."""
_SCHEMA = pa.schema(
    [
        ("file", pa.string()), ("modified", pa.int64()), ("size", pa.int64()), ("etag", pa.string()), ("rows", pa.int64()),
        ("rejected", pa.int64()), ("refused", pa.string()), ("dropped", pa.bool_()), ("table_id", pa.string()),
        ("data_version", pa.int64()), ("at", pa.int64()), ("run_id", pa.string()), ("how", pa.string()), ("identity", pa.int64()),
        ("sha256", pa.string()), ("format", pa.int64()), (WRITTEN_BY, pa.string()),
    ]
)  # fmt: skip
_ADDED = 4
"""How many of the columns an earlier version's manifest may lack: they were added at the end."""


@dataclass(frozen=True)
class FileRecord:
    """The outcome of one file in one sync.

    ``file``: the key of its partition. ``modified``: its modification time; ``at``: when this record was written; both in microseconds
    since 1970 UTC. ``size``: in bytes. ``rows``: rows in the table. ``rejected``: rows in the table of rejected rows beside it.
    ``refused``: why this version of the file could not be read, its rows being those of the version before; None: it was read.
    ``dropped``: its rows were removed. ``table_id``, ``data_version``: Delta's id of the table, and the version of its commit that the
    record is valid for; -1: of no commit. ``how``: the digest of the settings by which it was read (``FileDefinition.how``).
    ``identity``: see ``FileStamp``. ``sha256``: of the file's bytes, once its identity has changed and nothing else; None before.
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
    identity: int | None = None
    sha256: str | None = None

    @property
    def stamp(self) -> FileStamp:
        return FileStamp(self.modified, self.size, self.etag, self.identity)

    @property
    def state(self) -> FileState:
        """The state in which the sync left the file: READ, REFUSED or GONE."""
        if self.dropped:
            return FileState.GONE
        return FileState.READ if self.refused is None else FileState.REFUSED


@dataclass(frozen=True)
class Remembered:
    """The part of the manifest that is valid for the table as it is now.

    ``files``: the newest valid record of each file that the table holds or that was refused, by key. ``covered``: the newest commit of
    this table that any record names (-1: none); what later commits changed is not known. ``idle``: the manifest also has records that are
    not valid.
    """

    files: Mapping[str, FileRecord]
    covered: int
    idle: bool


_FIELDS = tuple(one.name for one in fields(FileRecord))


class Manifest:
    """The manifest of one container. All methods that read it raise NewerFormat if a newer version of this product wrote it."""

    def __init__(self, lake: str, key_path: tuple[str, str]) -> None:
        self._label = "/".join(map(decode_name, key_path))
        self.table = LakeTable(lake, key_path[0], FILES_FOLDER, key_path[1])

    def remembered(self, table_id: str | None, data_version: int | None) -> Remembered:
        """Returns the records that are valid for a table.

        ``table_id``, ``data_version``: of the table and of its state property; None: there is none. A record of a later commit than
        ``data_version`` is not valid: a RESTORE has undone that commit.
        """
        newest: dict[str, FileRecord] = {}
        idle, covered = False, -1
        for record in sorted(self._all(), key=_age):
            # A refused file may be recorded before there is a table; its record has an empty table id.
            own = record.table_id == (table_id or "")
            covered = max(record.data_version, covered) if own else covered
            if own and record.file == EVERY_FILE:
                continue
            if not own or record.data_version > (-1 if data_version is None else data_version):
                idle = True
            elif record.state is FileState.GONE:
                newest.pop(record.file, None)
            else:
                newest[record.file] = record
        return Remembered(newest, covered, idle)

    def files(self) -> frozenset[str]:
        """Returns the keys of all files that have a record, also of those whose rows were removed."""
        return frozenset(record.file for record in self._all() if record.file != EVERY_FILE)

    def modified_since(self, modified: int) -> frozenset[str]:
        """Returns the keys of files that have a record of a modification time from this one on."""
        return frozenset(record.file for record in self._all() if record.modified >= modified and record.file != EVERY_FILE)

    def clear(self) -> None:
        """Removes all records before the whole table is replaced: a sync that breaks off then must not leave files that count as read."""
        if self.table.opened() is not None:
            self._all()  # which refuses those of a newer version
            self._write([], "overwrite")

    def keep_only(self, remembered: Remembered) -> None:
        """Removes the records that are not valid: of commits that the table does not have, or no longer has.

        This has to happen before the next commit: its version is higher than theirs, so that they would count as valid again.
        """
        if remembered.idle:
            self._write(remembered.files.values(), "overwrite")

    def add(self, records: Iterable[FileRecord]) -> None:
        """Appends records, and compacts the manifest from time to time. Raises LakeError where it cannot be written."""
        delta = self.table.opened()
        if delta is not None and delta.version() % COMPACT_AFTER == COMPACT_AFTER - 1:
            merged = {r.file: r for r in sorted((*self._all(), *records), key=_age)}
            self._write(merged.values(), "overwrite")
        else:
            self._write(records, "append")

    def _all(self) -> list[FileRecord]:
        """All records. Raises NewerFormat if a newer version of this product wrote one of them."""
        delta = self.table.opened()
        if delta is None:
            return []
        rows = read_rows(delta).to_pylist()
        for row in rows:
            expect_known(f"{self._label}: the list of files that it has read", row.get("format"), FORMAT, row.get(WRITTEN_BY))
        return [FileRecord(**{name: row.get(name) for name in _FIELDS}) for row in rows] if _is_ours(delta) else []

    def _write(self, records: Iterable[FileRecord], mode: str) -> None:
        noted = {"format": FORMAT, WRITTEN_BY: product_version()}
        rows = pa.Table.from_pylist([{**asdict(record), **noted} for record in records], schema=_SCHEMA)
        delta = self.table.opened()
        if delta is not None and not _is_ours(delta):
            mode = "overwrite"
        options = storage_options() or None
        with place_errors(self.table.url):
            if mode == "append":
                write_deltalake(self.table.address, rows, mode="append", schema_mode="merge", storage_options=options)
            else:
                write_deltalake(self.table.address, rows, mode="overwrite", schema_mode="overwrite", storage_options=options)


def _is_ours(delta: DeltaTable) -> bool:
    """Whether the manifest has these columns, or those of another version, which adds some at the end. If it has others, its files count
    as unknown."""
    names = [field.name for field in delta.schema().fields]
    return names[: len(_SCHEMA)] == _SCHEMA.names[: len(names)] and len(names) >= len(_SCHEMA) - _ADDED


def _age(record: FileRecord) -> tuple[int, int]:
    """Orders records by age: by Delta version first, as a clock may be set back and a version is not."""
    return record.data_version, record.at


def stamps(known: Mapping[str, FileRecord]) -> dict[str, FileStamp]:
    """The stamp of each record, by the same keys."""
    return {key: record.stamp for key, record in known.items()}
