"""All services of the topology as processes on the loopback interface: started in order, ended in reverse order.

Belongs here: the command line and the environment of each service. Does not belong: names and settings that the compose file shares
(``topology``), and what holds for any process (``processes``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psycopg
import yaml
from pyarrow.fs import S3FileSystem

from deploy.cluster import spark_connect, spark_standalone
from deploy.cluster.choices import Choices
from deploy.cluster.processes import HOST, ClusterError, ServiceProcess, answers, end_abandoned, listens
from deploy.cluster.runs import LOCATION, Runs
from deploy.cluster.surroundings import own_command, plain_environment, program
from deploy.cluster.topology import (
    BUCKET,
    CODE_COMMAND,
    DAEMON_COMMAND,
    DRIVER_MEMORY,
    LAKE,
    REGION,
    STORAGE_DRIVER,
    WEBSERVER_COMMAND,
    WORKER_CORES,
    WORKER_MEMORY,
    WORKERS,
    Service,
    spark_conf,
)
from incremental_assets.delta.private import private
from incremental_assets.demo.compare import Comparison, compare
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.project.scaffold import write_project
from incremental_assets.project.templates import render
from incremental_assets.spark.embedded import launch

SOURCE_URL = "INCREMENTAL_ASSETS_DEMO_URL"
"""The variable with the URL of the source, in the demo's YAML."""


class LocalCluster:
    """The services, with all of their files in ``folder``.

    ``datastore``: the text of the ``defs.yaml`` of the datastore ``shop``. ``variables``: more environment variables for Dagster.
    Ports and passwords are chosen once and kept in the folder. The services are ended with the block, or by ``stop``.
    """

    def __init__(self, folder: Path, datastore: str, variables: Mapping[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self._datastore, self._variables = datastore, dict(variables or {})
        self.postgres = EmbeddedPostgres(self.folder / "postgres", settings={"wal_level": "logical", "max_slot_wal_keep_size": "1GB"})
        self.services: dict[Service, ServiceProcess] = {}

    def __enter__(self) -> LocalCluster:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # ------------------------------------------------------------------ life
    def start(self) -> LocalCluster:
        """Starts PostgreSQL, which has the source and Dagster's storage, the store with its bucket, and Spark; then see ``start_dagster``.

        Raises ClusterError if a service does not start, or if another process has started a cluster in this folder.
        """
        private(self.folder)
        self._chosen = Choices.kept(self._choices)
        self._expect_alone()
        self._fetch_jars()
        self.postgres.start()
        if not self._has_database("dagster"):
            self.postgres.create_database("dagster")
        for service in (Service.STORE, Service.SPARK_MASTER, *WORKERS, Service.SPARK_CONNECT):
            self._start(service)
            if service is Service.STORE:
                self._make_bucket()
        return self

    def start_dagster(self, source: str) -> None:
        """Takes a catalog of the database ``source``, and starts the code server, the webserver and the daemon. It has to exist by then."""
        self._source = source
        self._write_project()
        self.command("catalog")
        for service in (Service.CODE, Service.WEBSERVER, Service.DAEMON):
            self._start(service)

    def stop(self) -> None:
        """Ends all services, in the reverse order of their start."""
        for service in reversed(self.services.values()):
            service.stop()
        self.services.clear()
        self.postgres.stop()

    def remove(self) -> None:
        """Ends the services that this object has started, and PostgreSQL, and deletes their files. A new object is needed then.

        Raises ClusterError if services of another process run in the folder, and nothing has ended then.
        """
        if not self.services:
            self._expect_alone()
        self.stop()
        self.postgres.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _expect_alone(self) -> None:
        """Raises ClusterError if services of another process run in this folder. Those whose starter was killed are ended."""
        end_abandoned(self.folder / "logs")
        if self._choices.exists():
            taken = [f"{name} on port {port}" for name, port in Choices.kept(self._choices).ports.items() if listens(port)]
            if taken:
                raise ClusterError(f"A cluster runs in {self.folder} already: {', '.join(taken)}. End it first, or name another folder.")

    # ------------------------------------------------------------------ use
    @property
    def runs(self) -> Runs:
        return Runs(self.port("webserver"))

    @property
    def source(self) -> str:
        """The URL of the source."""
        return self._source

    def port(self, name: str) -> int:
        return self._chosen.ports[name]

    def command(self, *arguments: str) -> str:
        """Executes ``incremental-assets`` in the project, and returns its output. Raises ClusterError if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "incremental_assets.cli", "--project", str(self._project), *arguments],
            env=self._dagster_environment(), cwd=self._project, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise ClusterError(f"incremental-assets {' '.join(arguments)} failed:\n{(done.stdout + done.stderr).strip()}")
        return done.stdout

    def compare(self, table: str) -> Comparison:
        """Compares a table of the lake with the source, row by row."""
        return compare(self._source, table, f"{LAKE}/shop/{table}", storage_options=self._store_environment())

    # ------------------------------------------------------------------ services
    def _start(self, service: Service) -> None:
        if service not in self.services:
            self.services[service] = self._described(service)
        self.services[service].start()

    def _described(self, service: Service) -> ServiceProcess:
        command, environment, ready = {
            Service.STORE: self._store,
            Service.SPARK_MASTER: self._master,
            Service.SPARK_WORKER_1: lambda: self._worker(1),
            Service.SPARK_WORKER_2: lambda: self._worker(2),
            Service.SPARK_CONNECT: self._connect,
            Service.CODE: self._code,
            Service.WEBSERVER: self._webserver,
            Service.DAEMON: self._daemon,
        }[service]()
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        return ServiceProcess(service.value, command, environment, self._work(service.value), logs / f"{service.value}.log", ready)

    def _store(self) -> _Description:
        port = self.port
        config = self.folder / "store.json"
        keys = {"accessKey": self._chosen.access_key, "secretKey": self._chosen.secret_key}
        launch.write_private(config, json.dumps({"identities": [{"name": "lake", "credentials": [keys], "actions": ["Admin"]}]}))
        options = {
            "dir": str(self._work("store-data")), "ip": HOST, "ip.bind": HOST, "filer": "true", "s3": "true", "s3.config": str(config),
            "s3.port": port("s3"), "s3.port.grpc": port("s3-grpc"), "s3.port.iceberg": 0, "s3.port.lance": 0,
            "filer.port": port("filer"), "filer.port.grpc": port("filer-grpc"), "volume.port": port("volume"),
            "volume.port.grpc": port("volume-grpc"), "master.port": port("store-master"), "master.port.grpc": port("store-master-grpc"),
            "master.telemetry": "false", "master.volumeSizeLimitMB": 256, "volume.max": 0, "volume.preStopSeconds": 0,
            "filer.localSocket": str(self.folder / "filer.sock"), "s3.localSocket": str(self.folder / "s3.sock"),
        }  # fmt: skip
        command = [program("weed"), "server", *(f"-{name}={value}" for name, value in options.items())]
        return command, plain_environment(), lambda: listens(port("s3")) and listens(port("volume"))

    def _make_bucket(self) -> None:
        """Makes the bucket of the lake, and with it the first answer of the store that is more than an open port."""
        store = S3FileSystem(
            access_key=self._chosen.access_key, secret_key=self._chosen.secret_key, region=REGION, scheme="http",
            endpoint_override=f"{HOST}:{self.port('s3')}", allow_bucket_creation=True,
        )  # fmt: skip
        store.create_dir(BUCKET)

    def _master(self) -> _Description:
        port = self.port("master")
        return (
            self._spark("master", "--host", HOST, "--port", str(port), "--webui-port", "0"),
            self._spark_environment(),
            lambda: listens(port),
        )

    def _worker(self, number: int) -> _Description:
        port = self.port(f"worker-{number}")
        options = ("--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY, "--port", str(port), "--webui-port", "0")
        work = ("--work-dir", str(self._work(f"spark-worker-{number}") / "executors"))
        command = self._spark("worker", "--host", HOST, *options, *work, self._master_url)
        return command, self._spark_environment(), lambda: listens(port)

    def _spark(self, *options: str) -> list[str]:
        return [sys.executable, "-m", spark_standalone.__name__, *options]

    def _connect(self) -> _Description:
        port = self.port("connect")
        command = [sys.executable, "-m", spark_connect.__name__, str(self._work("spark-connect")), HOST, str(port)]
        return command, self._connect_environment(), lambda: listens(port)

    def _fetch_jars(self) -> None:
        """Fetches the JARs, once for all clusters, before a service waits for them. Raises ClusterError if they cannot be had."""
        command = [sys.executable, "-m", "incremental_assets.spark.embedded.server", "fetch"]
        done = subprocess.run(command, env=self._connect_environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"Spark's JARs could not be fetched:\n{(done.stdout + done.stderr).strip()}")

    def _code(self) -> _Description:
        port = str(self.port("code"))
        options = ("--host", HOST, "--port", port, "--module-name", "definitions", "--working-directory", str(self._project))
        ours = [*own_command(CODE_COMMAND), *options, "--location-name", LOCATION, "--inject-env-vars-from-instance"]
        return ours, self._dagster_environment(), lambda: listens(self.port("code"))

    def _webserver(self) -> _Description:
        port = self.port("webserver")
        workspace = ("--workspace", str(self._home / "workspace.yaml"))
        command = [*own_command(WEBSERVER_COMMAND), "--host", HOST, "--port", str(port), *workspace]
        return command, self._dagster_environment(), lambda: answers(f"http://{HOST}:{port}/server_info")

    def _daemon(self) -> _Description:
        command = [*own_command(DAEMON_COMMAND), "--workspace", str(self._home / "workspace.yaml")]
        return command, self._dagster_environment(), lambda: True

    # ------------------------------------------------------------------ files
    @property
    def _choices(self) -> Path:
        return self.folder / "cluster.json"

    @property
    def _project(self) -> Path:
        return self.folder / LOCATION

    @property
    def _home(self) -> Path:
        return self.folder / "home"

    @property
    def _master_url(self) -> str:
        return f"spark://{HOST}:{self.port('master')}"

    def _work(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _write_project(self) -> None:
        """Writes the project with the one datastore, and a DAGSTER_HOME whose storage is in PostgreSQL."""
        if not (self._project / "definitions.py").exists():
            write_project(self._project)
        datastore = self._project / "defs" / "shop"
        datastore.mkdir(exist_ok=True)
        (datastore / "defs.yaml").write_text(self._datastore, encoding="utf-8")
        private(self._home)
        (self._home / "dagster.yaml").write_text(render("dagster.yaml", deployed=True), encoding="utf-8")
        server = {"host": HOST, "port": self.port("code"), "location_name": LOCATION}
        (self._home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))

    def _has_database(self, name: str) -> bool:
        with psycopg.connect(self.postgres.url()) as connection:
            return connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None

    # ------------------------------------------------------------------ environments
    def _store_environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self.port('s3')}",
            "AWS_ACCESS_KEY_ID": self._chosen.access_key,
            "AWS_SECRET_ACCESS_KEY": self._chosen.secret_key,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def _connect_environment(self) -> dict[str, str]:
        return {
            **plain_environment(),
            **self._store_environment(),
            launch.CONF: spark_conf(self._master_url, spark_driver_host=HOST),
            launch.MEMORY: DRIVER_MEMORY,
            spark_connect.TOKEN: self._chosen.token,
        }

    def _spark_environment(self) -> dict[str, str]:
        """That of master and workers. The executors inherit it from their workers, with the keys of the store."""
        return {**plain_environment(), **self._store_environment(), "SPARK_LOCAL_DIRS": str(self._work("scratch"))}

    def _dagster_environment(self) -> dict[str, str]:
        return {
            **plain_environment(),
            **self._store_environment(),
            "DAGSTER_HOME": str(self._home),
            "DAGSTER_PG_URL": self.postgres.url("dagster").replace("postgresql://", f"{STORAGE_DRIVER}://", 1),
            "INCREMENTAL_ASSETS_PROJECT": str(self._project),
            "INCREMENTAL_ASSETS_LAKE": LAKE,
            "SPARK_REMOTE": f"sc://localhost:{self.port('connect')}/;token={self._chosen.token}",
            SOURCE_URL: self._source,
            **self._variables,
        }


_Description = tuple[Sequence[str], Mapping[str, str], Callable[[], bool]]
"""The command line of a service, its environment, and how it is asked whether it is ready."""
