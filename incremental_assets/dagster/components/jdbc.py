"""``incremental_assets.JdbcDatastore``: a schema of any database with a JDBC driver as a Dagster component."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import dagster as dg

from incremental_assets.catalog.inspect import CatalogSource
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.capture import Capture
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.tables import TableDatastore
from incremental_assets.databases.definition import DatastoreSettings
from incremental_assets.databases.jdbc.address import JdbcAddress
from incremental_assets.databases.jdbc.dialect import JdbcDialect
from incremental_assets.databases.jdbc.introspect import JdbcCatalog
from incremental_assets.databases.jdbc.session import JdbcSession
from incremental_assets.project.folders import dagster_home

warnings.filterwarnings("ignore", message='Field name "schema" in "JdbcDatastoreModel" shadows', category=UserWarning)  # see ``postgres``


@dataclass(kw_only=True)
class JdbcDatastore(TableDatastore, dg.Resolvable):
    """A schema of a database with a JDBC driver whose tables are kept in step as Delta tables, one partitioned asset each.

    The attributes are those of ``defs.yaml``; docs/jdbc.md describes them.
    """

    stand_ins: ClassVar[Mapping[str, str]] = {"url": "jdbc:nowhere:", "user": "nobody", "password": "nothing"}
    url: Annotated[str, dg.Resolver.default(description="jdbc:…, without the password", examples=["{{ env.SHOP_URL }}"])]
    schema: Annotated[str, dg.Resolver.default(description="the schema that is read, spelled as the database has it: PUBLIC, APP")]
    driver: Annotated[str, dg.Resolver.default(description="the driver's Java class", examples=["org.h2.Driver"])]
    user: str | None = None
    password: Annotated[str | None, dg.Resolver.default(description="from the environment", examples=["{{ env.SHOP_PASSWORD }}"])] = None
    views: Annotated[Sequence[str], dg.Resolver.default(description="views that are containers, too")] = field(default_factory=list)
    options: Annotated[Mapping[str, str], dg.Resolver.default(description="of Spark's JDBC source, and of the driver")] = field(
        default_factory=dict
    )

    # ------------------------------------------------------------------ for the catalog operation
    @property
    def ui_kind(self) -> str:
        """Dagster's kind of the catalog's asset, for its icon."""
        return "sql"

    @contextlib.contextmanager
    def source(self, before: Catalog | None) -> Iterator[CatalogSource]:
        """A connection to the source as the catalog operation uses it. Raises SourceError."""
        settings = self.settings()
        session = JdbcSession(settings.address, settings.name)
        try:
            yield JdbcCatalog(session, settings.schema, list(self.views))
        finally:
            session.close()

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> DatastoreSettings:
        """The settings of the YAML. Raises ConfigurationError that names the attribute which is wrong, or that JDBC cannot do."""
        for table, entry in self.containers.items():
            if entry.capture not in (None, Capture.NONE):
                raise ConfigurationError(f"{self.name}/{table}: capture follows the log of PostgreSQL; through JDBC none can be followed.")
        address = JdbcAddress(self.url or "", self.driver, dagster_home(), self.user, self.password, dict(self.options))
        return DatastoreSettings(
            **self.common_settings(self.schema), address=address.checked(self.name), dialect=JdbcDialect(), max_source_connections=1
        )
