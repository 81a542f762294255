"""The demo's shop in the embedded PostgreSQL.

Belongs here: ``demo.shops`` for PostgreSQL. Does not belong: what the database has at the beginning (``source``), and the server
(``postgres``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from incremental_assets.demo.compare import Comparison, compare
from incremental_assets.demo.postgres import DEMO_DATABASE, demo_server
from incremental_assets.demo.shops import Session
from incremental_assets.demo.source import last_day, load


class PostgresShop:
    """The ``Shop`` in PostgreSQL. ``project``: the folder of the project that has the server's data."""

    name, origin = "PostgreSQL", "PostgreSQL from a wheel"
    afterwards = (
        "`make ui` shows all of this in Dagster. PostgreSQL keeps running for it; `python -m incremental_assets.demo stop` ends it."
    )
    has_log = has_files = True
    now = "clock_timestamp()"

    def __init__(self, project: Path) -> None:
        self._server = demo_server(project)
        self.url = ""

    def fill(self, scale: float) -> dict[str, int]:
        if self._server.is_running:
            self._server.stop()  # it may be one of an earlier version, which had other settings
        self._server.start()
        self.url = self._server.create_database(DEMO_DATABASE, drop=True)
        return load(self.url, scale, until=last_day())

    @contextmanager
    def session(self, application: str = "shop") -> Iterator[Session]:
        with psycopg.connect(self.url, application_name=application) as connection:
            yield _Session(connection)

    def containers(self) -> list[str]:
        with self.session() as session:
            found = session.rows(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') ORDER BY relname"
            )
        return [name for (name,) in found]

    def compare(self, container: str, lake: Path) -> Comparison:
        return compare(self.url, container, lake)

    def numbers(self, name: str, most: int) -> str:
        return f"generate_series(1, {most}) AS {name}"

    def json_object(self, key: str, value: str) -> str:
        return f"jsonb_build_object('{key}', {value})"


class _Session:
    """The ``Session`` of one connection of psycopg's."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    @property
    def pid(self) -> int:
        return self._connection.info.backend_pid

    def change(self, statement: str, values: Mapping[str, object] | None = None) -> int:
        return self._connection.execute(statement.encode(), values or {}).rowcount

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(query.encode()).fetchall()

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()
