"""PostgreSQL and Spark hash equal rows equally, and different ones differently: what an audit rests on.

Belongs here: values of every type, on both sides. Does not belong: the search for the keys that differ (``core/test_comparison``), and the
command (``test_audit``).
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from assets_tests.databases.test_types import COLUMNS, INFINITE, TYPES, create, insert
from assets_tests.harness import Project, long
from incremental_assets.core import comparison
from incremental_assets.core.comparison import Difference, HashedRows, RowScope, compare
from incremental_assets.databases.postgres.source import PostgresSource
from incremental_assets.delta.hashed_rows import LakeHashedRows
from incremental_assets.runs.partitions import container_partitions
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]
ALL = RowScope()


@contextlib.contextmanager
def both_sides(project: Project, name: str) -> Iterator[tuple[HashedRows, HashedRows]]:
    """The rows of the source, in a snapshot, and those of the table's newest version."""
    definition, table = project.definition(name), project.table(name)
    head = table.head()
    assert head is not None
    state = head.state(definition.container)
    assert state is not None
    reader = PostgresSource(definition.settings.address, definition.container, timezone="UTC")
    with open_session(project.spark_home, name="hashed rows") as spark, reader, reader.snapshot():
        source = reader.snapshot_rows(definition.container, state.text_columns).hashed_rows(head.columns)
        yield source, LakeHashedRows(lambda: spark, table, head.version, definition.container, head.columns)


def test_values_of_every_type_are_hashed_equally(project: MakeProject) -> None:
    """A difference would be reported where there is none."""
    made = project(incremental=["public.t:at:timestamp"])
    made.execute(TYPES)
    create(made, "t")
    insert(made, "t")
    made.one("t")
    with both_sides(made, "t") as (source, lake), pytest.MonkeyPatch.context() as patch:
        found, here, bucketed = compare(source, lake, None, ALL), lake.by_partition(ALL), lake.by_bucket(ALL, 7)
        assert lake._here(ALL) is not None  # pyright: ignore[reportAttributeAccessIssue]
        patch.setattr(lake, "_here", lambda scope: None)
        assert (lake.by_partition(ALL), lake.by_bucket(ALL, 7)) == (here, bucketed), "this process and Spark hash rows alike"
    assert found.equal and found.rows == len(made.rows("t", "id")), found


def test_each_other_value_of_every_type_has_another_hash(project: MakeProject) -> None:
    """A stale row would be taken for an equal one."""
    made = project(incremental=["public.t:at:timestamp"])
    made.execute(TYPES)
    create(made, "t")
    insert(made, "t")
    definition = made.definition("t")
    unseen: list[str] = []
    with PostgresSource(definition.settings.address, definition.container, timezone="UTC") as reader:
        rows = reader.snapshot_rows(definition.container, tuple(INFINITE))
        types, connection = {column.name: column for column in rows.columns}, reader._live()
        for name, values in ((name, values) for name, (_, values) in COLUMNS.items() if values):
            hashed = rows.hashed_rows([types["id"], types[name]])
            before = hashed.by_partition(ALL)
            for number, other in itertools.pairwise([*range(len(values) + 1), 0]):  # the last row has NULL
                with connection.transaction(force_rollback=True):
                    value = values[other] if other < len(values) else "null"
                    connection.execute(f"update t set {name} = {value} where id = {number + 1}".encode())
                    if hashed.by_partition(ALL) == before:
                        unseen.append(f"{name}: {values[number] if number < len(values) else None} became {value}")
    assert unseen == []


@pytest.mark.long
def test_planted_differences_of_every_kind_and_type_are_found_and_no_others(project: MakeProject) -> None:
    """An audit that overlooks one type would call a lake complete that is not."""
    made = project(incremental=["public.t:at:timestamp"])
    made.execute(TYPES)
    create(made, "t")
    insert(made, "t")
    columns = {name: values for name, (_, values) in COLUMNS.items() if values}
    for number, (name, values) in enumerate(columns.items()):
        made.execute(f"insert into t (id, {name}) values ({1000 + number}, {values[0]})")
    made.execute("insert into t (id) select 5000 + i from generate_series(1, 200) i")
    made.one("t")
    for number, (name, values) in enumerate(columns.items()):
        made.execute(f"update t set {name} = {values[1] if len(values) > 1 else 'null'} where id = {1000 + number}")
    made.execute("delete from t where id in (5001, 5200); insert into t (id) values (9001), (9002), (9003)")
    with both_sides(made, "t") as (source, lake), pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "MOST_EXAMPLES", 1000)
        found = compare(source, lake, None, ALL)
    named = {kind: sorted(int(key[0] or 0) for key in keys) for kind, keys in found.examples.items()}
    assert named[Difference.STALE] == list(range(1000, 1000 + len(columns)))
    assert (named[Difference.SURPLUS], named[Difference.MISSING]) == ([5001, 5200], [9001, 9002, 9003])
    assert found.counts == {kind: len(keys) for kind, keys in named.items()}


@pytest.mark.long
def test_rows_that_differ_are_named_by_their_keys(project: MakeProject) -> None:
    """What an audit reports could not be looked up."""
    made = project(incremental=["public.t:at:timestamp"], containers={"t": {"partition_by": "month"}})
    made.execute("create table t (a int, b text, at timestamp, note text, primary key (a, b))")
    made.execute("insert into t select i, 'k' || i, timestamp '2024-01-15' + i * interval '1 hour', 'n' from generate_series(1, 5000) i")
    made.one("t")
    made.execute("update t set note = 'changed' where a in (7, 4000); delete from t where a = 8; update t set b = 'other' where a = 9")
    with both_sides(made, "t") as (source, lake):
        found = compare(source, lake, None, ALL)
    assert found.counts == {Difference.STALE: 2, Difference.MISSING: 1, Difference.SURPLUS: 2}
    assert set(found.examples[Difference.STALE]) == {("7", "k7"), ("4000", "k4000")}
    assert set(found.examples[Difference.SURPLUS]) == {("8", "k8"), ("9", "k9")}
    assert found.examples[Difference.MISSING] == [("9", "other")]


@pytest.mark.long
def test_doubled_rows_without_key_are_counted(project: MakeProject) -> None:
    """Rows that are in the lake twice have a partner in the source, but not each of them."""
    made = project()
    made.execute("create table t (note text); insert into t values ('a'), ('a'), ('b'), (null), ('')")
    made.one("t")
    made.execute("delete from t where ctid = (select min(ctid) from t where note = 'a'); insert into t values ('c'), ('c')")
    with both_sides(made, "t") as (source, lake):
        found = compare(source, lake, None, ALL)
    assert found.counts == {Difference.STALE: 0, Difference.MISSING: 2, Difference.SURPLUS: 1}


@pytest.mark.parametrize(
    ("type_", "by"),
    [
        ("timestamptz", "week"),
        *long(("int", 100), ("date", "month"), ("timestamp", "hour"), ("date", "day"), ("date", "week")),
    ],
)
def test_both_sides_assign_rows_to_the_same_partitions(project: MakeProject, type_: str, by: str | int) -> None:
    """A partition would be reported as different, and another one refreshed."""
    identifier = {"date": "date", "int": "integer"}.get(type_, "timestamp")
    made = project(incremental=[f"public.t:at:{identifier}"], containers={"t": {"partition_by": by}})
    made.execute(f"create table t (id int primary key, at {type_})")
    value = "i * 37 - 5000" if type_ == "int" else "timestamptz '2023-12-30 20:17:03.000001+00' + i * interval '7 hours 11 minutes'"
    earlier = ("-9999", "-1") if type_ == "int" else ("'2023-11-29 23:59:59'", "'2023-12-01'")
    made.execute(f"insert into t select i, {value} from generate_series(1, 300) i")
    made.execute(f"insert into t values (1001, {earlier[0]}), (1002, {earlier[1]}), (1003, null)")
    made.one("t")
    with made.instance() as instance:
        partitions = container_partitions(made.definition("t"), instance)
    assert partitions is not None
    with both_sides(made, "t") as (source, lake):
        ours, theirs = (
            {partitions.key_of(value) if isinstance(value, int) else value for value in side.by_partition(ALL)} for side in (source, lake)
        )
        assert compare(source, lake, partitions, ALL).equal
    assert ours == theirs and len(ours) > 3
