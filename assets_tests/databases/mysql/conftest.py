"""One MariaDB for each process of tests, and a project over a new, empty database for each test."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from incremental_assets.demo.mariadb import EmbeddedMariaDB, MariaDBUnavailable

_numbers = itertools.count()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDB]:
    server = EmbeddedMariaDB(tmp_path_factory.mktemp("mariadb"))
    try:
        server.start()
    except MariaDBUnavailable as error:
        server.stop()
        pytest.skip(f"{error} This fetches it: python -m incremental_assets.demo.mariadb")
    yield server
    server.stop(immediate=True)


@pytest.fixture
def shop(
    tmp_path: Path, mariadb: EmbeddedMariaDB, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., MySQLProject]]:
    """Makes a project over the test's database: ``shop(incremental=[…], containers={…})``."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    made: list[MySQLProject] = []
    database = f"t{next(_numbers)}"
    mariadb.create_database(database)

    def make(**attributes: Any) -> MySQLProject:
        made.append(MySQLProject(tmp_path / f"p{len(made)}", mariadb, database, spark_home, **attributes))
        return made[-1]

    yield make
    for one in made:
        one.source.close()
