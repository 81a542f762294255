"""What syncs do about the rows that the source's row security hides from our role."""

from incremental_assets.core.container import Container, RowSecurity
from incremental_assets.core.errors import SourceError
from incremental_assets.core.plan import Plan
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.source import Policies, SourceDatabase


def policies_in_force(container: Container, source: SourceDatabase) -> Policies:
    """The policies that hide rows of the container from our role. There are none where the source refuses to hide any."""
    return source.policies() if container.row_security is RowSecurity.ACCEPT else Policies()


def hides_others(container: Container, source: SourceDatabase, state: TableState | None) -> str | None:
    """Why other rows may be hidden than those of the table in the lake; None if the same are, or if that is not known."""
    if state is None or not state.loaded or state.policies is None:
        return None
    now = policies_in_force(container, source)
    if state.policies == now.digest:
        return None
    return f"row security hides other rows than before: {now.said or 'none'}"


def unknown_policies(container: Container, source: SourceDatabase, before: TableState) -> list[str]:
    """A warning for a table that an earlier version has filled, which did not notice when policies hid rows, if they can have.

    ``before``: the state of the last commit, or a fresh one.
    """
    if not before.loaded or before.policies is not None:
        return []
    found = source.policies()
    if found.digest or not found.guarded:
        return []
    return [
        f"row security is enabled for {', '.join(found.guarded)}, and an earlier version, which has filled the table, did not notice rows "
        f"that it hid; compare once: incremental-assets audit {container.label} --repair"
    ]


def policies_read(plan: Plan, container: Container, source: SourceDatabase, before: TableState) -> str:
    """The digest of the policies to store with the rows of a read. ``before``: the state of the last commit, or a fresh one.

    Beside a refresh of chosen partitions, rows of other policies may stay. Raises SourceError if other policies are in force than when the
    sync was planned.
    """
    now = policies_in_force(container, source)
    if not before.loaded or before.policies in (None, now.digest):
        return now.digest
    if not plan.is_of_chosen_partitions:
        raise SourceError(f"{container.label}: its policies of row security were changed while it was synced; sync again.")
    return before.policies


def said_of(policies: Policies) -> str:
    """What an audit and the metadata of a sync say of rows that are hidden; empty if none are."""
    return f"rows that row security hides from our role are in neither: {policies.said}" if policies.digest else ""
