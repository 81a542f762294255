"""A project over a new, empty database of MariaDB for each test."""

from collections.abc import Iterator

import pytest

from assets_tests.databases.servers.parameters import MARIADB, Shop, projects


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with projects(MARIADB, request) as make:
        yield make
