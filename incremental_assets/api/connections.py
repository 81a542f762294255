"""The service's socket, and how long a connection may be open without a request.

Belongs here: what happens before there is a request. Does not belong: who may send one, and how large it is (``guard``).
"""

import asyncio
import socket
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from incremental_assets.core.errors import ConfigurationError

MOST_CONNECTIONS = 512
"""How many connections are open at a time; requests over others are answered with 503."""
IDLE_SECONDS = 10
"""How long a connection may be open before its next request is there, with all of its headers. Without that limit, somebody without a token
could hold all connections for ever."""


def listening(host: str, port: int) -> socket.socket:
    """The socket that listens there. Raises ConfigurationError where that is not possible."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(cast(Any, address), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"the service cannot listen on port {port} of {host}: {error.strerror or error}. Say --port with another one, or end what "
            f"listens there; --host is an address of this machine."
        ) from error


class Connection(H11Protocol):
    """A connection that is closed where it has had no request for ``IDLE_SECONDS``, and none is being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._look_later()

    def _look_later(self) -> None:
        self.loop.call_later(IDLE_SECONDS, self._look, self.cycle)

    def _look(self, before: object) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._look_later()
