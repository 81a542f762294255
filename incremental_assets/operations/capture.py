"""Sets capture up for the command line, says how it stands, and takes it away again."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.capture import lsn_text
from incremental_assets.core.errors import ConfigurationError, SyncError
from incremental_assets.databases.capture_plan import gap_of
from incremental_assets.databases.change_log import Since
from incremental_assets.databases.definition import TableDefinition
from incremental_assets.databases.postgres.capture.setup import CaptureSetup
from incremental_assets.databases.postgres.dialect import PostgresDialect
from incremental_assets.databases.postgres.source import PostgresSource
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.delta.table import LakeTable


def captured(definitions: Sequence[ContainerDefinition]) -> list[TableDefinition]:
    """Those of the containers that follow the log of their source. Raises ConfigurationError if none does."""
    found = [one for one in definitions if isinstance(one, TableDefinition) and one.container.is_captured]
    if not found:
        raise ConfigurationError("none of these containers has capture: log.")
    return found


def droppable(definitions: Sequence[ContainerDefinition]) -> list[TableDefinition]:
    """Those of the containers whose datastore may have a slot, whatever its YAML says now. Raises ConfigurationError if there is none."""
    found = [one for one in definitions if isinstance(one, TableDefinition) and isinstance(one.settings.dialect, PostgresDialect)]
    if not found:
        raise ConfigurationError("none of these containers is in PostgreSQL.")
    return found


def set_up(definitions: Sequence[TableDefinition]) -> Iterator[dict[str, Any]]:
    """Takes the steps that are missing for the containers of one datastore. Yields a record of each step."""
    settings = definitions[0].settings
    with _setup(definitions[0]) as setup:
        for step in setup.set_up([one.container for one in definitions]):
            yield {"datastore": settings.name, **asdict(step)}


def drop(definition: TableDefinition) -> Iterator[dict[str, Any]]:
    """Drops slot and publication of the datastore. Yields a record of each step."""
    with _setup(definition) as setup:
        for step in setup.drop():
            yield {"datastore": definition.settings.name, **asdict(step)}


def status(definitions: Sequence[TableDefinition], lake: str) -> Iterator[dict[str, Any]]:
    """Yields the record of the slot of one datastore, and then one for each of its containers."""
    settings = definitions[0].settings
    with _setup(definitions[0]) as setup:
        slot = setup.status()
    yield {
        "datastore": settings.name,
        "container": None,
        "slot": slot.slot,
        "status": slot.status,
        "lsn": slot.confirmed,
        "retained_bytes": slot.retained,
        "retained_limit_bytes": slot.limit,
        "active_pid": slot.active_pid,
        "changes_waiting": None,
        "lag_bytes": None,
        "lag_seconds": None,
        "message": slot.message,
    }
    counts = SlotCounts(definitions, lake)
    for definition in definitions:
        yield {
            "datastore": settings.name,
            "container": definition.container.label,
            "slot": slot.slot,
            "retained_bytes": None,
            "retained_limit_bytes": None,
            "active_pid": None,
            **_of_container(definition, lake, counts),
        }


def with_lag(record: dict[str, Any], definition: ContainerDefinition, lake: str, counts: SlotCounts) -> dict[str, Any]:
    """The record of a container's watermark, with the lag behind the source's log, if it follows it. The source is asked."""
    if not isinstance(definition, TableDefinition) or not definition.container.is_captured:
        return record
    found = _of_container(definition, lake, counts)
    return record | {name: found[name] for name in ("lag_bytes", "lag_seconds")}


def _of_container(definition: TableDefinition, lake: str, counts: SlotCounts) -> dict[str, Any]:
    """The position of one container, and what the log has after it."""
    settings, container = definition.settings, definition.container
    record: dict[str, Any] = {
        "status": "failed", "lsn": None, "changes_waiting": None, "lag_bytes": None, "lag_seconds": None, "message": ""
    }  # fmt: skip
    head = LakeTable(lake, *container.key_path).head()
    try:
        state = head.state(container) if head is not None and head.signature() == container.signature else None
        position = state.capture if state is not None else None
        with PostgresSource(settings.address, container, timezone=container.timezone) as source:
            log = source.change_log(settings.slot)
            now = log.state()
            gap = gap_of(position, now, source)
            if position is None or gap is not None:
                message = "it was not loaded yet" if position is None else f"the next sync loads it anew: {gap}"
                return {**record, "status": "to be loaded", "lsn": position and lsn_text(position.lsn), "message": message}
            found = counts.changed(container, log, Since.of(position.lsn, now.shape))
    except SyncError as error:
        return {**record, "message": str(error)}
    return {
        "status": "behind" if found.changes else "up to date",
        "lsn": lsn_text(position.lsn),
        "changes_waiting": found.changes,
        "lag_bytes": found.end - position.lsn if found.changes else 0,
        "lag_seconds": round(found.oldest, 3) if found.oldest is not None else 0,
        "message": found.reload or "",
    }


def _setup(definition: TableDefinition) -> CaptureSetup:
    settings = definition.settings
    return CaptureSetup(settings.address, settings.name, settings.schema, settings.slot, is_named=settings.capture_slot is not None)
