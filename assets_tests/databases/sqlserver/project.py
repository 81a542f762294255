"""Projects over SQL Server, for the tests of this folder that need a server.

Belongs here: the project, and the comparison of a table with its lake. Does not belong: the server, which ``SQLSERVER_URL`` names.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from assets_tests.databases.sqlserver.known import component
from assets_tests.harness import Workspace
from incremental_assets.dagster.components.datastore import CatalogEntry
from incremental_assets.dagster.components.sqlserver import SQLServerDatastore
from incremental_assets.databases.sqlserver.connection import SQLServerAddress, driver


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


class SQLServerProject(Workspace):
    """One datastore called ``shop`` over a database of SQL Server. It has no safety lag unless a test sets one."""

    store, kind = "shop", "SQLServerDatastore"
    place: Mapping[str, str] = {"url": "{{ env.SHOP_URL }}"}

    def __init__(self, path: Path, server: SQLServerAddress, database: str, spark_home: Path, **attributes: Any) -> None:
        without_lags = {"settle_seconds": 0.3, "watermark_margin_seconds": 0, "safety_lag_seconds": 0, "finer_times": "cut"}
        super().__init__(path, spark_home, **{**without_lags, **attributes})
        self.address = replace(server, database=database)
        self.url = (
            f"sqlserver://{quote(server.user, safe='')}:{quote(server.password, safe='')}@{server.host}:{server.port}/{database}"
            f"?{urlencode(dict(server.options))}"
        )
        self.source = self.session()

    @property
    def server_errors(self) -> tuple[type[BaseException], ...]:
        """What the driver raises."""
        return driver().Error, OSError

    def session(self) -> Any:
        """A further session of an application."""
        return connected(self.address)

    def execute(self, *statements: str) -> None:
        """Runs SQL statements in the source and commits them at once."""
        with self.source.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with self.source.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @property
    def component(self) -> SQLServerDatastore:
        attributes = {**self.attributes, "url": self.url}
        return component(**{**attributes, "catalog": CatalogEntry(**attributes.get("catalog", {}))})

    @property
    def variables(self) -> dict[str, str]:
        return {"SHOP_URL": self.url}

    def assert_equal(self, name: str, columns: str = "id, value") -> None:
        """Asserts that the lake has the rows of the source, each as often."""
        in_source = sorted(map(repr, self.ask(f"select {columns} from {name}")))
        assert sorted(map(repr, self.rows(name, columns))) == in_source
