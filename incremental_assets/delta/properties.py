"""Sets a property of a table, such as the sync state, by a commit without rows: through Spark, or without it in milliseconds."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.names import literal as text
from incremental_assets.core.schema import with_comments
from incremental_assets.delta.log import commit_info, write_version
from incremental_assets.delta.log_schema import commented
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_WRITER_FEATURES = frozenset(("appendOnly", "invariants", "deletionVectors", "timestampNtz", "columnMapping", "variantType"))
"""The table features that ask nothing of a commit that only changes a property."""


def set_property(
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    name: str,
    value: str,
    added_version: int | None = None,
    comments: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Sets a table property by a commit without rows. ``spark`` returns a session and is called only if Spark has to do it.

    This commit is a fence, too: by Delta's conflict rules a change of the metadata makes every write fail that was planned before it. A
    query that a killed client left running on the Spark server can therefore no longer commit.

    ``added_version``: the table's newest version, if Spark has not written it. Spark would have to read this version first, with
    all its statistics, so the property is set without Spark, too, where that is possible. ``comments``: those that the columns have
    from then on (``Container.comments``); they are in the same commit, except for Spark's, which has one more if a comment is another one.
    """
    if added_version is not None and _set(table, table.opened_at(added_version), name, value, comments):
        return
    head = table.head() if comments else None
    if head is not None:
        # They come first: with the property set, the next sync might have nothing to write, and would leave them as they were.
        wanted = zip(head.columns, with_comments(head.columns, comments), strict=True)
        others = [f"{quote(new.name)} COMMENT {text(new.comment or '')}" for old, new in wanted if old.comment != new.comment]
        if others:
            spark().sql(f"ALTER TABLE {table.sql_name} ALTER COLUMN {', '.join(others)}")
    spark().sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({text(name)} = {text(value)})")


def set_property_without_spark(table: LakeTable, version: int, name: str, value: str) -> bool:
    """Sets a table property by the same kind of commit, and only if ``version`` is the table's newest version.

    Returns False if nothing was written: there is no table, there was a concurrent write, or the table has a feature that asks more of a
    writer.

    delta-rs has a function for this, ``set_table_properties``. It is not used: of a table with table features (version 1.6) it raises the
    protocol by the feature ``variantType``, after which many readers refuse the table.
    """
    delta = table.log_opened()
    return delta is not None and delta.version() == version and _set(table, delta, name, value)


def _set(table: LakeTable, delta: DeltaTable, name: str, value: str, comments: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Sets the property, and these comments of columns, if the version that is opened is the newest one, and asks no more of a writer."""
    if _asks_more(delta):
        return False
    said, columns = {"properties": json.dumps({name: value})}, commented(delta.schema().to_json(), comments) if comments else None
    actions = metadata_actions(delta, "SET TBLPROPERTIES", said, properties={name: value}, schema_string=columns)
    return write_version(table.address, delta.version() + 1, actions)


def is_set_without_spark(table: LakeTable) -> bool:
    """Whether ``set_property_without_spark`` can write to this table."""
    return metadata_opened(table) is not None


def metadata_opened(table: LakeTable) -> DeltaTable | None:
    """The table, if its metadata can be changed without Spark."""
    delta = table.log_opened()
    return None if delta is None or _asks_more(delta) else delta


def _asks_more(delta: DeltaTable) -> bool:
    """Whether the table has a feature that asks more of a commit that only changes a property."""
    protocol = delta.protocol()
    return protocol.min_writer_version >= 7 and bool(set(protocol.writer_features or ()) - _WRITER_FEATURES)


def metadata_actions(
    delta: DeltaTable,
    operation: str,
    parameters: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
    schema_string: str | None = None,
) -> list[dict[str, object]]:
    """The actions of a commit that changes the table's metadata, as Delta's protocol describes the action ``metaData``.

    ``operation``, ``parameters``: how the log names the change. ``properties``: those that are set. ``schema_string``: the columns; None:
    they stay.
    """
    return [commit_info(operation, parameters), metadata_of(delta, properties=properties, schema_string=schema_string)]


def metadata_of(delta: DeltaTable, *, properties: Mapping[str, str] | None = None, schema_string: str | None = None) -> dict[str, object]:
    """The action ``metaData`` of the table, with these properties set, and other columns if they are given."""
    known = delta.metadata()
    metadata = {
        "id": str(known.id),
        "name": known.name,
        "description": known.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string or delta.schema().to_json(),
        "partitionColumns": list(known.partition_columns),
        "configuration": {**known.configuration, **(properties or {})},
        "createdTime": known.created_time,
    }
    return {"metaData": {key: one for key, one in metadata.items() if one is not None}}
