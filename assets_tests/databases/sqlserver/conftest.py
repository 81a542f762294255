"""The server of ``SQLSERVER_URL``, and a project over a new, empty database for each test. Without the variable these tests are skipped."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assets_tests.databases.sqlserver.project import SQLServerProject, connected
from incremental_assets.databases.sqlserver.connection import SQLServerAddress

_numbers = itertools.count()
VARIABLE = "SQLSERVER_URL"


@pytest.fixture(scope="session")
def server() -> SQLServerAddress:
    url = os.environ.get(VARIABLE)
    if not url:
        pytest.skip(f"{VARIABLE} is not set")
    return SQLServerAddress.parse("tests", url)


@pytest.fixture(params=[True, False], ids=["snapshots", "no snapshots"])
def has_snapshots(request: pytest.FixtureRequest) -> bool:
    """Whether the test's database allows snapshots."""
    return request.param


@pytest.fixture
def shop(
    server: SQLServerAddress, has_snapshots: bool, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., SQLServerProject]]:
    """Makes a project over the test's database: ``shop(incremental=[…], containers={…})``."""
    spark_home: Path = request.getfixturevalue("spark_home")  # no Spark is started for a test that is skipped
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    made: list[SQLServerProject] = []
    database = f"incremental_assets_t{next(_numbers)}"
    with connected(server) as admin, admin.cursor() as cursor:
        cursor.execute(f"drop database if exists [{database}]")
        cursor.execute(f"create database [{database}]")
        if has_snapshots:
            cursor.execute(f"alter database [{database}] set allow_snapshot_isolation on")

    def make(**attributes: Any) -> SQLServerProject:
        made.append(SQLServerProject(tmp_path / f"p{len(made)}", server, database, spark_home, **attributes))
        return made[-1]

    yield make
    for one in made:
        one.source.close()
    with connected(server) as admin, admin.cursor() as cursor:
        cursor.execute(f"alter database [{database}] set single_user with rollback immediate")
        cursor.execute(f"drop database [{database}]")
