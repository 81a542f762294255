"""One sync of one container: from its plan to the extractions that the IO manager commits, and the numbers that follow.

Belongs here: the order of steps (c) to (e) of the design around ``core.watermark.advance``. Does not belong: Dagster's contexts
(``assets``), the writing (``delta``), the lock (``locks``).
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from incremental_assets.core.axis import format_value
from incremental_assets.core.container import Container, OnNull, SourceTable
from incremental_assets.core.errors import LakeError, RebuildNeeded, SourceError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.plan import Action
from incremental_assets.core.schema import Column
from incremental_assets.core.watermark import Activity, Advance, Holder, OpenTransactions, TableState, advance
from incremental_assets.core.window import Window, covered_from, merge
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.pieces import is_read_by_key, pieces_of
from incremental_assets.databases.plan import TablePlan, check_key, fallen_back, fresh_state
from incremental_assets.databases.postgres.extract import (
    carried_columns,
    existing_keys,
    key_ranges,
    read_key_ranges,
    read_keys,
    read_windows,
)
from incremental_assets.databases.postgres.infinite import explained, infinite_columns
from incremental_assets.databases.postgres.reader import Highest, PostgresReader, shape_digest
from incremental_assets.databases.postgres.types import Carried
from incremental_assets.delta.extraction import ByKey, Extraction, Extractions, Outcome
from incremental_assets.delta.guards import release
from incremental_assets.delta.result import Result, result_values
from incremental_assets.delta.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.dataframe import DataFrame


class TableSync:
    """Carries out one plan. Used once; ``result`` is complete when its extractions have been committed."""

    def __init__(
        self,
        definition: TableDefinition,
        plan: TablePlan,
        reader: PostgresReader,
        table: LakeTable,
        partitions: Partitions | None,
        run_id: str,
        log: Callable[[str], None],
    ) -> None:
        self._definition = definition
        self._plan = plan
        self._reader = reader
        self._table = table
        self._partitions = partitions
        self._run_id = run_id
        self._log = log
        self._started = time.monotonic()
        self._state = plan.state
        self._whole = plan.whole
        """Whether the next commit leaves nothing of the old table: the first one of a load anew, where that goes window by window."""
        self._base_version = plan.base_version
        self._container = plan.container
        self._kept: list[DataFrame] = []
        """What Spark keeps on its disks until the commit."""
        self.result = Result(plan, plan.watermark, plan.watermark, messages=list(plan.warnings))

    def extractions(self, before_outside: Callable[[Sequence[str]], None]) -> Extractions:
        """The commits of this sync, to be made one after another."""
        return Extractions(
            container=self._plan.container,
            partitions=self._partitions,
            steps=self._steps(),
            done=self._done,
            metadata=lambda: result_values(self.result, self._table.url),
            before_outside=before_outside,
        )

    def finish(self) -> None:
        """Nothing is left to do."""

    # ------------------------------------------------------------------ the steps
    def _steps(self) -> Iterator[contextlib.AbstractContextManager[Extraction]]:
        plan = self._plan
        most = self._definition.settings.rows_a_window
        pieces = pieces_of(plan, self._reader, self._partitions, most)
        if len(pieces) > 1:
            self._log(f"{plan.container.label}: more than {most:,} rows: goes in {len(pieces)} windows, each with a commit of its own")
        for number, windows in enumerate(pieces):
            if len(pieces) > 1:
                self._log(f"window {number + 1} of {len(pieces)}: {replace(plan, windows=windows).asked}")
            yield self._step(windows, number + 1 == len(pieces))

    @contextlib.contextmanager
    def _step(self, windows: Sequence[Window], last: bool) -> Iterator[Extraction]:
        """Freezes the source, decides where the watermark goes, and offers the rows; the snapshot is held until the block ends."""
        plan, reader, settings = self._plan, self._reader, self._definition.settings
        container = plan.container
        highest, held_by, now = Highest(), OpenTransactions(), Activity()
        if container.identifier is not None:
            highest = reader.highest()
            held_by, now = reader.transactions.settle(highest.clock, settings.settle_seconds)
        with reader.snapshot():
            found = reader.table()
            if found is None:
                raise SourceError(
                    f"{container.label}: the source has no table {container.schema}.{container.name} any more; its rows stay in the "
                    f"lake. To forget it: incremental-assets catalog {container.datastore}"
                )
            container = self._current(found)
            # The catalog may not know yet that rows without identifier can exist now.
            some = plan.action is Action.REFRESH and plan.request.keys is not None
            nulls = last and (plan.include_nulls if some else container.has_null_identifiers)
            moved = self._advance(container, windows, highest, held_by, now)
            self._check_rows(container, windows, nulls, highest)
            state = self._next_state(container, moved, windows, nulls)
            carried = carried_columns(container, state.text_columns, reader.server.version)
            readers = reader.free_connections(settings.max_source_connections)

            def read(spark: "SparkSession") -> "DataFrame":
                if is_read_by_key(plan, reader, settings.rows_a_window):
                    return self._read_by_key(spark, carried, readers)
                return read_windows(spark, reader, carried, windows, nulls, highest.value, readers)

            extraction = Extraction(
                container=container,
                windows=tuple(windows),
                include_nulls=nulls,
                whole=self._whole,
                columns=tuple(Column(c.column.name, c.column.type) for c in carried),
                base_version=self._base_version,
                state=state,
                expected=reader.estimate(windows, nulls),
                allow_empty=plan.request.allow_empty or (plan.action is Action.SYNC and plan.watermark is not None),
                story=plan.story(moved.watermark, self._run_id),
                frame=read,
                still_there=reader.still_there,
                emptied=lambda: self._emptied(windows, nulls),
                by_key=ByKey(
                    lambda spark, keys: read_keys(spark, reader, carried, keys), lambda keys: existing_keys(reader, carried, keys)
                ),
            )
            try:
                yield extraction
            except (LakeError, SourceError) as error:
                raise explained(error, reader, container, carried, windows, nulls) from error
            finally:
                while self._kept:
                    release(self._kept.pop())
            self.result.new = state.watermark
            self._note_holders(container, reader.transactions.holders(held_by) if moved.held_back else [])

    def _read_by_key(self, spark: "SparkSession", carried: Sequence[Carried], readers: int) -> "DataFrame":
        """Range after range, each of a newer state: no snapshot is held for long. The fingerprint is of the first one, so that the next
        sync notices what has changed since."""
        most = self._definition.settings.rows_a_window
        ranges = key_ranges(self._reader, most, readers)
        if len(ranges) < 2:
            self.result.messages.append(
                f"more than {most:,} rows were read in one snapshot, as there are no statistics to cut the key by; ANALYZE makes some"
            )
            return read_windows(spark, self._reader, carried, self._plan.windows, True, None, readers)
        key = self._container.primary_key[0]
        said = (
            f"more than {most:,} rows: read in {len(ranges)} ranges of {key}, each in a snapshot of its own, and committed at once; "
            f"the next sync finds what changed meanwhile"
        )
        self._log(f"{self._container.label}: {said}")
        self.result.messages.append(said)
        self._kept = read_key_ranges(spark, self._reader, carried, ranges)
        return functools.reduce(lambda one, other: one.unionAll(other), self._kept)

    def _emptied(self, windows: Sequence[Window], nulls: bool) -> Sequence[Window]:
        """What was asked for and has no row in the source: each partition of a refresh by itself, else all that is read."""
        keys, partitions, identifier = self._plan.request.keys, self._partitions, self._container.identifier
        if keys is None or len(keys) == 1 or partitions is None or identifier is None or self._plan.whole:
            return windows if self._reader.is_empty(windows, nulls) else ()
        each = [partitions.window_of(key).intersect(identifier.ground) for key in keys]
        # Of a partition that is cut in two, one half may well have no rows.
        here = [window for window in each if window is not None and any(window.intersect(piece) for piece in windows)]
        return self._reader.without_rows(here)

    def _current(self, found: SourceTable) -> Container:
        """The container with the columns the source has now, which the catalog may not know yet."""
        if shape_digest(found) == shape_digest(self._definition.table):
            self._container = self._plan.container
        else:
            self._container = self._definition.with_columns_of(found)
            self._reader.container = self._container
            if self._state is not None and not self._whole:
                check_key(self._container, self._state)
        return self._container

    def _advance(
        self, container: Container, windows: Sequence[Window], highest: Highest, held_by: OpenTransactions, now: Activity
    ) -> Advance:
        old = None if self._whole or self._state is None else self._state.watermark
        if self._plan.watermark is not None and old is not None:
            old = min(old, self._plan.watermark if self.result.new is None else max(self._plan.watermark, self.result.new))
        pending = () if self._whole or self._state is None else self._state.pending
        self._check_fallen_back(container, old, highest)
        if container.identifier is None:
            return Advance(None, (), False)
        return advance(old, pending, highest.value, held_by, now, container.tail.covered_to(windows, old), highest.withheld)

    def _check_fallen_back(self, container: Container, old: int | None, highest: Highest) -> None:
        if old is None or container.identifier is None or container.axis is None:
            return
        shown = format_value(container.axis, old)
        if not container.axis.is_time:
            now = highest.sequence if highest.sequence is not None else highest.seen
            if now is None or now < old:
                what = "its sequence is at" if highest.sequence is not None else "its highest identifier is"
                raise RebuildNeeded(
                    f"{container.label}: the source has fallen back: the watermark is {shown} but {what} {now}. Was the table truncated, "
                    f"or restored from a backup? Nothing was written. To load it anew: "
                    f"incremental-assets sync {container.label} --reset-watermarks"
                )
        elif highest.seen is None or highest.seen < old:
            seen = "none" if highest.seen is None else format_value(container.axis, highest.seen)
            self.result.warnings.append(f"{fallen_back(container)} (watermark {shown}, highest now {seen})")

    def _check_rows(self, container: Container, windows: Sequence[Window], nulls: bool, highest: Highest) -> None:
        identifier, reader = container.identifier, self._reader
        if identifier is not None and (container.has_null_identifiers or container.options.on_null is OnNull.ERROR):
            self.result.null_rows = reader.count_nulls() if nulls or container.options.on_null is OnNull.ERROR else None
            if container.options.on_null is OnNull.ERROR and self.result.null_rows:
                raise SourceError(
                    f"{container.label}: {self.result.null_rows:,} rows have no {'/'.join(identifier.columns)}, and on_null is error. "
                    f"Fill them in the source, or write on_null: include (or exclude)."
                )
        if container.strategy is Strategy.UPSERT and not container.key_is_enforced:
            wrong = reader.duplicate_keys(windows, nulls)
            if wrong is not None:
                raise SourceError(
                    f"{container.label}: the key ({', '.join(container.primary_key)}) = {wrong} is NULL or occurs twice in the source, "
                    f"which would double rows; nothing was written. Name columns under primary_key that tell rows apart."
                )

    def _next_state(self, container: Container, moved: Advance, windows: Sequence[Window], nulls_read: bool) -> TableState:
        """What the table will remember once the rows are in; the fingerprint is of the very snapshot that is read."""
        plan, reader = self._plan, self._reader
        fresh = self._whole or self._state is None
        before = fresh_state(container, reader.server.source) if fresh or self._state is None else self._state
        text = before.text_columns
        if fresh or not before.loaded:
            text = infinite_columns(reader, container, plan.windows)  # all of a load that goes window by window
            if text:
                self.result.messages.append(f"carried as text, for values such as infinity or NaN: {', '.join(text)}")
        if container.identifier is None:
            ground: tuple[Window, ...] = tuple(windows)
            nulls = True
        else:
            ground, nulls = (container.tail.window(moved.watermark),), container.has_null_identifiers
        # The stored fingerprint must speak of rows that the lake has: only if this very read covered the tail.
        covers = container.identifier is None or (
            bool(windows) and covered_from(windows, ground[0].lower) is True and (nulls_read or not nulls)
        )
        # What somebody else did to the tail's rows in the lake must still be noticed by the next sync.
        untouched = moved.watermark == before.watermark and self._table.is_as_left(before.data_version)
        kept = before.fingerprint if untouched else None
        fingerprint = reader.fingerprint(ground, nulls) if covers else kept
        return replace(
            before,
            watermark=moved.watermark,
            pending=moved.pending,
            fingerprint=fingerprint,
            loaded=True,
            key=container.primary_key,
            source=reader.server.source if "hidden" not in reader.server.source else before.source,
            text_columns=text,
            schema=container.schema,
            relation=reader.relation(),
            excluded_columns=container.options.exclude_columns,
        )

    def _note_holders(self, container: Container, found: Sequence[Holder]) -> None:
        """Those of each commit of the sync: whoever held the first one back is why the next sync reads from there."""
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

    def _done(self, extraction: Extraction, outcome: Outcome) -> None:
        self.result.add(outcome)
        excluded_before = self._state.excluded_columns if self._state is not None else ()
        self._state = replace(extraction.state, data_version=outcome.data_version)
        self._base_version, self._whole = outcome.version, False
        self.result.seconds = time.monotonic() - self._started
        self.result.more["sync/snapshot_seconds"] = round(self._reader.snapshot_seconds, 3)
        for column in outcome.evolution.add:
            source = next((c for c in extraction.container.columns if c.name == column.name), None)
            older = ""
            if source is not None and extraction.container.identifier is not None:  # else all rows were read anew
                if source.default:
                    older = "; older rows are NULL in the lake, refresh needed: they have its default in the source"
                elif column.name in excluded_before:
                    older = "; it was excluded before: older rows are NULL in the lake, refresh needed"
            (self.result.warnings if older else self.result.messages).append(f"column {column.name} ({column.type}) was added{older}")
        for old, new in outcome.evolution.widen:
            self.result.messages.append(f"column {new.name} was widened from {old.type} to {new.type}")
        if outcome.evolution.widen:
            self.result.messages.append("readers of the table now need Delta's type widening, which delta-rs does not have")
        if outcome.evolution.dropped:
            names = ", ".join(c.name for c in outcome.evolution.dropped)
            self.result.messages.append(f"no longer in the source, NULL from now on: {names}")
        if merge(extraction.windows) and outcome.rows_read:
            self._log(f"{self._plan.container.label}: {self.result.rows_read:,} rows so far, {self.result.seconds:.1f} s")
