"""From a request to runs: which jobs are launched for it, with which config and tags.

A whole datastore without options of single containers is one run of the datastore's own job; else each container has a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import dagster as dg
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from incremental_assets.api.payloads import RunBody
from incremental_assets.api.problems import Problem
from incremental_assets.catalog.definition import ContainerDefinition, max_runtime_seconds
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.names import encode_name, nearest
from incremental_assets.core.plan import Mode
from incremental_assets.core.shown_text import counted
from incremental_assets.operations.scans import ScanOptions, run_alone
from incremental_assets.runs.adapters.choose import adapter_of
from incremental_assets.runs.catalog_run import job_name as catalog_job_name
from incremental_assets.runs.catalog_run import op_name as catalog_op_name
from incremental_assets.runs.launch import config_of, has_own_job, launched_job
from incremental_assets.runs.loading import Datastore, find_datastore, select
from incremental_assets.runs.partitions import container_key
from incremental_assets.runs.records.run_tags import CONTAINER_TAG, DATASTORE_TAG, OPERATION_TAG, tags_of
from incremental_assets.runs.runner import SyncOptions

MOST_RUNS = 500
"""How many runs one request launches at most."""


@dataclass(frozen=True)
class Launch:
    """A run that is to be launched. ``of``: the container (``datastore/container``) or the datastore that it is about. ``asset``: that
    of Dagster's job of all assets which the run is about; None of another job."""

    of: str
    job: str
    run_config: dict[str, Any]
    tags: dict[str, str] = field(default_factory=dict[str, str])
    asset: dg.AssetKey | None = None


def launches(body: RunBody, datastores: Sequence[Datastore], instance: dg.DagsterInstance) -> list[Launch]:
    """The runs of a request. Raises ConfigurationError or Problem, before anything is launched, where one of them is not possible."""
    names = _names(body, datastores)
    stores = [find_datastore(datastores, name) for name in dict.fromkeys(name.partition("/")[0] for name in names)]
    if body.type == "catalog":
        return [_catalog(body, store) for store in stores]
    for store in stores:
        if store.misfit is None and store.catalog is None:
            raise ConfigurationError(f'{store.name} has no catalog yet. Send {{"type": "catalog", "datastores": ["{store.name}"]}} first.')
    chosen = [definition for _, definition in select(datastores, names, [f"{key}={value}" for key, value in body.tags.items()])]
    if not chosen:
        raise ConfigurationError(f"there is nothing to {body.type}: {', '.join(store.name for store in stores)} has no containers.")
    if not body.containers and not body.tags and not _needs_each(body):
        return [_of_datastore(body, store) for store in stores if store.definitions]
    if body.type == "scan":
        without = [one.container.label for one in chosen if not one.container.options.checks]
        if body.containers and without:
            raise ConfigurationError(f"{without[0]} has no rules, so that there is nothing to scan: add checks: to its YAML.")
        chosen = [one for one in chosen if one.container.options.checks]
    if len(chosen) > MOST_RUNS:
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{counted(len(chosen), 'run')} are more than {MOST_RUNS}; name fewer containers, or datastores.",
        )
    return [_of_container(body, one, instance) for one in chosen]


def _names(body: RunBody, datastores: Sequence[Datastore]) -> list[str]:
    """The arguments of ``loading.select``: datastores, or ``DATASTORE/CONTAINER``. Raises ConfigurationError for an unknown name."""
    for name in body.datastores:
        if "/" in name:
            raise ConfigurationError(f"there is no datastore {name!r}; a container belongs under containers.")
    if not datastores:
        raise ConfigurationError("the project has no datastore yet.")
    stores = [find_datastore(datastores, name) for name in dict.fromkeys(body.datastores)] or list(datastores)
    if not body.containers:
        return [store.name for store in stores]
    named: list[str] = []
    for name in dict.fromkeys(body.containers):
        of = [f"{one.name}/{name}" for one in stores if any(d.container.name == name for d in one.definitions)]
        whole = [d.container.label for one in stores for d in one.definitions if d.container.label == name]
        if not of and not whole:
            known = [text for one in stores for d in one.definitions for text in (d.container.name, d.container.label)]
            where = ", ".join(store.name for store in stores)
            raise ConfigurationError(f"{where} has no container {name!r}.{nearest(name, known)}")
        named += whole or of
    return list(dict.fromkeys(named))


def _needs_each(body: RunBody) -> bool:
    """Whether the request has options that the job of a whole datastore does not take."""
    threshold = body.greater_than_time is not None or body.greater_than_batch is not None
    return threshold or body.auto_resolve_passed_anomalies or body.mode is not None or body.sweep


def _config(op: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"ops": {op: {"config": config}}}


def _catalog(body: RunBody, store: Datastore) -> Launch:
    asked = {"prune": body.prune, "recreate": body.recreate, "include": body.include}
    config = {name: value for name, value in asked.items() if value is not None}
    tags = {OPERATION_TAG: "catalog", DATASTORE_TAG: store.name}
    return Launch(store.name, catalog_job_name(store.name), _config(catalog_op_name(store.name), config), tags)


def _of_datastore(body: RunBody, store: Datastore) -> Launch:
    """One run over all containers of a datastore, which are runs of their own within it."""
    name = encode_name(store.name)
    configs: dict[str, dict[str, Any]] = {
        "sync": {},
        "scan": _config(f"{name}_scan", {"looks": "incremental" if body.incremental else "full"}),
        "profile": _config(f"{name}_profile", {"looks": "incremental" if body.incremental else "full"}),
        "audit": _config(f"{name}_audit", {"repair": body.repair}),
    }
    tags = {OPERATION_TAG: body.type, DATASTORE_TAG: store.name}
    return Launch(store.name, f"{body.type}_{name}", configs[body.type], tags)


def _of_container(body: RunBody, definition: ContainerDefinition, instance: dg.DagsterInstance) -> Launch:
    """The run of one container. Raises ConfigurationError where the options do not apply to it."""
    label = definition.container.label
    if body.type == "sync":
        plain = body.mode is None and not body.sweep
        mode = None if body.mode is None else Mode(body.mode)
        request = adapter_of(definition).due if plain else SyncOptions(mode=mode, sweep=body.sweep).request(definition, instance)
        tags = {CONTAINER_TAG: label, MAX_RUNTIME_SECONDS_TAG: str(max_runtime_seconds(definition))}
        asset = None if has_own_job(definition) else container_key(definition.container)
        return Launch(label, launched_job(definition), dict(config_of(definition, request)), tags, asset)
    config: dict[str, Any] = {"repair": body.repair}
    if body.type != "audit":
        batch = None if body.greater_than_batch is None else str(body.greater_than_batch)
        resolve = body.type == "scan" and body.auto_resolve_passed_anomalies
        config = ScanOptions(body.incremental, body.greater_than_time, batch, auto_resolve=resolve).config(definition, instance)
    return Launch(label, *run_alone(definition, body.type, config), tags_of(definition, body.type))
