"""One server of each kind for a process of tests, and a project over a new, empty database for each test."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assets_tests.databases.jdbc.project import DERBY, DRIVERS, H2, POSTGRES, JavaServer, JdbcProject, PostgresServer, Server
from incremental_assets.spark.embedded.launch import CONF, SparkUnavailable
from incremental_assets.spark.embedded.server import in_use
from incremental_assets.spark.session import ensure_server, stop_server

_numbers = itertools.count()


@pytest.fixture(scope="session", params=[H2, DERBY], ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """H2, and Derby, whose dialect is another one. The main scenario runs on PostgreSQL, too: it is there, and needs no other Spark."""
    if request.param is POSTGRES:
        yield PostgresServer(request.getfixturevalue("postgres"))
        return
    try:
        made = JavaServer(request.param, tmp_path_factory.mktemp(request.param.name))
    except SparkUnavailable as error:
        pytest.skip(f"its programs cannot be fetched: {error}")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark_with_drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder and the address of a Spark server that has the drivers of H2 and Derby.

    It is started at once, as other servers of the session have other settings. Nothing of the environment is left changed.
    """
    home = tmp_path_factory.mktemp("spark-jdbc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONF, f"{os.environ.get(CONF, '')};spark.jars.packages={DRIVERS}")
        try:
            url = ensure_server(home)
        except SparkUnavailable as error:
            pytest.skip(f"the drivers cannot be fetched: {error}")
    with in_use(home):  # who reaches it by SPARK_REMOTE does not keep it from ending as idle
        yield home, url
    stop_server(home)


@pytest.fixture
def shop(tmp_path: Path, server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JdbcProject]:
    """Makes a project over the test's database: ``shop(incremental=[…], containers={…})``."""
    for name in ("INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    if server.kind is POSTGRES:
        home: Path = request.getfixturevalue("spark_home")
        url = ensure_server(home)
    else:
        home, url = request.getfixturevalue("spark_with_drivers")
    monkeypatch.setenv("SPARK_REMOTE", url)  # the catalog and the plans are read by this server, too
    made = itertools.count()
    database = f"t{next(_numbers)}"
    return lambda **attributes: JdbcProject(tmp_path / f"p{next(made)}", server, database, home, **attributes)
