"""The servers that the shared tests are played on, as values of a parameter.

Belongs here: which project stands behind a value, and when it is skipped. Does not belong: the projects themselves.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from assets_tests.databases.mysql.project import mysql_projects
from assets_tests.databases.servers.project import ServerProject
from assets_tests.databases.servers.recorded import SCHEME, recorded_projects
from assets_tests.databases.servers.sql import By
from assets_tests.databases.sqlserver.project import sqlserver_projects
from incremental_assets.databases.sqlserver.connection import SQLServerAddress

VARIABLE = "SQLSERVER_URL"
MARIADB, SQLSERVER, WITHOUT_SNAPSHOTS = "mariadb", "sqlserver", "sqlserver-without-snapshots"

BY = pytest.mark.parametrize(
    "by", [one if one is By.CHANGED else pytest.param(one, marks=pytest.mark.long) for one in By], ids=lambda by: by.value
)
"""The kinds of identifiers, of which `make test` takes one."""

Shop = Callable[..., ServerProject]
"""Makes a project over the test's database: ``shop(incremental=[…], containers={…})``."""


def projects(server: str, request: pytest.FixtureRequest) -> AbstractContextManager[Shop]:
    """Makes projects over a new, empty database of the server. Skips the test where there is no such server."""
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        patch.delenv(name, raising=False)
    folder: Path = request.getfixturevalue("tmp_path")
    spark_home: Path = request.getfixturevalue("spark_home")
    if server == MARIADB:
        return mysql_projects(request.getfixturevalue("mariadb"), folder, spark_home)
    url = os.environ.get(VARIABLE)
    if not url:
        pytest.skip(f"{VARIABLE} is not set")
    has_snapshots = server != WITHOUT_SNAPSHOTS
    if url.startswith(SCHEME):
        return recorded_projects(url, request.node.nodeid, folder, spark_home, has_snapshots=has_snapshots)
    return sqlserver_projects(SQLServerAddress.parse("tests", url), folder, spark_home, has_snapshots=has_snapshots)
