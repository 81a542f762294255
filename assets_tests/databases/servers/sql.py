"""The SQL of a server under test, as far as that of one server differs from that of another.

Belongs here: what the shared tests need to say in each server's own words, and the identifiers of their tables. Does not belong: the words
themselves (``mysql.sql``, ``sqlserver.sql``), and SQL that all servers understand, which the tests write as it is.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

PLAIN_USER = "incremental_assets_plain"
"""The user that ``plain_user`` makes."""


class By(Enum):
    """The kinds of identifiers that a container may be followed by."""

    NUMBER = "number"
    CREATED = "created"
    CREATED_UPSERT = "created, upsert"
    CHANGED = "changed"


class ServerSQL(Protocol):
    """One server's SQL. The attributes are types or definitions that follow the name of a column, unless they say otherwise."""

    @property
    def numbered(self) -> str:
        """A primary key that the server numbers."""
        ...

    @property
    def numbered_wide(self) -> str:
        """As ``numbered``, of 64 bits, and of a type for numbers from 0 on where the server has one."""
        ...

    @property
    def counted(self) -> str:
        """A whole number, of a type for numbers from 0 on where the server has one."""
        ...

    @property
    def text(self) -> str:
        """A text of up to 20 characters."""
        ...

    @property
    def long_text(self) -> str: ...

    @property
    def created(self) -> str:
        """A time in microseconds that is set by its default when the row arrives."""
        ...

    @property
    def created_coarse(self) -> str:
        """As ``created``, in milliseconds and without time zone."""
        ...

    @property
    def changed(self) -> str:
        """A column that the server itself sets anew with each change of the row."""
        ...

    @property
    def changed_type(self) -> str:
        """The type of ``changed`` in an entry of ``incremental``."""
        ...

    @property
    def now(self) -> str:
        """The expression for the time that ``created`` has by default."""
        ...

    @property
    def begin(self) -> str:
        """The statement that begins a transaction where none is open."""
        ...

    @property
    def commit(self) -> str:
        """The statement that commits a transaction if one is open."""
        ...

    @property
    def rollback(self) -> str:
        """The statement that rolls a transaction back if one is open."""
        ...

    @property
    def short_lock_wait(self) -> str:
        """The statement after which a session waits for a lock for a second at most."""
        ...

    @property
    def pause(self) -> str:
        """The statement that takes a bit more than a second."""
        ...

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        """Types, and SQL literals of values of each."""
        ...

    def literal(self, value: str) -> str:
        """The literal of a text that has no quote in it."""
        ...

    def repeated(self, value: str, times: int) -> str:
        """The expression for a text that is as long as that."""
        ...

    def renamed(self, old: str, new: str) -> str: ...

    def with_column(self, table: str, name: str, type_: str) -> str:
        """The statement that adds a column in front of the others, if the server can."""
        ...

    def with_default(self, table: str, name: str, type_: str, value: int) -> str:
        """The statement that adds a column which may be NULL, and fills it with its default in the rows that are there."""
        ...

    def without_column(self, table: str, name: str) -> str: ...

    def plain_user(self, database: str, password: str) -> Sequence[str]:
        """The statements that make a user who may read the database's tables, and may not see the transactions of others."""
        ...


def entry(sql: ServerSQL, table: str, by: By) -> str:
    """The entry of ``incremental`` for a table that has the columns of ``followed``."""
    if by is By.NUMBER:
        return f"{table}:id:integer"
    if by is By.CHANGED:
        return f"{table}:changed:{sql.changed_type}!upsert"
    return f"{table}:created:timestamp{'!upsert' if by is By.CREATED_UPSERT else ''}"


def followed(sql: ServerSQL, table: str, value: str | None = None) -> str:
    """The statement that makes a table with an identifier of each kind. ``value``: the type of the column of that name, or a text."""
    return f"create table {table} (id {sql.numbered}, value {value or sql.text}, created {sql.created}, changed {sql.changed})"
