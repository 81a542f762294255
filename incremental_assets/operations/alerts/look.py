"""Finds all that is wrong with containers at one moment: what the sensor of the alerts and ``incremental-assets alerts`` report."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.anomalies import Anomaly
from incremental_assets.core.names import encode_name
from incremental_assets.files.definition import FileDefinition
from incremental_assets.operations.alerts.broken_rules import broken_rules
from incremental_assets.operations.alerts.causes import one_for_each_cause
from incremental_assets.operations.alerts.problems import Facts, Found, Limits, found_in
from incremental_assets.operations.alerts.replication_slots import slot_problems
from incremental_assets.operations.alerts.ticks import Expected, name_in, tick_problems
from incremental_assets.operations.status import open_anomalies, status_lines
from incremental_assets.runs.automation import schedules_of, sensor_name


def look(
    instance: dg.DagsterInstance,
    chosen: Sequence[ContainerDefinition],
    limits: Limits,
    expected: Expected,
    now: float | None = None,
    *,
    daemon_is_down: bool = False,
    samples: bool = True,
) -> Found:
    """What is wrong with the containers, with the logs of their sources, and with the schedules and sensors of the code location.

    ``now``: in seconds since 1970 UTC; None: the clock's. ``daemon_is_down``: what is late as nothing is evaluated is left out then.
    ``samples``: whether values and keys of rows are shown, of the containers that allow it.
    """
    at = time.time() if now is None else now
    anomalies = open_anomalies(chosen)
    records = status_lines(instance, chosen, datetime.fromtimestamp(at, timezone.utc), anomalies)
    facts = {one.container.label: _facts(one, samples) for one in chosen}
    ticks = tick_problems(instance, expected, limits.overdue_seconds, at)
    halted = {label for label, one in facts.items() if (daemon_is_down and one.automation) or ticks.halts(label, one.automation)}
    blocked = _blocked(records, anomalies)
    found = found_in(records, limits, facts, halted=halted, blocked=blocked).with_more(*slot_problems(instance, chosen, limits, at))
    found = found.with_more(broken_rules(anomalies, facts, blocked)).with_more(ticks.problems, ticks.undecided)
    if daemon_is_down:
        found = found.without(expected.overdue_keys())
    return one_for_each_cause(found, _StoreOf(chosen))


def _blocked(records: Sequence[Mapping[str, Any]], anomalies: Sequence[Anomaly]) -> Mapping[str, Sequence[str]]:
    """By containers whose last sync has failed because of blocking rules, these rules, if all of them have open anomalies.

    A rule that could not be evaluated has none, and the sync says so.
    """
    are_open = {(one.container, one.rule) for one in anomalies}
    failed = {record["container"]: record["blocked_by"] for record in records if record["result"] == "failure" and record["blocked_by"]}
    return {label: rules for label, rules in failed.items() if all((label, rule) in are_open for rule in rules)}


def _facts(definition: ContainerDefinition, samples: bool) -> Facts:
    container = definition.container
    names = [*schedules_of(definition)]
    if isinstance(definition, FileDefinition) and not names:
        names.append(sensor_name(definition))
    return Facts(container.key_path, container.options.every or 0, samples and container.options.samples, names)


class _StoreOf:
    """Says which datastore the key of a problem is about."""

    def __init__(self, chosen: Sequence[ContainerDefinition]) -> None:
        self._of_label = {one.container.label: one.container.datastore for one in chosen}
        self._of_jobs = {encode_name(one): one for one in self._of_label.values()}

    def __call__(self, key: str) -> str | None:
        name = name_in(key)
        if name is None:
            return self._of_label.get(key.rpartition(" ")[0].removesuffix(" held"))
        # The names of schedules and sensors are those of jobs: sync_shop_schedule, sync_shop__orders_files, catalog_shop_schedule.
        _, _, rest = name.partition("_")
        return max((store for job, store in self._of_jobs.items() if rest.startswith(f"{job}_")), key=len, default=None)
