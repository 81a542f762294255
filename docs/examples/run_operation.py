"""Starts an operation of a datastore, or a scan of a container, through the UI's API and follows it to its end; prints its result as JSON.

    python run_operation.py catalog shop --url http://127.0.0.1:3000 --option prune=true
    python run_operation.py sync shop
    python run_operation.py scan shop/orders --option looks='"incremental"'
    python run_operation.py scan shop/orders --partition 2026-01-01

Needs nothing but Python. Exit code 0: success or warning; 1: failure or aborted.
"""

import argparse
import json
import re
import sys
import time
import urllib.request
from datetime import datetime, timezone

LOCATION = "{ repositoriesOrError { ... on RepositoryConnection { nodes { location { name } pipelines { name } } } } }"
LAUNCH = """mutation Launch($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } ... on PipelineNotFoundError { message } } }"""
STATUS = """query Status($id: ID!) { runOrError(runId: $id) { __typename ... on Run {
  runId status creationTime startTime endTime tags { key value } } } }"""
ENDED = {"SUCCESS": "success", "FAILURE": "failure", "CANCELED": "aborted"}


def ask(url, query, **variables):
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(url.rstrip("/") + "/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    if answer.get("errors"):
        raise SystemExit(f"refused: {answer['errors'][0]['message']}")
    return next(iter(answer["data"].values()))


def encoded(name):
    """A datastore or container as part of a job's name: `order items` is `order_U20_items`."""
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"_U{ord(found[0]):X}_", name)


def names_of(operation, what):
    """The job, the op in it that takes the options, and those that say what it is of."""
    datastore, _, container = what.partition("/")
    if operation == "scan" and not container:
        raise SystemExit(f"a scan is of one container: {datastore}/<container>")
    if operation != "scan" and container:
        raise SystemExit(f"{operation} is of a whole datastore: {datastore}")
    op = "containers" if operation == "sync" else operation
    return f"{operation}_{encoded(datastore)}", f"{encoded(datastore)}_{op}", {"container": container} if container else {}


def start(url, operation, what, options, triggered_by, partition):
    job, op, of = names_of(operation, what)
    options = {**of, **options, **({} if partition is None else {"partitions": [partition]})}
    found = [node["location"]["name"] for node in ask(url, LOCATION)["nodes"] if job in [p["name"] for p in node["pipelines"]]]
    if not found:
        raise SystemExit(f"there is no job {job}")
    config = {"ops": {op: {"config": options}}} if options else {}
    tags = [{"key": "dagster/incremental_assets.started_by", "value": triggered_by}]
    if of:
        tags += [{"key": "dagster/incremental_assets.container", "value": what}]
    selector = {"repositoryLocationName": found[0], "repositoryName": "__repository__", "jobName": job}
    answer = ask(url, LAUNCH, params={"selector": selector, "runConfigData": json.dumps(config), "executionMetadata": {"tags": tags}})
    if answer["__typename"] != "LaunchRunSuccess":
        raise SystemExit(answer.get("message") or "; ".join(e["message"] for e in answer.get("errors", [])) or answer["__typename"])
    return answer["run"]["runId"]


def operation_of(run):
    """The run as the seed's API shows an operation."""
    tags = {tag["key"].removeprefix("dagster/incremental_assets."): tag["value"] for tag in run["tags"]}
    result = ENDED.get(run["status"], "running")
    return {
        "id": run["runId"],
        "type": tags.get("operation", "sync"),
        "created": moment(run["creationTime"]),
        "start_time": moment(run["startTime"]),
        "end_time": moment(run["endTime"]),
        "result": tags.get("result", result) if result == "success" else result,
        "triggered_by": tags.get("started_by"),
        "schedule": tags.get("schedule") or tags.get("dagster/schedule_name"),
        "datastore": tags.get("datastore"),
        "include": tags["include"].split(",") if "include" in tags else None,
        "prune": tags.get("prune") == "true",
        "recreate": tags.get("recreate") == "true",
    }


def moment(seconds):
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", choices=["catalog", "sync", "scan"])
    parser.add_argument("what", help="a datastore; for a scan a container of it: shop/orders")
    parser.add_argument("--url", default="http://127.0.0.1:3000")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="value in JSON, such as prune=true")
    parser.add_argument("--partition", metavar="KEY", help="of a scan: only this one")
    parser.add_argument("--triggered-by", default="run_operation.py")
    parser.add_argument("--poll", type=float, default=2.0, help="seconds")
    given = parser.parse_args()
    if given.partition is not None and given.operation != "scan":
        parser.error("--partition goes with scan")
    options = {name: json.loads(value) for name, _, value in (option.partition("=") for option in given.option)}
    run_id = start(given.url, given.operation, given.what, options, given.triggered_by, given.partition)
    while True:
        run = ask(given.url, STATUS, id=run_id)
        print(f"{run_id}: {run['status']}", file=sys.stderr)
        if run["status"] in ENDED:
            break
        time.sleep(given.poll)
    print(json.dumps(operation_of(run), indent=1))
    sys.exit(run["status"] != "SUCCESS")


if __name__ == "__main__":
    main()
