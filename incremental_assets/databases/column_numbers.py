"""What syncs do about columns of the source that have taken the names of others since the table in the lake was filled."""

from collections.abc import Mapping
from dataclasses import replace

from incremental_assets.core.container import Container
from incremental_assets.core.errors import SourceError
from incremental_assets.core.plan import Plan
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.source import Relation
from incremental_assets.databases.stored_state import noted
from incremental_assets.delta.table import LakeTable

Numbers = Mapping[str, int]


def numbers_read(container: Container, relation: Relation) -> Numbers:
    """The numbers of the columns that the container reads."""
    return {name: number for name, number in relation.numbers.items() if name not in container.options.exclude_columns}


def takes_other_names(container: Container, relation: Relation, state: TableState | None) -> str | None:
    """Which columns are not those any more that the table in the lake has under their names, in words; None if all are, or if that is not
    known."""
    before, now = known_numbers(state), numbers_read(container, relation)
    if state is not None and state.relation is not None and state.relation != relation.id:
        return None  # the numbers of another table say nothing
    if before is None:
        return _is_reordered(state, now)
    names, numbers = {number: name for name, number in before.items()}, {name.lower(): number for name, number in before.items()}
    said: list[str] = []
    for name, number in now.items():
        was = names.get(number)
        if was is not None and was.lower() != name.lower():
            said.append(f"{was} was renamed to {name}")
        elif numbers.get(name.lower(), number) != number:
            said.append(f"{name} was dropped and added anew")
    return f"columns are others than before: {', '.join(said)}" if said else None


def _is_reordered(state: TableState | None, now: Numbers) -> str | None:
    """As ``takes_other_names``, for a table that an earlier version has filled: it has noted the names in the order of the numbers."""
    before = state.columns if state is not None and state.loaded else None
    if not now or before is None:
        return None
    in_order = [name for name in sorted(now, key=lambda name: now[name]) if name in before]
    if in_order == [name for name in before if name in now]:
        return None
    return f"columns are others than before: they were {', '.join(before)}"


def known_numbers(state: TableState | None) -> Numbers | None:
    """The numbers that the columns of the table in the lake had in the source; None if they are not known."""
    if state is None or not state.loaded:
        return None
    if state.numbers is None and state.capture is not None:  # an earlier version has noted them for the log alone
        return {column.name: column.number for column in state.capture.shape.columns}
    return state.numbers


def numbers_after(plan: Plan, container: Container, relation: Relation, before: TableState) -> Numbers | None:
    """The numbers to store with the rows of a read. ``before``: the state of the last commit, or a fresh one.

    A dropped column keeps its number, as it stays in the table. Beside a refresh of chosen partitions, rows of other columns may stay.
    Raises SourceError if columns have taken other names than when the sync was planned.
    """
    if takes_other_names(container, relation, before) is None:
        return {**(known_numbers(before) or {}), **numbers_read(container, relation)} or None
    if not plan.is_of_chosen_partitions:
        raise SourceError(f"{container.label}: its columns were renamed, or dropped and added anew, while it was synced; sync again.")
    return before.numbers


def with_relation(
    container: Container, relation: Relation, state: TableState | None, table: LakeTable, learned: TableState | None
) -> TableState | None:
    """The state to store although nothing is to be done: with what identifies the table and its columns, where it is not known yet.

    The fingerprint has just shown that the columns are those of the last sync. ``learned``: what is to be stored anyway.
    """
    known = learned or state
    if known is None:
        return None
    numbers = known.numbers if known.numbers is not None and known.relation == relation.id else numbers_read(container, relation) or None
    return noted(table, learned, known, replace(known, relation=relation.id, numbers=numbers, mark=relation.mark))


def unknown_numbers(container: Container, before: TableState, after: TableState) -> list[str]:
    """What to say where an earlier version has filled the table, which did not notice all columns that took other names.

    ``before``: the state of the last commit, or a fresh one. ``after``: the state to store.
    """
    if not before.loaded or known_numbers(before) is not None or after.numbers is None:
        return []
    return [
        "its columns are recognised by their numbers from now on. If some were renamed, or dropped and added anew, since an earlier "
        f"version has filled the table, compare once: incremental-assets audit {container.label} --repair"
    ]
