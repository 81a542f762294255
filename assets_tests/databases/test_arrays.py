"""Arrays of PostgreSQL arrive as arrays of the lake where the YAML says so, and no value is changed on the way.

Belongs here: ``arrays: list``. Does not belong: arrays as text (``test_types``).
"""

import datetime
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Project
from incremental_assets.delta.engine import READ_BY

MakeProject = Callable[..., Project]
LISTS = {"arrays": "list"}

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
    with psycopg.connect(project.url, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute("set timezone = 'UTC'")
        exact = {"uuid": "::text[]", "real": "::double precision[]"}  # psycopg reads the shortest text of a real as a double
        columns = ", ".join(f"{column}{exact.get(type_, '')}" for column, (type_, _, _) in ELEMENTS.items())
        return connection.execute(f"select id, {columns} from {name} order by id".encode()).fetchall()


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
