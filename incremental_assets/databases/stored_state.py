"""The sync state that a container's table stores: the one of a new table, and whether a stored one still fits the container and its
source.
"""

from dataclasses import replace

from incremental_assets.core.container import NO_IDENTIFIER, Container, WhenRecreated
from incremental_assets.core.cursor_type import format_value
from incremental_assets.core.errors import RebuildNeeded
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import canonical_name
from incremental_assets.core.plan import Mode, Request
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.source import Relation, SourceDatabase
from incremental_assets.delta.properties import is_set_without_spark
from incremental_assets.delta.table import Head, LakeTable, Left, expect_owner

ANOTHER = "its table was dropped and created anew"
_ADOPT = "If the rows are the same (a new server, a restored dump, a table made anew), this proves it and goes on: incremental-assets adopt"
DOUBTED = "its table, or one of its columns, may be another one under its name"


def fresh_state(container: Container, source: str) -> TableState:
    """The sync state of a table that has no rows yet. ``source`` identifies the source database (``Server.source``)."""
    identifier = container.identifier
    start = format_value(identifier.cursor_type, identifier.start) if identifier and identifier.start is not None else None
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


def checked_state(
    container: Container,
    table: LakeTable,
    head: Head | None,
    source: SourceDatabase,
    relation: Relation,
    request: Request,
    proved: Relation | None = None,
    *,
    proving: Container | None = None,
) -> TableState | None:
    """The sync state in the table's property, as far as it holds; None if there is no table or no state. ``relation``:
    ``compared_relation``. ``proved``: that of a source's table whose rows were found equal to those in the lake. ``proving``: where
    the caller finds out whether they are, so that the source and its table may be others: the container that owns the table now.

    If rows of the table may have been changed since, the state has neither a fingerprint nor the time of a read, so that rows are read
    again. If the table does not have the commit that the state names, it is ``of_unknown_rows``.

    Raises LakeError if the table belongs to another container, and RebuildNeeded if the state does not fit the container or the source any
    more. With ``--reset-watermarks`` the table is replaced anyway, so only the owner is checked.
    """
    if head is None:
        return None
    expect_owner(proving or container, table, head)
    if request.reset:
        return head.state(container) if _fits(head, container) else None
    is_first = head.signature() == NO_IDENTIFIER and container.identifier is not None and proving is None
    if is_first and request.mode is Mode.REFRESH and request.keys is not None:
        raise RebuildNeeded(
            f"{container.label}: it was synced whole until now, and its identifier is new, so that the next sync loads all of it, and only "
            f"then single partitions can be refreshed; nothing was written. Sync it: incremental-assets sync {container.label}"
        )
    if not is_first and not _fits(head, container):
        was = head.signature()
        raise RebuildNeeded(_rebuild(container, f"its identifier was {was} and is {container.signature}"))
    state = head.state(container)
    if state is None:
        return None
    other = another_source(container, head, source.server.source)
    if other is not None and proving is None:
        raise RebuildNeeded(f"{_rebuild(container, other)}. {_ADOPT} {container.label}")
    refuses = container.when_recreated is WhenRecreated.REFUSE and proving is None and not is_first
    if refuses and is_another(state, relation) and relation != proved:
        raise recreated_refusal(container, f"{ANOTHER}, so that its rows below the watermark are unknown")
    if container.is_captured and state.capture is None:
        return state  # it is loaded anew, whatever its strategy and key were
    if is_first:
        return state  # as well: ``source_checks.read_otherwise``
    if state.strategy != container.strategy.value:
        raise RebuildNeeded(_rebuild(container, f"its strategy was {state.strategy} and is {container.strategy.value}"))
    check_key(container, state)
    if state.start != fresh_state(container, "").start:
        raise RebuildNeeded(_rebuild(container, f"its start value was {state.start} and is {fresh_state(container, '').start}"))
    match table.left(state):
        case Left.THERE:
            return state
        case Left.CHANGED:
            return replace(state, fingerprint=None, read_at=None)
        case Left.REPLACED:
            return state.of_unknown_rows()


def without_watermark(state: TableState | None) -> str:
    """Why a table that exists is loaded whole, in words: no state tells which rows it has."""
    if state is None or not state.is_of_unknown_rows:
        return "the table carries no watermark yet"
    return f"the commit of its last sync, version {state.data_version}, is gone, and another one has its number"


def with_commit(state: TableState | None, table: LakeTable, learned: TableState | None) -> TableState | None:
    """The state to store although nothing is to be done: with the id of its commit, of which earlier versions of this product have stored
    the number alone.

    ``learned``: what is to be stored anyway.
    """
    known = learned or state
    if known is None or known.data_version is None or known.data_commit is not None:
        return learned
    found = table.commit(known.data_version)
    return learned if found is None else noted(table, learned, known, replace(known, data_commit=found.id))


def another_source(container: Container, head: Head, database: str) -> str | None:
    """From which other database or schema the table was filled, in words; None if it was from this one (``Server.source``)."""
    before, schema = head.filled_from
    if before is None or not same_source(before, database):
        return f"the table was filled from another database (system/database {before}, now {database})"
    return None if schema in (None, container.schema) else f"the table was filled from schema {schema} (now {container.schema})"


def compared_relation(container: Container, head: Head | None, source: SourceDatabase) -> Relation:
    """What tells the source's table and columns from others of their names. Nothing is asked where all rows are read anyway."""
    needed = head is not None and (container.identifier is not None or container.is_captured)
    return source.relation() if needed else Relation()


def noted(table: LakeTable, learned: TableState | None, known: TableState, found: TableState) -> TableState | None:
    """The state to store although nothing is to be done: ``found``, unless it is what is ``known``, or unless Spark is needed to store it.

    ``learned``: what is to be stored otherwise.
    """
    return found if found != known and is_set_without_spark(table) else learned


def is_another(state: TableState | None, relation: Relation) -> bool:
    """Whether the source's table is certainly another one than that from which the table in the lake was filled."""
    return state is not None and state.relation is not None and relation.id is not None and state.relation != relation.id


def is_doubted(state: TableState | None, relation: Relation) -> bool:
    """Whether it may be another one, or one of its columns."""
    return state is not None and state.mark is not None and relation.mark is not None and state.mark != relation.mark


def recreated_refusal(container: Container, what: str) -> RebuildNeeded:
    """The error where the table is another one than before."""
    return RebuildNeeded(
        f"{_rebuild(container, what)}. {_ADOPT} {container.label}. If this happens regularly, write when_recreated: adopt, or reload"
    )


def lake_keyed(container: Container, state: TableState | None, fills: bool) -> Container:
    """The container with those canonical forms of its key that its table has. ``state``: the table's. ``fills``: the rows that are read are
    all that the table is going to have."""
    return container if fills else container.with_canonical((state.canonical if state is not None else None) or ())


def lacks_forms(container: Container, found: Container) -> str | None:
    """What to say where the table in the lake has no canonical forms of its key (``found``), as an earlier version has filled it."""
    lacking = [name for name in container.canonical if name not in found.canonical]
    if not lacking:
        return None
    return (
        f"equal values of its key may look different ({', '.join(lacking)}), and the table was filled by a version that did not know it: a "
        f"key that the source only writes otherwise leaves its old row in the lake. To tell rows apart as the source does, load it anew: "
        f"incremental-assets sync {container.label} --reset-watermarks"
    )


def check_key(container: Container, state: TableState) -> None:
    """Raises RebuildNeeded if an upsert would merge rows by another primary key than before, or by none of the forms of its key."""
    if container.strategy is Strategy.UPSERT and state.key != container.primary_key:
        raise RebuildNeeded(_rebuild(container, f"its key was {', '.join(state.key)} and is {', '.join(container.primary_key)}"))
    forms = {canonical_name(name).lower() for name in state.canonical or ()}
    taken = next((column.name for column in container.columns if column.name.lower() in forms), None)
    if taken is not None:
        raise RebuildNeeded(_rebuild(container, f"its column {taken} has forms of its key, and the source has a column of that name now"))


def _fits(head: Head, container: Container) -> bool:
    return head.signature() in (None, container.signature)


def load_anew(container: Container) -> str:
    """What to do about a table that cannot go on, in words."""
    return f"load the table anew: incremental-assets sync {container.label} --reset-watermarks"


def _rebuild(container: Container, what: str) -> str:
    return (
        f"{container.label}: {what}; lake and source no longer fit together and nothing was written. Either undo the change, or "
        f"{load_anew(container)}"
    )


def same_source(before: str, now: str) -> bool:
    """Whether two values of ``Server.source`` (``system/database``) may name the same database.

    A role that is not allowed to read the system identifier sees ``hidden`` instead of it; then only the database's OID is compared.
    """
    old_system, _, old_database = before.partition("/")
    new_system, _, new_database = now.partition("/")
    return old_database == new_database and (old_system == new_system or "hidden" in (old_system, new_system))
