"""The Dockerfile and the compose file, which no container engine of this project runs, against the topology that is run as processes.

Belongs here: their schemas, and what they have in common with ``deploy.cluster.topology``. Does not belong: the processes
(``test_cluster_faults``).
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from dockerfile_parse import DockerfileParser

from deploy.cluster.local import SOURCE_URL
from deploy.cluster.topology import (
    CODE_COMMAND,
    DAEMON_COMMAND,
    DRIVER_MEMORY,
    LAKE,
    REGION,
    SERVICES,
    STORAGE_DRIVER,
    WEBSERVER_COMMAND,
    WORKER_CORES,
    WORKER_MEMORY,
    WORKERS,
    Service,
    spark_conf,
)
from incremental_assets.spark.embedded import launch

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NOT_RUN = "# Not run here: this project's machines have no container engine."


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def dockerfile(tmp_path_factory: pytest.TempPathFactory) -> DockerfileParser:
    copy = tmp_path_factory.mktemp("image") / "Dockerfile"  # the parser may write
    copy.write_text((DEPLOY / "Dockerfile").read_text(encoding="utf-8"), encoding="utf-8")
    return DockerfileParser(str(copy))


def words(compose: dict[str, Any], service: Service) -> str:
    return str(compose["services"][service.value]["command"])


@pytest.mark.parametrize("name", ["compose.yaml", "Dockerfile"])
def test_the_files_say_first_that_they_were_not_run(name: str) -> None:
    """Otherwise somebody takes them for tried ones."""
    assert (DEPLOY / name).read_text(encoding="utf-8").startswith(NOT_RUN)


def test_the_compose_file_fits_its_schema(compose: dict[str, Any]) -> None:
    """Otherwise `docker compose` refuses it at the first line."""
    parsed = PyCompose.from_yaml(yaml.safe_dump(compose))  # its parser knows no merge keys, which Compose does
    parsed.validate()
    assert set(parsed.service_names()) == {service.value for service in SERVICES}


def test_the_schema_refuses_a_misspelled_key(compose: dict[str, Any]) -> None:
    """Otherwise the test before would accept anything."""
    wrong = {**compose, "services": {**compose["services"], "store": {**compose["services"]["store"], "volumse": []}}}
    with pytest.raises(ValueError, match="volumse"):
        PyCompose.from_yaml(yaml.safe_dump(wrong))


def test_the_services_are_those_of_the_topology(compose: dict[str, Any]) -> None:
    """Otherwise what is run as processes says nothing about the compose file."""
    services = compose["services"]
    assert set(services) == {service.value for service in Service}
    for service, needs in SERVICES.items():
        found = services[service.value]
        waits = {name: each["condition"] for name, each in found.get("depends_on", {}).items()}
        assert waits == {other.value: "service_healthy" for other in needs.after}, service
        assert found["healthcheck"]["test"], service
        assert found["restart"] == "unless-stopped", service
    keeps = {service for service, needs in SERVICES.items() if needs.keeps}
    assert keeps <= {service for service in Service if services[service.value].get("volumes")}
    mounted = {volume.partition(":")[0] for found in services.values() for volume in found.get("volumes", ())}
    assert mounted == set(compose["volumes"])


def test_the_settings_are_those_of_the_topology(compose: dict[str, Any]) -> None:
    """Otherwise the executors do not find the store, the events are not stored, or Dagster looks for the lake elsewhere."""
    services = compose["services"]
    connect, code = (services[service.value]["environment"] for service in (Service.SPARK_CONNECT, Service.CODE))
    assert connect[launch.CONF] == spark_conf("spark://spark-master:7077", spark_driver_host="spark-connect")
    assert connect[launch.MEMORY] == DRIVER_MEMORY
    assert code["INCREMENTAL_ASSETS_LAKE"] == LAKE
    assert SOURCE_URL in code
    for service in (Service.CODE, Service.SPARK_CONNECT, *WORKERS):
        environment = services[service.value]["environment"]
        assert environment["AWS_REGION"] == REGION and environment["AWS_ENDPOINT_URL"] == "http://store:8333", service
    for service in (Service.CODE, Service.WEBSERVER, Service.DAEMON):
        assert services[service.value]["environment"]["DAGSTER_PG_URL"].startswith(f"{STORAGE_DRIVER}://"), service
    for service in WORKERS:
        assert f"--cores {WORKER_CORES} --memory {WORKER_MEMORY} " in words(compose, service)
    assert words(compose, Service.WEBSERVER).startswith(" ".join(WEBSERVER_COMMAND))
    assert words(compose, Service.DAEMON).startswith(" ".join(DAEMON_COMMAND))


def test_no_secret_is_in_the_compose_file() -> None:
    """Otherwise a password is in the history of the repository for ever."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    for name in ("POSTGRES_PASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "SOURCE_URL"):
        assert f"${{{name}:?}}" in text, name
    for line in text.splitlines():
        found = re.search(r"(PASSWORD|SECRET\w*|ACCESS_KEY\w*): (\S+)", line)
        assert found is None or found[2].startswith("${"), line


def test_the_image_has_what_the_services_start(dockerfile: DockerfileParser, compose: dict[str, Any]) -> None:
    """Otherwise a service ends at once, as a module, a program or a file is missing in the image."""
    instructions = [(each["instruction"], each["value"]) for each in dockerfile.structure if each["instruction"] != "COMMENT"]
    assert instructions[0][0] == "FROM" and dockerfile.baseimage.startswith("python:3.")
    copied = [part for name, value in instructions if name == "COPY" for part in value.split()[:-1]]
    for part in copied:
        assert (DEPLOY.parent / part).exists(), part
    assert {"deploy", "incremental_assets", "deploy/workspace.yaml", "constraints.txt"} <= set(copied)
    runs = " ".join(value for name, value in instructions if name == "RUN")
    assert "cluster" in runs and "openjdk-17-jre-headless" in runs and "server fetch" in runs
    assert "incremental-assets init /srv/project --deploy" in runs, "it writes Dagster's instance, which has its storage in PostgreSQL"
    command = next(value for name, value in instructions if name == "CMD")
    assert " ".join(CODE_COMMAND) in command.replace('", "', " ")
    users = [value for name, value in instructions if name == "USER"]
    assert users == ["sync"], "services do not run as root"
    for service in Service:
        for module in re.findall(r"-m (deploy\.\S+)", str(compose["services"][service.value].get("command", ""))):
            assert (DEPLOY.parent / f"{module.replace('.', '/')}.py").exists(), module


def test_the_workspace_names_the_code_server() -> None:
    """Otherwise webserver and daemon find no code location."""
    workspace = yaml.safe_load((DEPLOY / "workspace.yaml").read_text(encoding="utf-8"))
    assert workspace["load_from"][0]["grpc_server"]["host"] == Service.CODE.value
