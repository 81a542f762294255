"""``incremental-assets scan``, ``profile`` and ``anomalies``: converts options to runs, and records to lines."""

import contextlib
import datetime
import getpass
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.core.anomalies import Anomaly, State, by_person
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import encode_name
from incremental_assets.delta.scope import LakeScope
from incremental_assets.project.folders import dagster_home, lake_root
from incremental_assets.quality.records import Records
from incremental_assets.runs.ordinary_run import EndedRun, run_here
from incremental_assets.runs.partitions import PARTITION, expect_files, keys_between
from incremental_assets.runs.quality.request import ScanMode, not_configured, threshold
from incremental_assets.runs.quality.summary import PROFILE_SUMMARY, SUMMARY, summary_in
from incremental_assets.runs.records.run_tags import STARTED_BY_TAG, tags_of

NO_TABLE = "there is no table yet; sync it first"
"""The message of a container that was never synced."""
VERBS = {"acknowledge": State.ACKNOWLEDGED, "resolve": State.RESOLVED, "discard": State.DISCARDED}
"""The state that each command of ``anomalies`` gives an anomaly."""


@dataclass(frozen=True)
class ScanOptions:
    """The options of a scan from the command line, which hold for each container; without options the whole container is scanned.

    ``incremental``: only partitions from a threshold on. ``after_time`` and ``after_batch``: that threshold as text, for containers whose
    identifier is a time or an integer; None means the watermark of the container's scans. ``keys``: the first and the last partition, both
    inclusive. ``auto_resolve``: anomalies that the scan no longer finds are resolved. ``started_by``: a tag of the runs.
    """

    incremental: bool = False
    after_time: str | None = None
    after_batch: str | None = None
    keys: tuple[str, str] | None = None
    auto_resolve: bool = False
    started_by: str = "command line"

    def config(self, definition: ContainerDefinition, instance: dg.DagsterInstance) -> dict[str, Any]:
        """The run config of the scan (or profile) of one container.

        Raises ConfigurationError where the request does not fit the container.
        """
        container = definition.container
        config: dict[str, Any] = {"auto_resolve": True} if self.auto_resolve else {}
        if self.keys is not None:
            if container.identifier is None:
                raise ConfigurationError(f"{container.label}: it has no partitions: incremental field not configured.")
            chosen = keys_between(definition, instance, *self.keys)
            expect_files(definition, instance, chosen)
            return {**config, "looks": ScanMode.partitions.value, "partitions": chosen}
        if not self.incremental:
            return {**config, "looks": ScanMode.full.value}
        if container.identifier is None:
            raise not_configured(container)
        text = self.after_time if container.identifier.cursor_type.is_time else self.after_batch
        if text is None and (self.after_time or self.after_batch):
            option, kind = (
                ("--greater-than-time", "a time") if container.identifier.cursor_type.is_time else ("--greater-than-batch", "an integer")
            )
            raise ConfigurationError(f"{container.label}: its identifier is {kind}; write {option}, or scan it by itself.")
        if text is not None:
            threshold(container, text, container.timezone)
            config["greater_than"] = text
        return {**config, "looks": ScanMode.incremental.value}


def by_identifier(
    chosen: Sequence[ContainerDefinition], named: Sequence[str]
) -> tuple[list[ContainerDefinition], list[ContainerDefinition]]:
    """The containers that have an incremental identifier, and those that have none. ``named``: the arguments of the command.

    Raises ConfigurationError for a container without identifier that is named itself, and where none has one.
    """
    whole = [one for one in chosen if one.container.identifier is None]
    refused = [one for one in whole if one.container.label in named or len(whole) == len(chosen)]
    if refused:
        raise not_configured(refused[0].container)
    return [one for one in chosen if one not in whole], whole


def scan_lines(
    definitions: dg.Definitions, chosen: Sequence[ContainerDefinition], options: ScanOptions, instance: dg.DagsterInstance
) -> Iterator[dict[str, Any]]:
    """Scans the containers one after another and yields the record of each as it finishes.

    Raises ConfigurationError for wrong usage before anything runs, and KeyboardInterrupt when a run was interrupted.
    """
    # All configs are made before the first run starts, so that wrong usage is reported before anything runs.
    with_rules = [(d, options.config(d, instance)) for d in chosen if d.container.options.checks]
    for definition in chosen:
        if not definition.container.options.checks:
            yield _line(definition, "skipped", message="it has no rules: add checks: to its YAML")
    for definition, config in with_rules:
        yield _scanned(definitions, definition, config, instance, options.started_by)


def _run(
    definitions: dg.Definitions,
    definition: ContainerDefinition,
    what: str,
    summary: str,
    config: dict[str, Any],
    instance: dg.DagsterInstance,
    started_by: str,
) -> tuple[EndedRun, dict[str, Any] | None]:
    """Runs the job of the datastore that scans or profiles, for this container, in this process. Returns the run and its summary; None
    where it recorded none.

    ``what``: ``scan`` or ``profile``. ``summary``: the metadata key of the summary in the run's events. Raises KeyboardInterrupt when the
    run was interrupted.
    """
    keys = config.get("partitions", ())
    tags = {**tags_of(definition, what), STARTED_BY_TAG: started_by, **({PARTITION: keys[0]} if len(keys) == 1 else {})}
    job, run_config = run_alone(definition, what, config)
    ended = run_here(definitions.resolve_job_def(job), instance, run_config, tags)
    return ended, summary_in(ended.events, summary)


def run_alone(definition: ContainerDefinition, what: str, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The job of the datastore and its run config by which one container is scanned, profiled or audited. ``what``: which of these."""
    name = encode_name(definition.container.datastore)
    return f"{what}_{name}", {"ops": {f"{name}_{what}": {"config": {"container": definition.container.name, **config}}}}


def _scanned(
    definitions: dg.Definitions, definition: ContainerDefinition, config: dict[str, Any], instance: dg.DagsterInstance, started_by: str
) -> dict[str, Any]:
    """Scans one container and returns its record.

    The status is ``failed`` where a rule of severity error is broken or could not be evaluated, or where the run failed; ``warning`` where
    this is so of another rule; else ``passed``. It is ``skipped`` where there is no table yet.
    """
    ran, recorded = _run(definitions, definition, "scan", SUMMARY, config, instance, started_by)
    if recorded is None:
        status = "failed" if ran.failure else "skipped"
        return _line(definition, status, message=ran.failure or NO_TABLE, run_id=ran.run_id, seconds=ran.seconds)
    bad = bool(recorded["error_rules"]) or bool(ran.failure)
    status = "failed" if bad else "warning" if recorded["failed"] or recorded["errored"] else "passed"
    return _line(definition, status, recorded=recorded, message=ran.failure or recorded["message"], run_id=ran.run_id, seconds=ran.seconds)


def profile_lines(
    definitions: dg.Definitions, chosen: Sequence[ContainerDefinition], options: ScanOptions, instance: dg.DagsterInstance
) -> Iterator[dict[str, Any]]:
    """Profiles the containers one after another and yields the record of each, as ``scan_lines`` does.

    The fields of a record are a contract with the users' scripts.
    """
    # The list is complete before the first run starts, so that wrong usage is reported before anything runs.
    for definition, config in [(d, options.config(d, instance)) for d in chosen]:
        ran, recorded = _run(definitions, definition, "profile", PROFILE_SUMMARY, config, instance, options.started_by)
        status = "failed" if ran.failure else "skipped" if recorded is None else "profiled"
        numbers = {name: (recorded or {}).get(name) for name in ("rows_profiled", "partitions", "delta_version", "watermark", "page")}
        message = ran.failure or (recorded or {}).get("message") or NO_TABLE
        own = {"run_id": ran.run_id, "seconds": round(ran.seconds, 3), "message": message}
        yield {"container": definition.container.label, "status": status, **numbers, **own}


_NUMBERS = ("rules", "passed", "failed", "errored", "rows_scanned", "partitions", "passes", "delta_version", "anomalies", "watermark",
            "blocked", "verdicts")  # fmt: skip
"""The fields of a scan's summary that are in a record of ``scan --json``; None where there is no summary."""


def _line(
    definition: ContainerDefinition,
    status: str,
    *,
    message: str,
    recorded: dict[str, Any] | None = None,
    run_id: str | None = None,
    seconds: float = 0.0,
) -> dict[str, Any]:
    """One record of ``scan --json``. Its fields are a contract with the users' scripts."""
    numbers = {name: (recorded or {}).get(name) for name in _NUMBERS}
    label = definition.container.label
    return {"container": label, "status": status, **numbers, "run_id": run_id, "seconds": round(seconds, 3), "message": message}


@contextlib.contextmanager
def lake_scope(log: Callable[[str], None]) -> Iterator[LakeScope]:
    """The lake and, when it is needed, a Spark session, outside of any Dagster run."""
    scope = LakeScope(lake_root(), dagster_home(), "incremental-assets", log)
    with scope.stack:
        yield scope


# ---------------------------------------------------------------- anomalies
def anomaly_lines(chosen: Sequence[ContainerDefinition], states: Sequence[State]) -> list[dict[str, Any]]:
    """The anomalies of the containers that are in one of the states, the one that changed last first."""
    shown = _with_samples(chosen)
    wanted = {definition.container.label for definition in chosen}
    stores = dict.fromkeys(definition.container.key_path[0] for definition in chosen)
    found = [one for store in stores for one in Records(lake_root(), store).anomalies().values()]
    kept = [one for one in found if one.container in wanted and one.state in states]
    return [_anomaly(_shown(one, shown)) for one in sorted(kept, key=lambda one: one.changed_at, reverse=True)]


def change_anomalies(
    datastores: Sequence[str], containers: Sequence[ContainerDefinition], verb: str, ids: Sequence[str], comment: str | None
) -> list[dict[str, Any]]:
    """Changes the state of anomalies, on behalf of the user of this process, and returns their records.

    ``containers``: all of the datastores. ``verb``: a key of ``VERBS``. ``comment``: stored with the change. Raises ConfigurationError, and
    changes nothing, where an id does not exist or where the state of an anomaly does not allow the change.
    """
    changes: list[tuple[Records, Anomaly]] = []
    shown = _with_samples(containers)
    for id in dict.fromkeys(ids):
        for records in (Records(lake_root(), encode_name(name)) for name in datastores):
            history = records.history(id)
            if history:
                changes.append((records, by_person(_shown(history[-1], shown), VERBS[verb], _who(), comment, time.time_ns() // 1000)))
                break
        else:
            raise ConfigurationError(f"there is no anomaly {id!r}. Its id is the first column of: incremental-assets anomalies")
    # All changes are written after all ids have been found valid, so that an error changes nothing.
    for records, changed in changes:
        records.change(changed)
    return [_anomaly(changed) for _, changed in changes]


def _with_samples(definitions: Sequence[ContainerDefinition]) -> set[str]:
    """The labels of the containers of which values of rows may be shown and kept."""
    return {one.container.label for one in definitions if one.container.options.samples}


def _shown(one: Anomaly, with_samples: set[str]) -> Anomaly:
    """The anomaly, without the value that it may still have from before its container got ``samples: false``."""
    return one if one.container in with_samples else replace(one, value=None)


def _who() -> str:
    """The name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user id has no name, as is common inside a container of the operating system
        return f"user {os.getuid()}"


def _anomaly(one: Anomaly) -> dict[str, Any]:
    """One record of ``anomalies --json``. Times are ISO 8601 in UTC."""
    return {
        "id": one.id,
        "container": one.container,
        "rule": one.rule,
        "partition": one.partition,
        "key": one.key,
        "value": one.value,
        "rows": one.rows,
        "state": one.state.value,
        "severity": one.severity.value,
        "first_seen": _moment(one.first_seen),
        "changed_at": _moment(one.changed_at),
        "changed_by": one.changed_by,
        "comment": one.comment,
        "message": one.message,
    }


def _moment(micros: int) -> str:
    """Microseconds since 1970 UTC as ISO 8601 text in UTC."""
    return datetime.datetime.fromtimestamp(micros / 1e6, datetime.timezone.utc).isoformat(timespec="milliseconds")
