"""Who may ask what: the two tokens, and the size of a request.

A token is compared in constant time, and is never logged: the line of a request has its method, its path and its status only.
"""

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from incremental_assets.api.problems import Problem, problem
from incremental_assets.core.errors import ConfigurationError

READ_VARIABLE, WRITE_VARIABLE = "INCREMENTAL_ASSETS_API_READ_TOKEN", "INCREMENTAL_ASSETS_API_WRITE_TOKEN"
"""The environment variables with the tokens."""
LEAST_LENGTH = 16
MOST_BYTES = 64 * 1024
"""The largest body of a request."""
MOST_REQUESTS = 64
"""How many requests with a token are answered at a time; others are refused with 503."""
BODY_SECONDS = 30
"""How long a part of a body may take."""
OPEN = frozenset({"/docs", "/openapi.json"})
"""What is answered without a token: pages that say nothing about the project."""
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]
log = logging.getLogger(__name__)


class Role(Enum):
    """What the bearer of a token may do."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class Tokens:
    """The digests of the tokens. The tokens themselves are not kept, so that no message or dump of this object can show them."""

    read: bytes
    write: bytes

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Tokens":
        """Raises ConfigurationError where a token is missing or too short, and where both are the same."""
        found = {name: environment.get(name, "") for name in (READ_VARIABLE, WRITE_VARIABLE)}
        for name, token in found.items():
            if len(token) < LEAST_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
                raise ConfigurationError(
                    f"set {name} to a token of at least {LEAST_LENGTH} visible ASCII characters, such as one that `openssl rand -hex 32` "
                    f"prints. The service does not start without both tokens."
                )
        if found[READ_VARIABLE] == found[WRITE_VARIABLE]:
            raise ConfigurationError(f"{READ_VARIABLE} and {WRITE_VARIABLE} are the same token, so that everybody could write; change one.")
        return cls(_digest(found[READ_VARIABLE].encode()), _digest(found[WRITE_VARIABLE].encode()))

    def role_of(self, token: bytes) -> Role | None:
        """The role of the bearer of this token; None: it is neither of the two. Takes the same time for every token of a length."""
        digest = _digest(token)
        reads, writes = hmac.compare_digest(digest, self.read), hmac.compare_digest(digest, self.write)
        return Role.WRITE if writes else Role.READ if reads else None


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class Guard:
    """Lets through requests that have a token for what they do and are not too large, and logs a line for each request."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there is nothing to connect to by a websocket

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
                log.info("%s %s %s", scope["method"], ascii(scope["path"][:200]), message["status"])
            await send(message)

        try:
            self._check(scope)
        except Problem as refused:
            await problem(refused.status, refused.detail, refused.headers)(scope, receive, answered)
            return
        self._answering += 1
        try:
            await self._app(scope, _limited(receive), answered)
        finally:
            self._answering -= 1

    def _check(self, scope: Scope) -> None:
        """Raises Problem where the request is refused."""
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and (not lengths[0].isdigit() or len(lengths[0]) > 12 or int(lengths[0]) > MOST_BYTES):
            raise _too_large()
        if scope["path"] in OPEN and scope["method"] in ("GET", "HEAD"):
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        role = self._tokens.role_of(token.strip()) if scheme.lower() == b"bearer" else None
        if role is None:
            headers = {"WWW-Authenticate": "Bearer"}
            raise Problem(
                HTTPStatus.UNAUTHORIZED, "send the header Authorization: Bearer TOKEN, with the read or the write token.", headers
            )
        if role is Role.READ and scope["method"] not in ("GET", "HEAD"):
            raise Problem(HTTPStatus.FORBIDDEN, "this is the read token; changing something takes the write token.")
        if self._answering >= MOST_REQUESTS:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_REQUESTS} requests are being answered already; send this again later.")


def _too_large() -> Problem:
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {MOST_BYTES:,} bytes, which is the most.")


def _limited(receive: Receive) -> Receive:
    """The same body, which raises Problem where it grows beyond the limit, or where nothing of it comes any more.

    A body that comes in chunks does not say its length before.
    """
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        try:
            message = await asyncio.wait_for(receive(), BODY_SECONDS)
        except asyncio.TimeoutError:
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, f"nothing of the body has come for {BODY_SECONDS} seconds.") from None
        seen += len(message.get("body", b""))
        if seen > MOST_BYTES:
            raise _too_large()
        return message

    return limited
