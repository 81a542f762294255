"""A proxy in front of an S3 store, which counts requests by kind, lets each answer wait, and may keep requests and answers back.

Belongs here: the proxy. Does not belong: the store and the syncs that send the requests (``store``), and who is killed at which of them
(``assets_tests.delta.test_kills_on_s3``).
"""

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_OF_ONE_HOP = frozenset(("connection", "transfer-encoding", "keep-alive"))
Answer = tuple[http.client.HTTPResponse, bytes]
"""The answer of a store, and its content."""


class Proxied:
    """``address``: where the proxy listens. ``seconds``: how long each answer waits. ``requests``: the number of each kind since ``clear``.
    ``around``: gets the kind of each request, and the function that sends it to the store and returns the answer. What it returns is passed
    back; where that is None, the connection is closed.

    A kind is the method, and the object with its numbers and unique names left out.
    """

    def __init__(self, address: str) -> None:
        self.address, self.seconds = address, 0.0
        self.requests: Counter[str] = Counter()
        self.around: Callable[[str, Callable[[], Answer]], Answer | None] = lambda kind, send: send()


@contextmanager
def proxy(store: str) -> Iterator[Proxied]:
    """Listens on this machine for the store at ``host:port``, while the block runs."""
    counted, ours = threading.Lock(), threading.local()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _forward(self) -> None:
            kind = _kind(self.command, self.path)
            with counted:
                proxied.requests[kind] += 1
            body = self._body()
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
            found = proxied.around(kind, lambda: _answer(ours, store, self.command, self.path, body, headers))
            if found is None:
                self.close_connection = True
                return
            answer, content = found
            time.sleep(proxied.seconds)
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_ONE_HOP | {"content-length"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts: list[bytes] = []
            while length := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(length))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        proxied = Proxied(f"127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield proxied
        finally:
            server.shutdown()


def _answer(ours: Any, store: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    """The store's answer, by a connection of this thread. One that the store has closed meanwhile is opened again."""
    for is_new in (False, True):
        connection = None if is_new else getattr(ours, "connection", None)
        if connection is None:
            connection = ours.connection = http.client.HTTPConnection(store)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            if is_new:
                raise
    raise AssertionError


def _kind(method: str, path: str) -> str:
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    key = unquote(parts.path).lstrip("/")
    if "prefix" in query:
        key = f"{key.rstrip('/')}/{query['prefix'][0]}"
    if "list-type" in query:
        method = "LIST"
    if "uploads" in query or "uploadId" in query:  # an object that is uploaded in parts
        key += "?upload"
    key = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", key)
    return f"{method} {re.sub(r'[0-9]{20}', 'N', key)}"
