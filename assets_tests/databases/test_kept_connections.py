"""Plans that one thread makes one after another share a connection, and nothing that one of them leaves there reaches the next.

Belongs here: keeping connections. Does not belong: what a plan asks (``test_sync``).
"""

from collections.abc import Callable

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import SourceError, SourceUnreachable
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.postgres.connection import PostgresAddress
from incremental_assets.databases.postgres.kept_connections import connections_kept
from incremental_assets.databases.postgres.reader import PostgresReader


@pytest.fixture
def table(project: Callable[..., Project]) -> TableDefinition:
    made = project()
    made.execute("create table a (id int primary key)")
    return made.definition("a")


def reader(definition: TableDefinition) -> PostgresReader:
    return PostgresReader(definition.settings.address, definition.container, timezone="UTC")


def process_of(reader: PostgresReader) -> int:
    return int(reader.rows("select pg_backend_pid()")[0][0])


def test_a_thread_connects_once_for_all_of_its_plans(table: TableDefinition) -> None:
    """A tick over 1,000 containers connected 1,000 times, which took a third of its time and as many processes of the server."""
    with connections_kept():
        seen: set[int] = set()
        for _ in range(3):
            with reader(table) as one:
                seen.add(process_of(one))
                with one.snapshot():
                    pass
        with reader(table) as one, reader(table) as other:
            assert process_of(one) != process_of(other), "two at the same time have a connection each"
    assert len(seen) == 1
    with psycopg.connect(table.settings.address.display, password=table.settings.address.password) as source:
        left = source.execute("select count(*) from pg_stat_activity where pid = %s", (seen.pop(),)).fetchone()
        assert left == (0,), "none is left open afterwards"


def test_a_connection_that_was_left_within_a_snapshot_is_not_used_again(table: TableDefinition) -> None:
    """Otherwise the next container would be planned from an old state of the source, and would keep it from being cleaned up."""
    with connections_kept():
        with reader(table) as one:
            before = process_of(one)
            held = one.snapshot()
            held.__enter__()
        with reader(table) as one:
            assert process_of(one) != before
        del held


def test_a_connection_that_the_server_has_ended_fails_one_plan_and_no_other(table: TableDefinition) -> None:
    with connections_kept():
        with reader(table) as one:
            before = process_of(one)
        with psycopg.connect(table.settings.address.display, password=table.settings.address.password) as source:
            source.execute("select pg_terminate_backend(%s)", (before,))
        with reader(table) as one, pytest.raises(SourceError):
            process_of(one)
        with reader(table) as one:
            assert process_of(one) != before


def test_a_kept_connection_is_never_one_to_another_database(table: TableDefinition) -> None:
    elsewhere = PostgresAddress.parse("shop", "postgresql://nobody@127.0.0.1:1/other")
    with connections_kept():
        with reader(table) as one:
            process_of(one)
        with pytest.raises(SourceUnreachable):
            PostgresReader(elsewhere, table.container, timezone="UTC").__enter__()
