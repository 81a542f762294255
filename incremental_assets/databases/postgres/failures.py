"""Turns the failures of PostgreSQL's queries into errors that name the container and say what to do."""

import contextlib
from collections.abc import Iterator

import psycopg

from incremental_assets.core.errors import OutOfTime, SourceError, SourceWaits
from incremental_assets.core.time_limit import seconds_left
from incremental_assets.databases.postgres.connection import PostgresAddress, reason_of
from incremental_assets.databases.postgres.row_security import is_refused, refusal

_NOT_POPULATED = "has not been populated"
"""What PostgreSQL says of a materialized view that was created or refreshed WITH NO DATA."""


@contextlib.contextmanager
def source_errors(label: str, address: PostgresAddress, relation: str | None = None) -> Iterator[None]:
    """Raises a psycopg error inside the block as SourceError, whose message names the container and says what to do.

    Raises OutOfTime, which is a SourceError, too, if a query was cancelled while a time limit was set. ``relation``: the quoted name of the
    table or view that is read; None where it does not matter.
    """
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        name = reason_of(error, address.password)
        if is_refused(error):
            raise refusal(label, address, relation, name) from error
        raise SourceError(
            f"{label}: {name} Grant it: GRANT SELECT ON <table> TO {address.user}; (and USAGE on its schema). A view's owner needs what "
            "the view reads."
        ) from error
    except psycopg.errors.UndefinedTable as error:
        raise SourceError(f"{label}: {reason_of(error, address.password)} Dropped or renamed? Run: incremental-assets catalog") from error
    except psycopg.errors.UndefinedColumn as error:
        raise SourceError(f"{label}: {reason_of(error, address.password)} Run: incremental-assets catalog") from error
    except psycopg.errors.LockNotAvailable as error:
        raise SourceError(
            f"{label}: the table is locked by an ALTER, TRUNCATE or VACUUM FULL of another session; sync again later."
        ) from error
    except psycopg.errors.QueryCanceled as error:
        if seconds_left() is None:
            raise SourceError(
                f"{label}: a query was ended: {reason_of(error, address.password)} Nothing was written; sync again."
            ) from error
        raise OutOfTime(f"{label}: a query took longer than there was time for it: {reason_of(error, address.password)}") from error
    except psycopg.OperationalError as error:
        if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState) and _NOT_POPULATED in str(error):
            name = reason_of(error, address.password)
            raise SourceWaits(f"{label}: it waits: {name} The first sync after that reads it by itself.") from error
        raise SourceError(
            f"{label}: the source was lost while reading: {reason_of(error, address.password)} Nothing half-read was written; sync again."
        ) from error
    except psycopg.Error as error:
        raise SourceError(f"{label}: the source refused a query: {reason_of(error, address.password)}") from error
