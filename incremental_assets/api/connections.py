"""The service's socket, how long a connection may be open without a request or a reader, and how many there may be."""

import asyncio
import socket
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from incremental_assets.core.errors import ConfigurationError

MOST_CONNECTIONS = 512
"""How many connections are open at a time; requests over others are answered with 503."""
MOST_OF_ADDRESS = 48
"""How many of them may come from one address; others are closed at once, with 503. They are fewer than the requests that are answered at a
time (``guard.MOST_REQUESTS``). All that come through a proxy have its address."""
IDLE_SECONDS = 10
"""How long a connection may be open before its next request is there, with all of its headers, and how long nobody may read of an answer
that does not fit into the connection's buffers. Without these limits, somebody without a token could hold all connections for ever."""
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


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
    """A connection that is closed where it has had no request for ``IDLE_SECONDS`` and none is being answered, or where nobody has read of
    its answer for so long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        address = self.client[0] if self.client else None
        if sum(isinstance(other, H11Protocol) and bool(other.client) and other.client[0] == address for other in self.connections) > (
            MOST_OF_ADDRESS
        ):
            transport.write(_TOO_MANY)
            transport.close()
        self._look_later()

    def _look_later(self) -> None:
        self.loop.call_later(IDLE_SECONDS, self._look, self.cycle, self.transport.get_write_buffer_size())

    def _look(self, before: object, unread_before: int) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread and unread >= unread_before > 0:
            self.transport.abort()  # to close it would wait for the reader
            return
        if self.transport.is_closing():
            if unread:
                self._look_later()
            return
        if not unread and self.cycle is before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._look_later()
