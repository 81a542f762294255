"""Audits and sweeps of a server's tables, and the hashes of their rows, which both rest on.

Belongs here: what is the same for each server. Does not belong: the search for the keys that differ (``core/test_comparison``), and which
values arrive as what (``test_mysql_types``, ``test_sqlserver_sync``).
"""

import pytest

from assets_tests.databases.servers.parameters import Shop
from assets_tests.databases.servers.project import ServerProject
from assets_tests.databases.servers.sql import By, followed


def things(project: ServerProject) -> str:
    """The statement that makes a table with a column of each type."""
    return f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(project.sql.values))})"


@pytest.mark.long
def test_values_of_every_type_are_hashed_equally(shop: Shop) -> None:
    """A difference would be reported where there is none."""
    project = shop(incremental=["things:id:integer"])
    listed = list(project.sql.values.values())
    most = max(map(len, listed))
    rows = [[one[n] if n < len(one) else "null" for one in listed] for n in range(most + 1)]
    names = ", ".join(f"c{i}" for i in range(len(listed)))
    project.execute(things(project), *(f"insert into things (id, {names}) values ({n}, {', '.join(row)})" for n, row in enumerate(rows)))
    project.one("things")
    found = project.differing_rows("things")
    assert found == (True, most + 1)


def test_each_other_value_of_every_type_has_another_hash(shop: Shop) -> None:
    """A stale row would be taken for an equal one."""
    project = shop()
    project.execute(things(project), "insert into things (id) values (0)")
    seen: set[int] = set()
    for i, listed in enumerate(project.sql.values.values()):
        for value in listed:
            project.execute(f"update things set c{i} = {value} where id = 0")
            total = project.hash_of_rows("things")
            assert total not in seen, value
            seen.add(total)


@pytest.mark.long
def test_an_audit_finds_what_is_wrong_in_the_lake_and_repairs_it(shop: Shop) -> None:
    """A row that no sync reads again stays wrong for ever, unless an audit finds it."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)", *(f"insert into orders values ({n}, {n})" for n in range(30)))
    project.one("orders")
    line = project.audit("orders")["orders"]
    assert line["status"] == "equal"
    project.execute("update orders set value = -1 where id = 15", "delete from orders where id = 3")
    line = project.audit("orders")["orders"]
    assert line["status"] == "different" and set(line["partitions_different"]) == {"0", "10"}, line
    project.audit("orders", repair=True)
    project.assert_equal("orders")


def ordered(shop: Shop, deletes: str, by: By) -> ServerProject:
    """A project whose lake has 30 rows, of which the source has two no longer."""
    project = shop(containers={"orders": {"deletes": deletes, "max_deleted_share": 1.0}})
    entry = project.entry("orders", by)
    project.configure(incremental=[entry if entry.endswith("!upsert") else f"{entry}!upsert"])
    project.execute(followed(project.sql, "orders", "int"), *(f"insert into orders (value) values ({n})" for n in range(30)))
    project.one("orders")
    project.execute("delete from orders where id in (3, 17)")
    return project


SWEPT_BY = pytest.mark.parametrize("by", [By.NUMBER, By.CHANGED], ids=lambda by: by.value)


@pytest.mark.long
@SWEPT_BY
def test_a_sweep_removes_deleted_rows(by: By, shop: Shop) -> None:
    """Rows that the source has deleted stay in the lake otherwise, as no sync reads them again."""
    project = ordered(shop, "sweep", by)
    project.one("orders", sweep=True)
    project.assert_equal("orders")


@pytest.mark.long
@SWEPT_BY
def test_a_soft_sweep_marks_deleted_rows(by: By, shop: Shop) -> None:
    """The mark is a column that the source does not have."""
    project = ordered(shop, "soft", by)
    project.one("orders", sweep=True)
    marks = dict(project.rows("orders", "id, _deleted_at"))
    assert len(marks) == 30 and {key for key, mark in marks.items() if mark is not None} == {3, 17}
