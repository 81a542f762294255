"""Reads a Delta table's metadata without Spark: whether it exists, which container owns it, its sync state, and its commits.

A plan must be cheap, because most schedule ticks find nothing to do; starting Spark for it would not be.
"""

import contextlib
import hashlib
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from obstore.exceptions import BaseError

from incremental_assets.core.capture import CapturePosition
from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError, NewerFormat
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import UnknownType, type_text
from incremental_assets.core.watermark import TableState
from incremental_assets.delta.log_copy import LogCopy, copy_of
from incremental_assets.delta.seen import note, seen
from incremental_assets.delta.store import Folder, StoreFolder, folder_at, last_put, spark_url, storage_options, version_file
from incremental_assets.delta.store_errors import reason

log = logging.getLogger(__name__)

STATE_PROPERTY = "incremental_assets.state"
"""The table property that holds the container's sync state as JSON (``core.watermark.TableState``)."""
CONTAINER_PROPERTY = "incremental_assets.container"
"""The table property that holds the label of the container that owns the table."""
# Operations, as the Delta log names them, that change no row of the table: maintenance, properties, and changes of the schema.
_QUIET_OPERATIONS = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN",
                     "CHANGE COLUMNS", "UPGRADE PROTOCOL", "COMPUTE STATS", "CLUSTER BY", "REORG"}  # fmt: skip
_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[#?\\\x00-\x1f\x7f]")
"""What delta-rs misreads in a path: of %20 and a backslash it makes other characters, and so finds another table or none; with # or ? it
finds the table, but none of its commits, so that it would not be seen that another writer has committed."""
EXACT_TIMES = "SET datafusion.execution.parquet.coerce_int96 = 'us'"
"""Times of 96 bits, as a user's Spark may write them, are read as nanoseconds by default, in which the year 9999 becomes 1816."""


@dataclass(frozen=True)
class Head:
    """The metadata of a table's newest version.

    ``table_id`` is the id that Delta gives each table when it is created: a table that was deleted and created anew has another one.
    """

    version: int
    columns: tuple[Column, ...]
    properties: Mapping[str, str] = field(repr=False)
    table_id: str = ""

    @property
    def is_mapped(self) -> bool:
        """Whether the table has column mapping: its files have other names of columns than the table."""
        return self.properties.get("delta.columnMapping.mode", "none") != "none"

    @property
    def owner(self) -> str | None:
        """The label of the container that the table belongs to; None if the table was not made by this product."""
        return self.properties.get(CONTAINER_PROPERTY)

    @property
    def filled_from(self) -> tuple[str | None, str | None]:
        """The source from which the table was filled, and its schema, as in ``TableState``; None where the table does not tell it."""
        data = json.loads(self.properties.get(STATE_PROPERTY) or "{}")
        return data.get("source"), data.get("schema")

    def signature(self) -> str | None:
        """The signature of the incremental identifier that the table was built with; None if the table has no sync state."""
        text = self.properties.get(STATE_PROPERTY)
        return str(json.loads(text)["identifier"]) if text else None

    @property
    def captured_to(self) -> tuple[str, int] | None:
        """The slot of the log that the table follows, and how far it has come; None if it follows none."""
        text = self.properties.get(STATE_PROPERTY)
        position = CapturePosition.from_json(json.loads(text).get("capture")) if text else None
        return None if position is None else (position.slot, position.lsn)

    @property
    def valueless(self) -> tuple[str, ...]:
        """The columns that the source has without any value, so that the table does not have them yet."""
        text = self.properties.get(STATE_PROPERTY)
        return tuple(json.loads(text).get("valueless", ())) if text else ()

    def state(self, container: Container) -> TableState | None:
        """The sync state in the table's property; None if there is none. Raises NewerFormat if a newer version of the product wrote it."""
        text = self.properties.get(STATE_PROPERTY)
        try:
            return TableState.from_json(container.cursor_type, text, container.partitioned_on) if text else None
        except NewerFormat as error:
            raise NewerFormat(f"{container.label}: {error}") from error


@dataclass(frozen=True)
class Commit:
    """One commit in a table's history.

    ``id``: a digest of its file in the log, which is the same for all readers. Whoever has made the commit, it has one (delta-rs writes no
    ``txnId``). ``file``: of the version (``Folder.versions``); empty where the log was not listed. ``metrics`` are Delta's operation
    metrics, as far as they are integers. ``commit_metadata`` is what ``core.plan.Plan.commit_metadata`` made (empty for commits of other
    programs).
    """

    version: int
    id: str
    file: str = field(repr=False)
    operation: str
    metrics: Mapping[str, int] = field(repr=False)
    commit_metadata: Mapping[str, Any] = field(repr=False)

    @property
    def is_quiet(self) -> bool:
        """Whether it has changed no row: a commit of maintenance, of properties, or of the schema."""
        return self.operation in _QUIET_OPERATIONS


class Left(Enum):
    """What has become of the rows that the last sync of a table has left there.

    ``THERE``: they are as it left them. ``CHANGED``: later commits may have changed rows, or the log does not tell. ``REPLACED``: its
    commit is gone, and another one has its number.
    """

    THERE = auto()
    CHANGED = auto()
    REPLACED = auto()


@dataclass(frozen=True)
class _Shared:
    """A table that is opened. ``version``: the one that it was opened at. ``file``: of that version (``Folder.versions``)."""

    delta: DeltaTable
    version: int
    file: str


_SHARED: dict[tuple[str, frozenset[tuple[str, str]]], _Shared] = {}
"""The tables that this process has opened last, by their address and the options of the store."""
_COPIES: dict[tuple[str, frozenset[tuple[str, str]]], LogCopy | None] = {}
"""The copies of logs that it has made last; None where a copy was found not to do."""
_CHANGING = threading.Lock()
_MOST_SHARED = 16


class LakeTable:
    """The location of one Delta table, whether the table exists yet or not.

    ``url`` is a local path or any URL that Spark can write (``store.spark_url``).
    """

    def __init__(self, lake: str, *parts: str) -> None:
        self.url = spark_url("/".join((lake.rstrip("/"), *parts)))
        self._local = Path(self.url.removeprefix("file://")) if urlsplit(self.url).scheme in ("", "file") else None

    @property
    def is_on_store(self) -> bool:
        """Whether the table is on an object store, where each question takes a request."""
        return self._local is None

    @property
    def sql_name(self) -> str:
        """The table's name in Spark SQL: a path-based Delta table."""
        return f"delta.{quote(self.url)}"

    def head(self) -> Head | None:
        """The metadata of the newest version; None if there is no table yet.

        On an object store, what an earlier look has found is good as long as no commit has followed, which one request tells. Raises
        LakeError if the location cannot be read or holds something else than a Delta table.
        """
        head = self._seen() if self.is_on_store else None
        if head is not None:
            return head
        table = self.log_opened()
        return None if table is None else self._head_of(table)

    def _seen(self) -> Head | None:
        """What was noted of the newest version; None if nothing was, or if there is a newer one."""
        try:
            known: Mapping[str, Any] = seen(self.address) or {}
            columns = tuple(Column(one["name"], one["type"], one.get("comment")) for one in known["columns"])
            head, file = Head(int(known["version"]), columns, {**known["properties"]}, str(known["table_id"])), known["file"]
        except (KeyError, TypeError, ValueError):
            return None
        with self._read_errors():
            return head if folder_at(self.address).versions(head.version) == {head.version: file} else None

    def _head_of(self, table: DeltaTable) -> Head:
        fields = json.loads(table.schema().to_json())["fields"]
        try:
            columns = tuple(Column(f["name"], type_text(f["type"]), f["metadata"].get("comment") or None) for f in fields)
        except UnknownType as error:
            raise LakeError(f"{self.url}: a column of this Delta table is {error}, which is not known here.") from error
        metadata = table.metadata()
        return Head(table.version(), columns, dict(metadata.configuration), str(metadata.id))

    def rows(self) -> int:
        """An estimate of the number of rows, from the statistics of the files. Rows deleted by deletion vectors may still be counted."""
        table = self.log_opened()
        return int(table.count()) if table is not None else 0

    def bytes(self) -> int:
        """The size of the files of the newest version; 0 if there is no table yet."""
        table = self.log_opened()
        return sum(pa.table(table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()) if table is not None else 0

    def commits(self, newest: int) -> Sequence[Commit]:
        """Up to ``newest`` of the most recent commits, the most recent first."""
        table = self.log_opened()
        return [] if table is None else self.commits_since(table.version() - newest)[:newest]

    def commit(self, version: int) -> Commit | None:
        """The commit of this version; None if the log does not have it any more."""
        return next(iter(self._commits({version: ""})), None)

    def left(self, state: TableState) -> Left:
        """What has become of the rows that the sync left which wrote the state. Raises LakeError if the log cannot be read.

        Only the 64 most recent commits are inspected. If that of the sync is older, the answer is ``CHANGED``, which costs at most a sync
        that was not needed. What was found once holds as long as the log has these very files, which one request tells. Of a state that
        has only the number of its commit, the commit of that number is taken.
        """
        if state.data_version is None:
            return Left.CHANGED
        files = self._versions(state.data_version)
        if (seen(self.address) or {}).get("left") == _left_by(state, files.values()):
            return Left.THERE
        are_few = len(files) <= 65
        found = self._commits(files if are_few else dict([next(iter(files.items()))]))
        if not found or found[-1].version != state.data_version:
            return Left.CHANGED
        if state.data_commit not in (None, found[-1].id):
            self._forget()  # it may have been opened while the log had the other commit
            note(self.address, {})
            return Left.REPLACED
        if not are_few or not all(commit.is_quiet for commit in found[:-1]):
            return Left.CHANGED
        if state.data_commit is None:
            log.info(
                "%s: its state has only the number of its last commit of rows; version %s is taken for it", self.url, state.data_version
            )
        note(self.address, {**(seen(self.address) or {}), "left": _left_by(state, files.values())})
        return Left.THERE

    def note_left(self, state: TableState, own: Commit) -> None:
        """Lets ``left`` know without a request that rows are as this process has just left them, whose last commit has stored the state.

        ``own``: the commit of rows that the state names.
        """
        newest = _COPIES.get(self._key) or _SHARED.get(self._key)
        if newest is not None and newest.version == own.version + 1:
            note(self.address, {**(seen(self.address) or {}), "left": _left_by(state, (own.file, newest.file))})

    def data_commits_since(self, version: int) -> Sequence[Commit]:
        """The commits after ``version`` that may have changed rows, the most recent first."""
        return [commit for commit in self.commits_since(version) if not commit.is_quiet]

    def commits_since(self, version: int) -> Sequence[Commit]:
        """All commits after ``version``, the most recent first. Raises LakeError if the log cannot be read."""
        return self._commits(self._versions(version + 1))

    def _versions(self, since: int) -> Mapping[int, str]:
        """The versions from this one on that the log has, as ``Folder.versions``. Raises LakeError if it cannot be read."""
        with self._read_errors():
            return folder_at(self.address).versions(since)

    def _commits(self, files: Mapping[int, str]) -> Sequence[Commit]:
        """The commits of these versions, the most recent first, without those that the log does not have. Raises LakeError."""
        folder, copy = folder_at(self.address), _COPIES.get(self._key)
        with self._read_errors(), ThreadPoolExecutor(8) as threads:
            found = threads.map(lambda version: _commit_in(folder, copy, version, files[version]), reversed(files))
            return [commit for commit in found if commit is not None]

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, BaseError, OSError, ValueError) as error:
            raise LakeError(f"{self.url}: the Delta table cannot be read: {reason(error)}") from error

    @property
    def address(self) -> str:
        """The table's location as delta-rs expects it: a plain path, or an S3 URL with the scheme s3://."""
        return str(self._local) if self._local is not None else re.sub(r"\As3a://", "s3://", self.url)

    def opened(self) -> DeltaTable | None:
        """The newest version of the table as a delta-rs object; None if there is no table yet. Raises LakeError in the same cases as
        ``head``.

        All who ask in this process get the same object until there is another version, as each opening reads the log. Nobody may change it:
        who commits by such an object asks ``opened_to_change``.
        """
        with self._read_errors():
            known = _SHARED.get(self._key)
            if known is not None and folder_at(self.address).versions(known.version) == {known.version: known.file}:
                return known.delta
            self._forget()
            delta = self.opened_to_change()
            if delta is not None:
                self._share(delta)
        return delta

    @property
    def _key(self) -> tuple[str, frozenset[tuple[str, str]]]:
        return self.address, frozenset(storage_options().items())

    def _forget(self) -> _Shared | None:
        with _CHANGING:
            _COPIES.pop(self._key, None)
            return _SHARED.pop(self._key, None)

    def _share(self, delta: DeltaTable) -> None:
        found = folder_at(self.address).versions(delta.version())
        if list(found) != [delta.version()]:  # another process has committed since
            return
        _put_last(_SHARED, self._key, _Shared(delta, delta.version(), found[delta.version()]))
        if self.is_on_store:
            copy, file = _COPIES.get(self._key), found[delta.version()]
            self._note(delta, file, {} if copy is None or copy.file != file else copy.files)

    def _note(self, delta: DeltaTable, file: str, copied: Mapping[str, str]) -> None:
        """Notes what is known of the newest version. ``copied``: the objects of the log that are kept (``LogCopy.files``)."""
        known = seen(self.address) or {}
        with contextlib.suppress(LakeError):  # of a type that is not known here, which only concerns who asks for the head
            head = asdict(self._head_of(delta))
            note(self.address, {**(known if known.get("file") == file else {}), "file": file, "log": {**copied}, **head})

    def log_opened(self) -> DeltaTable | None:
        """As ``opened``, for what the log says: it may be an object whose rows cannot be read. On an object store, less is read for it."""
        with self._read_errors():
            folder = folder_at(self.address)
            if not isinstance(folder, StoreFolder):
                return self.opened()
            copy = self._copied()
            if copy is not None:
                newer = dict(folder.versions(copy.version))
                if newer.pop(copy.version, None) == copy.file:
                    if not newer:
                        return copy.delta
                    copy = copy.newer(newer)
                    if copy is not None:
                        return self._share_copy(copy)
                self._forget()
            if self._key in _COPIES:
                return self.opened()
            copy = copy_of(folder)
            if copy is None:
                delta = self.opened()
                if delta is not None:
                    _put_last(_COPIES, self._key, None)
                return delta
            return self._share_copy(copy)

    def _share_copy(self, copy: LogCopy) -> DeltaTable:
        _put_last(_COPIES, self._key, copy)
        self._note(copy.delta, copy.file, copy.files)
        return copy.delta

    def _copied(self) -> LogCopy | None:
        """The copy of the log that this process has made, or an earlier one with the same DAGSTER_HOME; None if there is none."""
        copy, folder = _COPIES.get(self._key), folder_at(self.address)
        known = (seen(self.address) or {}).get("log")
        if copy is None and known and isinstance(known, dict) and isinstance(folder, StoreFolder):
            copy = copy_of(folder, {str(name): str(file) for name, file in known.items()})
            if copy is not None:
                _put_last(_COPIES, self._key, copy)
        return copy

    def opened_at(self, version: int) -> DeltaTable:
        """The table at a version that it has, for what the log says: it may be an object whose rows cannot be read.

        Nothing is asked of a store if the version is the one that was looked at last.
        """
        with self._read_errors():
            copy = self._copied()
        return copy.delta if copy is not None and copy.version == version else self.readable_at(version)

    def readable_at(self, version: int) -> DeltaTable:
        """The table at a version that it has, as an object that nobody may change. Nothing is asked of a store if it was opened at it."""
        known = _SHARED.get(self._key)
        if known is not None and known.version == version:
            return known.delta
        with self._read_errors():
            delta = DeltaTable(self.address, version=version, storage_options=storage_options())
            looked_at = seen(self.address) or {}
            if self.is_on_store and looked_at.get("version") == version:
                _put_last(_SHARED, self._key, _Shared(delta, version, str(looked_at.get("file"))))
        return delta

    def follow(self) -> DeltaTable:
        """Lets the shared object come to the version that this process has just committed, for which it reads only what is new.

        Nobody else in this process may be reading the table: it holds the container's lock. Returns what ``log_opened`` does; where this
        process has put the version's file, it need not be the newest version any more.
        """
        copy, known = _COPIES.get(self._key), self._forget_rows()
        with self._read_errors():
            own = None if copy is None else last_put(self.address, version_file(copy.version + 1))
            if copy is not None and own is not None and copy.follow(own):
                return self._share_copy(copy)
            if known is None or copy is not None:
                delta = self.log_opened()
                if delta is None:
                    raise LakeError(f"{self.url}: the Delta table is gone.")
                return delta
            known.delta.update_incremental()
            self._share(known.delta)
        return known.delta

    def _forget_rows(self) -> _Shared | None:
        with _CHANGING:
            return _SHARED.pop(self._key, None)

    def make_checkpoint(self, now: DeltaTable) -> None:
        """Makes a checkpoint of the version that is opened, of ``follow``. Raises DeltaError, LakeError and OSError."""
        copy = _COPIES.get(self._key)
        if copy is None or copy.delta is not now:
            self.readable_at(now.version()).create_checkpoint()
            return
        with self._read_errors():
            copy.make_checkpoint()
            note(self.address, {**(seen(self.address) or {}), "log": {**copy.files}})

    def tidy_log(self) -> None:
        """Makes a checkpoint of the newest version, and removes the commits before it that the table's properties let go.

        An error is ignored: what was committed is in the table, and the next call removes more.
        """
        with contextlib.suppress(LakeError, DeltaError, OSError):
            delta = self.opened_to_change()
            if delta is not None:
                delta.create_checkpoint()
                delta.cleanup_metadata()

    def opened_to_change(self) -> DeltaTable | None:
        """The same as an object of the caller's own."""
        if self._local is not None:
            misread = _MISREAD.search(str(self._local))
            if misread:
                raise LakeError(
                    f"{self.url}: tables cannot be kept safely in a folder with {misread[0]!r} in its path, as delta-rs misreads that; "
                    f"rename the folder, or choose another lake."
                )
            if not self._local.exists():
                return None
            if not (self._local / "_delta_log").is_dir():
                if self._local.is_dir() and not any(self._local.iterdir()):
                    return None
                # This is checked a second time because another process may have created the table since the first check.
                if not (self._local / "_delta_log").is_dir():
                    raise LakeError(f"{self.url} holds something that is not a Delta table; move it away, or choose another lake or name.")
        with self._read_errors():
            try:
                return DeltaTable(self.address, storage_options=storage_options())
            except TableNotFoundError:
                return None


def opened_or_made(
    table: LakeTable, schema: pa.Schema, properties: Mapping[str, str], *, partition_by: Sequence[str] = (), description: str = ""
) -> DeltaTable:
    """Opens a small table that only delta-rs writes, and creates it if it does not exist. Raises DeltaError.

    The creation is not retried. If two processes create the table at the same time, a retry of the slower one would commit another
    creation on top of the first, and the first write of the faster process would then fail.
    """
    delta = opened_while_made(table.opened_to_change)
    if delta is not None:
        return delta
    try:
        return DeltaTable.create(
            table.address, schema, mode="error", partition_by=list(partition_by) or None, configuration=dict(properties),
            description=description or None, storage_options=storage_options() or None,
            commit_properties=CommitProperties(max_commit_retries=0),
        )  # fmt: skip
    except DeltaError:
        delta = opened_while_made(table.opened_to_change)
        if delta is None:
            raise
        return delta  # another process has created it in the meantime


def opened_while_made(opened: Callable[[], DeltaTable | None]) -> DeltaTable | None:
    """Opens a table that another process may be creating at this moment. Returns None if there is no table yet.

    ``opened`` is not atomic: between its checks the folder can change from empty to a table. A second attempt then finds the table.
    """
    try:
        return opened()
    except LakeError:
        return opened()


def query(delta: DeltaTable, statement: str) -> pa.Table:
    """Runs a SQL statement with the query engine of delta-rs. The table is called "rows" in the statement. Raises DeltaError.

    Arrow's dataset readers are not used: they call Python from threads of their own, which now and then aborts a process that is about to
    end.
    """
    found = query_within(delta, statement, sys.maxsize)
    assert found is not None
    return found


def query_within(delta: DeltaTable, statement: str, most_bytes: int) -> pa.Table | None:
    """The same; None as soon as the answer takes more than ``most_bytes`` of memory."""
    try:
        engine = QueryBuilder().register("rows", delta)
        engine.execute(EXACT_TIMES).read_all()
        answer = pa.RecordBatchReader.from_stream(engine.execute(statement))
        batches: list[pa.RecordBatch] = []
        for batch in answer:
            batches.append(batch)
            most_bytes -= batch.nbytes
            if most_bytes < 0:
                return None
        return pa.Table.from_batches(batches, answer.schema)
    except Exception as error:  # the engine raises no more specific class
        raise DeltaError(str(error)) from error


def read_rows(delta: DeltaTable, *filters: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
    """Reads the rows of a small table for which every filter (a column and its allowed texts) holds. Raises DeltaError.

    ``columns`` names the columns to read; None reads all of them.
    """
    where = f" WHERE {among(*filters)}" if filters else ""
    chosen = "*" if columns is None else ", ".join(map(double_quoted, columns))
    return without_views(query(delta, f'SELECT {chosen} FROM "rows"{where}'))


def without_views(rows: pa.Table) -> pa.Table:
    """The rows of the engine with texts and bytes as pyarrow computes with them: from nested columns it takes no views."""
    return rows.cast(pa.schema([field.with_type(_without_views(field.type)) for field in rows.schema]))


def _without_views(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_without_views(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_views(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_without_views(type_.key_type), _without_views(type_.item_type))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(type_, type_)


def among(*filters: tuple[str, Sequence[str]]) -> str:
    """The condition that every filter (a column and its allowed texts) holds, for the engine of delta-rs; empty without filters."""
    return " AND ".join(
        f"{double_quoted(name)} IN ({', '.join(sql_text(value) for value in values)})" if values else "false" for name, values in filters
    )


def double_quoted(name: str) -> str:
    """Quotes a column's name for the statements of ``query``."""
    return '"' + name.replace('"', '""') + '"'


def sql_text(value: str) -> str:
    """Quotes a text for the statements of ``query``. Unlike in Spark SQL, a backslash has no special meaning there."""
    return "'" + value.replace("'", "''") + "'"


def expect_owner(container: Container, table: LakeTable, head: Head) -> None:
    """Raises LakeError if the table does not belong to the container."""
    before, _, name = (head.owner or "").partition("/")
    if before and name == container.name and before != container.datastore:
        raise LakeError(
            f"{container.label}: {table.url} holds the table of {head.owner}. If the datastore was renamed: incremental-assets adopt "
            f"{container.datastore} --from {before}; else move the table away, or choose another lake or name. Nothing was written."
        )
    if head.owner != container.label:
        what = f"the table of {head.owner}" if head.owner else "a Delta table that this product did not make"
        raise LakeError(f"{container.label}: {table.url} holds {what}; move it away, or choose another lake or name. Nothing was written.")


def _left_by(state: TableState, files: Iterable[str]) -> Sequence[object]:
    """What is noted of a log in which the rows are as the state's sync has left them. ``files``: of its commit and of those after it."""
    return [state.data_version, state.data_commit, *files]


def _put_last(shared: dict[Any, Any], key: object, one: object) -> None:
    """Puts it there, and lets go of what has been there longest."""
    with _CHANGING:
        shared.pop(key, None)
        while len(shared) >= _MOST_SHARED:
            shared.pop(next(iter(shared)))
        shared[key] = one


def _commit_in(folder: Folder, copy: LogCopy | None, version: int, file: str) -> Commit | None:
    """The commit of a version; None if the log does not have its file."""
    try:
        content = (copy.content(version_file(version), file) if copy is not None else None) or folder.get(version_file(version))
    except FileNotFoundError:
        return None
    infos = (json.loads(line) for line in content.decode().split("\n") if '"commitInfo"' in line)
    entry: Mapping[str, Any] = next((found for action in infos if (found := action.get("commitInfo"))), {})
    metrics = {k: int(v) for k, v in (entry.get("operationMetrics") or {}).items() if str(v).lstrip("-").isdigit()}
    try:
        commit_metadata = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        commit_metadata = {}
    said = commit_metadata if isinstance(commit_metadata, dict) else {}
    return Commit(version, hashlib.sha256(content).hexdigest()[:32], file, str(entry.get("operation")), metrics, said)
