"""Creates a container's table, and changes its schema as the source's columns change.

Belongs here: CREATE TABLE, and the ALTER TABLE statements of a schema evolution. Does not belong: deciding which changes are needed
(``core.schema``). Delta's automatic schema merging is not used: it keeps the old values of a dropped column, and drops additional columns
without an error.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.container import Container
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.schema import Column, Evolution
from incremental_assets.core.spark_types import names_within
from incremental_assets.delta.table import CONTAINER_PROPERTY, STATE_PROPERTY, Head, LakeTable
from incremental_assets.delta.write_batch import WriteBatch

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_NTZ = "timestamp_ntz"
_NEEDS_MAPPING = set(" ,;{}()\n\t=")
"""Characters that Delta does not accept in a column's name unless column mapping is on, because the names of Parquet columns cannot have
them."""


def create_table(spark: "SparkSession", table: LakeTable, write_batch: WriteBatch) -> None:
    """Creates an empty table whose properties name its owner and say that no rows were loaded.

    If the process is killed right afterwards, the next sync finds such a table and loads the container as for the first time.
    """
    container = write_batch.container
    nothing = replace(write_batch.state, loaded=False, watermark=None, pending=(), fingerprint=None, data_version=None)
    columns = ", ".join(f"{quote(c.name)} {c.type}" for c in write_batch.columns)
    cluster = ""
    if container.options.cluster and container.identifier is not None:
        cluster = f" CLUSTER BY ({', '.join(quote(name) for name in container.identifier.columns)})"
    comment = f" COMMENT {text(container.comment)}" if container.comment else ""
    # IF NOT EXISTS is needed because Spark's client sends a request again if the answer was lost. The table may then exist already.
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({columns}) USING delta{cluster}{comment} "
        f"TBLPROPERTIES ({_properties(table_properties(container, write_batch.columns, nothing.to_json(container.cursor_type)))})"
    )


def table_properties(container: Container, columns: Sequence[Column], state: str) -> dict[str, str]:
    """The properties of a new table. ``state`` is the sync state as JSON."""
    properties = {
        CONTAINER_PROPERTY: container.label,
        STATE_PROPERTY: state,
        "delta.enableDeletionVectors": str(container.options.deletion_vectors).lower(),
    }
    return properties | (_MAPPING if _mapped(columns) else {})


_MAPPING = {"delta.columnMapping.mode": "name"}


def evolve_table(spark: "SparkSession", table: LakeTable, head: Head, evolution: Evolution) -> None:
    """Adds and widens the columns of a table. Dropped columns stay in the table; new rows have NULL in them."""
    allow_names(spark, table, head, evolution.add)
    new = [*evolution.add, *(wide for _, wide in evolution.widen)]
    if any(_NTZ in column.type for column in new) and not any(_NTZ in column.type for column in head.columns):
        # Delta enables this feature by itself for new tables only.
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    if evolution.add:
        added = ", ".join(f"{quote(c.name)} {c.type}" for c in evolution.add)
        spark.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS ({added})")
    if evolution.widen and head.properties.get("delta.enableTypeWidening") != "true":
        # The feature is switched on at the first widening and not before: readers that do not know it cannot read the table's rows then.
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for _, wide in evolution.widen:
        spark.sql(f"ALTER TABLE {table.sql_name} ALTER COLUMN {quote(wide.name)} TYPE {wide.type}")


def allow_names(spark: "SparkSession", table: LakeTable, head: Head, columns: Sequence[Column]) -> None:
    """Switches on column mapping by name, if one of these columns needs it and the table does not have it yet."""
    if _mapped(columns) and head.properties.get("delta.columnMapping.mode", "none") == "none":
        spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({_properties(_MAPPING)})")


def _mapped(columns: Sequence[Column]) -> bool:
    return any(_NEEDS_MAPPING & set(name) for column in columns for name in (column.name, *names_within(column.type)))


def _properties(properties: dict[str, str]) -> str:
    return ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
