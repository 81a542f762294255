"""The pages that say where each thing of an operation is: every call on them, and their example, against a served project.

Belongs here: `docs/catalog.md`, the calls of `docs/quality.md`, the SQL of `docs/anomalies.md`, and `docs/examples`. Without these tests
the pages rot: people copy calls that Dagster has renamed. The served project has no Spark; what needs some goes through the command line.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assets_tests.harness import Project
from assets_tests.served import Served, serving
from incremental_assets.demo.postgres import EmbeddedPostgres

ROOT = Path(__file__).resolve().parent.parent.parent
CALLS, SCAN_CALLS = (
    dict(re.findall(r"^### ([^\n]+)\n+```graphql\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S | re.M))
    for page in ("catalog.md", "quality.md")
)
QUERIES = re.findall(r"^```sql\n(.*?);\n```", (ROOT / "docs" / "anomalies.md").read_text(encoding="utf-8"), re.S | re.M)
EXAMPLE = ROOT / "docs" / "examples" / "run_operation.py"
Ask = Callable[[str], dict[str, Any]]
ORDERS = "public.orders:o_orderdate:date"
CHECKS = [{"rule": "between", "column": "o_totalprice", "min": 0, "max": 600000}]


class Pages(Served):
    """A project behind its UI, and the calls of the pages."""

    def call(self, name: str, **words: str) -> dict[str, Any]:
        """One of the pages' calls, its placeholders filled in."""
        query = (CALLS | SCAN_CALLS)[name].replace("LOCATION", self.location)
        for placeholder, value in words.items():
            query = query.replace(placeholder, value)
        return self.ask(query)

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""

        def found() -> dict[str, Any] | None:
            run = self.call("status", RUN_ID=run_id)
            return run if run["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

        return self.until(found)


@pytest.fixture(scope="module")
def served(postgres: EmbeddedPostgres, spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """A project that was just added: nothing has been catalogued."""
    path = tmp_path_factory.mktemp("served")
    project = Project(
        path / "p",
        postgres.create_database("served", drop=True),
        spark_home,
        catalog={"schedule": "0 0 1 1 *", "name": "yearly"},
        incremental=[ORDERS],
        containers={"orders": {"partition_by": "month", "checks": CHECKS}},
    )
    project.execute(
        """create table a (id int primary key, note text); create table b (id int); create view v as select 1 as x;
        create table orders (o_orderkey bigint primary key, o_orderdate date not null, o_totalprice numeric(12,2));
        insert into orders values (1, '2026-01-01', 5), (2, '2026-01-02', -5), (3, '2026-02-01', 5);"""
    )
    project.write()
    with serving(project, path) as found:
        yield Pages(project, found.port)
    project.source.close()


@pytest.mark.long
def test_a_new_datastore_is_catalogued_automatically_and_shown_in_the_ui(served: Pages) -> None:
    """Somebody adds a datastore and opens the UI: an empty page would look like a failure."""
    served.until(lambda: {"shop/a", "shop/b", "shop/v", "shop/catalog"} <= served.assets())
    found = served.ask("{ runsOrError { ... on Runs { results { jobName tags { key value } } } } }")["results"]
    assert [run["jobName"] for run in found] == ["catalog_shop"]
    assert {"key": "dagster/incremental_assets.started_by", "value": "first catalog"} in found[0]["tags"]
    served.project.execute("create table c (x int)")
    served.project.cli("catalog", spark=False)
    served.until(lambda: "shop/c" in served.assets())


@pytest.mark.long
def test_the_calls_that_the_page_documents_work(served: Pages) -> None:
    """Start, look, list, run again, schedule, delete; and what the example script prints for a run that pruned."""
    served.until(lambda: "shop/catalog" in served.assets())
    started = served.call("start")
    assert started["__typename"] == "LaunchRunSuccess", started
    run_id = started["run"]["runId"]
    run = served.ended(run_id)
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    assert run["status"] == "SUCCESS" and tags["dagster/incremental_assets.started_by"] == "user@example.com"
    assert tags["dagster/incremental_assets.include"] == "table,view" and tags["dagster/incremental_assets.result"] == "success"
    again = served.call("rerun", RUN_ID=run_id)
    assert again["__typename"] == "LaunchRunSuccess", again
    served.ended(again["run"]["runId"])
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


@pytest.mark.long
def test_the_documented_calls_start_and_follow_a_scan(served: Pages) -> None:
    """By the call of the page and by the example. There is no table yet, so that it takes no Spark: what a scan finds is told below."""
    served.until(lambda: "shop/orders" in served.assets())
    started = served.call("scan")
    assert started["__typename"] == "LaunchRunSuccess", started
    run = served.ended(started["run"]["runId"])
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    assert (run["jobName"], run["status"]) == ("scan_shop", "SUCCESS"), run
    assert tags["dagster/incremental_assets.started_by"] == "user@example.com"
    assert tags["dagster/incremental_assets.operation"] == "scan" and tags["dagster/incremental_assets.container"] == "shop/orders"
    assert any("there is no table yet" in event.get("message", "") for event in run["eventConnection"]["events"])
    assert set(SCAN_CALLS) == {"scan", "verdicts of a rule", "scans of a container"}
    assert isinstance(served.call("verdicts of a rule"), list) and served.call("scans of a container")["__typename"] == "Asset"

    command = [sys.executable, str(EXAMPLE), "scan", "shop/orders", "--url", served.url, "--poll", "0.5"]
    for options in (["--option", 'looks="incremental"'], ["--partition", "2026-01-01", "--option", "auto_resolve=true"]):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert (answer["type"], answer["result"], answer["datastore"]) == ("scan", "success", "shop"), answer
        assert answer["triggered_by"] == "run_operation.py" and answer["start_time"] <= answer["end_time"]
        _, (operation,), _ = served.project.cli("operations", answer["id"], "--json", spark=False)
        assert [operation[name] for name in ("id", "type", "result", "of")] == [answer["id"], "scan", "success", "shop/orders"]
    assert operation["options"] == {"container": "orders", "auto_resolve": True, "partitions": ["2026-01-01"]}
    for wrong, said in (
        ([*command, "--option", 'looks="sideways"'], "sideways"),
        ([*command[:3], "shop", "--url", served.url], "a scan is of one container"),
        ([*command[:3], "shop/a", "--url", served.url], "FAILURE"),  # it has no rules
    ):
        refused = subprocess.run(wrong, capture_output=True, text=True, timeout=90, check=False)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_documented_calls_and_sql_show_what_a_scan_found(served: Pages, spark_home: Path) -> None:
    """Needs Spark. People join the records to their data by the SQL of the page; it must be right, and count what counts."""
    from incremental_assets.spark.session import open_session

    served.project.cli("sync", "shop/orders", "--json")
    found: Any = served.call("verdicts of a rule")
    assert [(one["status"], one["partition"]) for one in found] == [("FAILED", "2026-01-01")], found
    assert found[0]["evaluation"]["description"] == "failed: 1 of 2 rows breaks it, e.g. o_totalprice = -5.00 (o_orderkey 2)"
    numbers = {entry["label"]: entry.get("intValue", entry.get("floatValue")) for entry in found[0]["evaluation"]["metadataEntries"]}
    assert (numbers["quality/rows_asserted"], numbers["quality/rows_failed"], numbers["quality/value"]) == (2, 1, 0.5)
    (told,) = [one for one in served.call("scans of a container")["assetObservations"] if "rules in" in (one["description"] or "")]
    summary = next(entry["jsonString"] for entry in told["metadataEntries"] if entry["label"] == "quality/summary")
    assert json.loads(summary)["anomalies"] == {"opened": 1, "reopened": 0, "resolved": 0, "open": 1}

    with open_session(spark_home, name="test_operations_page") as spark:
        asked = [spark.sql(query.replace("/srv/lake", served.project.lake)).collect() for query in QUERIES]
    assert len(asked) == 5
    _, bad, good, were, newest = ([row.asDict() for row in rows] for rows in asked)
    assert [(row["rule"], row["o_orderkey"]) for row in bad] == [("between_o_totalprice", 2)]
    assert sorted(row["o_orderkey"] for row in good) == [1, 3]
    assert [json.loads(row["row"])["o_totalprice"] for row in were] == [-5.0] and were[0]["o_orderkey"] == 2
    assert {(row["partition"], row["status"], row["value"]) for row in newest} == {
        ("2026-01-01", "failed", 0.5),
        ("2026-02-01", "passed", 0.0),
    }


@pytest.mark.long
def test_an_aborted_catalog_leaves_the_old_state_whole(served: Pages) -> None:
    """*Terminate* in the middle must not leave half a project."""
    served.until(lambda: "shop/a" in served.assets())
    project = served.project
    project.configure(incremental=[ORDERS, "public.a:id:integer"])
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
