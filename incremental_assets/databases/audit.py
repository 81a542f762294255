"""Compares a container's table in the lake with the snapshot of the source that is held."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.comparison import Comparison, RowScope, compare, key_of, shown_key
from incremental_assets.core.container import Container
from incremental_assets.core.deletes import MARK, Deletes
from incremental_assets.core.errors import LakeError
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.plan import AuditRequest
from incremental_assets.core.schema import Column
from incremental_assets.core.window import EVERYTHING, Window
from incremental_assets.databases.hidden_rows import policies_in_force, said_of
from incremental_assets.databases.source import SourceDatabase, SourceSnapshot, along_axis
from incremental_assets.databases.unplaced import said_of as unplaced_said
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.delta.local_hashed_rows import are_hashed_here
from incremental_assets.delta.table import Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


def is_audited_here(table: LakeTable, container: Container, partitions: Partitions | None, request: AuditRequest) -> bool:
    """Whether this process hashes the rows of the lake that an audit compares, so that it needs no Spark.

    It is asked before the snapshot, so that none is held while a Spark server starts. A table that is still to be made is not known yet.
    """
    head = table.head()
    return head is not None and are_hashed_here(table, head, container.along_axis, _asked(_known(partitions, request), request))


def audit(
    snapshot: SourceSnapshot,
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    container: Container,
    partitions: Partitions | None,
    request: AuditRequest,
    source: SourceDatabase,
    most: int,
) -> Comparison:
    """Compares the newest version of the table with the snapshot, which must be held.

    ``most``: about how many rows are compared at most; more are left to comparisons in later snapshots (``Comparison.following``). Columns
    that only the lake has, because the source has dropped them, are not compared. Raises LakeError if there is no table.
    """
    started = time.monotonic()
    head = table.head()
    if head is None:
        raise LakeError(f"{container.label}: there is no table at {table.url} to be audited.")
    in_source = {column.name.lower() for column in snapshot.columns}
    columns = [column for column in head.columns if column.name.lower() in in_source]
    partitions = _known(partitions, request)
    lake = LakeHashedRows(spark, table, head.version, container.along_axis, columns, _marks(container, head, in_source))
    with along_axis(source):  # the windows of both sides are those of partitions
        scope, following = _scope(source, partitions, request, most)
        found = compare(snapshot.hashed_rows(columns), lake, partitions, scope)
    hidden, unplaced = said_of(policies_in_force(container, source)), source.unplaced()
    left_out = [hidden] * bool(hidden) + ([unplaced_said(container, unplaced)] if unplaced is not None else [])
    found = replace(found, notes=(*found.notes, *left_out))
    found = _with_shown_keys(found, container, columns)
    return replace(found, version=head.version, seconds=time.monotonic() - started, following=following)


def is_compared_here(table: LakeTable, container: Container, scope: RowScope) -> bool:
    """The same of ``compare_as_one``."""
    head = table.head()
    return head is not None and are_hashed_here(table, head, _plain(container), scope)


def compare_as_one(
    snapshot: SourceSnapshot,
    spark: Callable[[], "SparkSession"],
    table: LakeTable,
    container: Container,
    source: SourceDatabase,
    scope: RowScope,
) -> Comparison:
    """Compares rows with the snapshot, which must be held; as one, and not by partitions. ``scope``: which ones."""
    head = table.head()
    assert head is not None
    in_source = {column.name.lower() for column in snapshot.columns}
    columns = [column for column in head.columns if column.name.lower() in in_source]
    plain, before = _plain(container), source.container
    lake = LakeHashedRows(spark, table, head.version, plain, columns, _marks(container, head, in_source))
    source.container = plain
    try:
        return _with_shown_keys(compare(snapshot.hashed_rows(columns), lake, None, scope), container, columns)
    finally:
        source.container = before


def _with_shown_keys(found: Comparison, container: Container, columns: Sequence[Column]) -> Comparison:
    """The comparison with its keys as people know them."""
    types = {column.name.lower(): column.type for column in columns}
    key_types = [types[name.lower()] for name in key_of(container, columns)]
    return replace(found, examples={kind: [shown_key(key, key_types) for key in keys] for kind, keys in found.examples.items()})


def _plain(container: Container) -> Container:
    return replace(container, partitioning=None, partitioned_on=None)


def below(container: Container, upper: int | None) -> RowScope:
    """The rows with an identifier below ``upper``."""
    assert container.identifier is not None
    return RowScope(_within((container.identifier.domain,), Window(None, upper)), False)


def _scope(source: SourceDatabase, partitions: Partitions | None, request: AuditRequest, most: int) -> tuple[RowScope, int | None]:
    """The rows to be compared now, and where the next comparison goes on; None: nowhere.

    These are whole partitions, and at least one. A container without partitions is not divided.
    """
    asked = _asked(partitions, request)
    windows, nulls = asked.windows, asked.include_nulls
    if partitions is None or source.estimate(windows, nulls) <= most:
        return asked, None
    starts = [start for start in partitions.starts() if any(window.contains(start) and window.lower != start for window in windows)]
    if not starts:
        return RowScope(windows, nulls), None
    low, high = 0, len(starts) - 1
    while low < high:  # the last start below which there are few enough rows; the first one where there is none
        middle = (low + high + 1) // 2
        if source.estimate(_within(windows, Window(None, starts[middle])), nulls) <= most:
            low = middle
        else:
            high = middle - 1
    return RowScope(_within(windows, Window(None, starts[low])), nulls), starts[low]


def _known(partitions: Partitions | None, request: AuditRequest) -> Partitions | None:
    """The partitions, with those of the request: a run may be launched for keys that are not listed."""
    if request.keys is None or not isinstance(partitions, IntegerPartitions):
        return partitions
    return partitions.with_keys(request.keys)


def _asked(partitions: Partitions | None, request: AuditRequest) -> RowScope:
    """All rows that the request asks for."""
    if partitions is None:
        return RowScope()
    windows = (EVERYTHING,) if request.keys is None else partitions.windows_of(request.keys)
    if request.start is not None:
        windows = _within(windows, Window(request.start, None))
    return RowScope(windows, request.keys is None and request.start is None)


def _marks(container: Container, head: Head, in_source: Collection[str]) -> str | None:
    """The name of the table's column that marks deleted rows; None if there is none. ``in_source``: the names of the columns that are read.

    A table keeps the column, and its marks, where ``deletes`` is no longer ``soft``. The source may have a column of that name, too.
    """
    is_own = container.options.deletes is Deletes.SOFT or MARK.name not in in_source
    return MARK.name if is_own and MARK in head.columns else None


def _within(windows: Sequence[Window], bounds: Window) -> tuple[Window, ...]:
    inside = (window.intersect(bounds) for window in windows)
    return tuple(window for window in inside if window is not None)
