"""The addresses of the service, each with what it does: the routes and the OpenAPI document are both made from this list."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from incremental_assets.api import operations
from incremental_assets.api.containers import container, containers, metrics, set_field
from incremental_assets.api.history import find, operation, page_of
from incremental_assets.api.payloads import Body, ContainersQuery, FieldBody, RunBody, RunsQuery
from incremental_assets.api.problems import Problem, invalid
from incremental_assets.api.workspace import ApiWorkspace

Model = TypeVar("Model", bound=BaseModel)
Work = Callable[[ApiWorkspace, str, Any], Any]
"""What answers a request, in a thread of its own: of the workspace, the id of the address ("" without one), and the body or query."""


class _Nothing(Body):
    """The query of an address that takes none."""


@dataclass(frozen=True)
class Endpoint:
    """One method of one address. ``answer``: the model of its JSON in words; ``status``: where nothing is wrong."""

    method: str
    path: str
    summary: str
    work: Work
    body: type[BaseModel] | None = None
    query: type[BaseModel] = _Nothing
    status: int = HTTPStatus.OK
    answer: str = "Operation"

    @property
    def writes(self) -> bool:
        return self.method != "GET"


_OPERATION, _CONTAINER = "/api/operations/{id}", "/api/containers/{id:path}"
ENDPOINTS = (
    Endpoint("POST", "/api/operations/run", "Launch an operation over datastores, containers or tags, as ordinary Dagster runs.",
             lambda w, id, body: operations.run(w, body), body=RunBody, status=HTTPStatus.ACCEPTED),
    Endpoint("GET", "/api/operations", "List operations. Each item is a run; complete: false means that older runs were not searched.",
             lambda w, id, query: page_of(w.instance, query), query=RunsQuery, answer="Page"),
    Endpoint("GET", _OPERATION, "Show an operation, by the id of a request with all of its runs as items, or by the id of a run.",
             lambda w, id, _: operation(w.instance, find(w.instance, id))),
    Endpoint("POST", f"{_OPERATION}/abort", "End what has not ended; what is committed stays.",
             lambda w, id, _: operations.abort(w, id), status=HTTPStatus.ACCEPTED),
    Endpoint("POST", f"{_OPERATION}/rerun", "Run it again from the beginning, with the same options.",
             lambda w, id, _: operations.again(w, id, from_failure=False), status=HTTPStatus.ACCEPTED),
    Endpoint("POST", f"{_OPERATION}/resume", "Run again what has failed or was aborted: Dagster's retry from failure.",
             lambda w, id, _: operations.again(w, id, from_failure=True), status=HTTPStatus.ACCEPTED),
    Endpoint("DELETE", _OPERATION, "Delete the record of what has ended, unless it has the newest events of a container.",
             lambda w, id, _: operations.delete(w, id), status=HTTPStatus.NO_CONTENT, answer=""),
    Endpoint("GET", "/api/containers", "List containers with their incremental fields.",
             lambda w, id, query: containers(w, query), query=ContainersQuery, answer="Page"),
    Endpoint("GET", _CONTAINER, "Show a container with its incremental field and its status. The id is DATASTORE/CONTAINER.",
             lambda w, id, _: container(w, id), answer="Container"),
    Endpoint("PUT", _CONTAINER, "Set the incremental field in the YAML: the whole entry.",
             lambda w, id, body: set_field(w, id, body, keep=False), body=FieldBody, answer="Container"),
    Endpoint("GET", "/metrics", "Show the figures of all containers, in Prometheus' text format.",
             lambda w, id, _: metrics(w), answer=""),
    Endpoint("PATCH", _CONTAINER, "Change the incremental field in the YAML: what is not sent stays.",
             lambda w, id, body: set_field(w, id, body, keep=True), body=FieldBody, answer="Container"),
)  # fmt: skip


def routes(workspace: ApiWorkspace) -> list[Route]:
    """The routes of the addresses. Starlette answers other methods with 405."""
    return [Route(one.path, _handler(one, workspace), methods=[one.method]) for one in ENDPOINTS]


def _handler(endpoint: Endpoint, workspace: ApiWorkspace) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        try:
            query = _query(endpoint.query, request)
        except ValidationError as error:
            return invalid(error, "query")
        given: Any = query
        if endpoint.body is not None:
            try:
                given = endpoint.body.model_validate_json(await request.body())
            except ValidationError as error:
                return invalid(error, "body")
        answer = await run_in_threadpool(endpoint.work, workspace, request.path_params.get("id", ""), given)
        if isinstance(answer, Response):
            return answer
        return Response(status_code=endpoint.status) if answer is None else JSONResponse(answer, endpoint.status)

    return handle


def _query(model: type[Model], request: Request) -> Model:
    """The parameters of the address, each at most once. Raises ValidationError or Problem."""
    given: Mapping[str, str] = dict(request.query_params)
    if len(request.query_params.multi_items()) != len(given):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "the query has a parameter twice.")
    return model.model_validate(given)
