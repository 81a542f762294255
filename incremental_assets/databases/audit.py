"""Compares a container's table in the lake with the snapshot of the source that is held, and says what the comparison has found.

Belongs here: which columns and rows of both sides are compared, and the metadata of an audit. Does not belong: the comparison
(``core.comparison``), when an audit is made (``databases.sync``, ``dagster.table_adapter``), and repairs (``dagster.audit``).
"""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from incremental_assets.core.comparison import Comparison, Difference, RowScope, compare, key_of, shown_key
from incremental_assets.core.container import Container
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.errors import LakeError
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.plan import AuditRequest
from incremental_assets.databases.source import SourceSnapshot
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.delta.table import Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

SUMMARY = "audit/summary"
"""The metadata key of the numbers of an audit, as JSON (``summary_of``)."""


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
    lake = LakeHashedRows(spark, table, head.version, container, columns, _marks(container, head, in_source))
    found = compare(snapshot.hashed_rows(columns), lake, partitions, scope)
    types = {column.name.lower(): column.type for column in columns}
    key_types = [types[name.lower()] for name in key_of(container, columns)]
    shown = {kind: [shown_key(key, key_types) for key in keys] for kind, keys in found.examples.items()}
    return replace(found, examples=shown, version=head.version, seconds=time.monotonic() - started)


def _marks(container: Container, head: Head, in_source: Collection[str]) -> str | None:
    """The name of the table's column that marks deleted rows; None if there is none. ``in_source``: the names of the columns that are read.

    A table keeps the column, and its marks, where ``deletes`` is no longer ``soft``. The source may have a column of that name, too.
    """
    is_own = container.options.deletes is Deletes.SOFT or MARK.name not in in_source
    return MARK.name if is_own and MARK in head.columns else None


def summary_of(found: Comparison) -> dict[str, Any]:
    """The numbers of an audit as plain values: the fields of a record of ``audit --json``."""
    return {
        "rows": found.rows,
        "partitions_checked": len(found.keys),
        "partitions_different": [one.key for one in found.different],
        **{kind.value: found.counts[kind] for kind in Difference},
        "examples": {kind.value: [list(key) for key in found.examples.get(kind, ())] for kind in Difference},
        "delta_version": found.version,
        "seconds": round(found.seconds, 3),
    }


def audit_values(found: Comparison) -> dict[str, Any]:
    """The metadata of the audit of a sync that had nothing to do."""
    return {
        "sync/status": "skipped" if found.equal else "warning",
        "sync/message": message_of(found),
        SUMMARY: summary_of(found),
    }


def message_of(found: Comparison) -> str:
    """What the audit has found, in words."""
    if found.equal:
        where = "1 partition" if len(found.keys) == 1 else f"{len(found.keys):,} partitions"
        return f"audit: {found.rows:,} rows in {where} are equal in source and lake"
    numbers = ", ".join(f"{found.counts[kind]:,} {kind.value}" for kind in Difference if found.counts[kind])
    named = ", ".join(one.key or "the rows without identifier" for one in found.different[:5])
    more = f" and {len(found.different) - 5} more" if len(found.different) > 5 else ""
    where = f"in {len(found.different):,} of {len(found.keys):,} partitions ({named}{more})" if len(found.keys) > 1 else ""
    return f"audit: source and lake differ {where}: {numbers}" if where else f"audit: source and lake differ: {numbers}"
