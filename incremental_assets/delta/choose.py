"""Chooses in which way a write batch comes into its table.

docs/decisions/ways-of-writing.md says why, and what each way costs.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from incremental_assets.core.grammar import Strategy
from incremental_assets.delta.add_files import add_files, plan_files
from incremental_assets.delta.changed_rows import merge_changed, write_changed_here
from incremental_assets.delta.guards import already_there
from incremental_assets.delta.local_rows import LocalComparison, compare_here, in_columns_of, may_be_sent
from incremental_assets.delta.local_write import replace_here, write_here
from incremental_assets.delta.merge import merge
from incremental_assets.delta.overwrite import overwrite
from incremental_assets.delta.replace_by_files import replace_by_files
from incremental_assets.delta.staged_files import add_staged
from incremental_assets.delta.table import Head, LakeTable
from incremental_assets.delta.write_batch import NotHere, WithKeys, WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger(__name__)
_Asked = TypeVar("_Asked", contravariant=True)


@dataclass(frozen=True)
class Writing:
    """A write batch on its way into its table, at the version ``head``.

    ``spark`` returns a session, and is called only if Spark is needed. ``log`` gets messages for the user, and ``report`` the numbers of
    rows that this process reads.
    """

    spark: "Callable[[], SparkSession]"
    table: LakeTable
    head: Head
    batch: WriteBatch
    log: Callable[[str], None]
    report: Callable[[int], None]

    @functools.cached_property
    def in_table(self) -> WriteBatch:
        """The batch with the columns of the table."""
        return in_columns_of(self.head, self.batch)

    @functools.cached_property
    def compared(self) -> LocalComparison | NotHere:
        """The rows beside those of the lake in their place, or why this process has not compared them."""
        if not _is_compared(self.batch, self.head):
            return NotHere("there is nothing to compare the rows with")
        try:
            return compare_here(self.table, self.head, self.in_table)
        except NotHere as why:
            return why


class TriedWay(Protocol):
    """One of the ways that are tried. It raises NotHere if it cannot write the batch; nothing was done then."""

    __name__: str

    def __call__(self, writing: Writing, /) -> WriteResult: ...


def choose(write_batch: WriteBatch, head: Head) -> Sequence[TriedWay]:
    """The ways that are tried for a batch, in their order. The last one is Spark's, which can write every batch."""
    if isinstance(write_batch.replaces, WithKeys):
        return changed_here, changed_by_spark
    ways: list[TriedWay] = [staged] if write_batch.rows.staged is not None else []
    is_first = head.version == 0
    if write_batch.whole and not is_first:
        ways.append(all_here)
    if _is_compared(write_batch, head):
        ways.append(few_here)
    if write_batch.container.strategy is Strategy.UPSERT and not write_batch.whole and not is_first:
        return *ways, into_files, merged
    return *ways, into_files, overwritten


def _is_compared(write_batch: WriteBatch, head: Head) -> bool:
    """Whether the table may have rows that are to be compared with those of the batch."""
    replaces_all = write_batch.whole and head.version > 0
    return not replaces_all and not write_batch.only_adds


def first_that_can(label: str, ways: Sequence[Callable[[_Asked], WriteResult]], asked: _Asked) -> WriteResult:
    """What the first of the ways returns that does not raise NotHere, with the reasons of those before it. ``label``: the container's."""
    *others, last = ways
    reasons: list[str] = []
    for way in others:
        try:
            outcome = way(asked)
        except NotHere as why:
            log.debug("%s: another way writes than %s: %s", label, way.__name__, why)
            reasons += [text for text in [str(why)] if text not in reasons]
        else:
            return replace(outcome, reasons=tuple(reasons))
    return replace(last(asked), reasons=tuple(reasons))


# ---------------------------------------------------------------------- the ways, by name
def staged(writing: Writing) -> WriteResult:
    files = writing.batch.rows.staged
    assert files is not None
    return add_staged(writing.table, writing.head, writing.batch, files)


def all_here(writing: Writing) -> WriteResult:
    return replace_here(writing.table, writing.head, writing.batch)


def few_here(writing: Writing) -> WriteResult:
    compared, head = writing.compared, writing.head
    if isinstance(compared, NotHere):
        raise compared
    if compared.is_equal and head.version > 0:
        return already_there(writing.table, head, writing.batch, compared.new.num_rows)
    return write_here(writing.table, head, writing.in_table, compared)


def into_files(writing: Writing) -> WriteResult:
    if isinstance(writing.compared, LocalComparison):
        raise NotHere("there are few rows")
    found = plan_files(writing.spark, writing.table, writing.head, writing.batch)
    write = replace_by_files if found.is_beside else add_files
    return write(writing.table, writing.head, writing.batch, found, writing.log, writing.report)


def merged(writing: Writing) -> WriteResult:
    return merge(writing.spark(), writing.table, writing.head, writing.batch, _made(writing.compared))


def overwritten(writing: Writing) -> WriteResult:
    return overwrite(writing.spark(), writing.table, writing.head, writing.batch, _made(writing.compared))


def changed_here(writing: Writing) -> WriteResult:
    return write_changed_here(writing.table, writing.head, writing.in_table, _changed(writing))


def changed_by_spark(writing: Writing) -> WriteResult:
    return merge_changed(writing.spark(), writing.table, writing.head, writing.in_table, _changed(writing))


def _changed(writing: Writing) -> WithKeys:
    assert isinstance(writing.in_table.replaces, WithKeys)
    return writing.in_table.replaces


def _made(compared: LocalComparison | NotHere) -> LocalComparison | None:
    """The comparison for Spark, to which its rows are sent if they are few."""
    return compared if isinstance(compared, LocalComparison) and may_be_sent(compared.new) else None
