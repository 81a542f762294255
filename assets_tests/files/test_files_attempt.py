"""Where some files end the Spark server, these are found and refused, and all others are read.

Belongs here: the decisions, with an object in place of a server that ends when a test says so, and their records in a real Delta table.
Does not belong: a real server and real files that end it (``test_files_bomb``).
"""

import contextlib
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from assets_tests.harness import examples
from incremental_assets.files.attempt import Attempt, ended_with
from incremental_assets.files.attempts import TIDY_AFTER, Attempts, Suspect, judged, of_files
from incremental_assets.files.readers.read import ReadFile
from incremental_assets.spark.embedded.launch import SparkUnavailable


class Server:
    """Takes the place of a Spark server. It ends when certain files are read, or too many at once."""

    def __init__(self, culprits: set[str], most: int = 1000, own: bool = True) -> None:
        self.culprits, self.most, self.own = culprits, most, own
        self.stack = contextlib.ExitStack()
        self.spark, self.gone, self.apart, self.ended = object(), False, False, 0

    def open_apart(self) -> bool:
        self.apart, self.gone = self.own, False
        return self.own

    def is_server_gone(self) -> bool:
        return self.gone

    def server_id(self) -> str:
        return f"server {self.ended}"

    def running_servers(self) -> set[str]:
        return set() if self.gone else {self.server_id()}

    def read(self, files: Sequence[ReadFile]) -> Any:
        if len(files) > self.most or self.culprits & {file.key for file in files}:
            self.gone = True
            self.ended += 1
            raise SparkConnectGrpcException("UNAVAILABLE")
        return tuple(files)


def files(count: int) -> list[ReadFile]:
    return [ReadFile(f"f{i}", f"f{i}", i, 10) for i in range(count)]


class Memory(Attempts):
    """Keeps in memory what ``Attempts`` keeps in the lake."""

    def __init__(self) -> None:
        self.held: list[Suspect] = []

    def suspects(self, running: Callable[[], Set[str]]) -> dict[str, Suspect]:
        return judged(self.held, running)

    def write(self, suspects: Any) -> None:
        self.held = list(suspects)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(20))
@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=3), st.integers(1, 40), st.booleans())
def test_only_files_that_end_the_server_are_refused_and_all_others_read(count: int, bad: set[int], most: int, own: bool) -> None:
    """This must also hold where the server can read only a few files at once, and where there is no second server."""
    attempts, culprits = Memory(), {f"f{i}" for i in bad if i < count}
    left, refused, read = files(count), dict[str, str](), set[str]()
    for _ in range(200):
        server = Server(culprits, most, own)
        attempt = Attempt(server, attempts, lambda _: None)  # pyright: ignore[reportArgumentType]
        with server.stack, contextlib.suppress(SparkUnavailable):
            chosen, rows = attempt.read(left, server.read)
            assert rows is None or rows == tuple(chosen)
            attempt.done()
            assert {file.key for file in (*chosen, *attempt.waiting)} | set(attempt.refused) == {file.key for file in left}
            read |= {file.key for file in chosen}
            refused |= attempt.refused
            left = list(attempt.waiting)
        if not left:
            break
    assert not left and set(refused) == culprits and read == {file.key for file in files(count)} - culprits
    # Later syncs read no other file together with one of them.
    assert {one.file for one in attempts.held} == culprits
    for key, reason in refused.items():
        assert reason == ended_with(next(file for file in files(count) if file.key == key))


def test_one_file_that_ends_the_server_is_found_with_few_servers() -> None:
    server = Server({"f700"})
    attempt = Attempt(server, Memory(), lambda _: None)  # pyright: ignore[reportArgumentType]
    left = files(1000)
    while left:
        attempt.read(left, server.read)
        attempt.done()
        assert server.apart
        left = list(attempt.waiting)
    assert server.ended <= 12
    assert set(attempt.refused) == {"f700"}


@pytest.mark.long
def test_files_that_a_killed_sync_was_reading_are_suspects(tmp_path: Path) -> None:
    """The record must be in the lake, as another process or host may run the next sync, and must not grow with each sync."""
    attempts = Attempts(str(tmp_path / "lake"), ("landing", "sales"))
    assert attempts.suspects(set) == {}
    attempts.write([])
    assert attempts.table.opened() is None  # no table is made for an empty record
    now = files(3)
    for _ in range(TIDY_AFTER * 2 + 5):
        attempts.write(of_files(((file.key, file.modified, file.size) for file in now), {}))
        attempts.write([])
    assert len(list(Path(attempts.table.address).rglob("*.parquet"))) < TIDY_AFTER * 2
    assert attempts.suspects(set) == {}
    attempts.write(of_files(((file.key, file.modified, file.size) for file in now), {}))  # the sync is killed then
    again = Attempts(str(tmp_path / "lake"), ("landing", "sales")).suspects(set)
    assert {key: (one.together, one.alone) for key, one in again.items()} == {"f0": (3, 0), "f1": (3, 0), "f2": (3, 0)}
    attempts.write(of_files([("f0", 0, 10)], again))
    assert attempts.suspects(set)["f0"].alone == 1
    server = Server(set())
    attempt = Attempt(server, attempts, lambda _: None)  # pyright: ignore[reportArgumentType]
    changed = [ReadFile("f0", "f0", 99, 10), *now[1:]]
    assert attempt.read(changed, server.read)[0] == changed and not server.apart  # a changed file is not suspected


@pytest.mark.parametrize("gone", [False, True])
def test_files_are_suspects_only_if_the_server_ended_with_the_run(gone: bool) -> None:
    """A conflict of commits, or Ctrl-C, must not make the files suspects."""
    attempts, server = Memory(), Server(set())
    with server.stack:
        Attempt(server, attempts, lambda _: None).read(files(4), server.read)  # pyright: ignore[reportArgumentType]
        assert all(one.open for one in attempts.held)
        server.gone = gone
    assert {one.file: one.together for one in attempts.held} == ({f"f{i}": 4 for i in range(4)} if gone else {})


def test_files_of_a_killed_sync_whose_server_is_still_running_are_no_suspects() -> None:
    """Syncs that are killed again and again, by a deployment or by hand, must not get a good file refused."""
    attempts, now = Memory(), files(3)
    for _ in range(5):  # each is killed while its server reads the files
        attempts.held = of_files(((file.key, file.modified, file.size) for file in now), attempts.suspects(lambda: {"a"}), "a")
    assert attempts.suspects(lambda: {"a"}) == {}
    found = attempts.suspects(lambda: {"b"})  # the server has ended, too
    assert {(one.together, one.alone, one.open) for one in found.values()} == {(3, 0, False)}
    attempts.held = of_files([("f0", 0, 10)], found, "b")  # that one by itself, whose sync is killed without its server
    assert attempts.suspects(lambda: {"b"})["f0"] == replace(found["f0"], server="b")
    assert attempts.suspects(lambda: {"c"})["f0"].alone == 1


def test_the_record_of_a_file_that_was_brought_anew_goes_although_spark_does_not_read_it() -> None:
    """Small files are read without Spark. A record that stayed would be of a version of the file that nobody has any more."""
    attempts = Memory()
    attempts.held = [Suspect("f0", 0, 34_000_000, 1, 1, False), Suspect("f9", 9, 10, 4, 0, False)]
    attempt = Attempt(Server(set()), attempts, lambda _: None)  # pyright: ignore[reportArgumentType]
    assert not attempt.are_suspects(files(1))
    attempt.done()
    assert {one.file for one in attempts.held} == {"f9"}  # of a file that this sync did not read
