"""The point that PostgreSQL's log has reached."""

from typing import Any

import psycopg

from incremental_assets.core.capture import parse_lsn
from incremental_assets.core.history import HistoryPoint
from incremental_assets.databases.postgres.connection import ask

# Of the log's two ends, what is inserted lies after everything visible; with synchronous_commit = off, what is flushed does not.
_PRIMARY = "select substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), pg_current_wal_insert_lsn()::text"
# A replica that has taken over is the primary now, though it was none when the connection was opened.
_REPLICA = "select null, case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end::text"
REFUSED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UndefinedFunction,
)


def point_of(connection: psycopg.Connection[Any], *, is_replica: bool) -> HistoryPoint | None:
    """The point that the server's log has reached; None if the server does not say, as some that are compatible with PostgreSQL.

    Of a replica's timeline nothing is known: it follows that of its primary wherever it leads. Raises psycopg.Error.
    """
    try:
        timeline, lsn = ask(connection, _REPLICA if is_replica else _PRIMARY)[0]
    except REFUSED:
        return None
    return HistoryPoint(timeline, parse_lsn(lsn)) if lsn is not None else None
