"""What one sync of a table is going to do: plain SQL over psycopg and the table's own log, milliseconds, no Spark and no Dagster.

Belongs here: the decision (skip, load, sync, refresh) and its reason in words. Does not belong: doing it (``sync``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from incremental_assets.core.axis import format_value
from incremental_assets.core.container import Container, HoldBack, Kind
from incremental_assets.core.errors import ConfigurationError, RebuildNeeded
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.lag import lag_warning
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.core.watermark import TableState, advance
from incremental_assets.core.window import EVERYTHING, Window, in_words
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.databases.postgres.session import Server
from incremental_assets.delta.table import Head, LakeTable, expect_owner

MOST_GENERATED_KEYS = 2000


@dataclass(frozen=True, kw_only=True)
class TablePlan(Plan):
    """``windows`` (and the rows without identifier) will be read and replaced; ``whole``: the table, with its schema."""

    windows: tuple[Window, ...]
    include_nulls: bool
    whole: bool = False

    @property
    def asked(self) -> str:
        """The windows in words."""
        return in_words(self.container.axis, self.windows)


def fresh_state(container: Container, source: str) -> TableState:
    """The state of a table that holds nothing yet."""
    identifier = container.identifier
    start = format_value(identifier.axis, identifier.start) if identifier and identifier.start is not None else None
    excluded = container.options.exclude_columns
    return TableState(
        container.signature,
        container.strategy.value,
        container.primary_key,
        source,
        start=start,
        schema=container.schema,
        excluded_columns=excluded,
    )


def make_plan(
    container: Container, reader: PostgresReader, table: LakeTable, partitions: Partitions | None, request: Request, event: int | None
) -> TablePlan:
    """Plans one sync. ``event``: the watermark of the newest materialization event that carries one.

    Raises ConfigurationError, RebuildNeeded, LakeError or SourceError; nothing has been written then.
    """
    if container.identifier is None and request.mode is Mode.INCREMENTAL and request.keys is not None:
        raise ConfigurationError(f"{container.label}: it has no partitions.")
    server = reader.server
    head = table.head()
    state = _state(container, table, head, reader, request)
    watermark = state.counting_watermark(event) if state else None
    warnings = [*_server_warnings(container, server), *_index_warning(container)]
    ground = (container.identifier.ground if container.identifier else EVERYTHING,)

    def plan(action: Action, reason: str, windows: tuple[Window, ...], nulls: bool, whole: bool = False, alarm: bool = False) -> TablePlan:
        return TablePlan(
            container=container,
            request=request,
            action=action,
            reason=reason,
            windows=windows,
            include_nulls=nulls,
            whole=whole,
            watermark=watermark,
            state=state,
            base_version=head.version if head else None,
            warnings=(*warnings, *lag_warning(container)) if action is Action.LOAD else tuple(warnings),
            alarm=alarm,
        )

    nulls = container.has_null_identifiers
    if request.reset:
        return plan(Action.LOAD, "loads the whole container anew, as asked by --reset-watermarks", ground, nulls, whole=True)
    asked_all = request.mode is Mode.REFRESH and request.keys is None
    if head is not None and (state is None or not state.loaded) and (asked_all or request.mode is Mode.INCREMENTAL):
        empty = state is not None and head.version == 0
        return plan(Action.LOAD, "loads the whole container: the table carries no watermark yet", ground, nulls, whole=not empty)
    if head is None and (asked_all or request.mode is Mode.INCREMENTAL):
        return plan(Action.LOAD, "first sync: loads the whole container", ground, nulls)
    if container.identifier is None:
        reason = _unchanged(container, reader, table, state, ground, True) if request.mode is Mode.INCREMENTAL else None
        if reason:
            return plan(Action.SKIP, reason, ground, True)
        return plan(Action.REFRESH, "reads the whole container: it has no incremental identifier", ground, True)
    if request.mode is Mode.REFRESH:
        if request.keys is None:
            return plan(Action.REFRESH, "refreshes all partitions", ground, nulls)
        assert partitions is not None
        inside = [w for key in [partitions.windows_of(request.keys)] for w in key]
        windows = tuple(w for w in (window.intersect(ground[0]) for window in inside) if w is not None)
        whole_axis = windows == ground
        count = len(request.keys)
        return plan(Action.REFRESH, f"refreshes {count} partition{'s' if count > 1 else ''} whole", windows, nulls and whole_axis)
    tail = container.tail.window(watermark)
    learned: TableState | None = None
    if state is not None and state.pending and state.watermark == watermark:
        reason, learned = _unchanged_but_pending(container, reader, table, state, nulls)
    else:
        reason = _unchanged(container, reader, table, state, (tail,), nulls)
    if reason:
        # The row that a time's watermark came from is gone: never a silent skip. An integer's may come from a sequence alone.
        empty = (
            container.identifier.axis.is_time and state is not None and watermark is not None and (state.fingerprint or "").startswith("0.")
        )
        if empty:
            reason += f"; {fallen_back(container)}"
        return replace(plan(Action.SKIP, reason, (tail,), nulls, alarm=empty), learned=learned)
    return plan(Action.SYNC, f"reads what is new since the watermark {_shown(container, watermark)}", (tail,), nulls)


def fallen_back(container: Container) -> str:
    """The warning when a source has no rows any more where its watermark was."""
    columns = "/".join(container.identifier.columns) if container.identifier else ""
    return (
        f"the source has fallen back: no {columns} reaches the watermark any more; were its newest rows deleted, or was a backup restored? "
        "Refresh the partitions concerned"
    )


def _state(container: Container, table: LakeTable, head: Head | None, reader: PostgresReader, request: Request) -> TableState | None:
    """The table's own word, if it fits the container and the source."""
    if head is None:
        return None
    expect_owner(container, table, head)
    if request.reset:
        return head.state(container) if _fits(head, container) else None
    if not _fits(head, container):
        was = head.signature()
        raise RebuildNeeded(_rebuild(container, f"its identifier was {was} and is {container.signature}"))
    state = head.state(container)
    if state is None:
        return None
    source = reader.server.source
    if not _same_source(state.source, source):
        raise RebuildNeeded(
            _rebuild(container, f"the table was filled from another database (system/database {state.source}, now {source})")
        )
    if state.schema not in (None, container.schema):
        raise RebuildNeeded(_rebuild(container, f"the table was filled from schema {state.schema} (now {container.schema})"))
    relation = reader.relation() if container.identifier is not None else None
    if state.relation is not None and relation is not None and state.relation != relation:
        raise RebuildNeeded(_rebuild(container, "its table was dropped and created anew, so nobody knows what lies below the watermark"))
    if state.strategy != container.strategy.value:
        raise RebuildNeeded(_rebuild(container, f"its strategy was {state.strategy} and is {container.strategy.value}"))
    check_key(container, state)
    if state.start != fresh_state(container, "").start:
        raise RebuildNeeded(_rebuild(container, f"its start value was {state.start} and is {fresh_state(container, '').start}"))
    return state


def check_key(container: Container, state: TableState) -> None:
    """Raises RebuildNeeded where rows would be merged by another key than before."""
    if container.strategy is Strategy.UPSERT and state.key != container.primary_key:
        raise RebuildNeeded(_rebuild(container, f"its key was {', '.join(state.key)} and is {', '.join(container.primary_key)}"))


def _fits(head: Head, container: Container) -> bool:
    return head.signature() in (None, container.signature)


def _rebuild(container: Container, what: str) -> str:
    return (
        f"{container.label}: {what}; lake and source no longer fit together and nothing was written. Either undo the change, or load the "
        f"table anew: incremental-assets sync {container.label} --reset-watermarks"
    )


def _same_source(before: str, now: str) -> bool:
    """A role that may not see the system identifier knows only the database's number."""
    old_system, old_database = before.split("/")
    new_system, new_database = now.split("/")
    return old_database == new_database and (old_system == new_system or "hidden" in (old_system, new_system))


def _unchanged(
    container: Container, reader: PostgresReader, table: LakeTable, state: TableState | None, windows: Sequence[Window], nulls: bool
) -> str | None:
    """Why there is nothing to do, with the numbers; None when there is."""
    if state is None or state.fingerprint is None:
        return None
    found = reader.fingerprint(windows, nulls)
    if found != state.fingerprint or not table.is_as_left(state.data_version):
        return None
    rows = int(state.fingerprint.split(".")[0])
    if container.identifier is None:
        return f"nothing to do: none of the {rows:,} rows has changed"
    below = windows[0].lower
    since = f" from {format_value(container.identifier.axis, below)} on" if below is not None else ""
    return f"nothing to do: the {rows:,} rows{since} are those of the last sync; watermark {_shown(container, state.watermark)}"


def _unchanged_but_pending(
    container: Container, reader: PostgresReader, table: LakeTable, state: TableState, nulls: bool
) -> tuple[str | None, TableState | None]:
    """As ``_unchanged``, where a value is pending: who has ended since, and the state with the watermark that follows.

    The steps and their order are those of a sync: the highest identifier, who is at work, then one snapshot in which the old tail is
    compared and the new one's fingerprint is taken. Rows that are as they were need not be read again.
    """
    highest = reader.highest()
    held_by, now = reader.transactions.settle(highest.clock, 0)
    moved = advance(state.watermark, state.pending, highest.value, held_by, now, True, highest.withheld)
    old, new = container.tail.window(state.watermark), container.tail.window(moved.watermark)
    if new == old:
        reason = _unchanged(container, reader, table, state, (old,), nulls)
        struck = replace(state, pending=moved.pending)
        return reason, struck if reason and struck != state else None
    if not table.is_written_by_delta_rs():  # a sync reads some rows once more, and moves it by Spark
        return None, None
    with reader.snapshot():
        reason = _unchanged(container, reader, table, state, (old,), nulls)
        if reason is None:
            return None, None
        fingerprint = reader.fingerprint((new,), nulls)
    reason += f", and moves to {_shown(container, moved.watermark)}: whoever might have committed rows below that has ended"
    return reason, replace(state, watermark=moved.watermark, pending=moved.pending, fingerprint=fingerprint)


def _shown(container: Container, watermark: int | None) -> str:
    return "none" if watermark is None or container.axis is None else format_value(container.axis, watermark)


def _server_warnings(container: Container, server: Server) -> list[str]:
    warnings: list[str] = []
    if server.is_replica and container.identifier is not None:
        warnings.append(
            "the source is a read replica: transactions open on its primary cannot be seen, so rows committed late may lie below the "
            f"watermark; a safety_lag must cover the longest of them (now {container.lag})"
        )
    by_session = container.identifier is not None and container.identifier.axis.is_time and container.options.hold_back is HoldBack.ALL
    if by_session and not server.shows_activity:
        warnings.append(
            "this role cannot see what other roles' sessions are doing: a transaction whose now() is older than it shows may commit rows "
            f"below the watermark; a safety_lag must cover that (now {container.lag}), or: GRANT pg_read_all_stats TO <this role>;"
        )
    if container.kind in (Kind.FOREIGN, Kind.MATERIALIZED_VIEW) and container.identifier is not None:
        hidden = "transactions open on its own server" if container.kind is Kind.FOREIGN else "what was uncommitted when it was refreshed"
        warnings.append(
            f"it is a {container.kind.value}: {hidden} cannot be seen, so rows may come to lie below the watermark later; a safety_lag "
            f"must cover the longest of them (now {container.lag})"
        )
    if server.is_pooled:
        warnings.append(
            "the source is reached through a connection pooler: syncs work as long as it leads to one server; several servers behind it "
            "cannot share a snapshot, and time-outs of the pooler end long reads"
        )
    return warnings


def _index_warning(container: Container) -> list[str]:
    """The index that would spare each plan a scan, for tables where that matters."""
    identifier = container.identifier
    if identifier is None or (container.rows or 0) < 10_000:
        return []
    missing = [name for name in identifier.columns if name not in container.indexed]
    return [
        f"the identifier {name!r} leads no index, so each sync scans the table; this would help: "
        f'CREATE INDEX CONCURRENTLY ON "{container.schema}"."{container.name}" ("{name}");'
        for name in missing
    ]


def run_keys(plan: TablePlan, reader: PostgresReader, partitions: Partitions | None) -> list[str]:
    """The partition keys a run of the plan is launched with. For integers they may be new: they are what the rows to be read need."""
    if partitions is None or plan.container.cut is None:
        return []
    if plan.request.keys is not None:
        return list(plan.request.keys)
    lower = plan.windows[0].lower if plan.windows else None
    if not isinstance(partitions, IntegerPartitions):
        # Up to the newest row, not to today: a table that ended years ago has no partitions since.
        newest = max((v for v in (lower, reader.highest().seen) if v is not None), default=None)
        return partitions.keys_between(lower, newest)
    keys = integer_keys(reader, partitions.width, plan.container.cut.batch, lower, plan.windows)
    if partitions.known and plan.action is not Action.LOAD:  # what lies below the first one belongs to it
        keys = [str(max(int(key), partitions.known[0])) for key in keys]
    return list(dict.fromkeys(keys))


def integer_keys(reader: PostgresReader, width: int, batch: bool, lower: int | None, windows: Sequence[Window]) -> list[str]:
    """Keys of the partitions from ``lower`` on (None: from the lowest row on), of which the windows may have rows; ascending."""
    highest = reader.highest().seen
    if highest is None:
        return []
    if lower is None:
        lower = reader.lowest()
    first = (lower if lower is not None else highest) // width * width
    if not batch and (highest - first) // width <= MOST_GENERATED_KEYS:
        return [str(start) for start in range(first, highest + 1, width)]
    return [str(start) for start in reader.distinct_starts(windows, width)]
