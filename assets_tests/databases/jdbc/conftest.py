"""One server of H2 and one of Derby for each process of tests, and a project over a new, empty database for each test."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assets_tests.databases.jdbc.project import DERBY, DRIVERS, H2, JdbcProject, Server
from incremental_assets.spark.embedded.launch import CONF, SparkUnavailable
from incremental_assets.spark.embedded.server import in_use
from incremental_assets.spark.session import ensure_server, stop_server

_numbers = itertools.count()
_address_of: dict[Path, str] = {}
"""The address of the Spark server in each folder."""


# What one of them cannot do, the other one mostly can; Derby tests a dialect that is slow to start and to read.
@pytest.fixture(scope="session", params=[H2, pytest.param(DERBY, marks=pytest.mark.long)], ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        made = Server(request.param, tmp_path_factory.mktemp(request.param.name))
    except SparkUnavailable as error:
        pytest.skip(f"its programs cannot be fetched: {error}")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a Spark server that has the drivers. It is started at once, as other servers of the session have other settings.

    Nothing of the environment is left changed: later tests of the session, of other folders, have another server.
    """
    home = tmp_path_factory.mktemp("spark-jdbc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONF, f"{os.environ.get(CONF, '')};spark.jars.packages={DRIVERS}")
        try:
            url = ensure_server(home)
        except SparkUnavailable as error:
            pytest.skip(f"the drivers cannot be fetched: {error}")
    _address_of[home] = url
    with in_use(home):  # who reaches it by SPARK_REMOTE does not keep it from ending as idle
        yield home
    stop_server(home)


@pytest.fixture
def shop(tmp_path: Path, server: Server, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JdbcProject]:
    """Makes a project over the test's database: ``shop(incremental=[…], containers={…})``."""
    for name in ("INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPARK_REMOTE", _address_of[spark_home])  # the catalog and the plans are read by this server, too
    made = itertools.count()
    database = f"t{next(_numbers)}"
    return lambda **attributes: JdbcProject(tmp_path / f"p{next(made)}", server, database, spark_home, **attributes)
