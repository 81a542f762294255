"""Writes a DataFrame of a user's own asset to its table, in one commit: by overwriting, appending, or a MERGE.

New columns are added by the same commit as the rows, so that a refused or failed write leaves the table as it was; only those by which
partitions are overwritten are added before it, once the rows have been found to fit. For containers, Delta's
automatic evolution is not used, as it keeps the old values of a column that a source has dropped. Here, that is what a merge has to do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from incremental_assets.core.names import backticked as quote
from incremental_assets.core.own_write import OwnWrite, WriteMode
from incremental_assets.core.schema import Evolution, mapped_names
from incremental_assets.delta.evolve import MAPPING, allow_names, allow_types, evolve_table
from incremental_assets.delta.guards import newest
from incremental_assets.delta.merge import run_merge
from incremental_assets.delta.own_frames import FittedFrame, Partitioned, expect_keys, outside, refused_outside
from incremental_assets.delta.table import Commit, Head, LakeTable
from incremental_assets.spark.exceptions import spark_exception
from incremental_assets.spark.persisted import PersistedRows

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame
    from pyspark.sql.readwriter import DataFrameWriter

_SOURCE = "__incremental_assets_own"
"""The temporary view that is the MERGE's source."""


@dataclass(frozen=True)
class FrameWrite:
    """One write of an own asset.

    ``partitioned``: the partitions of the run; None if the asset has none. ``once``: the id of an append; of several appends with the same
    id, one is committed. ``commit_metadata``: identifies the commit.
    """

    fitted: FittedFrame
    write: OwnWrite
    partitioned: Partitioned | None
    once: str
    commit_metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FrameResult:
    """The numbers of rows that a write inserted, updated and deleted; None if it is not known.

    ``repeated``: nothing was written, because the rows of this append are in the table already.
    """

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    repeated: bool = False


def write_frame(table: LakeTable, head: Head | None, write: FrameWrite) -> FrameResult:
    """Writes the rows. ``head``: the metadata of the table's newest version; None if there is no table yet.

    Raises FrameRefused if the rows do not fit, and then the table is as it was.
    """
    if write.write.mode is WriteMode.OVERWRITE:
        _overwrite(table, head, write)
    elif write.write.mode is WriteMode.APPEND:
        if _is_there(table, write.once):
            return FrameResult(0, 0, 0, repeated=True)
        _append(table, head, write)
    else:
        _merge(table, head, write)
    commit = _own_commit(table, head, write)
    return _result(write, commit.metrics) if commit is not None else FrameResult()


def _is_there(table: LakeTable, once: str) -> bool:
    """Whether the table has the rows of the append with this id. Delta keeps such ids beside the rows."""
    delta = table.opened()
    return delta is not None and delta.transaction_version(once) is not None


def _overwrite(table: LakeTable, head: Head | None, write: FrameWrite) -> None:
    if head is not None and write.partitioned is not None and write.fitted.new:
        # New columns may need a property of the table, which is set before the rows are written: Delta's refusal would come too late.
        _expect_inside(write, write.fitted.frame)
        if _go_by_new_columns(write.fitted, write.partitioned):
            # Delta looks for the rows to be replaced before it adds columns.
            evolve_table(lambda: _session_of(write), table, head, Evolution(add=write.fitted.new))
            head = newest(table)
    writer = _writer(table, head, write, write.fitted.frame).mode("overwrite")
    if write.partitioned is None:
        writer.option("overwriteSchema", "true").save(table.url)
        return
    try:
        # Delta refuses rows outside of this predicate. So a DataFrame cannot change other partitions than those of the run.
        writer.option("replaceWhere", write.partitioned.predicate).option("mergeSchema", "true").save(table.url)
    except spark_exception() as error:
        if "DELTA_REPLACE_WHERE_MISMATCH" not in str(error):
            raise
        found = outside(write.fitted, write.partitioned, write.fitted.frame)
        raise found or refused_outside(write.fitted.label, write.partitioned, "some rows were") from error


def _go_by_new_columns(fitted: FittedFrame, partitioned: Partitioned) -> bool:
    """Whether the partitions may go by a column that the table does not have yet."""
    texts = [expr.text.lower() for expr in partitioned.exprs]
    return any(column.name.lower() in text for column in fitted.new for text in texts)


def _session_of(write: FrameWrite) -> "SparkSession":
    return write.fitted.frame.sparkSession  # pyright: ignore[reportReturnType]


def _append(table: LakeTable, head: Head | None, write: FrameWrite) -> None:
    if write.partitioned is None:
        _add(table, head, write, write.fitted.frame)
        return
    held = PersistedRows(write.fitted.frame.sparkSession, write.fitted.frame)  # pyright: ignore[reportArgumentType]
    try:
        _expect_inside(write, held.frame)
        _add(table, head, write, held.frame)
    finally:
        held.release()


def _add(table: LakeTable, head: Head | None, write: FrameWrite, rows: "DataFrame") -> None:
    """Adds the rows, unless a commit with the same id has done so.

    A query of a killed run may go on in Spark: without the id, its rows would be in the table beside those of the retry.
    """
    writer = _writer(table, head, write, rows).mode("append").option("mergeSchema", "true")
    writer.option("txnAppId", write.once).option("txnVersion", "1").save(table.url)


def _merge(table: LakeTable, head: Head | None, write: FrameWrite) -> None:
    held = PersistedRows(write.fitted.frame.sparkSession, write.fitted.frame)  # pyright: ignore[reportArgumentType]
    try:
        _expect_inside(write, held.frame)
        bounds = expect_keys(write.fitted, write.write.merge_keys, held.frame)
        if head is None:
            _add(table, head, write, held.frame)
            return
        _allow_columns(table, head, write)
        held.frame.createOrReplaceTempView(_SOURCE)
        statement = _merge_statement(table, write.write.merge_keys, bounds)
        run_merge(held.frame.sparkSession, statement, write.commit_metadata)  # pyright: ignore[reportArgumentType]
    finally:
        held.release()


def _expect_inside(write: FrameWrite, rows: "DataFrame") -> None:
    """Raises FrameRefused if some of the rows are not of the run's partitions."""
    refused = outside(write.fitted, write.partitioned, rows) if write.partitioned is not None else None
    if refused is not None:
        raise refused


def _merge_statement(table: LakeTable, keys: Sequence[str], bounds: Sequence[tuple[str, str] | None]) -> str:
    """The MERGE of the rows into the table. Columns that the rows do not have keep their values, and are NULL in new rows.

    ``bounds``: those of each key's values; with them, Delta reads only files that may have such keys.
    """
    same = [f"t.{quote(name)} = s.{quote(name)}" for name in keys]
    within = [f"t.{quote(name)} BETWEEN {bound[0]} AND {bound[1]}" for name, bound in zip(keys, bounds, strict=True) if bound is not None]
    return (
        f"MERGE WITH SCHEMA EVOLUTION INTO {table.sql_name} t USING {_SOURCE} s ON {' AND '.join([*same, *within])} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _writer(table: LakeTable, head: Head | None, write: FrameWrite, rows: "DataFrame") -> "DataFrameWriter":
    writer = rows.write.format("delta").option("userMetadata", json.dumps(write.commit_metadata))
    if head is not None:
        _allow_columns(table, head, write)
    elif mapped_names(write.fitted.columns):
        writer = writer.options(**MAPPING)
    return writer


def _allow_columns(table: LakeTable, head: Head, write: FrameWrite) -> None:
    """Sets the properties that the table needs for the new columns."""
    allow_names(lambda: _session_of(write), table, head, write.fitted.new)
    allow_types(lambda: _session_of(write), table, head, write.fitted.new)


def _own_commit(table: LakeTable, head: Head | None, write: FrameWrite) -> Commit | None:
    """The commit of this write, if it is found: another host may have committed since."""
    since = table.data_commits_since(head.version if head is not None else -1)
    return next((commit for commit in since if commit.commit_metadata == write.commit_metadata), None)


def _result(write: FrameWrite, metrics: Mapping[str, int]) -> FrameResult:
    if "numTargetRowsInserted" in metrics:
        inserted, updated, deleted = (metrics.get(f"numTargetRows{name}") for name in ("Inserted", "Updated", "Deleted"))
        return FrameResult(inserted, updated, deleted)
    # If Delta rewrites a file in which only some rows are replaced, the others are copied, and numOutputRows counts them, too.
    rows = metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)
    overwrites = write.write.mode is WriteMode.OVERWRITE
    return FrameResult(rows, 0, metrics.get("numDeletedRows") if overwrites else 0)
