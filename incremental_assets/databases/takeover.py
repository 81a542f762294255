"""Takes a table in the lake over for a source's table that may be another one than it was filled from: a new server, the server after
``pg_upgrade``, a restored dump, a table that was made anew.

What the state says of the old server's transactions, log and counters says nothing of the new one. Without a fingerprint, the next sync
reads everything from its lag window on; so only the rows below that have to be proved, and the watermark stays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from incremental_assets.core.comparison import Comparison, Difference, RowScope
from incremental_assets.core.container import Container
from incremental_assets.core.counted_changes import CountedChanges
from incremental_assets.core.deletes import MARK
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.schema import Column
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.audit import below
from incremental_assets.databases.column_numbers import numbers_read
from incremental_assets.databases.hidden_rows import policies_in_force
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.source import Relation, SourceDatabase
from incremental_assets.databases.stored_state import ANOTHER, DOUBTED, another_source, is_another, is_doubted, load_anew, same_source
from incremental_assets.delta.table import Head

Compare = Callable[[RowScope], Comparison]
"""Compares these rows of both sides."""


@dataclass(frozen=True)
class TakenOver:
    """What was found of a table in the lake. ``state``: the one to store, as its rows are the source's; None: the stored one holds.
    ``said``: the same in words; empty where nothing had to be proved. ``differs``: rows are others, so that nothing may be taken over."""

    state: TableState | None = None
    said: str = ""
    differs: bool = False


def to_be_proved(container: Container, head: Head, state: TableState, source: SourceDatabase, relation: Relation) -> str | None:
    """Why the rows in the lake may not be those of the source's table, in words; None if it is the one that they came from."""
    other = another_source(container, head, source.server.source)
    if other is not None:
        return other
    return ANOTHER if is_another(state, relation) else DOUBTED if is_doubted(state, relation) else None


def all_rows(container: Container) -> RowScope:
    """All rows that the container's syncs read."""
    return RowScope() if container.identifier is None else RowScope((container.identifier.domain,), container.has_null_identifiers)


def other_columns(state: TableState, lake: Sequence[Column], source: Sequence[Column]) -> str | None:
    """How the columns of the source differ from those that the table was filled with, in words; None if that keeps no value back.

    Values of a column that may have another name now, or has another type, are not compared, or not exactly: the lake has what its own type
    holds of them. A column that is only new, or only gone, is as after ADD or DROP COLUMN, which syncs follow.
    """
    filled = {one.name: one.type for one in lake if one.name != MARK and (state.columns is None or one.name in state.columns)}
    there = {one.name: one.type for one in source}
    new, gone = there.keys() - filled.keys(), filled.keys() - there.keys()
    said = [f"{name} is new" for name in new if gone] + [f"{name} is gone" for name in gone if new]
    said += [f"{name} was {filled[name]} and is {there[name]}" for name in filled.keys() & there.keys() if filled[name] != there[name]]
    return ", ".join(sorted(said)) or None


def taken_over(
    plan: TablePlan, source: SourceDatabase, why: str, changes: CountedChanges | None, compare: Compare, others: str | None
) -> TakenOver:
    """Compares the rows that the next sync does not read, in the snapshot that is held. ``why``: they may be others (``to_be_proved``).
    ``changes``: the source's counters from before the snapshot. ``others``: see ``other_columns``.
    """
    container, state = plan.container, plan.state
    assert state is not None
    if others is not None:
        said = f"{why}, and its columns are others: {others}. Nothing was changed. If this is the right table, {load_anew(container)}"
        return TakenOver(said=said, differs=True)
    lower = None if container.identifier is None else container.lag_window.window(plan.watermark).lower
    found, wrong = compared(container, lower, compare)
    if wrong:
        return TakenOver(said=_differs(container, why, wrong, found), differs=True)
    return TakenOver(
        _state_after(container, state, source, changes),
        f"{why}; {counted(found.rows, 'row was compared, and is', 'rows were compared, and are')} equal",
    )


def compared(container: Container, lower: int | None, compare: Compare) -> tuple[Comparison, Mapping[Difference, int]]:
    """Compares the rows below ``lower``, from which on the next sync reads. Returns what was found, and how many rows of each kind, if any,
    keep a table that is another one from being taken over.

    Where there are no rows below, nothing would be proved, so that all rows are compared.
    """
    found = compare(all_rows(container) if lower is None else below(container, lower))
    if lower is not None and found.equal and not found.rows:
        found = compare(all_rows(container))
    rest = compare(all_rows(container)) if _has_only_surplus(container, found) else None
    return rest or found, _wrong_rows(found, rest)


def _has_only_surplus(container: Container, found: Comparison) -> bool:
    """Whether only a comparison of all rows tells if the rows that the lake alone has below the lag window are in the source above it."""
    surplus = found.counts[Difference.SURPLUS]
    return container.strategy is Strategy.UPSERT and 0 < surplus == sum(found.counts.values())


def _wrong_rows(found: Comparison, rest: Comparison | None) -> Mapping[Difference, int]:
    """How many rows keep the table from being taken over, of each kind that there are. ``rest``: the comparison of all rows, if needed.

    A row of an upsert that got a newer identifier is not below any more in the source, and the lake has the older one until the next sync.
    Compared with all rows of the source it is stale; what is surplus even then, the source does not have.
    """
    counts = dict(found.counts) if rest is None else {Difference.SURPLUS: rest.counts[Difference.SURPLUS]}
    return {kind: number for kind, number in counts.items() if number}


def _differs(container: Container, why: str, wrong: Mapping[Difference, int], found: Comparison) -> str:
    """What keeps the table from being taken over, with some of the keys, and what to do."""
    numbers = ", ".join(f"{number:,} {kind.value}" for kind, number in wrong.items())
    keys = [f"{kind.value} {'/'.join(map(str, key))}" for kind in wrong for key in list(found.examples.get(kind, ()))[:3]]
    return (
        f"{why}, and its rows differ from those in the lake: {numbers} ({', '.join(keys)}). Nothing was changed. If this is the right "
        f"table, {load_anew(container)}"
    )


def _state_after(container: Container, state: TableState, source: SourceDatabase, changes: CountedChanges | None) -> TableState:
    """The state once the rows were found equal, in the snapshot that is held."""
    relation, server = source.relation(), source.server.source
    counted = changes if container.strategy is Strategy.APPEND else None
    return replace(
        state,
        # A role that may not read the server's identifier says less than is known.
        source=state.source if "hidden" in server and same_source(state.source, server) else server,
        schema=container.schema,
        relation=relation.id,
        numbers=numbers_read(container, relation) or None,
        mark=relation.mark,
        policies=policies_in_force(container, source).digest,
        point=source.point(),
        fingerprint=None,
        read_at=None,
        pending=(),
        changes=None if counted is None else replace(counted, missed=0, new=0),
    )
