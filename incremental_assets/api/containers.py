"""Containers as the service shows them: their incremental field, and their status."""

from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse, Response

from incremental_assets.api.history import page
from incremental_assets.api.incremental_field import set_incremental_field
from incremental_assets.api.payloads import ContainersQuery, FieldBody
from incremental_assets.api.problems import Problem
from incremental_assets.api.workspace import ApiWorkspace
from incremental_assets.catalog.definition import ContainerDefinition
from incremental_assets.operations.figures import prometheus_text
from incremental_assets.operations.status import status_lines
from incremental_assets.runs.loading import Datastore, find_datastore

_MOST_ID = 1000


def containers(workspace: ApiWorkspace, query: ContainersQuery) -> dict[str, Any]:
    """One page of the containers, without their status."""
    stores = workspace.datastores()
    chosen = [find_datastore(stores, query.datastore)] if query.datastore is not None else stores
    found = [definition for store in chosen for definition in store.definitions]
    first = (query.page - 1) * query.size
    return page([_record(one) for one in found[first : first + query.size]], len(found), query.page, query.size)


def container(workspace: ApiWorkspace, id: str) -> dict[str, Any]:
    """The container with its status. Raises Problem where there is none with this id."""
    _, definition = _find(workspace, id)
    status = status_lines(workspace.instance, [definition], datetime.now(timezone.utc))[0]
    return {**_record(definition), "status": {name: value for name, value in status.items() if name != "container"}}


def metrics(workspace: ApiWorkspace) -> Response:
    """The figures of all containers, in Prometheus' text format."""
    chosen = [definition for store in workspace.datastores() for definition in store.definitions]
    text = prometheus_text(status_lines(workspace.instance, chosen, datetime.now(timezone.utc)))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def set_field(workspace: ApiWorkspace, id: str, body: FieldBody, keep: bool) -> dict[str, Any]:
    """Sets the incremental field of the container in the YAML. Returns the container as it is then."""
    store, definition = _find(workspace, id)
    set_incremental_field(workspace.project, store, definition, body, keep)
    return container(workspace, id)


def _find(workspace: ApiWorkspace, id: str) -> tuple[Datastore, ContainerDefinition]:
    """The container whose label is the id. It is compared with known labels, and is never part of a path."""
    if len(id) <= _MOST_ID and id.isprintable():
        for store in workspace.datastores():
            for definition in store.definitions:
                if definition.container.label == id:
                    return store, definition
            if store.name == id.partition("/")[0] and store.misfit is not None:
                raise store.misfit
    raise Problem(HTTPStatus.NOT_FOUND, "there is no container with this id, which is DATASTORE/CONTAINER. GET /api/containers lists them.")


def _record(definition: ContainerDefinition) -> dict[str, Any]:
    one = definition.container
    found = one.identifier
    columns = None if found is None else found.columns[0] if len(found.columns) == 1 else list(found.columns)
    return {
        "id": one.label,
        "name": one.name,
        "datastore": {"id": one.datastore, "name": one.datastore},
        "kind": one.kind.value,
        "incremental_field": columns,
        "type": None if found is None else found.type.value,
        "start": found.start if found is not None else None,
        "strategy": one.strategy.value,
        "fields": [{"name": column.name, "type": column.type} for column in definition.table.columns],
        "proposal": definition.entry,
        "missing_since": definition.missing_since,
    }
