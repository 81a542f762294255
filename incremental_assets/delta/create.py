"""Creates a container's table without rows, in milliseconds without Spark where that is possible."""

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.schema import mapped_names
from incremental_assets.delta.engine import why_spark_writes
from incremental_assets.delta.evolve import MAPPING, VECTORS, assignments, column_sql
from incremental_assets.delta.log import commit_info, write_version
from incremental_assets.delta.log_schema import NTZ, are_plain, schema_string
from incremental_assets.delta.store import folder_at
from incremental_assets.delta.table import CONTAINER_PROPERTY, STATE_PROPERTY, LakeTable
from incremental_assets.delta.write_batch import WriteBatch
from incremental_assets.spark.embedded.launch import own_settings

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

MOST_PLAIN_BYTES = 64 << 20
"""A table whose source has so many bytes, with its indexes, gets no deletion vectors by ``deletion_vectors: auto``: files that change are
written anew as fast as their rows would be marked, and more programs can read them (``python -m benchmarks.deletion_vectors``)."""
MOST_PLAIN_ROWS = 300_000
"""The same where the size is not known, as of a table of PostgreSQL that nothing has analyzed yet: the rows of the first batch."""
_OF_NEW_TABLES = "spark.databricks.delta.properties.defaults."
"""With this begin the settings of Spark that give properties to all new tables."""


def create_table(spark: Callable[[], "SparkSession"], table: LakeTable, write_batch: WriteBatch) -> None:
    """Creates an empty table whose properties name its owner and say that no rows were loaded, unless there is a table.

    If the process is killed right afterwards, the next sync finds such a table and loads the container as for the first time. ``spark``
    returns a session and is called only if Spark has to do it.
    """
    container = write_batch.container
    nothing = replace(write_batch.state, loaded=False, watermark=None, pending=(), fingerprint=None, data_version=None, data_commit=None)
    properties = _properties(write_batch, nothing.to_json(container.cursor_type, container.partitioned_on))
    if not _is_left_to_spark(table, write_batch) and _create_here(table, write_batch, properties):
        return
    columns = ", ".join(map(column_sql, write_batch.columns))
    cluster = ""
    if container.options.cluster and container.axis is not None:
        cluster = f" CLUSTER BY ({', '.join(quote(name) for name in container.axis.columns)})"
    comment = f" COMMENT {text(container.comment)}" if container.comment else ""
    # IF NOT EXISTS is needed because Spark's client sends a request again if the answer was lost. The table may then exist already.
    spark().sql(
        f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({columns}) USING delta{cluster}{comment} TBLPROPERTIES ({assignments(properties)})"
    )


def _properties(write_batch: WriteBatch, state: str) -> dict[str, str]:
    """The properties of a new table. ``state`` is the sync state as JSON."""
    properties = {
        CONTAINER_PROPERTY: write_batch.container.label,
        STATE_PROPERTY: state,
        VECTORS: str(_has_vectors(write_batch)).lower(),
    }
    return properties | (MAPPING if mapped_names(write_batch.columns) else {})


def _has_vectors(write_batch: WriteBatch) -> bool:
    """Whether the table gets deletion vectors: as the YAML says, else if its source is not small."""
    container = write_batch.container
    if container.options.deletion_vectors is not None:
        return container.options.deletion_vectors
    return write_batch.expected > MOST_PLAIN_ROWS if container.bytes is None else container.bytes > MOST_PLAIN_BYTES


def _is_left_to_spark(table: LakeTable, write_batch: WriteBatch) -> bool:
    """Whether Spark may make another table of it than this process: by its own settings, which a server elsewhere may have, or by the
    names and types of columns."""
    if (
        why_spark_writes(write_batch.container.engine)
        or os.environ.get("SPARK_REMOTE")
        or any(name.startswith(_OF_NEW_TABLES) for name in own_settings())
    ):
        return True
    return write_batch.container.options.cluster or not are_plain(write_batch.columns)


def _create_here(table: LakeTable, write_batch: WriteBatch, properties: Mapping[str, str]) -> bool:
    """Writes version 0. Returns False if nothing was written: the folder has files, or cannot be written."""
    folder = folder_at(table.address)
    try:
        folder.make("_delta_log")
        # What a process has left that was killed here has a name with a dot; the name of a version has none in front.
        there = [*folder.names(), *folder.names("_delta_log")]
    except OSError:
        return False
    if any(not name.startswith(".") and name != "_delta_log" for name in there):
        return False
    described = {"properties": json.dumps(properties), "description": write_batch.container.comment, "isManaged": "false"}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(write_batch.columns),
        "partitionColumns": [],
        "configuration": properties,
        "createdTime": int(time.time() * 1000),
    }
    if write_batch.container.comment:
        metadata["description"] = write_batch.container.comment
    info = commit_info("CREATE TABLE", described)
    return write_version(table.address, 0, [info, {"metaData": metadata}, {"protocol": _protocol(write_batch)}])


def _protocol(write_batch: WriteBatch) -> dict[str, Any]:
    """What readers and writers of the table have to know: no more than it needs, as Spark does it."""
    features = ["deletionVectors"] if _has_vectors(write_batch) else []
    if any(NTZ in column.type for column in write_batch.columns):
        features.append("timestampNtz")
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {**versions, "readerFeatures": features, "writerFeatures": [*features, "invariants", "appendOnly"]}
