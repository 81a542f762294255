"""What a plan that skips has found out, kept: who has ended since the last sync, and the watermark that follows.

Belongs here: writing that, without Spark and without a run. Does not belong: finding it out (``planning``).
"""

import dagster as dg

from incremental_assets.core.axis import json_value
from incremental_assets.dagster.metadata import as_metadata
from incremental_assets.dagster.partitions import container_key
from incremental_assets.databases.plan import TablePlan
from incremental_assets.delta.result import NEW, PREVIOUS, SIGNATURE
from incremental_assets.delta.table import STATE_PROPERTY, LakeTable
from incremental_assets.delta.write import set_property_without_spark


def keep_learned(instance: dg.DagsterInstance, plan: TablePlan, table: LakeTable) -> int | None:
    """First the table's property, on top of the very version that the plan saw, then the event: the lower of the two counts, so that
    whoever is killed in between has moved nothing. Call it while the container is locked. The watermark that counts then.

    The event is an observation: nothing was materialized, and a check of the rows is as new as it was.
    """
    learned, container = plan.learned, plan.container
    if learned is None or plan.base_version is None or container.axis is None:
        return plan.watermark
    if not set_property_without_spark(table, plan.base_version, STATE_PROPERTY, learned.to_json(container.axis)):
        return plan.watermark
    if learned.watermark != plan.watermark:
        metadata = {
            NEW: json_value(container.axis, learned.watermark),
            PREVIOUS: json_value(container.axis, plan.watermark),
            SIGNATURE: container.signature,
            "sync/status": "skipped",
            "sync/message": plan.reason,
        }
        instance.report_runless_asset_event(
            dg.AssetObservation(container_key(container), description=plan.reason, metadata=as_metadata(metadata))
        )
    return learned.watermark
