"""Commits one write batch to a container's table and then, in a second small commit, the watermark.

The rows are committed before the watermark, never after it. Delta has no statement that writes rows and a property at once, so a process
may be killed between the two commits. The watermark is then still the old one, and the next sync replaces the same rows with themselves.
"""

import functools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from incremental_assets.core.schema import Evolution, mapped_names, plan_evolution
from incremental_assets.core.shown_text import counted
from incremental_assets.delta.as_text import rewrite
from incremental_assets.delta.choose import Writing, choose, first_that_can
from incremental_assets.delta.commit_files import checkpoint_if_due
from incremental_assets.delta.create import create_table
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.evolve import allow_names, allow_vectors, evolve_table
from incremental_assets.delta.guards import moved, newest
from incremental_assets.delta.properties import set_property
from incremental_assets.delta.table import STATE_PROPERTY, Head, LakeTable
from incremental_assets.delta.write_batch import By, WriteBatch, WriteResult
from incremental_assets.spark.code_generation import interpret_few

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger(__name__)


def commit(
    session: Callable[[], "SparkSession"],
    table: LakeTable,
    write_batch: WriteBatch,
    log: Callable[[str], None],
    report: Callable[[int], None] = lambda rows: None,
) -> WriteResult:
    """Writes the rows of a write batch, then the container's new sync state. ``session`` returns a Spark session; few rows need none.

    ``report`` gets numbers of rows, as far as this process reads many.

    Raises ConcurrentWriteError if the table is not at the version that the plan saw or was changed by a concurrent write; RebuildNeeded if
    its columns cannot follow those of the source; EmptyRefused if rows would be deleted without permission; SourceError if the source fails
    while Spark reads; LakeError if the table cannot be written.
    """
    container = write_batch.container
    head = table.head()
    if (head.version if head else None) != write_batch.base_version:
        raise moved(container.label, table, "nothing was written")
    spark = functools.cache(lambda: _session(session, table, write_batch))
    with lake_errors(container.label, table.url):
        had = head is not None and head.is_mapped
        head, evolution = _prepare(spark, table, head, write_batch)
        if head.is_mapped and not had:
            evolution = replace(evolution, mapped=tuple(mapped_names(write_batch.columns)))
        writing = Writing(spark, table, head, write_batch, log, report)
        outcome = first_that_can(container.label, choose(write_batch, head), writing)
        is_written, by_spark = outcome.data_version > head.version, outcome.by is By.SPARK
        table.follow()
        # Where nothing was written, the newest commit is the one that has left the rows.
        found = table.commits_since(min(head.version, outcome.data_version - 1))
        newer = [c for c in found if c.version > head.version and not c.is_quiet]
        is_ours = [c.commit_metadata == write_batch.commit_metadata for c in newer]
        if not all(is_ours) or (is_written and not by_spark and not is_ours):
            # A sync on another host, which the locks of this host do not keep out, has committed rows between our check and our commit.
            # Our commit may have replaced its newer rows, so neither its watermark nor ours holds. The watermark from which both syncs
            # started still does, so that one is written back. Or our commit is gone: Spark, too, makes sure that there is no such version
            # and then renames its own file to it, but on a file system these are two steps, and the second one replaces.
            set_property(spark, table, STATE_PROPERTY, head.properties.get(STATE_PROPERTY, ""))
            raise moved(container.label, table, "the watermark stays")
        log(f"wrote {counted(outcome.rows_read, 'row')} as version {outcome.data_version}: {outcome.how}" if is_written else outcome.how)
        own = next((c for c in found if c.version == outcome.data_version), None)
        outcome = replace(outcome, data_commit=None if own is None else own.id)
        state = outcome.named_in(write_batch.state)
        text = state.to_json(container.cursor_type, container.partitioned_on)
        set_property(spark, table, STATE_PROPERTY, text, None if by_spark else outcome.data_version, container.comments)
        now = table.follow()
        if own is not None:
            table.note_left(state, own)
        if not by_spark:
            checkpoint_if_due(table, now, head)
    return replace(outcome, evolution=evolution, version=now.version())


def _session(session: Callable[[], "SparkSession"], table: LakeTable, write_batch: WriteBatch) -> "SparkSession":
    """The session, in which the plans are interpreted where there are few rows to be read and in the table."""
    spark = session()
    interpret_few(spark, write_batch.expected + table.rows())
    return spark


def _prepare(spark: "Callable[[], SparkSession]", table: LakeTable, head: Head | None, write_batch: WriteBatch) -> tuple[Head, Evolution]:
    """Brings the table into the form that it needs before rows are written: creates it, or adds and widens columns.

    Returns the metadata of the newest version and the schema changes that were made. Raises ConcurrentWriteError if another process created
    the table at the same time.
    """
    if head is None:
        create_table(spark, table, write_batch)
        made = newest(table)
        # This succeeds, too, if another process has created the table in the meantime, and perhaps filled it.
        if made.version > 0 or made.owner != write_batch.container.label:
            raise moved(write_batch.container.label, table, "nothing was written")
        return made, Evolution()
    if write_batch.container.options.deletion_vectors and allow_vectors(spark, table, head):
        head = newest(table)
    if write_batch.whole:
        # The overwrite replaces the schema, so there is nothing to evolve; only column mapping must be on before it.
        allow_names(spark, table, head, write_batch.columns)
        return newest(table), Evolution()
    evolution = plan_evolution(write_batch.container.label, head.columns, write_batch.columns, write_batch.rewritten)
    if evolution.add or evolution.widen or evolution.grow:
        evolve_table(spark, table, head, evolution, write_batch.container.engine)
        head = newest(table)
    if evolution.rewrite:
        rewrite(spark(), table, head, write_batch, evolution.rewrite)
    if evolution:
        return newest(table), evolution
    return head, evolution
