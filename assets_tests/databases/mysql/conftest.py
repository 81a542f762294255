"""A project over a new, empty database of MariaDB for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assets_tests.databases.mariadb_server import EmbeddedMariaDB, MariaDBUnavailable
from assets_tests.databases.mysql.project import MySQLProject, mysql_projects
from assets_tests.databases.servers.parameters import MARIADB, Shop, projects


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with projects(MARIADB, request) as make:
        yield make


@pytest.fixture(scope="session")
def counting_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDB]:
    """A server that counts what happens to its tables, which MariaDB does not by default."""
    server = EmbeddedMariaDB(tmp_path_factory.mktemp("counting"), **{"performance-schema": "ON"})
    try:
        server.start()
    except MariaDBUnavailable as error:
        server.stop()
        pytest.skip(str(error))
    yield server
    server.stop(immediate=True)


@pytest.fixture
def counting(counting_mariadb: EmbeddedMariaDB, tmp_path: Path, spark_home: Path) -> Iterator[Callable[..., MySQLProject]]:
    with mysql_projects(counting_mariadb, tmp_path, spark_home) as make:
        yield make
