"""The operations of a project (catalog, sync, scan, profile, maintenance), each of which is a Dagster run, finished or not."""

import datetime
from collections.abc import Mapping, Sequence, Set
from typing import Any

import dagster as dg

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.plan import Mode
from incremental_assets.runs.partitions import RANGE_END, RANGE_START
from incremental_assets.runs.quality.evaluations import RETAINED
from incremental_assets.runs.quality.summary import PROFILE_SUMMARY, summary_in
from incremental_assets.runs.records.event_log import failure_of
from incremental_assets.runs.records.metadata import plain
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, DATASTORE_TAG, OPERATION_TAG, schedule_of, started_by, tag_of

RESULTS = {
    dg.DagsterRunStatus.SUCCESS: "success",
    dg.DagsterRunStatus.FAILURE: "failure",
    dg.DagsterRunStatus.CANCELED: "aborted",
    dg.DagsterRunStatus.CANCELING: "running",
    dg.DagsterRunStatus.STARTED: "running",
}
"""The result of an operation by the status of its run; every other status is ``queued``."""
_MESSAGE_EVENTS = {
    dg.DagsterEventType.STEP_FAILURE,
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.ASSET_OBSERVATION,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
}
"""The types of events from which the message of an operation is read."""


def operations(instance: dg.DagsterInstance, most: int) -> list[dict[str, Any]]:
    """The newest operations of the instance, at most ``most`` of them, the newest first."""
    return [operation_of(instance, record) for record in instance.get_run_records(limit=most)]


def operation(instance: dg.DagsterInstance, id: str) -> dict[str, Any]:
    """The operation with the id ``id``.

    The id may be cut short to at least four characters, as long as it is unique among the newest 1,000 runs. Raises ConfigurationError
    where there is no such operation, or more than one.
    """
    record = instance.get_run_record_by_id(id)
    if record is not None:
        return operation_of(instance, record)
    some = [one for one in instance.get_run_records(limit=1000) if one.dagster_run.run_id.startswith(id)] if len(id) >= 4 else []
    if len(some) != 1:
        what = f"{len(some)} operations begin with {id!r}" if some else f"there is no operation {id!r}"
        raise ConfigurationError(f"{what}. Their ids: incremental-assets operations")
    return operation_of(instance, some[0])


def operation_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> dict[str, Any]:
    """The record of a run. Its fields are those of ``incremental-assets operations --json``."""
    return _operation(record, _events(instance, record.dagster_run.run_id))


def sync_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> dict[str, Any]:
    """As ``operation_of``, for the run of a container's sync, with its figures (None: its events do not have them).

    The result is ``warning`` where it has succeeded and its message warns.
    """
    events = _events(instance, record.dagster_run.run_id, _MESSAGE_EVENTS | {dg.DagsterEventType.ASSET_CHECK_EVALUATION})
    found = _operation(record, events)
    metadata = [_values(event) for event in events if event.is_step_materialization or event.is_asset_observation]
    warns = any(values.get("sync/status") == "warning" for values in metadata)
    return found | _figures(events, metadata) | ({"result": "warning"} if warns and found["result"] == "success" else {})


def _figures(events: Sequence[dg.DagsterEvent], metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a sync. ``metadata``: that of its events about the asset."""
    values: dict[str, Any] = {name: value for one in metadata for name, value in one.items()}
    scan = summary_in(events)
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    evaluations = [event.asset_check_evaluation_data for event in events if event.event_type is kind]
    retained = [plain(one.metadata).get("capture/retained_bytes") for one in evaluations if one.check_name == RETAINED]
    return {
        "rows": values.get("dagster/row_count"),
        **{f"rows_{what}": values.get(f"sync/rows_{what}") for what in ("read", "inserted", "updated", "deleted")},
        "failed_checks": None if scan is None else scan["failed"] + scan["errored"],
        "blocked_by": None if scan is None else sorted({one["rule"] for one in scan["blocked"]}),
        "retained_bytes": next((one for one in reversed(retained) if one is not None), None),
    }


def _operation(record: dg.RunRecord, events: Sequence[dg.DagsterEvent]) -> dict[str, Any]:
    run = record.dagster_run
    tags = run.tags
    return {
        "id": run.run_id,
        "type": type_of(run),
        "created": record.create_timestamp.replace(tzinfo=datetime.timezone.utc).isoformat(timespec="milliseconds"),
        "start_time": _moment(record.start_time),
        "end_time": _moment(record.end_time),
        "result": RESULTS.get(run.status, "queued"),
        "message": _message(events),
        "triggered_by": started_by(tags),
        "schedule": schedule_of(tags),
        "of": tag_of(run, CONTAINER_TAG) or tag_of(run, DATASTORE_TAG) or _assets(run),
        "options": _options(run),
    }


def type_of(run: dg.DagsterRun) -> str:
    """The type of an operation by its tag, or by the name of its job.

    It is ``sync`` for all other jobs, such as the one that Dagster uses for *Materialize*.
    """
    word = run.job_name.partition("_")[0]
    by_job = {"maintain": "maintenance"}.get(word, word) if word in ("catalog", "sync", "scan", "profile", "audit", "maintain") else "sync"
    return tag_of(run, OPERATION_TAG) or by_job


def _assets(run: dg.DagsterRun) -> str | None:
    """The asset keys that the run selects, for runs without a container's tag; None where it selects none."""
    keys = run.asset_selection or ()
    return ", ".join(sorted("/".join(key.path) for key in keys)) or None


def _options(run: dg.DagsterRun) -> dict[str, Any]:
    """The options of the operation: the config of its ops, and the partitions of its tags."""
    config: Mapping[str, Any] = run.run_config if isinstance(run.run_config, Mapping) else {}
    options: dict[str, Any] = {}
    for op in config.get("ops", {}).values():
        options |= op.get("config", {})
    if RANGE_START in run.tags:
        options["partitions"] = {"from": run.tags[RANGE_START], "to": run.tags[RANGE_END]}
    elif "dagster/partition" in run.tags and "partitions" not in options:
        options["partitions"] = {"from": run.tags["dagster/partition"], "to": run.tags["dagster/partition"]}
    return options


def is_of_chosen_partitions(run: dg.DagsterRun) -> bool:
    """Whether the run of a sync refreshes single partitions, as a backfill does (``Plan.is_of_chosen_partitions``)."""
    options = _options(run)
    whole = options.get("all_partitions") or options.get("reset_watermarks") or "partitions" not in options
    return options.get("mode", Mode.REFRESH.value) == Mode.REFRESH.value and not whole


def _events(instance: dg.DagsterInstance, run_id: str, types: Set[dg.DagsterEventType] = _MESSAGE_EVENTS) -> list[dg.DagsterEvent]:
    return [entry.dagster_event for entry in instance.all_logs(run_id, of_type=set(types)) if entry.dagster_event is not None]


def _values(event: dg.DagsterEvent) -> dict[str, Any]:
    """The metadata of a materialization or an observation."""
    if event.is_step_materialization:
        return plain(event.step_materialization_data.materialization.metadata)
    return plain(event.asset_observation_data.asset_observation.metadata)


def _message(events: Sequence[dg.DagsterEvent]) -> str:
    """The message of a run: why it failed, or what it did. Empty where it has recorded nothing yet."""
    failed, text = failure_of(events)
    if failed is not None:
        return text
    newest = summary_in(events) or summary_in(events, PROFILE_SUMMARY)
    for event in events:
        if event.is_step_materialization:
            message = str(_values(event).get("sync/message", ""))
            return f"{message}; quality: {newest['message']}" if newest is not None else message
    if newest is not None:
        return str(newest["message"])
    observed = [event for event in events if event.is_asset_observation]
    return str(_values(observed[-1]).get("sync/message", "")) if observed else ""


def _moment(seconds: float | None) -> str | None:
    """Seconds since 1970 UTC as ISO 8601 text in UTC; None stays None."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="milliseconds")
