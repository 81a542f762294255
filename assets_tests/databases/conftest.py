"""One MariaDB for each process of tests, which the first test that needs it starts."""

from collections.abc import Iterator

import pytest

from assets_tests.databases.mariadb_server import EmbeddedMariaDB, MariaDBUnavailable


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDB]:
    server = EmbeddedMariaDB(tmp_path_factory.mktemp("mariadb"))
    try:
        server.start()
    except MariaDBUnavailable as error:
        server.stop()
        pytest.skip(f"{error} This fetches it: python -m assets_tests.databases.mariadb_server")
    yield server
    server.stop(immediate=True)
