"""A project over a new, empty database for each test and each server."""

from collections.abc import Iterator

import pytest

from assets_tests.databases.servers.parameters import MARIADB, SQLSERVER, WITHOUT_SNAPSHOTS, Shop, projects


@pytest.fixture(params=[MARIADB, SQLSERVER, WITHOUT_SNAPSHOTS])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with projects(request.param, request) as make:
        yield make
