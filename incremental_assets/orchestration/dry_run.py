"""What a sync would read, without Spark and without a run: ranges, SQL and row counts.

Belongs here: the lines of ``sync --dry-run``. Does not belong: the plan.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from incremental_assets.catalog.datastore import ContainerDefinition
from incremental_assets.model.axis import json_value
from incremental_assets.model.errors import SyncError
from incremental_assets.orchestration.jobs import plan_container
from incremental_assets.orchestration.planning import Action
from incremental_assets.orchestration.runner import Asked
from incremental_assets.sources.postgres.extract import carried_columns, describe_read
from incremental_assets.sources.postgres.reader import PostgresReader


def dry_run_lines(chosen: Sequence[ContainerDefinition], asked: Asked, instance: dg.DagsterInstance) -> Iterator[dict[str, Any]]:
    """One line a container; rows are counted in the source."""
    for definition in chosen:
        container = definition.container
        request = asked.request(definition, instance)
        try:
            plan, keys = plan_container(definition, instance, request)
            rows = 0
            if plan.action is not Action.SKIP:
                with contextlib.closing(
                    PostgresReader(definition.settings.address, container, timezone=definition.settings.timezone)
                ) as reader:
                    with reader:
                        rows = reader.count(plan.windows, plan.include_nulls)
        except SyncError as error:
            yield {"container": container.label, "status": "failed", "message": str(error)}
            continue
        yield {
            "container": container.label,
            "action": plan.action.value,
            "reason": plan.reason,
            "strategy": container.strategy.value,
            "range": plan.asked,
            "rows": rows,
            "watermark": None if container.axis is None else json_value(container.axis, plan.watermark),
            "partitions": keys,
            "warnings": list(plan.warnings),
            "sql": describe_read(container, carried_columns(container), plan.windows, plan.include_nulls),
        }
