"""Spares what Dagster's SQLite storage does anew with each query and with each run.

Dagster opens a connection for each query and closes it again. Whoever closes the last connection to a file with a write-ahead log writes
the log back, removes it, and waits several times for the disk (https://www.sqlite.org/wal.html, "Checkpointing"). So this process holds
one more connection, which does nothing: what is committed is on the disk as before, and is written back at the end. Dagster makes a
database for each run, table by table, which takes longer than many a sync: from the second run of a process on, it is copied. For each
query it makes an engine of SQLAlchemy, which compiles the statement anew: engines are kept. And for each database that it opens it
executes all of its migrations' files to learn the newest version: they are read once. A run's database has 26 tables and indices, of
which most stay empty, and each takes a page: its pages are small.
"""

import atexit
import functools
import logging
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage import sql
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine

from incremental_assets.delta.new_file import write_new_file

KEPT = 8
"""How many files stay open. Each run has one of its own, and is over when others have come after it."""
PAGE = 1024
"""The bytes of a page of a run's database."""

log = logging.getLogger(__name__)


def spare_sqlite_files(home: Path) -> None:
    """From now on, in this process, the SQLite files below ``home`` stay open between queries, and a run's database is a copy of the first
    that Dagster has made. Files elsewhere, and other storages, are used as before."""
    _kept.homes.add(f"{home.resolve()}{os.sep}")
    if not event.contains(Engine, "connect", _kept.connected):
        event.listen(Engine, "connect", _kept.connected)
        atexit.register(_kept.close)
        SqliteEventLogStorage._initdb = _made_by_copying
        for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
            module.__dict__["create_engine"] = _engine
        sql.__dict__["ScriptDirectory"] = _Migrations


def _engine(url: str, *, poolclass: Any, connect_args: Mapping[str, Any] | None = None) -> Engine:
    """The engine of these arguments, with which Dagster calls SQLAlchemy's ``create_engine``. It holds no connection."""
    return _engine_of(url, poolclass, tuple((connect_args or {}).items()))


@functools.lru_cache(maxsize=2 * KEPT)
def _engine_of(url: str, poolclass: Any, connect_args: tuple[tuple[str, Any], ...]) -> Engine:
    return create_engine(url, poolclass=poolclass, connect_args=dict(connect_args))


class _Migrations:
    """Stands in Dagster's module for Alembic's class, of which it only calls this function, under a lock. The files are those of the
    installed Dagster, so they do not change while a process runs, and its three storages share them."""

    read: ClassVar[dict[str | None, ScriptDirectory]] = {}

    @classmethod
    def from_config(cls, config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in cls.read:
            cls.read[place] = ScriptDirectory.from_config(config)
        return cls.read[place]


class _KeptOpen:
    """Connections that do nothing, to the files that were used last."""

    def __init__(self) -> None:
        self.homes: set[str] = set()
        self._connections: OrderedDict[str, sqlite3.Connection] = OrderedDict()
        self._at_work = threading.Lock()

    def connected(self, connection: object, _: object) -> None:
        """SQLAlchemy has opened a connection. The next one to the same file finds one that stays open."""
        if not isinstance(connection, sqlite3.Connection):
            return
        path = connection.execute("PRAGMA database_list").fetchone()[2]
        if not any(path.startswith(home) for home in self.homes):
            return
        if _is_new_run(path):
            connection.execute(f"PRAGMA page_size = {PAGE}")
        with self._at_work:
            kept = self._connections.pop(path, None) or _opened(path)
            if kept is None:
                return
            self._connections[path] = kept  # behind all others, as the one that was used last
            if len(self._connections) > KEPT:
                self._connections.popitem(last=False)[1].close()

    def close(self) -> None:
        """Closes the connections. Each log is written back and removed; those that stayed behind were three quarters of a run's files."""
        with self._at_work:
            while self._connections:
                self._connections.popitem()[1].close()


def _is_new_run(path: str) -> bool:
    """Whether it will be the database of a run, and nothing was written into it yet."""
    return os.path.basename(os.path.dirname(path)) == "runs" and not path.endswith(f"{INDEX_SHARD_NAME}.db") and not os.path.getsize(path)


def _opened(path: str) -> sqlite3.Connection | None:
    """A connection to the file, if that has a write-ahead log already. Without one, an idle connection changes nothing either."""
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=0, check_same_thread=False)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            connection.execute("select count(*) from sqlite_master").fetchone()  # only now the file and its log are open
            return connection
    except sqlite3.Error as error:  # the file is in use in a way that forbids it; everything works without
        log.debug("%s does not stay open: %s", path, error)
    if connection is not None:
        connection.close()
    return None


_kept = _KeptOpen()
_dagsters_own = SqliteEventLogStorage._initdb
_first_made: list[bytes] = []
"""The content of the database of a run without events, as Dagster has made it in this process; or nothing yet."""


def _made_by_copying(self: SqliteEventLogStorage, engine: Engine, for_index_shard: bool = False) -> None:
    """Makes the database of a run, or looks whether it is one. It replaces Dagster's method, which it calls where there is a file."""
    path = Path(engine.url.database or "")
    is_new = not for_index_shard and not path.exists()
    if is_new and _first_made and _copied(path, _first_made[0]):
        return
    _dagsters_own(self, engine, for_index_shard)
    if is_new and not _first_made and not Path(f"{path}-wal").exists():  # all of it is in the file
        _first_made.append(path.read_bytes())


def _copied(path: Path, content: bytes) -> bool:
    """Writes the file, and returns whether it did. The file and its name are on the disk before events are committed, because their commit
    only waits until their log is there. A file that another process has made meanwhile stays: its log has the same name."""
    try:
        write_new_file(str(path), [content])
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:  # a full disk, or one without links: Dagster makes what is missing, or says what is wrong
        log.debug("%s is not copied: %s", path, error)
        return False
    return True
