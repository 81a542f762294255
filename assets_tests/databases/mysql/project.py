"""Projects over MariaDB, for the tests of this folder.

Belongs here: the project, and the comparison of a table with its lake. Does not belong: the server (``demo.mariadb``).
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from assets_tests.harness import Workspace
from incremental_assets.dagster.components.datastore import CatalogEntry
from incremental_assets.dagster.components.mysql import MySQLDatastore
from incremental_assets.dagster.components.tables import ContainerEntry, IncrementalEntry
from incremental_assets.delta.table import LakeTable
from incremental_assets.demo.mariadb import EmbeddedMariaDB


class MySQLProject(Workspace):
    """One datastore called ``shop`` over a MariaDB database. It has no safety lag unless a test sets one."""

    store, kind = "shop", "MySQLDatastore"
    place: Mapping[str, str] = {"url": "{{ env.SHOP_URL }}"}

    def __init__(self, path: Path, server: EmbeddedMariaDB, database: str, spark_home: Path, **attributes: Any) -> None:
        without_lags = {"settle_seconds": 0.3, "watermark_margin_seconds": 0, "safety_lag_seconds": 0}
        super().__init__(path, spark_home, **{**without_lags, **attributes})
        self.server, self.database, self.url = server, database, server.url(database)
        self.source = self.session()

    @property
    def server_errors(self) -> type[Exception]:
        """What PyMySQL raises, for example where a session has waited too long for a lock."""
        import pymysql

        return pymysql.Error

    def session(self) -> Any:
        """A further session of an application."""
        return self.server.connect(self.database)

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
    def component(self) -> MySQLDatastore:
        attributes = dict(self.attributes)
        attributes["incremental"] = [e if isinstance(e, str) else IncrementalEntry(**e) for e in attributes.get("incremental", [])]
        attributes["containers"] = {k: ContainerEntry(**v) for k, v in attributes.get("containers", {}).items()}
        attributes["catalog"] = CatalogEntry(**attributes.get("catalog", {}))
        return MySQLDatastore(**{"name": "shop", "url": self.url, **attributes})

    @property
    def variables(self) -> dict[str, str]:
        return {"SHOP_URL": self.url}

    def assert_equal(self, name: str, columns: str = "id, value") -> None:
        """Asserts that the lake has the rows of the source, each as often."""

        def listed(rows: list[tuple[Any, ...]]) -> list[str]:
            # A `bigint unsigned` is a decimal in the lake.
            return sorted(repr(tuple(int(v) if isinstance(v, Decimal) else v for v in row)) for row in rows)

        assert listed(self.rows(name, columns)) == listed(self.ask(f"select {columns} from {name}"))

    def rows_as_known(self, name: str) -> list[tuple[Any, ...]]:
        """The rows in the lake of a table that the source may no longer have."""
        table = LakeTable(self.lake, "shop", name).opened()
        assert table is not None
        found = QueryBuilder().register("lake", table).execute("select * from lake").read_all()
        return [tuple(row.values()) for row in pa.table(found).to_pylist()]
