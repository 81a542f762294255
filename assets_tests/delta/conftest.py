"""Fixtures of tests with an object store: a real server of S3 or of Azure on loopback, and a bucket or a container of each test."""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from assets_tests.delta import azure_server
from assets_tests.delta.s3_server import PORTS
from incremental_assets.delta import seen, store, table
from incremental_assets.spark.embedded.launch import STORES


@pytest.fixture(scope="module")
def s3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder by which a test talks to the server (``s3_server``)."""
    return tmp_path_factory.mktemp("s3")


@pytest.fixture(scope="module")
def s3(s3_folder: Path) -> Iterator[Any]:
    """A client of the server, which the environment names as a user's would. ``S3_…`` are the addresses of its ports."""
    command = [sys.executable, "-m", "assets_tests.delta.s3_server", str(s3_folder)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server,
        pytest.MonkeyPatch.context() as environment,
    ):
        try:
            assert server.stdout is not None
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                environment.delenv(name)
            for name, port in zip(PORTS, server.stdout.readline().split(), strict=True):
                environment.setenv(f"S3_{name.upper()}", f"http://127.0.0.1:{port}")
            environment.setenv("AWS_ENDPOINT_URL", os.environ["S3_PLAIN"])
            environment.setenv("AWS_ACCESS_KEY_ID", "somebody")
            environment.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
            environment.setenv("AWS_REGION", "eu-central-1")
            environment.setenv("AWS_DEFAULT_REGION", "eu-central-1")
            environment.setenv("AWS_ALLOW_HTTP", "true")
            environment.setenv(STORES, "s3")
            yield boto3.client("s3")
        finally:
            server.kill()


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    name = f"b-{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    return name


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of Azure's kind, which the environment names as a user's would. Skips the test where npm cannot fetch it."""
    with contextlib.ExitStack() as stack:
        try:
            endpoint = stack.enter_context(azure_server.azurite(tmp_path_factory.mktemp("azure")))
        except azure_server.NotFetched as error:
            pytest.skip(f"Azurite cannot be installed: {error}")
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith("AZURE_")]:
            environment.delenv(name)
        environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", azure_server.ACCOUNT)
        environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure_server.KEY)
        environment.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
        environment.setenv("AZURE_ALLOW_HTTP", "true")
        environment.setenv(STORES, "azure")
        yield endpoint


@pytest.fixture
def container(azure: str, request: pytest.FixtureRequest) -> str:
    name = f"c-{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    azure_server.make_container(azure, name)
    return name


@pytest.fixture
def as_another_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets this process forget what it knows of tables, so that only the DAGSTER_HOME does."""

    def forget() -> None:
        for module, name in ((table, "_SHARED"), (table, "_COPIES"), (seen, "_SEEN"), (store, "_PUT")):
            monkeypatch.setattr(module, name, {})
        store._read_once.cache_clear()

    return forget
