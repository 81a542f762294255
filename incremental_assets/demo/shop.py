"""The demo's shop in the embedded PostgreSQL: what its applications and the steps of the demo ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from incremental_assets.demo.compare import Comparison, compare
from incremental_assets.demo.postgres import DEMO_DATABASE, demo_server
from incremental_assets.demo.source import last_day, load


class Session:
    """A session of one of the shop's applications. All that it does is one transaction until it commits.

    Values are named in statements by ``%(name)s``, and a percent sign is written twice.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    @property
    def pid(self) -> int:
        """The number by which the database knows the session."""
        return self._connection.info.backend_pid

    def change(self, statement: str, values: Mapping[str, object] | None = None) -> int:
        """Execute a statement, and return how many rows it has inserted, updated or deleted."""
        return self._connection.execute(statement.encode(), values or {}).rowcount

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query, which has no values."""
        return self._connection.execute(query.encode()).fetchall()

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


class Shop:
    """The database of the demo's shop.

    ``project``: the folder of the project that has the server's data. ``url``: where the database is, once it was filled.
    """

    def __init__(self, project: Path) -> None:
        self._server = demo_server(project)
        self.url = ""

    def fill(self, scale: float) -> dict[str, int]:
        """Start the server if it does not run, and make the database anew. Return the number of rows of each table."""
        if self._server.is_running:
            self._server.stop()  # it may be one of an earlier version, which had other settings
        self._server.start()
        self.url = self._server.create_database(DEMO_DATABASE, drop=True)
        return load(self.url, scale, until=last_day())

    @contextmanager
    def session(self, application: str = "shop") -> Iterator[Session]:
        """A session, which commits at the end of the block, and is rolled back after an error."""
        with psycopg.connect(self.url, application_name=application) as connection:
            yield Session(connection)

    def containers(self) -> list[str]:
        """The names of the tables and views."""
        with self.session() as session:
            found = session.rows(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') ORDER BY relname"
            )
        return [name for (name,) in found]

    def compare(self, container: str, lake: Path) -> Comparison:
        """Compare a table or view with the Delta table in ``lake``, row by row."""
        return compare(self.url, container, lake)
