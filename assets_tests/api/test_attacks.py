"""The service refuses what it must: requests without the right token, hostile ids and bodies, and what would write something else.

Belongs here: requests of somebody who means harm, or whose program is broken, to the real service. Does not belong: operations that run
(``test_operations``).
"""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from assets_tests.api.service import READ, TOKENS, WRITE, Service, service
from assets_tests.harness import Project
from incremental_assets.api.connections import IDLE_SECONDS, MOST_OF_ADDRESS
from incremental_assets.demo.postgres import EmbeddedPostgres

pytestmark = pytest.mark.long

OPERATION = "/api/operations/00000000-0000-0000-0000-000000000000"
EVERY = [
    ("GET", "/api/operations"), ("GET", OPERATION), ("POST", "/api/operations/run"), ("POST", f"{OPERATION}/abort"),
    ("POST", f"{OPERATION}/rerun"), ("POST", f"{OPERATION}/resume"), ("DELETE", OPERATION), ("GET", "/api/containers"),
    ("GET", "/api/containers/shop/orders"), ("PUT", "/api/containers/shop/orders"), ("PATCH", "/api/containers/shop/orders"),
]  # fmt: skip


@pytest.fixture(scope="module")
def api(postgres: EmbeddedPostgres, spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("api")
    project = Project(
        path / "p", postgres.create_database("api_attacks", drop=True), spark_home, incremental=["public.orders:at:timestamp"]
    )
    project.execute("create table orders (id int primary key, at timestamptz, total int)")
    project.execute('create table hostile (id int primary key, "a: {b}\n- c # d" timestamptz, "{{ env.HOME }}" int)')
    project.write()
    project.cli("catalog", spark=False)
    with service(project, path) as found:
        yield found
    project.source.close()


def yaml_of(api: Service) -> str:
    return (api.project.path / "defs" / "shop" / "defs.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_without_the_right_token_nothing_is_answered(api: Service, method: str, path: str) -> None:
    """An address that forgets to ask for a token gives the project to everybody who can reach the port."""
    for token in (None, "", "wrong", READ[:-1], WRITE + "x", WRITE.upper(), "é"):
        status, answer = api.send(method, path, token=None, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        assert status == 401 and answer["status"] == 401, (token, answer)
    assert api.send(method, path, token=None, headers={"Authorization": f"Basic {WRITE}"})[0] == 401
    assert api.send(method, f"{path}?token={WRITE}", token=None)[0] == 401
    if method != "GET":
        assert api.send(method, path, body={}, token=READ)[0] == 403, "the read token writes"


def test_a_token_is_in_no_log(api: Service) -> None:
    """Logs are read by more people than tokens are meant for."""
    api.send("GET", f"/api/operations?token={WRITE}", token=READ)
    api.send("GET", "/api/operations", token=None, headers={"Authorization": "Bearer wrong-token-of-somebody"})
    assert "GET '/api/operations' 401" in api.log
    assert not [secret for secret in (READ, WRITE, "wrong-token-of-somebody") if secret in api.log]


@pytest.mark.parametrize(
    "id",
    ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "....//....//etc/passwd", "%00", "a%00b", "%0d%0aSet-Cookie:x", "%ff%fe", "'%20or%201=1--",
     "%25",
     "x" * 5000, "%F0%9F%92%A9", "%E2%80%AE", "{{7*7}}", "shop", "shop%2f..%2forders", "shop/orders/", "/shop/orders", "SHOP/orders"],
)  # fmt: skip
def test_hostile_ids_find_nothing(api: Service, id: str) -> None:
    """An id is compared with what is known. One that reached a file, SQL or a template would give away more than the project."""
    for method, path in (("GET", f"/api/operations/{id}"), ("DELETE", f"/api/operations/{id}"), ("POST", f"/api/operations/{id}/abort"),
                         ("GET", f"/api/containers/{id}"), ("PUT", f"/api/containers/{id}")):  # fmt: skip
        status, answer = api.send(method, path, body={"incremental_field": "at"} if method == "PUT" else None)
        assert status in (404, 405), (method, path, answer)
        assert answer["type"] == "about:blank" and "root:" not in str(answer) and "Traceback" not in str(answer)


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=-1", "page=999999999999999999999", "page=1e3", "size=0", "size=201", "size=x", "page=1&page=2", "unknown=1",
     "sort=id;drop", "type=maintenance", "result=%00", "from=yesterday", "id=%25", "id=..", "container=%00", "datastore=" + "x" * 501],
)  # fmt: skip
def test_hostile_queries_are_refused(api: Service, query: str) -> None:
    """A page of a billion, or a filter that is not known and silently ignored, costs the service or misleads the caller."""
    status, answer = api.send("GET", f"/api/operations?{query}", token=READ)
    assert status == 422 and answer["detail"], answer


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"type": "scan", "type2": 1}', b'{"type": "drop"}', b"[" * 60_000,
     b'{"type":' + b"[" * 50_000, b'{"type": "scan", "containers": ["\\u0000"]}', b'{"type": "scan", "datastores": ["shop/../../x"]}',
     b'{"type": "catalog", "containers": ["orders"]}',
     b'{"type": "scan", "prune": true}', b'{"type": "scan", "greater_than_time": "2026-01-01"}', b'{"type": "sync", "datastore_id": 42}',
     b'{"type": "scan", "tags": {"a": {"b": 1}}}', b'{"type": "sync", "containers": ["nowhere"]}',
     b'{"type": "sync", "datastores": [["shop"]]}'],
)  # fmt: skip
def test_hostile_bodies_are_refused(api: Service, body: bytes) -> None:
    """Nothing is launched by a body that is not understood whole."""
    status, answer = api.send("POST", "/api/operations/run", body=body)
    assert status == 422, answer
    assert answer["title"] and "Traceback" not in str(answer) and 'File "' not in str(answer)


def test_an_oversized_body_is_refused_however_it_comes(api: Service) -> None:
    """Otherwise one request fills the memory of the service."""
    assert api.send("POST", "/api/operations/run", body=b" " * 70_000)[0] == 413
    assert api.send("POST", "/api/operations/run", body=b"{}", headers={"Content-Length": "99999999999999"})[0] == 413
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
    chunks = (b" " * 8192 for _ in range(12))
    connection.request("POST", "/api/operations/run", chunks, {"Authorization": f"Bearer {WRITE}"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_who_has_no_token_cannot_hold_connections(api: Service) -> None:
    """Connections over which nothing comes, or only the beginning of a request, would keep everybody else out while they are open."""
    held = [socket.create_connection(("127.0.0.1", api.port), timeout=IDLE_SECONDS + 20) for _ in range(MOST_OF_ADDRESS - 4)]
    for number, one in enumerate(held):
        if number % 2:
            one.sendall(b"GET /api/containers HTTP/1.1\r\nHost: x\r\n")
    assert api.send("GET", "/api/operations?size=1", token=READ)[0] == 200
    for one in held:
        assert one.recv(1) == b"", "the service closes it"
        one.close()


@pytest.mark.parametrize("reads", [True, False])
def test_one_address_cannot_hold_all_connections(api: Service, reads: bool) -> None:
    """Otherwise one machine keeps everybody else out: by headers that never end, or by answers that it does not read."""
    request = f"GET /openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READ}\r\n".encode()
    held: list[socket.socket] = []
    refused = 0
    for _ in range(600):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.bind(("127.0.0.2", 0))
        one.settimeout(IDLE_SECONDS * 2 + 20)
        try:
            one.connect(("127.0.0.1", api.port))
            one.sendall(request if reads else (request + b"\r\n") * 400)
        except OSError:
            refused += 1
        held.append(one)
    for _ in range(5):
        assert api.send("GET", "/api/operations?size=1", token=READ)[0] == 200
    time.sleep(2 * IDLE_SECONDS + 5)  # the time that is tested
    found = [one for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == api.port and one.status == "ESTABLISHED"]
    assert [one for one in found if one.raddr and one.raddr.ip == "127.0.0.2"] == [], "the service has closed them"
    for one in held:
        one.close()


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(api: Service) -> None:
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(api.project.path), "api"]
    for more, what in (["--port", str(api.port)], "cannot listen on port"), (["--host", "nowhere.invalid"], "of nowhere.invalid"):
        environment = os.environ | api.project.variables | TOKENS
        done = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and what in done.stderr and "/docs" not in done.stderr, done.stderr


def test_without_a_daemon_nothing_is_queued(api: Service) -> None:
    """A run that nobody takes from the queue reads as accepted work. The answer says so instead, and the caller can send it again."""
    status, answer = api.send("POST", "/api/operations/run", body={"type": "catalog", "datastore_id": "shop"})
    assert status == 503 and "daemon" in answer["detail"] and "nothing was launched" in answer["detail"]
    assert api.get("/api/operations?result=queued")["total"] == 0


@pytest.mark.parametrize(
    "body",
    [{"incremental_field": "at\n  url: postgresql://evil"}, {"incremental_field": "at\"\nurl: x"}, {"incremental_field": "{{ env.HOME }}"},
     {"incremental_field": "nowhere"}, {"incremental_field": "id", "type": "timestamp"}, {"incremental_field": ""},
     {"incremental_field": []},
     {"incremental_field": "at", "start": "2026-01-01!upsert\nurl: x"}, {"incremental_field": "at", "start": "{{ env.HOME }}"},
     {"incremental_field": "at", "start": "no time"}, {"incremental_field": "id", "start": True},
     {"incremental_field": "at", "strategy": "snapshot"}, {"type": "date"}, {},
     {"incremental_field": ["at", "nowhere"]}, {"incremental_field": "at:timestamp!upsert"}, {"incremental_field": 5}],
)  # fmt: skip
def test_what_is_no_field_of_the_container_is_not_written(api: Service, body: object) -> None:
    """The file that is written configures the project: a text that broke out of its entry could name another database."""
    before = yaml_of(api)
    for id in ("shop/orders", "shop/hostile"):
        status, answer = api.send("PUT", f"/api/containers/{id}", body=body)
        assert status == 422, (id, answer)
    assert yaml_of(api) == before
    assert [path.name for path in (api.project.path / "defs" / "shop").iterdir() if path.name != "__pycache__"] == ["defs.yaml"]


def test_the_service_does_not_start_without_two_good_tokens(api: Service) -> None:
    """A service that starts without tokens, or with one for both, is open to everybody."""
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(api.project.path), "api", "--port", "1"]
    read, write = TOKENS
    for wrong in (
        {},
        {read: READ},
        {write: WRITE},
        {read: READ, write: READ},
        {read: "short", write: WRITE},
        {read: READ, write: "ü" * 20},
    ):
        environment = {name: value for name, value in os.environ.items() if name not in TOKENS} | api.project.variables | wrong
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and "TOKEN" in done.stderr and WRITE not in done.stderr, done.stderr
