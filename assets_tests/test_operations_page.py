"""The page that says where each thing of an operation is: every call on it, and its example, against a served project.

Belongs here: `docs/catalog.md` and `docs/examples`. Without these tests the page rots: people copy calls that Dagster has renamed.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assets_tests.harness import Project
from incremental_assets.demo.postgres import EmbeddedPostgres

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "catalog.md").read_text(encoding="utf-8")
CALLS = dict(re.findall(r"^### ([^\n]+)\n+```graphql\n(.*?)^```", PAGE, re.S | re.M))
EXAMPLE = ROOT / "docs" / "examples" / "run_operation.py"
Ask = Callable[[str], dict[str, Any]]


class Served:
    """A project behind its UI."""

    def __init__(self, project: Project, port: int) -> None:
        self.project, self.url = project, f"http://127.0.0.1:{port}"
        self.location = project.path.name

    def ask(self, query: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        return next(iter(answer["data"].values()))

    def call(self, name: str, **words: str) -> dict[str, Any]:
        """One of the page's calls, its placeholders filled in."""
        query = CALLS[name].replace("LOCATION", self.location)
        for placeholder, value in words.items():
            query = query.replace(placeholder, value)
        return self.ask(query)

    def until(self, what: Callable[[], Any], seconds: float = 90) -> Any:
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, "it never came"
            time.sleep(0.5)
        return found

    def assets(self) -> set[str]:
        found = self.ask("{ assetsOrError { ... on AssetConnection { nodes { key { path } } } } }")
        return {"/".join(node["key"]["path"]) for node in found["nodes"]}


@pytest.fixture(scope="module")
def served(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A project that was just added: nothing has been catalogued."""
    path = tmp_path_factory.mktemp("served")
    project = Project(
        path / "p", postgres.create_database("served", drop=True), path / "spark", catalog={"schedule": "0 0 1 1 *", "name": "yearly"}
    )
    project.execute("create table a (id int primary key, note text); create table b (id int); create view v as select 1 as x")
    project.write()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = path / "dev.log"
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(project.path), "dev", "--port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=project.environment(spark=False), stdout=output, stderr=output, start_new_session=True)
    found = Served(project, port)

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return bool(found.ask("{ version }"))
        except OSError:
            return False

    try:
        found.until(answers)
        yield found
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)
        project.source.close()


def test_a_new_datastore_is_catalogued_by_itself_and_shows_in_the_ui(served: Served) -> None:
    """Somebody adds a datastore and opens the UI: an empty page would look like a failure."""
    served.until(lambda: {"shop/a", "shop/b", "shop/v", "shop/catalog"} <= served.assets())
    found = served.ask("{ runsOrError { ... on Runs { results { jobName tags { key value } } } } }")["results"]
    assert [run["jobName"] for run in found] == ["catalog_shop"]
    assert {"key": "incremental_assets/started_by", "value": "first catalog"} in found[0]["tags"]
    served.project.execute("create table c (x int)")
    served.project.cli("catalog", spark=False)
    served.until(lambda: "shop/c" in served.assets())


def test_the_calls_of_the_page(served: Served) -> None:
    """Start, look, list, run again, schedule, delete; and what the example script prints for a run that pruned."""
    served.until(lambda: "shop/catalog" in served.assets())
    started = served.call("start")
    assert started["__typename"] == "LaunchRunSuccess", started
    run_id = started["run"]["runId"]

    def ended(run: str) -> dict[str, Any] | None:
        found = served.call("status", RUN_ID=run)
        return found if found["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

    run = served.until(lambda: ended(run_id))
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    assert run["status"] == "SUCCESS" and tags["incremental_assets/started_by"] == "user@example.com"
    assert tags["incremental_assets/include"] == "table,view" and tags["incremental_assets/result"] == "success"
    again = served.call("rerun", RUN_ID=run_id)
    assert again["__typename"] == "LaunchRunSuccess", again
    served.until(lambda: ended(again["run"]["runId"]))
    assert {run_id, again["run"]["runId"]} <= {found["runId"] for found in served.call("list")["results"]}
    assert served.call("abort", RUN_ID=run_id)["__typename"] == "TerminateRunFailure"  # it has ended
    assert served.call("schedules")["scheduleState"]["status"] == "RUNNING"
    changes = served.call("differences of the last runs")["assetMaterializations"]
    assert {entry["label"] for entry in changes[0]["metadataEntries"]} >= {"catalog/new", "catalog/containers", "catalog/details"}
    assert served.call("delete", RUN_ID=run_id)["__typename"] == "DeletePipelineRunSuccess"
    assert served.call("status", RUN_ID=run_id)["__typename"] == "RunNotFoundError"
    assert set(CALLS) == {"start", "status", "list", "abort", "rerun", "delete", "schedules", "differences of the last runs"}

    served.project.execute("drop table b")
    command = [sys.executable, str(EXAMPLE), "catalog", "shop", "--url", served.url, "--option", "prune=true", "--poll", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    answer = json.loads(done.stdout)
    assert {k: answer[k] for k in ("type", "result", "triggered_by", "prune", "recreate", "include", "datastore")} == {
        "type": "catalog",
        "result": "success",
        "triggered_by": "run_operation.py",
        "prune": True,
        "recreate": False,
        "include": ["table", "view"],
        "datastore": "shop",
    }
    refused = subprocess.run([*command, "--option", "prun=true"], capture_output=True, text=True, timeout=90, check=False)
    assert refused.returncode == 1 and "prun" in refused.stderr


def test_an_aborted_catalog_leaves_the_old_state_whole(served: Served) -> None:
    """*Terminate* in the middle must not leave half a project."""
    served.until(lambda: "shop/a" in served.assets())
    project = served.project
    project.configure(incremental=["public.a:id:integer"])
    project.write()
    (state,) = project.path.glob("defs/.local_defs_state/*/state")
    before = state.read_bytes()
    with project.source.transaction():
        project.execute("alter table a add y int; lock table a in access exclusive mode")
        run_id = served.call("start")["run"]["runId"]
        served.until(lambda: served.call("status", RUN_ID=run_id)["status"] == "STARTED")
        served.call("abort", RUN_ID=run_id)
        status = served.until(lambda: (s := served.call("status", RUN_ID=run_id)["status"]) in ("CANCELED", "FAILURE", "SUCCESS") and s)
    assert status == "CANCELED"
    assert state.read_bytes() == before
