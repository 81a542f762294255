"""Uses one connection for several plans, one after another, in the same thread.

A connection costs client and server more than all questions of a plan together: a process is started, and the password is proved.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import psycopg
from psycopg.pq import TransactionStatus

from incremental_assets.databases.postgres.connection import PostgresAddress

_Kept = list[tuple[PostgresAddress, psycopg.Connection]]
_kept: ContextVar[_Kept | None] = ContextVar("kept_connections", default=None)


@contextlib.contextmanager
def connections_kept() -> Iterator[None]:
    """Within the block, a connection that is given back is used again by this thread. All are closed at the end.

    Between two uses there must be no pauses: a server or a firewall may end a connection that is idle for long.
    """
    kept: _Kept = []
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        for _, connection in kept:
            connection.close()


def taken(address: PostgresAddress) -> psycopg.Connection:
    """A connection to the database: one that was given back, or a new one. Raises SourceUnreachable."""
    kept = _kept.get() or []
    position = next((n for n, (of, _) in enumerate(kept) if of == address), None)
    connection = None if position is None else kept.pop(position)[1]
    return address.connect() if connection is None or connection.closed else connection


def give_back(address: PostgresAddress, connection: psycopg.Connection) -> None:
    """Keeps the connection for the next use where ``connections_kept`` is in force, and closes it otherwise.

    One with a transaction that was not ended is closed: the server then ends the transaction.
    """
    kept = _kept.get()
    if kept is None or connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
        connection.close()
    else:
        kept.append((address, connection))
