"""Plans one sync of a table or view: whether to skip it, and otherwise which windows to read.

A plan takes milliseconds. It asks the source through psycopg and reads the Delta table's log through delta-rs; it uses neither Spark nor
Dagster.
"""

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from incremental_assets.core.container import Container, WhenRecreated
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.counted_changes import said_of as missed_changes
from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.deletes import is_due
from incremental_assets.core.duration import in_units
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.lag import lag_warning
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.core.shown_text import counted
from incremental_assets.core.unfilled import message
from incremental_assets.core.watermark import TableState, advance
from incremental_assets.core.window import EVERYTHING, Window, in_words
from incremental_assets.databases.column_numbers import takes_other_names, with_relation
from incremental_assets.databases.hidden_rows import hides_others
from incremental_assets.databases.plan_warnings import (
    cut_otherwise,
    fallen_back,
    index_warnings,
    loaded_elsewhere,
    not_told,
    server_warnings,
)
from incremental_assets.databases.source import Relation, SourceDatabase
from incremental_assets.databases.source_checks import (
    check_column_names,
    check_counts_down,
    check_fallen_back,
    check_readable,
    read_otherwise,
)
from incremental_assets.databases.stored_state import (
    ANOTHER,
    DOUBTED,
    checked_state,
    compared_relation,
    is_another,
    is_doubted,
    lake_keyed,
    noted,
    with_commit,
    without_watermark,
)
from incremental_assets.delta.properties import is_set_without_spark
from incremental_assets.delta.table import Head, LakeTable


@dataclass(frozen=True, kw_only=True)
class TablePlan(Plan):
    """The plan of one sync of a table or view.

    ``windows``: their rows will be read and replaced. ``include_nulls``: the rows without identifier will be, too. ``whole``: the whole
    table will be replaced, with its schema. ``applies``: what the source's log has is applied, and ``windows`` is empty. ``by_partition``:
    the windows are those of partitions that are cut along another column than the identifier (``Container.partitioned_on``).
    ``reports_all``: rows of such a container were written of which no event tells the partitions, so that all of these are reported.
    ``doubt``: why the source's table may be another one, in words, so that the rows below the watermark are to be compared first
    (``is_certain``: it is another one). ``proved``: what identified the source's table when that comparison has found it equal.
    ``changes``: what the source's counters say of updated and deleted rows; None if it was not asked, or does not count.
    """

    windows: tuple[Window, ...]
    include_nulls: bool
    whole: bool = False
    applies: bool = False
    by_partition: bool = False
    reports_all: bool = False
    doubt: str | None = None
    is_certain: bool = False
    proved: Relation | None = None
    changes: CountedChanges | None = None

    @property
    def reading(self) -> Container:
        """The container as its rows are read: its identifier is the one that the windows are about."""
        return self.container.along_axis if self.by_partition else self.container

    @property
    def in_lake(self) -> Container:
        """The container with those canonical forms of its key that its table in the lake has, if the plan does not fill the whole table."""
        return lake_keyed(self.container, self.state, self.whole or not self.base_version)

    @property
    def reports_whole(self) -> bool:
        """Whether Dagster gets an event of each partition that has rows."""
        return self.action is Action.LOAD or (self.action is Action.REFRESH and self.request.keys is None)

    @property
    def missed(self) -> int:
        state = self.confirmed or self.state
        counted = state.changes if state is not None and self.container.is_watched else None
        return 0 if counted is None else counted.missed_by(self.changes)

    @property
    def requested(self) -> str:
        """The windows in words."""
        if self.applies:
            return "what the log has"
        return in_words(self.reading.cursor_type, self.windows)

    def decided(self, action: Action, reason: str, windows: tuple[Window, ...], include_nulls: bool, **more: Any) -> "TablePlan":
        """The plan with this decision. ``more``: further fields that are to be replaced."""
        return replace(self, action=action, reason=reason, windows=windows, include_nulls=include_nulls, **more)

    def decided_along_axis(self) -> "TablePlan":
        """A plan that reads everything, as it is for a container that is partitioned along its identifier."""
        return replace(self, container=self.container.along_axis, windows=(EVERYTHING,))


def undecided(
    container: Container, request: Request, head: Head | None, state: TableState | None, event: int | None, warnings: Sequence[str]
) -> TablePlan:
    """What all plans of a container in this state have in common. ``event``: see ``make_plan``."""
    return TablePlan(
        container=container,
        request=request,
        action=Action.SKIP,
        reason="nothing is decided yet",
        windows=(),
        include_nulls=False,
        watermark=state.counting_watermark(event) if state else None,
        state=state,
        base_version=head.version if head else None,
        looked_at=time.time(),
        warnings=(*warnings, *cut_otherwise(container, request, state)),
    )


def make_plan(
    container: Container,
    source: SourceDatabase,
    table: LakeTable,
    partitions: Partitions | None,
    request: Request,
    event: int | None,
    reported: int | None = None,
    proved: Relation | None = None,
) -> TablePlan:
    """Plans one sync.

    ``event`` is the watermark of the newest event in Dagster's log that has one, as an integer of the cursor type; None if there is no such
    event. ``reported``: the Delta version that the newest event has reported, for a container whose partitions are cut along another
    column; None if there is none. ``proved``: see ``TablePlan``. Raises ConfigurationError if the request does not fit the container,
    RebuildNeeded if the table does not fit the container or the source any more, LakeError or SourceError if one of them cannot be read.
    Planning writes nothing.
    """
    if container.identifier is None and request.mode is Mode.INCREMENTAL and request.keys is not None:
        raise ConfigurationError(f"{container.label}: it has no partitions.")
    if request.sweep and (not container.options.sweeps or request.mode is Mode.REFRESH or request.reset):
        raise ConfigurationError(
            f"{container.label}: a sweep belongs to an incremental sync of a container that has deletes: sweep or deletes: soft in the "
            f"YAML. Use the mode incremental, and add deletes where it is missing."
        )
    check_readable(container)
    server = source.server
    head = table.head()
    relation, point = compared_relation(container, head, source), source.point()
    state = checked_state(container, table, head, source, relation, request, proved)
    set_back = state.point.break_before(point) if state is not None and state.point is not None else None
    if state is not None and set_back is not None:
        # Other transactions may have had the same numbers, and values above the watermark may be given out again.
        state = replace(state, fingerprint=None, pending=())
    warnings = [*server_warnings(container, server), *index_warnings(container, source)]
    if state is not None and state.unfilled is not None and request.mode is Mode.INCREMENTAL and not request.reset:
        warnings.append(message(container.label, state.unfilled, partitions))
    common = replace(undecided(container, request, head, state, event, warnings), proved=proved, changes=relation.changes)
    if container.partitioned_on is not None:
        # In which partitions a sync has written that has ended before its events is lost, so that all of them are reported.
        common = replace(common, reports_all=reported is None or bool(table.data_commits_since(reported)))
    plan, watermark = common.decided, common.watermark
    said = (*common.warnings, *lag_warning(container), *container.left_out_note, *not_told(container, server))
    load = functools.partial(plan, Action.LOAD, warnings=said)
    domain = (container.identifier.domain if container.identifier else EVERYTHING,)
    nulls = container.has_null_identifiers
    if request.reset or state is None or state.watermark is None:
        check_counts_down(container)
    if request.reset or head is None:
        check_column_names(container)
    if request.reset:
        return load("loads the whole container anew, as asked by --reset-watermarks", domain, nulls, whole=True)
    other = hides_others(container, source, state) or takes_other_names(container, relation, state)
    if other is None and state is not None:
        other = read_otherwise(container, state)
    another = is_another(state, relation) and relation != proved
    if another and (container.when_recreated is WhenRecreated.RELOAD or request.mode is Mode.REFRESH):
        other = ANOTHER
    if other is not None and (request.mode is Mode.INCREMENTAL or request.keys is None):
        return load(f"loads the whole container anew: {other}", domain, nulls, whole=True)
    asked_all = request.mode is Mode.REFRESH and request.keys is None
    # A table that has no known watermark is loaded whole and replaced; rows are never appended to it blindly. A refresh of chosen
    # partitions replaces only those, so it needs no watermark.
    if head is not None and (state is None or not state.loaded) and (asked_all or request.mode is Mode.INCREMENTAL):
        empty = state is not None and head.version == 0  # an earlier first load was killed before its first commit of rows
        return load(f"loads the whole container: {without_watermark(state)}", domain, nulls, whole=not empty)
    if head is None and (asked_all or request.mode is Mode.INCREMENTAL):
        elsewhere = loaded_elsewhere(container, table, source)
        return plan(Action.LOAD, "first sync: loads the whole container", domain, nulls, warnings=(*said, *elsewhere))
    if container.identifier is None:
        reason = _not_due(container, state, request) if request.mode is Mode.INCREMENTAL else None
        if reason:
            return plan(Action.SKIP, reason, domain, True, looked_at=None)
        reason = _unchanged(container, source, state, domain, True) if request.mode is Mode.INCREMENTAL else None
        if reason:
            learned = with_commit(state, table, with_point(source, state, table, None))
            return replace(plan(Action.SKIP, reason, domain, True), confirmed=learned)
        return plan(Action.REFRESH, "reads the whole container: it has no incremental identifier", domain, True)
    if request.mode is Mode.REFRESH:
        if request.keys is None:
            return plan(Action.REFRESH, "refreshes all partitions", domain, nulls)
        assert partitions is not None
        inside = (window.intersect(domain[0]) for window in partitions.windows_of(request.keys))
        windows = tuple(window for window in inside if window is not None)
        # All partitions, with the rows that belong to none, are all that the identifier has, too.
        everything = windows == domain
        count = len(request.keys)
        reason = f"refreshes {counted(count, 'partition')} whole"
        by_partition = container.partitioned_on is not None and not everything
        return plan(Action.REFRESH, reason, windows, nulls and everything, by_partition=by_partition)
    lag_window = container.lag_window.window(watermark)
    reads = f"reads what is new since the watermark {_shown(container, watermark)}"
    if set_back is not None:
        reads += f"; the source was set back or replaced: {set_back}"
    if another or (is_doubted(state, relation) and relation != proved and lag_window.lower is not None):
        what = ANOTHER if another else DOUBTED
        reason = f"compares the rows below the watermark first: {what}"
        return plan(Action.SYNC, reason, (lag_window,), nulls, doubt=what, is_certain=another)
    sweeps = _sweeps(container, state, request)
    if sweeps is not None:  # even if nothing is new
        return plan(Action.SYNC, f"{reads}, and {sweeps}", (lag_window,), nulls, sweep=True)
    if common.reports_all:
        return plan(Action.SYNC, reads, (lag_window,), nulls)
    learned: TableState | None = None
    # The pending values belong to the table's own watermark, so they are used only if the event log does not have a lower one.
    if state is not None and state.pending and state.watermark == watermark:
        reason, learned = _unchanged_but_pending(container, source, table, state, nulls)
    else:
        reason = _unchanged(container, source, state, (lag_window,), nulls)
    if reason:
        if container.identifier.sequence is not None:
            # Rows that a sequence numbers which was set back come below the lag window, where no fingerprint sees them.
            check_fallen_back(container, watermark, source.highest())
        # A fingerprint begins with the number of rows. If there is none from the watermark on, the row from which a time's watermark came
        # is gone, and a skip must say so. An integer's watermark may come from a sequence alone, without any row.
        empty = (
            container.identifier.cursor_type.is_time
            and state is not None
            and watermark is not None
            and (state.fingerprint or "").startswith("0.")
        )
        if empty:
            reason += f"; {fallen_back(container)}"
        reason = "; ".join([reason, *cut_otherwise(container, request, state)])
        learned = with_relation(container, relation, state, table, learned)
        learned = with_commit(state, table, with_point(source, state, table, learned))
        reason += f"; {missed_changes(container.label, container.strategy, common.missed)}" if common.missed else ""
        return replace(plan(Action.SKIP, reason, (lag_window,), nulls), confirmed=learned, alarm=empty or common.missed > 0)
    return plan(Action.SYNC, reads, (lag_window,), nulls)


def with_point(source: SourceDatabase, state: TableState | None, table: LakeTable, learned: TableState | None) -> TableState | None:
    """The state to store although nothing is to be done: with the point that the server has reached, where none is known yet.

    ``learned``: what is to be stored anyway, which was found after the point in ``state``.
    """
    known = learned or state
    if known is None or (learned is None and known.point is not None):
        return learned
    return noted(table, learned, known, replace(known, point=source.point()))


def _sweeps(container: Container, state: TableState | None, request: Request) -> str | None:
    """Why the sync compares all keys with those of the source; None if it does not."""
    if not container.options.sweeps or state is None:
        return None
    if request.sweep:
        return "looks for deleted rows, as asked by --sweep"
    if not is_due(state.swept_at, container.options.deletes_every, time.time_ns() // 1000):
        return None
    before = "for the first time" if state.swept_at is None else f"the last time was {format_value(CursorType.TIMESTAMP, state.swept_at)}"
    return f"looks for deleted rows ({before})"


def _not_due(container: Container, state: TableState | None, request: Request) -> str | None:
    """Why a container that is read whole at intervals (``every``) is not read now; None if it is. An audit compares what is there now."""
    every = container.options.every
    if every is None or state is None or request.audit is not None:
        return None
    if is_due(state.read_at, every, time.time_ns() // 1000):
        return None
    assert state.read_at is not None
    last = format_value(CursorType.TIMESTAMP, state.read_at)
    return f"nothing to do: it is read whole every {in_units(every)}, the last time was {last}; --mode refresh reads it now"


def _unchanged(
    container: Container, source: SourceDatabase, state: TableState | None, windows: Sequence[Window], nulls: bool
) -> str | None:
    """The reason why there is nothing to do, with numbers; None if there is something to do.

    There is nothing to do if the source computes the same fingerprint for ``windows`` as at the last sync. A state without one has none, or
    the Delta table does not have the rows that the last sync left (``checked_state``).
    """
    if state is None or state.fingerprint is None:
        return None
    found = source.fingerprint(windows, nulls)
    if found != state.fingerprint:
        return None
    rows = int(state.fingerprint.split(".")[0])
    if container.identifier is None:
        return f"nothing to do: none of the {counted(rows, 'row')} has changed"
    below = windows[0].lower
    since = f" from {format_value(container.identifier.cursor_type, below)} on" if below is not None else ""
    there = counted(rows, f"row{since} is that", f"rows{since} are those")
    return f"nothing to do: the {there} of the last sync; watermark {_shown(container, state.watermark)}"


def _unchanged_but_pending(
    container: Container, source: SourceDatabase, table: LakeTable, state: TableState, nulls: bool
) -> tuple[str | None, TableState | None]:
    """As ``_unchanged``, for a state in which a value for the watermark is pending.

    Returns the reason to skip (None if there is something to do), and the state to store although no row is read (None if the state does
    not change). In that state the transactions that have ended are removed from the pending values, and the watermark may have moved.

    The steps and their order are those of a sync: the highest identifier, then the open transactions, then one snapshot, in which the old
    lag window is compared and the fingerprint of the new one is taken. Rows that have not changed do not have to be read again.
    """
    highest = source.highest()
    held_by, now = source.transactions.settle(highest.clock, 0)
    # Equal fingerprints mean that the lake has all rows of the old lag window, so it counts as read without a gap (covered_to is True).
    moved = advance(state.watermark, state.pending, highest.value, held_by, now, True, highest.withheld)
    old, new = container.lag_window.window(state.watermark), container.lag_window.window(moved.watermark)
    if new == old:
        reason = _unchanged(container, source, state, (old,), nulls)
        struck = replace(state, pending=moved.pending)
        return reason, struck if reason and struck != state else None
    # Where the new watermark cannot be stored without Spark, a sync reads the lag window once more, and Spark stores the watermark.
    if not is_set_without_spark(table):
        return None, None
    with source.snapshot():
        reason = _unchanged(container, source, state, (old,), nulls)
        if reason is None:
            return None, None
        fingerprint = source.fingerprint((new,), nulls)
    reason += f", and moves to {_shown(container, moved.watermark)}: all transactions that could commit rows below it have ended"
    return reason, replace(state, watermark=moved.watermark, pending=moved.pending, fingerprint=fingerprint)


def _shown(container: Container, watermark: int | None) -> str:
    return "none" if watermark is None or container.cursor_type is None else format_value(container.cursor_type, watermark)
