"""Gives one sync at a time the replication slot, which has one reader."""

import contextlib
import logging
from collections.abc import Iterator

import psycopg
from psycopg import sql

from incremental_assets.core.container import RowSecurity
from incremental_assets.databases.postgres.connection import OWN_MARK, PostgresAddress
from incremental_assets.databases.postgres.settings import SEARCH_PATH, of_transaction

log = logging.getLogger(__name__)

SLOT_LOCK = 1768841076
"""The first half of the key of the advisory locks of slots. The second half is a hash of the slot's name: of those who peek and advance,
one at a time; and with the next number for those who need it to stay where it is."""
_SECONDS_BETWEEN_WORDS = 10
"""A look waits for another one at the same slot as long as that takes, and says so each time when so many seconds have passed."""
# How long the server decodes its log depends on the machine and on the log, so no time is too long.
_LIMITS = {"client_encoding": "UTF8", "statement_timeout": "0"}


@contextlib.contextmanager
def slot_session(address: PostgresAddress, slot: str) -> Iterator[psycopg.Connection]:
    """A transaction in which nobody else of us uses the slot, over a connection of its own. It is not committed. Raises psycopg.Error."""
    with contextlib.closing(address.opened()) as connection:
        # The settings decide how keys are printed, so they are those of every other read.
        limits = _LIMITS | ({"transaction_timeout": "0"} if connection.info.server_version >= 170000 else {})
        settings = f"{of_transaction(RowSecurity.REFUSE, limits)}; {OWN_MARK}, {SEARCH_PATH}"
        connection.execute(f"begin isolation level read committed; {settings}".encode())
        _wait_for_others(connection, slot)
        yield connection


def _wait_for_others(connection: psycopg.Connection, slot: str) -> None:
    """Returns when the slot is this transaction's. The lock of a session that has died is given back by the server."""
    lock, name = sql.Literal(SLOT_LOCK), sql.Literal(slot)
    mine = sql.SQL("set local lock_timeout = {}; select pg_advisory_xact_lock({}, hashtext({})); set local lock_timeout = 0").format(
        sql.Literal(f"{round(1000 * _SECONDS_BETWEEN_WORDS)}ms"), lock, name
    )
    holder = sql.SQL(
        """select l.pid, extract(epoch from clock_timestamp() - coalesce(a.query_start, a.xact_start))::int
             from pg_locks l left join pg_stat_activity a using (pid) where l.locktype = 'advisory' and l.granted and l.objsubid = 2
               and l.database = (select oid from pg_database where datname = current_database())
               and l.classid::bigint = {lock} and l.objid::bigint = hashtext({slot})::bigint & 4294967295"""
    ).format(lock=lock, slot=name)
    while True:
        try:
            with connection.transaction():
                connection.execute(mine.as_string(connection).encode())
            return
        except psycopg.errors.LockNotAvailable:
            for pid, seconds in connection.execute(holder).fetchall():
                log.warning("waits for the replication slot %r, which pid %s has been reading for %s s", slot, pid, seconds)
