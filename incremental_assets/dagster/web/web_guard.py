"""Which requests Dagster's webserver answers: those of its own page and of programs on this machine, and of no other web page.

Belongs here: refusing by Host, Origin and method, for HTTP and for the websocket. Does not belong: who starts the webserver (``serve``,
``dev_services``).

Dagster's webserver has no login, and by itself answers a mutation whatever page it comes from, even one in the address of a GET. Any page
that is open in the same browser could reset watermarks, or launch runs. A browser says with each such request where it comes from (Origin);
a name that was made to resolve to this machine afterwards (DNS rebinding) shows in Host.
"""

import os
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HOSTS_VARIABLE = "INCREMENTAL_ASSETS_UI_HOSTS"
"""Further names that the UI may be opened by, separated by commas: of a proxy in front of it."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class OwnPagesOnly:
    """ASGI middleware: refuses requests that another origin's page sends, and GraphQL that is in the address of a GET."""

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
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        host = headers.get("host", "").lower()
        if any(urlsplit(origin).netloc.lower() != host for origin in origins):  # "null", of a file or a sandbox, has no netloc
            return PlainTextResponse(
                f"Refused: this request comes from a page of {origins[0]}, and only pages of this UI itself may send any.", status_code=403
            )
        playground = "text/html" in headers.get("accept", "")  # then Dagster answers with the page for typing queries, and runs none
        if scope["type"] == "http" and scope["method"] != "POST" and scope["path"].endswith("/graphql") and not playground:
            return PlainTextResponse("Refused: send GraphQL by POST.", status_code=405, headers={"Allow": "POST"})
        return None


def guard(app: Starlette) -> Starlette:
    """The app, behind both. What is added last is asked first: the Origin is compared with a Host that is known to be one of ours."""
    further = [name.strip() for name in os.environ.get(HOSTS_VARIABLE, "").split(",") if name.strip()]
    app.add_middleware(OwnPagesOnly)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL_HOSTS, *further], www_redirect=False)
    return app
