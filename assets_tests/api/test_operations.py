"""Operations from the first request to their end: launched into the queue of a real daemon, followed, listed, repeated, ended, deleted.

Belongs here: what the seeds' clients do. Does not belong: what is refused (``test_attacks``).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assets_tests.api.service import READ, Service, service
from assets_tests.harness import Project, wait_for
from assets_tests.served import serving
from incremental_assets.demo.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def api(postgres: EmbeddedPostgres, spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service beside a daemon. There is no Spark: what needs it fails."""
    path = tmp_path_factory.mktemp("api")
    containers = {"orders": {"tags": {"team": "sales"}, "checks": [{"rule": "positive", "column": "id"}], "audit": {}}}
    project = Project(
        path / "p",
        postgres.create_database("api", drop=True),
        spark_home,
        incremental=["public.orders:at:timestamp"],
        containers=containers,
    )
    project.execute("create table orders (id int primary key, at timestamptz)")
    project.execute("create table region (id int primary key)")
    project.write()
    project.cli("catalog", spark=False)
    with serving(project, path), service(project, path) as found:
        wait_for(lambda: catalog(found)[0] == 202, "the daemon's first sign of life", 120)
        yield found
    project.source.close()


def catalog(api: Service, **more: Any) -> tuple[int, Any]:
    return api.send("POST", "/api/operations/run", {"type": "catalog", "datastore_id": "shop", **more})


@pytest.mark.long
def test_the_payload_of_seed_003_runs_to_its_end(api: Service) -> None:
    """003: the request names the datastore, prune, recreate and include; the answer to its id has items, total, page, size and pages."""
    status, launched = catalog(api, prune=True, recreate=False, include=["table", "view"], triggered_by="anna@example.com")
    assert status == 202 and launched["troubles"] == [], launched
    found = api.ended(launched["id"])
    assert (found["result"], found["total"], found["page"], found["pages"]) == ("success", 1, 1, 1), found
    item = found["items"][0]
    assert (item["type"], item["datastore"]["name"], item["triggered_by"], item["request"]) == (
        "catalog", "shop", "anna@example.com", launched["id"],
    )  # fmt: skip
    assert item["options"] == {"prune": True, "recreate": False, "include": ["table", "view"]}
    assert api.get(f"/api/operations/{item['id']}")["result"] == "success", "the id of a run is an id, too"


def test_the_payload_of_seed_000_is_a_run_for_each_container(api: Service) -> None:
    """000: datastore_ids, container_names and a threshold; one id for all of it, which is polled until its result is there."""
    body = {
        "type": "scan",
        "datastore_ids": ["shop"],
        "container_names": ["orders"],
        "incremental": True,
        "greater_than_time": "2026-05-07T00:00:00",
    }
    status, launched = api.send("POST", "/api/operations/run", body)
    assert status == 202, launched
    found = api.ended(launched["id"])
    assert (found["result"], found["items"][0]["container"]) == ("success", "shop/orders"), found
    assert found["items"][0]["options"]["greater_than"] == "2026-05-07T00:00:00"


@pytest.mark.long
def test_profiles_audits_and_scans_by_tag_are_runs_too(api: Service) -> None:
    """003: what is launched is named by its containers, its tags or its datastore, whatever kind of operation it is."""
    status, launched = api.send("POST", "/api/operations/run", {"type": "profile", "containers": ["orders", "shop/region"]})
    assert [item["container"] for item in launched["items"]] == ["shop/orders", "shop/region"]
    assert api.ended(launched["id"])["result"] == "success"
    status, launched = api.send("POST", "/api/operations/run", {"type": "scan", "tags": {"team": "sales"}})
    assert [item["container"] for item in launched["items"]] == ["shop/orders"]
    status, launched = api.send("POST", "/api/operations/run", {"type": "audit", "datastores": ["shop"]})
    assert status == 202 and [(item["type"], item["of"]) for item in launched["items"]] == [("audit", "shop")]
    api.ended(launched["id"])


@pytest.mark.long
def test_a_failed_sync_is_resumed_and_repeated(api: Service) -> None:
    """003: resume goes on with what has failed, rerun begins again, and each is an operation of its own that can be followed."""
    project = api.project
    project.execute("alter table region rename to away")
    launched = api.send("POST", "/api/operations/run", {"type": "sync", "containers": ["shop/region"]})[1]
    failed = api.ended(launched["id"])
    assert failed["result"] == "failure" and "region" in failed["message"], failed
    project.execute("alter table away rename to region")
    status, resumed = api.send("POST", f"/api/operations/{failed['id']}/resume")
    assert status == 202 and resumed["id"] != failed["id"], resumed
    assert resumed["items"][0]["parent"] == failed["items"][0]["id"]
    assert api.ended(resumed["id"])["items"][0]["container"] == "shop/region"
    status, again = api.send("POST", f"/api/operations/{failed['items'][0]['id']}/rerun")
    assert status == 202 and api.ended(again["id"])["total"] == 1
    assert api.get(f"/api/operations/{failed['id']}")["total"] == 1, "the repeated runs are not those of the first request"


@pytest.mark.long
def test_lists_are_filtered_sorted_and_paged(api: Service) -> None:
    """003: by type, result and container, by date or duration; a page says how many there are in all."""
    for _ in range(2):
        api.ended(catalog(api)[1]["id"])
    every = api.get("/api/operations?size=200")
    assert every["total"] == len(every["items"]) >= 3 and every["pages"] == 1 and every["complete"]
    assert [item["created"] for item in every["items"]] == sorted((item["created"] for item in every["items"]), reverse=True)
    of_type = api.get("/api/operations?type=catalog&size=2&page=1")
    assert {item["type"] for item in of_type["items"]} == {"catalog"} and len(of_type["items"]) == 2 < of_type["total"]
    second = api.get("/api/operations?kind=catalog&size=2&page=2")
    assert second["items"] and not {item["id"] for item in second["items"]} & {item["id"] for item in of_type["items"]}
    paged = [item["id"] for page in (1, 2, 3) for item in api.get(f"/api/operations?size=2&page={page}&sort=created")["items"]]
    assert paged == [item["id"] for item in reversed(every["items"])][: len(paged)]
    seconds = [item["duration"] for item in api.get("/api/operations?sort=-duration&size=200")["items"]]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > 0
    assert api.get("/api/operations?container=shop/nowhere")["total"] == 0
    assert api.get("/api/operations?datastore=shop&size=1")["total"] == every["total"]
    assert api.get("/api/operations?status=aborted")["total"] == 0
    newest = every["items"][0]
    assert [item["id"] for item in api.get(f"/api/operations?id={newest['id'][:8]}")["items"]] == [newest["id"]]
    assert api.get("/api/operations?from=2000-01-01&to=2001-01-01")["total"] == 0
    assert api.get("/api/operations?from=2000-01-01T00:00:00%2B02:00")["total"] == every["total"]
    assert api.get("/api/operations?page=10000") ["items"] == []  # fmt: skip


@pytest.mark.long
def test_what_goes_on_is_aborted_and_what_has_ended_is_deleted(api: Service) -> None:
    """003: an aborted operation can be resumed, rerun or deleted; one that goes on can only be aborted."""
    api.project.execute("begin; lock table orders in access exclusive mode")
    try:
        launched = api.send("POST", "/api/operations/run", {"type": "sync", "containers": ["orders"]})[1]
        path = f"/api/operations/{launched['id']}"
        assert api.send("DELETE", path)[0] == api.send("POST", f"{path}/rerun")[0] == api.send("POST", f"{path}/resume")[0] == 409
        wait_for(lambda: api.get(path)["result"] == "running", "the daemon takes the run from its queue", 120)
        assert api.send("POST", f"{path}/abort", token=READ)[0] == 403
        status, answer = api.send("POST", f"{path}/abort")
        assert status == 202, answer
    finally:
        api.project.execute("rollback")
    found = api.ended(launched["id"])
    assert found["result"] == "aborted", found
    assert api.send("POST", f"{path}/abort")[0] == 409
    assert api.send("DELETE", path) == (204, "")
    assert api.send("GET", path)[0] == 404


@pytest.mark.long
def test_a_run_with_the_newest_events_is_not_deleted(api: Service) -> None:
    """Dagster deletes the events of a run with it. Without them the UI shows a catalog that was taken as never taken."""
    launched = catalog(api)[1]
    found = api.ended(launched["id"])
    status, answer = api.send("DELETE", f"/api/operations/{found['items'][0]['id']}")
    assert status == 409 and "newest" in answer["detail"]
    assert api.get(f"/api/operations/{launched['id']}")["result"] == "success"


@pytest.mark.long
def test_the_document_describes_every_address_and_the_page_loads_nothing(api: Service) -> None:
    """Programs are generated from the document; the page is read on machines without the internet."""
    status, found = api.send("GET", "/openapi.json", token=None)
    assert status == 200 and found["openapi"].startswith("3.1")
    assert {(path, method) for path, methods in found["paths"].items() for method in methods} >= {
        ("/api/operations/run", "post"), ("/api/operations/{id}", "delete"), ("/api/containers/{id}", "patch"),
    }  # fmt: skip
    references = {text.split('"')[0] for text in str(found).replace("'", '"').split("#/components/schemas/")[1:]}
    assert references <= set(found["components"]["schemas"])
    status, page = api.send("GET", "/docs", token=None)
    assert status == 200 and "/api/operations/run" in page and "greater_than_time" in page
    assert "<script" not in page and "http://" not in page and "https://" not in page and "src=" not in page
