"""Stores what a plan that skips its sync has found out: which transactions have ended since the last sync, and the
watermark that follows.
"""

import dagster as dg

from incremental_assets.core.cursor_type import json_value
from incremental_assets.databases.plan import TablePlan
from incremental_assets.delta.operation_tables import Rows
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.result import NEW, PREVIOUS, SIGNATURE
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.metadata import as_event_metadata
from incremental_assets.runs.records.operation_log import record
from incremental_assets.runs.records.operation_rows import watermark_of


def keep_learned(instance: dg.DagsterInstance, plan: TablePlan, table: LakeTable, lake: str) -> int | None:
    """Stores the state that a skipping plan has found out. Returns the watermark that counts afterwards.

    The table's property is written first, and only on top of the table version that the plan saw; an event with the watermark, if that has
    moved, comes second. The lower of the two watermarks counts, so a process that is killed in between has not moved it. Where the property
    cannot be written (another commit came first, or the table does not permit it), there is no event either, and the plan's watermark is
    returned. The caller must hold the container's lock. ``lake``: the folder or URL of the lake, which
    has a table of all watermarks.

    The event is an observation and not a materialization: no rows were written, so the checks of the rows are as current as before.
    """
    learned, container = plan.confirmed, plan.container
    if learned is None or plan.base_version is None:
        return plan.watermark
    text = learned.to_json(container.cursor_type, container.partitioned_on)
    if not set_property_without_spark(table, plan.base_version, STATE_PROPERTY, text):
        return plan.watermark
    if container.cursor_type is not None and learned.watermark != plan.watermark:
        metadata = {
            NEW: json_value(container.cursor_type, learned.watermark),
            PREVIOUS: json_value(container.cursor_type, plan.watermark),
            SIGNATURE: container.signature,
            "sync/status": "skipped",
            "sync/message": plan.reason,
        }
        instance.report_runless_asset_event(
            dg.AssetObservation(container_key(container), description=plan.reason, metadata=as_event_metadata(metadata))
        )
        head = table.head()
        written = watermark_of(container, learned.watermark, None if head is None else head.version)
        record(lake, Rows(watermarks=[written] if written is not None else []))
    return learned.watermark
