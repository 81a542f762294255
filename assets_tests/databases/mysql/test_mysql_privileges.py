"""The statements that give a user of MariaDB what it lacks: executed, they are enough.

Belongs here: the block that ``add`` and ``catalog`` print. Does not belong: what a sync does without a privilege
(``test_server_late_commits``, ``test_mysql_watched_appends``).
"""

from collections.abc import Callable

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from assets_tests.databases.servers.sql import PLAIN_USER

Shop = Callable[..., MySQLProject]
WITHOUT_COUNTERS = [f"GRANT SHOW VIEW ON `{{}}`.* TO `{PLAIN_USER}`@`%`", f"GRANT PROCESS ON *.* TO `{PLAIN_USER}`@`%`"]
COUNTERS = f"GRANT SELECT ON performance_schema.table_io_waits_summary_by_table TO `{PLAIN_USER}`@`%`"


@pytest.mark.parametrize(("server", "wanted"), [("counting", [*WITHOUT_COUNTERS, COUNTERS]), ("shop", WITHOUT_COUNTERS)])
def test_the_catalog_prints_statements_that_give_the_user_what_it_lacks(
    server: str, wanted: list[str], request: pytest.FixtureRequest
) -> None:
    """Each sync would warn for ever, or nobody would know what to ask the administrator for. Counters that are off need no privilege."""
    make: Shop = request.getfixturevalue(server)
    project = make()
    project.execute("create table t (id int primary key)", "create view v as select id from t")
    project.execute(*project.sql.plain_user(project.database, "secret"))
    project.url = project.url_of(PLAIN_USER, "secret")
    project.write()
    said = project.cli("catalog", "shop", spark=False)[2]
    statements = [line.strip().partition(";  -- without it, ")[0] for line in said.splitlines() if line.strip().startswith("GRANT ")]
    assert statements == [one.format(project.database) for one in wanted], said
    project.execute(*statements)
    assert "GRANT " not in project.cli("catalog", "shop", spark=False)[2]
