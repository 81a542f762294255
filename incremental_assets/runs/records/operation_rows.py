"""Makes the rows of the tables ``_operations`` from the results of syncs and catalog operations."""

from collections.abc import Callable

import dagster as dg

from incremental_assets.catalog.operation import CatalogResult
from incremental_assets.catalog.state import Presence
from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import format_value
from incremental_assets.core.shown_text import counted
from incremental_assets.databases.sweep import PREFIX
from incremental_assets.delta.container_sync import ContainerSync
from incremental_assets.delta.operation_tables import EndedAs, OperationKind, WrittenWatermark
from incremental_assets.delta.result import LSN
from incremental_assets.delta.run_operations import RunOperations, now
from incremental_assets.project.folders import lake_root
from incremental_assets.runs.records.operation_log import Warn, record, rows_of


def end_sync(operations: RunOperations, sync: ContainerSync) -> None:
    """Ends a sync that has committed its rows or has found that there are none. Adds its sweep, and the watermark.

    A refresh that has left partitions out has failed, although it has written the others.
    """
    container, result, values = sync.container, sync.result, sync.metadata()
    operations.end(
        OperationKind.SYNC,
        container.label,
        EndedAs.FAILURE if result.left_out else EndedAs.WARNING if result.warnings else EndedAs.SUCCESS,
        rows=result.rows_read,
        rows_inserted=result.rows_inserted,
        rows_updated=result.rows_updated,
        rows_deleted=result.rows_deleted,
        partitions=result.partitions,
        table_version=result.version,
        message=values["sync/message"],
    )
    swept = {name.removeprefix(PREFIX): number for name, number in values.items() if name.startswith(PREFIX)}
    if swept:
        refused = bool(swept["refused"])
        keys = f"{swept['gone']:,} of {counted(swept['keys'], 'key')} of the lake"
        operations.add(
            OperationKind.SWEEP,
            container,
            EndedAs.WARNING if refused or swept["missing"] else EndedAs.SUCCESS,
            swept["seconds"],
            rows=swept["keys"],
            rows_deleted=0 if refused else swept["gone"],
            table_version=result.version,
            message=f"gone from the source: {keys}{'; refused' if refused else ''}",
        )
    written = watermark_of(container, result.new, result.version, values.get(LSN))
    if written is not None and (result.version is not None or result.new != result.previous):
        operations.watermarks.append(written)


def watermark_of(container: Container, watermark: int | None, version: int | None, lsn: str | None = None) -> WrittenWatermark | None:
    """The row of a watermark that is written now; None where there is neither a watermark nor a position in the source's log."""
    cursor_type = container.cursor_type
    text = None if watermark is None or cursor_type is None else format_value(cursor_type, watermark)
    if text is None and lsn is None:
        return None
    return WrittenWatermark(
        datastore=container.datastore,
        container=container.label,
        watermark=text,
        identifier="/".join(container.identifier.columns) if container.identifier else None,
        strategy=container.strategy.value,
        lsn=lsn,
        table_version=version,
        updated_at=now(),
    )


def record_catalog(run: dg.DagsterRun, datastore: str, take: Callable[[], CatalogResult], warn: Warn) -> CatalogResult:
    """Takes the catalog of a datastore by ``take``, and records the operation, however it ends. ``warn``: see ``operation_log.record``."""
    operations = RunOperations()
    operations.begin(OperationKind.CATALOG, datastore)
    try:
        outcome = take()
        result = EndedAs.WARNING if outcome.troubles else EndedAs.SUCCESS
        operations.end(OperationKind.CATALOG, None, result, message=_message(outcome))
    except BaseException as error:
        result = EndedAs.FAILURE if isinstance(error, Exception) else EndedAs.ABORTED
        operations.end(OperationKind.CATALOG, None, result, message=str(error) or type(error).__name__)
        raise
    finally:
        record(lake_root(), rows_of(run, operations), warn)
    return outcome


def _message(outcome: CatalogResult) -> str:
    """What a catalog operation has found, in one sentence."""
    present = sum(1 for one in outcome.catalog.entries if one.presence is Presence.PRESENT)
    troubles = "; ".join(f"{name}: {trouble}" for name, trouble in outcome.troubles.items())
    return f"{counted(present, 'container')}, {counted(len(outcome.differences), 'difference')}" + (f"; {troubles}" if troubles else "")
