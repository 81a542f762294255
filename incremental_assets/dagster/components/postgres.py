"""``incremental_assets.PostgresDatastore``: a PostgreSQL schema as a Dagster component."""

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import dagster as dg

from incremental_assets.catalog.inspect import CatalogSource
from incremental_assets.catalog.state import Catalog
from incremental_assets.core.capture import Capture
from incremental_assets.core.container import RowSecurity
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.tables import TableDatastore
from incremental_assets.databases.definition import CAPTURE_WARNING_BYTES, DatastoreSettings
from incremental_assets.databases.postgres.connection import PostgresAddress
from incremental_assets.databases.postgres.dialect import PostgresDialect
from incremental_assets.databases.postgres.introspect import PostgresCatalog
from incremental_assets.project.scaffold import DatastoreScaffolder

# The attribute is called `schema` in the YAML. Pydantic's base class has a deprecated method of that name, which is not used; the warning
# would be shown at each load of a project.
warnings.filterwarnings("ignore", message='Field name "schema" in "PostgresDatastoreModel" shadows', category=UserWarning)


@dg.scaffold_with(DatastoreScaffolder)
@dataclass(kw_only=True)
class PostgresDatastore(TableDatastore, dg.Resolvable):
    """A PostgreSQL schema whose tables and views are kept in step as Delta tables, one partitioned asset each.

    The attributes are those of ``defs.yaml``; docs/configuration.md describes them.
    """

    stand_ins: ClassVar[Mapping[str, str]] = {"url": "postgresql://nobody@localhost/nowhere"}
    url: Annotated[str, dg.Resolver.default(description="postgresql://user:password@host:port/database", examples=["{{ env.SHOP_URL }}"])]
    schema: str = "public"
    max_source_connections: int = 8
    capture: Literal["none", "log"] = "none"
    capture_slot: str | None = None
    capture_warning_bytes: int = CAPTURE_WARNING_BYTES
    row_security: Literal["refuse", "accept"] = "refuse"

    # ------------------------------------------------------------------ for the catalog operation
    @property
    def ui_kind(self) -> str:
        """Dagster's kind of the catalog's asset, for its icon."""
        return "postgres"

    @contextlib.contextmanager
    def source(self, before: Catalog | None) -> Iterator[CatalogSource]:
        """A connection to the source as the catalog operation uses it. Raises SourceError."""
        settings = self.settings()
        with settings.address.connect() as connection:
            yield PostgresCatalog(connection, settings.name, settings.schema, settings.address, settings.row_security_of)

    # ------------------------------------------------------------------ YAML → settings
    def settings(self) -> DatastoreSettings:
        common = self.common_settings(self.schema)
        # A sync has a connection for its plan and snapshot, one to see who waits for its lock, and at least one reader.
        if self.max_source_connections < 3:
            raise ConfigurationError(f"{self.name}: max_source_connections is {self.max_source_connections}; a sync needs at least 3.")
        if self.capture_warning_bytes < 1:
            raise ConfigurationError(f"{self.name}: capture_warning_bytes is {self.capture_warning_bytes}; it is at least 1.")
        return DatastoreSettings(
            **common,
            address=PostgresAddress.parse(self.name, self.url),
            dialect=PostgresDialect(),
            max_source_connections=self.max_source_connections,
            capture=Capture(self.capture),
            capture_slot=_slot(self.name, self.capture_slot),
            capture_warning_bytes=self.capture_warning_bytes,
            row_security=RowSecurity(self.row_security),
        )


def _slot(datastore: str, name: str | None) -> str | None:
    """The name of the datastore's slot. Raises ConfigurationError where PostgreSQL permits no such name."""
    if name is not None and not re.fullmatch(r"[a-z0-9_]{1,63}", name):
        raise ConfigurationError(
            f"{datastore}: capture_slot is {name!r}; the name of a replication slot has small letters, digits and underscores, up to 63."
        )
    return name
