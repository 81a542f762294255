"""One commit of rows to one table, and right after it the tiny commit that remembers the watermark.

Belongs here: the order of steps of a commit. Does not belong: the two ways of writing rows (``overwrite``, ``merge``), which rows
(``core``), predicates' text (``sql``), schema changes (``evolve``). Everything here may be repeated: a commit that was lost half-way is
made again by the next sync.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalake import CommitProperties, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import literal as text
from incremental_assets.core.schema import Evolution, plan_evolution
from incremental_assets.delta.errors import lake_errors
from incremental_assets.delta.evolve import allow_names, create_table, evolve_table
from incremental_assets.delta.extraction import Extraction, Outcome
from incremental_assets.delta.guards import moved, newest
from incremental_assets.delta.merge import merge
from incremental_assets.delta.overwrite import overwrite
from incremental_assets.delta.table import STATE_PROPERTY, Head, LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger(__name__)

SMALL_ROWS = 100_000
"""Up to so many rows, read and in the table, generating and compiling code for each query takes longer than it saves."""


def commit(spark: "SparkSession", table: LakeTable, extraction: Extraction, log: Callable[[str], None]) -> Outcome:
    """Writes the rows, then the state.

    Raises LakeMoved where the table is not the one the plan saw, RebuildNeeded where its columns cannot follow, EmptyRefused where rows
    would vanish unasked, LakeError where the place cannot be written.
    """
    container = extraction.container
    head = table.head()
    if (head.version if head else None) != extraction.base_version:
        raise moved(container.label, table, "nothing was written")
    if extraction.expected + table.rows() <= SMALL_ROWS:
        _interpret(spark)
    with lake_errors(container.label, table.url):
        head, evolution = _prepare(spark, table, head, extraction)
        if container.strategy is Strategy.UPSERT and not extraction.whole and head.version > 0:
            outcome = merge(spark, table, head, extraction)
        else:
            outcome = overwrite(spark, table, head, extraction)
        if any(c.story != extraction.story for c in table.data_commits_since(head.version)):
            # Another host's sync, which no lock here keeps out, came before ours: its newer rows may be gone. Neither watermark holds, but
            # the one that both began from does.
            set_property(spark, table, STATE_PROPERTY, head.properties.get(STATE_PROPERTY, ""))
            raise moved(container.label, table, "the watermark stays")
        log(f"wrote {outcome.rows_read:,} rows as version {outcome.data_version}")
        state = replace(extraction.state, data_version=outcome.data_version)
        set_property(spark, table, STATE_PROPERTY, state.to_json(container.axis))
    return replace(outcome, evolution=evolution, version=newest(table).version)


def set_property(spark: "SparkSession", table: LakeTable, name: str, value: str) -> None:
    """A commit without data. It also fences: a write that was planned before it can no longer commit (Delta's conflict rules)."""
    spark.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({text(name)} = {text(value)})")


def set_property_without_spark(table: LakeTable, version: int, name: str, value: str) -> bool:
    """The same through delta-rs, in milliseconds and only on top of ``version``. False where nothing was written: somebody else has
    committed since, or the table has a feature that delta-rs does not write."""
    delta = table.opened()
    if delta is None or delta.version() != version:
        return False
    try:
        delta.alter.set_table_properties(
            {name: value},
            raise_if_not_exists=False,  # it is a property of our own
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
    except DeltaError as error:
        log.debug("%s: the property was not written: %s", table.url, error)
        return False
    return True


def _interpret(spark: "SparkSession") -> None:
    """Makes the session's queries run without code generated for each: a quarter less time for a few rows, much more for millions."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


def _prepare(spark: "SparkSession", table: LakeTable, head: Head | None, extraction: Extraction) -> tuple[Head, Evolution]:
    """The table as it must be before rows are written: made, or with its columns added and widened."""
    if head is None:
        create_table(spark, table, extraction)
        made = newest(table)
        if made.version > 0 or made.owner != extraction.container.label:
            raise moved(extraction.container.label, table, "nothing was written")
        return made, Evolution()
    if extraction.whole:
        allow_names(spark, table, head, extraction.columns)
        return newest(table), Evolution()
    evolution = plan_evolution(extraction.container.label, head.columns, extraction.columns)
    if evolution:
        evolve_table(spark, table, head, evolution)
        return newest(table), evolution
    return head, evolution
