"""Collects the keys of the rows that the log says have changed, each once, in bounded memory."""

import json
import sqlite3
from collections.abc import Iterator, Sequence

from incremental_assets.databases.change_log import Key

_MOST_HELD = 100_000
"""So many keys are held in memory; if there are more, they are written to the file."""


class ChangedKeys:
    """A set of keys: in memory, or, if they are many, in a temporary file of SQLite's, which it removes with the object."""

    def __init__(self) -> None:
        self._database: sqlite3.Connection | None = None
        self._held: set[Key] = set()

    def add(self, key: Key) -> None:
        self._held.add(key)
        if len(self._held) > _MOST_HELD:
            self._written()

    def __len__(self) -> int:
        if self._database is None:
            return len(self._held)
        return int(self._written().execute("select count(*) from keys").fetchone()[0])

    def pieces(self, size: int) -> Iterator[Sequence[Key]]:
        """All keys, at most so many at a time, in one order."""
        if self._database is None:
            held = sorted(self._held)
            yield from (held[at : at + size] for at in range(0, len(held), size))
            return
        last = ""
        database = self._written()
        while True:
            found = [row[0] for row in database.execute("select key from keys where key > ? order by key limit ?", (last, size))]
            if not found:
                return
            yield [tuple(json.loads(text)) for text in found]
            last = found[-1]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _written(self) -> sqlite3.Connection:
        """The file, with all keys in it."""
        if self._database is None:
            # An empty name stands for a temporary database on the disk.
            self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
            self._database.execute("pragma journal_mode = off")
            self._database.execute("create table keys (key text primary key) without rowid")
        if self._held:
            self._database.execute("begin")
            self._database.executemany("insert or ignore into keys values (?)", [(json.dumps(key),) for key in self._held])
            self._database.execute("commit")
            self._held.clear()
        return self._database
