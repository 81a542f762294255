"""Errors as JSON problem details (RFC 9457): what a caller sees where something is refused or has failed.

No answer has a stack trace.
"""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from incremental_assets.core.errors import ConfigurationError, SyncError

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
SHOWN_ERRORS = 20
"""How many errors of one body or query an answer lists."""


class Problem(Exception):
    """A request that is answered with a status of its own. ``detail``: a sentence for people, which names what to do."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> JSONResponse:
    """The answer with the problem's details."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def invalid(error: ValidationError, where: str) -> JSONResponse:
    """The answer to a body or query that does not fit its model. The values that were sent are not repeated."""
    found = [
        {"at": ".".join(str(part) for part in one["loc"])[:200], "message": str(one["msg"])[:500]}
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    shown = found[:SHOWN_ERRORS]
    text = "; ".join(f"{one['at']}: {one['message']}" if one["at"] else one["message"] for one in shown[:3])
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"the {where} is not valid: {text}", errors=shown)


def _of_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem(error.status, error.detail, error.headers)


def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, f"{request.method} is not what this address answers." if error.status_code == 405 else error.detail,
                   error.headers)  # fmt: skip


def _of_sync_error(request: Request, error: Exception) -> Response:
    wrong = isinstance(error, ConfigurationError)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY if wrong else HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _of_all_others(request: Request, error: Exception) -> Response:
    # Starlette raises it again after the answer, and the server logs it; a request's headers are no part of it.
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong in the service; its log says what.")


HANDLERS: Mapping[Any, Callable[[Request, Exception], Response]] = {
    Problem: _of_problem,
    HTTPException: _of_http,
    SyncError: _of_sync_error,
    Exception: _of_all_others,
}
"""The handlers of an application, by the class of the exception."""
