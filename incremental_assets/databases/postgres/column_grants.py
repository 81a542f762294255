"""Begins the transaction of a role that is granted columns of a table and not the table, and names those that it may not read."""

import contextlib
from collections.abc import Collection, Iterator

import psycopg
from psycopg import sql

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.postgres.connection import OWN_MARK, PostgresAddress, ask
from incremental_assets.databases.postgres.queries import relation

NOT_GRANTED = """
select attname from pg_attribute
 where attrelid = %(r)s::regclass and attnum > 0 and not attisdropped and not has_column_privilege(attrelid, attnum, 'select')
"""
"""The names of the columns that our role may not read."""


def begin_with_columns(address: PostgresAddress, connection: psycopg.Connection, container: Container, begin: str, settings: str) -> None:
    """Begins the transaction by ``begin``, with a lock of the table and a snapshot that is not older. Such a role may not use LOCK TABLE.

    A query locks the table as well, but in the same transaction it would fix the snapshot before it has the lock. So another
    transaction gets the lock and then a snapshot, and this one takes that over, with a lock of its own.
    """
    locking = sql.SQL("select from {} limit 0").format(relation(container))
    with contextlib.closing(address.connect()) as first:
        first.execute(f"begin isolation level read committed read only; {settings}; {OWN_MARK}".encode())
        first.execute(locking)
        found = first.execute("select pg_export_snapshot()").fetchone()
        assert found is not None
        connection.execute(begin.encode())
        connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(found[0])))
        connection.execute(locking)


def expect_granted(address: PostgresAddress, container: Container, denied: Collection[str]) -> None:
    """Raises SourceError if the container has columns among ``denied``. The server's own message names the table alone."""
    names = [column.name for column in container.columns if column.name in denied]
    if not names:
        return
    grant = sql.SQL("GRANT SELECT ({}) ON {} TO {};").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(container.schema, container.name), sql.Identifier(address.user)
    )
    # Without its key, or the column that it is followed by, the container would be another one.
    needed = {*container.primary_key, *(column.name for column in container.placed_by)}
    leave = f"Leave them out: containers: {{{container.name}: {{exclude_columns: [{', '.join(names)}]}}}}; or let it read them"
    remedy = "Let it read them" if needed & set(names) else leave
    raise SourceError(
        f"{container.label}: the role {address.user} may not read {', '.join(names)}. {remedy}: {grant.as_string(None)} Nothing was read."
    )


@contextlib.contextmanager
def column_errors(address: PostgresAddress, container: Container) -> Iterator[None]:
    """Raises the refusal of a query inside the block as SourceError that names the columns, if our role is granted others of the table.

    The server's message names the table alone, and the transaction of the query has failed, so that another connection asks.
    """
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        with contextlib.suppress(psycopg.Error), contextlib.closing(address.connect()) as other:
            name = sql.Identifier(container.schema, container.name).as_string(None)
            denied = {str(row[0]) for row in ask(other, NOT_GRANTED, {"r": name})}
            if any(column.name not in denied for column in container.columns):
                expect_granted(address, container, denied)
        raise
