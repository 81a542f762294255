"""Makes the records of ``sync --dry-run``: the ranges, SQL and row counts of what a sync would read, without Spark and without a run."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition, is_named
from incremental_assets.core.cursor_type import json_value
from incremental_assets.core.errors import ContainerMissing, SyncError
from incremental_assets.core.lag import lag_warning
from incremental_assets.databases.slot_counts import SlotCounts
from incremental_assets.project.folders import lake_root
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.runner import SyncOptions


def dry_run_lines(chosen: Sequence[ContainerDefinition], options: SyncOptions, instance: dg.DagsterInstance) -> Iterator[dict[str, Any]]:
    """Yields one record for each container. Rows are counted in the source. Nothing is written."""
    counts = SlotCounts(chosen, lake_root())
    for definition in chosen:
        container = definition.container
        request = options.request(definition, instance)
        try:
            adapter = adapter_of(definition)
            plan, keys = adapter.plan(instance, request, lake_root(), counts=counts)
            preview = adapter.preview(plan)
        except ContainerMissing as error:
            status = "failed" if is_named(definition) else "warning"
            yield {"container": container.label, "status": status, "message": str(error)}
            continue
        except SyncError as error:
            yield {"container": container.label, "status": "failed", "message": str(error)}
            continue
        yield {
            "container": container.label,
            "action": plan.action.value,
            "reason": plan.reason,
            "strategy": container.strategy.value,
            "range": plan.requested,
            "watermark": None if container.cursor_type is None else json_value(container.cursor_type, plan.watermark),
            "partitions": keys,
            "sweep": plan.sweep,
            "warnings": list(dict.fromkeys([*plan.warnings, *lag_warning(container), *container.left_out_note])),
            **preview,
        }
