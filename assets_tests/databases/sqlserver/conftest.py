"""A project over a new, empty database for each test. The tests that need a server are skipped where ``SQLSERVER_URL`` is not set."""

from collections.abc import Iterator

import pytest

from assets_tests.databases.servers.parameters import SQLSERVER, WITHOUT_SNAPSHOTS, Shop, projects


@pytest.fixture(params=[SQLSERVER, WITHOUT_SNAPSHOTS])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with projects(request.param, request) as make:
        yield make
