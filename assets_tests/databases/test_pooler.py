"""A source behind pgbouncer in transaction mode, where a client's connection is not a connection of the server.

Belongs here: what a pooler changes. The tests are skipped where pgbouncer is not installed (``apt-get install pgbouncer``).
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.core.errors import SourceError
from incremental_assets.databases.limits import Limits
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.demo.server_home import account

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin") or shutil.which("pgbouncer")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed on this machine: apt-get install pgbouncer")


@pytest.fixture
def pooled(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The database's URL through a pooler that assigns a connection of the server for one transaction at a time."""
    to, folder, who = urlsplit(database), tmp_path_factory.mktemp("pooler"), account()
    port = int(to.port or 0) + 1
    settings = {
        "listen_addr": "127.0.0.1", "listen_port": port, "auth_type": "plain", "auth_file": folder / "users", "pool_mode": "transaction",
        "default_pool_size": 20, "pidfile": folder / "pid", "logfile": folder / "log", "unix_socket_dir": "",
    }  # fmt: skip
    lines = ["[databases]", f"* = host=127.0.0.1 port={to.port}", "[pgbouncer]", *(f"{k} = {v}" for k, v in settings.items())]
    (folder / "pgbouncer.ini").write_text("\n".join(lines))
    (folder / "users").write_text(f'"{to.username}" "{to.password}"\n')
    for path in (folder, *folder.iterdir()):
        who.owns(path)
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(parent.stat().st_mode | 0o011)
    done = who.run([str(PROGRAM), "-d", str(folder / "pgbouncer.ini")])
    assert done.returncode == 0, done.stdout
    url = database.replace(f":{to.port}/", f":{port}/")
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
            break
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
    yield url
    subprocess.run(["kill", (folder / "pid").read_text().strip()], check=True)


def test_the_limits_of_a_snapshot_do_not_stay_on_a_poolers_connection(pooled: str, project: Callable[..., Project], tmp_path: Path) -> None:
    """The limits must end with the transaction, as another client gets the connection then. A session that waits is let through as
    usual."""
    shop = project(incremental=["public.orders:day:date"])
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01')")
    shop.url = pooled
    definition = shop.definition("orders")
    with PostgresReader(definition.settings.address, definition.container, timezone="UTC") as reader:
        assert reader.server.is_pooled
        limits = "select current_setting('transaction_timeout'), current_setting('statement_timeout'), current_setting('tcp_user_timeout')"
        before = shop.source.execute(limits).fetchone()
        reader.limits = Limits(blocking=1)
        with pytest.raises(SourceError, match=r"migration.*max_blocking_seconds"), reader.snapshot():
            read = reader.rows("select count(*) from orders")

            def alter() -> None:
                with psycopg.connect(shop.source.info.dsn, password=shop.source.info.password, autocommit=True) as other:
                    other.execute("set application_name = 'migration'")
                    other.execute("alter table orders add column note text")

            waiting = threading.Thread(target=alter, daemon=True)
            waiting.start()
            waiting.join(60)
            got_through = not waiting.is_alive()  # an assertion in this block would end in the error that is expected
            reader.still_there()
        assert read == [(1,)] and got_through
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as somebody:
        assert somebody.execute(limits).fetchone() == before
