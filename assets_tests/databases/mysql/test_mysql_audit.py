"""MariaDB and Spark hash equal rows equally, and different ones differently; audits and sweeps of MariaDB containers.

Belongs here: what rests on the hashes of the source. Does not belong: the search for the keys that differ (``core/test_comparison``).
"""

import contextlib
from collections.abc import Callable, Iterator

from deltalake import DeltaTable

from assets_tests.databases.mysql.project import MySQLProject
from assets_tests.databases.mysql.test_mysql_types import VALUES
from incremental_assets.core.comparison import HashedRows, RowScope, compare
from incremental_assets.databases.mysql.source import MySQLSource
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.spark.session import open_session

ALL = RowScope()


@contextlib.contextmanager
def both_sides(project: MySQLProject, name: str) -> Iterator[tuple[HashedRows, HashedRows]]:
    """The rows of the source, in a snapshot, and those of the table's newest version."""
    definition, table = project.definition(name), project.table(name)
    head = table.head()
    assert head is not None
    source = MySQLSource(definition.settings.address, definition.container, timezone="UTC")
    with open_session(project.spark_home, name="hashed rows") as spark, source, source.snapshot():
        rows = source.snapshot_rows(definition.container, ()).hashed_rows(head.columns)
        yield rows, LakeHashedRows(lambda: spark, table, head.version, definition.container, head.columns)


def test_values_of_every_type_are_hashed_equally(shop: Callable[..., MySQLProject]) -> None:
    """A difference would be reported where there is none."""
    project = shop(incremental=["things:id:integer"])
    project.execute(f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(VALUES))})")
    most = max(map(len, VALUES.values()))
    for n in range(most + 1):
        values = [listed[n][0] if n < len(listed) else "null" for listed in VALUES.values()]
        project.execute(f"insert into things values ({n}, {', '.join(values)})")
    project.one("things")
    with both_sides(project, "things") as (source, lake):
        found = compare(source, lake, None, ALL)
    assert found.equal and found.rows == most + 1, found


def test_each_other_value_of_every_type_has_another_hash(shop: Callable[..., MySQLProject]) -> None:
    """A stale row would be taken for an equal one."""
    project = shop()
    project.execute(f"create table things (id int primary key, {', '.join(f'c{i} {type_}' for i, type_ in enumerate(VALUES))})")
    seen: set[int] = set()
    definition = project.definition("things")
    project.execute("insert into things (id) values (0)")
    rows = [(i, value) for i, listed in enumerate(VALUES.values()) for value, _ in listed]
    for i, value in rows:
        project.execute(f"insert into things (id, c{i}) values (0, {value}) on duplicate key update c{i} = {value}")
        with MySQLSource(definition.settings.address, definition.container, timezone="UTC") as source:
            columns = definition.settings.dialect.columns(definition.container)
            total = source.snapshot_rows(definition.container, ()).hashed_rows(columns).by_partition(ALL)[None].total
        assert total not in seen, value
        seen.add(total)


def test_an_audit_finds_what_is_wrong_in_the_lake_and_repairs_it(shop: Callable[..., MySQLProject]) -> None:
    """A row that no sync reads again stays wrong for ever, unless an audit finds it."""
    project = shop(incremental=["orders:id:integer"], containers={"orders": {"partition_by": 10}})
    project.execute("create table orders (id int primary key, value int)", *(f"insert into orders values ({n}, {n})" for n in range(30)))
    project.one("orders")
    assert project.audit("orders")["orders"]["status"] == "equal"
    project.execute("update orders set value = -1 where id = 15", "delete from orders where id = 3")
    line = project.audit("orders")["orders"]
    assert line["status"] == "different" and set(line["partitions_different"]) == {"0", "10"}, line
    project.audit("orders", repair=True)
    project.assert_equal("orders")


def test_a_sweep_removes_deleted_rows(shop: Callable[..., MySQLProject]) -> None:
    """Rows that the source has deleted stay in the lake otherwise, as no sync reads them again."""
    project = shop(incremental=["orders:id:integer!upsert"], containers={"orders": {"deletes": "sweep", "max_deleted_share": 1.0}})
    project.execute("create table orders (id int primary key, value int)", *(f"insert into orders values ({n}, {n})" for n in range(30)))
    project.one("orders")
    project.execute("delete from orders where id in (3, 17)")
    project.one("orders", sweep=True)
    project.assert_equal("orders")


def test_a_soft_sweep_marks_deleted_rows(shop: Callable[..., MySQLProject]) -> None:
    """The mark is a column that the source does not have."""
    project = shop(incremental=["orders:id:integer!upsert"], containers={"orders": {"deletes": "soft", "max_deleted_share": 1.0}})
    project.execute("create table orders (id int primary key, value int)", "insert into orders values (1, 1), (2, 2)")
    project.one("orders")
    project.execute("delete from orders where id = 1")
    project.one("orders", sweep=True)
    marks = dict(project.rows("orders", "id, _deleted_at"))
    assert marks[1] is not None and marks[2] is None
    assert isinstance(DeltaTable(f"{project.lake}/shop/orders").version(), int)
