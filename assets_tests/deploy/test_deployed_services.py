"""What the units of ``incremental-assets init --deploy`` start, as processes: a run is launched through them and writes rows.

Belongs here: the command lines of the units, with the variables of a filled-in ``.env`` and Dagster's storage in PostgreSQL. Does not
belong: what only systemd does (users, hardening, restarts), and the image: they were not run.
"""

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import dotenv
import psycopg
import pytest
from dagster import DagsterRunStatus

from assets_tests.harness import wait_for
from deploy.cluster.processes import HOST, ClusterError, ServiceProcess, answers, free_ports
from deploy.cluster.runs import LOCATION, Runs
from deploy.cluster.surroundings import plain_environment
from deploy.cluster.topology import STORAGE_DRIVER
from incremental_assets.demo.compare import compare
from incremental_assets.demo.postgres import EmbeddedPostgres
from incremental_assets.project.folders import RELOADS_VARIABLE
from incremental_assets.spark.embedded.java_home import tools_folder
from incremental_assets.spark.session import stop_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TABLES = """
create table orders (id bigint generated always as identity primary key, note text);
insert into orders (note) select 'n' from generate_series(1, 500);
create view slow as select id, pg_sleep(60)::text as waited from generate_series(1, 1) id;
"""
DATASTORE = """
type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: "{{ env.SHOP_URL }}"
  settle_seconds: 0
  incremental: ["public.orders:id:integer"]
  containers: {orders: {engine: spark}}
  on_new_table: load
"""


class Host:
    """A project as DEPLOY.md puts it on a machine, in folders of the test. ``variables``: those of its ``.env``."""

    def __init__(self, folder: Path, storage: str, source: str) -> None:
        self.project, self.state, self.logs = folder / LOCATION, folder / "var", folder / "logs"
        self.home = self.state / "home"
        for made in (self.home, self.logs):
            made.mkdir(parents=True)
        self._write_project()
        ports = dict(zip(("DAGSTER_CODE_PORT", "DAGSTER_WEBSERVER_PORT"), map(str, free_ports(2)), strict=True))
        filled = {
            "DAGSTER_HOME": str(self.home), "INCREMENTAL_ASSETS_LAKE": str(self.state / "lake"), "SHOP_URL": source,
            "DAGSTER_PG_URL": storage.replace("postgresql://", f"{STORAGE_DRIVER}://", 1), **ports,
        }  # fmt: skip
        self.variables = self._fill_in(filled)
        (self.home / "dagster.yaml").symlink_to(self.project / "deploy" / "dagster.yaml")

    def _write_project(self) -> None:
        self._call("init", str(self.project))
        (self.project / "defs" / "shop").mkdir()
        (self.project / "defs" / "shop" / "defs.yaml").write_text(DATASTORE, encoding="utf-8")
        self._call("--project", str(self.project), "init", "--deploy")
        (self.project / ".venv").symlink_to(sys.prefix)
        for tools in (".jars", ".java"):  # what `server fetch` brings
            (self.project / tools).symlink_to(tools_folder() / tools)

    def _fill_in(self, values: Mapping[str, str]) -> dict[str, str]:
        """Writes ``.env`` from ``.env.example`` with these values. Returns all of its variables."""
        text = (self.project / ".env.example").read_text(encoding="utf-8")
        for name, value in values.items():
            text, times = re.subn(rf"(?m)^{name}='.*'$", f"{name}='{value}'", text)
            assert times == 1, name
        (self.project / ".env").write_text(text, encoding="utf-8")
        return {name: value or "" for name, value in dotenv.dotenv_values(self.project / ".env", interpolate=False).items()}

    def _call(self, *words: str) -> str:
        """Executes ``incremental-assets`` with nothing but the project's own ``.env``, as somebody does by hand. Returns its output."""
        command = [sys.executable, "-m", "incremental_assets.cli", *words]
        done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def by_hand(self, *words: str) -> str:
        return self._call("--project", str(self.project), *words)

    def unit(self, name: str) -> configparser.SectionProxy:
        """The section Service of a unit, with the folders of the test in place of those of the machine."""
        text = (self.project / "deploy" / f"{LOCATION}-{name}.service").read_text(encoding="utf-8")
        parsed = configparser.ConfigParser(interpolation=None)
        parsed.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] systemd's keys have capitals
        parsed.read_string(text.replace(f"/opt/{LOCATION}", str(self.project)).replace(f"/var/lib/{LOCATION}", str(self.state)))
        return parsed["Service"]

    def environment(self, name: str) -> dict[str, str]:
        own, _, value = self.unit(name)["Environment"].partition("=")
        assert own == RELOADS_VARIABLE
        return {**plain_environment(), own: value, **self.variables}

    def expanded(self, name: str, key: str) -> str:
        """A command line of a unit, with its variables as systemd puts them in."""
        return re.sub(r"\$\{(\w+)\}", lambda found: self.variables[found[1]], self.unit(name)[key])

    def log(self, name: str) -> str:
        """The end of what a service has printed."""
        return (self.logs / f"{name}.log").read_text(encoding="utf-8")[-3000:]

    def service(self, name: str) -> ServiceProcess:
        ready = {
            "code": lambda: True,  # ExecStartPost waits for it
            "daemon": lambda: True,
            "webserver": lambda: answers(f"http://{HOST}:{self.variables['DAGSTER_WEBSERVER_PORT']}/server_info"),
        }[name]
        folder = Path(self.unit(name)["WorkingDirectory"])
        command = self.expanded(name, "ExecStart").split()
        return ServiceProcess(name, command, self.environment(name), folder, self.logs / f"{name}.log", ready)


@pytest.fixture
def host(tmp_path: Path, postgres: EmbeddedPostgres, database: str) -> Iterator[Host]:
    pytest.importorskip("dagster_postgres", reason="`make test-all` installs it")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    made = Host(tmp_path / "host", postgres.create_database("dagster_of_units"), database)
    yield made
    stop_server(made.home)


def test_what_the_units_start_syncs_and_shows_a_new_table_without_a_restart(host: Host, database: str) -> None:
    """A team that types what DEPLOY.md says gets services that do not find one another, an empty lake, a UI that never shows the table
    which a catalog has found, or runs that end whenever a catalog has found one."""
    assert "shop/orders" in host.by_hand("catalog", "--json")
    services = [host.service(name) for name in ("code", "daemon", "webserver")]
    try:
        for service in services:
            service.start()
            if service.name == "code":
                waited = ["/bin/sh", "-c", host.expanded("code", "ExecStartPost").partition("-c ")[2].strip("'")]
                subprocess.run(waited, env=host.environment("code"), check=True, timeout=200, capture_output=True)
        runs = Runs(int(host.variables["DAGSTER_WEBSERVER_PORT"]))
        assert runs.wait(runs.launch("orders")) is DagsterRunStatus.SUCCESS, host.log("code")
        assert compare(database, "orders", str(host.state / "lake" / "shop" / "orders")).equal
        slow = runs.launch("slow")
        wait_for(lambda: runs.status(slow) is DagsterRunStatus.STARTED, "the daemon takes the run from its queue", 120)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("create table later (id int primary key); insert into later values (1), (2)")
        host.by_hand("catalog")
        launched: list[str] = []

        def is_known() -> bool:
            with suppress(ClusterError):  # the webserver knows no such job yet
                launched.append(runs.launch("later"))
            return bool(launched)

        wait_for(is_known, "the webserver loads the project anew", 90)
        assert runs.status(slow) is DagsterRunStatus.STARTED, "it still reads while the project is loaded anew"
        assert runs.wait(slow) is DagsterRunStatus.SUCCESS, "a run that was started before goes on"
        assert runs.wait(launched[0]) is DagsterRunStatus.SUCCESS, host.log("code")
        assert compare(database, "later", str(host.state / "lake" / "shop" / "later")).equal
        assert not (host.home / "history").exists(), "Dagster's storage is in PostgreSQL, not in files"
    finally:
        for service in reversed(services):
            service.stop()
