"""Arrays of PostgreSQL arrive as arrays of the lake where the YAML says so, and no value is changed on the way.

Belongs here: ``arrays: list``. Does not belong: arrays as text (``test_types``).
"""

import datetime
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import dict_row

from assets_tests.databases.test_hashed_rows import ALL, both_sides
from assets_tests.harness import Project, long
from incremental_assets.core.comparison import Checksum, compare
from incremental_assets.core.container import Arrays, ContainerOptions, Kind, SourceColumn, SourceTable
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.resolve import resolve
from incremental_assets.core.window import EVERYTHING
from incremental_assets.databases.dialect import Dialect
from incremental_assets.databases.jdbc.dialect import JdbcDialect
from incremental_assets.databases.mysql.dialect import MySQLDialect
from incremental_assets.databases.postgres.source import PostgresSource
from incremental_assets.databases.source import WindowRead
from incremental_assets.databases.sqlserver.dialect import SQLServerDialect
from incremental_assets.delta.engine import READ_BY
from incremental_assets.delta.local_hashes import hashes_of
from incremental_assets.delta.local_rows import differing

MakeProject = Callable[..., Project]
LISTS = {"arrays": "list"}
READ = WindowRead((EVERYTHING,), True, None, 1)

# The element's type, its type in the lake, and arrays of it.
ELEMENTS: dict[str, tuple[str, str, list[str]]] = {
    "bools": ("boolean", "boolean", ["{t,f,NULL}"]),
    "int2s": ("smallint", "smallint", ["{-32768,NULL,32767}"]),
    "ints": ("integer", "int", ["{1,NULL,3}", "{-2147483648,2147483647}", "{3,2,1}"]),
    "int8s": ("bigint", "bigint", ["{-9223372036854775808,NULL,9223372036854775807}"]),
    "reals": ("real", "float", ["{3.4028235e38,NULL,NaN,-Infinity,-0,0.1}", "{0}", "{-0}"]),
    "doubles": ("double precision", "double", ["{1.7976931348623157e308,5e-324,NULL,NaN,Infinity,-0,0.1}", "{0}", "{-0}"]),
    "numerics": ("numeric(12,2)", "decimal(12,2)", ["{9999999999.99,NULL,-0.01,1.10,0}"]),
    "wide": ("numeric(38,18)", "decimal(38,18)", ["{12345678901234567890.123456789012345678,NULL,-0.000000000000000001}"]),
    "texts": ("text", "string", [r'{"a,b",NULL,"NULL","","\"q\"","{}","\\"," x ","🙂 é"}', '{""}', '{"a","b,c"}', '{"a,b","c"}']),
    "varchars": ("varchar(5)", "string", ['{äöüßé,NULL,"abc  "}']),
    "uuids": ("uuid", "string", ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"]),
    "dates": ("date", "date", ["{0001-01-01,NULL,1969-12-31,2024-02-29,9999-12-31}"]),
    "times": ("timestamp", "timestamp_ntz", ['{"2024-03-31 02:30:00.000001",NULL,"1883-11-18 12:03:58","0001-01-01 00:00"}']),
    "instants": ("timestamptz", "timestamp", ['{"2024-10-27 02:30:00.5+02",NULL,"1969-12-31 23:59:59.999999+00","2024-01-01 00:00+00"}']),
}  # fmt: skip


@pytest.fixture(params=["", pytest.param("jdbc", marks=pytest.mark.long)], ids=["read here", "read by Spark"])
def read_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are read in this process, and many by Spark: a value may not depend on that."""
    monkeypatch.setenv(READ_BY, request.param)


def create(project: Project, name: str) -> None:
    columns = ", ".join(f"{column} {type_}[]" for column, (type_, _, _) in ELEMENTS.items())
    project.execute(f"create table {name} (id int primary key, at timestamptz not null default '2024-11-05', {columns})")


def insert(project: Project, name: str, first_id: int = 1, at: str = "2024-11-05") -> int:
    """Inserts rows with all values, one with empty arrays, and one with NULLs. Returns how many."""
    rows = max(len(values) for _, _, values in ELEMENTS.values())
    for number in range(rows + 2):
        listed = [(*values, *["{}"] * (rows - len(values)), "{}") for _, _, values in ELEMENTS.values()]
        values = [value[number] if number <= rows else None for value in listed]
        texts = ", ".join("null" if value is None else "'" + value.replace("'", "''") + "'" for value in values)
        project.execute(f"insert into {name} values ({first_id + number}, '{at}', {texts})")
    return rows + 2


def in_source(project: Project, name: str) -> list[dict[str, Any]]:
    with psycopg.connect(project.url) as connection, connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("set timezone = 'UTC'")
        exact = {"uuid": "::text[]", "real": "::double precision[]"}  # psycopg reads the shortest text of a real as a double
        columns = ", ".join(f"{column}{exact.get(type_, '')}" for column, (type_, _, _) in ELEMENTS.items())
        return cursor.execute(f"select id, {columns} from {name} order by id".encode()).fetchall()


def assert_same(project: Project, name: str) -> None:
    """Whether lake and source have the same rows, bit by bit."""
    names = ["id", *ELEMENTS]
    lake = project.rows(name, ", ".join(names))
    rows = sorted((dict(zip(names, row, strict=True)) for row in lake), key=lambda row: row["id"])
    assert [_shown(row) for row in rows] == [_shown(row) for row in in_source(project, name)]


def _shown(row: dict[str, Any]) -> dict[str, str]:
    return {name: repr([_instant(one) for one in value] if isinstance(value, list) else value) for name, value in row.items()}


def _instant(value: Any) -> Any:
    """A time with time zone in the one object that Python has for UTC."""
    return value.astimezone(datetime.timezone.utc) if isinstance(value, datetime.datetime) and value.tzinfo else value


def test_arrays_of_every_plain_type_arrive_as_arrays(project: MakeProject, read_by: None) -> None:
    """An element would be changed or lost, or NULL, an empty array and one of NULL would be taken for each other."""
    names = {"appended": LISTS, "upserted": {**LISTS, "partition_by": "month"}, "whole": LISTS}
    made = project(incremental=["public.appended:at:timestamp", "public.upserted:at:timestamp!upsert"], containers=names)
    for name in names:
        create(made, name)
        rows = insert(made, name)
    first = made.sync()
    for name in names:
        assert first[name]["status"] == "synced", first[name]["message"]
        assert_same(made, name)
    types = {column.name: column.type for column in (made.table("whole").head() or pytest.fail("no table")).columns}
    assert {name: types[name] for name in ELEMENTS} == {name: f"array<{type_}>" for name, (_, type_, _) in ELEMENTS.items()}
    for name in names:
        insert(made, name, 101, "2024-11-06")
    # Every value moves to another row: a comparison that takes different values for equal ones would keep the old one.
    moved = ", ".join(f"{column} = other.{column}" for column in ELEMENTS)
    made.execute(
        f"update upserted set at = '2024-11-07', {moved} from (select *, (id % {rows}) + 1 as next from appended where id < 100) other "
        f"where upserted.id = other.next"
    )
    second = made.sync()
    assert (second["upserted"]["rows_inserted"], second["upserted"]["rows_updated"]) == (rows, rows)
    for name in names:
        assert_same(made, name)
    made.execute("update upserted set ints = '{7}' where id = 2; delete from upserted where id = 3")
    line = made.one("upserted", keys=("2024-11-01", "2024-11-01"))
    assert (line["rows_updated"], line["rows_deleted"]) == (1, 1)
    assert_same(made, "upserted")
    audits = made.audit()
    assert {name: audits[name]["status"] for name in names} == dict.fromkeys(names, "equal"), json.dumps(audits, default=str)


def test_arrays_are_hashed_alike_on_all_sides(project: MakeProject) -> None:
    """An audit would report a difference where there is none."""
    made = project(containers={"t": LISTS})
    create(made, "t")
    rows = insert(made, "t")
    made.one("t")
    with both_sides(made, "t") as (source, lake), pytest.MonkeyPatch.context() as patch:
        found, here = compare(source, lake, None, ALL), lake.by_partition(ALL)
        assert lake._here(ALL) is not None  # pyright: ignore[reportAttributeAccessIssue]
        patch.setattr(lake, "_here", lambda scope: None)
        assert lake.by_partition(ALL) == here, "this process and Spark hash rows alike"
    assert found.equal and found.rows == rows, found


def test_each_other_array_has_another_hash(project: MakeProject) -> None:
    """A stale row would be taken for an equal one, also by a comparison in this process, which goes by the same texts."""
    made = project(containers={"t": LISTS})
    made.execute("create table t (id int, a text[])")
    different = [None, "{}", "{NULL}", "{NULL,NULL}", '{""}', '{"",""}', '{"a,b"}', "{a,b}", "{b,a}", '{"0:,0:"}', '{"NULL"}', '{"]"}']
    for value in different:
        made.execute(f"insert into t values (1, {'null' if value is None else repr(value)})")
    definition = made.definition("t")
    with PostgresSource(definition.settings.address, definition.container, timezone="UTC") as source, source.snapshot():
        snapshot = source.snapshot_rows(definition.container, ())
        rows = snapshot.local(READ, 1 << 20)
        assert rows is not None and rows.num_rows == len(different)
        found = snapshot.hashed_rows(snapshot.columns).by_partition(ALL)[None]
    hashes = hashes_of(rows.columns).tolist()
    assert len(set(hashes)) == len(different) and (found.rows, found.total) == (len(different), sum(hashes))
    assert differing(rows, rows.slice(1)).to_pylist() == [{"c0": 1, "c1": rows.column("a")[0].as_py(), "n": -1}]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", "{{1,2},{3,4}}"),
        ("timestamptz", "{294276-12-31 23:59:59.999999+00}"),
        *long(
            ("int", "[0:1]={1,2}"),
            ("text", "{{a}}"),
            ("date", "{2024-01-01,infinity}"),
            ("timestamp", "{-infinity}"),
            ("numeric(10,2)", "{1.10,NaN}"),
        ),
    ],
)
def test_what_is_no_list_is_text_or_refused(project: MakeProject, type_: str, value: str) -> None:
    """An array of two dimensions would arrive as a flat one, and infinity as another time."""
    made = project(incremental=["public.t:id:integer"], containers={"t": LISTS, "first": LISTS})
    made.execute(f"create table t (id int primary key, a {type_}[], b int[]); insert into t values (1, '{{}}', '{{1}}')")
    made.execute(f"create table first (a {type_}[], b int[]); insert into first values ('{value}', '{{1}}')")
    first = made.one("first")
    assert "an array of more than one dimension: a" in first["message"], first["message"]
    assert made.rows("first")[0][1] == [1] and isinstance(made.rows("first")[0][0], str), "the one column alone"
    made.assert_equal("first", exclude=["b"])
    made.one("t")
    before = made.rows("t")
    made.execute(f"insert into t values (2, '{value}', '{{2}}')")
    refused = made.one("t", ok=False)
    assert refused["status"] == "failed" and "nothing was written" in refused["message"], refused["message"]
    assert "containers: {t: {text_columns: [a]}}" in refused["message"]
    assert "incremental-assets sync shop/t --reset-watermarks" in refused["message"]
    assert made.rows("t") == before
    made.configure(containers={"t": {**LISTS, "text_columns": ["a"]}})
    made.one("t", reset=True)
    made.assert_equal("t", exclude=["b"])


@pytest.mark.long
@pytest.mark.parametrize("read_by", ["jdbc", "arrow"])
def test_what_is_no_list_is_refused_by_spark_too(project: MakeProject, monkeypatch: pytest.MonkeyPatch, read_by: str) -> None:
    """Many rows are read by Spark, whose readers would flatten the array."""
    monkeypatch.setenv(READ_BY, read_by)
    made = project(incremental=["public.t:id:integer"], containers={"t": LISTS})
    made.execute("create table t (id int primary key, a int[]); insert into t values (1, '{}'), (2, null)")
    made.one("t")
    made.execute("insert into t values (3, '{{1,2},{3,4}}')")
    refused = made.one("t", ok=False)
    assert "containers: {t: {text_columns: [a]}}" in refused["message"], refused["message"]
    made.execute("update t set a = '{1,2,NULL}' where id = 3")
    made.one("t")
    assert sorted(made.rows("t")) == [(1, []), (2, None), (3, [1, 2, None])]


def test_other_arrays_stay_text_and_that_is_said(project: MakeProject) -> None:
    """A user would look for an array that is none, and rows would be lost that are found by a key that is no text."""
    made = project(containers={"t": LISTS})
    made.execute(
        """create type mood as enum ('so so', 'fine'); create domain counts as int[];
        create table t (k int[] primary key, a int[], j json[], m mood[], n numeric[], c char(3)[], b bytea[], z int[], d counts);
        insert into t values ('{1}', '{1,2}', array['{"a": 1}']::json[], '{"so so"}', '{1.10}', '{a}', '{"\\\\x00"}', '{3}', '{4}')"""
    )
    made.configure(containers={"t": {**LISTS, "text_columns": ["z"]}})
    message = made.one("t")["message"]
    assert "j (json[]), m (mood[]), n (numeric[]), c (" in message and "z (" not in message and "k (integer[])" in message, message
    head = made.table("t").head()
    assert head is not None and [c.name for c in head.columns if c.type == "array<int>"] == ["a", "d"]
    made.assert_equal("t", exclude=["a", "d"])
    made.execute("insert into t values ('{2}', '{3}')")
    again = made.one("t")
    assert again["rows_inserted"] == 1 and "text all the same" not in again["message"], "once"


def test_the_option_is_refused_where_it_does_nothing(project: MakeProject) -> None:
    """A user would wait for arrays that never come."""
    made = project(containers={"t": LISTS})
    made.execute("create table t (id int primary key, j json[])")
    with pytest.raises(ConfigurationError, match=r"shop/t: arrays: list is about arrays of numbers, .*Leave it out"):
        made.definition("t")


@pytest.mark.parametrize("dialect", [MySQLDialect(), SQLServerDialect(), JdbcDialect()], ids=["MySQL", "SQL Server", "JDBC"])
def test_the_option_is_of_postgresql_alone(dialect: Dialect) -> None:
    """Such a container would go on with texts, and say nothing."""
    table = SourceTable("t", Kind.TABLE, (SourceColumn("id", "int", "int"),))
    container = resolve("shop", "public", table, None, ContainerOptions(arrays=Arrays.LIST), 0, 0)
    with pytest.raises(ConfigurationError, match=r"shop/t: arrays: list is not possible for containers .*Leave it out"):
        dialect.check("shop/t", table, container)


def test_a_table_with_texts_is_rebuilt_for_lists(project: MakeProject) -> None:
    """Old rows would be texts in a column of arrays, or the new ones NULL."""
    made = project(incremental=["public.t:id:integer"])
    made.execute("create table t (id int primary key, a int[]); insert into t values (1, '{1,2}'), (2, null)")
    made.one("t")
    assert sorted(made.rows("t")) == [(1, "{1,2}"), (2, None)]
    made.configure(containers={"t": LISTS})
    made.execute("insert into t values (3, '{}')")
    refused = made.one("t", ok=False)
    assert "'a' is string in the lake and array<int> in the source" in refused["message"], refused["message"]
    assert "incremental-assets sync shop/t --reset-watermarks" in refused["message"]
    made.one("t", reset=True)
    assert sorted(made.rows("t")) == [(1, [1, 2]), (2, None), (3, [])]
    made.configure(containers={})
    made.execute("insert into t values (4, '{}')")
    assert "'a' is array<int> in the lake and string in the source" in made.one("t", ok=False)["message"]


def test_a_new_column_of_arrays_is_added(project: MakeProject) -> None:
    """The next sync would fail, or older rows have other values than NULL."""
    made = project(incremental=["public.t:id:integer"], containers={"t": LISTS})
    made.execute("create table t (id int primary key, a int[]); insert into t values (1, '{1,2}')")
    made.one("t")
    made.execute("alter table t add b timestamp[], add c text[]; insert into t values (2, '{3}', '{2024-01-01 00:00}', '{x}')")
    made.one("t")
    assert sorted(made.rows("t")) == [(1, [1, 2], None, None), (2, [3], [datetime.datetime(2024, 1, 1)], ["x"])]
    made.execute("alter table t alter a type bigint[]; insert into t values (3, '{3}', null, null)")
    assert "array<bigint> in the source" in made.one("t", ok=False)["message"]


_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "a": st.integers(-(2**31), 2**31 - 1),
    "b": _TEXTS | st.sampled_from(['","', "{}", "NULL", "\\"]),
    "c": st.dates(),
    "d": st.decimals(-999, 999, places=2),
    "e": st.floats(),
    "f": st.booleans(),
}
_LISTS = {name: st.none() | st.lists(st.none() | one, max_size=4) for name, one in _SCALARS.items()}
_ROWS = st.lists(st.fixed_dictionaries(_LISTS), max_size=5)


def test_random_arrays_arrive_unchanged_and_are_hashed_alike(project: MakeProject) -> None:
    """Some text in quotes, or some number, would be taken for another one, or reported as different by each audit."""
    made = project(containers={"t": LISTS})
    made.execute("create table t (a int[], b text[], c date[], d numeric(5,2)[], e double precision[], f boolean[])")
    definition = made.definition("t")

    @given(_ROWS)
    def holds(rows: list[dict[str, Any]]) -> None:
        with psycopg.connect(made.url, autocommit=True) as connection:
            connection.execute("truncate t")
            for row in rows:
                connection.execute("insert into t values (%(a)s, %(b)s, %(c)s, %(d)s, %(e)s, %(f)s)", row)
        with PostgresSource(definition.settings.address, definition.container, timezone="UTC") as source, source.snapshot():
            snapshot = source.snapshot_rows(definition.container, ())
            found = snapshot.local(READ, 1 << 20)
            checksum = snapshot.hashed_rows(snapshot.columns).by_partition(ALL).get(None, Checksum())
        assert found is not None
        assert sorted(map(repr, found.to_pylist())) == sorted(repr({name: row[name] for name in _SCALARS}) for row in rows)
        assert checksum == Checksum(len(rows), sum(hashes_of(found.columns).tolist()) if rows else 0)
        assert not differing(found, found.take(pa.array(range(len(rows))[::-1], pa.int64()))).num_rows

    holds()


def test_rules_of_columns_with_arrays_are_measured(project: MakeProject) -> None:
    """A scan would fail, and say nothing of any rule."""
    rules = [{"rule": "not_null", "columns": ["texts"]}, {"rule": "unique", "columns": ["ints"]}]
    made = project(containers={"t": {**LISTS, "checks": rules}})
    create(made, "t")
    insert(made, "t")
    line = made.one("t")
    assert line["status"] == "warning" and "broken: not_null_texts" in line["message"], line["message"]
    assert "unique_ints" in line["message"], "there are two empty arrays"
