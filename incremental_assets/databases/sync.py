"""Carries out one sync of a table or view: turns its plan into the write batches that the IO manager commits, and collects the results."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from incremental_assets.core.audit import SUMMARY, message_of, summary_of
from incremental_assets.core.comparison import RowScope
from incremental_assets.core.container import Container, SourceTable
from incremental_assets.core.counted_changes import said_of as missed_changes
from incremental_assets.core.deletes import Deletes
from incremental_assets.core.errors import LakeError, SourceError
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.plan import Action
from incremental_assets.core.schema import with_comments
from incremental_assets.core.shown_text import counted
from incremental_assets.core.unfilled import message
from incremental_assets.core.watermark import Activity, Advance, Holder, OpenTransactions, TableState, advance
from incremental_assets.core.window import EVERYTHING, Window, merge, without
from incremental_assets.databases.audit import audit, is_audited_here
from incremental_assets.databases.column_numbers import unknown_numbers
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.hidden_rows import policies_in_force, unknown_policies
from incremental_assets.databases.left_rows import left_without_key
from incremental_assets.databases.next_state import confirmed_by, next_state, set_back, unfilled_after
from incremental_assets.databases.pieces import is_read_by_key, pieces_of
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.rows import TableRows, may_be_in_files_here, may_be_local
from incremental_assets.databases.source import Highest, SourceDatabase, SourceSnapshot
from incremental_assets.databases.source_checks import (
    arrays_as_text,
    check_fallen_back,
    check_merge_key,
    check_null_rows,
    check_padding,
    check_readable,
    gone_from_source,
    shape_digest,
    unfound_respellings,
)
from incremental_assets.databases.stored_state import check_key, fresh_state, lacks_forms, lake_keyed
from incremental_assets.databases.sweep import Sweep, is_swept_here, sweep, swept_batch
from incremental_assets.databases.unplaced import NONE, note_unplaced
from incremental_assets.delta.container_sync import ContainerSync, ReadAgain
from incremental_assets.delta.guards import WindowsEmptied
from incremental_assets.delta.properties import set_property
from incremental_assets.delta.result import MISSED_CHANGES, SyncResult
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable
from incremental_assets.delta.write_batch import AllRows, InWindows, WriteBatch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


class TableSync(ContainerSync):
    """The sync of a table or view. The steps raise SourceError if the source cannot be read,
    RebuildNeeded if the table does not fit the source any more, and ConfigurationError if values cannot be carried as configured.
    """

    def __init__(
        self,
        definition: TableDefinition,
        plan: TablePlan,
        source: SourceDatabase,
        table: LakeTable,
        partitions: Partitions | None,
        run_id: str,
        log: Callable[[str], None],
    ) -> None:
        self._definition = definition
        super().__init__(table, partitions, SyncResult(plan, plan.watermark, plan.watermark, messages=list(plan.warnings)))
        self._plan = plan
        self._source = source
        source.container = plan.reading
        self._run_id = run_id
        self._log = log
        self._started = time.monotonic()
        self._state = plan.state
        self._whole = plan.whole
        """Whether the next commit replaces the whole table. If a load goes window by window, only its first commit does."""
        self._base_version = plan.base_version
        self._container = plan.container
        self._in_pieces = False
        """Whether the plan is carried out by several commits, each for a part of its windows."""
        self._infinite: tuple[str, ...] | None = None
        """The columns with values that no type of the lake can hold, as far as is known; None if they have not been looked for."""
        self._counted = plan.changes
        """What the source's counters of changes said before the first snapshot, as what is changed after it is for the next sync to say;
        None if there are none."""
        self._is_last = False
        """Whether the piece that is being written is the last one."""
        self._audited: SourceSnapshot | None = None
        """The rows of the last snapshot, which an audit or a sweep compares with the lake; None before that."""
        self._left_out: tuple[Window, ...] = ()
        """The windows of the partitions that a refresh leaves as they are, as it would empty them."""
        self._swept: Sweep | None = None
        self._partitions_changed: set[str] = set()
        """The partitions in which commits have changed rows, as far as the windows of the batches do not tell it."""
        self._written = plan.state or fresh_state(plan.container, "")
        """The state that was stored last: with the rows of the newest write batch, or by its sweep."""

    def needs_spark(self) -> bool:
        by_spark = self._plan.sweep and not is_swept_here(self.table, self._plan.in_lake)
        return by_spark or not (self._has_few_rows() or self._is_read_into_files())

    def is_inspected(self) -> bool:
        request = self._plan.request.audit
        return request is not None and not is_audited_here(self.table, self._plan.in_lake, self.partitions, request)

    def _is_read_into_files(self) -> bool:
        """Whether this process reads many rows into files, as far as that is known before they are read."""
        plan, source = self._plan, self._source
        may_be = may_be_in_files_here(plan.container.engine) and source.reads_into_files and not plan.container.options.cluster
        return may_be and not is_read_by_key(plan, source, self._definition.settings.rows_a_window)

    def _has_few_rows(self) -> bool:
        return may_be_local(self._plan, self._source.estimate(self._plan.windows, self._plan.include_nulls))

    def write_batches(self) -> Iterator[contextlib.AbstractContextManager[WriteBatch]]:
        plan = self._plan
        most = self._definition.settings.rows_a_window
        pieces = pieces_of(plan, self._source, self.partitions, most)
        self._in_pieces = len(pieces) > 1
        if len(pieces) > 1:
            self._log(
                f"{plan.container.label}: more than {counted(most, 'row')}: goes in {counted(len(pieces), 'window')}, each with a "
                f"commit of its own"
            )
        for number, windows in enumerate(pieces):
            if len(pieces) > 1:
                self._log(f"window {number + 1} of {len(pieces)}: {replace(plan, windows=windows).requested}")
            left_out: Sequence[Window] | None = None
            while left_out != self._left_out:  # the step was not committed, and is taken again without them: ``_leave_out``
                left_out = self._left_out
                rest = without(windows, left_out) if left_out else windows
                if rest:
                    yield self._step(rest, number + 1 == len(pieces))
            if self._base_version is None:  # the load of a new table was not committed: ``_read_again``
                self._base_version, self._whole = 0, True
                yield self._step(windows, number + 1 == len(pieces))

    @contextlib.contextmanager
    def _step(self, windows: Sequence[Window], last: bool) -> Iterator[WriteBatch]:
        """Takes a snapshot of the source, decides the new watermark, and yields the write batch of one piece of the plan.

        The snapshot is held until the block ends. ``last``: this is the last piece, which also reads the rows without identifier.
        """
        plan, source, settings = self._plan, self._source, self._definition.settings
        container = plan.container
        if self._base_version is None and container.is_watched:
            self._counted = source.relation().changes  # the plan has not asked for them, as there was no table to compare with
        highest, held_by, now = Highest(), OpenTransactions(), Activity()
        if plan.by_partition:
            highest = source.highest()  # of the partitions' column, up to which the read is divided; the watermark stays where it is
        elif container.identifier is not None:
            # The order matters. A transaction that begins after the highest identifier was read cannot commit a row below it. So the
            # watermark may move there if all transactions that are open right after that read have ended before the snapshot is taken.
            highest = source.highest()
            held_by, now = source.transactions.settle(highest.clock, settings.settle_seconds)
        with source.snapshot():
            found = source.table()
            if found is None:
                raise gone_from_source(container)
            self._is_last = last
            container = self._current(found)
            # The identifier may have become nullable since the catalog operation, so this is decided by the container's current columns.
            # Only a refresh of chosen partitions follows the plan: it has rows without identifier only if these are all partitions.
            nulls = last and (plan.include_nulls if plan.is_of_chosen_partitions else container.has_null_identifiers)
            moved = self._advance(container, windows, highest, held_by, now)
            scope = RowScope(tuple(windows), nulls)
            if not plan.by_partition:
                self.result.null_rows = check_null_rows(container, source, scope)
            before = self._state.unplaced if self._state is not None and not self._whole else NONE
            unplaced = note_unplaced(container, source, self.result, before) if last else before
            check_merge_key(container, source, scope)
            state = replace(self._next_state(container, moved, scope), unplaced=unplaced)
            snapshot = source.snapshot_rows(source.container, state.text_columns)
            state = self._with_columns(state, snapshot, windows)
            if state.policies:
                self.result.more["sync/row_security"] = policies_in_force(container, source).said
            self._written, self._audited = state, snapshot if last else None
            rows = TableRows(
                replace(plan, container=container), source, snapshot, self.partitions, settings, windows, nulls, highest.value, self._log
            )
            axis = container.axis if plan.by_partition else container.identifier
            read = InWindows(axis, tuple(windows), nulls)
            write_batch = WriteBatch(
                container=container,
                replaces=AllRows(read) if self._whole else read,
                columns=with_comments(snapshot.columns, container.comments),
                base_version=self._base_version,
                state=state,
                expected=source.estimate(windows, nulls),
                allow_empty=plan.request.allow_empty or (plan.action is Action.SYNC and plan.watermark is not None and not self._whole),
                commit_metadata=plan.commit_metadata(moved.watermark, self._run_id),
                rows=rows,
                by_key=snapshot,
                deleted_at=time.time_ns() // 1000 if container.options.deletes is Deletes.SOFT else None,
            )
            try:
                yield write_batch
            except WindowsEmptied as refused:
                self._leave_out(refused.windows)
                raise
            except (LakeError, SourceError) as error:
                self._read_again(container, error)
                raise snapshot.explained(error, windows, nulls) from error
            finally:
                rows.release()
                self.result.messages += rows.messages
            self.result.new = state.watermark
            self._note_holders(container, source.transactions.holders(held_by) if moved.held_back else [])

    def _current(self, found: SourceTable) -> Container:
        """The container with the columns that the source has in the snapshot, which the catalog may not know yet, and with the canonical
        forms of its key that its table has.

        Raises RebuildNeeded if the primary key of an upsert has changed.
        """
        is_known = shape_digest(found) == shape_digest(self._definition.table)
        container = self._plan.container if is_known else self._definition.with_columns_of(found)
        self._container = lake_keyed(container, self._state, self._whole or not self._base_version)
        self._source.container = replace(self._plan, container=self._container).reading
        if not is_known:
            check_readable(container)
            if self._state is not None and not self._whole:
                check_key(container, self._state)
                check_padding(container, self._state)
        lacking = lacks_forms(container, self._container)
        if lacking is not None and lacking not in (*self.result.warnings, *self.result.messages):
            is_new = self._state is not None and self._state.canonical is None
            (self.result.warnings if is_new else self.result.messages).append(lacking)
        return self._container

    def _advance(
        self, container: Container, windows: Sequence[Window], highest: Highest, held_by: OpenTransactions, now: Activity
    ) -> Advance:
        """Decides the new watermark of this commit. Raises RebuildNeeded if the source has fallen back below the old one."""
        old = None if self._whole or self._state is None else self._state.watermark
        # The plan's watermark is the lower one of the table's and the event log's. Later commits of this sync start from the watermark that
        # the commit before them has reached.
        if self._plan.watermark is not None and old is not None:
            old = min(old, self._plan.watermark if self.result.new is None else max(self._plan.watermark, self.result.new))
        pending = () if self._whole or self._state is None else self._state.pending
        if self._plan.by_partition:
            return Advance(old, pending, False)
        warning = check_fallen_back(container, old, highest)
        if warning is not None:
            self.result.warnings.append(warning)
        if container.identifier is None:
            return Advance(None, (), False)
        return advance(old, pending, highest.value, held_by, now, container.lag_window.covered_to(windows, old), highest.withheld)

    def _next_state(self, container: Container, moved: Advance, scope: RowScope) -> TableState:
        """The sync state to store after the rows, without what is known only of the columns that are read."""
        fresh = self._whole or self._state is None
        before = fresh_state(container, self._source.server.source) if fresh or self._state is None else self._state
        if fresh or not before.loaded:
            before = replace(before, text_columns=self._columns_as_text())
            self.result.messages += unfound_respellings(container, self._source)
            if container.options.sweeps and not self._in_pieces:
                # A table that one snapshot has filled has no other keys than the source.
                before = replace(before, swept_at=time.time_ns() // 1000)
        self.result.warnings += unknown_policies(container, self._source, before)
        after = next_state(self._plan, self._source, container, before, scope, moved, self._counted)
        self.result.messages += unknown_numbers(container, before, after)
        self.result.warnings += set_back(self._plan, container, before, after)
        return after

    def _columns_as_text(self) -> tuple[str, ...]:
        """The columns of a load whose values no type of the lake can hold.

        All windows of the plan are looked at and not only those of this piece: a column's type is fixed by the first commit of a load.
        """
        if self._infinite is None:
            self._infinite = self._source.infinite_columns(self._source.container, self._plan.windows, sampled=self._is_sampled())
        if self._infinite:
            self.result.messages.append(f"carried as text, for values such as {self._container.unheld}: {', '.join(self._infinite)}")
        return self._infinite

    def _with_columns(self, state: TableState, snapshot: SourceSnapshot, windows: Sequence[Window]) -> TableState:
        """The state with the columns that are read, and with the older rows that lack values of columns which were added."""
        container, before = self._container, self._state
        in_source = {column.name for column in container.columns}  # the marks of deleted rows are not
        columns = tuple(column.name for column in snapshot.columns if column.name in in_source)
        state = replace(state, columns=columns, unfilled=None)
        if self._whole or before is None or not before.loaded:
            said = arrays_as_text(self._container, snapshot.columns)
            self.result.messages += [one for one in said if one not in self.result.messages]  # a load may have several commits
        # All rows are read anew, or the log tells whose values have changed.
        if before is None or not before.loaded or self._whole or container.identifier is None or container.is_captured:
            return state
        known = before.columns
        if known is None:
            head = self.table.head()
            known = tuple(column.name for column in head.columns) if head is not None else columns
        return replace(
            state, unfilled=unfilled_after(self._plan, self._source, self.partitions, before, known, columns, windows, self._log)
        )

    def _is_sampled(self) -> bool:
        """Whether values that no type of the lake can hold are looked for in a sample, and if it has none, only when the read has failed.

        To look at all rows takes PostgreSQL a tenth of the time of a load, and few tables have such values. A load of several commits looks
        at all rows first: it might meet such a value when the types of the columns are fixed already.
        """
        return self._base_version is None and not self._in_pieces and not self._has_few_rows()

    def _read_again(self, container: Container, error: Exception) -> None:
        """Raises ReadAgain if a load has failed because of infinite values that a sample of its rows did not have."""
        if not self._is_sampled() or self._infinite:
            return
        self._infinite = self._source.infinite_columns(self._source.container, self._plan.windows)
        if self._infinite:
            raise ReadAgain(f"{', '.join(self._infinite)}: there are values such as infinity; it is read again with texts in their place")

    def _leave_out(self, emptied: Sequence[Window]) -> None:
        """Raises ReadAgain if only some of the partitions of a refresh would be emptied: the others are written without them."""
        keys, partitions, identifier = self._plan.request.keys, self.partitions, self._plan.reading.identifier
        if keys is None or partitions is None or identifier is None:
            return
        found = [key for key in keys if partitions.window_of(key).intersect(identifier.domain) in emptied]
        left_out = (*self.result.left_out, *found)
        if not found or len(left_out) == len(keys):
            return
        self._left_out = (*self._left_out, *emptied)
        self._plan = replace(self._plan, windows=without(self._plan.windows, emptied))
        self.result.plan, self.result.left_out = self._plan, left_out
        raise ReadAgain(f"would empty {', '.join(found)}; reads the other partitions again, and leaves these as they are")

    def _note_holders(self, container: Container, found: Sequence[Holder]) -> None:
        """Records the transactions that have held the watermark back, for each commit of the sync, and warns of those open for too long.

        Those of an early commit are kept, even if a later commit had none, because the next sync reads from where the first was held back.
        """
        limit = container.options.hold_back_warning_seconds
        new = [holder for holder in found if holder not in self.result.held_back_by]
        self.result.held_back_by += new
        for holder in new:
            text = (
                f"the watermark is held back by {'pid ' + str(holder.pid) if holder.pid else holder.application} "
                f"(user {holder.user}, application {holder.application or 'unnamed'}, open since {holder.since or 'a time not shown'})"
            )
            self._log(f"{container.label}: {text}")
            if holder.since and holder.age_seconds(datetime.now(timezone.utc)) > limit:
                self.result.warnings.append(text)

    def sweep(
        self, spark: Callable[[], "SparkSession"], write_batch: WriteBatch, outcome: WriteResult, expect_lease: Callable[[], None]
    ) -> None:
        if not self._plan.sweep or self._audited is None:
            return
        batch = swept_batch(write_batch, outcome)
        found = sweep(self._audited, spark, self.table, batch, allow_any=self._plan.request.allow_empty, expect_lease=expect_lease)
        self._swept, self._written = found, batch.state
        notes, warnings = found.messages(self._container)
        self.result.messages += notes
        self.result.warnings += warnings
        self.result.more |= found.metadata()
        for one in notes:
            self._log(f"{self._container.label}: {one}")

    def changed_partitions(self) -> Collection[str]:
        return self._partitions_changed

    def written_windows(self, write_batch: WriteBatch) -> Sequence[Window]:
        plan = self._plan
        if plan.container.partitioned_on is None:
            return write_batch.windows
        if plan.reports_all or (plan.action is not Action.SYNC and not plan.by_partition):
            return (EVERYTHING,)
        return write_batch.windows if plan.by_partition else ()

    def _note_partitions(self, values: Iterable[int]) -> None:
        if self.partitions is not None:
            self._partitions_changed |= self.partitions.keys_of(values)

    def inspect(self, spark: Callable[[], "SparkSession"], outcome: WriteResult) -> None:
        request = self._plan.request.audit
        if request is None or self._audited is None:
            return
        # A load in windows has used the last snapshot for the rows of a window already.
        most = self._definition.settings.rows_a_window
        most -= min(most // 2, outcome.rows_read) if self._in_pieces else 0
        found = audit(self._audited, spark, self.table, self._container, self.partitions, request, self._source, most)
        self.result.audited, self.result.more[SUMMARY] = found, summary_of(found)
        (self.result.messages if found.equal else self.result.warnings).append(message_of(found))
        self._log(f"{self._container.label}: {message_of(found)}")
        last = self._swept.result if self._swept is not None else outcome
        state = self._confirmed(last.named_in(self._written))
        if (state.unfilled, state.changes) != (self._written.unfilled, last.named_in(self._written).changes):
            text = state.to_json(self._container.cursor_type, self._container.partitioned_on)
            set_property(spark, self.table, STATE_PROPERTY, text, last.version)

    def _confirmed(self, state: TableState) -> TableState:
        """The state without the older rows that the audit of this sync, if there was one, has found equal to the source's."""
        asked, found = self._plan.request.audit, self.result.audited
        if found is None or asked is None:
            return state
        return confirmed_by(found, asked, state, self.partitions, state.changes)

    def _note_missed(self) -> None:
        """Warns of changes in the source that no sync has met, after the last commit."""
        changes = self._state.changes if self._state is not None and self._is_last else None
        missed = changes.missed if changes is not None else 0
        if missed:
            self.result.more[MISSED_CHANGES] = missed
            self.result.warnings.append(missed_changes(self._container.label, self._container.strategy, missed))

    def committed(self, write_batch: WriteBatch, outcome: WriteResult) -> None:
        # The state that was committed is the starting point of the next write batch.
        self.result.add(outcome)
        if outcome.axis_values is not None:
            self._note_partitions(outcome.axis_values)
        if self._swept is not None:
            self.result.add(self._swept.result)
            self._note_partitions(self._swept.values)
        before = self._state.unfilled if self._state is not None else None
        self._state = self._confirmed(outcome.named_in(write_batch.state))
        after = self._state.unfilled
        self._base_version, self._whole = outcome.version, False
        self._note_missed()
        self.result.seconds = time.monotonic() - self._started
        self.result.more["sync/snapshot_seconds"] = round(self._source.snapshot_seconds, 3)
        self.result.messages += outcome.evolution.messages()
        left = left_without_key(write_batch, outcome) if self._plan.action is Action.SYNC else None
        self.result.warnings += [left] if left is not None else []
        self.result.unfilled = after
        if after is not None and after != before:
            is_new = before is None or bool(without(after.windows, before.windows))
            text = message(self._container.label, after, self.partitions)
            (self.result.warnings if is_new else self.result.messages).append(text)
        if merge(write_batch.windows) and outcome.rows_read:
            self._log(f"{self._plan.container.label}: {counted(self.result.rows_read, 'row')} so far, {self.result.seconds:.1f} s")
