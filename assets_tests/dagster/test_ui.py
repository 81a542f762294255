"""The UI that `incremental-assets dev` starts answers its own pages and programs of this machine, and no other web page.

Belongs here: requests as browsers send them, to a real server. It has no login: what is refused here is all that keeps a page that is open
in the same browser from launching runs and resetting watermarks.
"""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from assets_tests.harness import Project
from assets_tests.served import Served, serving
from incremental_assets.demo.postgres import EmbeddedPostgres

PAUSE, RESUME = (f"mutation {{ setAutoMaterializePaused(paused: {word}) }}" for word in ("true", "false"))
EVIL = "http://evil.example"


@contextlib.contextmanager
def shop(postgres: EmbeddedPostgres, spark_home: Path, path: Path, database: str) -> Iterator[Project]:
    made = Project(path / "p", postgres.create_database(database, drop=True), spark_home)
    made.execute("create table a (id int primary key)")
    made.write()
    made.cli("catalog", spark=False)
    yield made
    made.source.close()


@pytest.fixture(scope="module")
def ui(postgres: EmbeddedPostgres, spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("ui")
    with shop(postgres, spark_home, path, "ui") as project, serving(project, path) as found:
        assert post(found, RESUME)[0] == 200  # a new instance is paused
        yield found


def send(ui: Served, method: str, path: str, headers: Mapping[str, str], body: str | None = None) -> tuple[int, str]:
    """(status, body), with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", ui.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        data = None if body is None else body.encode()
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def paused(ui: Served) -> bool:
    answer: Any = ui.ask("{ instance { autoMaterializePaused } }")
    return answer["autoMaterializePaused"]


def post(ui: Served, query: str, **headers: str) -> tuple[int, str]:
    return send(ui, "POST", "/graphql", {"Content-Type": "application/json", **headers}, json.dumps({"query": query}))


@pytest.mark.long
def test_the_uis_own_page_and_local_programs_may_send_mutations(ui: Served) -> None:
    """Otherwise the other tests would prove nothing: the very same mutation goes through from where it may come."""
    own = f"http://127.0.0.1:{ui.port}"
    for query, expected, headers in (
        (PAUSE, True, {"Origin": own}),
        (RESUME, False, {}),  # a program says no Origin
        (PAUSE, True, {"Host": f"localhost:{ui.port}", "Origin": f"http://localhost:{ui.port}"}),
        (RESUME, False, {"Host": "localhost:8080", "Origin": "http://localhost:8080"}),  # through a forwarded port
    ):
        status, text = post(ui, query, **headers)
        assert status == 200 and paused(ui) is expected, text
    with connect(f"ws://127.0.0.1:{ui.port}/graphql", origin=own, subprotocols=["graphql-ws"]) as opened:  # pyright: ignore[reportArgumentType]
        opened.send(json.dumps({"type": "connection_init"}))
        assert json.loads(opened.recv()) == {"type": "connection_ack"}
    assert send(ui, "GET", "/", {})[0] == 200
    assert "GraphiQL" in send(ui, "GET", "/graphql", {"Accept": "text/html"})[1]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},  # a sandboxed frame, a local file
        {"Origin": "http://127.0.0.1:1"},  # another program's page on this machine
        {"Host": "evil.example"},  # a name that was made to resolve to this machine
        {"Host": "evil.example", "Origin": EVIL},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
def test_another_web_page_cannot_send_mutations(ui: Served, headers: dict[str, str]) -> None:
    """As JSON, and as what a page may send without asking: a form, its query in the address."""
    in_address = f"/graphql?query={quote(PAUSE)}"
    for method, path, more, body in (
        ("POST", "/graphql", {"Content-Type": "application/json"}, json.dumps({"query": PAUSE})),
        ("POST", in_address, {"Content-Type": "text/plain"}, ""),
        ("POST", "/report_asset_materialization/shop/a", {"Content-Type": "application/json"}, "{}"),
        ("GET", in_address, {}, None),
        ("GET", "/", {}, None),
    ):
        status, text = send(ui, method, path, {**more, **headers}, body)
        assert status in (400, 403, 405), (method, path, status, text)
    assert not paused(ui)


def test_mutations_in_a_url_are_refused(ui: Served) -> None:
    """A link or an image is sent without an Origin, so a GET must change nothing."""
    for accept in ("*/*", "image/png", "text/html"):
        send(ui, "GET", f"/graphql?query={quote(PAUSE)}", {"Accept": accept})
        assert not paused(ui)
    assert send(ui, "GET", f"/graphql?query={quote(PAUSE)}", {})[0] == 405


@pytest.mark.parametrize("headers", [{"Origin": EVIL}, {"Origin": "null"}, {"Host": "evil.example"}])
def test_another_page_gets_no_websocket(ui: Served, headers: dict[str, str]) -> None:
    """Browsers let any page open one, and it reads logs and answers queries."""
    with pytest.raises(InvalidStatus) as refused:
        connect(
            f"ws://{headers.get('Host', '127.0.0.1')}:{ui.port}/graphql",
            sock=socket.create_connection(("127.0.0.1", ui.port)),
            origin=headers.get("Origin"),  # pyright: ignore[reportArgumentType]
            subprotocols=["graphql-ws"],  # pyright: ignore[reportArgumentType]
        ).close()
    assert refused.value.response.status_code in (400, 403)


@pytest.mark.long
def test_a_read_only_ui_refuses_mutations_and_shows_new_containers(postgres: EmbeddedPostgres, spark_home: Path, tmp_path: Path) -> None:
    """`dev --read-only` for a screen on the wall: mutations are Dagster's to refuse; containers that come later show all the same."""
    with shop(postgres, spark_home, tmp_path, "reading") as project, serving(project, tmp_path, "--read-only") as ui:
        answer: Any = ui.ask("{ permissions { permission value } }")
        ui.until(lambda: "shop/a" in ui.assets())
        refused = post(ui, RESUME)
        assert paused(ui), refused  # as a new instance is
        project.execute("create table later (id int primary key)")
        project.cli("catalog", spark=False)
        ui.until(lambda: "shop/later" in ui.assets())
    assert not any(one["value"] for one in answer if one["permission"] in ("launch_pipeline_execution", "wipe_assets"))
