"""Fixtures of all tests: one PostgreSQL for each process of tests, one Spark Connect server for all of them, and a new database and project
for each test."""

import fcntl
import itertools
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from sqlalchemy import event
from sqlalchemy.engine import Engine

from assets_tests.harness import Folder, Project, examples, small_spark
from assets_tests.own_lake import OwnLake
from assets_tests.rotation import Rotation, commit_number
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.spark.embedded.launch import STORES
from incremental_assets.spark.embedded.server import Home, in_use
from incremental_assets.spark.session import stop_server

_numbers = itertools.count()

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None, max_examples=examples(40))
settings.load_profile("untimed")

small_spark()


@event.listens_for(Engine, "connect")
def _wait_for_no_disk(connection: Any, _: Any) -> None:
    """Lets Dagster's SQLite files be written without waiting for the disk, which is half of the time of a run. Only where a machine loses
    its power does that make a difference. The processes that tests start, and kill, wait as always."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("incremental_assets", "random histories of the watermark rule")
    group.addoption("--histories", type=int, default=600, metavar="N", help="how many random histories to play (default: %(default)s)")
    group.addoption("--seed", type=int, default=0, metavar="N", help="number of the first history (default: %(default)s)")
    group.addoption("--steps", type=int, default=45, metavar="N", help="steps of a history with real syncs (default: %(default)s)")
    group.addoption("--rotation", type=float, metavar="MINUTES", help="run files in an order that depends on the commit, for so long")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: those of an archive have the time at which it was made, and two processes of one run would
    collect other tests."""
    return argname if isinstance(val, bytes) else None


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts a command in the background lets it ignore Ctrl-C, and with it the signal by which tests interrupt a sync.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    minutes = config.getoption("--rotation")
    if isinstance(minutes, float):
        leads = not hasattr(config, "workerinput")
        config.pluginmanager.register(Rotation(commit_number(config.rootpath), minutes, leads))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes how long a test's fixtures took, for `benchmarks/suite.py`."""
    report = yield
    if call.when != "call":
        taken = (call.when, round(call.duration, 3))
        item.user_properties.append(taken)
        report.user_properties.append(taken)
    return report


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    # The server knows when a table was made, so that the catalog counts from then.
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), settings={"track_commit_timestamp": "on"})
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the Spark server, which the first test that needs it starts. All processes of tests share it; tests that stop, kill or
    configure a server have one of their own."""
    own = tmp_path_factory.getbasetemp()
    home = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "spark"
    with in_use(home):  # who reaches it by SPARK_REMOTE does not keep it from ending as idle
        yield home
    with Home(home).lock("in_use.lock", fcntl.LOCK_EX | fcntl.LOCK_NB) as last:
        if last is not None:
            stop_server(home)


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> str:
    """The URL of a new, empty database."""
    return postgres.create_database(f"t{next(_numbers)}")


@pytest.fixture
def project(tmp_path: Path, database: str, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Project]]:
    """Makes a project over the test's database: ``project(incremental=[…], containers={…})``."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    made: list[Project] = []

    def make(**attributes: Any) -> Project:
        made.append(Project(tmp_path / f"p{len(made)}", database, spark_home, **attributes))
        return made[-1]

    yield make
    for one in made:
        one.source.close()


@pytest.fixture(autouse=True)
def _no_project_decides_for_the_next() -> Iterator[None]:
    """A project whose files name s3:// asks for a Spark server with a connector, as long as its process lives."""
    before = os.environ.get(STORES)
    yield
    if before is None:
        os.environ.pop(STORES, None)


@pytest.fixture(autouse=True)
def _no_instance_stays_current() -> Iterator[None]:
    """A context of Dagster that a test leaves open keeps its ended instance the current one, and tests of other files then fail."""
    yield
    if "dagster" in sys.modules:
        from dagster._core.storage.defs_state.base import DefsStateStorage

        assert DefsStateStorage.get() is None, "this test has left an instance or a context of Dagster open; use it in a with block"


@pytest.fixture
def folder(tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Folder]:
    """Makes a project over an empty folder: ``folder(containers={…})``."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    numbers = itertools.count()
    return lambda **attributes: Folder(tmp_path / f"f{next(numbers)}", spark_home, **attributes)


@pytest.fixture
def own_lake(tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> OwnLake:
    """An empty lake for users' own assets, with a DAGSTER_HOME of its own."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    return OwnLake(tmp_path, spark_home)
