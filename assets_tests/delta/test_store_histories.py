"""Random histories of the whole path with the lake on an object store: those of ``test_property``, and what has to hold after them.

Belongs here: that a lake on a store keeps what one on a disk keeps, whatever happens. Does not belong: what a history does
(``test_property``), the histories of one table that users alter (``test_local_histories``), and what differs on a store (``test_s3``).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from assets_tests.databases.test_property import History, played
from assets_tests.harness import long
from benchmarks.store import store
from incremental_assets.spark import session
from incremental_assets.spark.embedded.launch import STORES
from incremental_assets.spark.session import SparkUnavailable, open_session, stop_server

STEPS = 12


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> NoReturn:
        raise SparkUnavailable("a history of few rows and plain names has asked for Spark")

    monkeypatch.setattr(session.server, "ensure", refuse)


@pytest.mark.parametrize("number", [0, *long(1, 2, 3)])
@pytest.mark.usefixtures("without_spark")
def test_a_short_history_on_a_store_loses_and_doubles_no_row(
    request: pytest.FixtureRequest, database: str, s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A lake on a store would lack rows, or have them twice, after a sync that was killed, a refresh or a restored table. Nothing of it
    needs Spark."""
    seed = int(request.config.getoption("--seed") or 0) + number
    history = History(seed, STEPS, database, tmp_path, tmp_path / "spark", None, short=True, place=f"s3://{bucket}/lake")
    assert "last sync" in played(history, monkeypatch)


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """A store that is none of tests, with the bucket ``lake``, which the environment names as a user's would."""
    with store(tmp_path_factory.mktemp("weed")) as variables, pytest.MonkeyPatch.context() as environment:
        for name, value in {**variables, STORES: "s3"}.items():
            environment.setenv(name, value)
        yield variables


@pytest.fixture(scope="module")
def spark_home(weed: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For a Spark server with the connector and the store's address; in the place of the session's."""
    home = tmp_path_factory.mktemp("spark-weed")
    yield home
    stop_server(home)


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(8))
def test_a_history_on_a_store_that_spark_reads_and_writes_too_loses_and_doubles_no_row(
    request: pytest.FixtureRequest, database: str, spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The same with a store that people use, with rows that Spark reads or writes, and with names and keys of any text."""
    seed = int(request.config.getoption("--seed") or 0) + number
    with open_session(spark_home, name="history") as spark:
        history = History(seed, STEPS, database, tmp_path, spark_home, spark, short=True, place=f"s3://lake/{number}")
        assert "last sync" in played(history, monkeypatch)
