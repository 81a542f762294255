"""Making a container's table, and letting it follow its source's columns: explicit statements, never a merge of schemas.

Belongs here: CREATE TABLE and the ALTERs of an evolution. Does not belong: deciding it (``core.schema``).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.container import Container
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.schema import Column, Evolution
from incremental_assets.core.spark_types import names_within
from incremental_assets.delta.extraction import Extraction
from incremental_assets.delta.table import CONTAINER_PROPERTY, STATE_PROPERTY, Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_NEEDS_MAPPING = set(" ,;{}()\n\t=")
"""Characters that Parquet column names cannot have; Delta then maps names to its own."""


def create_table(spark: "SparkSession", table: LakeTable, extraction: Extraction) -> None:
    """An empty table that already says whose it is, and that nothing is in it: a crash right after costs nothing but the time."""
    container = extraction.container
    nothing = replace(extraction.state, loaded=False, watermark=None, pending=(), fingerprint=None, data_version=None)
    columns = ", ".join(f"{quote(c.name)} {c.type}" for c in extraction.columns)
    cluster = ""
    if container.options.cluster and container.identifier is not None:
        cluster = f" CLUSTER BY ({', '.join(quote(name) for name in container.identifier.columns)})"
    comment = f" COMMENT {text(container.comment)}" if container.comment else ""
    # Spark's client asks once more where the answer was lost: the table that is there then is the one of the first time.
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({columns}) USING delta{cluster}{comment} "
        f"TBLPROPERTIES ({_properties(table_properties(container, extraction.columns, nothing.to_json(container.axis)))})"
    )


def table_properties(container: Container, columns: Sequence[Column], state: str) -> dict[str, str]:
    properties = {
        CONTAINER_PROPERTY: container.label,
        STATE_PROPERTY: state,
        "delta.enableDeletionVectors": str(container.options.deletion_vectors).lower(),
    }
    return properties | (_MAPPING if _mapped(columns) else {})


_MAPPING = {"delta.columnMapping.mode": "name"}


def evolve_table(spark: "SparkSession", table: LakeTable, head: Head, evolution: Evolution) -> None:
    allow_names(spark, table, head, evolution.add)
    if evolution.add:
        added = ", ".join(f"{quote(c.name)} {c.type}" for c in evolution.add)
        spark.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS ({added})")
    if evolution.widen and head.properties.get("delta.enableTypeWidening") != "true":
        # Only now: readers that do not know the feature can no longer read the table's rows.
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for _, new in evolution.widen:
        spark.sql(f"ALTER TABLE {table.sql_name} ALTER COLUMN {quote(new.name)} TYPE {new.type}")


def allow_names(spark: "SparkSession", table: LakeTable, head: Head, columns: Sequence[Column]) -> None:
    """Switches name mapping on where these columns need it and the table does not have it yet."""
    if _mapped(columns) and head.properties.get("delta.columnMapping.mode", "none") == "none":
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({_properties(_MAPPING)})")


def _mapped(columns: Sequence[Column]) -> bool:
    return any(_NEEDS_MAPPING & set(name) for column in columns for name in (column.name, *names_within(column.type)))


def _properties(properties: dict[str, str]) -> str:
    return ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
