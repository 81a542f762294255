"""A PostgreSQL server of its own, from a wheel, for the demo, the tests and the benchmarks.

Nothing of the product itself may need this module.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import psutil
import psycopg
from filelock import FileLock
from psycopg import sql

from incremental_assets.demo.server_home import EmbeddedPostgresError, Home, write_private

__all__ = ["DEFAULT_PORT", "DEMO_DATABASE", "DEMO_FOLDER", "LANDING_FOLDER", "EmbeddedPostgres", "EmbeddedPostgresError", "demo_url"]

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
SUPERUSER = "postgres"
DEFAULT_PORT = 54329  # what `demo_url` says before there ever was a server
DEMO_FOLDER = Path(".demo") / "postgres"  # in the project
LANDING_FOLDER = DEMO_FOLDER.parent / "landing"
DEMO_DATABASE = "shop"

# The data of a demo or a test can be made again, so the server does not wait for the disk. Commits stay synchronous: they reach the cache
# of the operating system, so that a killed server loses nothing that it confirmed.
DEFAULT_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_prepared_transactions": "64",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
READY_SECONDS = 60.0
"""How long the server may take to start or to stop."""


class EmbeddedPostgres:
    """One PostgreSQL server on 127.0.0.1 whose files are in ``folder``.

    It outlives the Python process that started it. Another object for the same folder finds the server and uses it. ``port`` None chooses a
    free port and keeps it for later starts. ``settings`` only take effect if this object is the one that starts the server.
    """

    def __init__(self, folder: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.folder = Path(folder).absolute()
        self._wanted_port = port
        self._settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self._home: Home | None = None

    def __enter__(self) -> EmbeddedPostgres:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # ------------------------------------------------------------------ state
    @property
    def home(self) -> Home:
        """The user, the data folder and the programs of the server."""
        if self._home is None:
            self._home = Home.of(self.folder)
        return self._home

    @property
    def is_running(self) -> bool:
        """Whether the server accepts connections."""
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """The process id of the running server, None if there is none. A left-over pid file does not count as a server."""
        lines = self._pid_file_lines() if self.folder.exists() else []
        # The eighth line of postmaster.pid is the server's status.
        if len(lines) < 8 or lines[7].strip() != "ready":
            return None
        pid = int(lines[0])
        return pid if self._is_our_server(pid) else None

    @property
    def port(self) -> int:
        """The port of the running server; of a stopped one, the port that it had or will have.

        Raises EmbeddedPostgresError if there is none yet.
        """
        if self.is_running:
            return int(self._pid_file_lines()[3])
        port = self._wanted_port or _recorded_port(self.folder)
        if port is None:
            raise EmbeddedPostgresError(f"The server in {self.folder} has no port yet. Call start() first.")
        return port

    def url(self, database: str = "postgres", *, user: str | None = None, password: str | None = None) -> str:
        """Return ``postgresql://user:password@127.0.0.1:port/database``. Without ``user``, it is the superuser with its password."""
        if user is None:
            user, password = SUPERUSER, password or self._password()
        return _url(user, password, self.port, database)

    # ------------------------------------------------------------------ life
    def start(self) -> EmbeddedPostgres:
        """Start the server, and create it first if there is none. It does nothing if the server is running."""
        # The server may run as another user, which has to pass through this folder to reach the data.
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock", timeout=READY_SECONDS * 2):
            if self.is_running:
                return self
            if not (self.home.data / "PG_VERSION").exists():
                self._initdb()
            self._start_server()
        return self

    def stop(self, *, immediate: bool = False) -> None:
        """End the server: in good order, or with ``immediate`` at once, as a power failure would."""
        if not self.folder.exists():
            return
        with FileLock(self.folder / ".lock", timeout=READY_SECONDS * 2):
            if not self.is_running:
                return
            mode = "immediate" if immediate else "fast"
            self._run("pg_ctl", "stop", "-D", str(self.home.data), "-m", mode, "-w", "-t", str(int(READY_SECONDS)))

    def remove(self) -> None:
        """Stop the server, and delete its data and its folder, wherever they are."""
        self.stop(immediate=True)
        if self.folder.exists():
            self.home.remove()
            shutil.rmtree(self.folder)

    def create_database(self, name: str, *, drop: bool = False) -> str:
        """Create a database and return its URL.

        If it exists already, it is dropped first with ``drop``, else EmbeddedPostgresError is raised.
        """
        with psycopg.connect(self.url(), autocommit=True) as connection:
            if drop:
                self._roll_back_prepared(name)
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            try:
                # The template's files are copied, which takes a quarter of the time of writing them to the log.
                connection.execute(sql.SQL("CREATE DATABASE {} STRATEGY file_copy").format(sql.Identifier(name)))
            except psycopg.errors.DuplicateDatabase:
                raise EmbeddedPostgresError(f"Database {name!r} exists already. Pass drop=True to replace it.") from None
        return self.url(name)

    # ------------------------------------------------------------------ how
    def _roll_back_prepared(self, database: str) -> None:
        """Roll back prepared transactions. They outlive their session, and PostgreSQL does not drop their database."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", (database,)).fetchall()
        if found:
            with psycopg.connect(self.url(database), autocommit=True) as connection:
                for (gid,) in found:
                    connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))

    def _initdb(self) -> None:
        """Create the data folder, with a random password of the superuser."""
        password_file = self.folder / "password"
        if not password_file.exists():
            write_private(password_file, secrets.token_urlsafe(24))
        # initdb runs as the server's user, which may not read our password file. It gets a copy of its own for the time of the call.
        handover = self.home.data.parent / f".initdb-{secrets.token_hex(8)}"
        try:
            write_private(handover, self._password())
            self.home.account.owns(handover)
            self._run(
                "initdb", "-D", str(self.home.data), "-U", SUPERUSER, "--pwfile", str(handover), "--auth=scram-sha-256",
                "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync",
                # Rounds of hashing make a person's password harder to guess. They do nothing for 192 random bits, and cost each connection
                # of a JVM 40 ms of processor time.
                "--set", "scram_iterations=1",
            )  # fmt: skip
        finally:
            handover.unlink(missing_ok=True)
        with (self.home.data / "postgresql.conf").open("a", encoding="utf-8") as config:
            config.write("\ninclude_if_exists = 'embedded.conf'\n")

    def _start_server(self) -> None:
        """Start the server.

        The start is repeated while children of a killed server still hold its shared memory, and with another port if the port is taken.
        """
        deadline = time.monotonic() + READY_SECONDS
        while True:
            self._remove_stale_pid_file()
            port = self._choose_port()
            self._write_settings(port)
            server_log = self.home.data / "server.log"
            offset = server_log.stat().st_size if server_log.exists() else 0
            wait = ("-w", "-t", str(int(READY_SECONDS)))
            failure = self._call("pg_ctl", "start", "-D", str(self.home.data), "-l", str(server_log), *wait)
            if not failure:
                write_private(self.folder / "server.json", json.dumps({"port": port, "data": str(self.home.data)}))
                return
            output = _from(server_log, offset)
            passing = "still in use" in output or ("could not bind" in output and self._wanted_port is None)
            if not passing or time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"PostgreSQL did not start on port {port}; its log {server_log} ends with:\n{output[-2000:] or failure}\n"
                    f"If another program has the port, ask for another one; if the data are broken, delete {self.home.data}."
                )
            if "could not bind" in output:
                (self.folder / "server.json").unlink(missing_ok=True)
            time.sleep(0.3)

    def _choose_port(self) -> int:
        """Return the requested port, else the recorded one if it is free, else another free one."""
        if self._wanted_port is not None:
            return self._wanted_port
        recorded = _recorded_port(self.folder)
        return recorded if recorded is not None and _is_free(recorded) else _free_port()

    def _write_settings(self, port: int) -> None:
        """Write the settings to a file. On the command line a shell could interpret them."""
        settings = {**self._settings, "listen_addresses": HOST, "port": str(port), "unix_socket_directories": ""}
        lines = [f"{name} = '{str(value).replace(chr(39), chr(39) * 2)}'" for name, value in settings.items()]
        path = self.home.data / "embedded.conf"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.home.account.owns(path)

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self.home.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _is_our_server(self, pid: int) -> bool:
        """Whether this process is a running server on our data. After kill -9 or a reboot, its number may be any other process's."""
        try:
            process = psutil.Process(pid)
            command = process.cmdline()
            if process.status() == psutil.STATUS_ZOMBIE or not command or Path(command[0]).name != "postgres":
                # Another program may have our folder among its arguments too, such as du.
                return False
            return str(self.home.data) in command
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return False  # another user's process, so not ours

    def _remove_stale_pid_file(self) -> None:
        """Remove the pid file of a server that is gone.

        PostgreSQL usually recognises a stale pid file, but not if its number belongs to another process by now, or to a zombie.
        """
        lines = self._pid_file_lines()
        if lines and lines[0].isdigit() and not self._is_our_server(int(lines[0])):
            (self.home.data / "postmaster.pid").unlink(missing_ok=True)

    def _password(self) -> str:
        try:
            return (self.folder / "password").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise EmbeddedPostgresError(
                f"{self.folder / 'password'} is missing. Call start() first; "
                f"if it was deleted, stop the server and delete {self.home.data}: start() then makes a new one."
            ) from None

    def _call(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs. Return an empty text if it succeeded, else its output."""
        done = self.home.account.run([str(self.home.binaries / program), *arguments], timeout=READY_SECONDS * 2)
        return "" if done.returncode == 0 else (done.stdout.strip() or f"exit code {done.returncode}")

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs. Raises EmbeddedPostgresError if it fails."""
        output = self._call(program, *arguments)
        if output:
            raise EmbeddedPostgresError(f"PostgreSQL's {program} failed in {self.home.data}:\n{output}")


def demo_server(project: Path) -> EmbeddedPostgres:
    """The demo's server. It writes its log so that a container can follow it, and keeps no more of it than a gigabyte."""
    return EmbeddedPostgres(project / DEMO_FOLDER, settings={"wal_level": "logical", "max_slot_wal_keep_size": "1GB"})


def demo_url(project: Path) -> str:
    """Return the URL of the demo's database, from two small files.

    It also works before there is a server; nothing answers at the URL then.
    """
    folder = Path(project).absolute() / DEMO_FOLDER
    try:
        password = (folder / "password").read_text(encoding="utf-8").strip()
    except OSError:
        password = "not-started-yet"
    return _url(SUPERUSER, password, _recorded_port(folder) or DEFAULT_PORT, DEMO_DATABASE)


def _url(user: str, password: str | None, port: int, database: str) -> str:
    secret = "" if password is None else f":{quote(password, safe='')}"
    return f"postgresql://{quote(user, safe='')}{secret}@{HOST}:{port}/{quote(database, safe='')}"


def _recorded_port(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / "server.json").read_text(encoding="utf-8"))["port"])
    except (OSError, ValueError, KeyError):
        return None


def _from(path: Path, offset: int) -> str:
    """Return the text of a file from this offset on; empty if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
