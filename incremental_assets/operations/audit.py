"""Audits containers for the command line: a sync and a comparison in one run, and refreshes of the partitions that differ."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.audit import SUMMARY, joined, verdict
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import AuditRequest, Mode, Request
from incremental_assets.core.shown_text import counted
from incremental_assets.runs.partitions import is_by_file, keys_between
from incremental_assets.runs.records.event_log import asset_events_of
from incremental_assets.runs.records.metadata import plain
from incremental_assets.runs.runner import Runner

_NUMBERS = ("partitions_checked", "rows", "rejected", "missing", "stale", "surplus", "examples", "delta_version")
"""The fields of an audit's summary that are in its record as they are."""


@dataclass(frozen=True)
class AuditOptions:
    """The options of an audit, which hold for each of its containers.

    ``keys``: the first and the last partition key to be compared, both inclusive; None: all rows are. ``repair``: refreshes the partitions
    that differ, and compares them again. ``started_by``: the value of the tag by which the UI shows who started the run. ``partitions``:
    the partition keys one by one, instead of ``keys``. ``allow_empty``: the repair may empty partitions.
    """

    keys: tuple[str, str] | None = None
    repair: bool = False
    started_by: str = "command line"
    allow_empty: bool = False
    partitions: tuple[str, ...] | None = None

    def request(self, definition: ContainerDefinition, instance: dg.DagsterInstance) -> AuditRequest:
        """The request for one container. Raises ConfigurationError where the options do not apply to it."""
        container = definition.container
        if self.partitions is not None:
            return AuditRequest(self.partitions)
        if self.keys is None:
            return AuditRequest()
        if container.identifier is None:
            raise ConfigurationError(f"{container.label}: it has no partitions: incremental field not configured.")
        return AuditRequest(tuple(keys_between(definition, instance, *self.keys)))


def audit_lines(
    runner: Runner, chosen: Sequence[ContainerDefinition], options: AuditOptions, instance: dg.DagsterInstance
) -> Iterator[dict[str, Any]]:
    """Audits the containers one after another, and yields the record of each as it finishes. Its fields are a contract with scripts.

    Raises ConfigurationError for wrong usage before anything runs, and KeyboardInterrupt when a run was interrupted.
    """
    for definition, request in [(d, options.request(d, instance)) for d in chosen]:
        yield _audited(runner, definition, request, options, instance)


def _audited(
    runner: Runner, definition: ContainerDefinition, request: AuditRequest, options: AuditOptions, instance: dg.DagsterInstance
) -> dict[str, Any]:
    """Audits one container and returns its record.

    The status is ``equal``, ``different``, ``repaired`` if the partitions that differed are equal now, or ``failed``.
    """
    record = _record(runner, definition, request, options, instance)
    different: list[str | None] = record["partitions_different"]
    if record["status"] != "different" or not options.repair:
        return record
    keys: tuple[str, ...] | None = tuple(key for key in different if key is not None)
    # Rows without identifier are in no partition: only a refresh of everything reads them. Rows of no file are in no file either.
    if len(keys) < len(different) and not is_by_file(definition):
        keys = None
    if keys == ():
        return record
    refreshed = runner.refresh(definition, Request(Mode.REFRESH, keys, allow_empty=options.allow_empty), options.started_by)
    if refreshed["status"] == "failed":
        return {**record, "status": "failed", "message": f"{record['message']}; the repair failed: {refreshed['message']}"}
    again = _record(runner, definition, AuditRequest(keys), options, instance)
    seconds = round(record["seconds"] + refreshed["seconds"] + again["seconds"], 3)
    if again["status"] != "equal":
        return {**again, "seconds": seconds, "message": f"{record['message']}; after the repair {again['message']}"}
    message = f"{record['message']}; repaired: {again['message'].removeprefix('audit: ')}"
    return {**record, "status": "repaired", "run_id": again["run_id"], "seconds": seconds, "message": message}


def _record(
    runner: Runner, definition: ContainerDefinition, request: AuditRequest, options: AuditOptions, instance: dg.DagsterInstance
) -> dict[str, Any]:
    """Compares a container once, and returns the record.

    Where one snapshot of the source is not enough, each further run syncs the container again, and compares the partitions that follow with
    its own snapshot. So all of them are compared exactly, each at a moment of its own.
    """
    run = runner.audit(definition, request, options.started_by)
    seconds = run["seconds"]
    found, said = _summary(instance, run["run_id"])
    summaries = [] if found is None else [found]
    while found is not None and found["following"] is not None:
        run = runner.audit(definition, replace(request, start=found["following"]), options.started_by)
        seconds += run["seconds"]
        found, said = _summary(instance, run["run_id"])
        summaries += [] if found is None else [found]
    message, summary = run["message"], {} if found is None else joined(summaries)
    if len(summaries) > 1:
        message = (
            f"{verdict(summary)}, compared in {counted(len(summaries), 'run')}"
            if summary
            else f"after {counted(len(summaries), 'run')}: {message}"
        )
    elif said is not None and said not in message:
        message = f"{said}; {message}"
    return {
        "container": definition.container.label,
        "status": "failed" if not summary else "different" if summary["partitions_different"] else "equal",
        "partitions_different": summary.get("partitions_different", []),
        **{name: summary.get(name) for name in _NUMBERS},
        "run_id": run["run_id"],
        "seconds": round(seconds, 3),
        "message": message,
    }


def _summary(instance: dg.DagsterInstance, run_id: str | None) -> tuple[dict[str, Any] | None, str | None]:
    """The numbers of the audit that the run has made, and what its observation says; None if there are none."""
    for event in asset_events_of(instance, run_id) if run_id is not None else ():
        if event.is_asset_observation:
            values = plain(event.asset_observation_data.asset_observation.metadata)
        else:
            values = plain(event.step_materialization_data.materialization.metadata)
        if SUMMARY in values:
            found: Any = values[SUMMARY]
            said = values.get("sync/message") if event.is_asset_observation else None
            return json.loads(found) if isinstance(found, str) else found, said
    return None, None
