"""The warnings that a plan gives: what the source's server cannot promise, which index is missing, and what was renamed or
cut otherwise.
"""

from pathlib import Path

from incremental_assets.core.container import Container, HoldBack, Kind
from incremental_assets.core.errors import LakeError
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.plan import Mode, Request
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.source import Server, SourceDatabase
from incremental_assets.delta.table import LakeTable


def server_warnings(container: Container, server: Server) -> list[str]:
    """Warnings about transactions that the source's server cannot show, and about connection poolers."""
    warnings: list[str] = [server.weaker_promise] if server.weaker_promise else []
    if server.is_replica and container.identifier is not None:
        warnings.append(
            "the source is a read replica: transactions open on its primary cannot be seen, so rows committed late may lie below the "
            f"watermark; a safety_lag must cover the longest of them (now {container.lag})"
        )
    if not server.shows_activity and not server.hides_transactions and _by_sessions(container) and not container.lag_is_auto:
        warnings.append(
            f"safety_lag is {container.lag}, and this role cannot see what other roles' sessions are doing: a transaction whose now() is "
            "older than that may commit rows below the watermark. Leave it auto, or: GRANT pg_read_all_stats to this role"
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
    if server.not_set:
        warnings.append(
            f"the role or its database sets {', '.join(server.not_set)}, which is left as it is behind a pooler, as the application would "
            f"get it: ALTER ROLE … RESET {server.not_set[0]}; (or ALTER DATABASE)"
        )
    return warnings


def not_told(container: Container, server: Server) -> list[str]:
    """Warnings about what the server does not tell our user, for loads of the whole container: further syncs do not repeat them."""
    warnings: list[str] = []
    if container.identifier is not None and not server.shows_activity and server.hides_transactions:
        warnings.append(
            "this user cannot see which transactions are open: one of them may commit rows below the watermark later; a safety_lag must "
            f"cover the longest of them (now {container.lag})"
        )
    if server.why_unwatched and container.is_watched:
        changed = "deleted" if container.strategy is Strategy.UPSERT else "updated or deleted"
        warnings.append(
            f"rows that are {changed} below what {container.strategy.value} reads again are found by an audit alone: {server.why_unwatched}"
        )
    return warnings


def _by_sessions(container: Container) -> bool:
    """Whether it is the sessions of others that tell how far the watermark may go (``core.lag.where_sessions_are_hidden``)."""
    return container.cursor_type is not None and container.cursor_type.is_time and container.options.hold_back is HoldBack.ALL


def index_warnings(container: Container, source: SourceDatabase) -> list[str]:
    """A warning for each identifier column without index, as each plan then scans the table. Tables under 10,000 rows are left out."""
    identifier = container.identifier
    if identifier is None or (container.rows or 0) < 10_000:
        return []
    missing = [name for name in identifier.columns if name not in container.indexed]
    return [
        f"the identifier {name!r} leads no index, so each sync scans the table; this would help: {source.index_statement(name)}"
        for name in missing
    ]


def cut_otherwise(container: Container, request: Request, state: TableState | None) -> list[str]:
    """A warning if the rows were cut into other partitions when all of them were last reported to Dagster, which is not asked for now."""
    if state is None or not state.loaded or state.cut in (None, container.cut) or container.cut is None:
        return []
    if request.reset or (request.mode is Mode.REFRESH and request.keys is None):
        return []
    return [
        f"its partitions were those by {state.cut} and are those by {container.cut} now: all rows are in the lake, but Dagster shows only "
        f"those partitions that were written since. This reads all rows once, and shows all: "
        f"incremental-assets sync {container.label} --mode refresh"
    ]


def loaded_elsewhere(container: Container, table: LakeTable, source: SourceDatabase) -> list[str]:
    """A warning if the lake, which is in a local folder, has a table of another datastore with rows of the same table of the source."""
    lake = Path(table.address).parent.parent
    if "://" in table.address or not lake.is_dir():
        return []
    for other in sorted(lake.glob(f"*/{container.key_path[1]}/_delta_log")):
        try:
            head = LakeTable(str(lake), *other.parts[-3:-1]).head()
        except LakeError:
            continue
        if head is None or head.filled_from != (source.server.source, container.schema):
            continue
        before = str(head.owner).partition("/")[0]
        return [
            f"the lake has the rows of the same table of the source as {head.owner} already, and they are loaded once more, beside those. "
            f"If the datastore was renamed, stop this, remove {table.address}, and let the old tables go on under the new name: "
            f"incremental-assets adopt {container.datastore} --from {before}"
        ]
    return []


def fallen_back(container: Container) -> str:
    """The warning for a source whose highest identifier is below the watermark."""
    columns = "/".join(container.identifier.columns) if container.identifier else ""
    return (
        f"the source has fallen back: no {columns} reaches the watermark any more; were its newest rows deleted, or was a backup restored? "
        "Refresh the partitions concerned"
    )
