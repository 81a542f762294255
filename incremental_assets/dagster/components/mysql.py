"""``incremental_assets.MySQLDatastore``: a database of MySQL or MariaDB as a Dagster component."""

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
from incremental_assets.databases.mysql.connection import MySQLAddress
from incremental_assets.databases.mysql.dialect import MySQLDialect
from incremental_assets.databases.mysql.introspect import MySQLCatalog

warnings.filterwarnings("ignore", message='Field name "schema" in "MySQLDatastoreModel" shadows', category=UserWarning)  # see ``postgres``


@dataclass(kw_only=True)
class MySQLDatastore(TableDatastore, dg.Resolvable):
    """A database of MySQL or MariaDB whose tables and views are kept in step as Delta tables, one partitioned asset each.

    The attributes are those of ``defs.yaml``; docs/mysql.md describes them.
    """

    stand_ins: ClassVar[Mapping[str, str]] = {"url": "mysql://nobody@localhost/{schema}"}
    url: Annotated[str, dg.Resolver.default(description="mysql://user:password@host:port/database", examples=["{{ env.SHOP_URL }}"])]
    schema: Annotated[str | None, dg.Resolver.default(description="the database that is read; default: that of the url")] = None
    zero_dates: Annotated[
        Literal["refuse", "null"], dg.Resolver.default(description="what becomes of 0000-00-00: it fails the sync, or is NULL in the lake")
    ] = "refuse"

    # ------------------------------------------------------------------ for the catalog operation
    @property
    def ui_kind(self) -> str:
        """Dagster's kind of the catalog's asset, for its icon."""
        return "mysql"

    @contextlib.contextmanager
    def source(self, before: Catalog | None) -> Iterator[CatalogSource]:
        """A connection to the source as the catalog operation uses it. Raises SourceError."""
        settings = self.settings()
        connection = settings.address.connect()
        try:
            yield MySQLCatalog(connection, settings.name, settings.schema, settings.address)
        finally:
            connection.close()

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> DatastoreSettings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong, or that MySQL cannot do."""
        address = MySQLAddress.parse(self.name, self.url)
        for table, entry in self.containers.items():
            if entry.capture not in (None, Capture.NONE):
                raise ConfigurationError(f"{self.name}/{table}: capture follows the log of PostgreSQL; MySQL's cannot be followed.")
        return DatastoreSettings(
            **self.common_settings(self.schema or address.database),
            address=address,
            dialect=MySQLDialect(zero_dates_are_null=self.zero_dates == "null"),
            max_source_connections=1,
        )
