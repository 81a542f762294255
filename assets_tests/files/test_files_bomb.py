"""Files that a Spark server with a small heap cannot hold are refused and named, and all other files are synced.

Belongs here: real compressed files, and a real server that really ends. Does not belong: the decisions (``test_files_attempt``). The tests
are long, as each JVM that ends takes a quarter of a minute.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from assets_tests.harness import Folder
from incremental_assets.files.attempts import Attempts
from incremental_assets.spark.session import stop_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A project with two containers of JSON, and a server with 1 GB of memory."""
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INCREMENTAL_ASSETS_SPARK_MEMORY", "1g")
    home = tmp_path / "spark"
    project = Folder(tmp_path / "project", home, containers={"a": {"glob": "a/*"}, "b": {"glob": "b/*"}})
    for container in ("a", "b"):
        for number in range(1, 6):
            project.put(f"{container}/{number}.json", json.dumps({"id": number}) + "\n")
    project.configure(containers={name: {"glob": f"{name}/*", "format": "json"} for name in ("a", "b")})
    yield project
    stop_server(home)


def array(megabytes: int) -> bytes:
    """One JSON array of so many megabytes, compressed."""
    piece = b",".join(b'{"id": %d, "text": "%s"}' % (i, b"x" * 100) for i in range(8000))
    packed = gzip.compress(b"," + piece)
    return gzip.compress(b"[" + piece) + packed * (megabytes * (1 << 20) // len(piece)) + gzip.compress(b"]")


def test_files_that_unpack_beyond_a_limit_are_refused_before_spark_reads_them(small: Folder) -> None:
    small.put("a/3.json.gz", array(2000))
    small.put("a/0.json.gz", gzip.compress(b'{"id": 1}\n' * 100_000) * 10_000)  # its lines are short, but too many
    lines = small.sync()
    assert lines["a"]["status"] == "warning" and lines["a"]["rows_read"] == 5, lines["a"]
    for name, limit in (("3.json.gz", "max_line_bytes"), ("0.json.gz", "max_file_bytes")):
        assert name in lines["a"]["message"] and limit in lines["a"]["message"], lines["a"]
    assert lines["b"]["status"] == "synced" and lines["b"]["rows_read"] == 5


def test_a_file_that_ends_the_server_is_refused_and_the_others_are_synced(small: Folder) -> None:
    small.configure(max_line_bytes=2**31 - 2**20)  # so that the limit does not refuse the file before Spark reads it
    small.put("a/2.json.gz", array(1500))
    lines = small.sync()
    assert lines["a"]["status"] == "warning" and "2.json.gz: the Spark server, which has 1g of memory, ended" in lines["a"]["message"], (
        lines
    )
    assert lines["b"]["status"] == "synced" and lines["b"]["rows_read"] == 5, lines
    assert sorted(small.rows("a", "id")) == [(number,) for number in range(1, 6)]
    assert not (small.spark_home / "apart").exists()
    assert set(Attempts(small.lake, ("landing", "a")).suspects(set)) == {"a/2.json.gz"}
    # The file is not tried again together with others, nor while nothing has changed.
    again = small.one("a")
    assert again["status"] == "warning" and "could not be read before" in again["message"], again
    small.put("a/6.json", '{"id": 6}\n')
    more = small.one("a")
    assert more["rows_read"] == 1 and more["status"] != "failed", more
    small.put("a/2.json.gz", gzip.compress(b'{"id": 7}\n'))
    healed = small.one("a")
    assert healed["status"] == "synced" and healed["rows_read"] == 1, healed
    assert sorted(small.rows("a", "id")) == [(number,) for number in range(1, 8)]
    assert Attempts(small.lake, ("landing", "a")).suspects(set) == {}
