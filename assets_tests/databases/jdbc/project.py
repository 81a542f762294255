"""Servers of H2 and Derby, PostgreSQL by its JDBC driver, and projects over them, for the tests of this folder.

Belongs here: the servers, of which H2 and Derby are Java programs from Maven Central, and the projects. Does not belong: what the product
does.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
from filelock import FileLock
from psycopg.conninfo import conninfo_to_dict

from assets_tests.harness import Workspace
from incremental_assets.dagster.components.datastore import CatalogEntry
from incremental_assets.dagster.components.jdbc import JdbcDatastore
from incremental_assets.dagster.components.tables import ContainerEntry, IncrementalEntry
from incremental_assets.demo.postgres import EmbeddedPostgres, EmbeddedPostgresError
from incremental_assets.spark.embedded.java_home import find_java, tools_folder
from incremental_assets.spark.embedded.launch import fetched_packages

WAIT_SECONDS = 900
DRIVERS = "com.h2database:h2:2.3.232,org.apache.derby:derbyclient:10.16.1.1"
USER, PASSWORD = "app", "p%ss/w@rd"


@dataclass(frozen=True)
class Kind:
    """A database. ``packages``: of its server and its tools."""

    name: str
    schema: str
    driver: str
    packages: tuple[str, ...]


H2 = Kind("h2", "PUBLIC", "org.h2.Driver", ("com.h2database:h2:2.3.232",))
DERBY = Kind(
    "derby",
    "APP",
    "org.apache.derby.client.ClientAutoloadedDriver",
    ("org.apache.derby:derbynet:10.16.1.1", "org.apache.derby:derbyclient:10.16.1.1"),
)


def server_jars(coordinates: Sequence[str]) -> list[Path]:
    """The JARs of these packages and of what they depend on; later calls need no network.

    Raises SparkUnavailable if they cannot be fetched.
    """
    if not coordinates:
        return []
    wanted = ",".join(coordinates)
    home = tools_folder() / ".jars" / f"jdbc-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock", timeout=WAIT_SECONDS):
        if not home.exists():
            work = Path(tempfile.mkdtemp(dir=home.parent, prefix="fetching-"))
            try:
                found = fetched_packages(work, wanted)
                kept = work / "kept"
                kept.mkdir()
                for jar in found:
                    shutil.copy(jar, kept / jar.name)
                kept.rename(home)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return sorted(home.glob("*.jar"))


POSTGRES = Kind("postgresql", "public", "org.postgresql.Driver", ())
"""The product has a better way to it. Here it stands for any database with a driver, as server and driver are there for other tests."""


class Server(Protocol):
    """A server of a database, on 127.0.0.1."""

    @property
    def kind(self) -> Kind: ...

    @property
    def login(self) -> tuple[str, str]:
        """The name of the user and the password."""
        ...

    def url(self, database: str) -> str:
        """The JDBC URL of a database, which the first statements that are run in it make."""
        ...

    def run(self, database: str, statements: str) -> None:
        """Runs statements in a session of their own, each of which is committed at once."""
        ...


class PostgresServer:
    """The PostgreSQL of this process of tests."""

    kind = POSTGRES

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._parts = conninfo_to_dict(server.url())
        self.login = str(self._parts["user"]), str(self._parts["password"])

    def url(self, database: str) -> str:
        return f"jdbc:postgresql://{self._parts['host']}:{self._parts['port']}/jdbc_{database}"

    def run(self, database: str, statements: str) -> None:
        with contextlib.suppress(EmbeddedPostgresError):  # it is there already
            self._server.create_database(f"jdbc_{database}")
        with psycopg.connect(self._server.url(f"jdbc_{database}"), autocommit=True) as session:
            session.execute(statements.encode())


class JavaServer:
    """A server of H2 or Derby, whose data are in ``folder``."""

    login = (USER, PASSWORD)

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.java = str(find_java().executable)
        self.jars = os.pathsep.join(map(str, server_jars(kind.packages)))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        if kind is H2:
            command = ["org.h2.tools.Server", "-tcp", "-tcpPort", str(self.port), "-ifNotExists", "-baseDir", str(folder)]
        else:
            command = [f"-Dderby.system.home={folder}", "org.apache.derby.drda.NetworkServerControl", "start", "-p", str(self.port)]
            command.append("-noSecurityManager")
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([self.java, "-cp", self.jars, *command], stdin=quiet, stdout=quiet, stderr=quiet)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline and self.process.poll() is None, f"{kind.name} did not start"
            time.sleep(0.1)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def url(self, database: str) -> str:
        return f"jdbc:h2:tcp://127.0.0.1:{self.port}/./{database}" if self.kind is H2 else f"jdbc:derby://127.0.0.1:{self.port}/{database}"

    def run(self, database: str, statements: str) -> None:
        script = self.folder / "script.sql"
        if self.kind is H2:
            script.write_text(f"{statements};\n", encoding="utf-8")
            tool = ["org.h2.tools.RunScript", "-url", self.url(database), "-user", USER, "-password", PASSWORD, "-script", str(script)]
        else:
            login = f"connect '{self.url(database)};create=true' user '{USER}' password '{PASSWORD}'"
            script.write_text(f"{login};\n{statements};\nexit;\n", encoding="utf-8")
            tool = ["-Dderby.ui.codeset=UTF-8", "org.apache.derby.tools.ij", str(script)]
        command = [self.java, "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", self.jars, *tool]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "ERROR" not in said and "Exception" not in said, said


class JdbcProject(Workspace):
    """One datastore called ``shop`` over a database that is reached by JDBC. It has no safety lag unless a test sets one."""

    store, kind = "shop", "JdbcDatastore"

    def __init__(self, path: Path, server: Server, database: str, spark_home: Path, **attributes: Any) -> None:
        without_lags = {"watermark_margin_seconds": 0, "safety_lag_seconds": 0}
        super().__init__(path, spark_home, **{**without_lags, "on_new_table": "load_all", **attributes})
        self.server, self.database = server, database
        self.user, self.password = server.login

    def execute(self, *statements: str) -> None:
        """Runs SQL statements in the source and commits them at once."""
        self.server.run(self.database, ";\n".join(statements))

    @property
    def component(self) -> JdbcDatastore:
        attributes = dict(self.attributes)
        attributes["incremental"] = [e if isinstance(e, str) else IncrementalEntry(**e) for e in attributes.get("incremental", [])]
        attributes["containers"] = {k: ContainerEntry(**v) for k, v in attributes.get("containers", {}).items()}
        attributes["catalog"] = CatalogEntry(**attributes.get("catalog", {}))
        kind = self.server.kind
        place = {"url": self.server.url(self.database), "schema": kind.schema, "driver": kind.driver}
        return JdbcDatastore(**{"name": "shop", **place, "user": self.user, "password": self.password, **attributes})

    @property
    def variables(self) -> Mapping[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {}
