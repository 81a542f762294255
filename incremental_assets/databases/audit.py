"""Compares a container's table in the lake with the snapshot of the source that is held.

Belongs here: which columns and rows of both sides are compared. Does not belong: the comparison (``core.comparison``), what it has found in
words (``core.audit``), when an audit is made (``databases.sync``, ``dagster.table_adapter``), and repairs (``dagster.audit``).
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.comparison import Comparison, RowScope, compare, key_of, shown_key
from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.plan import AuditRequest
from incremental_assets.databases.source import SourceSnapshot
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def audit(
    snapshot: SourceSnapshot,
    spark: "SparkSession",
    table: LakeTable,
    container: Container,
    partitions: Partitions | None,
    request: AuditRequest,
) -> Comparison:
    """Compares the newest version of the table with the snapshot, which must be held.

    Columns that only the lake has, because the source has dropped them, are not compared. Raises LakeError if there is no table.
    """
    started = time.monotonic()
    head = table.head()
    if head is None:
        raise LakeError(f"{container.label}: there is no table at {table.url} to be audited.")
    in_source = {column.name.lower() for column in snapshot.columns}
    columns = [column for column in head.columns if column.name.lower() in in_source]
    scope = RowScope()
    if request.keys is not None and partitions is not None:
        if isinstance(partitions, IntegerPartitions):
            partitions = partitions.with_keys(request.keys)
        scope = RowScope(partitions.windows_of(request.keys), False)
    lake = LakeHashedRows(spark, table, head.version, container, columns)
    found = compare(snapshot.hashed_rows(columns), lake, partitions, scope)
    types = {column.name.lower(): column.type for column in columns}
    key_types = [types[name.lower()] for name in key_of(container, columns)]
    shown = {kind: [shown_key(key, key_types) for key in keys] for kind, keys in found.examples.items()}
    return replace(found, examples=shown, version=head.version, seconds=time.monotonic() - started)
