"""Projects for tests: one datastore over a real PostgreSQL database or a real folder, synced by real runs on a real Spark Connect server.

Belongs here: what several tests need. Nothing is mocked: `Project.sync` does what `incremental-assets sync` does after it has read the
project's files, without a YAML file and in this process. Tests of the command line itself start it as a process (`Project.cli`).
"""

import atexit
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
import yaml

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.errors import SourceError
from incremental_assets.dagster.catalog_asset import catalog_definitions
from incremental_assets.dagster.components.datastore import CatalogEntry, DatastoreComponent
from incremental_assets.dagster.components.files import FileDatastore, FilesEntry
from incremental_assets.dagster.components.postgres import PostgresDatastore
from incremental_assets.dagster.components.tables import ContainerEntry, IncrementalEntry
from incremental_assets.dagster.datastore import datastore_definitions
from incremental_assets.dagster.io_manager import delta_io_manager
from incremental_assets.dagster.resources import lake_resource, spark_resource
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.sync import TableSync
from incremental_assets.delta.table import LakeTable
from incremental_assets.demo.compare import Comparison, compare
from incremental_assets.operations.audit import AuditOptions, audit_lines
from incremental_assets.operations.scans import ScanOptions, scan_lines
from incremental_assets.project.scaffold import write_project
from incremental_assets.runs.locks import table_lock
from incremental_assets.runs.loggers import LOGGERS
from incremental_assets.runs.ordinary_run import command_line_instance
from incremental_assets.runs.runner import Runner, SyncOptions

ALL = os.environ.get("TESTS") == "all"
"""Whether these are the tests of `make test-all`, which have more time."""


def examples(number: int) -> int:
    """How many examples a property is tried with: so many in `make test`, ten times as many in `make test-all`."""
    return 10 * number if ALL else number


def long(*values: Any) -> list[Any]:
    """Values of a test's parameter, or of several where they are tuples, with which only `make test-all` runs it."""
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long) for value in values]


def small_spark() -> None:
    """Sets Spark's configuration for many small queries. On two cores, the JVM's second compiler takes more time than it saves, and so does
    cutting a few rows into four partitions. Without that compiler the JVM's cache of compiled code has 48 MB, which Spark exceeds: it then
    spends a third of the processor's time on discarding code and compiling it again. Hence the larger code cache. The JVM also collects
    garbage each time when the classes of many sessions need more space than they had; hence so much of it from the beginning.

    To generate and compile code for each query takes half of a small query's time, so plans are interpreted, as the product itself has it
    for few rows. A small heap, and a collector without threads of its own, take a quarter less of the processor than the collector of
    servers, which always works on fresh memory. `make test-all` goes by what users have in these three."""
    java = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=512m"
    settings = ["spark.sql.shuffle.partitions=1", "spark.databricks.delta.snapshotPartitions=1"]
    if not ALL:
        java += " -XX:+UseSerialGC"
        settings += ["spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN"]
        os.environ.setdefault("INCREMENTAL_ASSETS_SPARK_MEMORY", "2g")
    os.environ.setdefault("INCREMENTAL_ASSETS_SPARK_CONF", ";".join([f"spark.driver.extraJavaOptions={java}", *settings]))


def wait_for(condition: Callable[[], object], what: str, seconds: float = 300) -> None:
    """Calls the condition until it is true. Fails after so many seconds, and says for what it has waited."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {what}"
        time.sleep(0.05)


def forget_modules() -> None:
    """Forgets the modules of a project: each has them under the same names, and a process serves one project."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("definitions", "defs")]:
        del sys.modules[name]


def statements_sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that this process sends to PostgreSQL by psycopg from now on, as they are sent."""
    sent: list[str] = []
    real = psycopg.Cursor.execute

    def execute(self: psycopg.Cursor[Any], query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(str(query))
        return real(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", execute)
    return sent


@contextlib.contextmanager
def without_the_last_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the last window of each load in the block fail, as if the network were gone."""
    real = TableSync._step

    def step(self: TableSync, windows: Any, last: bool) -> Any:
        if last:
            raise SourceError("the network is gone")
        return real(self, windows, last)

    with monkeypatch.context() as patched:
        patched.setattr(TableSync, "_step", step)
        yield


@functools.cache
def empty_home() -> Path:
    """A DAGSTER_HOME without runs, whose databases Dagster has made. Projects begin with a copy of it, as it takes Dagster a third of a
    second to make one. It is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="dagster-home-")
    atexit.register(folder.cleanup)
    home = Path(folder.name)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    with dg.DagsterInstance.from_config(folder.name):
        pass
    assert not list(home.rglob("*-wal")), "not all of it is in the files"
    return home


class Workspace:
    """One datastore in a project of its own. ``spark_home`` is shared, so that a session of tests has one Spark server."""

    store, kind = "", ""
    place: Mapping[str, str] = {}

    def __init__(self, path: Path, spark_home: Path, **attributes: Any) -> None:
        self.path, self.spark_home = path, spark_home
        self.home = path / ".dagster_home"
        self.lake = str(path / "lake")
        shutil.copytree(empty_home(), self.home, dirs_exist_ok=True)
        self.attributes: dict[str, Any] = attributes
        self._catalog: Catalog | None = None

    @property
    def lake_root(self) -> Path:
        """The folder that `lake` names. It cannot be set; to put the lake elsewhere, set `lake`, which all parts of the project read."""
        return Path(self.lake)

    def configure(self, **attributes: Any) -> None:
        """Changes the datastore's YAML attributes."""
        self.attributes |= attributes

    @property
    def component(self) -> DatastoreComponent:
        raise NotImplementedError

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the YAML refers to, with their values, for the command line."""
        raise NotImplementedError

    def catalog(self) -> list[ContainerDefinition]:
        """Takes a new catalog of the source, as `incremental-assets catalog` does, and returns its containers."""
        self._catalog = self.component.take_catalog(self._catalog).catalog
        return list(self.component.definitions(self._catalog))

    def catalog_as_known(self) -> Callable[[], list[ContainerDefinition]]:
        """A function that gives the containers of the catalog that is taken now, by the YAML of the time of the call; without the
        source."""
        self.catalog()
        known = self._catalog
        assert known is not None
        return lambda: list(self.component.definitions(known))

    def definition(self, name: str) -> Any:
        return next(d for d in self.catalog() if d.table.name == name)

    def instance(self) -> dg.DagsterInstance:
        os.environ["DAGSTER_HOME"] = str(self.home)
        return command_line_instance()

    def dagster(self, definitions: Sequence[ContainerDefinition] | None = None) -> dg.Definitions:
        """The code location, with this project's lake and the session's Spark server."""
        chosen = definitions if definitions is not None else self.catalog()
        lake = lake_resource(lambda: self.lake, lambda: self.spark_home, table_lock)
        resources = {"lake": lake, "delta": delta_io_manager, "spark": spark_resource}
        own = dg.Definitions(resources=resources, executor=dg.in_process_executor, loggers=LOGGERS)
        settings = self.component.settings()
        return dg.Definitions.merge(datastore_definitions(settings, chosen), catalog_definitions(self.component, settings, chosen), own)

    def sync(self, *names: str, asked: SyncOptions | None = None, stale: bool = False, **kwargs: Any) -> dict[str, dict[str, Any]]:
        """Syncs the named containers, or all where none is named. Returns the lines of ``--json`` by the container's name. ``kwargs`` are
        those of ``SyncOptions``.

        ``stale``: whether to go by the catalog of the last sync, as a schedule does, instead of taking a new one.
        """
        chosen = self._chosen(names, stale)
        with self.instance() as instance:
            lines = list(Runner(self.dagster(chosen), instance).sync(chosen, asked or SyncOptions(**kwargs)))
        return {line["container"].partition("/")[2]: line for line in lines}

    def audit(self, *names: str, **kwargs: Any) -> dict[str, dict[str, Any]]:
        """Audits the named containers. Returns the lines of `audit --json` by the container's name. ``kwargs`` are those of
        ``AuditOptions``."""
        chosen = self._chosen(names, False)
        with self.instance() as instance:
            lines = list(audit_lines(Runner(self.dagster(chosen), instance), chosen, AuditOptions(**kwargs), instance))
        return {line["container"].partition("/")[2]: line for line in lines}

    def scan(self, *names: str, **kwargs: Any) -> dict[str, dict[str, Any]]:
        """Scans the named containers. Returns the lines of `scan --json` by the container's name. ``kwargs`` are those of
        ``ScanOptions``."""
        chosen = self._chosen(names, False)
        with self.instance() as instance:
            lines = list(scan_lines(self.dagster(), chosen, ScanOptions(**kwargs), instance))
        return {line["container"].partition("/")[2]: line for line in lines}

    def _chosen(self, names: Sequence[str], stale: bool) -> list[Any]:
        """The definitions of the named containers, or of all where none is named."""
        os.environ["DAGSTER_HOME"], os.environ["INCREMENTAL_ASSETS_LAKE"] = str(self.home), self.lake
        known = list(self.component.definitions(self._catalog)) if stale and self._catalog else self.catalog()
        return [d for d in known if not names or d.table.name in names]

    def one(self, name: str, *, ok: bool = True, **kwargs: Any) -> dict[str, Any]:
        """Syncs one container and returns its line. ``ok``: whether the sync must not fail."""
        line = self.sync(name, **kwargs)[name]
        assert not ok or line["status"] != "failed", line["message"]
        return line

    def table(self, name: str) -> LakeTable:
        return LakeTable(self.lake, *self.definition(name).container.key_path)

    def rows(self, name: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
        """Rows of the container's table, read through delta-rs, as another reader than Spark, which has written them."""
        from deltalake import QueryBuilder

        query = f"select {columns} from lake where {where}"
        table = self.table(name).opened()
        assert table is not None, f"{name} has no table yet"
        batches = QueryBuilder().register("lake", table).execute(query).read_all()
        return [tuple(row[c] for c in batches.schema.names) for row in _pylist(batches)]

    # ------------------------------------------------------------------ the command line, as a process
    def write(self) -> None:
        """Writes the project's files, for `cli`."""
        if not (self.path / "pyproject.toml").exists():
            write_project(self.path)
        folder = self.path / "defs" / self.store
        folder.mkdir(parents=True, exist_ok=True)
        places = {"name": self.store, **self.place, **self.attributes}
        (folder / "defs.yaml").write_text(
            yaml.safe_dump({"type": f"incremental_assets.{self.kind}", "attributes": places}), encoding="utf-8"
        )

    def environment(self, spark: bool = True) -> dict[str, str]:
        """Environment variables for the command line. ``spark``: with the session's Spark server, which is started where necessary;
        otherwise with the address of a server that does not exist."""
        from incremental_assets.spark.session import ensure_server

        env = {k: v for k, v in os.environ.items() if k not in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT")}
        return env | self.variables | {"SPARK_REMOTE": ensure_server(self.spark_home) if spark else "sc://127.0.0.1:1"}

    def cli(
        self, *arguments: str, timeout: float = 180, check: int | None = 0, spark: bool = True
    ) -> tuple[int, list[dict[str, Any]], str]:
        """Runs the command line in a process. Returns its exit code, the JSON lines that it printed, and its stderr."""
        command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(self.path), *arguments]
        done = subprocess.run(command, env=self.environment(spark), capture_output=True, text=True, timeout=timeout, check=False)
        assert check is None or done.returncode == check, done.stderr + done.stdout
        lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
        return done.returncode, lines, done.stderr


class Project(Workspace):
    """One datastore called ``shop`` over a PostgreSQL database.

    It has no safety lag unless a test sets one, so that the number of rows that a sync reads is known. Tables that a test makes after the
    first catalog are synced, too.
    """

    store, kind = "shop", "PostgresDatastore"
    place: Mapping[str, str] = {"url": "{{ env.SHOP_URL }}"}

    def __init__(self, path: Path, url: str, spark_home: Path, **attributes: Any) -> None:
        without_lags = {"settle_seconds": 0.2, "watermark_margin_seconds": 0, "safety_lag_seconds": 0}
        super().__init__(path, spark_home, **{**without_lags, "on_new_table": "load_all", **attributes})
        self.url = url
        self.source: psycopg.Connection = psycopg.connect(url, autocommit=True)

    def execute(self, statements: str) -> None:
        """Runs SQL statements in the source and commits them at once. The server has counted what they did before the next ones, which
        takes it some seconds otherwise."""
        self.source.execute(statements.encode())
        self.source.execute("select pg_stat_force_next_flush()")

    @property
    def component(self) -> PostgresDatastore:
        attributes = dict(self.attributes)
        attributes["incremental"] = [e if isinstance(e, str) else IncrementalEntry(**e) for e in attributes.get("incremental", [])]
        attributes["containers"] = {k: ContainerEntry(**v) for k, v in attributes.get("containers", {}).items()}
        attributes["catalog"] = CatalogEntry(**attributes.get("catalog", {}))
        return PostgresDatastore(**{"name": "shop", "url": self.url, **attributes})

    @property
    def variables(self) -> dict[str, str]:
        return {"SHOP_URL": self.url}

    def definition(self, name: str) -> TableDefinition:
        return super().definition(name)

    def compare(self, name: str, **kwargs: Any) -> Comparison:
        """Compares the container's table with its source, row by row."""
        return compare(self.url, name, self.table(name).url, **kwargs)

    def assert_equal(self, name: str, **kwargs: Any) -> None:
        found = self.compare(name, **kwargs)
        assert found.equal, found


class Folder(Workspace):
    """One datastore called ``landing`` over a folder. Its files are old enough to be read at once, unless a test sets their time."""

    store, kind = "landing", "FileDatastore"
    place: Mapping[str, str] = {"path": "{{ env.LANDING_PATH }}"}

    def __init__(self, path: Path, spark_home: Path, **attributes: Any) -> None:
        super().__init__(path, spark_home, **attributes)
        self.root = path / "landing"
        self.root.mkdir(parents=True, exist_ok=True)
        self.location = str(self.root)
        self._clock = int(time.time()) - 100_000

    def put(self, name: str, content: bytes | str, at: float | None = None) -> Path:
        """Writes a file and sets its modification time, in seconds since 1970: ``at``, or a time a day ago that is later for each file."""
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        self._clock += 1
        os.utime(target, (at or self._clock, at or self._clock))
        return target

    @property
    def component(self) -> FileDatastore:
        attributes = dict(self.attributes)
        attributes["containers"] = {k: FilesEntry(**v) for k, v in attributes.get("containers", {}).items()}
        attributes["catalog"] = CatalogEntry(**attributes.get("catalog", {}))
        return FileDatastore(**{"name": self.store, "path": self.location, **attributes})

    @property
    def variables(self) -> dict[str, str]:
        return {"LANDING_PATH": self.location}

    def files(self, name: str) -> dict[str, int]:
        """How many rows of each file are in the container's table, by the file's path."""
        return dict(self.rows(name, "_file, count(*) as n", "true group by _file"))


def _pylist(batches: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    return pa.table(batches).to_pylist()
