"""Registers a table of the lake in a metastore (Hive's, Unity Catalog, or another catalog of Spark's), so that it has a name for SQL.

The table is an external one: the metastore has its name and its location. Schema, rows and partitions are read from Delta's own log, so
that nothing has to be registered again after a sync.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import backticked, encode_name, literal
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

SPARK_CATALOG = "spark_catalog"
"""Spark's own catalog, which is that of a Hive metastore where the server has one."""


_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


class Published(str, Enum):
    """What has become of a table's name."""

    CREATED = "created"
    THERE = "there"


@dataclass(frozen=True)
class PublishedName:
    """A name of a table for SQL. ``table``: in small letters, digits and underscores, as metastores have no other characters."""

    catalog: str
    schema: str
    table: str

    @classmethod
    def of(cls, catalog: str, schema: str, container: str) -> "PublishedName":
        """The name of a container: ``order items`` → ``order_u20_items``. Metastores do not tell upper from lower case."""
        return cls(catalog, schema, encode_name(container).lower())

    @property
    def sql_name(self) -> str:
        """The name as it is written in a statement."""
        return f"{backticked(self.catalog)}.{backticked(self.schema)}.{backticked(self.table)}"

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


def expect_metastore(spark: "SparkSession", catalog: str) -> None:
    """Raises ConfigurationError if Spark has no such catalog, or one that its server keeps in its memory."""
    if catalog != SPARK_CATALOG and not spark.conf.get(f"spark.sql.catalog.{catalog}", ""):
        raise ConfigurationError(
            f"Spark has no catalog {catalog!r}: the setting spark.sql.catalog.{catalog} of its server is missing. Nothing was published. "
            "docs/publishing.md has examples."
        )
    own = spark.conf.get("spark.sql.catalog.spark_catalog", "") == _DELTA_CATALOG
    if catalog == SPARK_CATALOG and own and spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory":
        raise ConfigurationError(
            "Spark has no metastore, so the names would be gone when its server ends. Nothing was published. "
            "docs/publishing.md says which settings of Spark lead to one."
        )


def publish(spark: "SparkSession", label: str, table: LakeTable, name: PublishedName) -> Published:
    """Registers the table under the name, with its schema where that is missing. ``label``: of the container, for messages.

    Raises ConfigurationError where the name is that of another table, and LakeError where the metastore fails.
    """
    with lake_errors(label, table.url):
        schema = f"{backticked(name.catalog)}.{backticked(name.schema)}"
        found = spark.sql(f"SHOW TABLES IN {schema} LIKE {literal(name.table)}").collect() if _has_schema(spark, name) else []
        if not found:
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            spark.sql(f"CREATE TABLE {name.sql_name} USING delta LOCATION {literal(table.url)}")
        # Also after the statement: another process may have created the name at the same time.
        at = _location(spark, name)
    if at != _plain(table.url):
        raise _is_taken(label, table, name, at)
    return Published.THERE if found else Published.CREATED


def _is_taken(label: str, table: LakeTable, name: PublishedName, at: str) -> ConfigurationError:
    return ConfigurationError(
        f"{label}: {name} is a table at {at} already, and this one is at {table.url}. Publish it into another schema, or take the name "
        f"from the other one: DROP TABLE {name.sql_name} removes the name of an external table, and none of its rows."
    )


def _has_schema(spark: "SparkSession", name: PublishedName) -> bool:
    rows = spark.sql(f"SHOW SCHEMAS IN {backticked(name.catalog)}").collect()
    return any(row[0].lower() == name.schema.lower() for row in rows)


def _location(spark: "SparkSession", name: PublishedName) -> str:
    [row] = spark.sql(f"DESCRIBE DETAIL {name.sql_name}").select("location").collect()
    return _plain(row[0])


def _plain(url: str) -> str:
    """A location without the ways of writing that differ between Spark and this project."""
    return url.removeprefix("file://").removeprefix("file:").rstrip("/")
