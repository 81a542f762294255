"""``incremental_assets.SQLServerDatastore``: a database of SQL Server as a Dagster component."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import dagster as dg

from incremental_assets.catalog.inspect import CatalogSource
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.capture import Capture
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.tables import TableDatastore
from incremental_assets.databases.definition import DatastoreSettings
from incremental_assets.databases.sqlserver.connection import SQLServerAddress
from incremental_assets.databases.sqlserver.dialect import SQLServerDialect
from incremental_assets.databases.sqlserver.introspect import SQLServerCatalog

warnings.filterwarnings(
    "ignore", message='Field name "schema" in "SQLServerDatastoreModel" shadows', category=UserWarning
)  # see ``postgres``


@dataclass(kw_only=True)
class SQLServerDatastore(TableDatastore, dg.Resolvable):
    """A database of SQL Server whose tables and views are kept in step as Delta tables, one partitioned asset each.

    The attributes are those of ``defs.yaml``; docs/sqlserver.md describes them.
    """

    stand_ins: ClassVar[Mapping[str, str]] = {"url": "sqlserver://nobody@localhost/nowhere"}
    url: Annotated[str, dg.Resolver.default(description="sqlserver://user:password@host:port/database", examples=["{{ env.SHOP_URL }}"])]
    schema: Annotated[str | None, dg.Resolver.default(description="the schema that is read; default: dbo")] = None
    finer_times: Annotated[
        Literal["refuse", "cut"],
        dg.Resolver.default(description="what becomes of a time with a seventh digit: it fails the sync, or is cut"),
    ] = "refuse"

    # ------------------------------------------------------------------ for the catalog operation
    @property
    def ui_kind(self) -> str:
        """Dagster's kind of the catalog's asset, for its icon."""
        return "sqlserver"

    @contextlib.contextmanager
    def source(self, before: Catalog | None) -> Iterator[CatalogSource]:
        """A connection to the source as the catalog operation uses it. Raises SourceError."""
        settings = self.settings()
        connection = settings.address.connect()
        try:
            yield SQLServerCatalog(connection, settings.name, settings.schema, settings.address)
        finally:
            connection.close()

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> DatastoreSettings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong, or that SQL Server cannot do."""
        address = SQLServerAddress.parse(self.name, self.url)
        for table, entry in self.containers.items():
            if entry.capture not in (None, Capture.NONE):
                raise ConfigurationError(f"{self.name}/{table}: capture follows the log of PostgreSQL; SQL Server's cannot be followed.")
        return DatastoreSettings(
            **self.common_settings(self.schema or "dbo"),
            address=address,
            dialect=SQLServerDialect(cuts_times=self.finer_times == "cut"),
            max_source_connections=1,
        )
