"""Values of every built-in type of PostgreSQL, and tables and columns of any name, arrive unchanged.

Belongs here: types, keys of any type, and names. Does not belong: text that looks like SQL (``test_hostile_text``).
"""

import re
from collections.abc import Callable

import pytest
from psycopg import sql

from assets_tests.harness import Project
from incremental_assets.core.container import SourceColumn
from incremental_assets.databases.postgres.types import carry
from incremental_assets.delta.engine import READ_BY

MakeProject = Callable[..., Project]


@pytest.fixture(params=["", pytest.param("jdbc", marks=pytest.mark.long)], ids=["read here", "read by Spark"], autouse=True)
def read_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are read in this process, and many by Spark: a value may not depend on that."""
    monkeypatch.setenv(READ_BY, request.param)


# The type and the values of each column. The tables have a row of NULLs, and as many more rows as the longest list has values.
PLAIN: dict[str, tuple[str, list[str]]] = {
    "bool_": ("boolean", ["true", "false"]),
    "int2_": ("smallint", ["-32768", "32767"]),
    "int4_": ("integer", ["-2147483648", "2147483647"]),
    "int8_": ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    "num": (
        "numeric",
        ["'NaN'", "'Infinity'", "'-Infinity'", "0.1", "1e-40", "-12345678901234567890123456789012345678901234567890.6789", "1.10"],
    ),
    "num_12_2": ("numeric(12,2)", ["9999999999.99", "-0.01", "1.10", "0"]),
    "num_38_0": ("numeric(38,0)", ["99999999999999999999999999999999999999", "-1"]),
    "num_38_18": ("numeric(38,18)", ["12345678901234567890.123456789012345678", "-0.000000000000000001"]),
    "num_39_2": ("numeric(39,2)", ["1234567890123456789012345678901234567.89"]),
    "num_60_30": ("numeric(60,30)", ["123456789012345678901234567890.123456789012345678901234567890"]),
    "num_negative_scale": ("numeric(5,-3)", ["12345678", "-1000"]),
    "num_scale_above": ("numeric(3,5)", ["0.00999"]),
    "real_": ("real", ["3.4028235e38", "1e-45", "'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "0.1", "16777217"]),
    "double_": ("double precision", ["1.7976931348623157e308", "5e-324", "'NaN'", "'-Infinity'", "'-0'", "0.1", "1e23"]),
    "money_": ("money", ["-92233720368547758.08", "1.10"]),
    "text_": ("text", ["''", "' '", "E'tab\\tline\\nback\\\\slash\\r'", "'\U0001f600 é ß 漢字 \u202e'", "'NULL'", "'\\N'", "E'\\x01'"]),
    "varchar_": ("varchar(5)", ["''", "'abc  '", "'äöüßé'"]),
    "char_": ("char(5)", ["''", "'ab'", "'a b c'"]),
    "char_one": ('"char"', ["'x'", "''"]),
    "name_": ("name", ["'a name'"]),
    "bytea_": ("bytea", ["''", "'\\x00ff10'", "decode(repeat('deadbeef', 100), 'hex')"]),
    "date_": ("date", ["'0001-01-01'", "'4713-01-01 BC'", "'0001-12-31 BC'", "'9999-12-31'", "'10000-01-01'", "'5874897-12-31'"]),
    "time_": ("time", ["'00:00'", "'24:00:00'", "'23:59:59.999999'"]),
    "time_3": ("time(3)", ["'12:00:00.123'"]),
    "timetz_": ("timetz", ["'12:00+15:59'", "'24:00:00-07'", "'00:00:00.000001+05:30'"]),
    "ts": (
        "timestamp",
        ["'2024-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'", "'2024-03-31 02:30:00'", "'2024-10-27 02:30:00.5'",
         "'1883-11-18 12:03:58'", "'0044-03-15 12:00 BC'", "'12345-06-07 08:09:10.111213'", "'1582-10-10'", "'0001-01-01'"],
    ),
    "ts_0": ("timestamp(0)", ["'2024-01-01 12:34:56'"]),
    "ts_3": ("timestamp(3)", ["'2024-01-01 12:34:56.789'"]),
    "tstz": (
        "timestamptz",
        ["'2024-01-01 00:00:00.000001+00'", "'1969-12-31 23:59:59.999999+00'", "'2024-03-31 01:30:00+00'", "'2024-10-27 02:30:00+02'",
         "'0044-03-15 12:00+00 BC'", "'12345-06-07 08:09:10.111213+00'", "'1582-10-10 00:00+00'", "'1900-01-01 00:00:00+00'"],
    ),
    "interval_": ("interval", ["'1 year 2 mons 3 days 04:05:06.000007'", "'-1 day +23:00'", "'178000000 years'", "'0'"]),
    "uuid_": ("uuid", ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "json_": ("json", ["'{\"a\":  1.10, \"a\": null}'", "'\"\\u00e9\"'", "'null'"]),
    "jsonb_": ("jsonb", ["'{\"b\": 1e400, \"a\": [1.10, \"\\\\\"]}'", "'null'"]),
    "jsonpath_": ("jsonpath", ["'$.a[*] ? (@ > 1)'"]),
    "xml_": ("xml", []),  # the embedded server is built without libxml, so there are only NULLs
    "inet_": ("inet", ["'10.0.0.1'", "'10.1.2.3/8'", "'::1'", "'2001:db8::/32'"]),
    "cidr_": ("cidr", ["'10.0.0.0/8'", "'10.0.0.1'"]),
    "macaddr_": ("macaddr", ["'08:00:2b:01:02:03'"]),
    "macaddr8_": ("macaddr8", ["'08:00:2b:01:02:03:04:05'"]),
    "bit_": ("bit(9)", ["B'101010101'"]),
    "varbit_": ("varbit", ["B''", "B'1'"]),
    "bit_one": ("bit", ["B'1'", "B'0'"]),
    "oid_": ("oid", ["4294967295", "0"]),
    "xid8_": ("xid8", ["'18446744073709551615'"]),
    "pg_lsn_": ("pg_lsn", ["'16/B374D848'"]),
    "regclass_": ("regclass", ["'pg_class'"]),
    "tsvector_": ("tsvector", ["'a:1 fat:2,4B cat''s'"]),
    "tsquery_": ("tsquery", ["'fat & (rat:* | !cat)'"]),
    "point_": ("point", ["'(0.1,-2)'"]),
    "line_": ("line", ["'{1,2,3}'"]),
    "lseg_": ("lseg", ["'[(0,0),(1,1)]'"]),
    "box_": ("box", ["'(1,1),(0,0)'"]),
    "path_": ("path", ["'((0,0),(1,1))'"]),
    "polygon_": ("polygon", ["'((0,0),(1,1),(1,0))'"]),
    "circle_": ("circle", ["'<(0.1,0),2>'"]),
    "int4range_": ("int4range", ["'[1,5)'", "'empty'", "'(,)'"]),
    "numrange_": ("numrange", ["'[1.10,2)'"]),
    "daterange_": ("daterange", ["'[2024-01-01,infinity)'"]),
    "tstzrange_": ("tstzrange", ["'[2024-01-01 00:00:00.000001+02,)'"]),
    "multirange_": ("int4multirange", ["'{[1,2),[5,6)}'", "'{}'"]),
    "ints": ("integer[]", ["'{}'", "'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'"]),
    "texts": ("text[]", ["array['a,b', 'NULL', null, '', '\"q\"', E'\\\\']"]),
    "chars": ("char(3)[]", ["array['a', 'bc']::char(3)[]"]),
    "timestamps": ("timestamptz[]", ["array['2024-01-01 00:00:00.000001+02'::timestamptz, 'infinity']"]),
    "numerics": ("numeric(4,2)[]", ["'{{1.10},{NaN}}'"]),
    "mood": ("mood", ["'so so'", "'it''s fine'"]),
    "moods": ("mood[]", ["array['so so']::mood[]"]),
    "positive": ("positive", ["1.10"]),
    "padded": ("padded", ["'x'"]),
    "address": ("address", ["row('a \"street\"', 10, '10.0.0.1')::address", "row(null, null, null)::address"]),
}  # fmt: skip

# Values that no type of Spark holds. These columns arrive as text where such values are in the first load.
INFINITE: dict[str, tuple[str, list[str]]] = {
    "date_inf": ("date", ["'infinity'", "'-infinity'", "'2024-01-01'"]),
    "ts_inf": ("timestamp", ["'infinity'", "'2024-01-01 00:00:00.000001'", "'0044-03-15 12:00 BC'"]),
    "tstz_inf": ("timestamptz", ["'-infinity'", "'2024-01-01 00:00:00.000001+02'"]),
    "tstz_far": ("timestamptz", ["'294276-12-31 23:59:59.999999+00'"]),
    "num_nan": ("numeric(10,2)", ["'NaN'", "1.10"]),
}
TYPES = """create type mood as enum ('so so', 'it''s fine'); create domain positive as numeric(10,2) check (value > 0);
create domain padded as char(4); create type address as (street text, number int, host inet);"""
COLUMNS = PLAIN | INFINITE


def create(project: Project, name: str) -> None:
    columns = ", ".join(f"{column} {type_}" for column, (type_, _) in COLUMNS.items())
    project.execute(f"create table {name} (id int primary key, at timestamptz not null default '2024-11-05', {columns})")


def insert(project: Project, name: str, first_id: int = 1, at: str = "2024-11-05") -> None:
    rows = max(len(values) for _, values in COLUMNS.values())
    for number in range(rows + 1):  # the last one has NULLs only
        values = [v[number] if number < len(v) else "null" for _, v in COLUMNS.values()]
        project.execute(f"insert into {name} values ({first_id + number}, '{at}', {', '.join(values)})")


def test_values_of_every_type_arrive_unchanged(project: MakeProject) -> None:
    """Values must not be rounded, shifted by hours, cut to milliseconds, padded, or set to NULL."""
    made = project(incremental=["public.appended:at:timestamp", "public.upserted:at:timestamp!upsert"])
    made.execute(TYPES)
    names = ("appended", "upserted", "whole")
    for name in names:
        create(made, name)
        insert(made, name)
    first = made.sync()
    for name in names:
        assert first[name]["status"] == "synced", first[name]["message"]
        assert all(column in first[name]["message"] for column in INFINITE), first[name]["message"]
        made.assert_equal(name)
    types = {column.name: column.type for column in (made.table("whole").head() or pytest.fail("no table")).columns}
    exact = {"num_12_2": "decimal(12,2)", "num_38_18": "decimal(38,18)", "ts": "timestamp_ntz", "tstz": "timestamp", "date_": "date"}
    assert {name: types[name] for name in exact} == exact  # not simply everything as text
    assert {types[name] for name in (*INFINITE, "num", "num_39_2", "num_negative_scale", "json_", "ints", "mood")} == {"string"}

    rows = len(made.rows("whole", "id"))
    for name in names:
        insert(made, name, 101, "2024-11-06")
    # Every value moves to another row. An upsert that takes different values for equal ones would keep the old one.
    moved = ", ".join(f"{column} = other.{column}" for column in COLUMNS)
    made.execute(
        f"update upserted set at = '2024-11-07', {moved} from (select *, (id % {rows}) + 1 as next from appended where id < 100) other "
        f"where upserted.id = other.next"
    )
    second = made.sync()
    assert (second["upserted"]["rows_inserted"], second["upserted"]["rows_updated"]) == (rows, rows)
    assert second["appended"]["rows_inserted"] == rows
    for name in names:
        assert second[name]["status"] == "synced", second[name]["message"]
        made.assert_equal(name)
    made.execute("update upserted set at = '2024-11-08', real_ = -real_, double_ = -double_ where double_ = 0 or real_ = 0")
    made.one("upserted")
    made.assert_equal("upserted")


@pytest.mark.long
def test_values_that_arrive_later_are_refused_rather_than_altered(project: MakeProject) -> None:
    """An infinite date in a column that had none must not become NULL or another date, and the message must say what to do."""
    made = project(incremental=["public.t:at:timestamp!upsert"], containers={"t": {"partition_by": "month"}})
    made.execute(
        """create table t (id int primary key, at timestamp, until date, price numeric(6,2), long text);
        insert into t values (1, '2024-11-01', '2024-01-01', 1.10, repeat('long 😀', 1000000)), (2, '2024-11-01', null, null, '')"""
    )
    made.one("t")
    made.assert_equal("t")
    before = made.rows("t")
    made.execute("insert into t values (3, '2024-11-02', 'infinity', 'NaN')")
    refused = made.one("t", ok=False)
    assert refused["status"] == "failed" and "nothing was written" in refused["message"]
    assert "containers: {t: {text_columns: [until, price]}}" in refused["message"]
    assert "incremental-assets sync shop/t --reset-watermarks" in refused["message"]
    assert made.rows("t") == before
    made.configure(containers={"t": {"partition_by": "month", "text_columns": ["until", "price"]}})
    made.one("t", reset=True)
    made.assert_equal("t")


@pytest.mark.long
def test_rows_are_found_again_by_keys_of_any_type(project: MakeProject) -> None:
    """A refresh must find a row that has moved to another month by its key, also where the key is binary, padded or a time."""
    made = project(incremental=["public.t:day:date!upsert"], containers={"t": {"partition_by": "month"}})
    made.execute(
        """create table t (b bytea, i timestamptz, l timestamp, d date, c char(4), f double precision, n numeric(8,3), "a.b `c" text,
          day date, note text, primary key (b, i, l, d, c, f, n, "a.b `c"));
        insert into t select decode('ff0' || i, 'hex'), timestamptz '2024-11-01 00:00:00.000001+02' + i * interval '1 hour',
          timestamp '0044-03-15 12:00 BC', date '12345-01-01' + i, 'ab', i / 3.0, i / 8.0, e'it''s \\\\ "' || i,
          date '2024-09-10', 'n' from generate_series(1, 5) i"""
    )
    made.one("t")
    made.assert_equal("t")
    made.execute("update t set day = '2024-10-10', note = 'moved' where n = 0.125; delete from t where n = 0.25")
    line = made.one("t", keys=("2024-09-01", "2024-09-01"))
    assert (line["rows_updated"], line["rows_deleted"]) == (1, 1)
    made.assert_equal("t")
    made.execute("update t set note = 'changed', day = '2024-10-11' where n > 0.4")
    assert made.one("t")["rows_updated"] == 2
    made.assert_equal("t")


@pytest.mark.long
def test_tables_and_columns_with_unusual_names_are_synced(project: MakeProject) -> None:
    """A table with a keyword, a quote, a dot or a space in a name must be synced, and must not overwrite another one."""
    name = """we"ird. tä`ble $1'😀"""
    columns = ["select", "a b", "a.b", "a,b;{}()=", "tab\tline\n", 'quo"te', "back`tick", "ünï😀", "MixedCase", "$1", "%s", "{x}",
               "it's", "what?", "back\\slash", "side", "hash", "fresh", "t", "s", "k0", "c0", "c1", "came", "value", "key"]  # fmt: skip
    quoted = ['"' + c.replace('"', '""') + '"' for c in columns]
    table = '"' + name.replace('"', '""') + '"'
    made = project(
        incremental=[{"table": f"public.{name}", "column": ["when d", "t.d"], "type": "datetime", "strategy": "upsert"}, "other:Day:date"],
        containers={
            name: {"partition_by": "month", "where": """"payload" ? 'what?' and "select" <> 'is it?'"""},
            "other": {"partition_by": "month"},
        },
    )
    values = ", ".join(f"'{i}'" for i in range(len(columns)))
    made.execute(
        f"""create table {table} ("when d" timestamp, "t.d" timestamp, "Ke.y" int, "k`2" text, payload jsonb, {" text, ".join(quoted)} text,
          primary key ("Ke.y", "k`2"));
        insert into {table} select '2024-11-01', null, i, 'a' || i, '{{"what?": 1}}', {values} from generate_series(1, 3) i;
        insert into {table} values ('2024-11-01', null, 9, 'left out', '{{}}');
        create table other ("Day" date, side text); insert into other values ('2024-11-01', 'left')"""
    )
    made.one(name)
    made.one("other")
    assert made.table(name).url.endswith("/lake/shop/we_U22_ird_U2E__U20_t_UE4__U60_ble_U20__U24_1_U27__U1F600_")
    kept = """payload ? 'what?'"""
    made.assert_equal(name, where=kept)
    made.execute(f"""update {table} set "t.d" = '2024-11-02', "side" = 'right' where "Ke.y" = 2;
        insert into other values ('2024-11-01', 'right'), ('2024-11-01', 'left')""")
    assert made.one(name)["rows_updated"] == 1
    assert made.one("other")["rows_inserted"] == 2
    made.assert_equal(name, where=kept)
    made.assert_equal("other")
    # A table gets its first unusual name. Delta then needs column mapping, both when a column is added and in a load anew.
    made.execute("""alter table other add "odd name" int; insert into other values ('2024-11-02', 'x', 1)""")
    made.one("other")
    made.assert_equal("other")
    made.execute("""create table third (a int); insert into third values (1)""")
    made.one("third")
    made.execute("""alter table third rename a to "a (b)"; insert into third values (2)""")
    made.one("third", reset=True)
    made.assert_equal("third")


def test_names_that_differ_only_in_case_refuse_their_container_alone(project: MakeProject) -> None:
    """Delta takes such names for one column, so that one column would overwrite the other; the other tables have no part in it."""
    made = project()
    made.execute("""create table u (id int); insert into u values (1); create table t (id int, "ID" int); insert into t values (1, 2)""")
    lines = made.sync()
    assert (
        re.search(r"'id' and 'ID' differ only in case.*exclude_columns: \[ID\]", lines["t"]["message"]) and lines["t"]["status"] == "failed"
    )
    assert lines["u"]["status"] == "synced" and made.rows("u") == [(1,)]
    made.configure(containers={"t": {"exclude_columns": ["ID"]}})
    made.one("t")
    made.assert_equal("t", exclude=["ID"])


@pytest.mark.long
def test_the_catalog_names_all_containers_that_are_refused_at_once(project: MakeProject) -> None:
    """Named one after the other, each of them would cost a run; and a new table would not be found before the last of them is mended."""
    made = project()
    made.execute("""create table t (id int, "ID" int); create table u (id int, x int, "X" int); create table v (id int)""")
    made.write()
    _, lines, _ = made.cli("catalog", "shop", "--json")
    troubles = {line["container"]: line["trouble"] or "" for line in lines}
    assert "'id' and 'ID'" in troubles["shop/t"] and "'x' and 'X'" in troubles["shop/u"] and not troubles["shop/v"]


@pytest.mark.long
def test_times_of_servers_before_version_14_arrive_unchanged(project: MakeProject) -> None:
    """PostgreSQL before 14 computes epochs in double precision, which would change 9999-12-31 23:59:59.999999, a common value for
    "never"."""
    made = project()
    for base in ("timestamp with time zone", "timestamp without time zone"):
        column = SourceColumn("x", base, base)
        query = sql.SQL("select {}, {} from (select unnest({}::{}[]) as x) values").format(
            carry(column, server_version=180000).select, carry(column, server_version=130000).select,
            sql.Literal(["9999-12-31 23:59:59.999999", "0044-03-15 12:00:00.000001 BC", "1969-12-31 23:59:59.999999", "1970-01-01"]),
            sql.SQL("timestamptz" if "with time" in base else "timestamp"),
        )  # fmt: skip
        rows = made.source.execute(query).fetchall()
        assert [row[0] for row in rows] == [row[1] for row in rows] and len(rows) == 4
        assert rows[0][0] == 253402300799999999 and rows[2][0] == -1
