"""Collects the keys of the rows that the log says have changed, each once, in bounded memory.

Belongs here: this collection. Does not belong: where the keys come from (``log``), and the rows (``lookup``).
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence

from incremental_assets.databases.change_log import Key

_AT_A_TIME = 10_000
"""So many keys are held until they are written."""


class ChangedKeys:
    """A set of keys in a temporary file, which SQLite makes when they are more than it holds in memory, and removes with the object."""

    def __init__(self) -> None:
        # An empty name stands for a temporary database on the disk.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute("pragma journal_mode = off")
        self._database.execute("create table keys (key text primary key) without rowid")
        self._held: set[Key] = set()

    def add(self, key: Key) -> None:
        self._held.add(key)
        if len(self._held) >= _AT_A_TIME:
            self._write()

    def __len__(self) -> int:
        self._write()
        return int(self._database.execute("select count(*) from keys").fetchone()[0])

    def pieces(self, size: int) -> Iterator[Sequence[Key]]:
        """All keys, at most so many at a time, in the order of their texts."""
        last = ""
        self._write()
        while True:
            found = [row[0] for row in self._database.execute("select key from keys where key > ? order by key limit ?", (last, size))]
            if not found:
                return
            yield [tuple(json.loads(text)) for text in found]
            last = found[-1]

    def close(self) -> None:
        self._database.close()

    def _write(self) -> None:
        if self._held:
            self._database.execute("begin")
            self._database.executemany("insert or ignore into keys values (?)", [(json.dumps(key),) for key in self._held])
            self._database.execute("commit")
            self._held.clear()
