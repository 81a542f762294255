"""Projects over SQL Server.

Belongs here: the project, and the database of a test. Does not belong: the server, which ``SQLSERVER_URL`` names, and what is the same for
each server (``servers.project``).
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from assets_tests.databases.servers.project import ServerProject
from assets_tests.databases.servers.sql import PLAIN_USER
from assets_tests.databases.sqlserver.known import component
from assets_tests.databases.sqlserver.sql import TransactSQL
from incremental_assets.dagster.components.datastore import CatalogEntry
from incremental_assets.dagster.components.sqlserver import SQLServerDatastore
from incremental_assets.databases.sqlserver import rows
from incremental_assets.databases.sqlserver.connection import SQLServerAddress, driver

_numbers = itertools.count()


def connected(address: SQLServerAddress) -> Any:
    """A session of an application, which is not the product's."""
    return driver().connect(
        dsn=address.host,
        port=address.port,
        database=address.database,
        user=address.user,
        password=address.password,
        appname="a shop",
        autocommit=True,
        **address.encryption(),
    )


class SQLServerProject(ServerProject):
    """A ``ServerProject`` over a database of SQL Server. ``has_snapshots``: whether the database allows snapshots."""

    kind = "SQLServerDatastore"
    sql = TransactSQL()
    rows_module = rows

    def __init__(self, path: Path, address: SQLServerAddress, spark_home: Path, *, has_snapshots: bool, **attributes: Any) -> None:
        self.address, self.has_snapshots = address, has_snapshots
        url = self.url_of(None, address.password)
        super().__init__(path, spark_home, url, address.database, **{"finer_times": "cut", **attributes})

    @property
    def server_errors(self) -> tuple[type[BaseException], ...]:
        return driver().Error, OSError

    @property
    def reads_past_locks(self) -> bool:
        return self.has_snapshots

    def session(self) -> Any:
        return connected(self.address)

    def url_of(self, user: str | None, password: str) -> str:
        one = self.address
        name, host = quote(user or one.user, safe=""), f"{one.host}:{one.port}"
        return f"sqlserver://{name}:{quote(password, safe='')}@{host}/{one.database}?{urlencode(dict(one.options))}"

    @property
    def component(self) -> SQLServerDatastore:
        attributes = {**self.attributes, "url": self.url}
        return component(**{**attributes, "catalog": CatalogEntry(**attributes.get("catalog", {}))})


@contextlib.contextmanager
def sqlserver_projects(
    server: SQLServerAddress, folder: Path, spark_home: Path, *, has_snapshots: bool
) -> Iterator[Callable[..., SQLServerProject]]:
    """Makes projects over one new, empty database, which is dropped at the end: ``make(incremental=[…], containers={…})``."""
    made: list[SQLServerProject] = []
    database = f"incremental_assets_t{next(_numbers)}"
    with connected(server) as admin, admin.cursor() as cursor:
        cursor.execute(f"drop database if exists [{database}]")
        cursor.execute(f"create database [{database}]")
        if has_snapshots:
            cursor.execute(f"alter database [{database}] set allow_snapshot_isolation on")
    address = replace(server, database=database)

    def make(**attributes: Any) -> SQLServerProject:
        made.append(SQLServerProject(folder / f"p{len(made)}", address, spark_home, has_snapshots=has_snapshots, **attributes))
        return made[-1]

    yield make
    for one in made:
        one.source.close()
    with connected(server) as admin, admin.cursor() as cursor:
        cursor.execute(f"alter database [{database}] set single_user with rollback immediate")
        cursor.execute(f"drop database [{database}]")
        cursor.execute(f"if suser_id(N'{PLAIN_USER}') is not null drop login {PLAIN_USER}")
