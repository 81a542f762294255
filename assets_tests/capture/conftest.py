"""Fixtures of the tests of capture: a PostgreSQL that writes a log from which changes can be decoded."""

from collections.abc import Iterator

import psycopg
import pytest

from incremental_assets.demo.postgres import EmbeddedPostgres

SETTINGS = {"wal_level": "logical", "max_replication_slots": "50", "max_wal_senders": "5", "max_prepared_transactions": "5"}


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("logical"), settings=SETTINGS)
    server.start()
    yield server
    server.remove()


@pytest.fixture(autouse=True)
def _no_slot_stays(postgres: EmbeddedPostgres) -> Iterator[None]:
    """A slot that a test leaves keeps its database from being dropped, and the server's log from being removed."""
    yield
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
