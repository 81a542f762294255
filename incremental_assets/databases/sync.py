"""Carries out one sync of a table or view: turns its plan into the write batches that the IO manager commits, and collects the results.

Belongs here: the order of the steps around ``core.watermark.advance``: the highest identifier is read, then the open transactions are
noted, and only then a snapshot is taken (docs/how-a-sync-works.md says why). Does not belong: Dagster's contexts (``dagster.assets``),
writing rows (``delta``), and the lock (``dagster.locks``).
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from incremental_assets.core.audit import SUMMARY, message_of, summary_of
from incremental_assets.core.container import Container, OnNull, SourceTable
from incremental_assets.core.cursor_type import format_value
from incremental_assets.core.deletes import Deletes
from incremental_assets.core.errors import LakeError, RebuildNeeded, SourceError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.plan import Action
from incremental_assets.core.unfilled import Unfilled, left, left_by_audit, message, windows_of_values
from incremental_assets.core.watermark import Activity, Advance, Holder, OpenTransactions, TableState, advance
from incremental_assets.core.window import Window, covered_from, merge, without
from incremental_assets.databases.audit import audit
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.pieces import pieces_of
from incremental_assets.databases.plan import TablePlan, check_key, fallen_back, fresh_state
from incremental_assets.databases.rows import TableRows, may_be_in_files, may_be_local
from incremental_assets.databases.source import Highest, SourceDatabase, SourceSnapshot
from incremental_assets.databases.sweep import Sweep, is_swept_here, sweep, swept_batch
from incremental_assets.delta.container_sync import ContainerSync, ReadAgain
from incremental_assets.delta.properties import set_property
from incremental_assets.delta.result import SyncResult
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable
from incremental_assets.delta.write_batch import WriteBatch, WriteResult

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
        self._is_last = False
        """Whether the piece that is being written is the last one."""
        self._audited: SourceSnapshot | None = None
        """The rows of the last snapshot, which an audit or a sweep compares with the lake; None before that."""
        self._swept: Sweep | None = None
        self._written = plan.state or fresh_state(plan.container, "")
        """The state that the newest write batch stores with its rows."""

    def needs_spark(self) -> bool:
        replaces_table = self._whole and self._base_version is not None
        by_spark = self._plan.sweep and not is_swept_here(self.table, self._plan.container)
        return not self._has_few_rows() or replaces_table or self._plan.request.audit is not None or by_spark

    def prepare_spark(self, spark: "SparkSession") -> None:
        loads = self._whole or self._base_version is None
        if loads and may_be_in_files() and not self._has_few_rows():
            self._source.prepare(spark)

    def _has_few_rows(self) -> bool:
        return may_be_local(self._source.estimate(self._plan.windows, self._plan.include_nulls))

    def write_batches(self) -> Iterator[contextlib.AbstractContextManager[WriteBatch]]:
        plan = self._plan
        most = self._definition.settings.rows_a_window
        pieces = pieces_of(plan, self._source, self.partitions, most)
        self._in_pieces = len(pieces) > 1
        if len(pieces) > 1:
            self._log(f"{plan.container.label}: more than {most:,} rows: goes in {len(pieces)} windows, each with a commit of its own")
        for number, windows in enumerate(pieces):
            if len(pieces) > 1:
                self._log(f"window {number + 1} of {len(pieces)}: {replace(plan, windows=windows).requested}")
            yield self._step(windows, number + 1 == len(pieces))
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
        highest, held_by, now = Highest(), OpenTransactions(), Activity()
        if container.identifier is not None:
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
            some = plan.action is Action.REFRESH and plan.request.keys is not None
            nulls = last and (plan.include_nulls if some else container.has_null_identifiers)
            moved = self._advance(container, windows, highest, held_by, now)
            self._check_rows(container, windows, nulls, highest)
            state = self._next_state(container, moved, windows, nulls)
            snapshot = source.snapshot_rows(container, state.text_columns)
            state = self._with_unfilled(state, snapshot, windows)
            self._written, self._audited = state, snapshot if last else None
            rows = TableRows(
                replace(plan, container=container), source, snapshot, self.partitions, settings, windows, nulls, highest.value, self._log
            )
            write_batch = WriteBatch(
                container=container,
                windows=tuple(windows),
                include_nulls=nulls,
                whole=self._whole,
                columns=snapshot.columns,
                base_version=self._base_version,
                state=state,
                expected=source.estimate(windows, nulls),
                allow_empty=plan.request.allow_empty or (plan.action is Action.SYNC and plan.watermark is not None and not self._whole),
                commit_metadata=plan.commit_metadata(moved.watermark, self._run_id),
                rows=rows,
                by_key=snapshot,
                in_files=rows.in_files(),
                divisible=self._in_pieces,
                deleted_at=time.time_ns() // 1000 if container.options.deletes is Deletes.SOFT else None,
            )
            try:
                yield write_batch
            except (LakeError, SourceError) as error:
                self._read_again(container, error)
                raise snapshot.explained(error, windows, nulls) from error
            finally:
                rows.release()
                self.result.messages += rows.messages
            self.result.new = state.watermark
            self._note_holders(container, source.transactions.holders(held_by) if moved.held_back else [])

    def _current(self, found: SourceTable) -> Container:
        """The container with the columns that the source has in the snapshot, which the catalog may not know yet.

        Raises RebuildNeeded if the primary key of an upsert has changed.
        """
        if shape_digest(found) == shape_digest(self._definition.table):
            self._container = self._plan.container
        else:
            self._container = self._definition.with_columns_of(found)
            self._source.container = self._container
            if self._state is not None and not self._whole:
                check_key(self._container, self._state)
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
        self._check_fallen_back(container, old, highest)
        if container.identifier is None:
            return Advance(None, (), False)
        return advance(old, pending, highest.value, held_by, now, container.lag_window.covered_to(windows, old), highest.withheld)

    def _check_fallen_back(self, container: Container, old: int | None, highest: Highest) -> None:
        """Raises RebuildNeeded, or warns for a time, if the source's highest identifier is below the watermark.

        An integer that falls back means that the table was truncated or restored, and new rows would lie below the watermark. A time may
        fall back because the newest rows were deleted, and new rows get later times all the same.
        """
        if old is None or container.identifier is None or container.cursor_type is None or container.is_captured:
            return
        shown = format_value(container.cursor_type, old)
        if not container.cursor_type.is_time:
            now = highest.sequence if highest.sequence is not None else highest.seen
            if now is None or now < old:
                what = "its sequence is at" if highest.sequence is not None else "its highest identifier is"
                raise RebuildNeeded(
                    f"{container.label}: the source has fallen back: the watermark is {shown} but {what} {now}. Was the table truncated, "
                    f"or restored from a backup? Nothing was written. To load it anew: "
                    f"incremental-assets sync {container.label} --reset-watermarks"
                )
        elif highest.seen is None or highest.seen < old:
            seen = "none" if highest.seen is None else format_value(container.cursor_type, highest.seen)
            self.result.warnings.append(f"{fallen_back(container)} (watermark {shown}, highest now {seen})")

    def _check_rows(self, container: Container, windows: Sequence[Window], nulls: bool, highest: Highest) -> None:
        """Counts the rows without identifier. Raises SourceError if they are forbidden, or if an upsert's key is NULL or occurs twice."""
        identifier, source = container.identifier, self._source
        if identifier is not None and (container.has_null_identifiers or container.options.on_null is OnNull.ERROR):
            self.result.null_rows = source.count_nulls() if nulls or container.options.on_null is OnNull.ERROR else None
            if container.options.on_null is OnNull.ERROR and self.result.null_rows:
                raise SourceError(
                    f"{container.label}: {self.result.null_rows:,} rows have no {'/'.join(identifier.columns)}, and on_null is error. "
                    f"Fill them in the source, or write on_null: include (or exclude)."
                )
        if container.strategy is Strategy.UPSERT and not container.key_is_enforced:
            wrong = source.duplicate_keys(windows, nulls)
            if wrong is not None:
                raise SourceError(
                    f"{container.label}: the key ({', '.join(container.primary_key)}) = {wrong} is NULL or occurs twice in the source, "
                    f"which would double rows; nothing was written. Name columns under primary_key that tell rows apart."
                )

    def _next_state(self, container: Container, moved: Advance, windows: Sequence[Window], nulls_read: bool) -> TableState:
        """The sync state to store after the rows. Its fingerprint is computed in the snapshot from which the rows are read."""
        plan, source = self._plan, self._source
        fresh = self._whole or self._state is None
        before = fresh_state(container, source.server.source) if fresh or self._state is None else self._state
        text = before.text_columns
        loads = fresh or not before.loaded
        if loads:
            # All windows of the plan are checked and not only this piece: a column's type is fixed by the first commit of a load.
            if self._infinite is None:
                self._infinite = source.infinite_columns(container, plan.windows, sampled=self._is_sampled())
            text = self._infinite
            if text:
                self.result.messages.append(f"carried as text, for values such as infinity or NaN: {', '.join(text)}")
        if container.identifier is None:
            lag_windows: tuple[Window, ...] = tuple(windows)
            nulls = True
        else:
            lag_windows, nulls = (container.lag_window.window(moved.watermark),), container.has_null_identifiers
        # A new fingerprint may be stored only if this read covered the whole lag window. Otherwise the next sync could skip rows that the
        # lake does not have.
        # A container that follows the log does not need one.
        covers = not container.is_captured and (
            container.identifier is None
            or (bool(windows) and covered_from(windows, lag_windows[0].lower) is True and (nulls_read or not nulls))
        )
        # If the read did not cover the lag window, the old fingerprint stays valid as long as the watermark stays and nobody else has
        # changed the table's rows. Without a fingerprint the next sync reads the lag window again.
        untouched = moved.watermark == before.watermark and self.table.is_as_left(before.data_version)
        kept = before.fingerprint if untouched else None
        fingerprint = source.fingerprint(lag_windows, nulls) if covers else kept
        return replace(
            before,
            watermark=moved.watermark,
            pending=moved.pending,
            fingerprint=fingerprint,
            loaded=True,
            key=container.primary_key,
            source=source.server.source if "hidden" not in source.server.source else before.source,  # an earlier role may have seen more
            text_columns=text,
            schema=container.schema,
            relation=source.relation(),
            excluded_columns=container.options.exclude_columns,
            # A table that one snapshot has filled has no other keys than the source.
            swept_at=time.time_ns() // 1000 if loads and not self._in_pieces and container.options.deletes else before.swept_at,
            capture=None,
        )

    def _with_unfilled(self, state: TableState, snapshot: SourceSnapshot, windows: Sequence[Window]) -> TableState:
        """The state with the columns that are read, and with the older rows that lack values of columns which were added.

        What the source has of these columns outside of ``windows`` is looked for once, in the snapshot of the first commit that has them.
        """
        container, before = self._container, self._state
        in_source = {column.name for column in container.columns}  # the marks of deleted rows are not
        columns = tuple(column.name for column in snapshot.columns if column.name in in_source)
        state = replace(state, columns=columns, unfilled=None)
        # All rows are read anew, or the log tells whose values have changed.
        if before is None or not before.loaded or self._whole or container.identifier is None or container.is_captured:
            return state
        unfilled = left(before.unfilled, windows)
        known = before.columns
        if known is None:
            head = self.table.head()
            known = tuple(column.name for column in head.columns) if head is not None else columns
        lower = {name.lower() for name in known}
        added = [name for name in columns if name.lower() not in lower]
        unread = without((container.identifier.domain,), windows) if added else ()
        if unread:
            assert self.partitions is not None
            found = self._source.partitions_with_values(added, unread)
            values = {value for some in found.values() for value in some}
            self._log(f"{container.label}: looked for older rows with values of {', '.join(added)}: in {len(values)} partitions")
            if found:
                unfilled = Unfilled(tuple(found), windows_of_values(self.partitions, list(values))).joined(unfilled)
        return replace(state, unfilled=unfilled)

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
        self._infinite = self._source.infinite_columns(container, self._plan.windows)
        if self._infinite:
            raise ReadAgain(f"{', '.join(self._infinite)}: there are values such as infinity; it is read again with texts in their place")

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
                f"(user {holder.user}, application {holder.application or 'unnamed'}, open since {holder.since})"
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
        self._swept = found
        notes, warnings = found.messages(self._container)
        self.result.messages += notes
        self.result.warnings += warnings
        self.result.more |= found.metadata()
        for one in notes:
            self._log(f"{self._container.label}: {one}")

    def changed_partitions(self) -> Collection[str]:
        if self._swept is None or self.partitions is None:
            return ()
        return self.partitions.keys_of(self._swept.values)

    def inspect(self, spark: Callable[[], "SparkSession"], outcome: WriteResult) -> None:
        request = self._plan.request.audit
        if request is None or self._audited is None:
            return
        # A load in windows has used the last snapshot for the rows of a window already.
        most = self._definition.settings.rows_a_window
        most -= min(most // 2, outcome.rows_read) if self._in_pieces else 0
        found = audit(self._audited, spark(), self.table, self._container, self.partitions, request, self._source, most)
        self.result.audited, self.result.more[SUMMARY] = found, summary_of(found)
        (self.result.messages if found.equal else self.result.warnings).append(message_of(found))
        self._log(f"{self._container.label}: {message_of(found)}")
        state = self._confirmed(replace(self._written, data_version=outcome.data_version))
        if state.unfilled != self._written.unfilled:
            text = state.to_json(self._container.cursor_type)
            set_property(spark, self.table, STATE_PROPERTY, text, outcome.version)

    def _confirmed(self, state: TableState) -> TableState:
        """The state without the older rows that the audit of this sync, if there was one, has found equal to the source's."""
        if self.result.audited is None:
            return state
        return replace(state, unfilled=left_by_audit(state.unfilled, self.result.audited, self.partitions))

    def committed(self, write_batch: WriteBatch, outcome: WriteResult) -> None:
        # The state that was committed is the starting point of the next write batch.
        self.result.add(outcome)
        if self._swept is not None:
            self.result.add(self._swept.result)
        before = self._state.unfilled if self._state is not None else None
        self._state = self._confirmed(replace(write_batch.state, data_version=outcome.data_version))
        after = self._state.unfilled
        self._base_version, self._whole = outcome.version, False
        self.result.seconds = time.monotonic() - self._started
        self.result.more["sync/snapshot_seconds"] = round(self._source.snapshot_seconds, 3)
        for column in outcome.evolution.add:
            self.result.messages.append(f"column {column.name} ({column.type}) was added")
        self.result.unfilled = after
        if after is not None and after != before:
            is_new = before is None or bool(without(after.windows, before.windows))
            text = message(self._container.label, after, self.partitions)
            (self.result.warnings if is_new else self.result.messages).append(text)
        for old, new in outcome.evolution.widen:
            self.result.messages.append(f"column {new.name} was widened from {old.type} to {new.type}")
        if outcome.evolution.widen:
            self.result.messages.append("readers of the table now need Delta's type widening, which delta-rs does not have")
        if outcome.evolution.dropped:
            names = ", ".join(c.name for c in outcome.evolution.dropped)
            self.result.messages.append(f"no longer in the source, NULL from now on: {names}")
        if merge(write_batch.windows) and outcome.rows_read:
            self._log(f"{self._plan.container.label}: {self.result.rows_read:,} rows so far, {self.result.seconds:.1f} s")


def gone_from_source(container: Container) -> SourceError:
    """The error for a container that the source no longer has."""
    return SourceError(
        f"{container.label}: the source has no table {container.schema}.{container.name} any more; its rows stay in the "
        f"lake. To forget it: incremental-assets catalog {container.datastore}"
    )


def shape_digest(table: SourceTable) -> str:
    """A hash of what a sync needs to know of a table (columns, types, NOT NULL, defaults, primary key, kind).

    A sync compares the hash of the table in its snapshot with that of the table in the catalog.
    """
    columns = [(c.name, c.type, c.not_null, c.default, c.sequence) for c in table.columns]
    return hashlib.md5(json.dumps([columns, table.primary_key, table.kind.value]).encode(), usedforsecurity=False).hexdigest()
