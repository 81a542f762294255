"""A user of MariaDB who may read some columns of a table and not the table.

Belongs here: what such a user gets, and which message. Does not belong: the same on PostgreSQL (``test_column_grants``).
"""

from typing import Any

import pytest

from assets_tests.databases.mysql.project import MySQLProject
from assets_tests.databases.servers.parameters import Shop
from assets_tests.harness import long

TABLE = "create table c (id int primary key, at datetime(6) not null, v varchar(9), ssn varchar(9), key (at))"
ROWS = "insert into c select seq, timestamp'2026-01-01 00:00:00' + interval seq day, 'v', 'secret' from seq_1_to_40"


def granted(shop: Shop, **container: Any) -> MySQLProject:
    project = shop(incremental=["c:at:datetime!upsert"], containers={"c": {"partition_by": "month", **container}})
    assert isinstance(project, MySQLProject)
    project.execute(TABLE, ROWS, "create or replace user narrow@'%' identified by 'x'")
    project.execute(f"grant select (id, at, v) on {project.database}.c to narrow@'%'")
    project.url = project.url_of("narrow", "x")
    return project


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, *long({"deletes": "sweep", "max_deleted_share": 1})])
def test_the_granted_columns_are_synced(shop: Shop, more: dict[str, Any]) -> None:
    """Administrators grant columns where others must not be copied."""
    project = granted(shop, **more)
    assert project.one("c")["status"] in ("synced", "warning")
    head = project.table("c").head()
    assert head is not None and [column.name for column in head.columns] == ["id", "at", "v"]
    assert len(project.rows("c")) == 40
    project.execute("update c set v = 'w', at = '2026-04-01' where id = 3", "insert into c values (100, '2026-04-02', 'n', 'secret')")
    if more:
        project.execute("delete from c where id = 7")
    line = project.one("c", sweep=bool(more))
    assert line["status"] in ("synced", "warning"), line
    rows = project.rows("c", "id, v")
    assert dict(rows)[3] == "w" and len(rows) == len(dict(rows)) == 41 - bool(more)
    assert project.one("c")["status"] == "skipped"
    audited = project.audit("c")["c"]
    assert audited["status"] == "equal", audited


@pytest.mark.long
def test_a_column_that_is_not_granted_any_more_is_said_to_be_gone(shop: Shop) -> None:
    """MariaDB hides it, so that it looks like one that was dropped. Its older values must stay, and nobody may miss that it is gone."""
    project = granted(shop)
    project.one("c")
    project.execute(f"revoke select (v) on {project.database}.c from narrow@'%'", "insert into c values (100, '2026-04-02', 'n', 's')")
    assert "no longer in the source, NULL from now on: v" in project.one("c")["message"]
    assert dict(project.rows("c", "id, v")) == {**{number: "v" for number in range(1, 40)}, 40: None, 100: None}
