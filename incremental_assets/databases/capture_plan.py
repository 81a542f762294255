"""Plans one sync of a container that follows the log of its source: whether to skip it, to apply what the log has, or to load it anew."""

from dataclasses import replace

from incremental_assets.core.capture import CapturePosition, RetainedLog, lsn_text
from incremental_assets.core.container import Container
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.partitions import Partitions
from incremental_assets.core.plan import Action, Mode, Request
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.core.window import EVERYTHING
from incremental_assets.databases.change_log import ChangeLog, LogState, Since
from incremental_assets.databases.column_numbers import takes_other_names
from incremental_assets.databases.plan import TablePlan, undecided
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.databases.source import SourceDatabase
from incremental_assets.databases.source_checks import check_readable, read_otherwise
from incremental_assets.databases.stored_state import ANOTHER, checked_state, compared_relation, is_another, without_watermark
from incremental_assets.delta.properties import is_set_without_spark
from incremental_assets.delta.table import LakeTable, Left

IDLE_BYTES = 16 << 20
"""How much log may come to lie behind an idle container before its position is moved, by a small commit. PostgreSQL keeps and removes its
log in files of this size."""


def make_capture_plan(
    container: Container,
    source: SourceDatabase,
    log: ChangeLog,
    table: LakeTable,
    partitions: Partitions | None,
    request: Request,
    event: int | None,
    counts: SlotCounts,
    warning_bytes: int,
) -> TablePlan:
    """Plans one sync. The parameters, and what is raised, are those of ``plan.make_plan``.

    ``counts``: answers for all containers that are planned together whether they have changed. ``warning_bytes``: from so many bytes of
    retained log on, the plan has a warning. Raises ConfigurationError, too, if the source does not capture the container's table as it has
    to.
    """
    if container.identifier is None and request.mode is Mode.INCREMENTAL and request.keys is not None:
        raise ConfigurationError(f"{container.label}: it has no partitions.")
    if request.sweep:
        raise ConfigurationError(f"{container.label}: it follows the log of its source, which has all deletes: there is nothing to sweep.")
    check_readable(container)
    head = table.head()
    relation = compared_relation(container, head, source)
    state = checked_state(container, table, head, source, relation, request)
    now = log.state()
    domain = container.identifier.domain if container.identifier else EVERYTHING
    retained = RetainedLog(now.slot, now.retained, warning_bytes)
    warnings = [retained.warning] if retained.warning is not None else []
    # What an earlier plan has seen in the log is no part of this one.
    common = undecided(container, replace(request, changed_at=None), head, state, event, warnings)
    common = replace(common, retained=retained)
    plan = common.decided
    nulls = container.has_null_identifiers or container.identifier is None
    if request.reset:
        return plan(Action.LOAD, "loads the whole container anew, as asked by --reset-watermarks", (domain,), nulls, whole=True)
    if request.mode is Mode.REFRESH and request.keys is not None:
        assert partitions is not None
        inside = (window.intersect(domain) for window in partitions.windows_of(request.keys))
        windows = tuple(window for window in inside if window is not None)
        count = len(request.keys)
        reason = f"refreshes {counted(count, 'partition')} whole"
        return plan(Action.REFRESH, reason, windows, nulls and windows == (domain,))
    if head is None:
        return plan(Action.LOAD, "first sync: loads the whole container", (domain,), nulls)
    if state is None or not state.loaded:
        empty = state is not None and head.version == 0
        return plan(Action.LOAD, f"loads the whole container: {without_watermark(state)}", (domain,), nulls, whole=not empty)
    if request.mode is Mode.REFRESH:
        return plan(Action.LOAD, "loads the whole container anew: all of it is to be refreshed", (domain,), nulls, whole=True)
    position = state.capture
    gap = ANOTHER if is_another(state, relation) else gap_of(position, now, source)
    gap = gap or takes_other_names(container, relation, state) or _foreign_rows(container, table, state)
    gap = gap or read_otherwise(container, state)
    if position is None or gap is not None:
        return plan(Action.LOAD, f"loads the whole container anew: {gap}", (domain,), nulls, whole=True)
    if not position.loaded and container.identifier is not None:
        window = container.lag_window.window(common.watermark)
        return plan(Action.SYNC, "goes on with a load that was not finished", (window,), nulls)
    # The plan by which the run was started has seen a change, and the log still has it. What else it has, the sync finds in its snapshot.
    if request.changed_at is not None and position.lsn <= request.changed_at and request.audit is None:
        return plan(Action.SYNC, f"applies what the log has from {lsn_text(position.lsn)} on", (), False, applies=True)
    found = counts.changed(container, log, Since.of(position.lsn, now.shape))
    looked_at = found.looked_at or common.looked_at
    plan = replace(common, retained=replace(retained, seconds=found.kept), looked_at=looked_at).decided
    if found.reload is not None:
        return plan(Action.LOAD, f"loads the whole container anew: {found.reload}", (domain,), nulls, whole=True)
    where = f"from {lsn_text(position.lsn)} to {lsn_text(found.end)}"
    new_parts = position.shape.new_parts(now.shape)
    if found.changes or new_parts or position.shape.columns != now.shape.columns:
        what = counted(found.changes, "change") if found.changes else "new partitions" if new_parts else "other columns"
        seen = replace(request, changed_at=found.last)
        return plan(Action.SYNC, f"applies what the log has {where}: {what}", (), False, applies=True, request=seen)
    skipped = plan(Action.SKIP, f"nothing to do: the log has no change {where}", (), False, applies=True)
    if found.end - position.lsn < IDLE_BYTES or not is_set_without_spark(table):
        return skipped
    return replace(skipped, confirmed=replace(state, capture=replace(position, lsn=found.end, shape=now.shape)))


def gap_of(position: CapturePosition | None, now: LogState, source: SourceDatabase) -> str | None:
    """Why the log does not lead from the table's position to the present, in words; None if it does."""
    if position is None:
        return "it did not follow the source's log before"
    if position.slot != now.slot:
        return f"it followed another replication slot, {position.slot}"
    if position.timeline != now.timeline or position.lsn > now.flushed:
        return "the source was restored from a backup, or replaced by its replica, and has another log now"
    if now.confirmed > position.lsn:
        return (
            f"the replication slot {now.slot} is at {lsn_text(now.confirmed)} and the table at {lsn_text(position.lsn)}, so that changes "
            "in between cannot be read any more. Was the slot made anew, or the table restored, or does another project use the slot?"
        )
    if position.membership != now.membership:
        return "its table was out of the publication for a time, or the publication was changed"
    if position.settings != source.container.settings_text:
        return "its settings in the YAML were changed"
    return position.shape.unlogged_change(now.shape)


def _foreign_rows(container: Container, table: LakeTable, state: TableState) -> str | None:
    """Another program has changed rows of the Delta table, which nothing in the log would undo."""
    if state.data_version is None or table.left(state) is Left.THERE:
        return None
    for commit in table.data_commits_since(state.data_version):
        if commit.commit_metadata.get("container") != container.label and commit.operation != "RESTORE":
            return f"another program has changed rows of the Delta table (version {commit.version}, {commit.operation})"
    return None
