"""A sync into a lake on S3 is killed between each two of its writes: nothing is lost, nothing comes twice, and readers see whole states.

The command line runs as a process, and a proxy in front of a real store sends it SIGKILL: before its n-th request that writes something is
passed on, or after the store has carried it out and before the answer is passed back; n is 1, 2, 3, … until a sync ends by itself.

Belongs here: kills at requests of the store. Does not belong: kills at other moments (``test_kill``), syncs that end at points of their own
code (``test_stages``), and two hosts that are both alive (``test_hosts_on_s3``).
"""

import os
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from assets_tests.harness import Folder, Project, Workspace
from benchmarks.store_proxy import Answer, Proxied, proxy
from incremental_assets.delta.engine import READ_BY
from incremental_assets.delta.lease import SECONDS_VARIABLE
from incremental_assets.delta.operation_tables import OPERATIONS, WATERMARKS
from incremental_assets.files.manifest import Manifest
from incremental_assets.spark.embedded.server import Home
from incremental_assets.spark.session import stop_server

Rows = Sequence[tuple[Any, ...]]
COMMAND_LINE = "from incremental_assets.cli import main; main()"
MOST_STEPS = 60
"""A sync of these few rows has far fewer writes."""


# ------------------------------------------------------------------------------------------------ the ways in which a table is written
@dataclass(frozen=True)
class Way:
    """A container ``t`` and what happens to it.

    ``first``: SQL that makes it; ``change``: SQL that changes it, with ``{n}`` for the number of the change; empty: it is loaded for the
    first time each time. ``below``: the SQL of the rows below ``{watermark}``. ``shows``: how many requests with a text in their kind there
    must be, for the rows to have been written in this way. ``commits``: how many commits the rows of a sync need at most. ``is_whole``:
    whether the sync is killed at all writes, and not only at those of the table.
    """

    first: str
    change: str = ""
    entry: str = ""
    below: str = ""
    shows: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    program: str = COMMAND_LINE
    commits: int = 1
    is_whole: bool = False


BY_ID = "id < {watermark}"
BY_TIME = "at < 'epoch'::timestamptz + {watermark} * interval '1 microsecond'"
LOG = """CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz DEFAULT clock_timestamp(), note text);
    INSERT INTO t SELECT n, '2026-01-01', 'old' FROM generate_series(1, 60) n"""
UPSERT = """UPDATE t SET note = 'change {n}', at = clock_timestamp() WHERE id % 7 = {n} % 7;
    INSERT INTO t SELECT 100 * {n} + i, clock_timestamp(), 'new' FROM generate_series(1, 5) i"""
MARKED = f"from incremental_assets.delta import replaced_files; replaced_files.MOST_WRITTEN_BYTES = 0; {COMMAND_LINE}"
INTO_FILES = {READ_BY: "arrow"}
PADDED = LOG.replace("'old'", "repeat('x', 500)") + "; ANALYZE t"
LARGE = """CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz DEFAULT clock_timestamp(), note bytea);
    INSERT INTO t SELECT n, '2026-01-01', (SELECT string_agg(sha256((n || '-' || i)::bytea), '') FROM generate_series(1, 4000) i)
    FROM generate_series(1, 100) n; ANALYZE t"""
DELETES = "; DELETE FROM t WHERE id = (SELECT min(id) FROM t WHERE id % 7 <> {n} % 7)"
APPEND = "INSERT INTO t SELECT 100 * {n} + i, clock_timestamp(), 'new' FROM generate_series(1, 5) i"
ID, TIME = "public.t:id:integer", "public.t:at:timestamp!upsert"
APPENDED = Way(LOG, APPEND, ID, BY_ID, {"/t/part-": 1}, is_whole=True)
WAYS = {
    "an append": APPENDED,
    "a first load into files": Way(PADDED, "", ID, BY_ID, {"/t/part-": 2}, {"readers": 2}, variables=INTO_FILES),
    "a first load window by window": Way(
        PADDED, "", ID, BY_ID, {"/t/part-": 2}, {"partition_by": 30}, {"load_rows": 30}, commits=9
    ),
    "a first load uploaded in parts": Way(LARGE, "", ID, BY_ID, {"parquet?upload": 3}, variables=INTO_FILES),
    "files written anew": Way(LOG, UPSERT, TIME, BY_TIME, {"/t/part-": 1}, {"deletion_vectors": False}),
    "deletion vectors": Way(LOG, UPSERT, TIME, BY_TIME, {"/t/deletion_vector_": 1}, {"deletion_vectors": True}, program=MARKED),
    "a sweep": Way(
        LOG, UPSERT + DELETES, TIME, BY_TIME, {"/t/part-": 2},
        {"deletes": "sweep", "deletes_every": "1 second", "max_deleted_share": 1.0, "deletion_vectors": False}, commits=2,
    ),
    "a snapshot replaced": Way(LOG, UPSERT + DELETES, shows={"/t/part-": 1}),
}  # fmt: skip


class Case(ABC):
    """A container ``t`` with a source, and two hosts with a DAGSTER_HOME each that sync it into one lake."""

    def __init__(self, hosts: Sequence[Workspace], lake: str) -> None:
        self.hosts, self.lake = hosts, lake
        for host in hosts:
            host.lake = lake
        hosts[0].write()

    @abstractmethod
    def rows(self) -> Rows:
        """The rows of the source."""

    @abstractmethod
    def change(self, number: int) -> None:
        """Changes the source."""

    @abstractmethod
    def expect_state_behind(self, seen: Rows) -> None:
        """Fails if what the lake says has been read is not among the rows that are ``seen`` in it."""

    def seen(self, *path: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """What another reader sees of a table in the lake. None of the product's code has a part in it. No row where there is no table."""
        url = "/".join((self.lake, *path))
        if not DeltaTable.is_deltatable(url):
            return []
        batches = QueryBuilder().register("seen", DeltaTable(url)).execute(f"select {columns} from seen").read_all()
        return sorted((tuple(row.values()) for row in pa.table(batches).to_pylist()), key=repr)

    def seen_rows(self) -> Rows:
        return self.seen(self.hosts[0].store, "t")


class TableCase(Case):
    def __init__(self, way: Way, hosts: Sequence[Project], lake: str) -> None:
        super().__init__(hosts, lake)
        self.way, self.shop = way, hosts[0]

    def rows(self) -> Rows:
        return self._selected("true")

    def change(self, number: int) -> None:
        self.shop.execute(self.way.change.format(n=number))

    def expect_state_behind(self, seen: Rows) -> None:
        found = self.shop.table("t").head()
        state = None if found is None else found.state(self.shop.definition("t").container)
        if state is not None and state.watermark is not None:
            below = self._selected(self.way.below.format(watermark=state.watermark))
            assert set(below) <= set(seen), f"the watermark {state.watermark} is ahead of the rows"
        assert state is None or not state.loaded or seen, "the state says that rows were loaded"

    def _selected(self, condition: str) -> Rows:
        return sorted(self.shop.source.execute(f"SELECT * FROM t WHERE {condition}".encode()).fetchall(), key=repr)


class FilesCase(Case):
    """Each change adds a file, and replaces the first one."""

    def __init__(self, hosts: Sequence[Folder], lake: str) -> None:
        hosts[1].location = hosts[0].location
        super().__init__(hosts, lake)
        self._landing, self._rows = hosts[0], dict[str, Rows]()
        self._put("first.csv", [(number, "old") for number in range(20)])

    def rows(self) -> Rows:
        return sorted((row for rows in self._rows.values() for row in rows), key=repr)

    def change(self, number: int) -> None:
        self._put("first.csv", [(row, f"change {number}" if row % 7 == number % 7 else "old") for row in range(20)])
        self._put(f"more{number}.csv", [(100 * number + row, "new") for row in range(5)])

    def seen_rows(self) -> Rows:
        return self.seen("landing", "t", columns="id, note")

    def expect_state_behind(self, seen: Rows) -> None:
        there = {} if self._landing.table("t").head() is None else self._landing.files("t")
        assert self.read_files().items() <= there.items(), "the manifest is ahead of the rows"

    def read_files(self) -> Mapping[str, int]:
        """The files that count as read, and how many rows they have."""
        head = self._landing.table("t").head()
        if head is None:
            return {}
        state = head.state(self._landing.definition("t").container)
        read = Manifest(self.lake, ("landing", "t")).remembered(head.table_id, None if state is None else state.data_version)
        return {name: one.rows for name, one in read.files.items()}

    def _put(self, name: str, rows: Rows) -> None:
        self._rows[name] = rows
        self._landing.put(name, "id,note\n" + "".join(f"{number},{note}\n" for number, note in rows))


# ------------------------------------------------------------------------------------------------ the kills
class Killer:
    """Kills a process at its ``number``-th writing request whose kind contains ``among``: before the store gets it, or ``after`` the store
    has carried it out. Nothing that the process sends gets to the store after that.

    ``steps``: the kinds of the requests that were counted. ``killed_at``: the one at which the process was killed; None if it was not.
    """

    def __init__(self, number: int, after: bool, among: str) -> None:
        self._number, self._after, self._among = number, after, among
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.steps: list[str] = []
        self.killed_at: str | None = None

    def run(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Runs the process to its end. Returns its exit code."""
        with log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT) as process:
            self._process = process
            try:
                return process.wait(240)
            finally:
                process.kill()

    def around(self, kind: str, send: Callable[[], Answer]) -> Answer | None:
        """As ``Proxied.around``."""
        is_this = False
        with self._lock:
            if kind.startswith(("PUT ", "POST ", "DELETE ")) and self._among in kind:
                self.steps.append(kind)
                is_this = len(self.steps) == self._number
            if is_this and not self._after:
                self._kill(kind)
            if self.killed_at is not None:
                return None
        answer = send()
        with self._lock:
            if is_this:
                self._kill(kind)
            return answer if self.killed_at is None else None

    def _kill(self, kind: str) -> None:
        assert self._process is not None
        self.killed_at = kind
        self._process.kill()
        self._process.wait()


@pytest.fixture
def proxied(s3: Any) -> Iterator[Proxied]:
    with proxy(os.environ["S3_PLAIN"].removeprefix("http://")) as found:
        yield found


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases end soon, and no Spark server is named."""
    monkeypatch.setenv(SECONDS_VARIABLE, "1")
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


def sync_and_kill(case: Case, proxied: Proxied, killer: Killer, way: Way) -> None:
    """Syncs by the command line, and kills it if it comes as far as that. Fails if it ends otherwise than well."""
    host = case.hosts[0]
    own = {"INCREMENTAL_ASSETS_LAKE": case.lake, "AWS_ENDPOINT_URL": f"http://{proxied.address}", "DAGSTER_HOME": str(host.home)}
    inherited = {name: value for name, value in host.environment(spark=False).items() if name != "SPARK_REMOTE"}
    log = host.path / "command.log"
    proxied.around = killer.around
    command = [sys.executable, "-c", way.program, "--project", str(host.path), "sync", host.store, "--json"]
    code = killer.run(command, {**inherited, **way.variables, **own}, log)
    said, server = log.read_text(errors="replace"), Home(host.home).record()
    stop_server(host.home)
    assert server is None, f"a Spark server was started: {said}"
    assert code == (0 if killer.killed_at is None else -signal.SIGKILL), said
    assert killer.killed_at is not None or '"status": "synced"' in said, said


def expect_whole(case: Case, before: Rows, commits: int) -> None:
    """Fails if other readers see anything else than the state before or after the sync, or one between two commits."""
    now, seen = case.rows(), case.seen_rows()
    if commits == 1:
        assert seen in (before, now), f"neither the rows before the sync nor those after it: {seen}"
    assert set(seen) <= {*before, *now}, "rows that the source never had"
    assert set(seen) >= {*before} & {*now}, "rows are missing that the sync does not change"
    assert len({row[0] for row in seen}) == len(seen), "a row is there twice"
    case.expect_state_behind(seen)


def expect_completed(case: Case, first: int) -> None:
    """Fails if the next sync, by the host of this number, does not make lake and source equal, or if the one after it, by the other host,
    changes that."""
    for host in (case.hosts[first % 2], case.hosts[(first + 1) % 2]):
        host.one("t")
        assert case.seen_rows() == case.rows(), f"after a sync by host {case.hosts.index(host)}"
    ended = case.seen("_operations", OPERATIONS, columns="run_id, kind, container")
    written = case.seen("_operations", WATERMARKS, columns="run_id, container, table_version")
    assert len(set(ended)) == len(ended) and len(set(written)) == len(written), "an operation has two rows"


def killed_everywhere(
    make: Callable[[], Case],
    proxied: Proxied,
    way: Way,
    *,
    after: bool = False,
    is_whole: bool = False,
    numbers: Iterable[int] = range(1, MOST_STEPS),
) -> list[str]:
    """Kills a sync at each of its writes that have one of these ``numbers``, one sync for each of them, until one ends by itself. Returns
    the kinds of the writes of the last one. The source changes before each sync; without a change, each has a lake of its own.
    ``is_whole``: at all writes, and not only at those in the tables of the datastore."""
    case, steps = None, list[str]()
    for number in numbers:
        before: Rows = []
        if case is None or not way.change:
            case = make()
            if way.change:
                expect_completed(case, 0)
        if way.change:
            before = case.rows()
            case.change(number)
        killer = Killer(number, after, "" if is_whole else f"{case.lake.removeprefix('s3://')}/{case.hosts[0].store}/")
        sync_and_kill(case, proxied, killer, way)
        try:
            expect_whole(case, before, way.commits)
            expect_completed(case, number)
        except Exception as error:
            where = f"killed {'after' if after else 'before'} write {number}: {killer.killed_at}, of {killer.steps}"
            raise AssertionError(f"{where}: {error}") from error
        steps = killer.steps
        if killer.killed_at is None:
            break
    assert len(steps) < MOST_STEPS - 1, "each sync was killed, and none has ended"
    return steps


def table_case(project: Callable[..., Project], bucket: str, way: Way) -> Callable[[], Case]:
    made: list[Case] = []

    def make() -> Case:
        incremental = {"incremental": [way.entry]} if way.entry else {}
        options = {"containers": {"t": dict(way.options)}} if way.options else {}
        hosts = [project(**incremental, **options, **way.settings) for _ in range(2)]
        hosts[0].execute(f"DROP TABLE IF EXISTS t; {way.first}")
        made.append(TableCase(way, hosts, f"s3://{bucket}/lake{len(made)}"))
        return made[-1]

    return make


def test_a_sync_that_is_killed_between_rows_commit_and_state_loses_and_doubles_no_row(
    project: Callable[..., Project], proxied: Proxied, bucket: str
) -> None:
    """The three are objects of their own: a state that is stored first, or a commit of rows that are not there, is found."""
    steps = killed_everywhere(table_case(project, bucket, APPENDED), proxied, APPENDED, numbers=(2, 3))
    assert [step.rsplit("/", 1)[-1][:5] for step in steps] == ["part-", "N.jso", "N.jso"]


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_sync_that_is_killed_at_any_write_loses_and_doubles_no_row(
    project: Callable[..., Project], proxied: Proxied, bucket: str, way: str, after: bool
) -> None:
    """The same for each way of writing; for one of them also at each write of the lease and of ``_operations``."""
    chosen = WAYS[way]
    steps = killed_everywhere(table_case(project, bucket, chosen), proxied, chosen, after=after, is_whole=chosen.is_whole)
    counted = {text: sum(text in step for step in steps) for text in chosen.shows}
    assert all(counted[text] >= number for text, number in chosen.shows.items()), steps


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_sync_of_files_that_is_killed_at_any_write_loses_and_doubles_no_row(
    folder: Callable[..., Folder], proxied: Proxied, bucket: str, after: bool
) -> None:
    """A file that counts as read although its rows are not there would be lost, and one that does not would come twice."""

    case = FilesCase([folder(containers={"t": {"glob": "*.csv"}}) for _ in range(2)], f"s3://{bucket}/lake")
    steps = killed_everywhere(lambda: case, proxied, Way("", "a file"), after=after)
    assert any("/_files/t/" in step for step in steps) and any("/landing/t/part-" in step for step in steps), steps
    assert sum(case.read_files().values()) == len(case.rows())
