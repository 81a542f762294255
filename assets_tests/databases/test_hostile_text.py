"""Text of sources that looks like a part of SQL stays text: names, comments, keys and nested fields, with real servers.

Belongs here: text that Spark or PostgreSQL might take for a variable, the end of a quotation, or a call. Does not belong: random histories
with such text (``test_property``, ``test_files_property``), and the lint that finds unquoted names (``test_sql_text``).
"""

import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from assets_tests import hostile
from assets_tests.files.test_files_property import History, lake
from assets_tests.harness import Folder, Project, long
from incremental_assets.core.plan import Mode
from incremental_assets.delta.maintenance import maintain
from incremental_assets.operations.scans import ScanOptions, profile_lines
from incremental_assets.spark.session import open_session

MakeProject = Callable[..., Project]


EXIT = "a:bigint>) IS NULL OR java_method('java.lang.System', 'exit', 0) = 'x' -- "
"""A name of a nested field which, unquoted, ends a cast to its struct, calls a function, and makes the rest a comment."""


def log_of(project: Project, name: str) -> str:
    """The text of all files of the table's Delta log."""
    return "\n".join(path.read_text() for path in sorted((project.lake_root / "shop").glob(f"{name}*/_delta_log/*.json")))


@pytest.mark.long
def test_a_name_that_spark_takes_for_a_variable_stays_a_name(project: MakeProject) -> None:
    """Otherwise a table's comment or column writes the server's environment, passwords and all, into the lake."""
    secret = os.environ["PATH"]
    shop = project()
    shop.execute(
        'create table orders (id int primary key, "${env:PATH}" text, "${spark.sql.shuffle.partitions}" int);'
        "comment on table orders is 'from ${env:PATH}, ${system:user.home} and ${nothing}';"
        """insert into orders values (1, '${env:PATH}', 5), (2, '${nothing}', null)"""
    )
    shop.one("orders")
    shop.execute("""insert into orders values (3, '${env:HOME}', 7)""")
    shop.one("orders")
    shop.assert_equal("orders")
    log = log_of(shop, "orders")
    assert "${env:PATH}" in log and "${nothing}" in log and "${spark.sql.shuffle.partitions}" in log
    assert secret not in log


def test_a_merge_key_that_spark_takes_for_a_variable_is_found_again(project: MakeProject) -> None:
    """Otherwise the bounds of a MERGE miss the key, and each sync adds another copy of its row without a word."""
    shop = project(
        incremental=["public.pages:changed:timestamp!upsert"], containers={"pages": {"safety_lag": 600, "partition_by": "month"}}
    )
    shop.execute(
        "create table pages (key text primary key, changed timestamptz, body text);"
        "insert into pages values ('mail.${lang}.html', '2024-05-01', 'a')"
    )
    shop.one("pages")
    shop.execute("update pages set body = 'b', changed = '2024-05-02'")
    shop.one("pages")
    assert shop.rows("pages", "key, body") == [("mail.${lang}.html", "b")]


def test_no_session_replaces_variables(spark_home: Path) -> None:
    """Otherwise a session whose server is another one than the embedded one may replace variables."""
    with open_session(spark_home, name="settings") as spark:
        assert spark.sql("select '${env:PATH}', '${x}'").collect()[0][0:2] == ("${env:PATH}", "${x}")


def ident(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def const(value: str) -> str:
    return sql.Literal(value).as_string(None)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_names_comments_and_keys_of_any_text_lose_no_row(project: MakeProject, spark_home: Path, seed: int) -> None:
    """Otherwise some name or key breaks a statement, becomes a part of one, or reads as NULL, and rows are lost or doubled."""
    chance = random.Random(seed)
    table, schema, *columns = hostile.names(chance, 25)
    keys = hostile.different(102, lambda: hostile.text(chance, without="\0"), key=str)
    columns = [name for name in columns if name.lower() not in ("key", "changed")]
    first, second, third, fourth, *_ = columns
    expected, pattern = [hostile.text(chance, without="\0") for _ in range(9)], hostile.text(chance, without="\0", most_bytes=20)
    checks = [
        {"rule": "unique", "columns": ["key", first]},
        {"rule": "not_null", "columns": columns[:8]},
        {"rule": "expected_values", "column": second, "values": expected},
        {"rule": "matches_pattern", "column": third, "pattern": rf"\Q{pattern}\E"},
        {"rule": "compare", "column": fourth, "operator": "<=", "field": first},
    ]
    shop = project(
        schema=schema,
        incremental=[{"table": f"{schema}.{table}", "column": "changed", "type": "timestamp", "strategy": "upsert"}],
        containers={table: {"safety_lag": 600, "partition_by": "month", "checks": checks}},
    )
    where = f"{ident(schema)}.{ident(table)}"
    shop.execute(
        f"create schema {ident(schema)}; create table {where} (key text primary key, changed timestamptz default '2024-05-01',"
        f" {', '.join(f'{ident(name)} text' for name in columns)});"
        f"comment on table {where} is {const(hostile.text(chance, most_bytes=500, without=chr(0)))};"
        + "".join(f"comment on column {where}.{ident(name)} is {const(hostile.text(chance, without=chr(0)))};" for name in columns)
    )

    def put(some: list[str], at: str) -> None:
        for key in some:
            values = [const(chance.choice([hostile.text(chance, without="\0"), *expected[:1], pattern])) for _ in columns]
            shop.execute(
                f"insert into {where} values ({const(key)}, '{at}', {', '.join(values)}) on conflict (key) do update"
                f" set changed = excluded.changed, {', '.join(f'{ident(name)} = excluded.{ident(name)}' for name in columns)}"
            )

    put(keys[:100], "2024-05-01")
    shop.one(table)
    shop.assert_equal(table, schema=schema)
    put([*chance.sample(keys[:100], 30), *keys[100:]], "2024-05-02")  # an upsert of old and new keys, pruned by their range
    shop.one(table)
    shop.assert_equal(table, schema=schema)
    shop.execute(f"delete from {where} where key in ({', '.join(map(const, keys[:5]))})")
    shop.one(table, mode=Mode.REFRESH)
    shop.assert_equal(table, schema=schema)
    line = shop.scan(table)[table]
    assert line["errored"] == 0, line
    failed = {one["rule"]: one["rows_failed"] for one in line["verdicts"]}
    broken = {
        "expected_values": f"{ident(second)} not in ({', '.join(map(const, expected))})",
        "matches_pattern": f"position({const(pattern)} in {ident(third)}) = 0",
        "compare": f'not {ident(fourth)} <= {ident(first)} collate "C"',
    }
    for rule, condition in broken.items():
        rows = shop.source.execute(f"select count(*) from {where} where {condition}".encode()).fetchone()
        assert rows is not None and next(n for name, n in failed.items() if name.startswith(rule)) == rows[0], (rule, failed)
    with shop.instance() as instance:
        profiled = next(profile_lines(shop.dagster(), [shop.definition(table)], ScanOptions(), instance))
    assert profiled["status"] == "profiled", profiled
    with open_session(spark_home, name="maintenance") as spark:
        kept = maintain(lambda: spark, shop.table(table), shop.definition(table).container)
    assert kept is not None
    shop.assert_equal(table, schema=schema)


# ---------------------------------------------------------------- nested fields of files
def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


@pytest.mark.long
def test_a_nested_fields_name_is_not_run(folder: Callable[..., Folder], spark_home: Path) -> None:
    """Otherwise anybody who can put a file into a folder can call functions of the server's JVM, or end it."""
    made = folder(containers={"all": {"glob": "*.parquet", "format": "parquet"}}, settle_seconds=0)
    nested, others = {EXIT: 1}, {"a `b`": 2, "c,d;e": [{EXIT: 3}], "m": {'x\n"y\\': "z"}}
    made.put("1.parquet", parquet([{"id": 1, "s": nested}]))
    made.one("all")
    made.put("2.parquet", parquet([{"id": 2, "s": nested}]))  # its values are cast to the types of the table
    made.one("all")
    made.put("3.parquet", parquet([{"id": 3, "s": nested, "t": [{EXIT: 4, "b": 5}], "others": others}]))  # adds columns
    made.one("all")
    with open_session(spark_home, name="look") as spark:
        rows = spark.read.format("delta").load(made.table("all").url).orderBy("id").collect()
    found = [row.asDict(recursive=True) for row in rows]
    assert [(row["id"], row["s"]) for row in found] == [(number, nested) for number in (1, 2, 3)]
    assert [row["t"] for row in found] == [None, None, [{EXIT: 4, "b": 5}]]
    assert [row["others"] for row in found] == [None, None, others]


@pytest.mark.long
def test_a_name_that_the_reader_of_parquet_files_would_replace_is_refused(folder: Callable[..., Folder]) -> None:
    """Otherwise such a column arrives as NULL without a warning, as Hadoop replaces ${user.home} in the names of the columns to read."""
    made = folder(containers={"all": {"glob": "*.parquet", "format": "parquet"}}, settle_seconds=0)
    made.put("1.parquet", parquet([{"id": 1, "${user.home}": "lost"}]))
    made.put("2.parquet", parquet([{"id": 2, "s": {"${env.PATH}": "lost"}}]))
    made.put("3.parquet", parquet([{"id": 3}]))
    line = made.one("all", ok=False)
    assert sorted(made.files("all")) == ["3.parquet"]
    record = json.dumps(line)
    assert "${user.home}" in record and "${env.PATH}" in record and "rename it in the file" in record


@pytest.mark.long
@pytest.mark.parametrize("kind", ["csv", *long("json", "parquet")])
def test_names_columns_and_cells_of_files_with_any_text_lose_no_row(folder: Callable[..., Folder], kind: str) -> None:
    """Otherwise one file's name, one header or one key breaks a container's sync, or its rows arrive elsewhere or not at all."""
    made = folder(settle_seconds=0)
    history = History(made, 5, kind, files=30, columns=30)
    made.configure(containers={"all": history.entry()})
    for name in history.names:
        history.put(name)
    line = made.one("all")
    assert line["status"] in ("synced", "warning"), line
    found, expected = lake(history), history.expected()
    assert found == expected, (found[0] - expected[0], expected[0] - found[0], found[1], expected[1])
    key = max((row[0] for row in expected[0]), key=len)  # a refresh names the partition by the file's key
    made.one("all", keys=(key, key))
    assert lake(history) == expected, key


def test_a_name_that_is_too_long_for_a_folder_has_a_table_of_its_own(project: MakeProject) -> None:
    """Otherwise such tables cannot be synced ("File name too long"), or two of them share one place."""
    names = ['"' * 63, '"' * 62 + "x"]
    shop = project()
    for number, name in enumerate(names):
        shop.execute(f"create table {ident(name)} (id int primary key); insert into {ident(name)} values ({number})")
    for name in names:
        shop.one(name)
        shop.assert_equal(name)
    assert len({shop.table(name).url for name in names}) == 2
