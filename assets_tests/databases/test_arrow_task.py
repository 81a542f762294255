"""What a task of the Arrow path makes of PostgreSQL's answers, without Spark: values, failures, and how it travels.

Belongs here: one task, called as a function. Does not belong: whole syncs by this way (``test_arrow_path``).
"""

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import conninfo, sql
from pyspark import cloudpickle
from pyspark.sql import Row

from incremental_assets.core.errors import SourceError
from incremental_assets.core.schema import Column
from incremental_assets.databases.postgres.arrow_columns import sent_as
from incremental_assets.databases.postgres.arrow_files import TRAVELLING, files_of
from incremental_assets.databases.postgres.arrow_task import (
    FIRST_TIME,
    WIRE_TYPES,
    ReadTask,
    SnapshotRead,
    SourceFailed,
    WireColumn,
    read_ranges,
    run_task,
)
from incremental_assets.databases.postgres.types import Carried
from incremental_assets.delta.parquet_files import DiskFiles

Make = Callable[..., ReadTask]
WIDE = Context(prec=50)


@pytest.fixture
def task(database: str, tmp_path: Path) -> Make:
    def make(
        query: str, *columns: tuple[pa.DataType, str], url: str = database, settings: tuple[str, ...] = (), silence: int = 60
    ) -> ReadTask:
        connection = conninfo.make_conninfo(url, client_encoding="UTF8")
        password = str(conninfo.conninfo_to_dict(url)["password"])
        found = tuple(WireColumn(f"c{i}", type_, wire) for i, (type_, wire) in enumerate(columns))
        return ReadTask(SnapshotRead(connection, password, settings, (query,), found, silence), 1, DiskFiles(str(tmp_path)), (), 32)

    return make


def rows(task: ReadTask) -> list[dict[str, Any]]:
    """Reads the task's ranges and what it wrote."""
    (result,) = read_ranges(task, range(1))
    *files, end = result.to_pylist()
    assert end == {"range": 0, "path": None, "size": None, "rows": None, "stats": None}
    return [row for file in files for row in pq.read_table(task.into.create(file["path"])).to_pylist()]


@pytest.mark.parametrize("query", ["select 1234.56::money as c0", "select 1::oid as c0", "select 1.5::numeric as c0"])
def test_a_value_in_another_form_fails(task: Make, query: str) -> None:
    """ADBC gives money as an integer of cents, and an oid as an int32: they would be in the lake as other numbers, without an error."""
    with pytest.raises(SourceFailed, match="was to arrive as string"):
        rows(task(query, (pa.string(), "string")))


@pytest.mark.parametrize("type_", ["timestamp", "timestamptz"])
@pytest.mark.parametrize("value", ["infinity", "-infinity", "294247-02-01 00:00:00+00"])
def test_a_time_that_the_lake_does_not_have_fails(task: Make, type_: str, value: str) -> None:
    """Infinity arrives as a day of the year -290278."""
    arrow = WIRE_TYPES["timestamp" if type_ == "timestamptz" else "timestamp_ntz"]
    query = f"select t::{type_} as c0 from (values (null), ('2026-01-01'), ('{value}')) v(t)"
    with pytest.raises(SourceFailed, match="column 'c0' has infinity"):
        rows(task(query, (arrow, "timestamp" if type_ == "timestamptz" else "timestamp_ntz")))


@pytest.mark.parametrize("type_", ["timestamp", "timestamptz"])
def test_the_first_and_the_last_time_arrive_as_they_are(task: Make, tmp_path: Path, type_: str) -> None:
    """Times far from today would be refused, or become other ones."""
    values = ("4714-11-24 00:00:00+00 BC", "294246-12-31 23:59:59.999999+00", "1999-12-31 23:59:59.999999+00")
    arrow = WIRE_TYPES["timestamp" if type_ == "timestamptz" else "timestamp_ntz"]
    query = f"select t::{type_} as c0 from unnest(array{list(values)}) t"
    one = task(query, (arrow, "timestamp" if type_ == "timestamptz" else "timestamp_ntz"), settings=("set timezone = 'UTC'",))
    (result,) = read_ranges(one, range(1))
    found = pq.read_table(tmp_path / result.to_pylist()[0]["path"]).column(0).cast(pa.int64()).to_pylist()
    assert found == [FIRST_TIME, 9_223_371_244_799_999_999, 946_684_799_999_999]


NUMERICS = ((10, 2), (15, 2), (18, 18), (19, 0), (38, 0), (38, 10), (38, 38), (4, 4))


@pytest.mark.parametrize("type_", NUMERICS)
def test_a_decimal_keeps_its_digits(task: Make, type_: tuple[int, int]) -> None:
    """As a float, or with its point in another place, it would be another amount.

    PostgreSQL sends groups of four decimal digits, and leaves out those that are zero: so the zeros are at all places here.
    """
    precision, scale = type_
    digits = {"0", "1", "9" * precision, "1" + "0" * (precision - 1), "9999" * 10, "10000" * 8, "5000" * 10, "12345678" * 5}
    digits |= {"1" + "0" * n for n in range(precision)} | {"9" * n for n in range(1, precision + 1)}
    drawn = random.Random(precision * 100 + scale)
    digits |= {"".join(drawn.choice("0019") for _ in range(precision)) for _ in range(300)}
    values = [Decimal(sign + one[:precision]).scaleb(-scale, WIDE) for one in sorted(digits) for sign in ("", "-")]
    given = ", ".join(f"({n}, '{value:f}')" for n, value in enumerate(values))
    query = f"select n as c0, x::numeric({precision},{scale}) as c1 from (values {given}, (-1, null)) v(n, x)"
    found = {row["c0"]: row["c1"] for row in rows(task(query, (pa.int32(), "int"), (pa.decimal128(precision, scale), "numeric")))}
    assert found == {-1: None, **dict(enumerate(values))}


@pytest.mark.parametrize("value", ["100.00", "1.005", "NaN", "Infinity", "-Infinity"])
def test_a_decimal_that_the_type_does_not_have_fails(task: Make, value: str) -> None:
    """It would be cut, or be NULL in the lake."""
    with pytest.raises(SourceFailed, match="engine: spark"):
        rows(task(f"select '{value}'::numeric as c0", (pa.decimal128(4, 2), "numeric")))


def test_a_database_in_another_encoding(task: Make, database: str) -> None:
    """PostgreSQL sends texts in the encoding of the database unless it is asked: the lake would have bytes that are no text."""
    with psycopg.connect(database, autocommit=True) as connection:
        name = f"{connection.info.dbname}_latin"
        connection.execute(f"create database {name} encoding 'LATIN1' locale 'C' template template0")  # pyright: ignore[reportArgumentType, reportCallIssue]
    url = conninfo.make_conninfo(database, dbname=name)
    assert rows(task("select 'äöü ß é'::text as c0", (pa.string(), "string"), url=url)) == [{"c0": "äöü ß é"}]


def test_bytes_that_are_no_text(task: Make, database: str) -> None:
    """A database in SQL_ASCII checks nothing: readers of the lake would fail on the file."""
    with psycopg.connect(database, autocommit=True) as connection:
        name = f"{connection.info.dbname}_ascii"
        connection.execute(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0")  # pyright: ignore[reportArgumentType, reportCallIssue]
    url = conninfo.make_conninfo(database, dbname=name)
    with pytest.raises(SourceFailed):
        rows(task(r"select e'\xff\xfe'::text as c0", (pa.string(), "string"), url=url))


def test_a_failure_of_the_source_is_told_without_secrets(task: Make, tmp_path: Path) -> None:
    """The query has the texts of the YAML's ``where:``, and the connection has the password."""
    broken = task("select i / (i - 5) as c0 from generate_series(1, 9) i where 'secret' <> ''", (pa.int32(), "int"))
    with pytest.raises(SourceFailed, match="division by zero") as failed:
        rows(broken)
    assert "secret" not in str(failed.value)
    assert not list(tmp_path.glob("*.parquet"))
    with pytest.raises(SourceFailed, match="must have isolation level") as failed:
        rows(task("select 1 as c0", (pa.int32(), "int"), settings=("set transaction snapshot '00000003-1'",)))
    wrong = task("select 1 as c0", (pa.int32(), "int"))
    assert wrong.read.password not in repr(wrong)
    with pytest.raises(SourceFailed, match="password authentication failed") as failed:
        rows(replace(wrong, read=replace(wrong.read, connection=conninfo.make_conninfo(wrong.read.connection, password="guessed-wrong"))))
    assert "guessed-wrong" not in str(failed.value) and wrong.read.password not in str(failed.value)


def test_a_source_that_falls_silent(task: Make) -> None:
    """A load would wait for ever for a server that has stopped answering."""
    with pytest.raises(SourceFailed, match=r"sent nothing to a reader for 1 s.*max_silence_seconds"):
        rows(task("select 1 as c0 from pg_sleep(60)", (pa.int32(), "int"), silence=1))


def test_the_types_that_travel() -> None:
    """A type of the lake that is new one day would be written as something else, instead of going through JDBC."""
    for type_ in WIRE_TYPES.keys() - {"numeric"}:
        assert sent_as(_carried(type_)) == WireColumn("x", WIRE_TYPES[type_], type_)
    assert sent_as(_carried("date", "int")) == WireColumn("x", pa.date32(), "int")
    assert sent_as(_carried("timestamp", "bigint")) == WireColumn("x", pa.timestamp("us", "UTC"), "timestamp")
    assert sent_as(_carried("decimal(18,2)")) == WireColumn("x", pa.decimal128(18, 2), "numeric")
    for other in (_carried("date"), _carried("variant", "string"), _carried("array<array<int>>"), _carried("string", decode="upper({})")):
        assert sent_as(other) is None


def _carried(type_: str, wire: str | None = None, decode: str = "{}") -> Carried:
    return Carried(Column("x", type_), sql.SQL("x"), wire or type_, decode)


def test_a_task_runs_where_this_project_is_not_installed(task: Make, tmp_path: Path) -> None:
    """On the workers of a cluster there are Spark, pyarrow and ADBC, and nothing of ours."""
    for module in TRAVELLING:
        cloudpickle.register_pickle_by_value(module)
    pickled = tmp_path / "task"
    pickled.write_bytes(cloudpickle.dumps(run_task(task("select 7 as c0", (pa.int32(), "int")))))
    program = f"""
import pickle, sys
sys.modules["incremental_assets"] = None
import pyarrow as pa
run = pickle.load(open({str(pickled)!r}, "rb"))
(result,) = run(iter([pa.RecordBatch.from_pydict({{"id": [0]}})]))
print(result.column("rows").to_pylist())
"""
    done = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[1, None]", done.stderr


def test_ranges_that_are_missing_or_twice_are_not_committed() -> None:
    """Rows would be missing or doubled, if Spark ever returned what two attempts of a task have made."""
    file = Row(range=0, path="a", size=1, rows=2, stats="{}")
    ends = [Row(range=i, path=None, size=None, rows=None, stats=None) for i in range(3)]
    assert [found.path for found in files_of([file, *ends], 3, "shop/t")] == ["a"]
    for wrong in ([file, *ends, file, ends[0]], [file, *ends[:2]], []):
        with pytest.raises(SourceError, match="nothing was committed"):
            files_of(wrong, 3, "shop/t")
