"""Changes the schema of a container's table as the source's columns change.

Delta's automatic schema merging is not used: it keeps the old values of a dropped column, and drops additional columns without an error.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from incremental_assets.core.container import Engine
from incremental_assets.core.deletes import MARK
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.nested_types import added_fields
from incremental_assets.core.schema import Column, Evolution, mapped_names
from incremental_assets.delta.engine import why_spark_writes
from incremental_assets.delta.log import write_version
from incremental_assets.delta.log_schema import NTZ, are_plain, declared
from incremental_assets.delta.properties import metadata_actions, metadata_opened
from incremental_assets.delta.table import Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

VECTORS = "delta.enableDeletionVectors"
"""The property of a table in whose files rows may be marked as deleted."""
MAPPING = {"delta.columnMapping.mode": "name"}
"""The properties of a table whose columns may have any names."""


def evolve_table(
    spark: "Callable[[], SparkSession]", table: LakeTable, head: Head, evolution: Evolution, engine: Engine = Engine.AUTO
) -> None:
    """Adds and widens columns, and adds fields to structs. Dropped columns stay in the table; new rows have NULL in them.

    ``spark`` returns a session and is called only if Spark has to do it.
    """
    if not (why_spark_writes(engine) or evolution.widen or evolution.grow) and _add_here(table, head, evolution.add):
        return
    allow_names(spark, table, head, evolution.add)
    session = spark()
    changed = [wide for _, wide in (*evolution.widen, *evolution.grow)]
    allow_names(spark, table, head, changed)
    allow_types(spark, table, head, [*evolution.add, *changed])
    if evolution.add:
        added = ", ".join(f"{column_sql(c)}{_place(head, evolution, i)}" for i, c in enumerate(evolution.add))
        session.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS ({added})")
    for old, new in evolution.grow:
        fields = ", ".join(f"{field.sql_name} {field.type}" for field in added_fields(old.name, old.type, new.type))
        session.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS ({fields})")
    if evolution.widen and head.properties.get("delta.enableTypeWidening") != "true":
        # The feature is switched on at the first widening and not before: readers that do not know it cannot read the table's rows then.
        session.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for _, wide in evolution.widen:
        session.sql(f"ALTER TABLE {table.sql_name} ALTER COLUMN {quote(wide.name)} TYPE {wide.type}")


def _add_here(table: LakeTable, head: Head, added: Sequence[Column]) -> bool:
    """Adds columns by a commit without rows, which takes milliseconds. Returns False if nothing was done and Spark has to do it."""
    if head.is_mapped or not are_plain(added) or any(NTZ in c.type for c in added):
        return False
    delta = metadata_opened(table)
    if delta is None or delta.version() != head.version:
        return False
    schema = json.loads(delta.schema().to_json())
    at = len(schema["fields"]) - (head.columns[-1] == MARK)
    new = [declared(column) for column in added]
    schema["fields"][at:at] = new
    said = {"columns": json.dumps([{"column": one} for one in new])}
    return write_version(
        table.address, head.version + 1, metadata_actions(delta, "ADD COLUMNS", said, schema_string=json.dumps(schema, ensure_ascii=False))
    )


def _place(head: Head, evolution: Evolution, number: int) -> str:
    """Where an added column comes: before the marks of deleted rows, so that the columns stay in the order in which they are read."""
    if head.columns[-1] != MARK or len(head.columns) < 2:
        return ""
    before = evolution.add[number - 1] if number else head.columns[-2]
    return f" AFTER {quote(before.name)}"


def allow_names(spark: "Callable[[], SparkSession]", table: LakeTable, head: Head, columns: Sequence[Column]) -> None:
    """Switches on column mapping by name, if one of these columns needs it and the table does not have it yet."""
    if mapped_names(columns) and not head.is_mapped:
        spark().sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({assignments(MAPPING)})")


def allow_types(spark: "Callable[[], SparkSession]", table: LakeTable, head: Head, columns: Sequence[Column]) -> None:
    """Switches on the feature of times without time zone, if one of these columns needs it and the table does not have it yet.

    Delta does so by itself for new tables only.
    """
    if any(NTZ in column.type for column in columns) and not any(NTZ in column.type for column in head.columns):
        spark().sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")


def allow_vectors(spark: "Callable[[], SparkSession]", table: LakeTable, head: Head) -> bool:
    """Switches on deletion vectors, if the table does not have them yet. Returns whether it did."""
    if head.properties.get(VECTORS) == "true":
        return False
    spark().sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({assignments({VECTORS: 'true'})})")
    return True


def column_sql(column: Column) -> str:
    """A column as Spark SQL declares it."""
    return f"{quote(column.name)} {column.type}" + (f" COMMENT {text(column.comment)}" if column.comment else "")


def assignments(properties: Mapping[str, str]) -> str:
    """The properties as Spark SQL has them between parentheses."""
    return ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
