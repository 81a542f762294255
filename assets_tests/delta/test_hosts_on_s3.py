"""Two hosts write one table of a lake on S3: neither replaces a commit of the other, whoever of our programs makes it.

Belongs here: a real store, and processes that stop at the moment of their commit. Does not belong: who holds the lease (``test_lease``).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from assets_tests.delta.s3_server import OTHERS
from assets_tests.harness import Project, wait_for
from incremental_assets.delta.engine import WRITE_BY
from incremental_assets.delta.lease import SECONDS_VARIABLE
from incremental_assets.spark.session import open_session, stop_server

pytestmark = pytest.mark.s3

MERGE = """MERGE INTO {table} t USING (SELECT 1 AS id, 'new' AS note) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
REPLACE = "INSERT INTO {table} REPLACE WHERE id = 1 SELECT 1, 'new'"


@pytest.fixture
def spark_home(s3: Any, tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "spark"
    stop_server(tmp_path / "spark")


def test_what_spark_commits_replaces_no_version(spark_home: Path, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta's own log store for S3 looks whether there is a version, and then puts its own over the one that came in between."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["S3_BEATEN"])
    with open_session(spark_home, name="beaten") as spark:
        for number, statement in enumerate((MERGE, REPLACE)):
            table = f"delta.`s3a://{bucket}/t{number}`"
            spark.sql(f"CREATE TABLE {table} (id int, note string) USING delta")
            with contextlib.suppress(PySparkException):  # Delta may refuse to go on behind the other commit
                spark.sql(statement.format(table=table))
            first = s3.get_object(Bucket=bucket, Key=f"t{number}/_delta_log/{1:020}.json")["Body"].read()
            assert first == OTHERS


def test_a_commit_of_spark_whose_answer_is_lost_is_known_as_its_own(
    spark_home: Path, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for another writer's, its rows would be committed once more."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["S3_FORGETFUL"])
    with open_session(spark_home, name="forgetful") as spark:
        table = f"delta.`s3a://{bucket}/t`"
        spark.sql(f"CREATE TABLE {table} (id int, note string) USING delta")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'once')")
        assert [tuple(row) for row in spark.sql(f"SELECT * FROM {table}").collect()] == [(1, "once")]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="t/_delta_log/")["Contents"]
    assert [one["Key"][-25:] for one in listed if one["Key"].endswith(".json")] == [f"{0:020}.json", f"{1:020}.json"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["merged", "replaced", "in this process"])
def test_a_host_that_stops_at_its_commit_replaces_nothing_of_the_next_one(
    project: Callable[..., Project], s3_folder: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The host is paused with its commit on the way for longer than its lease. The rows of the host that took over must stay."""
    monkeypatch.setenv(SECONDS_VARIABLE, "2")
    if way != "in this process":
        monkeypatch.setenv(WRITE_BY, "spark")
    strategy = "!upsert" if way == "merged" else ""
    one, two = (project(incremental=[f"public.orders:id:integer{strategy}"]) for _ in range(2))
    one.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text); INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 9) n")
    one.lake = two.lake = f"s3://{bucket}/lake"
    two.one("orders")
    one.write()
    one.execute("INSERT INTO orders SELECT n, 'first' FROM generate_series(10, 19) n")
    for name in ("arrived", "go"):
        (s3_folder / name).unlink(missing_ok=True)
    own = {"INCREMENTAL_ASSETS_LAKE": one.lake, "AWS_ENDPOINT_URL": os.environ["S3_HELD"], "DAGSTER_HOME": str(one.home)}
    environment = {key: value for key, value in one.environment(spark=False).items() if key != "SPARK_REMOTE"} | own
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(one.path), "sync", "shop", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for((s3_folder / "arrived").exists, "the commit is on its way", 120)
            process.send_signal(signal.SIGSTOP)
            two.execute("INSERT INTO orders SELECT n, 'second' FROM generate_series(20, 29) n")
            assert two.one("orders")["rows_read"] >= 20
            (s3_folder / "go").touch()
            process.send_signal(signal.SIGCONT)
            out, stderr = process.communicate(timeout=120)
        finally:
            process.kill()
            stop_server(one.home)
    line = json.loads(out.splitlines()[-1])
    assert line["status"] == "skipped" and "Sync again" in stderr, (line, stderr)  # it is tried again, and finds nothing to do
    for _ in range(2):
        two.one("orders")
        assert sorted(two.rows("orders")) == sorted(two.source.execute(b"TABLE orders").fetchall())
