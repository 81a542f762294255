"""Restricts Dagster's webserver to requests of its own pages and of programs on this machine; requests of other web pages are refused.

Dagster's webserver has no login. By itself it executes a mutation whatever page sends it, even one in the address of a GET request. Any
page that is open in the same browser could reset watermarks or launch runs. A browser names the sending page in the Origin of each such
request. A name that was made to resolve to this machine afterwards (DNS rebinding) shows in Host.
"""

import os
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HOSTS_VARIABLE = "INCREMENTAL_ASSETS_UI_HOSTS"
"""The environment variable with further host names of the UI, separated by commas, such as that of a proxy in front of it."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""The host names that are always accepted."""


class OwnPagesOnly:
    """ASGI middleware that refuses requests sent by pages of another origin, and GraphQL queries in the address of a GET request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    @staticmethod
    def _refusal(scope: Scope) -> PlainTextResponse | None:
        """The answer to a request that is refused; None where the request is accepted."""
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        host = headers.get("host", "").lower()
        # The origin "null", of a local file or a sandboxed frame, has no netloc and is refused.
        if any(urlsplit(origin).netloc.lower() != host for origin in origins):
            return PlainTextResponse(
                f"Refused: this request comes from a page of {origins[0]}, and only pages of this UI itself may send any.", status_code=403
            )
        # For a request that accepts HTML, Dagster answers with the page for typing queries, and executes none.
        playground = "text/html" in headers.get("accept", "")
        if scope["type"] == "http" and scope["method"] != "POST" and scope["path"].endswith("/graphql") and not playground:
            return PlainTextResponse("Refused: send GraphQL by POST.", status_code=405, headers={"Allow": "POST"})
        return None


def guard(app: Starlette) -> Starlette:
    """Adds both middlewares to the app and returns it.

    Starlette asks the middleware that was added last first. So the Host is checked before the Origin is compared with it.
    """
    further = [name.strip() for name in os.environ.get(HOSTS_VARIABLE, "").split(",") if name.strip()]
    app.add_middleware(OwnPagesOnly)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL_HOSTS, *further], www_redirect=False)
    return app
