"""The service: its application, and the process that serves it."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from incremental_assets.api.connections import MOST_CONNECTIONS, Connection, listening
from incremental_assets.api.endpoints import routes
from incremental_assets.api.guard import Guard, Tokens
from incremental_assets.api.openapi import document, page
from incremental_assets.api.problems import HANDLERS
from incremental_assets.api.workspace import ApiWorkspace, api_workspace
from incremental_assets.core.shown_text import PlainFormatter


def application(workspace: ApiWorkspace, tokens: Tokens) -> ASGIApp:
    """The application of a project."""
    described, shown = document(), page()

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def docs(request: Request) -> Response:
        return HTMLResponse(shown)

    own = [Route("/openapi.json", openapi), Route("/docs", docs)]
    app = Starlette(routes=[*own, *routes(workspace)], exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return Guard(app, tokens)


def serve(project: Path, host: str, port: int, say: Callable[[str], None]) -> int:
    """Serves the API until it is interrupted.

    Raises ConfigurationError, before anything is loaded, where a token is missing, or where the port is not free.
    """
    tokens = Tokens.of_environment()
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("incremental_assets.api", "uvicorn.error"):
        own = logging.getLogger(name)
        own.setLevel(logging.INFO)
        own.handlers, own.propagate = [handler], False
    listens = listening(host, port)
    os.chdir(project)  # a relative folder in workspace.yaml is one below the project, as for `incremental-assets dev`
    with listens, api_workspace(project) as workspace:
        # The server's own access log would have the query of an address, in which somebody may have put a token.
        config = uvicorn.Config(
            application(workspace, tokens),
            http=Connection,
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_graceful_shutdown=10,
        )
        if host not in ("127.0.0.1", "::1", "localhost"):
            say(f"{host} can be reached by other machines, and this service has no TLS: put a proxy with TLS before it.")
        say(f"operations' API of {project.name}: http://{host}:{port}/docs")
        uvicorn.Server(config).run([listens])
    return 0
