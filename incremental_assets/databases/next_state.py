"""The sync state that a commit stores together with its rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from incremental_assets.core.comparison import Comparison, RowScope
from incremental_assets.core.container import Container
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.plan import Action, AuditRequest
from incremental_assets.core.shown_text import counted
from incremental_assets.core.unfilled import Unfilled, left, left_by_audit, windows_of_values
from incremental_assets.core.watermark import Advance, TableState
from incremental_assets.core.window import Window, covered_from, without
from incremental_assets.databases.hidden_rows import policies_read
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.recreated import relation_after
from incremental_assets.databases.source import SourceDatabase


def next_state(
    plan: TablePlan,
    source: SourceDatabase,
    container: Container,
    before: TableState,
    scope: RowScope,
    moved: Advance,
    counted: CountedChanges | None,
) -> TableState:
    """The state after the rows of the scope were read, in the snapshot that is held, where the fingerprint is computed.

    ``before``: the state of the last commit, or a fresh one. ``counted``: the source's counters from before the sync's first snapshot.
    """
    if container.identifier is None:
        lag_windows: tuple[Window, ...] = tuple(scope.windows)
        nulls = True
    else:
        lag_windows, nulls = (container.lag_window.window(moved.watermark),), container.has_null_identifiers
    # A new fingerprint may be stored only if this read covered the whole lag window. Otherwise the next sync could skip rows that the lake
    # does not have. A container that follows the log does not need one. The windows of a partition that is cut along another column tell
    # nothing of the lag window.
    covers = not (container.is_captured or plan.by_partition) and (
        container.identifier is None
        or (bool(scope.windows) and covered_from(scope.windows, lag_windows[0].lower) is True and (scope.include_nulls or not nulls))
    )
    # If the read did not cover the lag window, the old fingerprint stays valid as long as the watermark stays. Without a fingerprint the
    # next sync reads the lag window again.
    kept = before.fingerprint if moved.watermark == before.watermark else None
    beside_others = before.loaded and plan.is_of_chosen_partitions
    return replace(
        before,
        watermark=moved.watermark,
        pending=moved.pending,
        fingerprint=source.fingerprint(lag_windows, nulls) if covers else kept,
        loaded=True,
        key=container.primary_key,
        canonical=container.canonical,
        source=source.server.source if "hidden" not in source.server.source else before.source,  # an earlier role may have seen more
        schema=container.schema,
        excluded_columns=container.options.exclude_columns,
        capture=None,
        policies=policies_read(plan, container, source, before),
        point=before.point if beside_others else source.point(),
        inherited=before.inherited if beside_others else container.inherited,
        padded=before.padded if beside_others else container.padded or None,
        cut=container.cut if before.cut is None or plan.reports_whole else before.cut,
        read_at=None if container.options.every is None else time.time_ns() // 1000,
        changes=_changes_after(plan, container, counted, before),
        **relation_after(plan, container, source.relation(), before),
    )


def _changes_after(plan: TablePlan, container: Container, now: CountedChanges | None, before: TableState) -> CountedChanges | None:
    """What to store of the source's counters of changes: nothing is missed once all rows were read.

    What a refresh of chosen partitions meets may have been changed before anything was counted, so that it takes nothing off.
    """
    if not container.is_watched:
        return None
    if before.changes is None or plan.reports_whole:
        return now
    return before.changes if plan.is_of_chosen_partitions else before.changes.read_again(now)


def confirmed_by(
    found: Comparison, asked: AuditRequest, state: TableState, partitions: Partitions | None, now: CountedChanges | None
) -> TableState:
    """The state after an audit: older rows that it has found equal need no refresh. ``now``: the counters of changes before it."""
    is_whole = asked == AuditRequest() and found.equal and found.following is None
    missed_none = None if now is None else replace(now, missed=0, new=0)
    return replace(
        state,
        unfilled=left_by_audit(state.unfilled, found, partitions),
        changes=missed_none if is_whole and state.changes is not None else state.changes,
    )


def set_back(plan: TablePlan, container: Container, before: TableState, after: TableState) -> list[str]:
    """A warning for a sync of the tail, if the source's server was set back or replaced since the last one, so that older rows may differ.

    ``before``: the state of the last commit, or a fresh one. ``after``: the state to store.
    """
    if plan.action is not Action.SYNC or container.identifier is None or plan.request.audit is not None or before.point is None:
        return []
    why = before.point.break_before(after.point)
    if why is None:
        return []
    return [
        f"the source was restored from a backup, or another server has taken over: {why}. The tail was read again. Rows below it may "
        f"differ from those in the lake, and this is said only once; compare them: incremental-assets audit {container.label} --repair"
    ]


def unfilled_after(
    plan: TablePlan,
    source: SourceDatabase,
    partitions: Partitions | None,
    before: TableState,
    known: Sequence[str],
    columns: Sequence[str],
    windows: Sequence[Window],
    log: Callable[[str], None],
) -> Unfilled | None:
    """The older rows that lack values of columns which were added, after the windows were read; None if there are none.

    ``known``: the names of the columns that the table had before; ``columns``: of those that are read. What the source has of added columns
    outside of ``windows`` is looked for once, in the snapshot of the first commit that has them.
    """
    # ``along``: what the windows are about. Those of the partitions say nothing about windows of another identifier.
    along, is_apart = plan.reading, plan.reading.partitioned_on is not None
    assert along.identifier is not None
    unfilled = before.unfilled if is_apart else left(before.unfilled, windows)
    lower = {name.lower() for name in known}
    added = [name for name in columns if name.lower() not in lower]
    unread = without((along.identifier.domain,), windows)
    if is_apart and not unread:
        unfilled = None  # all rows are read
    if added and unread:
        assert partitions is not None
        found = source.partitions_with_values(added, unread)
        values = {value for some in found.values() for value in some}
        log(f"{plan.container.label}: looked for older rows with values of {', '.join(added)}: in {counted(len(values), 'partition')}")
        if found:
            unfilled = Unfilled(tuple(found), windows_of_values(partitions, list(values))).joined(unfilled)
    return unfilled
