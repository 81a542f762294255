"""Projects over MariaDB.

Belongs here: the project, and the database of a test. Does not belong: the server (``databases.mariadb_server``), and what is the same for
each server (``servers.project``).
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assets_tests.databases.mariadb_server import USER, EmbeddedMariaDB
from assets_tests.databases.mysql.sql import MariaDBSQL
from assets_tests.databases.servers.project import ServerProject
from incremental_assets.dagster.components.datastore import CatalogEntry
from incremental_assets.dagster.components.mysql import MySQLDatastore
from incremental_assets.dagster.components.tables import ContainerEntry, IncrementalEntry
from incremental_assets.databases.mysql import rows
from incremental_assets.databases.mysql.connection import driver

_numbers = itertools.count()


class MySQLProject(ServerProject):
    """A ``ServerProject`` over a MariaDB database."""

    kind = "MySQLDatastore"
    sql = MariaDBSQL()
    rows_module = rows

    def __init__(self, path: Path, server: EmbeddedMariaDB, database: str, spark_home: Path, **attributes: Any) -> None:
        self.server = server
        super().__init__(path, spark_home, server.url(database), database, **attributes)

    @property
    def server_errors(self) -> tuple[type[BaseException], ...]:
        return (driver().Error,)

    def session(self) -> Any:
        return self.server.connect(self.database)

    def url_of(self, user: str | None, password: str) -> str:
        return self.server.url(self.database, user=user or USER, password=password)

    @property
    def component(self) -> MySQLDatastore:
        attributes = dict(self.attributes)
        attributes["incremental"] = [e if isinstance(e, str) else IncrementalEntry(**e) for e in attributes.get("incremental", [])]
        attributes["containers"] = {k: ContainerEntry(**v) for k, v in attributes.get("containers", {}).items()}
        attributes["catalog"] = CatalogEntry(**attributes.get("catalog", {}))
        return MySQLDatastore(**{"name": "shop", "url": self.url, **attributes})


@contextlib.contextmanager
def mysql_projects(server: EmbeddedMariaDB, folder: Path, spark_home: Path) -> Iterator[Callable[..., MySQLProject]]:
    """Makes projects over one new, empty database: ``make(incremental=[…], containers={…})``."""
    made: list[MySQLProject] = []
    database = f"t{next(_numbers)}"
    server.create_database(database)

    def make(**attributes: Any) -> MySQLProject:
        made.append(MySQLProject(folder / f"p{len(made)}", server, database, spark_home, **attributes))
        return made[-1]

    yield make
    for one in made:
        one.source.close()
